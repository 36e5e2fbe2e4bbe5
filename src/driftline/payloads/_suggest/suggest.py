"""Alignment of pairs: renamed members (payloads §11.1), and arrays in another order (payloads §11.2)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from driftline.payloads._compare.compare import ObservedPlan
from driftline.payloads._suggest.evidence import (
    MIN_DIFFERING,
    MIN_NOISY,
    SHARE,
    Pair,
    Share,
    Sighting,
    Suggestion,
    is_sure,
    likeness,
    number,
    token,
)
from driftline.payloads._suggest.write import schema_with
from driftline.payloads._values.paths import Path, Place, escape_pointer, place_of
from driftline.payloads._values.times import parse_iso
from driftline.payloads._values.values import MISSING, OLD, Json, Value

Bags = dict[int, list[Json]]  # pair -> the values of a member in it

_RENAME_ROUNDS = 8
_GONE = 0.02  # a name that is hardly ever on the other side
_RIVAL = 0.02
_LIKE = 0.6
_CHANCE, _CHANCE_LIKE = 1e-12, 1e-6
_MODE_ROUNDS = 4
_AGREE = 0.9  # of the arrays, for members that tell items apart
_IDENTITY = re.compile(r"(?:^|[_.-])(?:id|sid|key|sku|code|uuid|guid|number|no|slug)$|(?:Id|ID|Sid|Key|Code|Sku)$")


class ArrayMode(NamedTuple):
    """How the items of an array are aligned."""

    mode: str
    key: str | None = None


class Alignment:
    """Two payloads side by side, through the renames and array modes that are known so far."""

    def __init__(self) -> None:
        self.aliases: dict[Place, dict[str, str]] = {}  # of an object: old name -> new name
        self.modes: dict[Place, ArrayMode] = {}

    def rename(self, place: Place, old: str, new: str) -> None:
        """Record a rename."""
        self.aliases.setdefault(place, {})[old] = new

    def members(self, value: dict[str, Json], place: Place, *, is_old: bool) -> dict[str, Json]:
        """The members of an object under New's names."""
        names = self.aliases.get(place, {}) if is_old else {}
        return {names.get(name, name): item for name, item in value.items()} if names else value

    def in_new_names(self, value: Json, place: Place = ()) -> Json:
        """A payload of Old under New's names, so that it can stand where New's does."""
        if isinstance(value, dict):
            members = self.members(value, place, is_old=True)
            return {name: self.in_new_names(item, (*place, name)) for name, item in members.items()}
        if isinstance(value, list):
            return [self.in_new_names(item, (*place, None)) for item in value]
        return value

    def schema(self) -> dict[str, Any]:
        """A schema with the renames and modes, by which the comparison aligns."""
        rules: dict[Place, dict[str, Json]] = {}
        for place, names in self.aliases.items():
            for old, new in names.items():
                rules.setdefault((*place, new), {})["alias"] = old
        for place, mode in self.modes.items():
            rules.setdefault(place, {})["array-mode"] = mode.mode
            if mode.key is not None:
                rules[place]["array-key"] = mode.key
        return schema_with(rules)

    def observe(self, pairs: Iterable[Pair], *, are_both_old: bool = False) -> Sightings:
        """What the comparison pairs with each other under the renames and modes."""
        plan = ObservedPlan(self.schema())
        seen = Sightings()
        for seen.pair, (old, new) in enumerate(pairs):
            plan.observe(old, self.in_new_names(new) if are_both_old else new, seen)
        return seen

    def objects(self, old: Json, new: Json) -> Iterator[tuple[Place, dict[str, list[Json]], dict[str, list[Json]]]]:
        """The members of the objects at each place as bags of values: order inside arrays does not matter."""
        yield from self._bags([old], [new], ())

    def _bags(self, olds: list[Json], news: list[Json], place: Place) -> Iterator[tuple[Place, Any, Any]]:
        sides: list[dict[str, list[Json]]] = [{}, {}]
        for side, values in enumerate((olds, news)):
            for value in values:
                if isinstance(value, dict):
                    for name, item in self.members(value, place, is_old=side == 0).items():
                        sides[side].setdefault(name, []).append(item)
        if sides[0] and sides[1]:
            yield place, sides[0], sides[1]
        for name in sides[0].keys() & sides[1].keys():
            yield from self._bags(sides[0][name], sides[1][name], (*place, name))
        lists = [[item for value in values if isinstance(value, list) for item in value] for values in (olds, news)]
        if lists[0] and lists[1]:
            yield from self._bags(lists[0], lists[1], (*place, None))


