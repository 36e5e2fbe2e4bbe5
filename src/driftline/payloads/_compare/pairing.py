"""Unordered items under tolerances: the most matching pairs, the earliest partners first (payloads §5.3).

Matching items have equal coarse tokens, so that each group of equal ones is paired alone. In a group candidates are in
a window on the axis of a tolerance; what can match falls into components, each of which gets a maximum matching. Where
that would take too long, a sweep along the axis pairs what it meets, and the pairing is not exact.

>>> smallest_maximum([[0, 1], [0]])
[1, 0]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from driftline.payloads._compare.plan import NodePlan
from driftline.payloads._compare.report import Run
from driftline.payloads._compare.sides import lookup_raw
from driftline.payloads._values.paths import KeyPath
from driftline.payloads._values.values import MISSING, NEW, OLD, Json

Edges = list[list[int]]
Matches = Callable[[int, int], bool]

MAX_TRIALS = 2_000_000  # comparisons in one group
MAX_COMPONENT = 2_000  # items of Old
MAX_EDGES = 50_000
SWEEP_TRIALS = 64  # comparisons of one item
# Edges visited while the smallest matching is sought; beyond it the number of pairs is right, their order may not be.
MAX_STEPS = 5_000_000
_MAX_AXES = 4
_MAX_AXIS_DEPTH = 3


class Axis(NamedTuple):
    """A tolerant scalar inside the items of an array."""

    path: KeyPath
    plan: NodePlan


def axes_of(item: NodePlan) -> list[Axis]:
    """The tolerant scalars that all items may have: the items themselves, or members outside of inner arrays."""
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
        """The axis along which the windows of a group contain the fewest candidates."""
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
                    return None  # equal coarse tokens: then no item of the group has one
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
        """The range that contains partners; a little wide, because doubles only help to find candidates."""
        place = self.lefts[left]
        reach = self._width + (abs(place) + self._width) * 1e-12
        return place - reach, place + reach

    def near(self, left: int) -> list[int]:
        """The items of New in the window."""
        low, high = self.window(left)
        return self.order[bisect_left(self._keys, low) : bisect_right(self._keys, high)]

    def candidates(self) -> int:
        """How many pairs are in windows."""
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


# Maximum matching.
def smallest_maximum(edges: Edges, check: Callable[[], None] = lambda: None) -> list[int | None]:
    """The partner of each item of Old; `edges` are its possible partners in New, in order.

    Of all matchings with the most pairs the smallest gives Old's first item the earliest partner that still allows as
    many pairs, then the second, and so on.
    """
    work = _Matching(edges, check)
    work.grow()
    work.shrink()
    return work.partner


class _Matching:
    """A matching that grows to the maximum and is then made the smallest."""

    def __init__(self, edges: Edges, check: Callable[[], None]) -> None:
        self.edges = edges
        self.check = check
        self.steps = 0
        self.partner: list[int | None] = [None] * len(edges)
        count = 1 + max((max(row) for row in edges if row), default=-1)
        self.back: Edges = [[] for _ in range(count)]
        for left, row in enumerate(edges):
            for right in row:
                self.back[right].append(left)
        self.owner: list[int | None] = [None] * count

    def grow(self) -> None:
        """Augment in rounds; within a round no partner is visited twice, which keeps rounds few and short."""
        for left, row in enumerate(self.edges):
            free = next((right for right in row if self.owner[right] is None), None)
            if free is not None:
                self.partner[left], self.owner[free] = free, left
        grew = True
        while grew:
            grew = False
            seen: set[int] = set()
            for left, mate in enumerate(self.partner):
                if mate is None and self._augment(left, self.edges, self.partner, self.owner, seen):
                    grew = True

    def shrink(self) -> None:
        """Fix Old's items one after the other on the earliest partner that keeps the number of pairs."""
        fixed: set[int] = set()  # partners that are final
        for left, row in enumerate(self.edges):
            for right in row:
                if right == self.partner[left] or self.steps > MAX_STEPS:
                    break
                if right not in fixed and self._move(left, right, fixed):
                    break
            mate = self.partner[left]
            if mate is not None:
                fixed.add(mate)

    def _move(self, left: int, right: int, fixed: set[int]) -> bool:
        """Give `left` the partner `right` if as many pairs are left; its former owner must find another partner."""
        other, mine = self.owner[right], self.partner[left]
        if other is not None and other < left:
            return False
        if other is None or mine is None:
            # As many pairs as before: one partner is set free, or one item of Old that comes later is.
            if mine is not None:
                self.owner[mine] = None
            if other is not None:
                self.partner[other] = None
            self.partner[left], self.owner[right] = right, left
            return True
        self.partner[left], self.owner[right] = right, left
        self.partner[other] = self.owner[mine] = None
        # One pair is lost. A way to win it back begins at one of the two that were set free: any other would have made
        # the matching larger before.
        barred = fixed | {right}
        if self._augment(other, self.edges, self.partner, self.owner, set(barred)):
            return True
        if self._augment(mine, self.back, self.owner, self.partner, set(range(left + 1))):
            return True
        self.partner[left], self.owner[mine], self.partner[other], self.owner[right] = mine, left, right, other
        return False

    def _augment(
        self,
        start: int,
        edges: Edges,
        partner: list[int | None],
        owner: list[int | None],
        seen: set[int],
    ) -> bool:
        """Find a way from a free item to a free partner and turn it round; `seen` are places not to be entered."""
        stack = [(start, iter(edges[start]))]
        way: list[tuple[int, int]] = []
        self.check()
        while stack:
            item, rest = stack[-1]
            for place in rest:
                self.steps += 1
                if place in seen:
                    continue
                seen.add(place)
                way.append((item, place))
                holder = owner[place]
                if holder is None:
                    for one, other in way:
                        partner[one], owner[other] = other, one
                    return True
                stack.append((holder, iter(edges[holder])))
                break
            else:
                stack.pop()
                if way:
                    way.pop()
        return False
