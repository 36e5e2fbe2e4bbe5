"""Accepted rules written into the text of a schema, which only gains lines, and suggestions as YAML and as a page.

>>> from driftline.payloads._suggest.evidence import Suggestion
>>> rule = Suggestion(("total",), {"precision": 0.01}, "review", 9, 9, 9, "")
>>> print(apply_rules("# prices\\nproperties:\\n  total:\\n    type: number  # EUR\\n", [rule]).after, end="")
# prices
properties:
  total:
    x-migration-precision: 0.01
    type: number  # EUR
"""

from __future__ import annotations

import copy
import difflib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from driftline.errors import PayloadError
from driftline.payloads._schema.documents import SchemaText, is_json_text, load_schema, yaml_text
from driftline.payloads._schema.nodes import EXTENSION_PREFIX, Fragment, SchemaDocument, objects_of, parts_of
from driftline.payloads._schema.root import find_root
from driftline.payloads._suggest.evidence import EXAMPLES, Pair, Suggestion, hidden_by, shown
from driftline.payloads._values.paths import Place, escape_pointer, place_text, unescape_pointer
from driftline.payloads._values.text import after_space, to_json_bytes
from driftline.payloads._values.values import Json, spelled
from driftline.sinks import page_bytes

_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]*")
GLOBAL_RULES = frozenset({"allow-null-as-missing", "empty-string-as-null"})  # they belong to the root
_HEAD = """\
# Rules suggested from observed pairs. A loosening rule hides differences: look before you accept one,
# with `driftline payloads suggest … --accept ID`."""
_TAIL = "# Suggestions; what follows is written anew by each `driftline payloads suggest`."
_LONGEST = 200  # characters of a value


class Remedy(NamedTuple):
    """A rule that would accept the differences of a place; `apply_rules` writes it into a schema."""

    place: Place
    rule: dict[str, Any]  # extensions without their prefix

    @property
    def hides(self) -> str:
        """What the rule lets pass, as text."""
        return hidden_by(self.rule)


class RuleEdit(NamedTuple):
    """The text of a schema before and after rules were put in."""

    before: str
    after: str

    def diff(self, name: str = "schema") -> str:
        """The change as a unified diff."""
        before, after = (text.splitlines(keepends=True) for text in self)
        lines = difflib.unified_diff(before, after, name, name)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def apply_rules(text: str, rules: Iterable[Suggestion | Remedy], root: str | None = None) -> RuleEdit:
    """Put rules into the text of a schema, YAML or JSON; an empty text becomes a new schema (payloads §11.6).

    A rule goes where its member is declared. Where others refer to that schema too, it goes beside the reference,
    so that it applies to this place alone. Raises `PayloadError` where the text has no place for it (a YAML anchor
    that several places share, a rule of that name that stands there already).
    """
    source = load_schema(text)
    needed = copy.deepcopy(source.content)
    for one in rules:
        place = () if one.rule.keys() & GLOBAL_RULES else one.place
        if needed is None:
            needed = nested(place, one.rule)
            continue
        for owner, tail in list(_Tree(needed, root).targets(place)):
            _add(owner, nested(tail, one.rule), place)
    after = text + yaml_text(needed) if source.content is None and needed else _edited(source, needed)
    if load_schema(after).content != needed:
        raise PayloadError("the schema is written in a way that only a person should change: put the rules in by hand")
    return RuleEdit(text, after)


def nested(place: Place, rule: Mapping[str, Json]) -> dict[str, Any]:
    """A schema that has extensions (without their prefix) at a place.

    >>> nested(("a", None), {"precision": 1})
    {'properties': {'a': {'items': {'x-migration-precision': 1}}}}
    """
    schema: dict[str, Any] = {f"{EXTENSION_PREFIX}{name}": value for name, value in rule.items()}
    for step in reversed(place):
        schema = {"items": schema} if step is None else {"properties": {step: schema}}
    return schema


def rule_yaml(place: Place, rule: Mapping[str, Json]) -> str:
    """A rule as a schema of its own, to be copied."""
    return yaml_text(nested(place, rule)) if rule else ""


def schema_with(rules: Mapping[Place, Mapping[str, Json]]) -> dict[str, Any]:
    """A new schema that has rules (extensions without their prefix) at places."""
    schema: dict[str, Any] = {}
    for place, rule in rules.items():
        _add(schema, nested(place, rule), place)
    return schema


