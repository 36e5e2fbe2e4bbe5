"""Scalars: two values compared by the rules of their field, and what decides them without an entry.

`exists` and `ignore` are decided before a scalar gets here.
"""

from __future__ import annotations

from driftline.payloads._compare.plan import Compare, NodePlan
from driftline.payloads._compare.report import Run
from driftline.payloads._rules.meaning import STRICT
from driftline.payloads._rules.scalars import Verdict
from driftline.payloads._values.paths import Path
from driftline.payloads._values.values import LEAF_TYPES, NEW, OLD, CastError, Value, admits, kind_of, surely_admitted

_NO_TYPES: frozenset[type] = frozenset()


def leaf_comparer(plan: NodePlan) -> Compare:
    """Compares two values of which at least one is a scalar, by all rules."""
    meaning = plan.meaning
    sure = surely_admitted(plan.node.types)
    # A cast says that the types vary.
    types = None if meaning.changes_type or not plan.settings.checks_types else plan.node.types
    # Where null stands for a missing member or an empty string, it is not a wrong type.
    types = types | {"null"} if types is not None and (plan.null_as_missing or plan.empty_as_null) else types

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
        if types is not None and not (type(left) in sure and type(right) in sure):
            sides = ((OLD, left, old), (NEW, right, new))
            wrong = [side for side, value, raw in sides if not admits(types, value) and not admits(types, raw)]
            if wrong:
                run.wrong_type(path, old, new, wrong, plan.node.types or types)
        if kind not in chosen.ends:
            run.checked -= 1
            _compare_containers(plan, left, right, run, path)
            return
        verdict = chosen.verdict(left, right, old, new)
        if verdict is not None:
            _report(verdict, old, new, run, path)

    return compare


def step_rule(plan: NodePlan) -> str | None:
    """The rule whose step can fail."""
    return plan.rules.text("cast") or plan.rules.text("datetime-format")


def _report(verdict: Verdict, old: Value, new: Value, run: Run, path: Path) -> None:
    if verdict.warns_once is not None:
        run.warn_once(verdict.warns_once, path, verdict.warning or "", verdict.warning_rule)
    elif verdict.warning is not None:
        run.warn("RULE_ERROR", path, verdict.warning, verdict.warning_rule or verdict.rule)
    if verdict.type is not None:
        run.error(verdict.type, path, old, new, verdict.message, verdict.rule)


def _compare_containers(plan: NodePlan, left: Value, right: Value, run: Run, path: Path) -> None:
    """Containers that come out of an enum map, or are of a type of the caller."""
    if isinstance(left, dict) and isinstance(right, dict):
        plan.compare_containers(dict(left), dict(right), run, path)
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        plan.compare_containers(list(left), list(right), run, path)
    else:
        run.checked += 1
        if left != right:
            run.error("VALUE_MISMATCH", path, left, right, f"Values differ: {left} != {right}")


def fast_types(plan: NodePlan) -> frozenset[type]:
    """The scalar types for which identical values need no rule to match."""
    if not is_decided(plan) or not plan.meaning.keeps_equal or plan.meaning.changes_type:
        return _NO_TYPES
    types = sure_types(plan)
    return types - {type(None)} if plan.null_as_missing else types


def sure_types(plan: NodePlan) -> frozenset[type]:
    """The types of scalars that need no look at the schema."""
    is_free = plan.meaning.changes_type or plan.rules.strategy == "exists" or not plan.settings.checks_types
    return LEAF_TYPES if is_free else surely_admitted(plan.node.types)


def is_ignored(plan: NodePlan) -> bool:
    """Whether a value is ignored on both sides without a condition."""
    return plan.removed_by is not None or (plan.condition is None and plan.rules.strategy == "ignore")


def is_decided(plan: NodePlan) -> bool:
    """Whether the plan alone decides what its scalars are compared by, and no trace is requested."""
    rules = plan.rules
    if plan.removed_by or plan.condition or plan.choices or rules.problems or rules.strategy == "ignore":
        return False
    if plan.settings.is_observed:
        return False
    return not (rules.texts and plan.settings.config.trace_rule_application)
