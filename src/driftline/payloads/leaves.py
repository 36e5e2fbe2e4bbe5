"""Scalars: the order of rules on one field is enum map > cast > trim/case > pattern > datetime > precision > equality.

`exists` and `ignore` are decided before a scalar gets here.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from driftline.payloads.casts import CastError
from driftline.payloads.datetimes import duration_text
from driftline.payloads.paths import Path
from driftline.payloads.patterns import PatternTimeoutError
from driftline.payloads.plan import Compare, NodePlan
from driftline.payloads.rules import FieldRules
from driftline.payloads.run import Run
from driftline.payloads.type_checks import admits, expectation, surely_admitted
from driftline.payloads.values import NEW, OLD, exact_difference, kind_of, plain_decimal, same_number, spelled
from driftline.payloads.views import scalar

# raw old, raw new, prepared old, prepared new, run, path
Judge = Callable[[Any, Any, Any, Any, Run, Path], None]

_EQUALITY_RULES = ("enum-map", "cast", "strategy", "case-insensitive", "trim-whitespace")


def quick_leaf(plan: NodePlan, compare: Compare) -> Compare:
    """`compare` behind short cuts for the scalars that rules most often let pass."""
    rules = plan.rules
    if rules.enum_map is not None or rules.cast is not None:
        return compare
    sure = surely_admitted(plan.node.types)
    if rules.precision is not None and float in sure:
        compare = _close_floats(rules.precision, compare)
    if (rules.trim or rules.case_insensitive) and not rules.pattern and not rules.parse_time and str in sure:
        compare = _alike_texts(rules, compare)
    return compare


def _close_floats(precision: Decimal, otherwise: Compare) -> Compare:
    """The quick way for two doubles whose distance is well within the precision."""
    limit = float(precision)

    def compare(old: Any, new: Any, run: Run, path: Path) -> None:
        # Away from the edge doubles decide; their error is below a few units in the last place.
        if type(old) is float and type(new) is float and abs(old - new) + (abs(old) + abs(new)) * 1e-15 < limit:
            run.checked += 1
        else:
            otherwise(old, new, run, path)

    return compare


def _alike_texts(rules: FieldRules, otherwise: Compare) -> Compare:
    """The quick way for two texts that are equal once trimmed and lower-cased."""
    trims, folds = rules.trim, rules.case_insensitive

    def compare(old: Any, new: Any, run: Run, path: Path) -> None:
        # Empty texts may stand for null; that is for the full way to say.
        if type(old) is str and type(new) is str and old and new:
            left, right = (old.strip(), new.strip()) if trims else (old, new)
            if left == right or (folds and left.lower() == right.lower()):
                run.checked += 1
                return
        otherwise(old, new, run, path)

    return compare


def leaf_comparer(plan: NodePlan) -> Compare:
    """Compares two values of which at least one is a scalar, by all rules."""
    judges = _judges(plan.rules)
    sure = surely_admitted(plan.node.types)
    is_prepared = plan.empty_as_null or plan.rules.enum_map is not None or plan.rules.cast is not None
    check = _type_check(plan)

    def compare(old: Any, new: Any, run: Run, path: Path) -> None:
        run.checked += 1
        left, right, chosen = old, new, judges
        if is_prepared:
            try:
                left, right = scalar(plan, old, OLD), scalar(plan, new, NEW)
            except CastError as error:
                _cast_failed(plan, error, run, path)
                chosen = _STRICT_JUDGES
        kind = kind_of(left)
        if kind != kind_of(right):
            run.check_nesting(old)
            run.check_nesting(new)
            run.error("TYPE_MISMATCH", path, old, new, f"Types differ: {kind} != {kind_of(right)}")
            return
        if check is not None and not (type(left) in sure and type(right) in sure):
            check(old, new, left, right, run, path)
        judge = chosen.get(kind)
        if judge is not None:
            judge(old, new, left, right, run, path)
        else:
            run.checked -= 1
            _compare_containers(plan, left, right, run, path)

    return compare


def _compare_containers(plan: NodePlan, left: Any, right: Any, run: Run, path: Path) -> None:
    """Containers that come out of an enum map, or are of a type of the caller's own."""
    if kind_of(left) in ("object", "array"):
        shape = dict if kind_of(left) == "object" else list
        plan.compiler.containers(plan, shape(left), shape(right), run, path)
    else:
        run.checked += 1
        if left != right:
            run.error("VALUE_MISMATCH", path, left, right, f"Values differ: {left} != {right}")


def _cast_failed(plan: NodePlan, error: CastError, run: Run, path: Path) -> None:
    run.warn("RULE_ERROR", path, f"The cast failed ({error}); the raw values are compared", plan.rules.text("cast"))


