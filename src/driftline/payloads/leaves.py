"""Scalars: two values by the meaning of their field's rules, with an entry for what does not match.

`exists` and `ignore` are decided before a scalar gets here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from driftline.payloads.casts import CastError
from driftline.payloads.paths import Path
from driftline.payloads.plan import Compare, NodePlan
from driftline.payloads.run import Run
from driftline.payloads.scalars.meaning import STRICT
from driftline.payloads.scalars.parts import Constants, Verdict
from driftline.payloads.values import (
    LEAF_TYPES,
    NEW,
    OLD,
    Value,
    admits,
    expectation,
    kind_of,
    surely_admitted,
)

_NO_TYPES: frozenset[type] = frozenset()
# raw old, raw new, prepared old, prepared new, run, path
_TypeCheck = Callable[[Any, Any, Any, Any, Run, Path], None]


def leaf_comparer(plan: NodePlan) -> Compare:
    """Compares two values of which at least one is a scalar, by all rules."""
    meaning = plan.meaning
    sure = surely_admitted(plan.node.types)
    check = _type_check(plan)

    def compare(old: Value, new: Value, run: Run, path: Path) -> None:
        run.checked += 1
        left, right, chosen = old, new, meaning
        if meaning.has_steps:
            try:
                left, right = meaning.prepared(old, OLD), meaning.prepared(new, NEW)
            except CastError as error:
                message = f"The cast failed ({error}); the raw values are compared"
                run.warn("RULE_ERROR", path, message, step_rule(plan))
                left, right, chosen = old, new, STRICT
        kind = kind_of(left)
        if kind != kind_of(right):
            run.check_nesting(old)
            run.check_nesting(new)
            run.error("TYPE_MISMATCH", path, old, new, f"Types differ: {kind} != {kind_of(right)}")
            return
        if check is not None and not (type(left) in sure and type(right) in sure):
            check(old, new, left, right, run, path)
        if kind not in chosen.ends:
            run.checked -= 1
            _compare_containers(plan, left, right, run, path)
            return
        verdict = chosen.verdict(left, right, old, new)
        if verdict is not None:
            _tell(verdict, old, new, run, path)

    return compare


def step_rule(plan: NodePlan) -> str | None:
    """The rule whose step can fail."""
    return plan.rules.text("cast") or plan.rules.text("datetime-format")


def _tell(verdict: Verdict, old: Value, new: Value, run: Run, path: Path) -> None:
    if verdict.warns_once is not None:
        run.warn_once(verdict.warns_once, path, verdict.warning or "", verdict.warning_rule)
    elif verdict.warning is not None:
        run.warn("RULE_ERROR", path, verdict.warning, verdict.warning_rule or verdict.rule)
    if verdict.type is not None:
        run.error(verdict.type, path, old, new, verdict.message, verdict.rule)


def _compare_containers(plan: NodePlan, left: Value, right: Value, run: Run, path: Path) -> None:
    """Containers that come out of an enum map, or are of a type of the caller's own."""
    if isinstance(left, dict) and isinstance(right, dict):
        plan.compare_containers(dict(left), dict(right), run, path)
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        plan.compare_containers(list(left), list(right), run, path)
    else:
        run.checked += 1
        if left != right:
            run.error("VALUE_MISMATCH", path, left, right, f"Values differ: {left} != {right}")


def _type_check(plan: NodePlan) -> _TypeCheck | None:
    types = plan.node.types
    # A cast says that the types vary.
    if types is None or plan.meaning.changes_type or not plan.settings.checks_types:
        return None
    # Where null stands for a missing member or an empty string, it is not a wrong type.
    if plan.null_as_missing or plan.empty_as_null:
        types = types | {"null"}

    def check(old: Value, new: Value, left: Value, right: Value, run: Run, path: Path) -> None:
        wrong = [OLD] if not admits(types, left) and not admits(types, old) else []
        if not admits(types, right) and not admits(types, new):
            wrong.append(NEW)
        if wrong:
            run.schema_mismatch(path, old, new, wrong, expectation(plan.node.types or types))

    return check


def warn_unreadable(plan: NodePlan, value: Value, side: int, run: Run, path: Path) -> None:
    """Warn about the scalars of an item without a partner that a cast or a date format cannot take.

    Items with a partner are compared, which says the same.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            known = plan.aliases[name] if side == OLD and name in plan.aliases else name
            warn_unreadable(plan.member(known), item, side, run, (path, known))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            warn_unreadable(plan.item(index), item, side, run, (path, index))
    elif plan.condition is None and not plan.choices:
        problem = plan.meaning.problem(value, side)
        if problem is not None:
            run.warn("RULE_ERROR", path, problem, step_rule(plan) or plan.rules.text("datetime-tolerance"))


def fast_types(plan: NodePlan) -> frozenset[type]:
    """The scalar types for which identical values need no rule to match."""
    if not _is_decided(plan) or not plan.meaning.keeps_equal or plan.meaning.changes_type:
        return _NO_TYPES
    checked = plan.settings.checks_types and plan.rules.strategy != "exists"
    types = surely_admitted(plan.node.types) if checked else LEAF_TYPES
    return types - {type(None)} if plan.null_as_missing else types


def leaf_test(plan: NodePlan, constants: Constants) -> str | None:
    """The test for a member's values in generated code, or None where only the comparison can tell."""
    if not _is_decided(plan):
        return None
    keeps_empty = not plan.settings.drops_empty_strings
    if plan.rules.strategy == "exists":
        there = "left is not None and right is not None"
        return there if keeps_empty else f"{there} and left != '' and right != ''"
    types = surely_admitted(plan.node.types) if plan.settings.checks_types else LEAF_TYPES
    # Null is left to the comparison: `get` gives it for a missing member too.
    return plan.meaning.test(types - {type(None)}, constants, keeps_empty=keeps_empty)


def _is_decided(plan: NodePlan) -> bool:
    """Whether the plan alone says what its scalars are compared by, and nobody wants to hear of it."""
    rules = plan.rules
    if plan.removed_by or plan.condition or plan.choices or rules.problems or rules.strategy == "ignore":
        return False
    return not (rules.texts and plan.settings.config.trace_rule_application)
