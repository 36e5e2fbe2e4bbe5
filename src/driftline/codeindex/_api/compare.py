"""Two surfaces compared: each difference is a named rule, reported once under the name that callers use most.

The languages share one comparison. Their readers say what they have to say in flags, and `Reading` holds the few
questions that each language decides in its own way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from driftline.codeindex._api import TABLES, Fact, Param, Surface, Thing
from driftline.core import canonical_json, sha1_hex

LEVELS = ("major", "unknown", "minor", "patch")


class FlagRule(NamedTuple):
    """A rule about a word of a definition that came or went; `kinds` are the definitions it is about, blank: all."""

    rule: str
    word: str
    when: str  # came, went or either
    why: str
    kinds: Sequence[str] = ()


RULES: dict[str, str] = {rule: level for level, rules in TABLES["levels"].items() for rule in rules}
FLAG_RULES = [FlagRule(**rule) for rule in TABLES["flags"]["rules"]]


def rules_digest() -> str:
    """What identifies the table, for the caches that depend on it."""
    return sha1_hex(canonical_json({name: TABLES[name] for name in ("levels", "flags", "words")}))[:12]


Reason = tuple[str, str]  # a rule, and what it is about

_OBJECT = frozenset(dir(object))
_INTERFACES = ("interface", "trait", "annotation")
_UNSEEN = ("external", "unresolved")
_INFERRED = {"go": "var", "script": "value"}
_PLACED = ("both", "positional")
_ARGUMENTS = re.compile(r"[<\[(].*", re.DOTALL)
_COMPUTED = re.compile(r" extends |\binfer |\bkeyof\b|\btypeof\b|\bimport\(|\[\w+ in ")
_NAME = re.compile(r"[\w$.]*\w")
_LITERALS = re.compile(r"'[^']*'|\"[^\"]*\"|(?<![\w$])(?:true|false|\d+)\b")
_MEMBER_NAME = re.compile(r"(?<=[{;])(?:readonly )?\w+(?=[ ?])")
_UNION_SIGNS = re.compile(r"=>|'[^']*'|\"[^\"]*\"|[<>()\[\]{}|]")
_PLAIN_TYPES = frozenset(TABLES["words"]["script"]["plain_types"])
_DEPENDENCY = re.compile(r"([\w.-]+(?:/[\w.-]+)+)\.\w+")


@dataclass(frozen=True, slots=True)
class Difference:
    """A rule that applies to a name; `also` has the other names of the same definition."""

    rule: str
    name: str
    why: str
    before: Thing | None
    after: Thing | None
    also: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        return RULES[self.rule]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a language reads a change; the rest is the same everywhere."""

    language: str
    by_keyword: bool = False  # callers may name parameters
    overloads: bool = False

    def gone(self, old: Surface, new: Surface, name: str, thing: Thing) -> Reason | None:
        above, _, leaf = name.rpartition(".")
        owner = new.names.get(above)
        if owner is not None and owner.kind in (*_UNSEEN, "value", "type"):
            return None  # reported at the owner
        if owner is not None and owner.kind in ("class", "interface", "enum", "record") and thing.kind != "module":
            if self.language == "python" and leaf in _OBJECT and leaf != "__init__":
                return None
            if leaf == "__init__":
                lost = ("parameter-removed", "no __init__ is left") if thing.fact.params else None
                outside = ("base-unresolved", "__init__ now comes from a base outside of the repository")
                return outside if owner.flags & {"open", "builtin"} else lost
            if "open" in owner.flags:
                return "base-unresolved", "a base outside of the repository may have it"
        if above in new.open and above not in old.open:
            return "unresolved", new.open[above]
        if name in new.hidden:
            if self.language == "python":
                return "undeclared", "it can still be imported and is no longer declared public"
            return "hidden", "it is there and no longer public"
        return "removed", ""

    def came(self, old: Surface, name: str, thing: Thing) -> Iterator[Reason]:
        above, _, leaf = name.rpartition(".")
        owner = old.names.get(above)
        if owner is not None and owner.kind in (*_UNSEEN, "value"):
            return  # reported at the owner
        if owner is None or owner.kind == "module":
            yield "added", ""
        elif leaf == "__init__" and self.language == "python":
            made = owner.members.get("__new__")
            if made is None and owner.flags & {"open", "builtin"}:
                yield "base-unresolved", "__init__ came from a base outside of the repository"
            else:
                yield from parameters(made.fact.params or [] if made else [], thing.fact.params or [])
        elif leaf.startswith("__") and self.language == "python":
            return
        elif (
            "abstract" in thing.flags
            and thing.kind != "class"
            and not owner.flags & {"sealed", "final", "unexported-methods"}
            # A class that is not abstract has all of its members, whichever base brings them.
            and not (self.language in ("java", "csharp") and owner.kind == "class" and "abstract" not in owner.flags)
        ):
            yield "member-added-required", "implementations lack it"
        elif thing.kind in ("field", "variant") and "closed" in owner.flags:
            yield f"{thing.kind}-added-closed", "literals lack it" if thing.kind == "field" else "matches lack it"
        elif not (thing.kind == "constructor" and not thing.fact.params):
            yield "added", ""

    def changed(self, before: Thing, after: Thing) -> Iterator[Reason]:
        one, other = before.fact, after.fact
        if not _same_kind(one.kind, other.kind):
            if not {one.kind, other.kind} & set(_UNSEEN):
                unseen = any(_cannot_be_seen(self.language, item) for item in (before, after))
                yield ("unresolved" if unseen else "kind-changed"), f"{one.kind} -> {other.kind}"
        elif one.params is not None and other.params is not None and one.kind != "value" and one.kind != "class":
            yield from self._called(before, after)
            if self.overloads and len(before.overloads) + len(after.overloads) > 2:
                return  # each pair of overloads was compared whole
        elif (one.kind, other.kind) == ("external", "external") and one.type != other.type:
            yield "unresolved", f"{one.type} -> {other.type}"
        elif one.kind == "plain" and one.value != other.value:
            yield "unresolved", "another signature: only a compiler or a run tells whether calls still work"
        else:
            read_only = "readonly" in before.flags & after.flags
            inferred = one.kind in ("value", "var")
            yield from self._typed("type-changed", one.type, other.type, narrower=read_only, inferred=inferred)
            # Of a call in Go, the function decides.
            old, new = (fact.value.partition("(")[0] if fact.kind == "var" else fact.value for fact in (one, other))
            if one.kind == _INFERRED.get(self.language) and not (one.type or other.type) and old != new:
                yield "unresolved", "the variable's type is inferred"
            if one.kind == "const" and one.type == other.type and one.value != other.value:
                rule = "text-changed" if "text" in before.flags & after.flags else "value-changed"
                yield rule, f"{one.value} -> {other.value}"
        yield from self._around(before, after)

    def _around(self, before: Thing, after: Thing) -> Iterator[Reason]:
        """Words, bases and type parameters."""
        one, other = before.fact, after.fact
        yield from _flags(before, after)
        yield from self._bases(before, after)
        if one.generics != other.generics and _same_kind(one.kind, other.kind):
            # The compiler of TypeScript infers those of a call.
            rule = "unresolved" if self.language == "script" and one.params is not None else "type-parameters-changed"
            yield rule, f"<{', '.join(one.generics)}> -> <{', '.join(other.generics)}>"

    def _called(self, before: Thing, after: Thing) -> Iterator[Reason]:
        old, new = before.overloads, after.overloads
        if len(old) == len(new) == 1 or not self.overloads:
            yield from self._call(before.fact, after.fact)
            return
        known, there = {_shape(fact): fact for fact in old}, {_shape(fact): fact for fact in new}
        lost = [fact for shape, fact in known.items() if shape not in there]
        fresh = [fact for shape, fact in there.items() if shape not in known]
        pairs = [(fact, there[shape]) for shape, fact in known.items() if shape in there]
        if len(lost) == len(fresh) == 1:
            pairs.append((lost[0], fresh[0]))
        elif lost and self.language == "script":
            yield "unresolved", "overloads changed"
        else:
            # A base outside of the repository may have the same overload.
            gone = "base-unresolved" if after.owner is not None and "open" in after.owner.flags else "removed"
            yield from ((gone, f"overload ({', '.join(_shape(fact))})") for fact in lost)
            for fact in fresh:
                yield ("member-added-required" if "abstract" in fact.flags else "added"), "overload"
        for one, other in pairs:
            for rule, why in self._call(one, other):
                # A call that one overload no longer takes may be good for one that came.
                covered = self.language == "script" and len(new) > len(old) and RULES[rule] == "major"
                yield ("unresolved", "overloads changed") if covered else (rule, why)
            sides = [Thing.of(fact, thing.file, thing.id) for fact, thing in ((one, before), (other, after))]
            sides[0].owner, sides[1].owner = before.owner, after.owner
            yield from self._around(*sides)

    def _call(self, old: Fact, new: Fact) -> Iterator[Reason]:
        before, after = old.params or [], new.params or []
        if self.language == "python":
            if {"overload"} & {*old.flags, *new.flags}:
                yield from [("unresolved", "overloads changed")] if before != after else []
            else:
                yield from parameters(before, after)
        else:
            yield from self._places(before, after)
        yield from self._typed("result-changed", old.type, new.type, narrower=True, inferred=True)
        thrown = set(new.bases) - set(old.bases)
        if any(item.startswith("$") for item in thrown):
            yield "unresolved", "what it throws is a type parameter"
        elif thrown:
            yield "throws-added", ", ".join(sorted(thrown))

    def _places(self, old: Sequence[Param], new: Sequence[Param]) -> Iterator[Reason]:
        """Parameters that are given by place."""
        added = new[len(old) :]
        if len(new) < len(old):
            yield "parameter-removed", f"({', '.join(_types(old))}) -> ({', '.join(_types(new))})"
            return
        if any(item.required for item in added):
            yield "parameter-added-required", ", ".join(item.name or item.type for item in added if item.required)
            return
        for one, other in zip(old, new, strict=False):
            if not one.required and other.required:
                yield "parameter-required", one.name
            if (one.type, one.how == "rest") != (other.type, other.how == "rest"):
                yield from self._typed("parameter-type", one.type, other.type) or [("parameter-type", one.name)]
            elif one.name != other.name:
                renamed = "parameter-renamed" if self.by_keyword else "parameter-name"
                yield renamed, f"{one.name} -> {other.name}"
            elif self.by_keyword and one.default != other.default and other.default is not None:
                yield "default-changed", one.name
        for item in added:
            variadic = self.language == "go"
            yield ("signature-changed", "the function has another type") if variadic else ("parameter-added", item.name)

    def _typed(self, rule: str, old: str, new: str, *, narrower: bool = False, inferred: bool = False) -> list[Reason]:
        """A rule about two types, where they differ."""
        if old == new:
            return []
        words = f"{old or '(none)'} -> {new or '(none)'}"
        if self.language == "python":
            return [("annotation-changed", words)] if old else []
        if self.language == "script":
            return [_typed_in_script(rule, old, new, words, narrower=narrower, inferred=inferred)]
        if self.language == "java" and _differ_by_import(old, new):
            return [("unresolved", f"{words}: an import of a whole package may give it")]
        if self.language == "go":
            if inferred and rule == "type-changed" and not (old and new):
                return [("unresolved", "the variable's type is inferred")]
            if _DEPENDENCY.sub(r"\1.?", old) == _DEPENDENCY.sub(r"\1.?", new):
                return [("unresolved", f"{words}: one may be an alias of the other")]
        return [(rule, words)]

    def _bases(self, before: Thing, after: Thing) -> Iterator[Reason]:
        if before.kind in ("function", "method", "constructor", "abstract") or before.kind != after.kind:
            return
        bases = ([(_ARGUMENTS.sub("", base), base) for base in thing.fact.bases] for thing in (before, after))
        old, new = ({name.replace("::", ".").rpartition(".")[2]: base for name, base in side} for side in bases)
        gone = [base for base in old if base not in new and base not in ("object", "ABC")]
        if self.language == "rust":
            yield from (("trait-lost", base) for base in sorted(gone))
        elif gone and self.language == "python" and len(new) >= len(old):
            yield "base-unresolved", f"{', '.join(old)} -> {', '.join(new)}"
        elif self.language == "go":
            foreign = [base for base in new if base not in old and "." in new[base]]
            if foreign and before.kind == "interface" and "unexported-methods" not in before.flags:
                yield "member-added-required", f"embeds {', '.join(foreign)}"
        else:
            # A base outside of the repository may bring another from there.
            outside = {base for base in gone if "open" in after.flags and f"is {base}" not in before.flags}
            yield from (("base-unresolved", base) for base in gone if base in outside)
            yield from (
                ("base-removed", base) for base in gone if base not in outside and f"is {base}" not in after.flags
            )
            yield from (("base-added", base) for base in new if base not in old and f"is {base}" not in before.flags)


