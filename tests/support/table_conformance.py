"""Fixtures of table diffs: folders with `config.json`, `a.csv`, `b.csv` and the expected events or error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from driftline.errors import DriftlineError, InputError
from driftline.tables import TableDiffJob, check_options, find_engine, option_names

_CONFIG = "config.json"
_EVENTS = "expected.jsonl"
_ERROR = "expected_error.json"


def find_fixtures(folder: Path) -> list[Path]:
    """All fixtures below a folder, in order."""
    return sorted(path.parent for path in folder.rglob(_CONFIG))


def run_fixture(fixture: Path, engine: str = "local") -> str | None:
    """Run one fixture; what is wrong, or None."""
    expects_events, expects_error = (fixture / _EVENTS).is_file(), (fixture / _ERROR).is_file()
    if expects_events == expects_error:
        return f"needs exactly one of {_EVENTS} and {_ERROR}"
    run = find_engine(engine)
    written: list[bytes] = []
    try:
        run(job_of(fixture), lambda data: written.append(bytes(data)))
    except DriftlineError as error:
        if expects_events:
            return f"unexpected error [{error.code}]: {error.message}"
        return _check_error(_read_json(fixture / _ERROR), error)
    if expects_error:
        return f"expected error [{_read_json(fixture / _ERROR)['code']}], got events"
    return _check_events((fixture / _EVENTS).read_bytes(), b"".join(written))


def job_of(fixture: Path) -> TableDiffJob:
    """The comparison that a fixture describes."""
    config = _read_json(fixture / _CONFIG)
    unknown = sorted(config.keys() - option_names())
    if unknown:
        raise InputError(f"{_CONFIG} has unknown fields: {', '.join(unknown)}", code="invalid_fixture")
    return TableDiffJob(fixture / "a.csv", fixture / "b.csv", check_options(**config))


def _read_json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_bytes())
    return value


def _check_error(expected: dict[str, Any], error: DriftlineError) -> str | None:
    if error.code != expected["code"]:
        return f"expected error [{expected['code']}], got [{error.code}]: {error.message}"
    if expected.get("message_contains", "") not in error.message:
        return f"message should contain {expected['message_contains']!r}: {error.message}"
    return None


def _check_events(expected: bytes, got: bytes) -> str | None:
    if expected == got:
        return None
    # External fixtures may be spaced or escaped differently; order of events and members always counts.
    wanted, seen = _ordered_events(expected), _ordered_events(got)
    for number, (want, see) in enumerate(zip(wanted, seen, strict=False), 1):
        if want[1] != see[1]:
            return f"event {number}: expected {want[0]}, got {see[0]}"
    if len(wanted) != len(seen):
        return f"expected {len(wanted)} events, got {len(seen)}"
    return None


def _ordered_events(text: bytes) -> list[tuple[str, object]]:
    lines = [line for line in text.decode().split("\n") if line]
    return [(line, json.loads(line, object_pairs_hook=list)) for line in lines]
