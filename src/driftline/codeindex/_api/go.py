"""Go: packages instead of files, and types as text that depends on no name a caller cannot see (index diffs §8.2)."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from driftline.codeindex import _api
from driftline.codeindex._api import Fact, FileFacts, Files, Param, Surface, Thing, children, line_of, part, text, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_NOT_API = frozenset(("internal", "testdata", "vendor", "third_party", "node_modules"))
_OTHER_SYSTEMS = frozenset(_api.WORDS["go"]["other_systems"])
# One configuration is compared: what a current Go builds for linux/amd64 without tags of its own.
_TAGS = frozenset(("linux", "amd64", "unix", "gc", "cgo"))
_INNERMOST = re.compile(r"\(([^()]*)\)")
_EQUAL = {"byte": "uint8", "rune": "int32"}
_LITERALS: dict[str, str] = _api.WORDS["go"]["literals"]
_LOCAL_NAME = re.compile(r"(?<![\w./])[A-Za-z_]\w*(?![\w./(])")
_FOREIGN_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.[A-Z]\w*")
_VERSION = re.compile(r"v\d+")
_MAJOR_VERSION = re.compile(r"/v\d+$")


def read(root: Node) -> FileFacts:
    clause = next(iter(children(root, "package_clause")), None)
    facts = FileFacts(unit=text(children(clause)[0]) if clause is not None and children(clause) else "")
    end = clause.start_byte if clause is not None else root.end_byte
    facts.flags = (
        [] if _is_built([text(node) for node in children(root, "comment") if node.end_byte <= end]) else ["not-built"]
    )
    reader = _Reader(dict(_imports(root)))
    facts.names = [fact for node in root.named_children for fact in reader.declared(node)]
    return facts


def _is_built(comments: list[str]) -> bool:
    for comment in comments:
        if comment.startswith("//go:build "):
            return _is_true(comment.removeprefix("//go:build "))
    lines = [comment.removeprefix("// +build ").split() for comment in comments if comment.startswith("// +build ")]
    return all(any(all(_has_tag(tag) for tag in option.split(",")) for option in line) for line in lines)


def _has_tag(tag: str) -> bool:
    plain = tag.strip()
    return not _has_tag(plain[1:]) if plain.startswith("!") else plain in _TAGS or plain.startswith("go1.")


def _is_true(constraint: str) -> bool:
    """A build constraint: `||` binds less than `&&`, which binds less than `!`; brackets become a tag."""
    while (inner := _INNERMOST.search(constraint)) is not None:
        constraint = constraint.replace(inner[0], "unix" if _is_true(inner[1]) else "none")
    return any(all(map(_has_tag, option.split("&&"))) for option in constraint.split("||"))


def _imports(root: Node) -> Iterator[tuple[str, str]]:
    """Import paths by the name that the file uses."""
    for declaration in children(root, "import_declaration"):
        for node in walk(declaration, "import_spec"):
            path = part(node, "path").strip('"`')
            *above, last = path.split("/")
            named = above[-1] if above and _VERSION.fullmatch(last) else last
            yield part(node, "name") or re.sub(r"\.v\d+$", "", named).removeprefix("go-"), path


class _Reader:
    """Reads declarations; `own` has the type parameters of the one at hand, by position."""

    def __init__(self, imports: dict[str, str]) -> None:
        self.imports = imports
        self.own: dict[str, str] = {}

    def declared(self, node: Node) -> Iterator[Fact]:
        self.own = {}
        if node.type == "function_declaration":
            yield self._function(node, "function")
        elif node.type == "method_declaration":
            yield self._method(node)
        elif node.type == "type_declaration":
            for spec in children(node, "type_spec", "type_alias"):
                self.own = {}
                yield self._type_spec(spec)
        elif node.type in ("const_declaration", "var_declaration"):
            yield from self._values(node)

    def _function(self, node: Node, kind: str) -> Fact:
        generics = self._generics(node)
        params, result = self._signature(node)
        return Fact(part(node, "name"), kind, line_of(node), params, result, generics=generics)

    def _generics(self, node: Node) -> list[str]:
        bounds: list[str] = []
        holder = node.child_by_field_name("type_parameters")
        for item in children(holder):
            for name in children(item, "identifier"):
                self.own[text(name)] = f"${len(bounds)}"
                bounds.append(self.type(item.child_by_field_name("type")))
        return bounds

    def _method(self, node: Node) -> Fact:
        """A method; `value` is the type it belongs to."""
        receiver = next(iter(children(node.child_by_field_name("receiver"))), None)
        kind = receiver.child_by_field_name("type") if receiver is not None else None
        pointer = kind is not None and kind.type == "pointer_type"
        while kind is not None and kind.type in ("pointer_type", "parenthesized_type") and kind.named_children:
            kind = kind.named_children[0]
        if kind is not None and kind.type == "generic_type":
            arguments = kind.child_by_field_name("type_arguments")
            self.own = {text(item): f"${place}" for place, item in enumerate(children(arguments))}
            kind = kind.child_by_field_name("type")
        fact = self._function(node, "method")
        fact.value, fact.flags = text(kind), ["pointer"] if pointer else []
        return fact

    def _signature(self, node: Node) -> tuple[list[Param], str]:
        params, result = self._listed(node.child_by_field_name("parameters")), node.child_by_field_name("result")
        if result is None or result.type != "parameter_list":
            return params, self.type(result)
        return params, ",".join(item.type for item in self._listed(result))

    def _listed(self, holder: Node | None) -> list[Param]:
        """Parameters or results; several names may share a type, and one without a name is blank."""
        return [
            Param(name, "rest" if item.type.startswith("variadic") else "positional", None, kind)
            for item in children(holder, "parameter_declaration", "variadic_parameter_declaration")
            for kind in [self.type(item.child_by_field_name("type"))]
            for name in [text(name) for name in children(item, "identifier")] or [""]
        ]

    def type(self, node: Node | None) -> str:  # noqa: PLR0911 - one line for each kind of type
        """A type without names of parameters, tags and spellings of the same."""
        if node is None:
            return ""
        match node.type:
            case "qualified_type":
                package, name = part(node, "package"), part(node, "name")
                return f"{self.imports.get(package, package)}.{name}"
            case "function_type" | "func_literal" | "method_elem":
                params, result = self._signature(node)
                types = ",".join(("..." if item.how == "rest" else "") + item.type for item in params)
                return f"{part(node, 'name') if node.type == 'method_elem' else 'func'}({types}){result}"
            case "interface_type" if not node.named_children:
                return "any"
            case "interface_type" | "struct_type":
                inner = [self.type(child) for holder in _lists(node) for child in children(holder)]
                return f"{node.type.partition('_')[0]}{{{';'.join(sorted(inner))}}}"
            case "parenthesized_type":
                return self.type(node.named_children[0])
            case "type_identifier":
                return self.own.get(text(node), _EQUAL.get(text(node), text(node)))
            case "field_declaration":
                names = ",".join(text(name) for name in children(node, "field_identifier"))
                return f"{names} {self.type(node.child_by_field_name('type'))}"
        if not node.named_children:
            return text(node)
        return "".join(
            self.type(child) if child.is_named else text(child) + (" " if text(child) in ("chan", "<-") else "")
            for child in node.children
            if child.type != "comment"
        )

    def _type_spec(self, node: Node) -> Fact:
        body = node.child_by_field_name("type")
        fact = Fact(part(node, "name"), "type", line_of(node), generics=self._generics(node))
        if node.type == "type_alias":
            fact.kind, fact.type = "alias", self.type(body)
        elif body is not None and body.type == "struct_type":
            fact.kind = "struct"
            self._fields(body, fact)
        elif body is not None and body.type == "interface_type":
            fact.kind = "interface"
            self._methods(body, fact)
        else:
            fact.type = self.type(body)
        return fact

    def _fields(self, body: Node, fact: Fact) -> None:
        for holder in _lists(body):
            for node in children(holder, "field_declaration"):
                star = "*" if any(child.type == "*" for child in node.children) else ""
                kind = star + self.type(node.child_by_field_name("type"))
                names = [text(name) for name in children(node, "field_identifier")]
                embedded = [] if names else ["embedded"]
                if kind.startswith(("[]", "map[", "func(")):
                    fact.flags = ["incomparable"]
                for name in names or [kind.partition("[")[0].lstrip("*").rpartition(".")[2]]:
                    if name[:1].isupper() or embedded:
                        fact.members.append(Fact(name, "field", line_of(node), type=kind, flags=embedded))

    def _methods(self, body: Node, fact: Fact) -> None:
        for node in children(body):
            if node.type == "method_elem":
                method = self._function(node, "abstract")
                method.flags = ["abstract"]
                if method.name[:1].isupper():
                    fact.members.append(method)
                else:
                    fact.flags = ["unexported-methods"]
            else:
                inner = self.type(node)
                if re.fullmatch(r"[\w./-]+", inner):
                    fact.bases.append(inner)
                else:
                    fact.type += f"{inner};"

    def _values(self, node: Node) -> Iterator[Fact]:
        kind = node.type.partition("_")[0]
        last: tuple[str, list[Node]] = ("", [])
        for place, spec in enumerate(walk(node, "const_spec", "var_spec")):
            value = spec.child_by_field_name("value")
            typed, values = self.type(spec.child_by_field_name("type")), children(value)
            if kind == "const":
                # A constant without a value repeats the one above it.
                typed, values = last = last if value is None else (typed, values)
            for number, name in enumerate(spec.children_by_field_name("name")):
                if name.type != "identifier":
                    continue
                given = values[number] if number < len(values) else None
                shown = "".join(str(place) if word == "iota" else word for word in _words(given))
                fact = Fact(text(name), kind, line_of(spec), type=typed, value=shown)
                if kind == "const":
                    fact.flags = ["text"] if given is not None and "string" in given.type else []
                else:
                    fact.type = typed or self._inferred(given)
                yield fact

    def _inferred(self, node: Node | None) -> str:
        """The type of a variable where its value determines it."""
        if node is None:
            return ""
        if node.type == "composite_literal":
            return self.type(node.child_by_field_name("type"))
        if node.type == "unary_expression" and text(node).startswith("&"):
            inner = self._inferred(node.child_by_field_name("operand"))
            return f"*{inner}" if inner else ""
        if node.type == "func_literal":
            return self.type(node)
        if node.type == "call_expression" and part(node, "function") in ("errors.New", "fmt.Errorf"):
            return "error"
        return _LITERALS.get(node.type, "")


def _lists(node: Node) -> list[Node]:
    return children(node, "field_declaration_list") or [node]


def _words(node: Node | None) -> Iterator[str]:
    if node is not None and not node.children:
        yield text(node)
    for child in node.children if node is not None else ():
        yield from _words(child)


# Names of a side.


def surface(files: Files) -> Surface:
    found = Surface()
    modules = {
        posixpath.dirname(path): str(file.facts.manifest.get("module", ""))
        for path, file in files.items()
        if file.language == "gomod"
    }
    packages: dict[str, list[str]] = defaultdict(list)
    for path, file in sorted(files.items()):
        package = _package(path, modules) if file.language == "go" else None
        if package is not None and "not-built" not in file.facts.flags:
            found.files.add(path)
            if file.facts.unit != "main" and not file.facts.unit.endswith("_test"):
                packages[package or file.facts.unit].append(path)
    found.units = {name: posixpath.join(folder, "go.mod") for folder, name in modules.items()}
    aliases = {
        f"{package}.{fact.name}": (package, fact.type)
        for package, paths in packages.items()
        for path in paths
        for fact in files[path].facts.names
        if fact.kind == "alias"
    }
    for package, paths in packages.items():
        _put_package(found, package, {path: files[path] for path in paths}, aliases)
    return found


def with_old_modules(old: Files, new: Files) -> tuple[Files, dict[str, tuple[str, str]]]:
    """The newer side with modules under the names they had, where only the major version in them is another."""
    renamed: dict[str, tuple[str, str]] = {}
    for path, file in new.items():
        before, after = (str(item.facts.manifest.get("module", "")) for item in (old.get(path, file), file))
        if before != after and _MAJOR_VERSION.sub("", before) == _MAJOR_VERSION.sub("", after):
            renamed[path] = before, after
    files = dict(new)
    for before, after in renamed.values():
        for path, file in files.items():
            # Everywhere: types in facts have import paths too.
            text_ = msgspec.json.encode(file.facts).replace(after.encode(), before.encode())
            files[path] = dataclasses.replace(file, facts=msgspec.json.decode(text_, type=FileFacts))
    return files, renamed


def _package(path: str, modules: dict[str, str]) -> str | None:
    """The import path of a file; blank without a module, None where it is no API."""
    folder, _, leaf = path.rpartition("/")
    words = leaf.removesuffix(".go").split("_")[1:]
    if leaf.endswith("_test.go") or set(words[-2:]) & _OTHER_SYSTEMS:
        return None
    if any(name in _NOT_API or name.startswith(("_", ".")) for name in folder.split("/") if name):
        return None
    roots = [root for root in modules if not root or folder == root or folder.startswith(f"{root}/")]
    root = max(roots, key=len, default="")
    return "/".join(filter(None, (modules.get(root, ""), folder[len(root) :].strip("/"))))


def _put_package(found: Surface, package: str, group: Files, aliases: dict[str, tuple[str, str]]) -> None:
    found.names[package] = Thing(Fact(package, "module", 1), next(iter(group)), package)
    types: dict[str, Thing] = {}
    methods: list[tuple[Fact, str]] = []
    for path, file in group.items():
        for written in file.facts.names:
            fact = _without_aliases(written, package, aliases)
            if fact.kind == "method":
                methods.append((fact, path))
                continue
            types[fact.name] = Thing.whole(fact, path, f"{package}.{fact.name}")
    for fact, path in methods:
        if fact.value in types:
            owner = types[fact.value]
            owner.members.setdefault(fact.name, Thing.of(fact, path, f"{owner.id}.{fact.name}"))
    for name in types:
        _promote(name, types, set())
    for name, thing in types.items():
        if not name[:1].isupper():
            found.hidden.add(thing.id)
            continue
        thing.members = {inner: item for inner, item in thing.members.items() if inner[:1].isupper()}
        found.put(thing.id, thing)


def _promote(name: str, types: dict[str, Thing], seen: set[str]) -> None:
    """Members that embedding gives; of types of the same package."""
    thing = types[name]
    embedded = [item.fact.type.lstrip("*") for item in thing.members.values() if "embedded" in item.flags]
    for inner in (*embedded, *(thing.fact.bases if thing.kind == "interface" else ())):
        plain = inner.partition("[")[0]
        if plain in types and plain not in seen:
            _promote(plain, types, {*seen, name})
            for member, item in types[plain].members.items():
                thing.members.setdefault(member, item)
            if thing.kind == "interface":
                thing.flags |= types[plain].flags & {"unexported-methods"}


def _without_aliases(fact: Fact, package: str, aliases: dict[str, tuple[str, str]]) -> Fact:
    if not aliases:
        return fact

    def plain(kind: str, depth: int = 3) -> str:
        def behind(name: str) -> str:
            if name not in aliases or depth == 0:
                return name.removeprefix(f"{package}.")
            return plain(aliases[name][1], depth - 1)

        kind = _LOCAL_NAME.sub(lambda found: behind(f"{package}.{found[0]}"), kind)
        return _FOREIGN_NAME.sub(lambda found: behind(found[0]) if found[0] in aliases else found[0], kind)

    params = [replace(item, type=plain(item.type)) for item in fact.params] if fact.params is not None else None
    members = [_without_aliases(member, package, aliases) for member in fact.members]
    kind = fact.type if fact.kind == "alias" else plain(fact.type)
    return replace(fact, params=params, type=kind, members=members)