def _same_kind(one: str, other: str) -> bool:
    return one == other or {one, other} == {"method", "abstract"}


def _cannot_be_seen(language: str, thing: Thing) -> bool:
    """Whether only a compiler or a run would tell what a thing is."""
    if language == "python":
        return thing.kind == "value" and not thing.flags & {"literal", "property", "instance"}
    return thing.kind in {"script": ("value", "type"), "go": ("alias",), "rust": ("alias",)}.get(language, ())


def _flags(before: Thing, after: Thing) -> Iterator[Reason]:
    came, went = after.flags - before.flags, before.flags - after.flags
    for rule in FLAG_RULES:
        if rule.kinds and after.kind not in rule.kinds:
            continue
        if (rule.word in came and rule.when != "went") or (rule.word in went and rule.when != "came"):
            in_interface = rule.word == "abstract" and after.owner is not None and after.owner.kind in _INTERFACES
            said = {"closed": "non_exhaustive" in came, "final": "static" in after.flags}
            if said.get(rule.word):
                continue  # another rule reports it, or no caller can override it
            why = f"no longer {rule.why}" if rule.word in went and rule.when == "either" else rule.why
            yield ("member-added-required" if in_interface else rule.rule), why


def _shape(fact: Fact) -> tuple[str, ...]:
    return tuple(_types(fact.params or []))


