"""What happened: the log of a table's commits, and every delta of one row with the columns it won."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.compute as pc

from driftline.core._json import JsonObject
from driftline.deltas import RowDelta
from driftline.lake.columns import ROW_ID, delta_file_schema
from driftline.lake.delta_tables import commit_entries, files_of, load
from driftline.lake.envelopes import read_envelope
from driftline.lake.flushing import waiting_envelopes
from driftline.lake.layout import Lake, Part, path_hlcs, relative
from driftline.lake.oracle import replay_order
from driftline.lake.parquet_files import DataFile, read_batches
from driftline.lake.registry import every_column, schema_of
from driftline.lake.rows import decode_deltas

_PARTS: tuple[Part, ...] = ("deltas", "deletes", "base", "state", "archive")
_STATISTICS_LIMIT = 64


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One commit to one of a table's Delta tables."""

    part: str
    version: int
    timestamp_ms: int
    operation: str
    files_added: int
    files_removed: int
    deltas: int | None
    gateway: str | None
    min_hlc: int | None
    max_hlc: int | None
    pins: dict[str, int]

    def to_dict(self) -> JsonObject:
        """The entry as plain data, hlcs as strings."""
        record: JsonObject = {
            "part": self.part,
            "version": self.version,
            "timestamp": self.timestamp_ms,
            "operation": self.operation,
            "filesAdded": self.files_added,
            "filesRemoved": self.files_removed,
            "deltas": self.deltas,
            "gateway": self.gateway,
            "minHlc": None if self.min_hlc is None else str(self.min_hlc),
            "maxHlc": None if self.max_hlc is None else str(self.max_hlc),
        }
        return {**record, "pins": self.pins} if self.pins else record


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A delta of a row: the columns in which it won, and whether it still shapes the row."""

    delta: RowDelta
    won: tuple[str, ...]
    is_visible: bool

    def to_dict(self) -> JsonObject:
        """The entry as plain data."""
        return {**self.delta.to_wire(), "won": list(self.won), "visible": self.is_visible}


def lake_log(lake: Lake, table: str) -> list[LogEntry]:
    """Every commit of a table that its logs still hold, in the order of time."""
    lake.table_name(table)
    entries = [entry for part in _PARTS for entry in _commits(lake, table, part)]
    return sorted(entries, key=lambda entry: (entry.timestamp_ms, _PARTS.index(entry.part), entry.version))


def row_history(lake: Lake, table: str, row_id: str) -> list[HistoryEntry]:
    """Every delta of a row in the order of replay, and who won each column."""
    lake.table_name(table)
    deltas = sorted({_identity(delta): delta for delta in _row_deltas(lake, table, row_id)}.values(), key=replay_order)
    deaths = [replay_order(delta) for delta in deltas if delta.op == "DELETE"]
    last_death = deaths[-1] if deaths else None
    winners = {entry.column: delta for delta in deltas for entry in delta.columns}
    last_life = next((delta for delta in reversed(deltas) if delta.op != "DELETE"), None)
    history = []
    for delta in deltas:
        covered = last_death is not None and replay_order(delta) < last_death
        won = tuple(entry.column for entry in delta.columns if winners[entry.column] is delta and not covered)
        is_death = last_death is not None and replay_order(delta) == last_death
        history.append(HistoryEntry(delta, won, is_death or bool(won) or (delta is last_life and not covered)))
    return history


def _identity(delta: RowDelta) -> tuple[str, str]:
    return delta.delta_id, delta.op


def _row_deltas(lake: Lake, table: str, row_id: str) -> Iterator[RowDelta]:
    deltas_table = load(lake, table, "deltas")
    if deltas_table is not None and schema_of(deltas_table) is not None:
        columns = every_column(deltas_table)
        for file in files_of(deltas_table):
            if _may_hold(file, row_id):
                path = relative(table, "deltas", file.path)
                for batch in read_batches(lake, path, delta_file_schema(columns)):
                    rows = batch.filter(pc.equal(batch[ROW_ID], row_id))
                    yield from decode_deltas(rows, table, columns)
    for name in waiting_envelopes(lake, table, deltas_table):
        yield from (delta for delta in read_envelope(lake, table, name).deltas if delta.row_id == row_id)


def _may_hold(file: DataFile, row_id: str) -> bool:
    low, high = file.min_row_id, file.max_row_id
    if low is None or high is None:
        return True
    # A bound of 64 characters may be cut: the least is then a prefix (still least), the greatest says nothing.
    return low <= row_id and (len(high) >= _STATISTICS_LIMIT or row_id <= high)


def _commits(lake: Lake, table: str, part: Part) -> Iterator[LogEntry]:
    delta_table = load(lake, table, part)
    for version in range(delta_table.version() + 1 if delta_table is not None else 0):
        entries = commit_entries(lake, table, part, version)
        if entries is not None:
            yield _log_entry(part, version, entries)


def _log_entry(part: Part, version: int, entries: list[JsonObject]) -> LogEntry:
    info: JsonObject = next((entry["commitInfo"] for entry in entries if "commitInfo" in entry), {})
    details = info.get("driftline")
    details = details if isinstance(details, dict) else {}
    adds = [entry["add"] for entry in entries if "add" in entry]
    hlcs = [path_hlcs(add["path"]) for add in adds] if part == "deltas" else []
    known = [pair for pair in hlcs if pair is not None]
    return LogEntry(
        part,
        version,
        int(info.get("timestamp", 0)),
        str(details.get("operation", info.get("operation", "unknown"))).lower(),
        len(adds),
        sum("remove" in entry for entry in entries),
        details.get("deltas"),
        details.get("gateway"),
        min((pair[0] for pair in known), default=None),
        max((pair[1] for pair in known), default=None),
        dict(details.get("pins", {})),
    )
