"""Arrays whose items come in another order: by a key where there is one, else unordered (payloads §11.2)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from driftline.payloads.paths import Place
from driftline.payloads.suggesting.alignment import Alignment, ArrayMode
from driftline.payloads.suggesting.evidence import MIN_DIFFERING, SHARE, Pair, Suggestion, is_sure, token

_ROUNDS = 4
_AGREE = 0.9  # of the arrays, for members that tell items apart
_IDENTITY = re.compile(r"(?:^|[_.-])(?:id|sid|key|sku|code|uuid|guid|number|no|slug)$|(?:Id|ID|Sid|Key|Code|Sku)$")


def find_array_modes(pairs: list[Pair], known: Alignment) -> Iterator[Suggestion]:
    """Modes of arrays, outer ones first: inner arrays are only aligned once the outer ones are."""
    for _ in range(_ROUNDS):
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
    views = [_views(old, new, place, known) for old, new in long]
    names = set.intersection(*(set(item) for pair in views for side in pair for item in side))
    return _keyed(place, long, views, names, known) or _loose(place, long, views, names, known)


def _views(old: list[Any], new: list[Any], place: Place, known: Alignment) -> tuple[list[Any], list[Any]]:
    below = (*place, None)
    return (
        [known.members(item, below, is_old=True) for item in old],
        [known.members(item, below, is_old=False) for item in new],
    )


def _tokens(old: list[Any], new: list[Any]) -> tuple[list[str], list[str]]:
    return list(map(token, old)), list(map(token, new))


def _keyed(
    place: Place, long: list[Pair], views: list[tuple[Any, Any]], names: set[str], known: Alignment
) -> Suggestion | None:
    ranked = []
    for name in names:
        values = [([item[name] for item in old], [item[name] for item in new]) for old, new in views]
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
    place: Place, long: list[Pair], views: list[tuple[Any, Any]], names: set[str], known: Alignment
) -> Suggestion | None:
    """No key: members whose values are the same bag on both sides tell the items apart."""
    telling = [
        name
        for name in sorted(names)
        if sum(
            Counter(token(item[name]) for item in old) == Counter(token(item[name]) for item in new)
            for old, new in views
        )
        >= _AGREE * len(views)
    ]
    if len(telling) * 2 <= len(names):
        return None
    rows = [tuple([token({name: item[name] for name in telling}) for item in side] for side in pair) for pair in views]
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
