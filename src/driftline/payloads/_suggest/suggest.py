"""From pairs to suggestions (payloads §11): renames, arrays in another order, missing members, scalars, in this order;
each step sees the pairs through the rules before it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from driftline.errors import PayloadError
from driftline.payloads._batch.job import BatchJob, Record, open_source, records_of, splits_of
from driftline.payloads._compare.compare import compile as compile_schema
from driftline.payloads._compare.report import Observer
from driftline.payloads._schema.nodes import EXTENSION_PREFIX, Fragments, SchemaDocument, open_document
from driftline.payloads._schema.root import find_root
from driftline.payloads._suggest import evidence
from driftline.payloads._suggest.evidence import MIN_DIFFERING, SHARE, Pair, Share, Sighting, Suggestion, is_sure, token
from driftline.payloads._suggest.write import schema_with
from driftline.payloads._values.paths import Path, Place, escape_pointer, generalised, place_of
from driftline.payloads._values.text import parse_json
from driftline.payloads._values.values import MISSING, NEW, OLD, Json, Value, parse_iso, same_json

Bags = dict[int, list[Any]]  # pair -> the values of a member in it
Members = dict[str, tuple[Bags, Bags]]  # of Old and of New

_RENAME_ROUNDS = 8
_GONE = 0.02  # a name that is hardly ever on the other side
_RIVAL = 0.02
_LIKE = 0.6
_CHANCE, _CHANCE_LIKE = 1e-12, 1e-6
_MODE_ROUNDS = 4
_AGREE = 0.9  # of the arrays, for members that tell items apart
_IDENTITY = re.compile(r"(?:^|[_.-])(?:id|sid|key|sku|code|uuid|guid|number|no|slug)$|(?:Id|ID|Sid|Key|Code|Sku)$")
_WRITTEN_OUT = 0.05  # how often a default may also be there


class Alignment:
    """Two payloads side by side, through the renames and array modes that are known so far."""

    def __init__(self) -> None:
        self.aliases: dict[Place, dict[str, str]] = {}  # of an object: old name -> new name
        self.modes: dict[Place, dict[str, Json]] = {}  # of an array: its rules

    def rename(self, place: Place, old: str, new: str) -> None:
        self.aliases.setdefault(place, {})[old] = new

    def members(self, value: dict[str, Json], place: Place) -> dict[str, Json]:
        """The members of an object of Old under New's names."""
        names = self.aliases.get(place)
        return {names.get(name, name): item for name, item in value.items()} if names else value

    def in_new_names(self, value: Json, place: Place = ()) -> Json:
        """A payload of Old under New's names, so that it can stand where New's does."""
        if isinstance(value, dict):
            members = self.members(value, place)
            return {name: self.in_new_names(item, (*place, name)) for name, item in members.items()}
        if isinstance(value, list):
            return [self.in_new_names(item, (*place, None)) for item in value]
        return value

    def observe(self, pairs: Iterable[Pair], *, are_both_old: bool = False) -> Sightings:
        """What the comparison pairs with each other under the renames and modes."""
        rules: dict[Place, dict[str, Json]] = {}
        for place, names in self.aliases.items():
            for old, new in names.items():
                rules.setdefault((*place, new), {})["alias"] = old
        for place, mode in self.modes.items():
            rules.setdefault(place, {}).update(mode)
        plan = compile_schema(schema_with(rules), {"strict_schema_validation": False}).observed()
        seen = Sightings()
        for seen.pair, (before, after) in enumerate(pairs):
            plan.observe(before, self.in_new_names(after) if are_both_old else after, seen)
        return seen

    def bags(self, pairs: list[Pair]) -> dict[Place, Members]:
        """The members of the objects at each place as bags of values: order inside arrays does not matter."""
        seen: dict[Place, Members] = {}
        for at, (old, new) in enumerate(pairs):
            waiting: list[tuple[Place, list[Json], list[Json]]] = [((), [old], [new])]
            for place, *sides in waiting:
                found: list[dict[str, list[Json]]] = [{}, {}]
                for side, values in enumerate(sides):
                    for value in values:
                        if isinstance(value, dict):
                            for name, item in (self.members(value, place) if side == OLD else value).items():
                                found[side].setdefault(name, []).append(item)
                olds, news = found
                for side, members in enumerate(found if olds and news else ()):
                    for name, values in members.items():
                        seen.setdefault(place, {}).setdefault(name, ({}, {}))[side][at] = values
                waiting += [((*place, name), olds[name], news[name]) for name in olds if name in news]
                left, right = ([item for one in values if isinstance(one, list) for item in one] for values in sides)
                if left and right:
                    waiting.append(((*place, None), left, right))
        return {place: seen[place] for place in sorted(seen, key=_depth)}


