"""Rows of one key under `duplicates = match`: linear without a tolerance, bounded with one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import driftline
from driftline.errors import TableError
from driftline.tables import _engines, _reference

SIZES = pytest.mark.parametrize("small_bytes", [0, 1 << 30], ids=["columns", "rows"])


def write(path: Path, values: list[int]) -> Path:
    path.write_text("k,v\n" + "".join(f"1,{value}\n" for value in values))
    return path


@SIZES
def test_rows_without_a_partner_are_not_compared_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(_engines, "SMALL_BYTES", small_bytes)
    monkeypatch.setattr(_reference, "MOST_COMPARISONS", -1)  # a single comparison would be refused
    a, b = write(tmp_path / "a.csv", list(range(0, 600, 2))), write(tmp_path / "b.csv", list(range(0, 900, 3)))
    found = driftline.diff(a, b, key=["k"], duplicates="match")
    assert (found.counts["changed"], found.counts["unchanged"]) == (200, 100)


@SIZES
def test_under_a_tolerance_the_cost_is_bounded_and_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(_engines, "SMALL_BYTES", small_bytes)
    a, b = write(tmp_path / "a.csv", list(range(0, 60, 2))), write(tmp_path / "b.csv", list(range(1000, 1030)))
    rules = {"key": ["k"], "duplicates": "match", "tolerance": {"v": "0.5"}}
    assert driftline.diff(a, b, **rules).counts["changed"] == 30
    monkeypatch.setattr(_reference, "MOST_COMPARISONS", 800)
    with pytest.raises(TableError, match="30 rows of A and 30 of B have one key and differ") as caught:
        driftline.diff(a, b, **rules)
    assert caught.value.code == "too_many_duplicates"


def test_partners_are_those_of_the_plain_rule() -> None:
    chance = random.Random(1)

    class Row:
        def __init__(self, number: int) -> None:
            self.number, self.forms = number, (chance.randrange(12),)

    for _ in range(50):
        a, b = ([Row(n) for n in range(chance.randrange(9))] for _ in range(2))

        def near(one: Row, other: Row) -> bool:
            return abs(one.forms[0] - other.forms[0]) <= 1

        left = list(b)
        partner: dict[int, Row] = {}
        for rule in (lambda x, y: x.forms == y.forms, near, lambda x, y: True):
            for row in a:
                found = next((other for other in left if rule(row, other)), None) if row.number not in partner else None
                if found is not None:
                    partner[row.number] = found
                    left.remove(found)
        expected = [(row, partner.get(row.number)) for row in a] + [(None, row) for row in left]
        assert list(_reference.match_similar(a, b, near)) == (expected or [(None, None)])
