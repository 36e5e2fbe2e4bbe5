"""`driftline patch`: a table with the changes of a diff applied (tables §7.2)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftline.errors import InputError, PatchConflict, TableError
from driftline.sources._csv.strict import TextTable

Event = dict[str, Any]
Row = list[str]

_KINDS = ("added", "removed", "changed")


@dataclass
class _Patch:
    """What the events of a diff ask for, checked to be whole."""

    schema: Event
    changes: list[Event] = field(default_factory=list)


def patch_table(table: TextTable, lines: Iterable[bytes], name: str = "the events") -> Iterator[Row]:
    """The rows of A in A's order with the changes applied, added rows behind in the order of events.

    Raises before the first row if anything does not fit.
    """
    patch = _read(lines, name)
    if patch.schema["columns_a"] != table.header:
        made_of, has = (json.dumps(names, ensure_ascii=False) for names in (patch.schema["columns_a"], table.header))
        raise TableError(f"{name} were made of the columns {made_of}, the table has {has}", code="header_mismatch")
    _check_columns(patch, table.header)
    replaced, added = _applied(table, patch)
    kept = (replaced.get(at, row) for at, (_, row) in enumerate(table.rows))
    return iter([row for row in kept if row is not None] + added)


def _read(lines: Iterable[bytes], name: str) -> _Patch:
    patch: _Patch | None = None
    stats: Event | None = None
    for number, line in enumerate(lines, 1):
        event = _event(line, number, name)
        if event["type"] == "schema":
            patch = _Patch(event)
        elif event["type"] == "stats":
            stats = event
        elif patch is not None and event["type"] in _KINDS:
            patch.changes.append(event)
    if patch is None or stats is None:
        raise _incomplete(f"{name} have no {'schema' if patch is None else 'stats'} event")
    counts = Counter(event["type"] for event in patch.changes)
    for kind in _KINDS:
        told = stats.get(f"rows_{kind}")
        if counts[kind] != told:
            raise _incomplete(f"{name} hold {counts[kind]} {kind} events, their stats count {told}")
    return patch


def _event(line: bytes, number: int, name: str) -> Event:
    try:
        event = json.loads(line)
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise ValueError("no event")
    except ValueError as error:
        raise InputError(f"{name}, line {number}: {error}", code="invalid_jsonl", line=number) from None
    return event


def _check_columns(patch: _Patch, header: Sequence[str]) -> None:
    renamed = {new: old for old, new in patch.schema.get("renamed", {}).items()}
    unknown = [column for column in patch.schema["columns_b"] if renamed.get(column, column) not in header]
    if unknown:
        raise _incomplete(f"column {json.dumps(unknown[0], ensure_ascii=False)} is not in the table")
    for event in patch.changes:
        for row in (event.get(part) for part in ("before", "after", "row")):
            if row is not None and not all(isinstance(cell, str) for cell in row.values()):
                raise _incomplete("the events hold typed values, the table text")


def _applied(table: TextTable, patch: _Patch) -> tuple[dict[int, Row | None], list[Row]]:
    """New rows by their places in the table, None for those that go, and the rows that are new."""
    places = _Places(table)
    renamed = {new: old for old, new in patch.schema.get("renamed", {}).items()}
    replaced: dict[int, Row | None] = {}
    added: list[Row] = []
    for event in patch.changes:
        if event["type"] == "added":
            own = {renamed.get(name, name): cell for name, cell in event["row"].items()}
            added.append([own.get(name, "") for name in table.header])
            continue
        old = event["before"] if event["type"] == "changed" else event["row"]
        at = places.take([old.get(name, "") for name in table.header], event)
        if event["type"] == "removed":
            replaced[at] = None
        else:
            new = {renamed.get(name, name): cell for name, cell in event["after"].items()}
            replaced[at] = [new.get(name, old.get(name, "")) for name in table.header]
    return replaced, added


class _Places:
    """Where rows stand: each is used once, the first of equal ones first; rows without a name from behind."""

    def __init__(self, table: TextTable) -> None:
        self._by_number = {number: at for at, (number, _) in enumerate(table.rows)}
        self._rows = [row for _, row in table.rows]
        self._by_cells: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for at, row in enumerate(self._rows):
            self._by_cells[tuple(row)].append(at)
        self._used: set[int] = set()

    def take(self, row: Row, event: Event) -> int:
        if "row_index" in event:
            at = self._by_number.get(event["row_index"])
            if at is None or self._rows[at] != row or at in self._used:
                raise _conflict(event)
            self._used.add(at)
            return at
        free = self._by_cells[tuple(row)]
        if not free:
            raise _conflict(event)
        return free.pop(0) if "key" in event else free.pop()


def _conflict(event: Event) -> PatchConflict:
    place = event.get("key", {"row_index": event["row_index"]} if "row_index" in event else event.get("row"))
    shown = json.dumps(place, ensure_ascii=False, separators=(",", ":"))
    return PatchConflict(f"the table does not hold the row that was {event['type']}: {shown}", key=place)


def _incomplete(words: str) -> TableError:
    return TableError(f"{words}: patch with all events of a diff of this table", code="patch_incomplete")
