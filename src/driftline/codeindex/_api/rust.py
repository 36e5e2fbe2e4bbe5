"""Rust: what a path from the root of a crate can name, through modules and `pub use` (index diffs §8.2)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from driftline.codeindex import _api
from driftline.codeindex._api import Fact, FileFacts, Files, Param, Surface, Thing, children, line_of, part, text, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_KINDS: dict[str, str] = _api.WORDS["rust"]["kinds"]
_DEPTH = 8


# Facts.


def read(root: Node) -> FileFacts:
    names, flags = _items(root)
    return FileFacts(names=names, flags=flags)


@dataclass
class _Notes:
    """The attributes in front of an item."""

    words: set[str] = field(default_factory=set)
    derived: list[str] = field(default_factory=list)
    path: str = ""
    skipped: bool = False

    def take(self, node: Node) -> None:
        for attribute in walk(node, "attribute"):
            name = text(attribute.named_children[0])
            inner = attribute.child_by_field_name("arguments")
            words = [text(word) for word in walk(inner, "identifier", "string_literal")] if inner is not None else []
            if name == "derive":
                self.derived += words
            elif name == "path":
                self.path = text(attribute.child_by_field_name("value")).strip('"')
            elif name == "cfg":
                features = [word.strip('"') for word in words if word.startswith('"')]
                self.skipped |= words == ["test"] or any(word.startswith(("unstable", "_")) for word in features)
            elif name == "doc" and "hidden" in words:
                self.words.add("hidden")
            else:
                self.words.add(name)


def _noted(body: Node | None) -> Iterator[tuple[Node, _Notes]]:
    """The items of a body, each with the attributes in front of it."""
    notes = _Notes()
    for node in children(body):
        if node.type == "attribute_item":
            notes.take(node)
        else:
            yield node, notes
            notes = _Notes()


def _items(body: Node) -> tuple[list[Fact], list[str]]:
    """Items of a module, and whether a macro may define more."""
    found: list[Fact] = []
    is_open = False
    for node, here in _noted(body):
        if here.skipped:
            continue
        if node.type == "use_declaration":
            pub = [*_visible(node), *(here.words & {"hidden"})]
            for path, leaf, alias in _uses(node.child_by_field_name("argument"), ""):
                found.append(Fact(alias, "use", line_of(node), type=path, value=leaf, flags=pub))
        elif node.type == "impl_item":
            found.append(_implementation(node))
        elif node.type == "mod_item":
            inner = node.child_by_field_name("body")
            members, flags = _items(inner) if inner is not None else ([], [])
            flags = [*_visible(node), *(here.words & {"hidden"}), *flags, *(["inline"] if inner is not None else [])]
            found.append(Fact(part(node, "name"), "mod", line_of(node), value=here.path, flags=flags, members=members))
        elif node.type in _KINDS:
            found.append(_item(node, here))
        elif node.type == "macro_invocation" or (
            node.type == "expression_statement" and children(node, "macro_invocation")
        ):
            is_open = True
    return found, ["open"] if is_open else []


def _visible(node: Node) -> list[str]:
    return ["pub"] if any(text(child) == "pub" for child in children(node, "visibility_modifier")) else []


def _uses(node: Node | None, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Module, name there and name here of each thing that a `use` brings."""
    if node is None:
        return
    match node.type:
        case "use_list":
            for child in children(node):
                yield from _uses(child, prefix)
        case "scoped_use_list":
            yield from _uses(node.child_by_field_name("list"), _joined(prefix, part(node, "path")))
        case "use_as_clause":
            for path, leaf, _ in _uses(node.child_by_field_name("path"), prefix):
                yield path, leaf, part(node, "alias")
        case "use_wildcard":
            yield _joined(prefix, text(node).removesuffix("*").removesuffix("::")), "*", "*"
        case "scoped_identifier":
            yield _joined(prefix, part(node, "path")), part(node, "name"), part(node, "name")
        case "self":
            above, _, leaf = prefix.rpartition("::")
            yield above, leaf, leaf
        case _:
            yield prefix, text(node), text(node)


def _joined(*parts: str) -> str:
    return "::".join(filter(None, parts))


