"""Unordered items under tolerances: the most matching pairs, the earliest partners first (payloads §5.3).

Matching items have equal coarse tokens, so that each group of equal ones is paired alone. In a group candidates lie in
a window on the axis of a tolerance; what can match falls into components, each of which gets a maximum matching. Where
that would take too long, a sweep along the axis pairs what it meets, and a warning says so.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from driftline.payloads.matching import smallest_maximum
from driftline.payloads.paths import KeyPath
from driftline.payloads.plan import NodePlan
from driftline.payloads.run import Run
from driftline.payloads.values import MISSING, NEW, OLD, Json
from driftline.payloads.views import lookup_raw

MAX_TRIALS = 2_000_000  # comparisons in one group
MAX_COMPONENT = 2_000  # items of Old
MAX_EDGES = 50_000
SWEEP_TRIALS = 64  # comparisons of one item
_MAX_AXES = 4
_MAX_AXIS_DEPTH = 3

Matches = Callable[[int, int], bool]


class Axis(NamedTuple):
    """A tolerant scalar inside the items of an array."""

    path: KeyPath
    plan: NodePlan


def axes_of(item: NodePlan) -> list[Axis]:
    """The tolerant scalars that all items may have: the items themselves, or members that no array lies before."""
    return list(_axes(item, (), set()))[:_MAX_AXES]


def _axes(plan: NodePlan, path: KeyPath, seen: set[int]) -> Iterator[Axis]:
    if plan.condition is not None or plan.choices or id(plan) in seen or len(path) > _MAX_AXIS_DEPTH:
        return
    if any(end.axis is not None for end in plan.meaning.ends.values()):
        yield Axis(path, plan)
    for name in dict.fromkeys([*plan.node.properties, *plan.states[OLD].members]):
        yield from _axes(plan.member(name), (*path, name), seen | {id(plan)})


class Group(NamedTuple):
    """Items of one coarse token: their positions on both sides."""

    lefts: list[int]
    rights: list[int]


class Pairer:
    """Pairs the items of one array, group by group."""

    def __init__(self, item: NodePlan, old: Sequence[Json], new: Sequence[Json], matches: Matches, run: Run) -> None:
        self._axes = axes_of(item)
        self._item = item
        self._sides = (old, new)
        self._matches = matches
        self._run = run
        self.partners: dict[int, int] = {}
        self.is_exact = True

    def pair(self, group: Group) -> None:
        """Pair what matches in a group."""
        line = self._line(group)
        edges = self._edges(group, line)
        if edges is None:
            self._sweep(group, line)
            return
        for lefts in _components(edges):
            rights = sorted({right for left in lefts for right in edges[left]})
            if len(lefts) > MAX_COMPONENT or sum(len(edges[left]) for left in lefts) > MAX_EDGES:
                self._sweep(Group(lefts, rights), line)
                continue
            number = {right: place for place, right in enumerate(rights)}
            found = smallest_maximum(
                [[number[right] for right in edges[left]] for left in lefts], self._run.check_deadline
            )
            self.partners.update(
                (left, rights[place]) for left, place in zip(lefts, found, strict=True) if place is not None
            )

    def _line(self, group: Group) -> _Line | None:
        """The axis along which the windows of a group hold the fewest candidates."""
        lines = [line for axis in self._axes if (line := self._along(axis, group)) is not None]
        return min(lines, key=_Line.candidates) if lines else None

    def _along(self, axis: Axis, group: Group) -> _Line | None:
        places: list[dict[int, float]] = []
        for side, positions in ((OLD, group.lefts), (NEW, group.rights)):
            value_of = axis.plan.meaning.axis(side)
            found: dict[int, float] = {}
            for position in positions:
                value = lookup_raw(self._item, self._sides[side][position], axis.path, side, self._run)
                place = value_of(value) if value is not MISSING else None
                if place is None:
                    return None  # equal coarse tokens: then nobody in the group has one
                found[position] = place
            places.append(found)
        return _Line(places[OLD], places[NEW], axis.plan.meaning.width)

    def _edges(self, group: Group, line: _Line | None) -> dict[int, list[int]] | None:
        """What matches what; None where finding out takes too many trials."""
        trials = line.candidates() if line is not None else len(group.lefts) * len(group.rights)
        if trials > MAX_TRIALS:
            return None
        edges: dict[int, list[int]] = {}
        for left in group.lefts:
            self._run.check_deadline()
            near = line.near(left) if line is not None else group.rights
            edges[left] = sorted(right for right in near if self._matches(left, right))
        return edges

    def _sweep(self, group: Group, line: _Line | None) -> None:
        """Pair along the axis; exact where one number alone is tolerant."""
        self.is_exact = False
        lefts = sorted(group.lefts, key=line.lefts.__getitem__) if line is not None else group.lefts
        free = list(line.order if line is not None else group.rights)
        if line is not None:
            wanted = set(group.rights)
            free = [right for right in free if right in wanted]
        start = 0
        taken: set[int] = set()
        for left in lefts:
            self._run.check_deadline()
            low, high = line.window(left) if line is not None else (0.0, 0.0)
            while start < len(free) and (free[start] in taken or (line is not None and line.rights[free[start]] < low)):
                start += 1
            trials, at = 0, start
            while at < len(free) and trials < SWEEP_TRIALS and (line is None or line.rights[free[at]] <= high):
                if free[at] not in taken:
                    trials += 1
                    if self._matches(left, free[at]):
                        self.partners[left] = free[at]
                        taken.add(free[at])
                        break
                at += 1


class _Line:
    """The items of a group along an axis."""

    def __init__(self, lefts: dict[int, float], rights: dict[int, float], width: float) -> None:
        self.lefts, self.rights, self._width = lefts, rights, width
        self.order = sorted(rights, key=lambda right: (rights[right], right))
        self._keys = [rights[right] for right in self.order]
        self._candidates: int | None = None

    def window(self, left: int) -> tuple[float, float]:
        """Between which places partners lie; a little wide, because doubles only help to find candidates."""
        place = self.lefts[left]
        reach = self._width + (abs(place) + self._width) * 1e-12
        return place - reach, place + reach

    def near(self, left: int) -> list[int]:
        """The items of New in the window."""
        low, high = self.window(left)
        return self.order[bisect_left(self._keys, low) : bisect_right(self._keys, high)]

    def candidates(self) -> int:
        """How many pairs lie in windows."""
        if self._candidates is None:
            windows = map(self.window, self.lefts)
            self._candidates = sum(
                bisect_right(self._keys, high) - bisect_left(self._keys, low) for low, high in windows
            )
        return self._candidates


def _components(edges: dict[int, list[int]]) -> Iterator[list[int]]:
    """Items of Old that share candidates, in order, those without any left out."""
    back: dict[int, list[int]] = {}
    for left, rights in edges.items():
        for right in rights:
            back.setdefault(right, []).append(left)
    seen: set[int] = set()
    for start, rights in edges.items():
        if start in seen or not rights:
            continue
        seen.add(start)
        found, waiting, met = [start], [start], set()
        while waiting:
            for right in edges[waiting.pop()]:
                if right in met:
                    continue
                met.add(right)
                fresh = [left for left in back[right] if left not in seen]
                seen.update(fresh)
                found.extend(fresh)
                waiting.extend(fresh)
        yield sorted(found)