def _depth(place: Place) -> tuple[int, str]:
    return len(place), str(place)


class Sightings(Observer):
    """Collects, place by place, the leaves and arrays that a comparison paired, with the number of their pair."""

    def __init__(self) -> None:
        self.pair = 0
        self.leaves: dict[Place, list[Sighting]] = {}
        self.arrays: dict[Place, list[Sighting]] = {}
        self.lone_items: dict[Place, dict[int, Sighting]] = {}  # of an array: one of each pair

    def leaf(self, path: Path, old: Value, new: Value, _meaning: object) -> None:
        self.leaves.setdefault(place_of(path), []).append(Sighting(self.pair, old, new))

    def array(self, path: Path, old: list[Any], new: list[Any], _keeps_indexes: bool) -> None:
        self.arrays.setdefault(place_of(path), []).append(Sighting(self.pair, old, new))

    def alone(self, path: Path, side: int, value: Value) -> None:
        """A member or an item without a partner."""
        place = place_of(path)
        seen = Sighting(self.pair, *((value, MISSING) if side == OLD else (MISSING, value)))
        if place[-1] is None:
            self.lone_items.setdefault(place[:-1], {})[self.pair] = seen
        else:
            self.leaves.setdefault(place, []).append(seen)


# Renames.
class _Candidate(NamedTuple):
    old: str
    new: str
    score: float
    agreeing: list[int]  # pairs that support it, of those that have both
    together: list[int]
    can_be_sure: bool
    is_constant: bool
    why: str

    def suggestion(self, place: Place, members: Members, rivals: list[str]) -> Suggestion:
        counts = (len(self.agreeing), len(self.together), len(self.together))
        level = "sure" if self.can_be_sure and not rivals and is_sure(*counts) else "review"
        rule = {"alias": self.old}
        if self.is_constant:
            level, rule = "finding", {}
        olds, news, good = members[self.old][OLD], members[self.new][NEW], set(self.agreeing)
        examples = [(olds[one][0], news[one][0]) for one in self.agreeing[:3]]
        against = [(olds[one][0], news[one][0]) for one in self.together if one not in good][:3]
        return Suggestion((*place, self.new), rule, level, *counts, self.why, examples, against, rivals)


def find_renames(pairs: list[Pair], known: Alignment) -> Iterator[Suggestion]:
    """Renames, top down and again, because a renamed object shows what is renamed inside it."""
    reported: set[tuple[Place, str]] = set()
    for _ in range(_RENAME_ROUNDS):
        grew = False
        found = ((place, members, *one) for place, members in known.bags(pairs).items() for one in _chosen(members))
        for place, members, candidate, rivals in found:
            if (place, candidate.old) not in reported:
                reported.add((place, candidate.old))
                if not candidate.is_constant:
                    known.rename(place, candidate.old, candidate.new)
                    grew = True
                yield candidate.suggestion(place, members, rivals)
        if not grew:
            return