def _implementation(node: Node) -> Fact:
    """`impl`: the type's name, the trait in `type`, and what callers see of an inherent one."""
    owner, trait = (_last(node.child_by_field_name(name)) for name in ("type", "trait"))
    members: list[Fact] = []
    for item, notes in _noted(node.child_by_field_name("body")) if not trait else ():
        if item.type in _KINDS and _visible(item) and not notes.skipped and "hidden" not in notes.words:
            members.append(_item(item, notes))
    return Fact(owner, "impl", line_of(node), type=trait, members=members)


def _last(node: Node | None) -> str:
    """The last name of a path, without type arguments."""
    while node is not None and node.type in ("generic_type", "scoped_type_identifier"):
        node = node.child_by_field_name("type") or node.child_by_field_name("name")
    return text(node)


def _item(node: Node, notes: _Notes, own: dict[str, str] | None = None) -> Fact:
    names = dict(own or {})
    kind = _KINDS[node.type]
    fact = Fact(part(node, "name"), kind, line_of(node), bases=sorted(notes.derived))
    flags = {*_visible(node), *(notes.words & {"non_exhaustive", "deprecated", "hidden", "macro_export"})}
    for item in children(node.child_by_field_name("type_parameters")):
        if item.type not in ("lifetime_parameter", "attribute_item"):
            name = item.child_by_field_name("name")
            names[text(name)] = f"${len(names)}"
            if item.child_by_field_name("default_type") is None:
                fact.generics.append(_type(item, names))
    if kind == "function":
        words = {word for part_ in children(node, "function_modifiers") for word in text(part_).split()}
        flags |= words & {"async", "unsafe", "const"}
        fact.params = [
            Param(part(item, "pattern") or "self", "positional", None, _given(item, names))
            for item in children(node.child_by_field_name("parameters"), "parameter", "self_parameter")
        ]
        fact.type = _type(node.child_by_field_name("return_type"), names)
    elif kind in ("struct", "union"):
        flags |= _fields(node.child_by_field_name("body"), fact, names, notes)
    elif kind == "enum":
        _variants(node.child_by_field_name("body"), fact, names)
        flags |= set() if "non_exhaustive" in flags else {"closed"}
    elif kind == "trait":
        _trait(node, fact, flags, names)
    elif kind != "macro":
        fact.type = _type(node.child_by_field_name("type"), names)
    fact.flags = sorted(flags)
    return fact


def _given(node: Node, names: dict[str, str]) -> str:
    if node.type == "parameter":
        return _type(node.child_by_field_name("type"), names)
    return "".join(text(child) for child in node.children if child.type not in ("lifetime", "mutable_specifier")) + (
        "mut" if children(node, "mutable_specifier") and text(node).startswith("&") else ""
    )


def _type(node: Node | None, names: dict[str, str]) -> str:
    """A type without lifetimes and paths, own type parameters by position."""
    if node is None or node.type in ("lifetime", "lifetime_parameter"):
        return ""
    if node.type in ("scoped_type_identifier", "scoped_identifier"):
        path = node.child_by_field_name("path")
        kept = f"{names[text(path)]}::" if text(path) in names else ""
        return kept + _type(node.child_by_field_name("name"), names)
    if node.type in ("type_identifier", "identifier"):
        return names.get(text(node), text(node))
    if not node.children:
        return text(node)
    parts: list[str] = []
    for child in node.children:
        if "comment" in child.type:
            continue
        word = _type(child, names)
        if child.type == "lifetime" or (word in (",", "+") and (not parts or parts[-1] in ("<", ",", "+"))):
            continue
        parts.append(f"{word} " if word in ("mut", "dyn", "impl", "const", "for", "unsafe", "fn") else word)
    while len(parts) > 1 and parts[-2] in (",", "+") and parts[-1] in (">", ")"):
        parts.pop(-2)
    return "".join(parts).replace("<>", "")


