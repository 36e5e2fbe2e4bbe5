"""TypeScript and JavaScript: what the entry points of a package export (index diffs §8.2)."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from driftline.codeindex import _api
from driftline.codeindex._api import Fact, FileFacts, Files, Param, Surface, Thing, children, line_of, part, text, walk

if TYPE_CHECKING:
    from tree_sitter import Node

Own = dict[str, str]

_LITERALS = {
    "number": "number",
    "string": "string",
    "template_string": "string",
    "true": "boolean",
    "false": "boolean",
    "regex": "RegExp",
}
_SKIPPED = (",", ";", "comment", "statement_block")
_LONGEST = 200
_FUNCTIONS = ("arrow_function", "function_expression", "function", "generator_function")
_ENDINGS = tuple(_api.WORDS["script"]["endings"])
_SCRIPT_ENDING = re.compile(r"(\.d)?\.[cm]?[jt]sx?$")
_BUILT = re.compile(r"^(dist|lib|build|out|esm|cjs|es)(/(esm|cjs|es|src|types))?/")
_NOT_API = re.compile(_api.WORDS["script"]["not_api"])
_DECLARATIONS = (".d.ts", ".d.mts", ".d.cts")
_CONDITIONS = ("types", "import", "module", "default", "require", "node")
_WORD = re.compile(r"[\w$]")
_MERGED = frozenset(("interface", "class", "namespace", "enum", "function", "value", "type"))


# Facts.


def read(root: Node, typed: bool = True) -> FileFacts:
    """The facts of a file; in plain JavaScript no parameter is required."""
    facts = FileFacts()
    _block(root, facts, typed)
    return facts


def _block(body: Node, facts: FileFacts, typed: bool, ambient: bool = False) -> None:
    """The facts of a file or a namespace."""
    for node in children(body):
        if _is_internal(node):
            continue
        if node.type == "import_statement":
            facts.names.extend(_imports(node))
        elif node.type == "export_statement":
            _export(node, facts, typed)
        elif node.type == "expression_statement" and children(node, "assignment_expression"):
            facts.names.extend(_assigned_exports(children(node)[0], typed))
        else:
            flags = ["ambient"] if node.type == "ambient_declaration" else []
            facts.names.extend(_flagged(_declared(node, typed, ambient), *flags))


def _flagged(facts: Iterable[Fact], *flags: str) -> Iterator[Fact]:
    for fact in facts:
        fact.flags = [*fact.flags, *flags]
        yield fact


def _is_internal(node: Node) -> bool:
    above = node.prev_sibling
    return above is not None and above.type == "comment" and b"@internal" in (above.text or b"")


def _imports(node: Node) -> Iterator[Fact]:
    source, line = _string(node.child_by_field_name("source")), line_of(node)
    for item in walk(node, "import_specifier"):
        name = part(item, "name")
        yield Fact(part(item, "alias") or name, "import", line, type=source, value=name)
    for item in walk(node, "namespace_import"):
        yield Fact(text(item.named_children[0]), "import", line, type=source, value="*")
    for clause in children(node, "import_clause"):
        for item in children(clause, "identifier"):
            yield Fact(text(item), "import", line, type=source, value="default")


def _export(node: Node, facts: FileFacts, typed: bool) -> None:
    source, line = _string(node.child_by_field_name("source")), line_of(node)
    declaration, value = node.child_by_field_name("declaration"), node.child_by_field_name("value")
    words = {child.type for child in node.children if not child.is_named}
    if declaration is None:
        facts.flags = ["listed"]  # nothing is exported by itself beside such a statement
    if declaration is not None:
        facts.names.extend(_flagged(_declared(declaration, typed), "default" if "default" in words else "export"))
    elif value is not None and value.type == "identifier":
        facts.names.append(Fact("default", "export", line, value=text(value)))
    elif value is not None:
        facts.names.extend(_flagged([_value("default", value, value, None, typed)], "export"))
    elif spaces := children(node, "namespace_export"):
        facts.names.append(Fact(text(spaces[0].named_children[0]), "export", line, type=source, value="*"))
    elif "*" in words:
        facts.stars.append(source)
    elif "=" in words:
        facts.names.append(Fact("default", "export", line, value=text(children(node)[-1]), flags=["whole"]))
    else:
        for item in walk(node, "export_specifier"):
            name = part(item, "name")
            facts.names.append(Fact(part(item, "alias") or name, "export", line, type=source, value=name))


def _assigned_exports(node: Node, typed: bool) -> Iterator[Fact]:
    """`exports.x = ...` and `module.exports = ...`."""
    left, right = part(node, "left"), node.child_by_field_name("right")
    named: list[tuple[str, Node, Node | None]] = []
    if left.startswith(("exports.", "module.exports.")):
        yield from _flagged([_value(left.rpartition(".")[2], node, right, None, typed)] if right else [], "export")
    elif left == "module.exports" and right is not None and right.type == "object":
        named = [
            (part(item, "key") or part(item, "name") or text(item), item, item.child_by_field_name("value"))
            for item in children(right)
        ]
    elif left == "module.exports" and right is not None:
        named = [("default", node, right)]
    for name, item, value in named:
        if item.type == "shorthand_property_identifier" or (value is not None and value.type == "identifier"):
            yield Fact(name, "export", line_of(item), value=text(value) if value is not None else name)
        else:
            yield from _flagged([_value(name, item, value or item, None, typed)], "export")


def _string(node: Node | None) -> str:
    return text(node).strip("'\"`")


def _declared(node: Node, typed: bool, ambient: bool = False) -> Iterator[Fact]:  # noqa: C901, PLR0912, PLR0915 - one case for each declaration
    name, line = part(node, "name"), line_of(node)
    match node.type:
        case "ambient_declaration" | "expression_statement":
            for child in children(node):
                yield from _declared(child, typed, ambient or node.type == "ambient_declaration")
        case "function_declaration" | "generator_function_declaration":
            yield _function(name, node, typed)
        case "function_signature":
            yield from _flagged([_function(name, node, typed)], "signature")
        case "class_declaration" | "abstract_class_declaration":
            yield _class(name, node, typed)
        case "interface_declaration":
            own = _own(node)
            bases = [_type(base, own) for clause in children(node, "extends_type_clause") for base in children(clause)]
            members = list(_members(node.child_by_field_name("body"), own, typed, interface=True))
            yield Fact(name, "interface", line, bases=bases, generics=_generics(node, own), members=members)
        case "type_alias_declaration":
            own, value = _own(node), node.child_by_field_name("value")
            fact = Fact(name, "type", line, generics=_generics(node, own))
            parts = list(_joined(value, "intersection_type"))
            if any(item.type == "object_type" for item in parts):
                fact.kind = "interface"
                for item in parts:
                    if item.type == "object_type":
                        fact.members += _members(item, own, typed, interface=True)
                    if item.type != "object_type" or any(walk(item, "mapped_type_clause")):
                        fact.flags = ["open"]
            else:
                fact.type = _type(value, own)
            yield fact
        case "enum_declaration":
            items = children(node.child_by_field_name("body"))
            variants = [Fact(part(item, "name") or text(item), "variant", line_of(item)) for item in items]
            yield Fact(name, "enum", line, members=variants)
        case "internal_module" | "module":
            inner = FileFacts()
            body = node.child_by_field_name("body")
            if body is not None:
                _block(body, inner, typed, ambient)
            members = [fact for fact in inner.names if fact.kind != "import"]
            flags = [*inner.flags, *(["whole"] if ambient else [])]
            yield Fact(_string(node.child_by_field_name("name")), "namespace", line, flags=flags, members=members)
        case "lexical_declaration" | "variable_declaration":
            for item in children(node, "variable_declarator"):
                value, kind = item.child_by_field_name("value"), item.child_by_field_name("type")
                yield _value(part(item, "name"), item, value, kind, typed)


def _value(name: str, node: Node, value: Node | None, kind: Node | None, typed: bool) -> Fact:
    if value is not None and value.type in _FUNCTIONS and kind is None:
        return _function(name, value, typed)
    if value is not None and value.type == "class":
        return _class(name, value, typed)
    return Fact(name, "value", line_of(node), type=_type(kind, {}), value=_inferred(value) if kind is None else "")


def _inferred(value: Node | None) -> str:
    """What the type of a value is inferred from: literals by kind, the rest as written, without bodies of functions."""
    found: list[str] = []
    waiting = [value] if value is not None else []
    while waiting:
        node = waiting.pop()
        items = [child for child in node.children if child.type not in _SKIPPED]
        if node.type in _LITERALS:
            found.append(_LITERALS[node.type])
        elif not items:
            found.append(text(node))
        elif node.type == "as_expression" and items[-1].type == "const":
            found.append(text(node))  # literals keep their own types
        elif node.type == "unary_expression" and items[-1].type in _LITERALS:
            found.append("boolean" if items[0].type == "!" else "number")
        elif node.type == "array" and all(item.type in _LITERALS for item in items[1:-1]):
            found += ["[", *sorted({_LITERALS[item.type] for item in items[1:-1]}), "]"]
        else:
            found += [_string(items.pop(0))] if node.type == "pair" else []
            waiting += reversed(items)
    whole = " ".join(found)
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}... {blake2b(whole.encode()).hexdigest()[:16]}"


def _function(name: str, node: Node, typed: bool, own: Own | None = None) -> Fact:
    names = _own(node, own)
    params = list(_params(node, names, typed))
    result = _type(node.child_by_field_name("return_type"), names)
    return Fact(name, "function", line_of(node), params, result, generics=_generics(node, names))


def _params(node: Node, own: Own, typed: bool) -> Iterator[Param]:
    single = node.child_by_field_name("parameter")
    for item in children(node.child_by_field_name("parameters")) or ([single] if single is not None else []):
        pattern = item.child_by_field_name("pattern") or item.child_by_field_name("left") or item
        how = "rest" if "rest_pattern" in (pattern.type, item.type) else "positional"
        given = item.type in ("optional_parameter", "assignment_pattern") or item.child_by_field_name("value")
        if text(pattern) != "this":
            default = "" if given or how == "rest" or not typed else None
            yield Param(text(pattern), how, default, _type(item.child_by_field_name("type"), own))


def _class(name: str, node: Node, typed: bool) -> Fact:
    own = _own(node)
    bases = []
    for heritage in children(node, "class_heritage"):
        for clause in children(heritage):
            named = children(clause) if clause.type.endswith("_clause") else [clause]
            bases += [_type(base, own) for base in named if base.type != "type_arguments"]
    flags = ["abstract"] if node.type.startswith("abstract") else []
    members = list(_members(node.child_by_field_name("body"), own, typed))
    return Fact(name, "class", line_of(node), bases=bases, generics=_generics(node, own), flags=flags, members=members)


def _members(body: Node | None, own: Own, typed: bool, interface: bool = False) -> Iterator[Fact]:
    for node in children(body):
        leaf = part(node, "name") or part(node, "property")
        words = {text(child) for child in node.children if not child.is_named or "modifier" in child.type}
        if not leaf or leaf.startswith(("#", "_")) or "private" in words or _is_internal(node):
            continue
        value, kind = node.child_by_field_name("value"), node.child_by_field_name("type")
        called = node.type in ("method_definition", "method_signature", "abstract_method_signature")
        if called and not words & {"get", "set"}:
            fact = _function(leaf, node, typed, own)
        elif value is not None and value.type in _FUNCTIONS and kind is None:
            fact = _function(leaf, value, typed, own)
        elif called or "field" in node.type or node.type == "property_signature":
            fact = Fact(leaf, "value", line_of(node), type=_type(kind, own), value=_inferred(value) if not kind else "")
        else:
            continue
        flags = words & {"readonly", "static", "abstract", "protected"} | ({"optional"} if "?" in words else set())
        flags |= {"abstract"} if interface and "?" not in words else set()
        fact.flags = sorted(flags | ({"signature"} if node.type == "method_signature" else set()))
        yield fact


def _joined(node: Node | None, shape: str) -> Iterator[Node]:
    """The parts of a union or an intersection, whose tree has two of them at a time."""
    if node is not None and node.type == shape:
        for child in children(node):
            yield from _joined(child, shape)
    elif node is not None:
        yield node


def _own(node: Node, above: Own | None = None) -> Own:
    found = dict(above or {})
    for item in children(node.child_by_field_name("type_parameters")):
        found[part(item, "name")] = f"${len(found)}"
    return found


def _generics(node: Node, own: Own) -> list[str]:
    items = children(node.child_by_field_name("type_parameters"))
    required = [item for item in items if item.child_by_field_name("value") is None]
    return [_type(item.child_by_field_name("constraint"), own) for item in required]


def _type(node: Node | None, own: Own) -> str:  # noqa: PLR0911 - one line for each kind of type
    """A type in one spelling: unions in order, no blanks and no names of parameters."""
    if node is None:
        return ""
    if node.type in ("type_annotation", "constraint") and node.named_children:
        return _type(children(node)[0], own)
    if node.type == "union_type":
        return "|".join(sorted({_type(item, own) for item in _joined(node, "union_type")}))
    if node.type == "generic_type" and part(node, "name") == "Array":
        return f"{_type(children(node.child_by_field_name('type_arguments'))[0], own)}[]"
    if node.type == "function_type":
        names = _own(node, own)
        kinds = [item.type + ("?" if item.default is not None else "") for item in _params(node, names, True)]
        return f"({','.join(kinds)})=>{_type(node.child_by_field_name('return_type'), names)}"
    if node.type in ("type_identifier", "identifier"):
        return own.get(text(node), text(node))
    if node.type == "string":
        return f"'{_string(node)}'"
    if node.type == "predefined_type" or not node.children:
        return text(node)
    found = ""
    for child in node.children:
        word = _type(child, own) if "comment" not in child.type else ""
        found += f" {word}" if _WORD.match(found[-1:]) and _WORD.match(word) else word
    return found.rstrip(";,").replace(";}", "}").replace(",}", "}")


# Names of a side.


def surface(files: Files) -> Surface:
    return _Side(files).surface


class _Side:
    def __init__(self, files: Files) -> None:
        self.files, self.surface = files, Surface()
        self.known: dict[str, dict[str, Thing]] = {}
        for unit, path in self._entries():
            for name, thing in self._exports(path).items():
                self.surface.put(f"{unit}.{name}" if unit else name, thing)
        for name, thing in list(self.surface.names.items()):
            self._inherit(name, thing)

    def _entries(self) -> Iterator[tuple[str, str]]:
        packages = {
            posixpath.dirname(path): file.facts.manifest
            for path, file in self.files.items()
            if path.rpartition("/")[2] == "package.json" and not _NOT_API.search(path)
        }
        packages = {folder: item for folder, item in packages.items() if item.get("name") and not item.get("private")}
        for folder, manifest in packages.items():
            self.surface.units[manifest["name"]] = posixpath.join(folder, "package.json")
            for entry, target in self._targets(folder, manifest):
                path = self._source_of(folder, target)
                sole = len(packages) == 1 and entry == "."
                unit = "" if sole else posixpath.normpath(posixpath.join(manifest["name"], entry))
                if path is None:
                    why = self.surface.open[unit] = f"the source of {target} was not found"
                    below = sorted(
                        file.hash for path, file in self.files.items() if path.startswith(posixpath.join(folder, ""))
                    )
                    name, place = unit or manifest["name"], self.surface.units[manifest["name"]]
                    fact = Fact(name, "external", 1, type=" ".join(below), value=why, flags=["entry"])
                    self.surface.names.setdefault(name, Thing.of(fact, place, name))
                else:
                    yield unit, path
        if not packages:
            code = [path for path in sorted(self.files) if _SCRIPT_ENDING.search(path) and not _NOT_API.search(path)]
            yield from (
                ("", path) for path in [p for p in code if re.fullmatch(r"(src/|lib/)?index(\.d)?\.\w+", p)] or code
            )

    def _targets(self, folder: str, manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
        exports: Any = manifest.get("exports")
        if exports is None:
            named = [manifest.get(key) for key in ("types", "typings", "module", "main")]
            exports = next((item for item in named if isinstance(item, str)), "index.js")
        is_listed = isinstance(exports, dict) and any(key.startswith(".") for key in exports)
        for key, value in (exports if is_listed else {".": exports}).items():
            target = _first(value)
            declared = manifest.get("types") or manifest.get("typings")
            # Without a word about types, those of the package are the types of its main entry.
            if key == "." and isinstance(declared, str) and '"types"' not in json.dumps(value):
                target = declared
            if target is None or key == "./package.json":
                continue
            yield from self._expanded(folder, key, target) if "*" in key else [(key, target)]

    def _expanded(self, folder: str, key: str, target: str) -> Iterator[tuple[str, str]]:
        """An entry with `*`, for each file that it names; built files are looked for in the source."""
        plain = _SCRIPT_ENDING.sub("", target.removeprefix("./"))
        for shape in (plain, _BUILT.sub("src/", plain)):
            before, _, after = posixpath.join(folder, shape).partition("*")
            for path in sorted(self.files):
                stem = _SCRIPT_ENDING.sub("", path)
                inner = stem[len(before) : len(stem) - len(after)]
                fits = stem != path and stem.startswith(before) and stem.endswith(after)
                if fits and inner and not _NOT_API.search(path):
                    yield key.replace("*", inner), posixpath.relpath(path, folder or ".")

    def _source_of(self, folder: str, target: str) -> str | None:
        plain = posixpath.normpath(posixpath.join(folder, target))
        if plain in self.files:
            return plain
        stem = _SCRIPT_ENDING.sub("", target.removeprefix("./"))
        places = (stem, _BUILT.sub("src/", stem), _BUILT.sub("", stem))
        paths = (posixpath.normpath(posixpath.join(folder, place + ending)) for place in places for ending in _ENDINGS)
        return next((path for path in paths if path in self.files), None)

    def _exports(self, path: str) -> dict[str, Thing]:
        if path in self.known:
            return self.known[path]
        found = self.known[path] = {}
        self.surface.files.add(path)
        facts = self.files[path].facts
        local: dict[str, Thing] = {}
        imported = {fact.name: fact for fact in facts.names if fact.kind == "import"}
        for fact in facts.names:
            if fact.kind not in ("import", "export"):
                thing = self._thing(fact, path, f"{path}#{fact.name}")
                _merge(local, fact.name, thing)
                shown = {"export", "default"} & set(fact.flags) or (path.endswith(_DECLARATIONS) and not facts.flags)
                if shown:
                    _merge(found, "default" if "default" in fact.flags else fact.name, local[fact.name])
        for space in (fact for fact in facts.names if fact.kind == "namespace"):
            members = local[space.name].members
            listed = [item for item in space.members if item.kind == "export"]
            members |= {item.name: self._behind(item, path, local | members, imported) for item in listed}
        for fact in facts.names:
            if fact.kind == "export":
                found[fact.name] = self._behind(fact, path, local, imported)
                if "whole" in fact.flags:
                    # What `export =` gives has the names of its namespace as names of the module.
                    spaces = [one for one in facts.names if one.kind == "namespace" and one.name == fact.value]
                    leaves, members = {item.name for one in spaces for item in one.members}, found[fact.name].members
                    found |= {leaf: members.pop(leaf) for leaf in [leaf for leaf in members if leaf in leaves]}
        for star in facts.stars:
            found |= {name: thing for name, thing in self._starred(path, star).items() if name not in found}
        return found

    def _starred(self, path: str, source: str) -> dict[str, Thing]:
        target = self._target(path, source)
        if target is None:
            self.surface.open.setdefault("", f"a star export of {source} may give it")
            return {}
        return {name: thing for name, thing in self._exports(target).items() if name != "default"}

    def _behind(self, fact: Fact, path: str, local: dict[str, Thing], imported: dict[str, Fact]) -> Thing:
        """What an export names: something of its file, or of another."""
        if not fact.type and fact.value in local:
            return local[fact.value]
        source = fact if fact.type else imported.get(fact.value)
        found = self._bring(path, source.type, source.value) if source is not None else None
        return found or _external(path, fact.type, fact.value)

    def _thing(self, fact: Fact, path: str, name: str) -> Thing:
        words = frozenset(fact.flags) - {"export", "default", "ambient"}
        thing = Thing.of(replace(fact, flags=sorted(words)), path, name)
        # Without a list of exports, a namespace that only declares shows all that it has.
        declares = path.endswith(_DECLARATIONS) or "whole" in words
        shows_all = fact.kind != "namespace" or (declares and "listed" not in words)
        shown = [member for member in fact.members if shows_all or "export" in member.flags]
        for member in (member for member in shown if member.kind != "export"):
            leaf = f"@@{member.name[8:-1]}" if member.name.startswith("[Symbol.") else member.name.strip("'\"")
            inner = self._thing(member, path, f"{name}.{leaf}")
            inner.owner = thing
            _merge(thing.members, leaf, inner)
        return thing

    def _bring(self, path: str, source: str, name: str) -> Thing | None:
        target = self._target(path, source)
        if target is None:
            return _external(path, source, name)
        if name == "*":
            return Thing(Fact(target, "namespace", 1), target, target, dict(self._exports(target)))
        return self._exports(target).get(name)

    def _target(self, path: str, source: str) -> str | None:
        if not source.startswith("."):
            return None
        base = posixpath.normpath(posixpath.join(posixpath.dirname(path), source))
        stems = (base, re.sub(r"\.[cm]?jsx?$", "", base))
        return next((stem + ending for stem in stems for ending in _ENDINGS if stem + ending in self.files), None)

    def _inherit(self, name: str, thing: Thing) -> None:
        """Members of bases that are exported or in the same file; any other base leaves the type open."""
        for base in thing.fact.bases if thing.kind in ("class", "interface") else ():
            plain = base.partition("<")[0]
            above = next((item for item in self.surface.names.values() if item.id == f"{thing.file}#{plain}"), None)
            above = above or self.surface.names.get(plain)
            if above is None:
                thing.flags |= {"open"}
            for leaf, member in above.members.items() if above is not None else ():
                thing.members.setdefault(leaf, member)
                self.surface.names.setdefault(f"{name}.{leaf}", member)


def _external(path: str, source: str, name: str) -> Thing:
    return Thing(Fact(name, "external", 1, type=f"{source}#{name}"), path, f"{source}#{name}")


def _first(value: object) -> str | None:
    """The target of an entry under the conditions that a compiler sets."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return next((found for key in _CONDITIONS if key in value and (found := _first(value[key]))), None)
    return next((found for item in value if (found := _first(item))), None) if isinstance(value, list) else None


def _merge(into: dict[str, Thing], name: str, thing: Thing) -> None:
    """Overloads, and declarations that TypeScript joins."""
    known = into.get(name)
    if known is None or known is thing:
        into[name] = thing
    elif known.fact.params is not None and thing.fact.params is not None:
        # The implementation of overloads is not what callers see.
        if "signature" in thing.flags or "signature" not in known.flags:
            known.overloads.append(thing.fact)
    elif {known.kind, thing.kind} <= _MERGED:
        known.members |= thing.members
        if known.kind == "namespace":
            thing.members = known.members
            into[name] = thing  # a namespace only adds to what else has its name
