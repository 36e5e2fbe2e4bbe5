"""Python: names by import path, through re-exports, `__all__` and bases (index diffs §8.2)."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from driftline.codeindex import _api
from driftline.codeindex._api import Fact, FileFacts, Files, Param, Surface, Thing, children, line_of, part, text, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_NOT_TOP = frozenset(_api.WORDS["python"]["not_top"])
_NOT_INSIDE = frozenset(_api.WORDS["python"]["not_inside"])
_NOT_FILES = frozenset(("conftest", "setup", "noxfile", "tasks", "fabfile", "dodo"))
_ROOTS = frozenset(("src", "lib", "python"))
_EMPTY_BASES = frozenset(_api.WORDS["python"]["empty_bases"])
_RECORDS = frozenset(_api.WORDS["python"]["records"])
_WORDS = {"abstractmethod": "abstract", "staticmethod": "static"}
_KEPT_WORDS = frozenset(_api.WORDS["python"]["kept_words"])
_LITERALS = ("string", "integer", "float", "true", "false", "none")
_COMPUTED = "?"
_PUBLIC = re.compile(r"[^_].*|__.*__|", re.DOTALL)
_DEPTH = 20
_GENERIC = {"List": "list", "Dict": "dict", "Set": "set", "Tuple": "tuple", "Type": "type", "FrozenSet": "frozenset"}


# Facts.


def flat(node: Node | None) -> str:
    """The source of a node on one line."""
    return " ".join(text(node).split())


def read(root: Node) -> FileFacts:
    reader = _Reader()
    reader.block(root.named_children)
    reader.facts.names = list(reader.bound.values())
    return reader.facts


class _Reader:
    """Reads the names that a module binds; of several branches, the first one wins."""

    def __init__(self) -> None:
        self.bound: dict[str, Fact] = {}
        self.facts = FileFacts()

    def block(self, statements: Iterable[Node], weak: bool = False) -> None:
        for node in statements:
            match node.type:
                case "function_definition" | "class_definition" | "decorated_definition":
                    self._definition(node, weak)
                case "expression_statement":
                    self._expression(node, weak)
                case "import_statement" | "import_from_statement":
                    self._import(node, weak)
                case "type_alias_statement":
                    name = part(node, "left").partition("[")[0]
                    self._bind(Fact(name, "value", line_of(node), value=part(node, "right")), weak)
                case "delete_statement":
                    for target in walk(node, "identifier"):
                        self.bound.pop(text(target), None)
                case _:
                    for blocks, later in _branches(node):
                        self.block(blocks, weak or later)

    def _bind(self, fact: Fact, weak: bool) -> None:
        if not (weak and fact.name in self.bound):
            self.bound[fact.name] = fact

    def _definition(self, node: Node, weak: bool) -> None:
        fact = _definition(node)
        if fact.name == "__getattr__":
            self.facts.flags = ["open"]
        known = self.bound.get(fact.name)
        if not ("overload" in fact.flags and known is not None and known.kind != "import"):
            self._bind(fact, weak)

    def _expression(self, node: Node, weak: bool) -> None:
        inner, facts = next(iter(node.named_children), node), self.facts
        if inner.type == "assignment":
            for name, value in _assigned(inner):
                if name != "__all__":
                    self._bind(_value(name, inner, value), weak)
                elif value is not None:
                    facts.declared = list(_listed(value))
        elif inner.type == "augmented_assignment" and part(inner, "left") == "__all__":
            facts.declared = [*(facts.declared or []), *_listed(inner.child_by_field_name("right"))]
        elif inner.type == "call" and part(inner, "function").startswith("__all__."):
            verb, arguments = part(inner, "function")[8:], children(inner.child_by_field_name("arguments"))
            names = [name for item in arguments for name in (_listed(item) if verb == "extend" else _element(item))]
            if verb == "remove":
                facts.declared = [name for name in facts.declared or [] if name not in names]
            else:
                facts.declared = [*(facts.declared or []), *(names if verb in ("extend", "append") else [_COMPUTED])]

    def _import(self, node: Node, weak: bool) -> None:
        source = part(node, "module_name")
        if children(node, "wildcard_import"):
            self.facts.stars.append(source)
        for item in node.children_by_field_name("name"):
            alias = part(item, "alias")
            name = part(item, "name") if alias else text(item)
            local = alias or (name if source else name.partition(".")[0])
            target = (source, name) if source else (name if alias else local, "")
            flags = ["as"] if alias == name else []
            self._bind(Fact(local, "import", line_of(node), type=target[0], value=target[1], flags=flags), weak)


def _branches(node: Node) -> Iterator[tuple[list[Node], bool]]:
    """The blocks of a compound statement, and whether a block is only run where an earlier one is not."""
    later = node.type in ("for_statement", "while_statement")
    for child in node.named_children:
        if child.type == "block":
            yield child.named_children, later
        elif child.type.endswith("_clause"):
            other = "elif_clause", "except_clause", "except_group_clause"
            is_other = child.type in other or (child.type == "else_clause" and node.type == "if_statement")
            yield from ((block.named_children, is_other or later) for block in children(child, "block"))


def _listed(node: Node | None) -> Iterator[str]:
    """The forms of `__all__`: names, `*module` for all of another's, `?` for what is computed."""
    if node is None:
        return
    if node.type in ("list", "tuple", "set", "parenthesized_expression", "expression_list"):
        for child in children(node):
            yield from _listed(child.named_children[0]) if child.type == "list_splat" else _element(child)
    elif node.type == "binary_operator" and part(node, "operator") == "+":
        yield from _listed(node.child_by_field_name("left"))
        yield from _listed(node.child_by_field_name("right"))
    elif node.type == "call" and part(node, "function") in ("list", "tuple", "sorted"):
        for argument in children(node.child_by_field_name("arguments"))[:1]:
            yield from _listed(argument)
    elif node.type == "attribute" and part(node, "attribute") == "__all__":
        yield f"*{part(node, 'object')}"
    else:
        yield _COMPUTED


