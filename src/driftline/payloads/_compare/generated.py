"""Generated functions: objects with the members of a schema node unrolled, and unordered items that surely match.

The text of a function is made of fixed lines and numbers; names and values of the schema are only ever constants in
its namespace. What a function cannot settle is left to the loop of `objects.py`, which decides everything that needs
an entry in the report.

A function's result is a tally: checked leaves, and ignored leaves times `IGNORED_LEAF`; tallies add up as one number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from driftline.payloads._compare.leaves import fast_types, leaf_test
from driftline.payloads._compare.plan import FastMatch, NodePlan
from driftline.payloads._compare.report import (
    IGNORED_LEAF,
    NESTED_LEVELS,
    STEPS_BETWEEN_CLOCK_LOOKS,
    Run,
)
from driftline.payloads._rules.scalars.parts import Constants, Token
from driftline.payloads._values.paths import NAMINGS
from driftline.payloads._values.values import MISSING, NEW, OLD, Json, union_leaf_count

Numbered = list[tuple[int, Json]]  # items with their index in the array

MAX_MEMBERS = 200  # others are left to the loop
_MAX_NAMES = 8

_FAST_MATCH = """
def fast_match(old, new):
    settled = tally = 0
{whole}
    if not settled:
        pass
{part}
{ignored}
    if settled == len(old) == len(new):
        return settled + tally if settled else 1
    if settled < len(old) == len(new):
        return {others}(old, new, settled, tally)
    return -1
"""
# Objects mostly have all members that are compared: these are looked up without asking whether they are there.
_WHOLE = """
    if len(old) >= {count} <= len(new):
        try:
{members}
            settled = {count}
        except KeyError:
            tally = 0
"""
_WHOLE_LEAF = """
            left = old[{old_name}]
            right = new[{name}]
            if not ({test}):
                return -1
"""
_WHOLE_NESTED = """
            left = old[{old_name}]
            right = new[{name}]
            if not (type(left) is dict is type(right) and (below := {fast_match}(left, right)) >= 0):
                return -1
            tally += below - 1
"""
_PART_LEAF = """
        left = old.get({old_name})
        right = new.get({name})
        if {test}:
            settled += 1
        elif {is_required} or left is not None or right is not None:
            return -1
"""
_PART_NESTED = """
        left = old.get({old_name})
        right = new.get({name})
        if type(left) is dict is type(right) and (below := {fast_match}(left, right)) >= 0:
            settled += 1
            tally += below - 1
        elif {is_required} or left is not None or right is not None:
            return -1
"""
_FAST_IGNORED = """
    if {old_name} in old and {name} in new:
        left = old[{old_name}]
        right = new[{name}]
        settled += 1
        tally += {one} - 1 if type(left) is str is type(right) else {one} * union_leaf_count(left, right) - 1