def _types(params: Iterable[Param]) -> list[str]:
    return [item.type + ("..." if item.how == "rest" and not item.type.endswith("...") else "") for item in params]


def _typed_in_script(rule: str, old: str, new: str, words: str, *, narrower: bool, inferred: bool) -> Reason:
    """What two types of TypeScript say that differ: types of other names may have the same members."""
    if (inferred and not (old and new)) or _COMPUTED.search(old + new):
        return "unresolved", "the type is inferred or computed"
    if _is_wider(new, old) if narrower else rule == "parameter-type" and _is_wider(old, new):
        return "annotation-changed", words
    before, after = set(_members_of(old)), set(_members_of(new))
    if before - after and after - before and _names_in(old) != _names_in(new):
        return "unresolved", f"{words}: types of other names may have the same members"
    return rule, words


def _is_wider(narrow: str, wide: str) -> bool:
    """Whether a type takes in another: `any`, or a union of the same members and more."""
    if wide in ("any", "unknown") or narrow == "this":
        return True
    there = {inner for one in _members_of(wide) for inner in (one, one.removeprefix("(").removesuffix(")"))}
    return bool(narrow) and there.issuperset(_members_of(narrow))


def _members_of(union: str) -> Iterator[str]:
    """The members of a union, which may have unions inside of brackets."""
    depth, start = 0, 0
    for found in _UNION_SIGNS.finditer(union):
        depth += (found[0] in "<([{") - (found[0] in ">)]}")
        if found[0] == "|" and depth == 0:
            yield union[start : found.start()]
            start = found.end()
    yield union[start:]


