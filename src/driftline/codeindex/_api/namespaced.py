"""Java and C#: types by package or namespace; a word and an annotation are different nodes (index diffs §8.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from driftline.codeindex import _api
from driftline.codeindex._api import Fact, FileFacts, Files, Param, Surface, Thing, children, line_of, part, text, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_TYPES: dict[str, str] = _api.WORDS["namespaced"]["types"]
_MEMBERS: dict[str, str] = _api.WORDS["namespaced"]["members"]
_HOLDERS = ("namespace_declaration", "declaration_list", "enum_member_declaration_list", "enum_body_declarations")
_NOT_API = re.compile(_api.WORDS["namespaced"]["not_api"], re.IGNORECASE)
_UNCHECKED = re.compile(_api.WORDS["namespaced"]["unchecked"])
_CAPITAL = re.compile(r"(?:(?<![\w.])|(?<=\?super)|(?<=extends))[A-Z]\w*")
_COMMON = re.compile(r"java\.(?:lang|util)\.|System\.(?:Collections\.Generic\.)?")


def read(root: Node) -> FileFacts:
    unit = next((text(node.named_children[-1]) for node in children(root, "package_declaration")), "")
    unit = next((part(node, "name") for node in children(root, "file_scoped_namespace_declaration")), unit)
    imports = {text(node.named_children[0]).rpartition(".")[2]: text(node.named_children[0])
               for node in children(root, "import_declaration") if node.named_children}  # fmt: skip
    facts = FileFacts(unit=unit, names=list(_Reader(imports).inside(root, None)))
    for module in children(root, "module_declaration"):
        facts.flags = ["module"]
        facts.stars = [part(item, "package") for item in walk(module, "exports_module_directive")]
    return facts


class _Reader:
    def __init__(self, imports: dict[str, str]) -> None:
        self.imports = imports
        self.own: dict[str, str] = {}

    def inside(self, body: Node | None, owner: Fact | None, prefix: str = "") -> Iterator[Fact]:
        for node in children(body):
            if node.type in (*_HOLDERS, "file_scoped_namespace_declaration"):
                named = part(node, "name") if node.type == "namespace_declaration" else ""
                inner = node.child_by_field_name("body") or node
                yield from self.inside(inner, owner, ".".join(filter(None, (prefix, named))))
            elif node.type in _TYPES:
                yield self._type_declaration(node, owner, prefix)
            elif node.type in _MEMBERS:
                yield from self._member(node, owner, prefix)

    def _words(self, node: Node, owner: Fact | None) -> set[str]:
        """Modifiers in the words of the rules."""
        holders = children(node, "modifiers", "attribute_list")
        words = {
            text(child) for holder in children(node, "modifiers") for child in holder.children if not child.is_named
        }
        words |= {text(child) for child in children(node, "modifier")}
        for note in (
            note for holder in holders for note in children(holder, "annotation", "marker_annotation", "attribute")
        ):
            words |= {"deprecated"} if part(note, "name").rpartition(".")[2] in ("Deprecated", "Obsolete") else set()
        if owner is not None and owner.kind in ("interface", "annotation", "enum") and "private" not in words:
            implicit = owner.kind != "enum" or node.type in ("enum_constant", "enum_member_declaration")
            words |= {"public"} if implicit else set()
        if "internal" in words and "protected" not in words:
            words.discard("public")
        return words

    def _type_declaration(self, node: Node, owner: Fact | None, prefix: str) -> Fact:
        outer = self.own
        words = self._words(node, owner)
        kind = _TYPES[node.type]
        generics = self._generics(node)
        name = ".".join(filter(None, (prefix, part(node, "name"))))
        fact = Fact(name, kind, line_of(node), bases=list(self._bases(node)))
        fact.generics = generics
        fact.flags = sorted(words & {"public", "protected", "final", "abstract", "sealed", "static", "deprecated"})
        fact.members = list(self.inside(node.child_by_field_name("body"), fact))
        components = self._params(node)
        if kind == "record" or (kind == "class" and not any(item.kind == "constructor" for item in fact.members)):
            fact.members.append(Fact("<init>", "constructor", fact.line, components, flags=["public"]))
        for item in components if kind == "record" else ():
            fact.members.append(Fact(item.name, "method", fact.line, [], item.type, flags=["public"]))
        self.own = outer
        return fact

    def _generics(self, node: Node) -> list[str]:
        """The bounds of its type parameters, which from here on are written by their position."""
        listed = children(node.child_by_field_name("type_parameters"))
        names = (next(_plain(item), "") for item in listed)
        self.own = self.own | {name: f"${place}" for place, name in enumerate(names, len(self.own))}
        return [self.type(item, bound=True).removesuffix("extendsObject") for item in listed]

    def _bases(self, node: Node) -> Iterator[str]:
        for holder in children(node, "superclass", "super_interfaces", "extends_interfaces", "base_list"):
            for child in children(holder):
                yield from (self.type(base) for base in (children(child) if child.type == "type_list" else [child]))

    def _member(self, node: Node, owner: Fact | None, prefix: str) -> Iterator[Fact]:
        words = self._words(node, owner)
        kind = _MEMBERS[node.type]
        flags = words & {"public", "protected", "static", "deprecated", "abstract"}
        in_interface = owner is not None and owner.kind in ("interface", "annotation")
        if in_interface and kind in ("method", "property", "indexer") and not words & {"default", "static"}:
            given = node.child_by_field_name("body") is not None or node.child_by_field_name("value") is not None
            flags |= set() if given else {"abstract"}
        if kind == "field":
            flags |= {"readonly"} & {"readonly" if {"final", "readonly", "const"} & words or in_interface else ""}
            flags |= {"static"} if in_interface else set()
        elif words & {"final", "sealed"}:
            flags.add("final")
        own = "<init>" if kind == "constructor" else part(node, "name")
        holder = next(iter(children(node, "variable_declaration")), node)
        listed = [part(item, "name") for item in children(holder, "variable_declarator")]
        typed = node.child_by_field_name("returns") or holder.child_by_field_name("type")
        called = kind in ("method", "constructor", "delegate", "indexer")
        outer = self.own
        generics = self._generics(node)
        for name in [own] if own else listed or (["this"] if kind == "indexer" else []):
            fact = Fact(".".join(filter(None, (prefix, name))), kind, line_of(node), flags=sorted(flags))
            fact.params = self._params(node) if called else None
            fact.type = self.type(typed) if kind != "variant" else ""
            fact.generics = list(generics)
            thrown = [self.type(item) for holder in children(node, "throws") for item in children(holder)]
            fact.bases = sorted(item for item in thrown if not _UNCHECKED.fullmatch(item.rpartition(".")[2]))
            yield fact
        self.own = outer

    def _params(self, node: Node) -> list[Param]:
        found = []
        holder = node.child_by_field_name("parameters") or next(iter(children(node, "parameter_list")), None)
        for item in children(holder, "formal_parameter", "spread_parameter", "parameter"):
            rest = item.type == "spread_parameter" or any(
                text(child) == "params" for child in item.children if child.type != "identifier"
            )
            typed = item.child_by_field_name("type") or next((c for c in children(item) if c.type != "modifiers"), None)
            name = part(item, "name") or next((part(c, "name") for c in children(item, "variable_declarator")), "")
            value = next((place for place, child in enumerate(item.children) if text(child) == "="), None)
            default = text(item.children[value + 1]) if value is not None and value + 1 < item.child_count else None
            ways = {text(child) for child in children(item, "modifier")} & {"ref", "out", "in"}
            kind = " ".join([*sorted(ways), self.type(typed)])
            found.append(Param(name, "rest" if rest else "both", default, kind))
        return found

    def type(self, node: Node | None, bound: bool = False) -> str:
        """A type without annotations and blanks, by its full name; of a type parameter only the bound."""
        written = text(node)
        if bound or "@" in written or "/" in written:
            parts = list(_plain(node)) if node is not None else []
            written = "".join(parts[1:] if bound else parts)
        plain = _COMMON.sub("", "".join(written.split()))
        known = self.imports | self.own if self.own else self.imports
        return _COMMON.sub("", _CAPITAL.sub(lambda found: known.get(found[0], found[0]), plain))


def _plain(node: Node) -> Iterator[str]:
    if "annotation" in node.type or "comment" in node.type or node.type == "attribute_list":
        return
    if not node.children:
        yield text(node)
    for child in node.children:
        yield from _plain(child)


# Names of a side.


def surface(files: Files) -> Surface:
    found = Surface()
    exported = {unit for file in files.values() if "module" in file.facts.flags for unit in file.facts.stars}
    for path, file in sorted(files.items()):
        if _NOT_API.search(path) or "module" in file.facts.flags:
            continue
        found.files.add(path)
        if file.facts.unit:
            found.units.setdefault(file.facts.unit, path)
        if not exported or file.facts.unit in exported:
            for fact in file.facts.names:
                _put(found, ".".join(filter(None, (file.facts.unit, fact.name))), fact, path, None)
    for name, thing in list(found.names.items()):
        if thing.kind in _TYPES.values():
            _inherit(found, name, thing)
    return found


def _put(found: Surface, name: str, fact: Fact, path: str, owner: Thing | None) -> None:
    if not {"public", "protected"} & set(fact.flags):
        if name not in found.names:
            found.hidden.add(name)
        return
    known = found.names.get(name)
    found.hidden.discard(name)
    thing = Thing.of(fact, path, name)
    thing.owner = owner
    if known is not None and known.kind == fact.kind:
        if fact.params is not None:
            known.overloads.append(fact)
        thing = known  # overloads, and the parts of a partial type
    else:
        found.names[name] = thing
        if owner is not None:
            owner.members[name.rpartition(".")[2]] = thing
    for member in fact.members:
        _put(found, f"{name}.{member.name}", member, path, thing)


def _inherit(found: Surface, name: str, thing: Thing, depth: int = 0) -> None:
    """Members and further bases that the bases of the repository give; a base outside leaves the type open."""
    for base in thing.fact.bases if depth < 10 else ():
        plain = base.partition("<")[0]
        unit = name.rpartition(".")[0]
        candidates = (plain, f"{unit}.{plain}", f"{unit.rpartition('.')[0]}.{plain}", f"{name}.{plain}")
        full = next((one for one in candidates if one in found.names), None)
        if full is None:
            thing.flags |= set() if plain in ("Object", "Comparable", "Serializable") else {"open"}
            continue
        above = found.names[full]
        _inherit(found, full, above, depth + 1)
        brought = {plain, *(item.partition("<")[0] for item in above.fact.bases)}
        thing.flags |= {f"is {item.rpartition('.')[2]}" for item in brought} | (above.flags & {"open"})
        for leaf, member in above.members.items():
            if member.kind != "constructor":
                thing.members.setdefault(leaf, member)
                found.names.setdefault(f"{name}.{leaf}", member)