def _fields(body: Node | None, fact: Fact, names: dict[str, str], notes: _Notes) -> set[str]:
    """Public fields; callers may write a literal where no other is there."""
    private = body is None
    if body is not None and body.type == "field_declaration_list":
        for node in children(body, "field_declaration"):
            private |= not _visible(node)
            if _visible(node):
                kind = _type(node.child_by_field_name("type"), names)
                fact.members.append(Fact(part(node, "name"), "field", line_of(node), type=kind))
    elif body is not None:
        place, pub = 0, False
        for node in children(body):
            if node.type == "visibility_modifier":
                pub = text(node) == "pub"
            elif node.type != "attribute_item":
                if pub:
                    fact.members.append(Fact(str(place), "field", line_of(node), type=_type(node, names)))
                private |= not pub
                place, pub = place + 1, False
    return set() if private or "non_exhaustive" in notes.words else {"closed"}


def _variants(body: Node | None, fact: Fact, names: dict[str, str]) -> None:
    for node, notes in _noted(body):
        if node.type == "enum_variant":
            shape = _type(node.child_by_field_name("body"), names).replace(",)", ")").replace(",}", "}")
            flags = sorted(notes.words & {"non_exhaustive"})
            fact.members.append(Fact(part(node, "name"), "variant", line_of(node), type=shape, flags=flags))


def _trait(node: Node, fact: Fact, flags: set[str], names: dict[str, str]) -> None:
    bounds = node.child_by_field_name("bounds")
    words = [text(word) for word in walk(bounds, "type_identifier", "identifier")] if bounds is not None else []
    if any("sealed" in word.lower() or "private" in word.lower() for word in words):
        flags.add("sealed")
    for item in children(node.child_by_field_name("body")):
        if item.type in _KINDS:
            member = _item(item, _Notes(), {"Self": "Self", **names})
            given = any(item.child_by_field_name(name) is not None for name in ("body", "value", "default_type"))
            member.flags = [*member.flags, *([] if given else ["abstract"])]
            fact.members.append(member)


# Names of a side.


class _Mod(NamedTuple):
    """A module: what it defines, brings in, and whether a macro may define more."""

    path: str
    names: list[Fact]
    is_open: bool
    items: dict[str, Thing]
    uses: list[Fact]


def surface(files: Files) -> Surface:
    found = Surface()
    for name, root, manifest in _crates(files):
        if root in files:
            found.units[name] = manifest
            _Crate(files, name, root, found)
    return found


def _crates(files: Files) -> Iterator[tuple[str, str, str]]:
    manifests = {path: file for path, file in files.items() if path.rpartition("/")[2] == "Cargo.toml"}
    for path, file in manifests.items():
        package: dict[str, Any] = file.facts.manifest.get("package", {})
        library: dict[str, Any] = file.facts.manifest.get("lib", {})
        if package and package.get("publish") is not False:
            name = str(library.get("name") or package.get("name", "crate")).replace("-", "_")
            yield name, posixpath.join(posixpath.dirname(path), library.get("path", "src/lib.rs")), path
    if not manifests:
        yield from (("crate", path, path) for path in ("src/lib.rs", "lib.rs"))


