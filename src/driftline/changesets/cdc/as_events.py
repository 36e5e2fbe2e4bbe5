"""Messages of other databases as events of a table diff, which lakes load (changesets §10, pipeline §8).

A change of a row is `added`, `changed` or `removed`, as in a diff of two tables; a changed row has only the columns
that were sent. Pieces of a stream are read independently of one another, so that tasks can share the work.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from driftline.changesets.cdc.converting import CdcOptions, RowChange
from driftline.changesets.cdc.events import CdcEvent, cdc_error
from driftline.changesets.cdc.reading import events_of
from driftline.changesets.format import Field
from driftline.changesets.names import folded
from driftline.changesets.table import Table
from driftline.core._json import canonical_json
from driftline.deltas._schema import ColumnType
from driftline.errors import ChangesetError

# How SQLite's affinities read values on their way to the type of a column.
_AFFINITIES: dict[ColumnType, str | None] = {"string": "TEXT", "number": "NUMERIC", "boolean": None, "json": None}
_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")


@dataclass(frozen=True, slots=True)
class CdcTable:
    """The table that a stream is read for: its name there, its key, its columns and their types."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    types: Mapping[str, ColumnType]
    namespace: str | None = None  # any, where none is named
    source: str | None = None
    skip_truncate: bool = False
    ignore_new: bool = False  # columns that the table does not have are passed over
    fill_missing: bool = False  # an insert without a column has null there

    def is_about(self, event: CdcEvent) -> bool:
        """Whether an event is one of this table's."""
        return folded(event.table) == folded(self.name) and self.namespace in (None, event.namespace)

    def sqlite_table(self) -> Table:
        """The table whose rules read rows and values."""
        columns = [(name, _AFFINITIES[self.types.get(name, "string")]) for name in self.columns]
        return Table(self.name, columns, self.key)


@dataclass
class PieceFacts:
    """What a piece of a stream held, beside its changes.

    `columns` are the ones that rows of the table have, `ending` says how its transactions end: None where no mark was
    seen, else where the one that is still open begins, or -1 where none is.
    """

    counts: Counter[str] = field(default_factory=Counter)
    columns: dict[str, None] = field(default_factory=dict)
    namespaces: dict[str, None] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)
    truncated: int = 0
    ending: int | None = None
    open_id: str | None = None
    committed: bool = False

    def to_wire(self) -> dict[str, object]:
        """The facts as plain data, for a task that sends them home."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**plain, "counts": dict(self.counts), "others": dict(self.others)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> PieceFacts:
        """The facts that a task sent."""
        return cls(**{**wire, "counts": Counter(wire["counts"]), "others": Counter(wire["others"])})

    def see_mark(self, event: CdcEvent, offset: int) -> None:
        """Take notice of where a transaction begins or ends; Maxwell marks every row but the last as a beginning."""
        if event.kind == "commit":
            self.ending, self.open_id, self.committed = -1, None, True
        elif self.ending in (None, -1) or event.transaction != self.open_id:
            self.ending, self.open_id = offset, event.transaction


Lines = Iterable[tuple[int, bytes]]  # each with the offset at which it begins


def survey(lines: Lines, table: CdcTable) -> PieceFacts:
    """Which columns the rows of a piece have, without reading their values."""
    facts = PieceFacts()
    for _ in _events(lines, table, facts):
        pass
    return facts


def convert(lines: Lines, table: CdcTable, write: Callable[[bytes], object]) -> PieceFacts:
    """Write the changes of a piece as lines of events; a message that cannot be read is an error."""
    facts = PieceFacts()
    target = table.sqlite_table()
    options = CdcOptions(table.source)
    for offset, event in _events(lines, table, facts):
        with _at(offset):
            change = RowChange.of(_shaped(event, table), target, options, 0, 1)
            for row in _rows(change, table):
                facts.counts[str(row["type"])] += 1
                write(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return facts


@contextmanager
def _at(offset: int) -> Iterator[None]:
    """Say at which byte of its file a bad message stands."""
    try:
        yield
    except ChangesetError as error:
        words = error.message.removeprefix("line 1: ")
        raise ChangesetError(f"byte {offset}: {words}", code=error.code, offset=offset) from error


def _events(lines: Lines, table: CdcTable, facts: PieceFacts) -> Iterator[tuple[int, CdcEvent]]:
    """The events of the table's rows; everything else that happens is noted."""
    for offset, line in lines:
        with _at(offset):
            found = [event for _, event in events_of([line], table.source)]
        for event in found:
            if event.kind in ("begin", "commit"):
                facts.see_mark(event, offset)
            elif not table.is_about(event):
                facts.others[event.table] += 1
            elif event.kind == "truncate":
                with _at(offset):
                    _note_truncate(table, facts)
            else:
                facts.namespaces.setdefault(event.namespace)
                for image in (event.new, event.old):
                    facts.columns.update(dict.fromkeys(image or ()))
                yield offset, event


