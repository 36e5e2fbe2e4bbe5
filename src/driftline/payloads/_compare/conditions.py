"""`x-migration-when`: RFC 9535 filter expressions over `$` (the payload) and `@` (the object owning the field).

Comparisons of single members run as small functions on one side; anything else is evaluated by the JSONPath library on
a normalised copy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from jsonpath import filter as filters
from jsonpath.exceptions import JSONPathError
from jsonpath.segments import JSONPathChildSegment
from jsonpath.selectors import FilterContext, IndexSelector, NameSelector

from driftline.payloads._compare.plan import NodePlan
from driftline.payloads._compare.report import Run
from driftline.payloads._compare.sides import arranged, materialise, member, resolved
from driftline.payloads._rules.extensions import FieldRules
from driftline.payloads._rules.scalars import BadValueError
from driftline.payloads._values.paths import Path
from driftline.payloads._values.patterns import ENVIRONMENT, watch_expression
from driftline.payloads._values.values import MISSING, NEW, OLD, Value, kind_of, same_json

Test = Callable[[Run, int], bool]
Operand = Callable[[Run, int], Value]


class Condition:
    """A compiled condition."""

    __slots__ = ("_is_absolute", "_test", "text")

    def __init__(self, text: str, test: Test, is_absolute: bool) -> None:
        self.text = text
        self._test = test
        self._is_absolute = is_absolute

    def holds(self, run: Run, side: int) -> bool:
        """Whether the condition is true on a side, for the current object."""
        if not self._is_absolute:
            return self._test(run, side)
        key = (id(self), side)
        known = run.conditions.get(key)
        if known is None:
            known = run.conditions[key] = self._test(run, side)
        return known

    def decide(self, run: Run, path: Path, rules: FieldRules) -> bool:
        """The condition on Old; a warning where New disagrees."""
        holds = self.holds(run, OLD)
        rule = rules.text("when") or ""
        if self.holds(run, NEW) != holds:
            run.warn("RULE_ERROR", path, f"The condition is {str(holds).lower()} on Old but not on New", rule)
        run.note(path, rule, "applies" if holds else "does not apply")
        return holds


def parse_condition(text: str) -> Condition:
    """A condition from its text; raises `BadValueError`."""
    try:
        query = ENVIRONMENT.compile(f"$[?{text}]")
        segments = query.segments  # type: ignore[union-attr]
        (selector,) = segments[0].selectors
    except (JSONPathError, RecursionError, ValueError, AttributeError) as error:
        raise BadValueError(str(error).splitlines()[0] if str(error) else "not a filter expression") from None
    if len(segments) != 1 or not hasattr(selector, "expression"):
        raise BadValueError("not a single filter expression")
    expression = selector.expression
    watch_expression(expression)
    test = _test(expression.expression) or _by_library(expression)
    return Condition(text, test, is_absolute="@" not in text)


def _test(node: Any) -> Test | None:
    """The quick form of a logical expression, or None where it needs more than single members."""
    if isinstance(node, filters.PrefixExpression):
        inner = _test(node.right)
        return None if inner is None or node.operator != "!" else (lambda run, side: not inner(run, side))
    if isinstance(node, filters.InfixExpression):
        return _logical(node) if node.operator in ("&&", "||") else _comparison(node)
    if isinstance(node, filters.RootFilterQuery | filters.RelativeFilterQuery):
        operand = _operand(node)
        return None if operand is None else (lambda run, side: operand(run, side) is not MISSING)
    return None


def _logical(node: Any) -> Test | None:
    left, right = _test(node.left), _test(node.right)
    if left is None or right is None:
        return None
    if node.operator == "&&":
        return lambda run, side: left(run, side) and right(run, side)
    return lambda run, side: left(run, side) or right(run, side)


def _comparison(node: Any) -> Test | None:
    left, right = _operand(node.left), _operand(node.right)
    if left is None or right is None:
        return None
    compare = _COMPARISONS.get(node.operator)
    return None if compare is None else (lambda run, side: compare(left(run, side), right(run, side)))


def _operand(node: Any) -> Operand | None:
    if isinstance(node, filters.Nil):
        return lambda run, side: None
    if isinstance(node, filters.FilterExpressionLiteral):
        value = node.value
        return lambda run, side: value
    if isinstance(node, filters.RootFilterQuery | filters.RelativeFilterQuery):
        steps = _single_steps(node.path)
        if steps is None:
            return None
        is_root = isinstance(node, filters.RootFilterQuery)
        return lambda run, side: _value_at(steps, is_root, run, side)
    return None


def _single_steps(path: Any) -> list[str | int] | None:
    steps: list[str | int] = []
    for segment in path.segments:
        if not isinstance(segment, JSONPathChildSegment) or len(segment.selectors) != 1:
            return None
        (selector,) = segment.selectors
        if isinstance(selector, NameSelector):
            steps.append(selector.name)
        elif isinstance(selector, IndexSelector):
            steps.append(selector.index)
        else:
            return None
    return steps


def _start(is_root: bool, run: Run, side: int) -> tuple[NodePlan, Value]:
    owner = run.root if is_root or not run.owners else run.owners[-1]
    assert isinstance(owner.plan, NodePlan)
    return owner.plan, owner.old if side == OLD else owner.new


def _value_at(steps: list[str | int], is_root: bool, run: Run, side: int) -> Value:
    plan, value = _start(is_root, run, side)
    for step in steps:
        if isinstance(step, str):
            value, plan = member(plan, value, step, side, run)
        else:
            value, plan = _item(plan, value, step, side, run)
        if value is MISSING:
            return MISSING
    if type(value) in (dict, list):
        copy: Value = materialise(plan, value, side, run)
        return copy
    return resolved(plan, value, side, run).meaning.prepared_or_raw(value, side)


def _item(plan: NodePlan, value: Value, index: int, side: int, run: Run) -> tuple[Value, NodePlan]:
    if type(value) is not list:
        return MISSING, plan
    plan = resolved(plan, value, side, run)
    items = arranged(plan, value, side, run)
    if not -len(items) <= index < len(items):
        return MISSING, plan
    return items[index], plan.item(index % len(items))


def _equal(left: Value, right: Value) -> bool:
    return left is right if left is MISSING or right is MISSING else same_json(left, right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    def test(left: Value, right: Value) -> bool:
        if left is MISSING or right is MISSING or kind_of(left) != kind_of(right):
            return False
        return kind_of(left) in ("number", "string") and compare(left, right)

    return test


_less, _greater = _ordered(operator.lt), _ordered(operator.gt)
_COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _less,
    ">": _greater,
    "<=": lambda left, right: _less(left, right) or _equal(left, right),
    ">=": lambda left, right: _greater(left, right) or _equal(left, right),
}


def _by_library(expression: Any) -> Test:
    def test(run: Run, side: int) -> bool:
        root = _normalised(*_start(True, run, side), side, run)
        current = _normalised(*_start(False, run, side), side, run)
        # One tree for each payload: it caches what its queries from the root found.
        tree = run.views.get((id(expression), side))
        if tree is None:
            tree = run.views[id(expression), side] = expression.cache_tree()
        try:
            return bool(tree.evaluate(FilterContext(env=ENVIRONMENT, current=current, root=root)))
        except (JSONPathError, ValueError):  # a payload that is a string is no place to look into
            return False

    return test


def _normalised(plan: NodePlan, value: Value, side: int, run: Run) -> Any:
    """A normalised copy, made once in a comparison, because all members of an object need the same one."""
    key = ("copy", id(plan), id(value), side)
    known = run.views.get(key)
    if known is None:
        known = run.views[key] = (value, materialise(plan, value, side, run))
    return known[1]
