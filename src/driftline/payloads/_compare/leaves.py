"""Values as hashable tokens, so that items which are equal under their rules can be found in one pass.

Equal full tokens mean equal values. A coarse token leaves out what a tolerance or a condition decides: equal items
always have equal coarse tokens, and a comparison tells which of those are really equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from driftline.payloads.plan import NodePlan
from driftline.payloads.run import Run
from driftline.payloads.scalars.parts import Token, scalar_token
from driftline.payloads.values import MISSING, OLD, Json, Value
from driftline.payloads.views import arranged, is_absent, members

Tokenizer = Callable[[Any, Run], Token]

_ANYTHING = ("anything",)
# Values that are their own token: Python tells them apart by type, but for booleans and numbers.
_PLAIN: frozenset[type] = frozenset({str, int, float, type(None), type(MISSING)})


def raw_token(value: Value) -> Token:
    """The token of a value without rules."""
    if type(value) is dict:
        return ("object", frozenset((name, raw_token(item)) for name, item in value.items()))
    if type(value) is list:
        return ("array", tuple(map(raw_token, value)))
    return scalar_token(value)


def tokenizer(plan: NodePlan, side: int, *, coarse: bool = False) -> Tokenizer:
    """The function that gives the tokens of a node's values; made once for each plan."""
    found = plan.tokenizers.get((side, coarse))
    if found is None:
        plan.tokenizers[side, coarse] = lambda value, run: plan.tokenizers[side, coarse](value, run)
        found = plan.tokenizers[side, coarse] = _made(plan, side, coarse)
    return found


def _made(plan: NodePlan, side: int, coarse: bool) -> Tokenizer:
    if plan.condition is not None or plan.choices:
        return (lambda value, run: _ANYTHING) if coarse else (lambda value, run: raw_token(value))
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


def _object_tokenizer(plan: NodePlan, side: int, coarse: bool) -> Tokenizer:
    if plan.settings.located or any(plan.member(name).condition for name in plan.aliases.values()):
        return _general_object_tokenizer(plan, side, coarse)
    columns = [
        (name, _old_name(plan, name) if side == OLD else None, *_column(plan.member(name), side, coarse))
        for name in plan.node.properties
        if not _is_gone(plan.member(name), side)
    ]
    gone = [name for name in plan.states[side].members if _is_gone(plan.member(name), side)]
    known = {*plan.node.properties, *(plan.aliases if side == OLD else ()), *gone}

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
            if not _is_gone(child, side) and not is_absent(child, item) and not (coarse and child.condition):
                found.append((name, tokenizer(child, side, coarse=coarse)(item, run)))
    return frozenset(found)


def _old_name(plan: NodePlan, name: str) -> str | None:
    return next((raw for raw, renamed in plan.aliases.items() if renamed == name), None)


def _is_gone(plan: NodePlan, side: int) -> bool:
    return plan.states[side].removed_by is not None or (plan.condition is None and plan.rules.strategy == "ignore")


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
        plan.needs_pairwise = False  # a recursive schema asks for itself: the others decide
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
    """How many members of an object are soft."""
    if plan.pairwise_members is None:
        plan.pairwise_members = sum(
            needs_pairwise(plan.member(name)) for name in {*plan.node.properties, *plan.states[OLD].members}
        )
    return plan.pairwise_members
