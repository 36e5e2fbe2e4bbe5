"""`oneOf` and `anyOf`: by discriminator, else the first branch that both values fit."""

from __future__ import annotations

from typing import Any

from driftline.payloads.paths import Path
from driftline.payloads.plan import Compare, NodePlan
from driftline.payloads.run import Run
from driftline.payloads.schema_nodes import Choice
from driftline.payloads.values import CONTAINERS, MISSING, NEW, OLD, admits, kind_of
from driftline.payloads.views import is_absent, member, scalar_or_raw, sift

Seen = list[tuple[Any, int]]  # values with their sides
_MAX_FITTED_ITEMS = 100


def choice_comparer(plan: NodePlan) -> Compare:
    """Chooses the branches for a pair, then compares with them folded in."""

    def compare(old: Any, new: Any, run: Run, path: Path) -> None:
        chosen = choose(plan, [(old, OLD), (new, NEW)], run)
        if kind_of(old) == kind_of(new) and plan.compiler.checks_types:
            _check_branches(plan, old, new, run, path)
        chosen.compare(old, new, run, path)

    return compare


def choose(plan: NodePlan, seen: Seen, run: Run) -> NodePlan:
    """The plan with every choice made for these values."""
    while plan.choices:
        choice = plan.choices[0]
        plan = plan.chosen(choice, _branch(plan, choice, seen, run))
    return plan


def _branch(plan: NodePlan, choice: Choice, seen: Seen, run: Run) -> int | None:
    if choice.discriminator is not None:
        found = _discriminated(plan, choice, seen, run)
        if found is not None:
            return found
    for number in range(len(choice.branches)):
        candidate = plan.chosen(choice, number)
        if all(fits(candidate, value, side, run) for value, side in seen):
            return number
    return None


def _discriminated(plan: NodePlan, choice: Choice, seen: Seen, run: Run) -> int | None:
    """The branch that Old's discriminator names, in New's vocabulary where a branch maps it."""
    value, side = seen[0]
    if type(value) is not dict or choice.discriminator is None:
        return None
    for number in range(len(choice.branches)):
        item, child = member(plan.chosen(choice, number), value, choice.discriminator, side, run)
        if item is not MISSING and choice.mapping.get(str(scalar_or_raw(child, item, side))) == number:
            return number
    return None


def fits(plan: NodePlan, value: Any, side: int, run: Run) -> bool:
    """Whether a value has the shape of a node: types, allowed values, required and known members.

    Decided once for each node and container: every level of a recursive choice asks for all levels below it.
    """
    if type(value) not in CONTAINERS:
        return _fits(plan, value, side, run)
    key = (id(plan), id(value), side)
    known = run.fitting.get(key)
    if known is None:
        run.check_deadline()
        # The value is kept, so that its id stays its own.
        known = run.fitting[key] = (value, _fits(plan, value, side, run))
    return known[1]


def _fits(plan: NodePlan, value: Any, side: int, run: Run) -> bool:
    if plan.choices:
        choice = plan.choices[0]
        if value is None and choice.allows_null:
            return True
        return any(fits(plan.chosen(choice, number), value, side, run) for number in range(len(choice.branches)))
    node = plan.node
    shown = scalar_or_raw(plan, value, side)
    if node.types is not None and not admits(node.types, shown) and not admits(node.types, value):
        return value is None and (plan.null_as_missing or plan.empty_as_null)
    if value is None and node.is_nullable:
        return True
    if node.allowed_values is not None and not any(_is_same(allowed, shown) for allowed in node.allowed_values):
        return False
    if type(value) is dict:
        return _object_fits(plan, value, side, run)
    if type(value) is list and node.items:
        return all(fits(plan.item(), item, side, run) for item in value[:_MAX_FITTED_ITEMS])
    return True


def _object_fits(plan: NodePlan, value: dict[str, Any], side: int, run: Run) -> bool:
    found = sift(plan, value, side, run).members
    for name in plan.node.required:
        if name not in found and plan.member(name).rules.default is MISSING:
            return False
    for name in plan.node.properties:
        item = found.get(name, MISSING)
        child = plan.member(name)
        if item is not MISSING and not is_absent(child, item) and not fits(child, item, side, run):
            return False
    return True


def _is_same(allowed: Any, value: Any) -> bool:
    return kind_of(allowed) == kind_of(value) and bool(allowed == value)


def _check_branches(plan: NodePlan, old: Any, new: Any, run: Run, path: Path) -> None:
    """A value whose type no branch admits is of a wrong type."""
    types: set[str] = set()
    for choice in plan.choices:
        for number in range(len(choice.branches)):
            branch = plan.chosen(choice, number).node
            if branch.types is None:
                return
            types |= branch.types
        if choice.allows_null:
            types.add("null")
    allowed = frozenset(types)
    wrong = [side for side, value in ((OLD, old), (NEW, new)) if not admits(allowed, value)]
    if wrong and not (old is None and (plan.null_as_missing or plan.empty_as_null)):
        run.schema_mismatch(path, old, new, wrong, f"no branch admits it (types: {', '.join(sorted(allowed))})")