class Sightings:
    """Collects, place by place, the leaves and arrays that a comparison paired, with the number of their pair."""

    def __init__(self) -> None:
        self.pair = 0
        self.leaves: dict[Place, list[Sighting]] = {}
        self.arrays: dict[Place, list[Sighting]] = {}
        self.lone_items: dict[Place, dict[int, Sighting]] = {}  # of an array: one of each pair

    def leaf(self, path: Path, old: Value, new: Value) -> None:
        """Two values of which at least one is a scalar."""
        self.leaves.setdefault(place_of(path), []).append(Sighting(self.pair, old, new))

    def array(self, path: Path, old: list[Any], new: list[Any]) -> None:
        """Two arrays."""
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
    agreeing: int
    together: int
    can_be_sure: bool
    is_constant: bool
    why: str
    examples: list[Pair]
    against: list[Pair]


def find_renames(pairs: list[Pair], known: Alignment) -> Iterator[Suggestion]:
    """Renames, top down and again, because a renamed object shows what is renamed inside it."""
    reported: set[tuple[Place, str]] = set()
    for _ in range(_RENAME_ROUNDS):
        grew = False
        for place, members in _members(pairs, known).items():
            for candidate, rivals in _chosen(members):
                if (place, candidate.old) in reported:
                    continue
                reported.add((place, candidate.old))
                if not candidate.is_constant:
                    known.rename(place, candidate.old, candidate.new)
                    grew = True
                yield _suggestion(place, candidate, rivals)
        if not grew:
            return


def _suggestion(place: Place, found: _Candidate, rivals: list[str]) -> Suggestion:
    if found.is_constant:
        level, rule = "finding", {}
    else:
        sure = found.can_be_sure and not rivals and is_sure(found.agreeing, found.together, found.together)
        level, rule = "sure" if sure else "review", {"alias": found.old}
    where = (*place, found.new)
    counts = (found.agreeing, found.together, found.together)
    return Suggestion(where, rule, level, *counts, found.why, found.examples, found.against, rivals)


def _members(pairs: list[Pair], known: Alignment) -> dict[Place, dict[str, tuple[Bags, Bags]]]:
    seen: dict[Place, dict[str, tuple[Bags, Bags]]] = defaultdict(lambda: defaultdict(lambda: ({}, {})))
    for number_of_pair, (old, new) in enumerate(pairs):
        for place, lefts, rights in known.objects(old, new):
            for side, members in enumerate((lefts, rights)):
                for name, values in members.items():
                    seen[place][name][side][number_of_pair] = values
    return dict(sorted(seen.items(), key=lambda entry: (len(entry[0]), str(entry[0]))))


def _chosen(members: dict[str, tuple[Bags, Bags]]) -> Iterator[tuple[_Candidate, list[str]]]:
    lost = [name for name, (olds, news) in members.items() if olds and len(news) <= _GONE * len(olds)]
    gained = [name for name, (olds, news) in members.items() if news and len(olds) <= _GONE * len(news)]
    found = [
        candidate
        for old in lost
        for new in gained
        if (candidate := _candidate(old, new, members[old][0], members[new][1])) is not None
    ]
    found.sort(key=lambda candidate: (-candidate.score, candidate.old, candidate.new))
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
    like = likeness(old, new)
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
        if not strong and like < _LIKE:
            continue
        found = _evidence(together, agreeing, olds, news)
        words = f"{why}, {len(counts)} distinct"
        score = 1 - malus + 0.05 * like
        return _Candidate(old, new, score, len(agreeing), len(together), strong, len(counts) < 2, words, *found)
    return _by_name(old, new, olds, news, together, like)


def _by_name(old: str, new: str, olds: Bags, news: Bags, together: list[int], like: float) -> _Candidate | None:
    """Like names whose values change too: by a map, a scale, or inside."""
    if like < 0.5:
        return None
    single = [one for one in together if len(olds[one]) == len(news[one]) == 1]
    objects = [
        (one, left.keys() & right.keys())
        for one in single
        if isinstance(left := olds[one][0], dict) and isinstance(right := news[one][0], dict)
    ]
    if objects and len(objects) == len(single) and like >= 0.75:
        sharing = [one for one, names in objects if names]
        found = _evidence(together, sharing, olds, news)
        why = "like names, and objects of like members"
        return _Candidate(old, new, 0.7 + 0.05 * like, len(sharing), len(together), True, False, why, *found)
    if like == 1.0 or _is_map(olds, news, together):
        found = _evidence(together, together, olds, news)
        why = "like names, always present together; the values change"
        sure = like == 1.0
        return _Candidate(old, new, 0.6 + 0.05 * like, len(together), len(together), sure, False, why, *found)
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
    found = number(value)
    if found is not None:
        return f"{float(found):.3g}"
    moment = parse_iso(value) if isinstance(value, str) else None
    return f"at {round(moment.nanoseconds / 6e11)}" if moment is not None else str(value).strip().lower()