def _note_truncate(table: CdcTable, facts: PieceFacts) -> None:
    if not table.skip_truncate:
        raise cdc_error(
            "truncate", f'table {table.name} was truncated, and no row says so: on_truncate = "skip" passes over it'
        )
    facts.truncated += 1


def _shaped(event: CdcEvent, table: CdcTable) -> CdcEvent:
    """The event with the columns that the table has, where others may come and go."""
    known = {folded(name) for name in table.columns}
    old, new = event.old, event.new
    if table.ignore_new:
        old, new = (
            image and {name: value for name, value in image.items() if folded(name) in known} for image in (old, new)
        )
    if table.fill_missing and event.kind == "insert" and new is not None:
        there = {folded(name) for name in new}
        new = {**new, **{name: None for name in table.columns if folded(name) not in there}}
    return CdcEvent(event.kind, event.table, event.namespace, old, new, event.is_whole, event.transaction)


def _rows(change: RowChange, table: CdcTable) -> Iterator[dict[str, object]]:
    """The change as events of a diff; a changed key is a row that went and one that came."""
    kind = change.event.kind
    if kind == "insert":
        yield _whole("added", change.new or {}, table)
    elif kind == "delete":
        yield _whole("removed", change.key, table)
    elif change.changes_key:
        yield _whole("removed", change.key, table)
        yield _whole("added", change.complete_new(), table)
    elif values := change.changed_values():
        after = _typed(values, table)
        yield {"type": "changed", "key": _key(change.key, table), "before": {}, "after": after}


def _whole(kind: str, row: Mapping[str, Field], table: CdcTable) -> dict[str, object]:
    return {"type": kind, "key": _key(row, table), "row": _typed(row, table)}


def _key(row: Mapping[str, Field], table: CdcTable) -> dict[str, str]:
    """The key as text, which it is in files of text too, so that rows have the same ids wherever they come from."""
    return {name: value if isinstance(value, str) else canonical_json(value) for name, value in _named(row, table.key)}


def _named(row: Mapping[str, Field], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    by_name = {folded(name): value for name, value in row.items()}
    return ((name, by_name[folded(name)]) for name in names)


def _typed(row: Mapping[str, Field], table: CdcTable) -> dict[str, object]:
    return {name: _value(name, value, table.types.get(name, "string")) for name, value in row.items()}


def _value(name: str, value: Field, kind: ColumnType) -> Any:
    """A stored value as the lake's column holds it."""
    if value is None:
        return None
    if isinstance(value, bytes):
        raise cdc_error("invalid_value", f'column "{name}": row deltas hold no blobs')
    if kind == "boolean":
        word = str(value).lower()
        if word not in (*_TRUE, *_FALSE):
            raise cdc_error("wrong_type", f'column "{name}" holds {str(value)[:40]!r}, which is not a boolean')
        return word in _TRUE
    if kind == "number" and isinstance(value, str):
        raise cdc_error("wrong_type", f'column "{name}" holds {value[:40]!r}, which is not a number')
    if kind == "json" and isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value