"""


class _Member(NamedTuple):
    name: str
    old_name: str
    plan: NodePlan


def _members(plan: NodePlan) -> Iterator[_Member]:
    old_names = {name: raw for raw, name in plan.aliases.items()}
    names = dict.fromkeys([*plan.node.properties, *plan.states[OLD].members])
    for name in list(names)[:MAX_MEMBERS]:
        yield _Member(name, old_names.get(name, name), plan.member(name))


def _names(member: _Member, constants: Constants) -> dict[str, str]:
    return {"name": constants.name_of(member.name), "old_name": constants.name_of(member.old_name)}


def fast_match(plan: NodePlan, levels: int) -> FastMatch | None:
    """A function that tallies two objects which surely match, else says -1; None where it never could."""
    if levels == 0 or not _is_plain_object(plan):
        return None
    members = list(_members(plan))
    required = frozenset(plan.node.required if plan.settings.checks_types else ())
    if not members or required - {member.name for member in members}:
        return None
    constants = Constants(union_leaf_count=union_leaf_count)
    blocks = [_fast_block(member, required, levels, constants) for member in members if not is_ignored(member.plan)]
    ignored = [
        _FAST_IGNORED.format(one=IGNORED_LEAF, **_names(member, constants))
        for member in members
        if is_ignored(member.plan)
    ]
    others = _other_members(plan, frozenset(member.name for member in members))
    source = _FAST_MATCH.format(
        whole=_whole(blocks),
        part="".join(block.part for block in blocks),
        ignored="".join(ignored),
        others=constants.add(others),
    )
    matcher: FastMatch = constants.function(source, "fast_match")
    return matcher if ignored or any(block.part for block in blocks) else None


class _FastBlock(NamedTuple):
    """The lines for one member, where it is surely there and where it may be missing."""

    whole: str
    part: str


def _whole(blocks: list[_FastBlock]) -> str:
    """The lines for objects that have all members; none where a member is left to the comparison."""
    if not all(block.whole for block in blocks):
        return ""
    return _WHOLE.format(count=len(blocks), members="".join(block.whole for block in blocks))


def _fast_block(member: _Member, required: frozenset[str], levels: int, constants: Constants) -> _FastBlock:
    """The lines for one member; without any it is not counted, and an object that has it does not surely match."""
    names: dict[str, Json] = {**_names(member, constants), "is_required": member.name in required}
    nested = fast_match(member.plan, levels - 1)
    if nested is not None:
        names["fast_match"] = constants.add(nested)
        return _FastBlock(_WHOLE_NESTED.format(**names), _PART_NESTED.format(**names))
    test = leaf_test(member.plan, constants)
    if test is None:
        return _FastBlock("", "")
    return _FastBlock(_WHOLE_LEAF.format(test=test, **names), _PART_LEAF.format(test=test, **names))


def _other_members(
    plan: NodePlan, known: frozenset[str]
) -> Callable[[dict[str, Json], dict[str, Json], int, int], int]:
    """Goes on with members that the schema does not name."""
    other = plan.other_member() if not plan.aliases else None
    types = fast_types(other) - {type(None)} if other is not None else frozenset()
    keeps_empty = not plan.settings.drops_empty_strings

    def tally_others(old: dict[str, Json], new: dict[str, Json], settled: int, tally: int) -> int:
        found = 0
        for name, left in old.items():
            if name not in known:
                right = new.get(name)
                kind = type(left)
                if kind not in types or left != right or kind is not type(right) or not (left != "" or keeps_empty):
                    return -1
                found += 1
        settled += found
        return settled + tally if settled == len(old) else -1

    return tally_others


def has_plain_names(plan: NodePlan) -> bool:
    """Whether a member is known by its name alone: no looked-up ignores, no alias that depends on anything."""
    if plan.settings.located or plan.states[OLD] is not plan.states[NEW] or not renames_plainly(plan):
        return False
    if plan.naming in NAMINGS:
        return False
    return not plan.aliases.keys() & (plan.node.properties.keys() | plan.states[OLD].names)


def renames_plainly(plan: NodePlan) -> bool:
    """Whether each alias applies in any case and the global ignores treat both of its names alike."""
    return all(
        plan.member(name).condition is None and plan.states[OLD].step(raw) is plan.states[NEW].step(name)
        for raw, name in plan.aliases.items()
    )


def is_ignored(plan: NodePlan) -> bool:
    """Whether a member is ignored without a condition, and no trace is requested."""
    if plan.settings.config.trace_rule_application or plan.condition is not None:
        return False
    return plan.removed_by is not None or plan.rules.strategy == "ignore"


def _is_plain_object(plan: NodePlan) -> bool:
    """Whether objects are compared member by member here, and nothing else is reported."""
    rules, types = plan.rules, plan.node.types
    if plan.removed_by or plan.condition or plan.choices or rules.problems or rules.cast or not has_plain_names(plan):
        return False
    if rules.strategy in ("ignore", "exists") or (rules.texts and plan.settings.config.trace_rule_application):
        return False
    return types is None or "object" in types or not plan.settings.checks_types


# Unordered items with one possible partner: members without any rule must be equal in matching items, so where their
# values occur once on each side, the two items are compared at once. All others are left to `arrays.py`.
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
            places = {value: index for index, value in _unique(afters)}
            pairs = ((index, places.get(value)) for index, value in _unique(befores))
            return {index: place for index, place in pairs if place is not None}
        except (KeyError, TypeError):  # a member is missing, or a container: a default or a rule may stand for it
            return {}


def _unique(identities: list[Token]) -> Iterator[tuple[int, Token]]:
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