def _chosen(members: Members) -> Iterator[tuple[_Candidate, list[str]]]:
    lost = [name for name, (olds, news) in members.items() if olds and len(news) <= _GONE * len(olds)]
    gained = [name for name, (olds, news) in members.items() if news and len(olds) <= _GONE * len(news)]
    tried = (_candidate(old, new, members[old][OLD], members[new][NEW]) for old in lost for new in gained)
    found = sorted(filter(None, tried), key=lambda candidate: (-candidate.score, candidate.old, candidate.new))
    used: set[str] = set()
    for candidate in found:
        if candidate.old in used or candidate.new in used:
            continue
        used |= {candidate.old, candidate.new}
        rivals = [
            f"{other.old} -> {other.new}"
            for other in found
            if other is not candidate
            and (other.old == candidate.old or other.new == candidate.new)
            and other.score > candidate.score - _RIVAL
        ]
        yield candidate, rivals


def _candidate(old: str, new: str, olds: Bags, news: Bags) -> _Candidate | None:
    together = sorted(olds.keys() & news.keys())
    if len(together) < MIN_DIFFERING or len(together) < SHARE * len(olds.keys() | news.keys()):
        return None
    like = evidence.likeness(old, new)
    forms: list[tuple[str, Callable[[Any], Any], float]] = [("equal values", token, 0.0)]
    if like >= 0.5:
        forms.append(("values equal but for spelling", _folded, 0.1))
    for why, form, malus in forms:
        agreeing = [one for one in together if _bag(olds[one], form) == _bag(news[one], form)]
        if len(agreeing) < SHARE * len(together):
            continue
        counts = Counter(_bag(olds[one], form) for one in agreeing)
        chance = sum((count / len(agreeing)) ** 2 for count in counts.values()) ** len(agreeing)
        strong = len(counts) >= 2 and chance < (_CHANCE_LIKE if like >= _LIKE else _CHANCE)
        if strong or like >= _LIKE:
            words = f"{why}, {len(counts)} distinct"
            score = 1 - malus + 0.05 * like
            return _Candidate(old, new, score, agreeing, together, strong, len(counts) < 2, words)
    if like < 0.5:
        return None
    # Like names whose values change too: by a map, a scale, or inside.
    single = [(one, olds[one][0], news[one][0]) for one in together if len(olds[one]) == len(news[one]) == 1]
    if single and like >= 0.75 and all(isinstance(left, dict) and isinstance(right, dict) for _, left, right in single):
        sharing = [one for one, left, right in single if left.keys() & right.keys()]
        why = "like names, and objects of like members"
        return _Candidate(old, new, 0.7 + 0.05 * like, sharing, together, True, False, why)
    numbers = [(evidence.number(left), evidence.number(right)) for _, left, right in single]
    read = [(left, right) for left, right in numbers if left is not None and right is not None]
    is_scaled = len(read) >= SHARE * len(together) and any(evidence.scales(read))
    if like == 1.0 or is_scaled or _is_map(olds, news, together):
        why = "like names, always present together; the values change"
        return _Candidate(old, new, 0.6 + 0.05 * like, together, together, like == 1.0, False, why)
    return None


