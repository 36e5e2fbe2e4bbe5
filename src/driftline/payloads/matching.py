"""Maximum matching of two lists: as many pairs as there can be, and of those ways the smallest (payloads §5.3).

The smallest gives Old's first item the earliest partner that still allows as many pairs, then the second, and so on.

>>> smallest_maximum([[0, 1], [0]])
[1, 0]
"""

from __future__ import annotations

from collections.abc import Callable

# Edges looked at while the smallest way is sought; beyond it the number of pairs is right, their order may not be.
MAX_STEPS = 5_000_000

Edges = list[list[int]]


def smallest_maximum(edges: Edges, check: Callable[[], None] = lambda: None) -> list[int | None]:
    """The partner of each item of Old; `edges` are its possible partners in New, in order."""
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
        """Augment in rounds; within a round nobody looks at a place twice, which keeps rounds few and short."""
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
        fixed: set[int] = set()  # partners that are given away for good
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
        """Give `left` the partner `right` if as many pairs are left; the one who had it must find another way."""
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
        # One pair is lost. A way to win it back begins at one of the two who were set free: any other would have made
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