def _type_check(plan: NodePlan) -> Judge | None:
    types = plan.node.types
    # A cast says that the types vary.
    if types is None or plan.rules.cast is not None or not plan.compiler.checks_types:
        return None
    # Where null stands for a missing member or an empty string, it is not a wrong type.
    if plan.null_as_missing or plan.empty_as_null:
        types = types | {"null"}

    def check(old: Any, new: Any, left: Any, right: Any, run: Run, path: Path) -> None:
        wrong = [OLD] if not admits(types, left) and not admits(types, old) else []
        if not admits(types, right) and not admits(types, new):
            wrong.append(NEW)
        if wrong:
            run.schema_mismatch(path, old, new, wrong, expectation(plan.node.types or types))

    return check


def _judges(rules: FieldRules) -> dict[str, Judge]:
    equality = _equality_rule(rules)
    return {
        "string": _text_judge(rules, equality),
        "number": _equal_numbers(equality) if rules.precision is None else _precise(rules, rules.precision),
        "boolean": _equal(equality),
        "null": _nothing_to_judge,
    }


def _equality_rule(rules: FieldRules) -> str | None:
    return next((text for name in _EQUALITY_RULES if (text := rules.text(name)) is not None), None)


def _differ(run: Run, path: Path, old: Any, new: Any, rule: str | None) -> None:
    run.error("VALUE_MISMATCH", path, old, new, f"Values differ: {spelled(old)} != {spelled(new)}", rule)


def _nothing_to_judge(old: Any, new: Any, left: Any, right: Any, run: Run, path: Path) -> None:
    """Null equals null."""


def _equal(rule: str | None) -> Judge:
    def judge(old: Any, new: Any, left: Any, right: Any, run: Run, path: Path) -> None:
        if left != right:
            _differ(run, path, old, new, rule)

    return judge


def _equal_numbers(rule: str | None) -> Judge:
    def judge(old: Any, new: Any, left: Any, right: Any, run: Run, path: Path) -> None:
        if not same_number(left, right):
            _differ(run, path, old, new, rule)

    return judge


def _precise(rules: FieldRules, precision: Decimal) -> Judge:
    rule = rules.text("precision")

    def judge(old: Any, new: Any, left: Any, right: Any, run: Run, path: Path) -> None:
        difference = exact_difference(left, right)
        if difference > precision:
            shown, allowed = plain_decimal(difference), plain_decimal(precision)
            message = f"Value difference ({shown}) exceeds precision tolerance ({allowed})"
            run.error("PRECISION_EXCEEDED", path, old, new, message, rule)

    return judge


def _text_judge(rules: FieldRules, rule: str | None) -> Judge:
    if rules.pattern is not None:
        final = _pattern_judge(rules)
    elif rules.parse_time is not None:
        final = _time_judge(rules)
    elif rules.case_insensitive:
        final = _folding(_equal(rule))
    else:
        final = _equal(rule)
    return _trimming(final) if rules.trim else final


def _trimming(judge: Judge) -> Judge:
    return lambda old, new, left, right, run, path: judge(old, new, left.strip(), right.strip(), run, path)


def _folding(judge: Judge) -> Judge:
    return lambda old, new, left, right, run, path: judge(old, new, left.lower(), right.lower(), run, path)


def _pattern_judge(rules: FieldRules) -> Judge:
    pattern = rules.pattern
    assert pattern is not None
    rule = rules.text("pattern")

    def judge(old: Any, new: Any, left: str, right: str, run: Run, path: Path) -> None:
        try:
            wrong = [side for side, text in (("Old", left), ("New", right)) if not pattern.match(text)]
        except PatternTimeoutError:
            run.warn_once(pattern.text, path, "The pattern took too long; the field is compared strictly", rule)
            if old != new:
                _differ(run, path, old, new, None)
            return
        if wrong:
            verb = "does" if len(wrong) == 1 else "do"
            message = f"{' and '.join(wrong)} {verb} not match the pattern {pattern.text}"
            run.error("PATTERN_MISMATCH", path, old, new, message, rule)

    return judge


def _time_judge(rules: FieldRules) -> Judge:
    parse, tolerance = rules.parse_time, rules.tolerance
    assert parse is not None
    format_rule = rules.text("datetime-format") or rules.text("datetime-tolerance")

    def judge(old: Any, new: Any, left: str, right: str, run: Run, path: Path) -> None:
        if left == right:
            return
        before, after = parse(left), parse(right)
        if before is None or after is None:
            sides = [name for name, moment in (("Old", before), ("New", after)) if moment is None]
            run.warn("RULE_ERROR", path, f"{' and '.join(sides)} cannot be read as a date and time", format_rule)
            _differ(run, path, old, new, format_rule)
            return
        if before.is_aware != after.is_aware:
            naive = "New" if before.is_aware else "Old"
            run.warn("RULE_ERROR", path, f"{naive} has no time zone; it is taken as UTC", format_rule)
        span = abs(before.nanoseconds - after.nanoseconds)
        if tolerance is None and span:
            _differ(run, path, old, new, format_rule)
        elif tolerance is not None and span > tolerance:
            message = f"Time difference ({duration_text(span)}) exceeds tolerance ({duration_text(tolerance)})"
            run.error("DATETIME_EXCEEDED", path, old, new, message, rules.text("datetime-tolerance"))

    return judge


_STRICT_JUDGES = _judges(FieldRules())