def _is_map(olds: Bags, news: Bags, together: list[int]) -> bool:
    """Whether each old value has one new value, and the other way round, over a few values."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for one in together:
        lefts, rights = set(map(token, olds[one])), set(map(token, news[one]))
        if len(lefts) == len(rights) == 1:
            seen[lefts.pop()][rights.pop()] += 1
    chosen = [counts.most_common(1)[0] for counts in seen.values()]
    kept, total = sum(count for _, count in chosen), sum(sum(counts.values()) for counts in seen.values())
    return 2 <= len(seen) <= 20 and kept >= SHARE * total and len({new for new, _ in chosen}) == len(seen)


def _bag(values: list[Json], form: Callable[[Any], Any]) -> tuple[Json, ...]:
    return tuple(sorted(map(form, values)))


def _folded(value: Value) -> str:
    """A spelling in which casts, case, blanks and the writing of numbers and times do not matter."""
    if isinstance(value, dict | list):
        return token(value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    found = evidence.number(value)
    if found is not None:
        return f"{float(found):.3g}"
    moment = parse_iso(value) if isinstance(value, str) else None
    return f"at {round(moment.nanoseconds / 6e11)}" if moment is not None else str(value).strip().lower()


# Array modes: by a key where there is one, else unordered.
def find_array_modes(pairs: list[Pair], again: list[Pair], known: Alignment) -> Iterator[Suggestion]:
    """Modes of arrays, outer ones first: inner arrays are only aligned once the outer ones are.

    Where the order is the same in New, two responses of Old may still differ in it.
    """
    for _ in range(_MODE_ROUNDS):
        seen, noise = known.observe(pairs).arrays, known.observe(again, are_both_old=True).arrays
        fresh: list[Suggestion] = []
        for place in sorted({*seen, *noise} - known.modes.keys(), key=_depth):
            if any(place[: len(one.place)] == one.place for one in fresh):
                continue  # inside an array that has just been aligned: seen again in the next round
            lists = (_Lists.of(seen.get(place, []), place, known), _Lists.of(noise.get(place, []), place, known))
            # The mode that old-new pairs show, else the one that old-old pairs do.
            tried = (_Array(place, lists, *which).mode() for which in ((0, MIN_DIFFERING), (1, evidence.MIN_NOISY)))
            suggestion = next(filter(None, tried), None)
            if suggestion is not None:
                known.modes[place] = dict(suggestion.rule)
                fresh.append(suggestion)
        if not fresh:
            return
        yield from fresh


class _Lists(NamedTuple):
    """Arrays of more than one item, and the same with New's names in their items."""

    given: list[Sighting]
    renamed: list[tuple[list[Any], list[Any]]]

    @classmethod
    def of(cls, seen: list[Sighting], place: Place, known: Alignment) -> _Lists:
        long = [one for one in seen if len(one.old) > 1 and len(one.new) > 1]
        below = (*place, None)
        olds = [[known.members(item, below) if isinstance(item, dict) else item for item in one.old] for one in long]
        return cls(long, [(old, one.new) for old, one in zip(olds, long, strict=True)])

    def tokens(self, names: Collection[str] | None) -> list[tuple[list[str], list[str]]]:
        """The arrays as tokens of their items, or of some members."""
        chosen = sorted(names or ())
        spell = token if names is None else (lambda item: token([item[name] for name in chosen]))
        return [(list(map(spell, old)), list(map(spell, new))) for old, new in self.renamed]

    def turned(self, names: Collection[str] | None) -> Share:
        """In what share of the pairs the same items are in another order."""
        tokens = zip(self.given, self.tokens(names), strict=True)
        turned = {one.pair for one, (old, new) in tokens if old != new and Counter(old) == Counter(new)}
        return Share(len(turned), len({one.pair for one in self.given}))


