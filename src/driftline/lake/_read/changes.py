"""The net change between two timestamps: as table-diff events, a SQLite changeset, or the deltas with an effect.

The window is every hlc after `since` up to and including `until`. Events compare the state at both ends, an absent
column reading as null. Deltas are the originals of the window that win something: merged into the state at `since`
they give the state at `until`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from driftline.core import JsonObject, Tracker, canonical_json, io_errors, utf16_sort_key
from driftline.deltas import RowDelta, TableSchema
from driftline.errors import OptionError
from driftline.lake._fold.compact import Engine
from driftline.lake._fold.fold import fold, needs_fold
from driftline.lake._fold.local import RangeInput, Result, run_locally
from driftline.lake._fold.plan import FoldPlan, plan_fold
from driftline.lake._read.state import SQL_TYPES, part_folder
from driftline.lake._store.lake import Lake, attempt_token
from driftline.lake._store.rows import META_COLUMNS, ROW_ID, decode_deltas, decode_state, delta_file_schema
from driftline.lake._store.schemas import required

if TYPE_CHECKING:
    from driftline.changesets import Changeset, Table

KINDS = ("events", "deltas")
CHANGESET = "changeset"

_COUNTED = ("added", "removed", "changed", "unchanged", "deltas")
_SQL_VALUES: dict[str, Callable[[Any], Any]] = {
    "string": lambda value: value,
    "number": float,
    "boolean": int,
    "json": canonical_json,
    "integer": int,
    "decimal": str,
}

Row = JsonObject


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """The number of rows that the window added, removed, changed or left unchanged."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    unchanged: int = 0
    deltas: int = 0

    def plus(self, more: Result) -> ChangeCounts:
        """These counts and one range's."""
        return ChangeCounts(*(getattr(self, name) + more[name] for name in _COUNTED))

    @property
    def any_difference(self) -> bool:
        """Whether anything changed."""
        return bool(self.added or self.removed or self.changed or self.deltas)


@dataclass(frozen=True)
class WriteChanges:
    """The job of `changes`: the net change of one range as a part file."""

    folder: str
    kind: str
    since: int
    needs_originals: bool = True
    every_range: bool = False
    checks_ids: bool = False

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        """Write one part and count its lines."""
        window = given.deltas.filter(pc.greater(given.deltas["hlc"], self.since))
        if window.num_rows == 0:
            return []
        counts = dict.fromkeys((*_COUNTED, "absent"), 0)
        lines = self._deltas(plan, window) if self.kind == "deltas" else self._events(plan, given, window)
        path = Path(self.folder, f"part-{given.key_range.index:05d}-{attempt_token()}")
        with io_errors(path), open(path, "wb") as out:
            for kind, line in lines:
                counts[kind] += 1
                if line is not None:
                    out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        return [{"path": str(path), **counts}]

    def _deltas(self, plan: FoldPlan, window: pa.Table) -> Iterator[tuple[str, Row | None]]:
        for delta in sorted(original_deltas(plan, needs_fold(plan.columns, window)), key=_row_then_stamp):
            yield "deltas", delta.to_wire()

    def _events(self, plan: FoldPlan, given: RangeInput, window: pa.Table) -> Iterator[tuple[str, Row | None]]:
        touched = pc.unique(window["row_id"])
        before = _state(plan, given, touched, self.since)
        after = _state(plan, given, touched, None)
        for row_id in sorted(touched.to_pylist()):
            yield _event(plan, row_id, before.get(row_id), after.get(row_id))


def changes(
    lake: Lake,
    table: str,
    out: BinaryIO,
    *,
    since: int,
    until: int,
    kind: str = "events",
    engine: Engine = run_locally,
    tracker: Tracker | None = None,
) -> ChangeCounts:
    """Write the net change of the window (since, until] as JSONL, in the order of row ids."""
    if kind not in KINDS:
        raise OptionError(f"unknown kind of changes {kind!r}: use one of {', '.join(KINDS)}")
    if since > until:
        raise OptionError(f"the window is empty: --from {since} is after --to {until}", code="empty_window")
    plan = plan_fold(lake, table, as_of=until, snapshot_as_of=since)
    total = ChangeCounts()
    with part_folder(out) as folder:
        job = WriteChanges(str(folder), kind, since)
        parts = list(engine(plan, job, tracker))
        if kind == "events":
            out.write(_line(_schema_event(plan)))
        for part in parts:
            total = total.plus(part)
            with open(part["path"], "rb") as source:
                shutil.copyfileobj(source, out, 1 << 20)
        if kind == "events":
            out.write(_line(_stats_event(total)))
    return total


def original_deltas(plan: FoldPlan, stamped: pa.Table) -> Iterator[RowDelta]:
    """Stamped deltas with `ORIGINAL_COLUMNS`, as they were written; columns removed since are left out."""
    fixed = [
        stamped["_op"],
        stamped["row_id"],
        pc.cast(stamped["client"], pa.string()),
        stamped["hlc"],
        stamped["_delta_id"],
        stamped["_columns"],
    ]
    schema = delta_file_schema(plan.columns)
    values = [stamped[name] for name in schema.names[len(META_COLUMNS) :]]
    return decode_deltas(pa.Table.from_arrays([*fixed, *values], schema=schema), plan.table, plan.columns)