def _element(node: Node) -> list[str]:
    content = children(node, "string_content")
    plain = node.type == "string" and len(content) == 1 and not children(node, "interpolation")
    return [text(content[0])] if plain else [_COMPUTED]


def _assigned(node: Node) -> Iterator[tuple[str, Node | None]]:
    """Names and values of an assignment, also of `a = b = 1` and `a, b = 1, 2`."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    while right is not None and right.type == "assignment":
        yield from _assigned(right)
        right = right.child_by_field_name("right")
    if left is not None and left.type == "identifier":
        yield text(left), right
    elif left is not None and left.type in ("pattern_list", "tuple_pattern", "list_pattern"):
        yield from ((text(child), None) for child in children(left, "identifier"))


def _value(name: str, node: Node, value: Node | None) -> Fact:
    shape = value.type if value is not None else ""
    flags = ["alias"] if shape == "identifier" else ["literal"] if shape in _LITERALS else []
    kind = _annotation(node.child_by_field_name("type"))
    return Fact(name, "value", line_of(node), type=kind, value=flat(value), flags=flags)


def _definition(node: Node) -> Fact:
    """A function or class with its decorators."""
    calls = [decorator.named_children[0] for decorator in children(node, "decorator")]
    words = [part(call, "function") if call.type == "call" else text(call) for call in calls]
    flags = {_WORDS.get(word.rpartition(".")[2], word.rpartition(".")[2]) for word in words} & _KEPT_WORDS
    for call in calls:
        flags |= {flat(word) for word in walk(call, "keyword_argument")} & {"init=False", "kw_only=True"}
    inner = node.child_by_field_name("definition") or node
    if inner.type == "class_definition":
        return _class(inner, flags)
    name = part(inner, "name")
    result = _annotation(inner.child_by_field_name("return_type"))
    if flags & {"property", "cached_property"}:
        return Fact(name, "value", line_of(inner), type=result, flags=sorted({"property", *flags}))
    if inner.children and inner.children[0].type == "async":
        flags.add("async")
    parameters = list(_parameters(inner.child_by_field_name("parameters")))
    return Fact(name, "function", line_of(inner), parameters, result, flags=sorted(flags))


def _parameters(holder: Node | None) -> Iterator[Param]:
    nodes = children(holder)
    slash = next((place for place, node in enumerate(nodes) if node.type == "positional_separator"), -1)
    how = "both"
    for place, node in enumerate(nodes):
        inner = node.named_children[0] if node.type == "typed_parameter" and node.named_children else node
        kind = _annotation(node.child_by_field_name("type"))
        if node.type == "positional_separator":
            continue
        if node.type == "keyword_separator":
            how = "keyword"
        elif inner.type in ("list_splat_pattern", "dictionary_splat_pattern"):
            rest = inner.type == "list_splat_pattern"
            yield Param(text(inner).lstrip("*"), "rest" if rest else "keywords", "", kind)
            how = "keyword" if rest else how
        else:
            name = part(node, "name") or text(inner)
            private = name.startswith("__") and not name.endswith("__")
            default = flat(node.child_by_field_name("value")).replace('"', "'") if "default" in node.type else None
            yield Param(name, "positional" if place < slash or (private and how == "both") else how, default, kind)


def _annotation(node: Node | None) -> str:
    """A type in one spelling: `Optional`, `Union`, `List` and quotes are matters of taste."""
    if node is None:
        return ""
    if node.type == "type" and node.named_children:
        return _annotation(node.named_children[0])
    if node.type == "string":
        return "".join(text(node).strip("\"'").split())
    if node.type in ("identifier", "attribute"):
        last = text(node).rpartition(".")[2]
        return _GENERIC.get(last, last)
    if node.type in ("generic_type", "subscript"):
        base = _annotation(node.named_children[0])
        inner = children(node, "type_parameter")
        parts = [_annotation(child) for child in (children(inner[0]) if inner else node.named_children[1:])]
        if base in ("Optional", "Union"):
            return _union([*parts, *(["None"] if base == "Optional" else [])])
        return f"{base}[{','.join(parts)}]"
    if node.type in ("binary_operator", "union_type") and len(node.named_children) == 2:
        return _union([_annotation(child) for child in node.named_children])
    return "".join(text(node).split())


def _union(parts: list[str]) -> str:
    return "|".join(sorted({inner for one in parts for inner in (one.split("|") if "[" not in one else [one])}))


def _class(node: Node, flags: set[str]) -> Fact:
    bases = [
        flat(base.child_by_field_name("value") if base.type == "subscript" else base)
        for base in children(node.child_by_field_name("superclasses"))
        if base.type != "keyword_argument"
    ]
    found: dict[str, Fact] = {}
    body = node.child_by_field_name("body")
    _members(body.named_children if body is not None else [], found, bool(flags & _RECORDS - {"dataclass"}))
    members = list(found.values())
    return Fact(part(node, "name"), "class", line_of(node), bases=bases, flags=sorted(flags), members=members)


def _members(statements: Iterable[Node], members: dict[str, Fact], attrs: bool, weak: bool = False) -> None:
    for node in statements:
        if node.type in ("function_definition", "class_definition", "decorated_definition"):
            fact = _definition(node)
            known = fact.name in members and (weak or "overload" in fact.flags)
            if known or set(fact.flags) & {"setter", "deleter", "getter"}:
                continue
            members[fact.name] = fact
            if fact.name == "__init__":
                _instance_values(node.child_by_field_name("definition") or node, fact, members)
        elif node.type == "expression_statement" and (found := children(node, "assignment")):
            for name, value in _assigned(found[0]):
                if not (weak and name in members):
                    members[name] = _value(name, found[0], value)
                    members[name].params = _field(name, found[0], value, attrs)
        else:
            for block, later in _branches(node):
                _members(block, members, attrs, weak or later)


def _instance_values(node: Node, init: Fact, members: dict[str, Fact]) -> None:
    """`self.x = ...` in `__init__`."""
    me = init.params[0].name if init.params else "self"
    body = node.child_by_field_name("body")
    for target in walk(body, "assignment") if body is not None else ():
        left = target.child_by_field_name("left")
        if left is not None and left.type == "attribute" and part(left, "object") == me:
            name = part(left, "attribute")
            members.setdefault(name, Fact(name, "value", line_of(target), flags=["instance"]))


def _field(name: str, node: Node, value: Node | None, attrs: bool) -> list[Param] | None:
    """What a field of a record adds to its constructor."""
    call = part(value, "function").rpartition(".")[2] if value is not None and value.type == "call" else ""
    kind = node.child_by_field_name("type")
    made = call in ("field", "Field", "ib", "attrib")
    if (kind is None and not (attrs and made)) or "ClassVar" in text(kind):
        return None
    if not made:
        return [Param(name, "both", flat(value).replace('"', "'") if value is not None else None, _annotation(kind))]
    assert value is not None
    words = {part(word, "name"): part(word, "value") for word in walk(value, "keyword_argument")}
    if words.get("init") == "False":
        return None
    default = words.get("default") or words.get("default_factory") or words.get("factory")
    shown = words.get("alias", "").strip("\"'") or (name.lstrip("_") if attrs else name)
    return [Param(shown, "keyword" if words.get("kw_only") == "True" else "both", default, _annotation(kind))]


# Names of a side.


def modules_of(paths: Iterable[str]) -> dict[str, str]:
    """Modules by dotted name; a stub beside a module wins.

    >>> modules_of(["src/a/__init__.py", "src/a/b.py", "src/a/tests/c.py", "setup.py", "docs/conf.py"])
    {'a': 'src/a/__init__.py', 'a.b': 'src/a/b.py'}
    """
    listed = sorted(paths, key=lambda path: (path.endswith(".pyi"), path))
    packages = {path.rpartition("/")[0] for path in listed if path.rpartition("/")[2].startswith("__init__.py")}
    found: dict[str, str] = {}
    for path in listed:
        folder, _, leaf = path.rpartition("/")
        stem = leaf.rpartition(".")[0]
        names = _package(folder, packages)
        outside = names is None or stem in _NOT_FILES or stem.startswith("test_") or stem.endswith("_test")
        if names is None or outside or set(names) & _NOT_INSIDE or (names and names[0] in _NOT_TOP):
            continue
        if not names and set(folder.split("/")) & _NOT_TOP:
            continue
        dotted = names if stem == "__init__" else [*names, stem]
        if dotted:
            found[".".join(dotted)] = path
    return found


def _package(folder: str, packages: set[str]) -> list[str] | None:
    """The names of the packages around a module; None where it is no module that a caller imports."""
    names: list[str] = []
    top = folder
    while top and top in packages:
        names.insert(0, top.rpartition("/")[2])
        top = top.rpartition("/")[0]
    above = top.split("/") if top else []
    if "src" in above:
        return above[len(above) - above[::-1].index("src") :] + names
    return names if names or not above or above[-1] in _ROOTS else None


def surface(files: Files) -> Surface:
    return _Side(files).surface


class _Side:
    def __init__(self, files: Files) -> None:
        self.surface, places = Surface(), modules_of(files)
        self.modules = {name: files[path] for name, path in places.items()}
        self.bound = {name: {fact.name: fact for fact in file.facts.names} for name, file in self.modules.items()}
        self.tops = {name.partition(".")[0] for name in self.modules}
        self.things: dict[tuple[str, str], Thing | None] = {}
        self.surface.files = set(places.values())
        for name in self.modules:
            if not any(part.startswith("_") for part in name.split(".")):
                self._module(name)

    def _module(self, name: str) -> None:
        file = self.modules[name]
        self.surface.units.setdefault(name.partition(".")[0], file.path)
        module = Thing(Fact(name, "module", 1), file.path, name, flags=frozenset(file.facts.flags))
        self.surface.names[name] = module
        if "open" in module.flags:
            self.surface.open[name] = "the module's __getattr__ may give it"
        public = self._exported(name)
        for star in file.facts.stars:
            source = self._absolute(name, star)
            if source not in self.modules:
                self.surface.open.setdefault(name, f"a star import of {source} may give it")
        for local in public:
            thing = self._resolve(name, local) or Thing(Fact(local, "unresolved", 1), file.path, f"{name}.{local}")
            if thing.kind != "module":
                self.surface.put(f"{name}.{local}", thing)
        self.surface.hidden |= {f"{name}.{local}" for local in self.bound[name] if local not in public}

    def _absolute(self, module: str, source: str) -> str:
        level = len(source) - len(source.lstrip("."))
        if not level:
            return source
        is_package = "/__init__." in f"/{self.modules[module].path}"
        parts = module.split(".") if is_package else module.split(".")[:-1]
        rest = source.lstrip(".")
        return ".".join([*parts[: len(parts) - level + 1], *([rest] if rest else [])])

    def _declared(self, module: str, depth: int = 0) -> list[str] | None:
        declared = self.modules[module].facts.declared
        if declared is None or depth > _DEPTH:
            return declared
        names: list[str] = []
        for name in declared:
            inner: list[str] | None = [name]
            if name.startswith("*"):
                target = self._module_named(module, name[1:])
                inner = self._declared(target, depth + 1) if target in self.modules else None
            names += [_COMPUTED] if inner is None else inner
        return names

    def _module_named(self, module: str, local: str) -> str:
        """The module that a name inside of a module stands for."""
        head, _, rest = local.partition(".")
        fact = self.bound[module].get(head)
        if fact is None or fact.kind != "import":
            return local if local in self.modules else f"{module}.{local}"
        source = self._absolute(module, fact.type)
        base = f"{source}.{fact.value}" if fact.value else source
        return f"{base}.{rest}" if rest else base

    def _exported(self, module: str, depth: int = 0) -> list[str]:
        """The names that `from module import *` gives, or that a caller may take."""
        listed = self._declared(module)
        if listed is not None and _COMPUTED not in listed:
            return list(dict.fromkeys(listed))
        if listed is not None:
            self.surface.open[module] = "__all__ is computed"
        names = [name for name, fact in self.bound[module].items() if self._is_public(module, name, fact)]
        for star in self.modules[module].facts.stars:
            source = self._absolute(module, star)
            names += self._exported(source, depth + 1) if source in self.modules and depth < _DEPTH else []
        return list(dict.fromkeys(names))

    def _is_public(self, module: str, name: str, fact: Fact) -> bool:
        if name.startswith("_") or fact.kind != "import":
            return not name.startswith("_")
        below = f"{self._absolute(module, fact.type)}.".startswith(f"{module}.")
        return "as" in fact.flags or (bool(fact.value) and below and "/__init__." in f"/{self.modules[module].path}")

    def _resolve(self, module: str, local: str, depth: int = 0) -> Thing | None:
        key = module, local
        if key not in self.things and depth < _DEPTH:
            self.things[key] = None
            self.things[key] = self._found(module, local, depth)
        return self.things.get(key)

    def _found(self, module: str, local: str, depth: int) -> Thing | None:
        fact = self.bound[module].get(local)
        path = self.modules[module].path
        if fact is None:
            for star in self.modules[module].facts.stars:
                source = self._absolute(module, star)
                if source in self.modules and local in self._exported(source):
                    return self._resolve(source, local, depth + 1)
            return None
        if fact.kind == "import":
            return self._imported(module, fact, depth)
        if "alias" in fact.flags and fact.value != local and fact.value in self.bound[module]:
            other = self._resolve(module, fact.value, depth + 1)
            if other is not None:
                return other
        if fact.kind == "class":
            return self._class(module, fact, f"{module}.{local}", depth)
        return Thing.of(fact, path, f"{module}.{local}")

    def _imported(self, module: str, fact: Fact, depth: int) -> Thing | None:
        source, leaf = self._absolute(module, fact.type), fact.value
        full = f"{source}.{leaf}" if leaf else source
        if leaf and source in self.modules:
            found = self._resolve(source, leaf, depth + 1)
            if found is not None:
                return found
        if full in self.modules:
            return Thing(Fact(full, "module", 1), self.modules[full].path, full)
        if source.partition(".")[0] not in self.tops:
            return Thing(Fact(fact.name, "external", fact.line, type=full), self.modules[module].path, full)
        return None

    def _class(self, module: str, fact: Fact, name: str, depth: int) -> Thing:
        thing = Thing.of(fact, self.modules[module].path, name)
        # Entered before its members are: a base may lead back here.
        self.things[module, fact.name] = thing
        inherited: dict[str, Thing] = {}
        fields: dict[str, Param] = {}
        for base in reversed(fact.bases):
            target = self._base(module, base, depth)
            last = base.rpartition(".")[2].partition("[")[0]
            if target is not None and target.kind == "class":
                inherited |= target.members
                fields |= {param.name: param for param in target.fact.params or ()}
                thing.flags |= target.flags & {"open", "builtin"}
            elif isinstance(getattr(builtins, base, None), type) and last not in _EMPTY_BASES:
                thing.flags |= {"builtin"}
            elif last not in _EMPTY_BASES:
                thing.flags |= {"open"}
        own = {inner.name: self._member(module, inner, f"{name}.{inner.name}", depth) for inner in fact.members}
        for inner in fact.members:
            if "alias" in inner.flags and inner.value in own and inner.value != inner.name:
                own[inner.name] = own[inner.value]
        self._constructor(thing, own, fields)
        thing.members = {leaf: found for leaf, found in (inherited | own).items() if _PUBLIC.fullmatch(leaf)}
        return thing

    def _base(self, module: str, base: str, depth: int) -> Thing | None:
        holder, _, leaf = base.partition("[")[0].rpartition(".")
        target = self._module_named(module, holder) if holder else module
        known = target in self.modules if holder else leaf in self.bound[module] or self.modules[module].facts.stars
        return self._resolve(target, leaf, depth + 1) if known else None

    def _member(self, module: str, fact: Fact, name: str, depth: int) -> Thing:
        if fact.kind == "class":
            return self._class(module, replace(fact, name=name), name, depth + 1)
        taken = fact.kind == "function" and "static" not in fact.flags and fact.params
        if taken and taken[0].how in ("both", "positional"):
            fact = replace(fact, params=taken[1:])
        return Thing.of(fact, self.modules[module].path, name)

    def _constructor(self, thing: Thing, own: dict[str, Thing], fields: dict[str, Param]) -> None:
        """The call of a class: `__init__`, or made from the fields of a record."""
        is_tuple = any(base.rpartition(".")[2] == "NamedTuple" for base in thing.fact.bases)
        if not (thing.flags & _RECORDS or is_tuple):
            return
        for inner in thing.fact.members:
            if inner.kind == "value" and inner.params:
                fields[inner.name] = inner.params[0]
        words = thing.flags & {"kw_only=True"}
        made = [Param(item.name, "keyword" if words else item.how, item.default, item.type) for item in fields.values()]
        thing.fact = replace(thing.fact, params=made)
        if "__init__" not in own and "init=False" not in thing.flags:
            init = Fact("__init__", "function", thing.fact.line, sorted(made, key=lambda item: item.how == "keyword"))
            own["__init__"] = Thing.of(init, thing.file, f"{thing.id}.__init__")