@dataclass(frozen=True, slots=True)
class _Array:
    """The array at one place: what old-new and old-old pairs have there, and which of them decides its mode."""

    place: Place
    both: tuple[_Lists, _Lists]
    which: int
    least: int

    def mode(self) -> Suggestion | None:
        lists = self.both[self.which]
        if len(lists.given) < self.least:
            return None
        items = list(self._items())
        if not any(isinstance(item, dict | list) for item in items):
            return self._unordered(lists, None)
        if not all(isinstance(item, dict) for item in items):
            return None
        names = set.intersection(*(set(item) for item in items))
        keyed = self._keyed(lists, names)
        if keyed is not None:
            return keyed
        # Members whose values are the same bag on both sides of most arrays.
        bags = {name: [Counter(old) == Counter(new) for old, new in lists.tokens((name,))] for name in sorted(names)}
        significant = [name for name, same in bags.items() if sum(same) >= _AGREE * len(lists.given)]
        return self._unordered(lists, significant) if len(significant) * 2 > len(names) else None

    def _items(self) -> Iterator[Any]:
        return (item for lists in self.both for pair in lists.renamed for side in pair for item in side)

    def _keyed(self, lists: _Lists, names: set[str]) -> Suggestion | None:
        ranked = []
        for name in sorted(names):
            if any(item[name] is None or isinstance(item[name], dict | list | bool) for item in self._items()):
                continue
            fitting = sum(_is_key(*pair) for pair in lists.tokens((name,)))
            is_unique = all(len(set(old)) == len(old) for one in self.both for old, _ in one.tokens((name,)))
            if is_unique and fitting >= SHARE * len(lists.given):
                ranked.append((_IDENTITY.search(name) is None, -fitting, name))
        if not ranked:
            return None
        _, fitting, name = min(ranked)
        spelled = lists.tokens((name,))
        turned = [at for at, (old, new) in enumerate(spelled) if set(old) == set(new) and old != new]
        if len(turned) < self.least:
            return None
        count = len(lists.given)
        level = "sure" if is_sure(-fitting, count, count) and len(turned) * 2 >= count else "review"
        why = f"{name} is unique in every array, the order differs in {len(turned)} of {count}"
        key = f"/{escape_pointer(name)}" if "." in name or name.startswith("/") else name
        old, new = lists.renamed[turned[0]]
        keys = ([item[name] for item in old], [item[name] for item in new])
        rule: dict[str, Json] = {"array-mode": "keyed", "array-key": key}
        return self._rated(Suggestion(self.place, rule, level, -fitting, count, count, why, [keys]), (name,))

    def _unordered(self, lists: _Lists, names: list[str] | None) -> Suggestion | None:
        """No key: members whose values are the same bag on both sides tell the items apart."""
        rows = lists.tokens(names)
        turned = [at for at, (old, new) in enumerate(rows) if old != new]
        good = {at for at in turned if Counter(rows[at][0]) == Counter(rows[at][1])}
        if len(turned) < self.least or len(good) < SHARE * len(turned):
            return None
        given = [(one.old, one.new) for one in lists.given]
        bad = [given[at] for at in turned if at not in good]
        examples = [given[at] for at in sorted(good)[:2]]
        counts = (len(good), len(turned), len(rows))
        level = "sure" if is_sure(*counts) else "review"
        rule: dict[str, Json] = {"array-mode": "unordered"}
        why = "the same items in another order"
        return self._rated(Suggestion(self.place, rule, level, *counts, why, examples, bad), names)

    def _rated(self, found: Suggestion, names: Collection[str] | None) -> Suggestion:
        """The suggestion by its rates too: an order that Old does not keep itself is noise."""
        new, old = (lists.turned(names) for lists in self.both)
        if old.differing < evidence.MIN_NOISY:
            return found
        level = "sure" if found.level == "sure" or new.is_within(old) else "review"
        return replace(found, level=level, why=f"{found.why}; Old itself changes it in {old}")


def _is_key(old: list[str], new: list[str]) -> bool:
    is_unique = len(set(old)) == len(old) and len(set(new)) == len(new)
    return is_unique and len(set(old) & set(new)) >= min(len(old), len(new)) - (len(old) != len(new))


# All steps.
def suggest(
    pairs: Iterable[Pair], noise: Iterable[Pair] = (), schema: Any = None, root: str | None = None
) -> list[Suggestion]:
    """Rules that would explain the differences of pairs; `noise` are pairs of Old with itself.

    The rules of `schema` (text, bytes, a `Path` or an object) are taken as given: where they leave no difference,
    or stand already, nothing is suggested.
    """
    given, again = list(pairs), list(noise)
    known, decided, different = _given(given, schema, root)
    found = [*find_renames(given, known), *find_array_modes(given, again, known)]
    seen = known.observe(given)
    noisy = _Noise(again, known)
    for place, rows in seen.leaves.items():
        if place not in decided:
            found.extend(_missing(place, rows))
            found.extend(_scalar(place, rows, noisy))
    found.extend(_lone_items(seen))
    if different is not None:
        found = [one for one in found if any(_is_at(path, one.path) for path in different)]
    return sorted(found, key=lambda one: (("sure", "review", "finding").index(one.level), one.path, one.id))


