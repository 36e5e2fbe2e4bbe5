"""From plans to functions that compare: which comparer a node gets."""

from __future__ import annotations

from collections.abc import Callable

from driftline.payloads._compare.arrays import array_comparer
from driftline.payloads._compare.conditions import parse_condition
from driftline.payloads._compare.leaves import leaf_comparer
from driftline.payloads._compare.objects import object_comparer
from driftline.payloads._compare.plan import (
    Compare,
    Condition,
    ContainerCompare,
    NodePlan,
    Plans,
    SchemaSettings,
    Tools,
)
from driftline.payloads._compare.report import Run
from driftline.payloads._compare.sides import choose
from driftline.payloads._rules.path_rules import PathRule
from driftline.payloads._schema.nodes import Fragment, SchemaDocument
from driftline.payloads._values.limits import EngineConfig
from driftline.payloads._values.paths import Path
from driftline.payloads._values.values import NEW, OLD, Value, admits, expectation, kind_of, union_leaf_count


def compile_root(
    document: SchemaDocument,
    root: Fragment,
    config: EngineConfig,
    flags: tuple[PathRule, ...] = (),
    *,
    is_observed: bool = False,
    is_record: bool = False,
) -> Plans:
    """The plans of one root of a document; their functions are built when payloads get to them."""
    settings = SchemaSettings(document, root, config, flags, is_observed=is_observed, is_record=is_record)
    return Plans(settings, Tools(parse_condition, build))


def build(plan: NodePlan) -> None:
    """Give a plan its functions: condition, choices, then the rules of the node."""
    node, objects = _node_comparer(plan)
    plan.compare_containers = node
    if plan.condition is not None:
        compare = _conditional(plan, plan.condition)
    elif plan.rules.strategy == "ignore" or plan.removed_by is not None:
        compare = _ignoring(plan)
    elif plan.choices:
        compare = _choosing(plan)
    elif plan.rules.strategy == "exists":
        compare = _traced(plan, _present)
    else:
        compare = _traced(plan, node)
    is_bare = compare is node and not plan.rules.problems
    plan.compare = _announcing(plan, compare) if plan.rules.problems else compare
    plan.compare_objects = objects if is_bare else plan.compare


def _node_comparer(plan: NodePlan) -> tuple[Compare, Compare]:
    """The comparer by the rules of a node, and its short cut for objects."""
    leaf = leaf_comparer(plan)
    objects = _lazily(plan, object_comparer, dict)
    arrays = _lazily(plan, array_comparer, list)

    def compare(old: Value, new: Value, run: Run, path: Path) -> None:
        kind = type(old)
        if kind is dict and type(new) is dict:
            objects[0](old, new, run, path)
        elif kind is list and type(new) is list:
            arrays[0](old, new, run, path)
        else:
            leaf(old, new, run, path)

    def observe(old: Value, new: Value, run: Run, path: Path) -> None:
        if run.observer is not None and type(old) is list and type(new) is list:
            run.observer.array(path, old, new)
        elif run.observer is not None and not (type(old) is dict and type(new) is dict):
            run.observer.leaf(path, old, new)
        compare(old, new, run, path)

    return observe if plan.settings.is_observed else compare, lambda old, new, run, path: objects[0](
        old, new, run, path
    )


def _lazily(plan: NodePlan, build_comparer: Callable[[NodePlan], ContainerCompare], kind: type) -> list[Compare]:
    """A cell for a comparer that is compiled when a payload first needs it."""

    def first(old: Value, new: Value, run: Run, path: Path) -> None:
        place[0] = _guarded(plan, build_comparer(plan), kind)
        if kind is dict and plan.compare_objects is not plan.compare:
            plan.compare_objects = place[0]
        place[0](old, new, run, path)

    place: list[Compare] = [first]
    return place


def _guarded(plan: NodePlan, comparer: ContainerCompare, kind: type) -> Compare:
    """The comparer of a container, after a report of what the schema does not allow here."""
    types = plan.node.types
    is_wrong = types is not None and plan.settings.checks_types and not admits(types, kind())
    if not is_wrong and plan.rules.cast is None:
        return comparer

    def compare(old: Value, new: Value, run: Run, path: Path) -> None:
        if is_wrong:
            run.schema_mismatch(path, old, new, [OLD, NEW], expectation(types or frozenset()))
        if plan.rules.cast is not None:
            message = "The cast failed (not a scalar); the raw values are compared"
            run.warn("RULE_ERROR", path, message, plan.rules.text("cast"))
        comparer(old, new, run, path)

    return compare


def _choosing(plan: NodePlan) -> Compare:
    """Chooses the branches for a pair, then compares with them folded in."""

    def compare(old: Value, new: Value, run: Run, path: Path) -> None:
        chosen = choose(plan, [(old, OLD), (new, NEW)], run)
        if kind_of(old) == kind_of(new) and plan.settings.checks_types:
            _check_branches(plan, old, new, run, path)
        chosen.compare(old, new, run, path)

    return compare


def _check_branches(plan: NodePlan, old: Value, new: Value, run: Run, path: Path) -> None:
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


def _present(old: Value, new: Value, run: Run, path: Path) -> None:
    """`exists`: both are present, no descent."""
    run.checked += 1


def _ignoring(plan: NodePlan) -> Compare:
    def compare(old: Value, new: Value, run: Run, path: Path) -> None:
        run.ignored += union_leaf_count(old, new)
        run.note(path, plan.removed_by or plan.rules.text("strategy") or "", "ignored")

    return compare


def _conditional(plan: NodePlan, condition: Condition) -> Compare:
    def compare(old: Value, new: Value, run: Run, path: Path) -> None:
        plan.decided(condition.decide(run, path, plan.rules)).compare(old, new, run, path)

    return compare


def _announcing(plan: NodePlan, compare: Compare) -> Compare:
    def announce(old: Value, new: Value, run: Run, path: Path) -> None:
        plan.announce(run, path)
        compare(old, new, run, path)

    return announce


def _traced(plan: NodePlan, compare: Compare) -> Compare:
    if not plan.settings.config.trace_rule_application or not plan.rules.texts:
        return compare

    def trace(old: Value, new: Value, run: Run, path: Path) -> None:
        known = len(run.diffs)
        try:
            compare(old, new, run, path)
        finally:
            outcome = "match" if len(run.diffs) == known else "mismatch"
            for rule in plan.rules.texts.values():
                run.note(path, rule, outcome)

    return trace