class _Tree:
    """A document with what is needed to find the one place where a rule belongs."""

    def __init__(self, content: object, root: str | None) -> None:
        self.document = SchemaDocument(SchemaText(content))
        self.root = find_root(self.document, root)
        self.references: Counter[object] = Counter()
        self.uses: Counter[int] = Counter()  # of containers: YAML anchors have several
        for schema, _ in objects_of(Fragment(content, "")):
            self.references.update(value for name, value in schema.items() if name == "$ref" and isinstance(value, str))
            self.uses.update(id(child) for child in schema.values() if isinstance(child, dict | list))

    def targets(self, place: Place) -> Iterator[tuple[dict[str, Json], Place]]:
        """The schemas that are there already, and what of the place is still missing below each."""
        waiting: list[tuple[Fragment, Place]] = [(self.root, place)]
        for fragment, left in waiting:
            for holder in self.holders(self.own(fragment), left[0]) if left else (fragment,):
                child = _child(holder, left[0]) if left else None
                if child is not None:
                    waiting.append((child, left[1:]))
                else:
                    yield self.own_object(holder, place), left

    def own(self, fragment: Fragment) -> Fragment:
        """The schema behind a reference if nothing else refers to it, else the one that refers."""
        seen: set[str] = set()
        while isinstance(fragment.schema, dict) and fragment.pointer not in seen:
            seen.add(fragment.pointer)
            reference = fragment.schema.get("$ref")
            if not isinstance(reference, str) or not reference.startswith("#/") or self.references[reference] > 1:
                break
            fragment = self.document.resolve(reference, f"{fragment.pointer}/$ref")
        return fragment

    def declares(self, fragment: Fragment, step: str | None) -> bool:
        """Whether a schema, or one that it is made of, has the member."""
        return any(_child(part, step) is not None for part in (fragment, *parts_of(self.document, fragment)))

    def holders(self, fragment: Fragment, step: str | None) -> list[Fragment]:
        """The schemas to which a member's rules belong: branches of a choice that have it, else the schema itself."""
        if _child(fragment, step) is not None or not isinstance(fragment.schema, dict):
            return [fragment]
        parts = [part for part in _listed(fragment, "allOf") if self.declares(part, step)]
        if parts:
            return self.holders(self.own(parts[-1]), step)
        branches = (*_listed(fragment, "oneOf"), *_listed(fragment, "anyOf"))
        found = [self.own(part) for part in branches if self.declares(part, step)]
        return found if found and not self.declares(fragment, step) else [fragment]

    def own_object(self, fragment: Fragment, place: Place) -> dict[str, Json]:
        """The schema at a pointer, if it is in this file and at this place alone."""
        value: Any = self.document.source.content
        for token in fragment.pointer.split("/")[1:]:
            value = value[unescape_pointer(token)] if isinstance(value, dict) else value[int(token)]
            if self.uses[id(value)] > 1:
                raise _refusal(place, "its schema is a YAML anchor that several places use")
        if not isinstance(value, dict):
            raise _refusal(place, "its schema is no object")
        return value


def _child(fragment: Fragment, step: str | None) -> Fragment | None:
    if not isinstance(fragment.schema, dict):
        return None
    owner, pointer = fragment
    if step is None:
        child = owner.get("items")
        return Fragment(child, f"{pointer}/items") if isinstance(child, dict) else None
    members = owner.get("properties")
    if isinstance(members, dict) and isinstance(members.get(step), dict):
        return Fragment(members[step], f"{pointer}/properties/{escape_pointer(step)}")
    return None


def _listed(fragment: Fragment, word: str) -> list[Fragment]:
    parts = fragment.schema.get(word) if isinstance(fragment.schema, dict) else None
    return [Fragment(part, f"{fragment.pointer}/{word}/{n}") for n, part in enumerate(parts or ())]


def _add(owner: dict[str, Any], addition: dict[str, Any], place: Place) -> None:
    """Put members into a schema, below what it has."""
    for name, value in addition.items():
        if name not in owner:
            owner[name] = value
        elif isinstance(owner[name], dict) and not name.startswith(EXTENSION_PREFIX):
            _add(owner[name], value, place)
        elif owner[name] != value:
            raise _refusal(place, f"{name} stands there already")


def _edited(source: SchemaText, needed: Any) -> str:
    """The text with the members that `needed` has more than its content."""
    text = source.text or ""
    starts = [0, *accumulate(map(len, text.splitlines(keepends=True)))]
    after = SchemaDocument(SchemaText(needed))
    edits: list[tuple[int, str]] = []
    for schema, pointer in objects_of(Fragment(source.content, "")):
        grown = after.lookup(pointer)
        added = {name: value for name, value in grown.schema.items() if name not in schema} if grown else {}
        position = source.position(pointer) if added else {}
        if position:
            line_start = starts[position["line"] - 1]
            edits.append(_edit(text, line_start, line_start + position["column"] - 1, added, is_first=not schema))
    for at, insertion in sorted(edits, reverse=True):
        text = text[:at] + insertion + text[at:]
    return text