def _given(pairs: list[Pair], schema: object, root: str | None) -> tuple[Alignment, set[Place], set[str] | None]:
    """What a schema says already: renames and modes, places with rules for values, and the paths that still differ."""
    known = Alignment()
    if schema is None:
        return known, set(), None
    document = open_document(schema)
    decided = _take_over(document, (find_root(document, root),), known, [value for pair in pairs for value in pair])
    plan = compile_schema(schema, root=root)
    entries = (entry for old, new in pairs for entry in plan.compare_values(old, new).diffs)
    return known, decided, {generalised(entry["path"]) for entry in entries}


def _is_at(path: str, place: str) -> bool:
    """Whether a path is at a place or inside it."""
    return path.startswith(place) and path[len(place) : len(place) + 1] in ("", ".", "[")


def _take_over(
    document: SchemaDocument, fragments: Fragments, known: Alignment, values: list[Json], place: Place = ()
) -> set[Place]:
    """Read renames and array modes of a schema, as deep as the values go; the places that have rules for values."""
    node = document.node(fragments)
    rules = {name.removeprefix(EXTENSION_PREFIX): extension.value for name, extension in node.extensions.items()}
    decided = {place} if rules.keys() - {"alias", "array-mode", "array-key"} else set()
    if place and isinstance(rules.get("alias"), str) and isinstance(place[-1], str):
        known.rename(place[:-1], rules["alias"], place[-1])
    if rules.get("array-mode") in ("keyed", "unordered"):
        named = ("array-mode", "array-key")
        known.modes[place] = {name: rules[name] for name in named if isinstance(rules.get(name), str)}
    objects = [value for value in values if isinstance(value, dict)]
    members = dict(node.properties) if objects else {}
    for choice in node.choices if objects else ():
        for branch in choice.branches:
            members = {**document.node((branch,)).properties, **members}
    for name, child in members.items():
        alias = document.node(child).extensions.get(f"{EXTENSION_PREFIX}alias")
        names = {name, alias.value if alias is not None else name}
        below = [value[one] for value in objects for one in names if one in value]
        if below:
            decided |= _take_over(document, child, known, below, (*place, name))
    items = [item for value in values if isinstance(value, list) for item in value]
    if items and node.items:
        decided |= _take_over(document, node.items, known, items, (*place, None))
    return decided


class _Noise:
    """Where Old differs from itself, under New's names and the array modes that the comparison uses."""

    def __init__(self, again: list[Pair], known: Alignment) -> None:
        self.pairs = len(again)
        self._known = known
        self._seen = known.observe(again, are_both_old=True)
        # What Old said twice at a place, of the pairs that can tell.
        found = {place: list(self._significant(place, rows)) for place, rows in self._seen.leaves.items()}
        self.rows = defaultdict(list, found)

    def can_be_sure(self, place: Place) -> bool:
        """Whether the items around a place are surely those that belong together: no values moved between them."""
        if "unordered" in self._arrays(place).values():
            return False
        return len(self.rows[place]) == len(_both(self._seen.leaves.get(place, [])))

    def _arrays(self, place: Place) -> dict[Place, Any]:
        """The arrays around a place and their modes."""
        outer = [place[:at] for at, step in enumerate(place) if step is None]
        return {array: self._known.modes.get(array, {}).get("array-mode") for array in outer}

    def _significant(self, place: Place, rows: list[Sighting]) -> Iterator[Sighting]:
        """The rows of pairs in which the items are aligned: a value that is at another item now did not change."""
        arrays = self._arrays(place)
        loose = [array for array, mode in arrays.items() if mode != "keyed"]
        shifted = {pair for array in loose for pair in self._seen.lone_items.get(array, ())}
        by_pair: dict[int, list[Sighting]] = defaultdict(list)
        for row in _both(rows):
            by_pair[row.pair].append(row)
        for pair, found in by_pair.items():
            if not arrays or not (pair in shifted or _has_moved(found)):
                yield from found


