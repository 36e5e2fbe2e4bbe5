"""Unordered arrays under tolerances: the pairing is the best there is, held against trying everything."""

import itertools
import json
import random
from pathlib import Path

import pytest

from driftline import payloads
from driftline.payloads import compare
from driftline.payloads._compare.pairing import smallest_maximum

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "payload-beyond.json").read_text())
CASES = [case for case in VECTORS if case["area"] == "pairing"]


def brute_force(edges, count):
    """Old -> New with the most pairs; of those the smallest, where no partner comes last."""
    best = None
    for size in range(min(len(edges), count), -1, -1):
        for lefts in itertools.combinations(range(len(edges)), size):
            for rights in itertools.permutations(range(count), size):
                if all(right in edges[left] for left, right in zip(lefts, rights, strict=True)):
                    found = dict(zip(lefts, rights, strict=True))
                    key = [found.get(left, count) for left in range(len(edges))]
                    best = key if best is None else min(best, key)
        if best is not None:
            return [None if right == count else right for right in best]
    return None


def test_the_matching_is_the_smallest_of_the_largest():
    dice = random.Random(7)
    for _ in range(1500):
        lefts, rights, share = dice.randint(0, 5), dice.randint(0, 5), dice.random()
        edges = [[right for right in range(rights) if dice.random() < share] for _ in range(lefts)]
        assert smallest_maximum(edges) == brute_force(edges, rights), edges


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_vectors(case):
    from driftline.payloads._compare.pairing import _pair_tolerant
    from driftline.payloads._compare.report import Run
    from driftline.payloads._values.limits import Deadline

    expect = case["expect"]
    assert compare(case["old"], case["new"], case["schema"]).is_match == expect["is_match"]
    plan = payloads.compile(case["schema"])
    run = Run(plan.config, plan._plans.root, (case["old"], case["new"]), Deadline(60, "the test"))
    items = [dict(enumerate(case[side])) for side in ("old", "new")]
    found = _pair_tolerant(plan._plans.root, *items, run, None)
    assert sorted([left, right] for left, right in found.items()) == expect["matching_pairs"]


RULES = [
    {"x-migration-precision": 1},
    {"x-migration-precision": 0.5, "x-migration-cast": "float"},
    {"x-migration-datetime-tolerance": "2s"},
]


def value(dice, kind, side):
    number = dice.randint(0, 6) / 2
    if kind == 1:
        return str(number) if side else number
    return f"2025-01-01T00:00:0{int(number)}Z" if kind == 2 else number


def item(dice, kinds, side):
    if len(kinds) == 1 and kinds[0] < 3:
        return value(dice, kinds[0], side)
    names = [("f0", "old_f0")[side == 0], "f1", "f2"]
    return {names[number]: value(dice, kind % 3, side) for number, kind in enumerate(kinds)} | {"h": dice.choice("xy")}


def schema_of(kinds):
    if len(kinds) == 1 and kinds[0] < 3:
        items = RULES[kinds[0]]
    else:
        items = {"properties": {f"f{n}": dict(RULES[kind % 3]) for n, kind in enumerate(kinds)} | {"h": {}}}
        items["properties"]["f0"]["x-migration-alias"] = "old_f0"
    return {"type": "array", "x-migration-array-mode": "unordered", "items": items}


@pytest.mark.parametrize("kinds", [(0,), (1,), (2,), (3,), (0, 1), (1, 2), (0, 0, 2)], ids=str)
def test_a_match_is_found_exactly_where_there_is_one(kinds):
    dice = random.Random(str(kinds))
    schema = schema_of(kinds)
    single = payloads.compile(schema["items"])
    for _ in range(120):
        old = [item(dice, kinds, 0) for _ in range(dice.randint(0, 5))]
        new = [item(dice, kinds, 1) for _ in range(dice.choice([len(old), len(old), dice.randint(0, 5)]))]
        edges = [[n for n, right in enumerate(new) if single.compare_values(left, right).is_match] for left in old]
        best = brute_force(edges, len(new))
        report = compare(old, new, schema)
        whole = len(old) == len(new) and None not in best
        assert report.is_match == whole, (old, new)
        if isinstance((old or [0])[0], int | float | str):
            lost = sum(entry.type == "ARRAY_ITEM_MISSING" for entry in report.diffs)
            assert lost == best.count(None), (old, new)


def test_casts_and_reversed_order():
    schema = {
        "x-migration-array-mode": "unordered",
        "items": {"x-migration-cast": "float", "x-migration-precision": 0.5},
    }
    old = [str(number * 3) for number in range(50)]
    new = [number * 3 + 0.25 for number in reversed(range(50))]
    assert compare(old, new, schema).is_match


def test_long_arrays_and_dense_ones():
    dice = random.Random(3)
    schema = {"x-migration-array-mode": "unordered", "items": {"x-migration-precision": 0.01}}
    old = [round(dice.uniform(0, 4000), 4) for _ in range(4000)]
    new = [round(number + dice.uniform(-0.009, 0.009), 4) for number in old]
    dice.shuffle(new)
    report = compare(old, new, schema)
    assert report.is_match
    assert report.warnings == []
    dense = [dice.randint(0, 3) / 4 for _ in range(3000)]
    report = compare(dense, dense[::-1], {**schema, "items": {"x-migration-precision": 5}})
    assert report.is_match
    assert [entry.message for entry in report.warnings] == [
        "Too many items may match one another to try them all; they were paired along one field"
    ]


@pytest.mark.parametrize(
    ("rule", "old", "new", "warnings"),
    [
        ({"x-migration-cast": "float"}, ["x"], ["y"], 2),
        ({"x-migration-cast": "float"}, ["1", "x"], ["x", 1], 1),
        ({"x-migration-datetime-tolerance": "1s"}, ["soon"], ["later"], 2),
        ({"x-migration-datetime-tolerance": "1s"}, ["soon"], ["soon"], 0),
    ],
)
def test_values_that_cannot_be_read_are_told_of(rule, old, new, warnings):
    report = compare(old, new, {"x-migration-array-mode": "unordered", "items": rule})
    assert [entry.type for entry in report.warnings] == ["RULE_ERROR"] * warnings