def _edit(text: str, line_start: int, at: int, added: dict[str, Json], *, is_first: bool) -> tuple[int, str]:
    """Where members go into an object that begins at an offset, and their text."""
    if text[at : at + 1] == "{":
        return at + 1, _flow(text, at + 1, added, is_first=is_first)
    margin = " " * (at - line_start)
    if text[line_start:at].strip():  # the object begins behind a dash, which stays before its first member
        return at, yaml_text(added).replace("\n", f"\n{margin}")
    return line_start, "".join(f"{margin}{line}\n" for line in yaml_text(added).splitlines())


def _flow(text: str, at: int, addition: dict[str, Json], *, is_first: bool) -> str:
    """Members for the inside of braces, on lines of their own if the others have such."""
    is_plain = (lambda _: None) if is_json_text(text) else _PLAIN_NAME.fullmatch
    members = [
        f"{name if is_plain(name) else to_json_bytes(name).decode()}: {to_json_bytes(value).decode()}"
        for name, value in addition.items()
    ]
    space = text[at : after_space(text, at)]
    if is_first or "\n" not in space:
        return ", ".join(members) + ("" if is_first else ", ")
    return "".join(f"{space}{member}," for member in members)


def _refusal(place: Place, reason: str) -> PayloadError:
    return PayloadError(
        f"the rule for {place_text(place)} cannot be written into the schema: {reason}; put it there by hand",
        details={"path": place_text(place), "reason": reason},
    )


# Suggestions as YAML and as a page (payloads §11.5).
def rules_yaml(suggestions: list[Suggestion], chosen: list[Suggestion], base: str = "", root: str | None = None) -> str:
    """A schema (`base`, or a new one) with the chosen rules; all others follow as comments, with the evidence."""
    given = yaml_text(load_schema(base).content) if is_json_text(base) else base.partition(_TAIL)[0].rstrip()
    schema = apply_rules(f"{given}\n" if given else "", chosen, root).after or "type: object\n"
    lines = [*([] if given else [_HEAD]), schema.rstrip("\n"), "", _TAIL]
    for one in chosen:
        lines += ["", f"# accepted {one.id}: {_counts(one)}; {one.why}"]
    for one in suggestions:
        if one not in chosen:
            lines += ["", *(f"# {line}" for line in _lines(one))]
    return "\n".join(lines) + "\n"


def _counts(one: Suggestion) -> str:
    return f"explains {one.explained} of {one.differing} differing, {one.seen} seen"


def _lines(one: Suggestion) -> Iterator[str]:
    yield f"{one.level} {one.id}"
    yield f"  {_counts(one)}; {one.why}"
    for name, value in one.rule.items():
        yield f"  x-migration-{name}: {spelled(value)}"
    if one.hides:
        yield f"  hides: {one.hides}"
    for words, pairs in (("example", one.examples), ("counterexample", one.counterexamples)):
        for old, new in pairs[:EXAMPLES]:
            yield f"  {words}: {spelled(shown(old))} -> {spelled(shown(new))}"
    for rival in one.rivals:
        yield f"  rival: {rival}"


def suggestions_page(suggestions: list[Suggestion], chosen: list[Suggestion]) -> bytes:
    """A page that loads nothing else."""
    taken = {id(one) for one in chosen}
    sections = [
        {
            "one": one,
            "accepted": id(one) in taken,
            "counts": _counts(one),
            "yaml": rule_yaml(one.place, one.rule),
            "flag": shlex.quote(one.id),
            "pairs": [("for example", _spelled(one.examples)), ("but also", _spelled(one.counterexamples))],
        }
        for one in suggestions
    ]
    counts = count_words(suggestions)
    return b"".join(page_bytes("suggestions.html", sections=sections, counts=counts, accepted=len(chosen)))


def count_words(suggestions: list[Suggestion]) -> str:
    """How many there are of each level."""
    return ", ".join(
        f"{sum(one.level == level for one in suggestions)} {level}" for level in ("sure", "review", "finding")
    )


def _spelled(pairs: list[Pair]) -> list[list[str]]:
    texts = ([spelled(shown(value)) for value in pair] for pair in pairs[:EXAMPLES])
    return [[text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in pair] for pair in texts]