def _both(rows: list[Sighting]) -> list[Sighting]:
    """The rows that have a value on both sides."""
    return [row for row in rows if row.old is not MISSING and row.new is not MISSING]


def _has_moved(rows: list[Sighting]) -> bool:
    """Whether more values differ by their item than are missing from the bag of all items."""
    olds, news = [token(row.old) for row in rows], [token(row.new) for row in rows]
    return sum(map(str.__ne__, olds, news)) > (Counter(olds) - Counter(news)).total()


def _missing(place: Place, rows: list[Sighting]) -> Iterator[Suggestion]:
    """Members that only one side has: a default, null as missing, or a finding."""
    both = _both(rows)
    for side, words in ((NEW, "the member is gone in New"), (OLD, "the member is new")):
        lone = [(row.old, row.new) for row in rows if (row.old, row.new)[side] is MISSING]
        if not lone:
            continue
        values = Counter(token(pair[1 - side]) for pair in lone)
        spelled, count = values.most_common(1)[0]
        value = next(pair[1 - side] for pair in lone if token(pair[1 - side]) == spelled)
        is_rule = both and len(lone) >= MIN_DIFFERING and count >= SHARE * len(lone)
        if not is_rule or isinstance(value, dict | list):
            why = f"missing {'once' if len(lone) == 1 else f'{len(lone)} times'}" if both else words
            yield Suggestion(place, {}, "finding", 0, len(lone), len(rows), why, lone[:3])
            continue
        written = sum(token((row.old, row.new)[1 - side]) == spelled for row in both)
        rule = {"allow-null-as-missing": True} if value is None else {"default": value}
        sure = evidence.wilson(count, len(lone)) >= 0.8 and written <= _WRITTEN_OUT * (written + count)
        against = [pair for pair in lone if token(pair[1 - side]) != spelled]
        why = f"missing {len(lone)} times where the other side has {spelled}, which is written out {written} times"
        level = "sure" if sure else "review"
        yield Suggestion(place, rule, level, count, len(lone), len(rows), why, lone[:3], against[:3])


def _lone_items(seen: Sightings) -> Iterator[Suggestion]:
    """Items that have no partner: never a rule, because one would hide lost items."""
    for place, lone in seen.lone_items.items():
        rows = list(lone.values())
        lost = sum(row.new is MISSING for row in rows)
        having = len({row.pair for row in seen.arrays.get(place, [])})
        why = f"items without a partner in {len(rows)} of {having} pairs, in {lost} of them one of Old's"
        examples = [(row.old, row.new) for row in rows[:3]]
        yield Suggestion(place, {}, "finding", 0, len(rows), having, why, examples)


def _scalar(place: Place, rows: list[Sighting], noise: _Noise) -> Iterator[Suggestion]:
    found = [row for row in _both(rows) if not any(isinstance(value, dict | list) for value in row)]
    both = [(row.old, row.new) for row in found]
    differing = [pair for pair in both if not same_json(*pair)]
    old_share, new_share = Share.of(noise.rows[place]), Share.of(found)
    is_noisy = old_share.differing >= evidence.MIN_NOISY
    if is_noisy and noise.can_be_sure(place) and new_share.is_within(old_share):
        yield _noise_rule(place, both, noise, (old_share, new_share), "sure")
        return
    explained = _explained(place, both, differing)
    if explained is not None:
        yield explained
    elif is_noisy:
        yield _noise_rule(place, both, noise, (old_share, new_share), "review")
    elif differing:
        words = "old-old pairs would tell whether it is noise"
        if noise.pairs:
            words = f"Old differs from itself in {old_share} pairs" if old_share.differing else "Old never changes it"
        why = f"differs without a pattern in {new_share} pairs; {words}"
        yield Suggestion(place, {}, "finding", 0, len(differing), len(both), why, differing[:3])


