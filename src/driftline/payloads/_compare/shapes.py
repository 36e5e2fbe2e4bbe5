"""Objects of a shape that came by before: a generated function that says at once whether two of them match.

Its text is made of fixed lines and numbers; names and values of the schema are only ever constants in its namespace. It
knows nothing but surely matching members of one shape. All else is left to the walk, which decides everything that
needs an entry in the report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from driftline.payloads._compare.leaves import is_decided, is_ignored, sure_types
from driftline.payloads._compare.plan import Match, NodePlan
from driftline.payloads._compare.report import Run
from driftline.payloads._compare.sides import has_plain_names
from driftline.payloads._values.values import Json, union_leaf_count

# Checked leaves, and ignored leaves times `IGNORED_LEAF`, of two objects that surely match; or -1.
Tally = Callable[[dict[str, Json], dict[str, Json]], int]

OBJECTS_BEFORE_CODE = 16  # generating a function takes as long as comparing some dozens of objects
MAX_ATTEMPTS = 32  # at a function for objects that have none yet
MAX_MEMBERS = 200
NESTED_LEVELS = 2  # objects inside objects that are matched along
IGNORED_LEAF = 1 << 32

_FUNCTION = """
def tally(old, new):
    if not len(old) == {count} == len(new):
        return -1
    leaves = {leaves}
{members}
    return leaves
"""
_MEMBER = """
    left = old[{old_name}]
    right = new[{name}]
"""
_LEAF = """
    if not ({test}):
        return -1
"""
_NESTED = """
    if not (type(left) is dict is type(right) and (below := {tally}(left, right)) >= 0):
        return -1
    leaves += below
"""
_IGNORED = """
    leaves += {one} if type(left) is str is type(right) else {one} * union_leaf_count(left, right)
"""


def shape_match(plan: NodePlan) -> Match | None:
    """A function that counts two objects where they surely match, and says whether it did; None where it never could.

    It counts no levels, so that it leaves objects near the limit of the depth to the walk.
    """
    if not _is_plain_object(plan):
        return None
    known: dict[tuple[str, ...], Tally] = {}
    seen = 0
    quick_depth = plan.settings.config.max_depth - NESTED_LEVELS

    def match(old: dict[str, Json], new: dict[str, Json], run: Run) -> bool:
        nonlocal seen
        if run.depth >= quick_depth:
            return False
        shape = tuple(old)
        found = known.get(shape)
        if found is None:
            seen += 1
            if not OBJECTS_BEFORE_CODE < seen <= OBJECTS_BEFORE_CODE + MAX_ATTEMPTS:
                return False
            found = _generated(plan, old, NESTED_LEVELS)
            if found is None:
                return False
            known[shape] = found
        try:
            tally = found(old, new)
        except KeyError:
            return False
        if tally < 0:
            return False
        run.checked += tally % IGNORED_LEAF
        run.ignored += tally // IGNORED_LEAF
        return True

    return match


def _is_plain_object(plan: NodePlan) -> bool:
    """Whether objects are compared member by member here, and nothing else is reported."""
    types, rules = plan.node.types, plan.rules
    if not is_decided(plan) or rules.cast or rules.strategy == "exists" or plan.settings.config.trace_rule_application:
        return False
    if not has_plain_names(plan):
        return False
    return types is None or "object" in types or not plan.settings.checks_types


def _generated(plan: NodePlan, sample: dict[str, Json], levels: int) -> Tally | None:
    """The function for objects with the members of a sample."""
    names = [plan.aliases.get(raw, raw) for raw in sample]
    required = plan.node.required if plan.settings.checks_types else ()
    if not 0 < len(set(names)) == len(sample) <= MAX_MEMBERS or not set(names).issuperset(required):
        return None
    # A dict and no subclass: the interpreter looks up globals quickly only there.
    constants: dict[str, Any] = {"union_leaf_count": union_leaf_count}
    members: list[str] = []
    leaves = 0
    for (raw, value), name in zip(sample.items(), names, strict=True):
        child = plan.member(name)
        lines = _IGNORED.format(one=IGNORED_LEAF) if is_ignored(child) else None
        if lines is None and type(value) is dict and levels and _is_plain_object(child):
            nested = _generated(child, value, levels - 1)
            lines = None if nested is None else _NESTED.format(tally=_constant(constants, nested))
        elif lines is None and (test := _leaf_test(child, value, constants)) is not None:
            lines, leaves = _LEAF.format(test=test), leaves + 1
        if lines is None:
            return None
        members += _MEMBER.format(old_name=_constant(constants, raw), name=_constant(constants, name)), lines
    source = _FUNCTION.format(count=len(sample), leaves=leaves, members="".join(members))
    exec(compile(source, "<driftline match>", "exec"), constants)  # noqa: S102 - fixed lines, see above
    tally: Tally = constants["tally"]
    return tally


def _constant(constants: dict[str, Any], value: object) -> str:
    name = f"c{len(constants)}"
    constants[name] = value
    return name


def _leaf_test(plan: NodePlan, sample: Json, constants: dict[str, Any]) -> str | None:
    """An expression that is true only where two values surely match; None where only the comparison can decide."""
    if not is_decided(plan):
        return None
    # Null is left to the comparison, and so is an empty string where it can be a missing member.
    drops_empty = plan.settings.drops_empty_strings
    if plan.rules.strategy == "exists":
        return "left is not None is not right" + (" and left != '' != right" if drops_empty else "")
    meaning, types = plan.meaning, sure_types(plan) - {type(None)}
    if type(sample) not in types:
        return None
    held, tests = _constant(constants, types), []
    if meaning.keeps_equal:
        kind = "type(left) is str" if types == {str} else f"type(left) in {held} and type(left) is type(right)"
        empty = " and left != ''" if drops_empty and str in types else ""
        tests.append(f"{kind} and left == right{empty}")
    if meaning.quick_text is not None and str in types:
        text = _constant(constants, meaning.quick_text)
        tests.append(f"type(left) is str is type(right) and left != '' != right and {text}(left) == {text}(right)")
    if meaning.near is not None and float in types:
        distance = (
            "abs(left - right) + (abs(left) + abs(right)) * 1e-15"  # the error of doubles is below the second part
        )
        tests.append(f"type(left) is float is type(right) and {distance} < {_constant(constants, meaning.near)}")
    if not meaning.is_plain:
        empty = " and left != '' != right" if drops_empty else ""
        agree = _constant(constants, meaning.agree)
        tests.append(f"type(left) in {held} and type(right) in {held}{empty} and {agree}(left, right)")
    return " or ".join(tests) or None
