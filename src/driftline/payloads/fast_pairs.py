"""Unordered arrays, the quick part: items that can only match one partner, and surely do.

Members without any rule must be equal in matching items. Where their values occur once on each side, nobody else can
claim the two items, so that they are paired and compared at once; all others go the way of `unordered_arrays.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from driftline.payloads.leaves import fast_types
from driftline.payloads.object_code import fast_match
from driftline.payloads.plan import FastMatch, NodePlan
from driftline.payloads.run import NESTED_LEVELS, STEPS_BETWEEN_CLOCK_LOOKS, Run
from driftline.payloads.scalars.parts import Token
from driftline.payloads.values import MISSING, Json

Numbered = list[tuple[int, Json]]  # items with their index in the array

_MAX_NAMES = 8


class FastPairs(NamedTuple):
    """The functions for the items of one array: the values that tell them apart, and the match itself."""

    identity: Callable[[Any], Token]
    match: FastMatch

    def settle(self, old: list[Json], new: list[Json], run: Run) -> tuple[Numbered, Numbered]:
        """Count the items that surely match; what is left of both sides."""
        partners = self._partners(old, new)
        taken: set[int] = set()
        lefts: Numbered = []
        tally = 0
        for index, left in enumerate(old):
            if not index % STEPS_BETWEEN_CLOCK_LOOKS:
                run.check_deadline()
            partner = partners.get(index)
            found = self.match(left, new[partner]) if partner is not None else -1
            if partner is not None and found >= 0:
                tally += found
                taken.add(partner)
            else:
                lefts.append((index, left))
        run.add(tally)
        return lefts, [(index, right) for index, right in enumerate(new) if index not in taken]

    def _partners(self, old: list[Json], new: list[Json]) -> dict[int, int]:
        """Indexes in Old -> the only indexes in New with the same identity."""
        if not set(map(type, old)) == {dict} == set(map(type, new)):
            return {}
        try:
            befores, afters = list(map(self.identity, old)), list(map(self.identity, new))
            places = dict(_unique(afters))
            pairs = ((index, places.get(value)) for index, value in _numbered_unique(befores))
            return {index: place for index, place in pairs if place is not None}
        except (KeyError, TypeError):  # a member is missing, or a container: a default or a rule may stand for it
            return {}


def _unique(identities: list[Token]) -> Iterator[tuple[Token, int]]:
    return ((value, index) for index, value in _numbered_unique(identities))


def _numbered_unique(identities: list[Token]) -> Iterator[tuple[int, Token]]:
    if len(set(identities)) == len(identities):
        return iter(enumerate(identities))
    counts = Counter(identities)
    return ((index, value) for index, value in enumerate(identities) if counts[value] == 1)


def fast_pairs(item: NodePlan) -> FastPairs | None:
    """The quick part for arrays of these items; None where it cannot be said beforehand what must be equal."""
    match = fast_match(item, NESTED_LEVELS + 1)
    if match is None or item.aliases:
        return None
    names = [name for name in item.node.properties if _must_be_equal(item.member(name))]
    return FastPairs(itemgetter(*names[:_MAX_NAMES]), match) if names else None


def _must_be_equal(plan: NodePlan) -> bool:
    """Whether matching items have equal raw values here, given that they have any."""
    rules = plan.rules
    is_touched = not plan.meaning.is_plain or rules.strategy == "exists" or rules.default is not MISSING
    return bool(fast_types(plan)) and not is_touched and not plan.node.properties and not plan.node.items
