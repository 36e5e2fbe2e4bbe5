"""The runner of conformance cases itself; the cases are run by tests/engines/test_tables.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.table_conformance import find_fixtures, run_fixture

FIXTURES = Path(__file__).parents[1] / "conformance" / "tables"


def test_there_are_enough_fixtures() -> None:
    assert len(find_fixtures(FIXTURES)) >= 60


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda lines: lines[:-1], "expected 4 events, got 5"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "event 2: expected"),
        (lambda lines: [*lines[:-1], lines[-1].replace('"rows_added":1', '"rows_added":2')], "event 5: expected"),
    ],
)
def test_a_wrong_expectation_fails(tmp_path: Path, change, complaint: str) -> None:
    fixture = _copy("keyed_basic", tmp_path)
    lines = (fixture / "expected.jsonl").read_text().splitlines()
    (fixture / "expected.jsonl").write_text("\n".join(change(lines)) + "\n")
    assert complaint in (run_fixture(fixture) or "")


def test_spacing_of_a_foreign_fixture_does_not_matter(tmp_path: Path) -> None:
    fixture = _copy("keyed_basic", tmp_path)
    spaced = (fixture / "expected.jsonl").read_text().replace('":', '": ')
    (fixture / "expected.jsonl").write_text(spaced)
    assert run_fixture(fixture) is None


def test_wrong_error_expectations_fail(tmp_path: Path) -> None:
    fixture = _copy("duplicate_key_a", tmp_path)
    (fixture / "expected_error.json").write_text('{"code":"duplicate_key","message_contains":"in B"}')
    assert "message should contain" in (run_fixture(fixture) or "")
    (fixture / "expected_error.json").write_text('{"code":"empty_file","message_contains":""}')
    assert "expected error [empty_file], got [duplicate_key]" in (run_fixture(fixture) or "")


def test_unknown_config_fields_are_named(tmp_path: Path) -> None:
    fixture = _copy("keyed_basic", tmp_path)
    (fixture / "config.json").write_text('{"mode":"keyed","keys":["id"]}')
    assert "unknown fields: keys" in (run_fixture(fixture) or "")


def _copy(name: str, target: Path) -> Path:
    fixture = target / name
    fixture.mkdir()
    for file in (FIXTURES / name).iterdir():
        (fixture / file.name).write_bytes(file.read_bytes())
    return fixture