def _explained(place: Place, both: list[Pair], differing: list[Pair]) -> Suggestion | None:
    """The tightest hypothesis that explains the differences of a field."""
    for hypothesis in evidence.hypotheses(differing, both) if len(differing) >= MIN_DIFFERING else ():
        good, against = hypothesis.judged(differing)
        if len(good) < max(MIN_DIFFERING, SHARE * len(differing)):
            continue
        enough = is_sure(len(good), len(differing), len(both), rare_is_fine=hypothesis.rare_is_fine)
        level = "sure" if hypothesis.can_be_sure and enough else "review"
        is_rare = 2 * len(differing) < len(both)
        why = f"{hypothesis.why}; only in {len(differing)} of {len(both)}" if is_rare else hypothesis.why
        counts = (len(good), len(differing), len(both))
        return Suggestion(place, hypothesis.rule, level, *counts, why, good[:3], against[:3])
    return None


def _noise_rule(place: Place, both: list[Pair], noise: _Noise, shares: tuple[Share, Share], level: str) -> Suggestion:
    rows = noise.rows[place]
    values = [value for row in rows for value in row[1:]] + [new for _, new in both] + [old for old, _ in both]
    shape = evidence.shape_of(values)
    loose: dict[str, Json] = {"strategy": "ignore" if any(value is None for value in values) else "exists"}
    old, new = shares
    why = f"Old differs from itself in {old} old-old pairs, New from Old in {new} pairs"
    examples = [(row.old, row.new) for row in rows if not same_json(row.old, row.new)][:3]
    unseen = old.upper if level == "sure" else max(old.upper, new.upper)
    rule: dict[str, Json] = {"pattern": shape} if shape is not None else loose
    return Suggestion(place, rule, level, new.differing, new.differing, new.having, why, examples, unseen=unseen)


def suggest_file(
    pairs: str | FilePath,
    noise: str | FilePath | None = None,
    schema: Any = None,
    root: str | None = None,
    endpoint: str | None = None,
) -> list[Suggestion]:
    """Suggestions for a file of pairs, as `payloads batch` reads them; complete responses count by their bodies."""
    old_old = read_pairs(noise, endpoint) if noise is not None else ()
    return suggest(read_pairs(pairs, endpoint), old_old, schema, root)


def read_pairs(
    path: str | FilePath, endpoint: str | None = None, *, without: Collection[str] = (), skip_bad: bool = False
) -> Iterator[Pair]:
    """The pairs of a file that have both sides, of one endpoint or of all `without` some.

    Bad lines raise, or are left out.
    """
    for record in _records(path):
        if record.problem is not None:
            if skip_bad:
                continue
            raise PayloadError(f"{path}, line {record.line}: {record.problem}", details={"line": record.line})
        is_needed = record.endpoint == endpoint if endpoint is not None else record.endpoint not in without
        if is_needed and record.old is not None and record.new is not None:
            yield _body(parse_json(bytes(record.old), "old")), _body(parse_json(bytes(record.new), "new"))


def endpoints_of(path: str | FilePath) -> set[str]:
    """The endpoints that the pairs of a file name."""
    return {record.endpoint for record in _records(path) if record.endpoint}


def _records(path: str | FilePath) -> Iterator[Record]:
    job = BatchJob((open_source(path, "pairs"),), {})
    lines = (record for split in splits_of(job) for record, _ in records_of(job, split))
    for at, record in enumerate(lines, 1):
        if record is not None:  # a blank line
            record.line = at
            yield record


def _body(value: Any) -> Any:
    is_answer = isinstance(value, dict) and value.keys() == {"status", "headers", "body"}
    return value["body"] if is_answer else value


def read_accepted(suggestions: list[Suggestion], needed: Iterable[str] = ("preserving",)) -> list[Suggestion]:
    """The suggestions that `--accept` names: preserving (default), sure, all, or ids."""
    words = set(needed)

    def is_named(one: Suggestion) -> bool:
        known = {"all": True, "sure": one.level == "sure", "preserving": one.is_preserving, one.id: True}
        return any(known.get(word, False) for word in words)

    return [one for one in suggestions if one.rule and is_named(one)]