def _names_in(written: str) -> set[str]:
    """The types that a type refers to by their names; names of members are none."""
    return set(_NAME.findall(_MEMBER_NAME.sub("", _LITERALS.sub("", written)))) - _PLAIN_TYPES


def _differ_by_import(old: str, new: str) -> bool:
    """Whether types are the same but for names that one side writes without a package."""
    pairs = zip(_NAME.findall(old), _NAME.findall(new), strict=False)
    same = all(
        one == other or other == one.rpartition(".")[2] or one == other.rpartition(".")[2] for one, other in pairs
    )
    return same and _NAME.sub("", old) == _NAME.sub("", new)


def parameters(old: Sequence[Param], new: Sequence[Param]) -> Iterator[Reason]:
    """Parameters that callers may name: whether each call that was good still is.

    >>> list(parameters([Param("a"), Param("b", "both", "1")], [Param("a"), Param("b", "keyword", "1")]))
    [('parameter-kind', 'b is keyword-only')]
    """
    there = {item.name: item for item in new if item.how not in ("rest", "keywords")}
    kinds = {item.how for item in new}
    places = [[item.name for item in side if item.how in _PLACED] for side in (old, new)]
    renamed = _renamed(old, there, places)
    for item in old:
        if item.how in ("rest", "keywords"):
            if item.how not in kinds:
                yield "parameter-removed", ("*" if item.how == "rest" else "**") + item.name
        elif item.name in renamed:
            by_place = item.how == renamed[item.name].how == "positional"
            if by_place or not {"rest", "keywords"} <= kinds:
                rule = "parameter-name" if by_place else "parameter-renamed"
                yield rule, f"{item.name} -> {renamed[item.name].name}"
        elif item.name not in there:
            swallowed = {"keyword": {"keywords"}, "positional": {"rest"}, "both": {"rest", "keywords"}}[item.how]
            if not swallowed <= kinds:
                yield "parameter-removed", item.name
        else:
            yield from _kept(item, there[item.name], places)
    known = {item.name for item in old} | {item.name for item in renamed.values()}
    for item in there.values():
        if item.name not in known:
            yield ("parameter-added-required" if item.required else "parameter-added"), item.name


