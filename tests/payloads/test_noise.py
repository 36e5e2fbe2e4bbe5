"""Suggested rules against planted bugs: what is accepted must not hide a difference that is not noise."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from driftline import payloads
from driftline.payloads._batch.suggest import read_accepted, schema_of, suggest

PAIRS = 300
Document = dict[str, Any]


class Scenario(NamedTuple):
    """Pairs of old and new answers, pairs of two old answers, and the numbers of the pairs with a planted bug."""

    pairs: list[tuple[Document, Document]]
    again: list[tuple[Document, Document]]
    bugs: list[int]


def _order(number: int, source: random.Random) -> Document:
    rows = [
        {"sku": f"S{sku}", "qty": source.randint(1, 99), "price": round(source.uniform(1, 99), 2)}
        for sku in source.sample(range(1000), 4)
    ]
    return {"id": f"o{number}", "rows": rows, "tags": source.sample("abcdefgh", 4)}


def _shuffled(document: Document, source: random.Random) -> Document:
    document = copy.deepcopy(document)
    source.shuffle(document["rows"])
    source.shuffle(document["tags"])
    return document


def _orders(source: random.Random, plant: Callable[[Document], None], *, shuffle: bool) -> Scenario:
    """Orders of which one in twenty has a bug in the new answer."""
    pairs, bugs = [], []
    for number in range(PAIRS):
        old = _order(number, source)
        new = _shuffled(old, source) if shuffle else copy.deepcopy(old)
        if source.random() < 0.05:
            plant(new)
            bugs.append(number)
        pairs.append((old, new))
    return Scenario(pairs, [], bugs)


def _wrong_quantity(new: Document) -> None:
    new["rows"][0]["qty"] += 1


def _lost_row(new: Document) -> None:
    new["rows"].pop()


def _wrong_price(new: Document) -> None:
    new["rows"][0]["price"] += 1


def wrong_quantities(source: random.Random) -> Scenario:
    return _orders(source, _wrong_quantity, shuffle=True)


def wrong_quantities_among_shuffled_rows(source: random.Random) -> Scenario:
    found = wrong_quantities(source)
    return found._replace(again=[(old, _shuffled(old, source)) for old, _ in found.pairs[:100]])


def wrong_quantities_where_only_old_answers_are_shuffled(source: random.Random) -> Scenario:
    found = _orders(source, _wrong_quantity, shuffle=False)
    return found._replace(again=[(old, _shuffled(old, source)) for old, _ in found.pairs[:100]])


def lost_rows(source: random.Random) -> Scenario:
    return _orders(source, _lost_row, shuffle=True)


def a_field_that_is_rarely_noisy_and_always_wrong(source: random.Random) -> Scenario:
    pairs = []
    for number in range(PAIRS):
        stock = source.randint(1, 10_000)
        pairs.append(({"id": number, "stock": stock}, {"id": number, "stock": stock * 3 + source.randint(7, 10**5)}))
    again = [(old, {**old, "stock": old["stock"] - (number % 100 == 0)}) for number, (old, _) in enumerate(pairs)]
    return Scenario(pairs, again, list(range(PAIRS)))


def wrong_prices_in_a_list_that_grows(source: random.Random) -> Scenario:
    found = _orders(source, _wrong_price, shuffle=False)
    again = []
    for old, _ in found.pairs[:100]:
        new = copy.deepcopy(old)
        if source.random() < 0.1:
            new["rows"].insert(0, {"sku": f"S{source.random()}", "qty": 1, "price": 2.0})
        again.append((old, new))
    return found._replace(again=again)


QUIET = (wrong_quantities, lost_rows)
NOISY = (
    wrong_quantities_among_shuffled_rows,
    wrong_quantities_where_only_old_answers_are_shuffled,
    a_field_that_is_rarely_noisy_and_always_wrong,
    wrong_prices_in_a_list_that_grows,
)


def hidden(scenario: Scenario, level: str) -> list[int]:
    """The planted bugs that compare as equal once the suggestions of a level are accepted."""
    suggestions = suggest(scenario.pairs, scenario.again)
    plan = payloads.compile(schema_of(read_accepted(suggestions, [level])))
    return [number for number in scenario.bugs if plan.compare_values(*scenario.pairs[number]).is_match]


@pytest.mark.parametrize("scenario", QUIET + NOISY, ids=lambda scenario: scenario.__name__)
def test_rules_that_preserve_every_value_hide_no_bug(scenario: Callable[[random.Random], Scenario]) -> None:
    made = scenario(random.Random(1))
    assert len(made.bugs) >= 5
    assert hidden(made, "preserving") == []


@pytest.mark.parametrize("scenario", QUIET, ids=lambda scenario: scenario.__name__)
def test_rules_that_are_sure_hide_no_bug_where_nothing_is_noisy(scenario: Callable[[random.Random], Scenario]) -> None:
    made = scenario(random.Random(1))
    assert len(made.bugs) >= 5
    assert hidden(made, "sure") == []
