"""Fixtures: folders with `config.json`, `a.csv`, `b.csv` and what must come out (specification: "Fixture Contract")."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.core import StrPath, io_errors
from driftline.errors import DriftlineError, InputError
from driftline.tables._engines import TableDiffJob, find_engine
from driftline.tables._options import check_options, option_names

_CONFIG = "config.json"
_EVENTS = "expected.jsonl"
_ERROR = "expected_error.json"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one fixture went; `complaint` says what was wrong, or is None."""

    name: str
    complaint: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the fixture got what it expects."""
        return self.complaint is None


def find_fixtures(folder: StrPath) -> list[Path]:
    """The folder itself if it is a fixture, else all fixtures below it, in order."""
    root = Path(folder)
    with io_errors(root):
        root.stat()
    found = sorted(path.parent for path in root.rglob(_CONFIG))
    if not found:
        raise InputError(f"no fixture below {root}: a fixture is a folder with {_CONFIG}", code="no_fixtures")
    return found


def run_fixtures(folder: StrPath, engine: str = "local", *, master: str | None = None) -> Iterator[Outcome]:
    """Run every fixture of a folder."""
    root = Path(folder)
    for fixture in find_fixtures(root):
        name = fixture.name if fixture == root else fixture.relative_to(root).as_posix()
        yield Outcome(name, run_fixture(fixture, engine, master=master))


def run_fixture(fixture: Path, engine: str = "local", *, master: str | None = None) -> str | None:
    """Run one fixture; what is wrong, or None."""
    expects_events, expects_error = (fixture / _EVENTS).is_file(), (fixture / _ERROR).is_file()
    if expects_events == expects_error:
        return f"needs exactly one of {_EVENTS} and {_ERROR}"
    run = find_engine(engine)
    written: list[bytes] = []
    try:
        run(_job_of(fixture, master), lambda data: written.append(bytes(data)))
    except DriftlineError as error:
        if expects_events:
            return f"unexpected error [{error.code}]: {error.message}"
        return _check_error(_read_json(fixture / _ERROR), error)
    if expects_error:
        return f"expected error [{_read_json(fixture / _ERROR)['code']}], got events"
    return _check_events((fixture / _EVENTS).read_bytes(), b"".join(written))


def _job_of(fixture: Path, master: str | None) -> TableDiffJob:
    config = _read_json(fixture / _CONFIG)
    unknown = sorted(config.keys() - option_names())
    if unknown:
        raise InputError(f"{_CONFIG} has unknown fields: {', '.join(unknown)}", code="invalid_fixture")
    return TableDiffJob(fixture / "a.csv", fixture / "b.csv", check_options(**config), master=master)


def _read_json(path: Path) -> dict[str, Any]:
    with io_errors(path):
        content = path.read_bytes()
    try:
        value = json.loads(content)
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}", code="invalid_fixture") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} must hold a JSON object", code="invalid_fixture")
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
    # Fixtures of other hands may be spaced or escaped differently; order of events and members always counts.
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
