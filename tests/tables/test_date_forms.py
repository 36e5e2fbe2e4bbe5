"""Dates that the two sides write differently: a form for each side, the same result on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest

import driftline as dl
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import DriftlineError

OLD = "id,day\n1,2012/01/01\n2,2012/01/02\n3,2012/01/03\n"
NEW = "id,day\n1,01.01.2012\n2,02.01.2012\n3,04.01.2012\n"
BY_HAND = "id,day\n1,2012/01/01\n2,2012/01/02\n3,2012/01/04\n"  # NEW as OLD writes dates
FORMS = {"types_a": {"day": "date:%Y/%m/%d"}, "types_b": {"day": "date:%d.%m.%Y"}}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, text in (("a", OLD), ("b", NEW), ("c", BY_HAND)):
        (tmp_path / f"{name}.csv").write_text(text)
    return [str(tmp_path / f"{name}.csv") for name in "abc"]


def changes(result: dl.Diff) -> list:
    return [(event["type"], event["key"]) for event in result.changes()]


@pytest.mark.parametrize("engine", ["local", "vectorized"])
@pytest.mark.parametrize("key", [["id"], ["day"], ["id", "day"]])
def test_each_side_has_its_form(files: list[str], engine: str, key: list[str]) -> None:
    a, b, c = files
    found = dl.diff(a, b, key=key, engine=engine, **FORMS)
    by_hand = dl.diff(a, c, key=key)
    assert found.counts == by_hand.counts
    if key == ["id"]:
        assert changes(found) == changes(by_hand) == [("changed", {"id": "3"})]
    same = dl.diff(a, b, key=key, engine="vectorized" if engine == "local" else "local", **FORMS)
    assert list(found.lines()) == list(same.lines())


def test_one_side_is_declared_and_the_other_is_iso(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id":1,"day":"2012-01-31"}\n{"id":2,"day":"2012-02-01"}\n')
    (tmp_path / "b.csv").write_text("id,day\n1,31/01/2012\n2,02/01/2012\n")
    files = tmp_path / "a.jsonl", tmp_path / "b.csv"
    assert changes(dl.diff(*files, key="id", types_b={"day": "date:%d/%m/%Y"})) == [("changed", {"id": 2})]


def test_settings_of_a_side_are_added_to_those_of_both(files: list[str]) -> None:
    a, b, _ = files
    rules = {"types": {"id": "number", "day": "date:%Y/%m/%d"}, "types_b": {"day": "date:%d.%m.%Y"}}
    assert dl.diff(a, b, key="id", **rules).counts["changed"] == 1
    limit = dl.diff(a, b, key="id", **rules, tolerance={"day": "1d"})
    assert limit.counts["changed"] == 0


def test_the_command_and_a_rules_file(files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a, b, _ = files
    expected = b"".join(dl.diff(a, b, key="id", **FORMS).lines()).decode()
    flags = ["--as-a", "day=date:%Y/%m/%d", "--as-b", "day=date:%d.%m.%Y"]
    assert run(driftline, ["diff", a, b, "--key", "id", *flags]) == 1
    assert capfd.readouterr().out == expected
    (tmp_path / "rules.toml").write_text('[as_a]\nday = "date:%Y/%m/%d"\n[as_b]\nday = "date:%d.%m.%Y"\n')
    assert run(driftline, ["diff", a, b, "--key", "id", "--rules", str(tmp_path / "rules.toml")]) == 1
    assert capfd.readouterr().out == expected
    assert run(driftline, ["diff", a, b, "--key", "id", *flags, "--explain"]) == 0
    assert "as day date:%Y/%m/%d (A) · as day date:%d.%m.%Y (B)" in capfd.readouterr().out


def test_two_kinds_of_one_column_are_refused(files: list[str]) -> None:
    a, b, _ = files
    with pytest.raises(DriftlineError, match=r'"day" is date in A and number in B') as raised:
        dl.diff(a, b, key="id", types_a={"day": "date"}, types_b={"day": "number"})
    assert raised.value.code == "invalid_option_combination"
    with pytest.raises(DriftlineError, match="for all versions alike"):
        dl.merge(a, a, b, key="id", **FORMS)
