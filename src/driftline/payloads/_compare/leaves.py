"""Scalars: two values compared by the rules of their field, and tokens that find equal items in one pass.

`exists` and `ignore` are decided before a scalar gets here. Equal full tokens mean equal values. A coarse token leaves
out what a tolerance or a condition decides: equal items always have equal coarse tokens, and a comparison decides which
of those are really equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from driftline.payloads._compare.plan import Compare, NodePlan
from driftline.payloads._compare.report import Run
from driftline.payloads._compare.sides import arranged, is_absent, is_removed, members
from driftline.payloads._rules.scalars.meaning import STRICT
from driftline.payloads._rules.scalars.parts import Constants, Token, Verdict, scalar_token
from driftline.payloads._values.paths import NAMINGS, Path
from driftline.payloads._values.values import (
    LEAF_TYPES,
    MISSING,
    NEW,
    OLD,
    CastError,
    Json,
    Value,
    admits,
    expectation,
    kind_of,
    surely_admitted,
)

Tokenizer = Callable[[Any, Run], Token]
# raw old, raw new, prepared old, prepared new, run, path
_TypeCheck = Callable[[Any, Any, Any, Any, Run, Path], None]

_NO_TYPES: frozenset[type] = frozenset()
_ANYTHING = ("anything",)
# Values that are their own token: Python tells them apart by type, but for booleans and numbers.
_PLAIN: frozenset[type] = frozenset({str, int, float, type(None), type(MISSING)})


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
                run.warn("RULE_ERROR", path, message, _step_rule(plan))
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
            _report(verdict, old, new, run, path)

    return compare


def _step_rule(plan: NodePlan) -> str | None:
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

    Items with a partner are compared, which warns too.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            known = plan.new_name(name) if side == OLD else name
            warn_unreadable(plan.member(known), item, side, run, (path, known))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            warn_unreadable(plan.item(index), item, side, run, (path, index))
    elif plan.condition is None and not plan.choices:
        problem = plan.meaning.problem(value, side)
        if problem is not None:
            run.warn("RULE_ERROR", path, problem, _step_rule(plan) or plan.rules.text("datetime-tolerance"))


def fast_types(plan: NodePlan) -> frozenset[type]:
    """The scalar types for which identical values need no rule to match."""
    if not _is_decided(plan) or not plan.meaning.keeps_equal or plan.meaning.changes_type:
        return _NO_TYPES
    checked = plan.settings.checks_types and plan.rules.strategy != "exists"
    types = surely_admitted(plan.node.types) if checked else LEAF_TYPES
    return types - {type(None)} if plan.null_as_missing else types


def leaf_test(plan: NodePlan, constants: Constants) -> str | None:
    """The test for a member's values in generated code, or None where only the comparison can decide."""
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
    """Whether the plan alone decides what its scalars are compared by, and no trace is requested."""
    rules = plan.rules
    if plan.removed_by or plan.condition or plan.choices or rules.problems or rules.strategy == "ignore":
        return False
    if plan.settings.is_observed:
        return False
    return not (rules.texts and plan.settings.config.trace_rule_application)


# Tokens.
def tokenizer(plan: NodePlan, side: int, *, coarse: bool = False) -> Tokenizer:
    """The function that gives the tokens of a node's values; made once for each plan."""
    found = plan.tokenizers.get((side, coarse))
    if found is None:
        plan.tokenizers[side, coarse] = lambda value, run: plan.tokenizers[side, coarse](value, run)
        found = plan.tokenizers[side, coarse] = _new_tokenizer(plan, side, coarse)
    return found


def _new_tokenizer(plan: NodePlan, side: int, coarse: bool) -> Tokenizer:
    if plan.condition is not None or plan.choices:
        return (lambda value, run: _ANYTHING) if coarse else (lambda value, run: _raw_token(value))
    if plan.rules.strategy == "exists":
        return lambda value, run: _ANYTHING
    leaf = plan.meaning.tokens(side, coarse=coarse)
    array = _array_tokenizer(plan, side, coarse)
    object_: Tokenizer | None = None

    def token(value: Value, run: Run) -> Token:
        nonlocal object_
        if type(value) is dict:
            if object_ is None:
                object_ = _object_tokenizer(plan, side, coarse)
            return object_(value, run)
        return array(value, run) if type(value) is list else leaf(value)

    return token


def _raw_token(value: Value) -> Token:
    """The token of a value without rules."""
    if type(value) is dict:
        return ("object", frozenset((name, _raw_token(item)) for name, item in value.items()))
    if type(value) is list:
        return ("array", tuple(map(_raw_token, value)))
    return scalar_token(value)