def _state(plan: FoldPlan, given: RangeInput, touched: pa.Array, as_of: int | None) -> dict[str, Row]:
    deltas, base, deletes = (
        _of_rows(rows, name, touched)
        for rows, name in ((given.deltas, "row_id"), (given.base, ROW_ID), (given.deletes, ROW_ID))
    )
    if as_of is not None:
        deltas = deltas.filter(pc.less_equal(deltas["hlc"], as_of))
    return dict(decode_state(fold(plan.columns, deltas, base, deletes).base, plan.columns))


def _of_rows(rows: pa.Table, name: str, ids: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows[name], value_set=ids))


def _event(plan: FoldPlan, row_id: str, before: Row | None, after: Row | None) -> tuple[str, Row | None]:
    old, new = _whole_row(plan, row_id, before), _whole_row(plan, row_id, after)
    key = _key(plan, row_id, new or old)
    if old is None and new is None:
        return "absent", None  # added and removed within the window
    if old is None:
        return "added", {"type": "added", "key": key, "row": new}
    if new is None:
        return "removed", {"type": "removed", "key": key, "row": old}
    changed = [name for name in old if old[name] != new[name] or type(old[name]) is not type(new[name])]
    if not changed:
        return "unchanged", None
    delta = {name: {"from": old[name], "to": new[name]} for name in changed}
    return "changed", {
        "type": "changed",
        "key": key,
        "changed": changed,
        "before": old,
        "after": new,
        "delta": delta,
    }


def _whole_row(plan: FoldPlan, row_id: str, row: Row | None) -> Row | None:
    if row is None:
        return None
    start = {} if plan.key else {ROW_ID: row_id}
    return {**start, **{column.name: row.get(column.name) for column in plan.columns}}


def _key(plan: FoldPlan, row_id: str, row: Row | None) -> Row:
    return {name: (row or {}).get(name) for name in plan.key} if plan.key else {ROW_ID: row_id}


def _schema_event(plan: FoldPlan) -> Row:
    names = [*([] if plan.key else [ROW_ID]), *(column.name for column in plan.columns)]
    return {"type": "schema", "columns_a": names, "columns_b": names}


def _stats_event(total: ChangeCounts) -> Row:
    return {
        "type": "stats",
        "rows_total_compared": total.changed + total.unchanged,
        "rows_added": total.added,
        "rows_removed": total.removed,
        "rows_changed": total.changed,
        "rows_unchanged": total.unchanged,
    }


def _line(value: Row) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _row_then_stamp(delta: RowDelta) -> tuple[str, int, bytes, str]:
    return delta.row_id, delta.hlc, utf16_sort_key(delta.client_id), delta.delta_id


def write_changes(
    lake: Lake, table: str, out: BinaryIO, *, since: int, until: int, kind: str = "events", **options: Any
) -> ChangeCounts:
    """Write the changes of (since, until] as events, deltas or a changeset."""
    if kind != CHANGESET:
        return changes(lake, table, out, since=since, until=until, kind=kind, **options)
    with tempfile.TemporaryFile() as events:
        counts = changes(lake, table, events, since=since, until=until, kind="events", **options)
        events.seek(0)
        changeset_of_events(required(lake, table), map(json.loads, events)).write_to(out)
    return counts


def changeset_of_events(schema: TableSchema, events: Iterable[Mapping[str, Any]]) -> Changeset:
    """Data events of a window as a changeset: the row id is the key unless the schema names key columns."""
    from driftline.changesets import Changeset  # of the extra `sqlite`, which a lake does not need

    table = sqlite_table(schema)
    changeset = Changeset()
    for event in events:
        if event["type"] == "added":
            changeset.insert(table, _sql_row(schema, event["row"]))
        elif event["type"] == "removed":
            changeset.delete(table, _sql_row(schema, event["row"]))
        elif event["type"] == "changed":
            changeset.update(table, _sql_row(schema, event["before"]), _sql_row(schema, event["after"]))
    return changeset


def sqlite_table(schema: TableSchema) -> Table:
    """The SQLite table of a schema, as `materialize --format sqlite` makes it."""
    from driftline.changesets import Table

    columns = [(column.name, SQL_TYPES[column.kind]) for column in schema.columns]
    if schema.key:
        return Table(schema.table, columns, schema.key)
    return Table(schema.table, [(ROW_ID, "TEXT"), *columns], [ROW_ID])


def _sql_row(schema: TableSchema, row: Mapping[str, Any]) -> JsonObject:
    values: JsonObject = {} if schema.key else {ROW_ID: row[ROW_ID]}
    for column in schema.columns:
        value = row[column.name]
        values[column.name] = None if value is None else _SQL_VALUES[column.kind](value)
    return values