class _Crate:
    def __init__(self, files: Files, name: str, root: str, found: Surface) -> None:
        self.files, self.name, self.found = files, name, found
        self.mods: dict[str, _Mod] = {}
        self.seen: set[tuple[str, ...]] = set()
        facts = files[root].facts
        self._load("", root, posixpath.dirname(root), facts.names, "open" in facts.flags)
        for mod in self.mods.values():
            for fact in mod.names:
                if fact.kind == "impl":
                    self._implement(fact, mod.path)
        self._expose(name, "")
        for mod in self.mods.values():
            for local, thing in mod.items.items():
                if "macro_export" in thing.flags:
                    self.found.put(f"{name}.{local}", thing)

    def _load(self, mod: str, path: str, folder: str, names: list[Fact], is_open: bool) -> None:
        """A module with those below it; `folder` is where the files of its modules are."""
        self.found.files.add(path)
        here = self.mods[mod] = _Mod(path, names, is_open, {}, [fact for fact in names if fact.kind == "use"])
        for fact in names:
            full = _joined(mod, fact.name)
            if fact.kind == "mod":
                inner = posixpath.join(folder, fact.name)
                if "inline" in fact.flags:
                    self._load(full, path, inner, fact.members, "open" in fact.flags)
                    continue
                given = [posixpath.join(posixpath.dirname(path), fact.value)] if fact.value else []
                target = next((one for one in (*given, f"{inner}.rs", f"{inner}/mod.rs") if one in self.files), None)
                if target is not None:
                    facts = self.files[target].facts
                    self._load(full, target, inner, facts.names, "open" in facts.flags)
            elif fact.kind not in ("use", "impl"):
                here.items.setdefault(fact.name, Thing.whole(fact, path, f"{self.name}.{full.replace('::', '.')}"))

    def _implement(self, fact: Fact, path: str) -> None:
        for mod in self.mods.values():
            thing = mod.items.get(fact.name)
            if thing is not None:
                if fact.type:
                    thing.fact.bases = sorted({*thing.fact.bases, fact.type})
                for member in fact.members:
                    thing.members[member.name] = Thing.of(member, path, f"{thing.id}.{member.name}")
                return

    def _expose(self, name: str, mod: str) -> None:
        if (name, mod) in self.seen or name.count(".") > _DEPTH or mod not in self.mods:
            return
        self.seen.add((name, mod))
        here = self.mods[mod]
        full = ".".join(filter(None, (self.name, mod.replace("::", "."))))
        self.found.names.setdefault(name, Thing(Fact(name, "module", 1), here.path, full))
        if here.is_open:
            self.found.open[name] = "a macro of the module may define it"
        self._put_all(name, mod)
        for use in here.uses:
            if _is_public(use):
                self._use(name, mod, use)

    def _put_all(self, name: str, mod: str) -> None:
        for fact in self.mods[mod].names:
            full = f"{name}.{fact.name}"
            if fact.kind in ("use", "impl") or (fact.kind != "mod" and fact.name not in self.mods[mod].items):
                continue
            if not _is_public(fact):
                self.found.hidden.add(full)
            elif fact.kind == "mod":
                self._expose(full, _joined(mod, fact.name))
            else:
                self.found.put(full, self.mods[mod].items[fact.name])

    def _use(self, name: str, mod: str, use: Fact) -> None:
        key = (name, mod, use.type, use.value, use.name)
        target = self._find(mod, use.type)
        if key in self.seen:
            return
        self.seen.add(key)
        if target is None:
            self._external(f"{name}.{use.name}", mod, use)
        elif use.value == "*":
            self._put_all(name, target)
            for other in self.mods[target].uses:
                if _is_public(other):
                    self._use(name, target, other)
        elif use.value in self.mods[target].items:
            self.found.put(f"{name}.{use.name}", self.mods[target].items[use.value])
        elif _joined(target, use.value) in self.mods:
            self._expose(f"{name}.{use.name}", _joined(target, use.value))
        else:
            self._use_through(name, target, use)

    def _use_through(self, name: str, target: str, use: Fact) -> None:
        """A name that another module itself brings in."""
        for other in self.mods[target].uses:
            inner = self._find(target, other.type) if other.value == "*" else None
            if other.name == use.value:
                self._use(name, target, Fact(use.name, "use", use.line, type=other.type, value=other.value))
                return
            if inner is not None and use.value in self.mods[inner].items:
                self.found.put(f"{name}.{use.name}", self.mods[inner].items[use.value])
                return
        self._external(f"{name}.{use.name}", target, use)

    def _external(self, name: str, mod: str, use: Fact) -> None:
        outside = _joined(use.type, use.value)
        self.found.put(name, Thing(Fact(use.name, "external", use.line, type=outside), self.mods[mod].path, outside))

    def _find(self, mod: str, path: str) -> str | None:
        parts = [word for word in path.split("::") if word]
        at = mod.split("::") if mod else []
        if parts and parts[0] == "crate":
            at, parts = [], parts[1:]
        elif parts and parts[0] == "self":
            parts = parts[1:]
        elif parts and parts[0] != "super" and _joined(mod, parts[0]) not in self.mods:
            at = []
        while parts and parts[0] == "super":
            at, parts = at[:-1], parts[1:]
        full = "::".join([*at, *parts])
        return full if full in self.mods else None


def _is_public(fact: Fact) -> bool:
    return "pub" in fact.flags and "hidden" not in fact.flags