def _evidence(together: list[int], agreeing: list[int], olds: Bags, news: Bags) -> tuple[list[Pair], list[Pair]]:
    good = set(agreeing)
    return (
        [(olds[one][0], news[one][0]) for one in agreeing[:3]],
        [(olds[one][0], news[one][0]) for one in together if one not in good][:3],
    )


# Array modes: by a key where there is one, else unordered.
def find_array_modes(pairs: list[Pair], again: list[Pair], known: Alignment) -> Iterator[Suggestion]:
    """Modes of arrays, outer ones first: inner arrays are only aligned once the outer ones are.

    Where the order is the same in New, two answers of Old may still differ in it.
    """
    for _ in range(_MODE_ROUNDS):
        seen, noise = known.observe(pairs).arrays, known.observe(again, are_both_old=True).arrays
        fresh: list[Suggestion] = []
        for place in sorted({*seen, *noise} - known.modes.keys(), key=lambda place: (len(place), str(place))):
            if any(place[: len(one.place)] == one.place for one in fresh):
                continue  # inside an array that has just been aligned: seen again in the next round
            suggestion = _Array(place, known).mode(seen.get(place, []), noise.get(place, []))
            if suggestion is not None:
                fresh.append(suggestion)
        if not fresh:
            return
        yield from fresh


class _Lists(NamedTuple):
    """Arrays of more than one item, and the same with New's names in their items."""

    given: list[Sighting]
    renamed: list[tuple[list[Any], list[Any]]]

    def tokens(self, names: Iterable[str] | None) -> list[tuple[list[str], list[str]]]:
        """The arrays as tokens of their items, or of some members."""
        if names is None:
            return [(list(map(token, old)), list(map(token, new))) for old, new in self.renamed]
        chosen = sorted(names)
        sides = [[[token([item[name] for name in chosen]) for item in side] for side in pair] for pair in self.renamed]
        return [(old, new) for old, new in sides]


