"""Values as hashable tokens, so that items which are equal under their rules can be found in one pass.

Equal full tokens mean equal values. A coarse token leaves out what a tolerance or a condition decides: equal items
always have equal coarse tokens, and a comparison tells which of those are really equal.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from driftline.payloads.patterns import PatternTimeoutError
from driftline.payloads.plan import NodePlan
from driftline.payloads.run import Run
from driftline.payloads.values import WrittenNumber, decimal_of
from driftline.payloads.views import arranged, members, scalar_or_raw

_ANYTHING = ("anything",)


def scalar_token(value: Any) -> Any:
    """A token that tells JSON types apart: 1 and 1.0 are equal, 1 and true are not."""
    if type(value) is bool:
        return ("boolean", value)
    return decimal_of(value) if isinstance(value, WrittenNumber) else value


def raw_token(value: Any) -> Any:
    """The token of a value without rules."""
    if type(value) is dict:
        return ("object", frozenset((name, raw_token(item)) for name, item in value.items()))
    if type(value) is list:
        return ("array", tuple(map(raw_token, value)))
    return scalar_token(value)


def token(plan: NodePlan, value: Any, side: int, run: Run, *, coarse: bool = False) -> Any:
    """The token of a value under the rules of its plan."""
    if plan.condition is not None or plan.choices:
        return _ANYTHING if coarse else raw_token(value)
    if plan.rules.strategy == "exists":
        return _ANYTHING
    if type(value) is dict:
        return _object_token(plan, value, side, run, coarse)
    if type(value) is list:
        return _array_token(plan, value, side, run, coarse)
    return _leaf_token(plan, value, side, coarse)


def _object_token(plan: NodePlan, value: dict[str, Any], side: int, run: Run, coarse: bool) -> Any:
    found = []
    for name, item, child in members(plan, value, side, run):
        if coarse and child.condition is not None:
            continue  # it may be ignored for one partner and compared for another
        found.append((name, token(child, item, side, run, coarse=coarse)))
    return ("object", frozenset(found))


def _array_token(plan: NodePlan, value: list[Any], side: int, run: Run, coarse: bool) -> Any:
    rules = plan.rules
    if coarse and (rules.ignore_extra or rules.ignore_missing or rules.subset):
        return ("array",)
    items = [
        token(plan.item(index), item, side, run, coarse=coarse)
        for index, item in enumerate(arranged(plan, value, side, run))
    ]
    if rules.array_mode == "strict" and not rules.subset:
        return ("array", tuple(items))
    return ("array", frozenset(Counter(items).items()))


def _leaf_token(plan: NodePlan, value: Any, side: int, coarse: bool) -> Any:
    rules = plan.rules
    value = scalar_or_raw(plan, value, side)
    if isinstance(value, str):
        return _text_token(plan, value, coarse)
    if coarse and rules.precision is not None and isinstance(value, int | float) and type(value) is not bool:
        return ("number",)
    return scalar_token(value)


def _text_token(plan: NodePlan, text: str, coarse: bool) -> Any:
    rules = plan.rules
    if rules.trim:
        text = text.strip()
    if rules.pattern is not None:
        if coarse:
            return ("string",)
        try:
            return ("pattern",) if rules.pattern.match(text) else text
        except PatternTimeoutError:
            return text
    if rules.parse_time is not None:
        if coarse:
            return ("string",)
        moment = rules.parse_time(text)
        return text if moment is None else ("moment", moment.nanoseconds)
    return text.lower() if rules.case_insensitive else text
