"""Suggested rules against planted bugs: what is accepted must not hide a difference that is not noise."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from driftline import payloads
from driftline.payloads._suggest.suggest import read_accepted, suggest

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
    plan = payloads.compile(payloads.apply_rules("", read_accepted(suggestions, [level])).after or "{}")
    return [number for number in scenario.bugs if plan.compare_values(*scenario.pairs[number]).is_match]


@pytest.mark.parametrize("scenario", QUIET + NOISY, ids=lambda scenario: scenario.__name__)
def test_rules_that_preserve_every_value_hide_no_bug(scenario: Callable[[random.Random], Scenario]) -> None:
    made = scenario(random.Random(1))
    assert len(made.bugs) >= 5
    assert hidden(made, "preserving") == []


@pytest.mark.parametrize("scenario", QUIET + NOISY, ids=lambda scenario: scenario.__name__)
def test_rules_that_are_sure_hide_no_bug(scenario: Callable[[random.Random], Scenario]) -> None:
    made = scenario(random.Random(1))
    assert len(made.bugs) >= 5
    assert hidden(made, "sure") == []


def _live(number: int, source: random.Random, shape: random.Random) -> Document:
    """A document of a shape: lists with or without a key, members that are noise, and quiet ones."""
    names = ["qty", "net", "unit", "label"][: shape.randint(1, 4)]
    rows = [
        {name: source.choice(["kg", "l"]) if name == "unit" else source.randint(1, 10**4) for name in names}
        for _ in range(shape.randint(2, 5))
    ]
    key = shape.choice(["sku", "rank", None])
    for place, row in enumerate(rows):
        if key is not None:
            row[key] = f"S{number}-{source.randint(0, 10**6)}" if key == "sku" else place
    return {"id": number, "state": source.choice(["new", "paid"]), "total": source.randint(1, 10**5), "rows": rows}


def _asked_again(document: Document, noise: Callable[[Document], None]) -> Document:
    document = copy.deepcopy(document)
    noise(document)
    return document


def _noise_of(shape: random.Random, source: random.Random) -> Callable[[Document], None]:
    """What differs each time a version is asked: the order, rows that come and go, a clock, a rare counter."""
    is_shuffled, is_live, has_clock = (shape.random() < 0.6 for _ in range(3))
    share = shape.choice([0.03, 0.3, 1.0])

    def noise(document: Document) -> None:
        if has_clock:
            for row in document["rows"]:
                row["seen"] = source.randint(0, 10**9)
        document["served"] = source.randint(0, 10**6) if source.random() < share else 0
        if is_live and source.random() < 0.2:
            document["rows"].insert(0, {**document["rows"][0], "qty": source.randint(1, 10**4)})
            if "rank" in document["rows"][0]:
                for place, row in enumerate(document["rows"]):
                    row["rank"] = place
            elif "sku" in document["rows"][0]:
                document["rows"][0]["sku"] = f"S-{source.randint(0, 10**6)}"
        if is_shuffled:
            source.shuffle(document["rows"])

    return noise


_PLANTED: dict[str, Callable[[Document], None]] = {
    "total": lambda new: new.update(total=new["total"] + 7),
    "state": lambda new: new.update(state="lost"),
    "qty": lambda new: new["rows"][-1].update(qty=new["rows"][-1]["qty"] + 3),
    "row": lambda new: new["rows"].pop(),
    "member": lambda new: new.pop("state"),
}


@pytest.mark.parametrize("seed", range(15))
def test_sure_rules_hide_no_bug_in_what_old_never_changes(seed: int) -> None:
    shape, source = random.Random(seed), random.Random(seed + 1000)
    noise = _noise_of(shape, source)
    plant, share = _PLANTED[list(_PLANTED)[seed % len(_PLANTED)]], shape.uniform(0.01, 0.06)
    pairs, again, bugs = [], [], []
    for number in range(120):
        document = _live(number, source, random.Random(seed))
        again.append((_asked_again(document, noise), _asked_again(document, noise)))
        old = _asked_again(document, noise)
        if source.random() < share:
            plant(document)
            bugs.append(number)
        pairs.append((old, _asked_again(document, noise)))
    assert hidden(Scenario(pairs, again, bugs), "sure") == []


def test_a_sure_noise_rule_says_what_share_it_can_hide() -> None:
    source = random.Random(3)
    pairs = [({"n": number, "at": source.random()}, {"n": number, "at": source.random()}) for number in range(50)]
    again = [
        (old, {**old, "at": source.random() if number < 20 else old["at"]}) for number, (old, _) in enumerate(pairs)
    ]
    (rare,) = suggest(pairs, again)
    assert (rare.level, rare.rule) == ("review", {"strategy": "exists"})
    assert "Old differs from itself in 20 of 50 old-old pairs, New from Old in 50 of 50" in rare.why
    (sure,) = suggest(pairs, pairs)
    assert sure.level == "sure"
    assert sure.hides.endswith("a fault here in up to 100.0 % of pairs looks like the noise of Old")


def test_rare_differences_and_dropped_members_are_findings() -> None:
    pairs = [
        ({"n": n, "tax": 0, "x": 1}, {"n": n, "tax": int(n in (3, 9)), **({"x": 1} if n != 5 else {})})
        for n in range(90)
    ]
    found = {one.path: (one.level, one.why) for one in suggest(pairs)}
    assert found == {
        "$.tax": (
            "finding",
            "differs without a pattern in 2 of 90 pairs; old-old pairs would tell whether it is noise",
        ),
        "$.x": ("finding", "missing once"),
    }


def test_pairs_are_counted_not_places() -> None:
    source = random.Random(4)
    answer = lambda: {"rows": [{"id": n, "at": source.random()} for n in range(5)]}  # noqa: E731
    pairs = [(answer(), answer()) for _ in range(20)]
    (rule,) = suggest(pairs, [(answer(), answer()) for _ in range(10)])
    assert rule.why == "Old differs from itself in 10 of 10 old-old pairs, New from Old in 20 of 20 pairs"
