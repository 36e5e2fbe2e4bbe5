"""Alignment of pairs: renamed members (payloads §11.1), and arrays in another order (payloads §11.2)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from driftline.payloads._suggest.evidence import (
    MIN_DIFFERING,
    SHARE,
    Pair,
    Suggestion,
    is_sure,
    likeness,
    number,
    token,
)
from driftline.payloads._values.paths import Place
from driftline.payloads._values.times import parse_iso
from driftline.payloads._values.values import MISSING, Json, Value

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
    """How the items of an array are aligned; members in `loose` do not tell items apart."""

    mode: str
    key: str | None = None
    loose: frozenset[str] = frozenset()


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

    def leaves(self, old: Value, new: Value, place: Place = ()) -> Iterator[tuple[Place, Any, Any]]:
        """Scalars that both sides have, and what only one side has."""
        if isinstance(old, dict) and isinstance(new, dict):
            lefts = self.members(old, place, is_old=True)
            for name, left in lefts.items():
                yield from self.leaves(left, new.get(name, MISSING), (*place, name))
            for name, right in new.items():
                if name not in lefts:
                    yield (*place, name), MISSING, right
        elif isinstance(old, list) and isinstance(new, list):
            for left, right in self.items(old, new, place):
                yield from self.leaves(left, right, (*place, None))
        else:
            yield place, old, new

    def items(self, old: list[Json], new: list[Json], place: Place) -> list[tuple[Json, Json]]:
        """The items that belong together."""
        mode = self.modes.get(place)
        if mode is None:
            return list(zip(old, new, strict=False))
        below = (*place, None)
        if mode.mode == "unordered" and not any(isinstance(item, dict | list) for item in (*old, *new)):
            return []
        waiting: dict[str, list[Json]] = defaultdict(list)
        for item in reversed(new):
            waiting[self._identity(item, below, mode, is_old=False)].append(item)
        found = []
        for item in old:
            same = waiting.get(self._identity(item, below, mode, is_old=True))
            if same:
                found.append((item, same.pop()))
        return found

    def _identity(self, item: Value, place: Place, mode: ArrayMode, *, is_old: bool) -> str:
        if not isinstance(item, dict):
            return token(item)
        members = self.members(item, place, is_old=is_old)
        if mode.key is not None:
            return token(members.get(mode.key))
        return token({name: value for name, value in members.items() if name not in mode.loose})

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

    def arrays(self, old: Json, new: Json, place: Place = ()) -> Iterator[tuple[Place, list[Json], list[Json]]]:
        """The arrays that both sides have at the same place, outer ones first."""
        if isinstance(old, dict) and isinstance(new, dict):
            for name, left in self.members(old, place, is_old=True).items():
                if name in new:
                    yield from self.arrays(left, new[name], (*place, name))
        elif isinstance(old, list) and isinstance(new, list):
            yield place, old, new
            for left, right in self.items(old, new, place):
                yield from self.arrays(left, right, (*place, None))


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
def find_array_modes(pairs: list[Pair], known: Alignment) -> Iterator[Suggestion]:
    """Modes of arrays, outer ones first: inner arrays are only aligned once the outer ones are."""
    for _ in range(_MODE_ROUNDS):
        found: dict[Place, list[Pair]] = {}
        for old, new in pairs:
            for place, left, right in known.arrays(old, new):
                if place not in known.modes:
                    found.setdefault(place, []).append((left, right))
        fresh: list[Suggestion] = []
        for place, seen in sorted(found.items(), key=lambda entry: (len(entry[0]), str(entry[0]))):
            if any(place[: len(one.place)] == one.place for one in fresh):
                continue  # inside an array that has just been aligned: seen again in the next round
            suggestion = _mode(place, seen, known)
            if suggestion is not None:
                fresh.append(suggestion)
        if not fresh:
            return
        yield from fresh


def _mode(place: Place, seen: list[Pair], known: Alignment) -> Suggestion | None:
    long = [(old, new) for old, new in seen if len(old) > 1 and len(new) > 1]
    if len(long) < MIN_DIFFERING:
        return None
    items = [item for old, new in long for item in (*old, *new)]
    if not any(isinstance(item, dict | list) for item in items):
        return _unordered(place, long, known, ArrayMode("unordered"), [_tokens(*pair) for pair in long])
    if not all(isinstance(item, dict) for item in items):
        return None
    lists = [_renamed_items(old, new, place, known) for old, new in long]
    names = set.intersection(*(set(item) for pair in lists for side in pair for item in side))
    return _keyed(place, long, lists, names, known) or _loose(place, long, lists, names, known)


def _renamed_items(old: list[Any], new: list[Any], place: Place, known: Alignment) -> tuple[list[Any], list[Any]]:
    below = (*place, None)
    return (
        [known.members(item, below, is_old=True) for item in old],
        [known.members(item, below, is_old=False) for item in new],
    )


def _tokens(old: list[Any], new: list[Any]) -> tuple[list[str], list[str]]:
    return list(map(token, old)), list(map(token, new))


def _keyed(
    place: Place, long: list[Pair], lists: list[tuple[Any, Any]], names: set[str], known: Alignment
) -> Suggestion | None:
    ranked = []
    for name in names:
        values = [([item[name] for item in old], [item[name] for item in new]) for old, new in lists]
        if any(
            value is None or isinstance(value, dict | list | bool) for pair in values for side in pair for value in side
        ):
            continue
        spelled = [_tokens(*pair) for pair in values]
        fitting = [_is_key(*pair) for pair in spelled]
        turned = sum(set(old) == set(new) and old != new for old, new in spelled)
        if all(len(set(old)) == len(old) for old, _ in spelled) and sum(fitting) >= SHARE * len(long):
            ranked.append((_IDENTITY.search(name) is None, -sum(fitting), name, turned, values[0]))
    if not ranked:
        return None
    _, fitting_count, name, turned, example = min(ranked, key=lambda entry: entry[:3])
    if turned < MIN_DIFFERING:
        return None
    known.modes[place] = ArrayMode("keyed", name)
    explained = -fitting_count
    level = "sure" if is_sure(explained, len(long), len(long)) and turned * 2 >= len(long) else "review"
    why = f"{name} is unique in every array, the order differs in {turned} of {len(long)}"
    rule = {"array-mode": "keyed", "array-key": name}
    return Suggestion(place, rule, level, explained, len(long), len(long), why, [example])


def _is_key(old: list[str], new: list[str]) -> bool:
    if len(set(old)) != len(old) or len(set(new)) != len(new):
        return False
    spare = 1 if len(old) != len(new) else 0
    return len(set(old) & set(new)) >= min(len(old), len(new)) - spare


def _loose(
    place: Place, long: list[Pair], lists: list[tuple[Any, Any]], names: set[str], known: Alignment
) -> Suggestion | None:
    """No key: members whose values are the same bag on both sides tell the items apart."""
    telling = [
        name
        for name in sorted(names)
        if sum(
            Counter(token(item[name]) for item in old) == Counter(token(item[name]) for item in new)
            for old, new in lists
        )
        >= _AGREE * len(lists)
    ]
    if len(telling) * 2 <= len(names):
        return None
    rows = [tuple([token({name: item[name] for name in telling}) for item in side] for side in pair) for pair in lists]
    mode = ArrayMode("unordered", None, frozenset(names - set(telling)))
    return _unordered(place, long, known, mode, rows)


def _unordered(place: Place, long: list[Pair], known: Alignment, mode: ArrayMode, rows: list[Any]) -> Suggestion | None:
    turned = [number for number, (old, new) in enumerate(rows) if old != new]
    good = [number for number in turned if Counter(rows[number][0]) == Counter(rows[number][1])]
    if len(turned) < MIN_DIFFERING or len(good) < SHARE * len(turned):
        return None
    known.modes[place] = mode
    level = "sure" if is_sure(len(good), len(turned), len(long)) else "review"
    bad = [long[number] for number in turned if number not in set(good)]
    rule = {"array-mode": "unordered"}
    examples = [long[number] for number in good[:2]]
    counts = (len(good), len(turned), len(long))
    return Suggestion(place, rule, level, *counts, "the same items in another order", examples, bad)