def _object_tokenizer(plan: NodePlan, side: int, coarse: bool) -> Tokenizer:
    if coarse and plan.allow_new:
        return lambda value, run: ("object",)  # an item of New may have members that its partner does not have
    depends = any(plan.member(name).condition for name in plan.aliases.values())
    if plan.settings.located or depends or plan.naming in NAMINGS:
        return _general_object_tokenizer(plan, side, coarse)
    columns = [
        (name, _old_name(plan, name) if side == OLD else None, *_column(plan.member(name), side, coarse))
        for name in plan.node.properties
        if not is_removed(plan.member(name), side)
    ]
    removed = [name for name in plan.states[side].members if is_removed(plan.member(name), side)]
    known = {*plan.node.properties, *(plan.aliases if side == OLD else ()), *removed}

    def token(value: dict[str, Json], run: Run) -> Token:
        parts: list[Token] = ["object"]
        add, get = parts.append, value.get
        for name, alias, plain, column in columns:
            item = get(name, MISSING)
            if item is MISSING and alias is not None:
                item = get(alias, MISSING)
            add(item if type(item) in plain else column(item, run))
        if not value.keys() <= known:
            add(_other_members(plan, value, known, side, coarse, run))
        return tuple(parts)

    return token


def _column(plan: NodePlan, side: int, coarse: bool) -> tuple[frozenset[type], Tokenizer]:
    """The types of members that are their own tokens, and the tokenizer for the others."""
    inner, default = tokenizer(plan, side, coarse=coarse), plan.rules.default
    is_plain = plan.meaning.is_plain and not (plan.rules.strategy == "exists" or plan.condition or plan.choices)
    nothing = {type(None)} if plan.null_as_missing else set()
    if default is MISSING and not nothing:
        return (_PLAIN if is_plain else frozenset({type(MISSING)})), inner

    def column(item: Value, run: Run) -> Token:
        if item is MISSING or is_absent(plan, item):
            item = default
        return MISSING if item is MISSING else inner(item, run)

    return (_PLAIN - nothing - {type(MISSING)} if is_plain else frozenset()), column


def _other_members(
    plan: NodePlan, value: dict[str, Json], known: set[str], side: int, coarse: bool, run: Run
) -> frozenset[Token]:
    found = []
    for name, item in value.items():
        if name not in known:
            child = plan.member(name)
            if not is_removed(child, side) and not is_absent(child, item) and not (coarse and child.condition):
                found.append((name, tokenizer(child, side, coarse=coarse)(item, run)))
    return frozenset(found)


def _old_name(plan: NodePlan, name: str) -> str | None:
    return next((raw for raw, renamed in plan.aliases.items() if renamed == name), None)


def _general_object_tokenizer(plan: NodePlan, side: int, coarse: bool) -> Tokenizer:
    def token(value: dict[str, Json], run: Run) -> Token:
        found = [
            (name, tokenizer(child, side, coarse=coarse)(item, run))
            for name, item, child in members(plan, value, side, run)
            # A conditional member may be ignored for one partner and compared for another.
            if not (coarse and child.condition is not None)
        ]
        return ("object", frozenset(found))

    return token


def _array_tokenizer(plan: NodePlan, side: int, coarse: bool) -> Tokenizer:
    rules = plan.rules
    if coarse and (rules.ignore_extra or rules.ignore_missing or rules.subset):
        return lambda value, run: ("array",)
    keeps_order = rules.array_mode == "strict" and not rules.subset

    def token(value: list[Json], run: Run) -> Token:
        items = [
            tokenizer(plan.item(index), side, coarse=coarse)(item, run)
            for index, item in enumerate(arranged(plan, value, side, run))
        ]
        return ("array", tuple(items) if keeps_order else frozenset(Counter(items).items()))

    return token


def needs_pairwise(plan: NodePlan) -> bool:
    """Whether values with different full tokens can be equal here: a tolerance, a condition or a choice decides."""
    if plan.needs_pairwise is None:
        plan.needs_pairwise = False  # for a recursive schema, where the others decide
        plan.needs_pairwise = _needs_pairwise(plan)
    return plan.needs_pairwise


def _needs_pairwise(plan: NodePlan) -> bool:
    rules, node = plan.rules, plan.node
    if plan.condition is not None or plan.choices:
        return True
    if plan.meaning.needs_pairwise:
        return True
    if rules.ignore_extra or rules.ignore_missing or rules.subset or node.patterns or node.additional:
        return True
    children = [plan.member(name) for name in (*node.properties, *plan.states[OLD].members)]
    if plan.states[OLD].has_rules and (other := plan.other_member()) is not None:
        children.append(other)
    if node.items or plan.states[OLD].has_rules:
        children.append(plan.item())
    return bool(node.prefix_items) or any(map(needs_pairwise, children))


def pairwise_members(plan: NodePlan) -> int:
    """How many members of an object need a comparison in pairs."""
    if plan.pairwise_members is None:
        plan.pairwise_members = sum(
            needs_pairwise(plan.member(name)) for name in {*plan.node.properties, *plan.states[OLD].members}
        )
    return plan.pairwise_members
