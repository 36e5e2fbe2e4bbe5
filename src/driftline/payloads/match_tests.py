"""Tests, as Python expressions over `left` and `right`, that are true only where two scalars surely match.

A false test decides nothing: the full way of `leaves.py` does. So a test may leave out whatever is rare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from driftline.payloads.casts import CastError
from driftline.payloads.plan import NodePlan
from driftline.payloads.rules import FieldRules
from driftline.payloads.type_checks import LEAF_TYPES, surely_admitted
from driftline.payloads.values import NEW, OLD
from driftline.payloads.views import scalar

_NOTHING = type(None)
_NO_TYPES: frozenset[type] = frozenset()
# Cheap tests for the sets of types that schemas name most.
_SAME_TYPES: dict[frozenset[type], str] = {
    frozenset({str}): "type(left) is str and left == right",
    frozenset({int}): "type(left) is int is type(right) and left == right",
    frozenset({bool}): "left is right and type(left) is bool",
    frozenset({int, float}): "(type(left) is float is type(right) or type(left) is int is type(right))"
    " and left == right",
}
_TWO_TEXTS = "type(left) is str is type(right) and left and right"


class Constants:
    """The namespace of a generated function; everything that comes from a schema is a value in it, never text."""

    def __init__(self, **given: Any) -> None:
        # A dict and no subclass: the interpreter looks up globals quickly only there.
        self._values: dict[str, Any] = dict(given)
        self._names: dict[str, str] = {}

    def add(self, value: Any) -> str:
        """The name of a new constant."""
        name = f"c{len(self._values)}"
        self._values[name] = value
        return name

    def name_of(self, member: str) -> str:
        """The name of the constant that holds a member's name."""
        if member not in self._names:
            self._names[member] = self.add(member)
        return self._names[member]

    def function(self, source: str, name: str) -> Any:
        """The function that a source text defines in this namespace."""
        exec(compile(source, f"<driftline {name}>", "exec"), self._values)  # noqa: S102 - fixed lines, see object_code
        return self._values[name]


def quick_types(plan: NodePlan) -> frozenset[type]:
    """The scalar types for which identical values need no rule to match."""
    rules = plan.rules
    if plan.removed_by or plan.condition or plan.choices or rules.problems or rules.strategy == "ignore":
        return _NO_TYPES
    if (
        rules.pattern
        or rules.enum_map is not None
        or rules.cast
        or (rules.texts and plan.compiler.config.trace_rule_application)
    ):
        return _NO_TYPES
    checked = plan.compiler.checks_types and rules.strategy != "exists"
    types = surely_admitted(plan.node.types) if checked else LEAF_TYPES
    return types - {type(None)} if plan.null_as_missing else types


def leaf_test(plan: NodePlan, constants: Constants) -> str | None:
    """The test for a member's values, or None where only the full way can tell."""
    rules = plan.rules
    if plan.removed_by or plan.condition or plan.choices or rules.problems or rules.strategy == "ignore":
        return None
    if rules.texts and plan.compiler.config.trace_rule_application:
        return None
    if rules.strategy == "exists":
        return _both_there(plan)
    if rules.cast is not None:
        return (
            f"{_both_there(plan)} and {constants.add(_casts_agree(plan))}(left, right)" if not rules.pattern else None
        )
    types = surely_admitted(plan.node.types) if plan.compiler.checks_types else LEAF_TYPES
    # Null is left to the full way: `get` gives it for a missing member too.
    return _scalar_test(plan, types - {_NOTHING}, constants)


def _scalar_test(plan: NodePlan, types: frozenset[type], constants: Constants) -> str | None:
    rules = plan.rules
    if rules.pattern is not None:
        return _pattern_test(rules, types, constants)
    if rules.enum_map is not None:
        return _enum_test(rules, types, constants)
    tests = [_tolerance_test(rules, types, constants), _equality_test(plan, types), _text_test(rules, types, constants)]
    given = [f"({test})" for test in tests if test is not None]
    if not given:
        return None
    return " or ".join(given).replace("{types}", constants.add(types))


def _both_there(plan: NodePlan) -> str:
    there = "left is not None and right is not None"
    return f"{there} and left != '' and right != ''" if plan.compiler.drops_empty_strings else there


def _equality_test(plan: NodePlan, types: frozenset[type]) -> str | None:
    if not types:
        return None
    test = _SAME_TYPES.get(types, "type(left) in {types} and type(left) is type(right) and left == right")
    # Where an empty string can be a missing member, it is for the full way to say.
    if str not in types or not plan.compiler.drops_empty_strings:
        return test
    return f"{test} and left" if types == {str} else f"{test} and left != ''"


def _tolerance_test(rules: FieldRules, types: frozenset[type], constants: Constants) -> str | None:
    if rules.precision is None or float not in types:
        return None
    # Away from the edge doubles decide: up to this size their error is far below the rest of the precision.
    limit = float(rules.precision)
    low, near, least, far = map(constants.add, (-0.99 * limit, 0.99 * limit, -1e12 * limit, 1e12 * limit))
    return f"type(left) is float is type(right) and {low} < left - right < {near} and {least} < left < {far}"


def _text_test(rules: FieldRules, types: frozenset[type], constants: Constants) -> str | None:
    if str not in types:
        return None
    if rules.parse_time is not None:
        return None if rules.trim else f"{_TWO_TEXTS} and {constants.add(_times_agree(rules))}(left, right)"
    if not rules.trim and not rules.case_insensitive:
        return None
    lower = ".lower()" if rules.case_insensitive else ""
    strip = ".strip()" if rules.trim else ""
    return f"{_TWO_TEXTS} and left{strip}{lower} == right{strip}{lower}"


def _pattern_test(rules: FieldRules, types: frozenset[type], constants: Constants) -> str | None:
    match = rules.pattern.unlimited_match if rules.pattern is not None else None
    if match is None or rules.enum_map is not None or rules.trim or str not in types:
        return None
    name = constants.add(match)
    return f"{_TWO_TEXTS} and {name}(left) is not None and {name}(right) is not None"


def _enum_test(rules: FieldRules, types: frozenset[type], constants: Constants) -> str | None:
    has_more = rules.trim or rules.case_insensitive or rules.parse_time or rules.enum_map is None
    if has_more or str not in types:
        return None
    return f"{_TWO_TEXTS} and {constants.add(rules.enum_map)}.get(left, left) == right"


def _casts_agree(plan: NodePlan) -> Callable[[Any, Any], bool]:
    def agree(left: Any, right: Any) -> bool:
        try:
            before, after = scalar(plan, left, OLD), scalar(plan, right, NEW)
        except CastError:
            return False
        return type(before) is type(after) and type(before) in LEAF_TYPES and bool(before == after)

    return agree


def _times_agree(rules: FieldRules) -> Callable[[str, str], bool]:
    parse, tolerance = rules.parse_time, rules.tolerance or 0
    assert parse is not None

    def agree(left: str, right: str) -> bool:
        before, after = parse(left), parse(right)
        if before is None or after is None or before.is_aware != after.is_aware:
            return False
        return abs(before.nanoseconds - after.nanoseconds) <= tolerance

    return agree