class _Array:
    """The array at one place."""

    def __init__(self, place: Place, known: Alignment) -> None:
        self.place = place
        self.known = known

    def mode(self, seen: list[Sighting], noise: list[Sighting]) -> Suggestion | None:
        """The mode that old-new pairs show, else the one that old-old pairs do."""
        pairs, again = self._lists(seen), self._lists(noise)
        for lists, others, least in ((pairs, again, MIN_DIFFERING), (again, pairs, MIN_NOISY)):
            if len(lists.given) >= least:
                suggestion = self._found(lists, others, least, is_noise=lists is again)
                if suggestion is not None:
                    return suggestion
        return None

    def _lists(self, seen: list[Sighting]) -> _Lists:
        long = [one for one in seen if len(one.old) > 1 and len(one.new) > 1]
        below = (*self.place, None)
        members = self.known.members
        return _Lists(
            long,
            [
                (
                    [members(item, below, is_old=True) if isinstance(item, dict) else item for item in one.old],
                    one.new,
                )
                for one in long
            ],
        )

    def _found(self, lists: _Lists, others: _Lists, least: int, *, is_noise: bool) -> Suggestion | None:
        items = [item for pair in (*lists.renamed, *others.renamed) for side in pair for item in side]
        if not any(isinstance(item, dict | list) for item in items):
            return self._unordered(lists, others, None, least, is_noise=is_noise)
        if not all(isinstance(item, dict) for item in items):
            return None
        names = set.intersection(*(set(item) for item in items))
        keyed = self._keyed(lists, others, names, least, is_noise=is_noise)
        if keyed is not None:
            return keyed
        telling = [name for name in sorted(names) if _is_telling(lists, name)]
        if len(telling) * 2 <= len(names):
            return None
        return self._unordered(lists, others, telling, least, is_noise=is_noise)

    def _keyed(
        self, lists: _Lists, others: _Lists, names: set[str], least: int, *, is_noise: bool
    ) -> Suggestion | None:
        ranked = []
        for name in sorted(names):
            values = [item[name] for pair in (*lists.renamed, *others.renamed) for side in pair for item in side]
            if any(value is None or isinstance(value, dict | list | bool) for value in values):
                continue
            spelled = lists.tokens((name,))
            fitting = sum(_is_key(*pair) for pair in spelled)
            is_unique = all(len(set(old)) == len(old) for old, _ in (*spelled, *others.tokens((name,))))
            if is_unique and fitting >= SHARE * len(spelled):
                ranked.append((_IDENTITY.search(name) is None, -fitting, name))
        if not ranked:
            return None
        _, fitting, name = min(ranked)
        spelled = lists.tokens((name,))
        turned = [number for number, (old, new) in enumerate(spelled) if set(old) == set(new) and old != new]
        if len(turned) < least:
            return None
        count = len(lists.given)
        level = "sure" if is_sure(-fitting, count, count) and len(turned) * 2 >= count else "review"
        shares = self._shares(lists, others, (name,), is_noise=is_noise)
        why = f"{name} is unique in every array, the order differs in {len(turned)} of {count}"
        key = f"/{escape_pointer(name)}" if "." in name or name.startswith("/") else name
        rule = {"array-mode": "keyed", "array-key": key}
        example = lists.renamed[turned[0]]
        keys = ([item[name] for item in example[0]], [item[name] for item in example[1]])
        self.known.modes[self.place] = ArrayMode("keyed", key)
        return self._suggested(rule, level, shares, (-fitting, count, count), why, [keys], [])

    def _unordered(
        self, lists: _Lists, others: _Lists, names: list[str] | None, least: int, *, is_noise: bool
    ) -> Suggestion | None:
        """No key: members whose values are the same bag on both sides tell the items apart."""
        rows = lists.tokens(names)
        turned = [number for number, (old, new) in enumerate(rows) if old != new]
        good = {number for number in turned if Counter(rows[number][0]) == Counter(rows[number][1])}
        if len(turned) < least or len(good) < SHARE * len(turned):
            return None
        level = "sure" if is_sure(len(good), len(turned), len(rows)) else "review"
        given = [(one.old, one.new) for one in lists.given]
        bad = [given[number] for number in turned if number not in good]
        examples = [given[number] for number in sorted(good)[:2]]
        counts = (len(good), len(turned), len(rows))
        shares = self._shares(lists, others, names, is_noise=is_noise)
        self.known.modes[self.place] = ArrayMode("unordered")
        rule = {"array-mode": "unordered"}
        return self._suggested(rule, level, shares, counts, "the same items in another order", examples, bad)

    def _shares(
        self, lists: _Lists, others: _Lists, names: Iterable[str] | None, *, is_noise: bool
    ) -> tuple[Share, Share]:
        """In what share of old-old and of old-new pairs the same items are in another order."""
        found = []
        for one in (lists, others) if is_noise else (others, lists):
            turned = {
                sighting.pair
                for sighting, (old, new) in zip(one.given, one.tokens(names), strict=True)
                if old != new and Counter(old) == Counter(new)
            }
            found.append(Share(len(turned), len({sighting.pair for sighting in one.given})))
        return found[0], found[1]

    def _suggested(
        self,
        rule: Mapping[str, Json],
        level: str,
        shares: tuple[Share, Share],
        counts: tuple[int, int, int],
        why: str,
        examples: list[Pair],
        against: list[Pair],
    ) -> Suggestion:
        """The suggestion; an order that Old does not keep itself is noise, which is sure by its rates."""
        old, new = shares
        if old.differing >= MIN_NOISY:
            why += f"; Old itself changes it in {old}"
            level = "sure" if level == "sure" or new.is_within(old) else "review"
        return Suggestion(self.place, rule, level, *counts, why, examples, against)


def _is_key(old: list[str], new: list[str]) -> bool:
    if len(set(old)) != len(old) or len(set(new)) != len(new):
        return False
    spare = 1 if len(old) != len(new) else 0
    return len(set(old) & set(new)) >= min(len(old), len(new)) - spare


def _is_telling(lists: _Lists, name: str) -> bool:
    """Whether the values of a member are the same bag on both sides of most arrays."""
    same = sum(Counter(old) == Counter(new) for old, new in lists.tokens((name,)))
    return same >= _AGREE * len(lists.given)