def _renamed(old: Sequence[Param], there: dict[str, Param], places: list[list[str]]) -> dict[str, Param]:
    """Parameters whose place is taken by one of another name."""
    was, now = places
    found = {}
    for item in old:
        if item.how in _PLACED and item.name not in there and was.index(item.name) < len(now):
            other = there[now[was.index(item.name)]]
            if other.name not in {one.name for one in old} and other.required <= item.required:
                found[item.name] = other
    return found


def _kept(item: Param, other: Param, places: list[list[str]]) -> Iterator[Reason]:
    name = item.name
    if other.required and not item.required:
        yield "parameter-required", name
    if item.how != "keyword" and other.how == "keyword":
        yield "parameter-kind", f"{name} is keyword-only"
    elif item.how != "positional" and other.how == "positional":
        yield "parameter-kind", f"{name} is positional-only"
    elif item.how != "keyword" and places[0].index(name) != places[1].index(name):
        yield "parameter-moved", name
    if item.default is not None and other.default is not None and item.default != other.default:
        yield "default-changed", name
    if item.type and item.type != other.type:
        yield "annotation-changed", name


def compare(old: Surface, new: Surface, reading: Reading, doubted: dict[str, Reason]) -> list[Difference]:
    """All differences; what is in a file that could not be read on one side is not known, never removed."""
    found: dict[tuple[str, str, str, str], list[tuple[str, Thing | None, Thing | None]]] = defaultdict(list)
    for name, before, after in _pairs(old, new):
        doubt = next((item.file for item in (before, after) if item is not None and item.file in doubted), None)
        if doubt is not None:
            found[("", "", *doubted[doubt])].append((name, before, after))
            continue
        for rule, why in _reasons(old, new, reading, name, before, after):
            found[before.id if before else "", after.id if after else "", rule, why].append((name, before, after))
    differences = []
    for (_, _, rule, why), places in found.items():
        (name, *sides), *rest = sorted(places, key=lambda place: _best_name(*place))
        differences.append(Difference(rule, name, why, sides[0], sides[1], tuple(place[0] for place in rest)))
    return sorted(differences, key=lambda item: (LEVELS.index(item.level), item.name, item.rule, item.why))


def _best_name(name: str, before: Thing | None, after: Thing | None) -> tuple[object, ...]:
    """The name of the type that defines it comes first, then the shortest."""
    defined = {item.id for item in (before, after) if item is not None}
    return name not in defined, name.count("."), len(name), name


def _pairs(old: Surface, new: Surface) -> Iterator[tuple[str, Thing | None, Thing | None]]:
    """Names on either side; members of what itself came or went go with it."""
    for one, other in ((old, new), (new, old)):
        for name, thing in one.names.items():
            above = name.rpartition(".")[0]
            if name in other.names:
                if one is old:
                    yield name, thing, other.names[name]
            elif not (above in one.names and above not in other.names):
                yield (name, thing, None) if one is old else (name, None, thing)


def _reasons(
    old: Surface, new: Surface, reading: Reading, name: str, before: Thing | None, after: Thing | None
) -> Iterator[Reason]:
    entries = [thing.fact for thing in (before, after) if thing is not None and "entry" in thing.flags]
    if entries:
        # An entry without a source: not known where any file of its package is another.
        if len(entries) == 1 or entries[0].type != entries[1].type:
            yield "unresolved", entries[0].value
    elif before is not None and after is not None:
        yield from reading.changed(before, after)
        if before.file != after.file and before.kind != "module":
            yield "moved", f"{before.file} -> {after.file}"
    elif before is not None:
        yield from filter(None, [reading.gone(old, new, name, before)])
    elif after is not None and name.rpartition(".")[0] not in old.open:
        yield from reading.came(old, name, after)
