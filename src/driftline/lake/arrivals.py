"""What came to a table since a version of it, and not from one log: the files that another gateway's clients lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from driftline.deltas import ColumnSchema, RowDelta
from driftline.errors import LakeError
from driftline.lake.columns import delta_file_schema
from driftline.lake.delta_tables import commit_entries, files_of, load, loaded
from driftline.lake.envelopes import envelope_paths, read_envelope
from driftline.lake.flushing import log_transaction
from driftline.lake.layout import Lake, is_written_by, relative
from driftline.lake.parquet_files import read_batches
from driftline.lake.registry import every_column
from driftline.lake.retention import horizon_of
from driftline.lake.rows import decode_deltas


@dataclass(frozen=True, slots=True)
class ForeignFiles:
    """Paths relative to the lake, and how far one has looked with them."""

    version: int
    envelopes: list[str]
    files: list[str]
    archived_below: int | None = None  # deltas up to this timestamp are only in the archived base


def foreign_files(lake: Lake, table: str, version: int, envelopes: set[str], log_id: str) -> ForeignFiles:
    """Delta files committed after a version and envelopes not looked at, without those that this log wrote."""
    names = envelope_paths(lake, table)
    new = [relative(table, "envelopes", name) for name in names if name not in envelopes]
    deltas_table = load(lake, table, "deltas")
    if deltas_table is None:
        return ForeignFiles(version, names, _not_of(log_id, new))
    latest = deltas_table.version()
    paths = _added_since(lake, table, version, latest, log_id) if 0 <= version <= latest else None
    if paths is None:  # the first look, a log that was cleaned up, or a lake that was set back
        paths = [file.path for file in files_of(deltas_table)]
    horizon = horizon_of(deltas_table)
    files = [relative(table, "deltas", path) for path in paths]
    return ForeignFiles(latest, names, _not_of(log_id, files + new), None if horizon is None else horizon - 1)


def deltas_in(lake: Lake, table: str, path: str) -> Iterator[RowDelta]:
    """The deltas of a file that `foreign_files` named; where it was merged into others, those of all files."""
    if path.endswith(".json"):
        yield from read_envelope(lake, table, path.removeprefix(relative(table, "envelopes") + "/")).deltas
        return
    deltas_table = loaded(lake, table)
    columns = every_column(deltas_table)
    try:
        yield from _decoded(lake, table, path, columns)
    except LakeError as error:
        if error.code != "missing_file":
            raise
        for file in files_of(deltas_table):
            yield from _decoded(lake, table, relative(table, "deltas", file.path), columns)


def _decoded(lake: Lake, table: str, path: str, columns: Sequence[ColumnSchema]) -> Iterator[RowDelta]:
    for batch in read_batches(lake, path, delta_file_schema(columns)):
        yield from decode_deltas(batch, table, columns)


def _added_since(lake: Lake, table: str, version: int, latest: int, log_id: str) -> list[str] | None:
    """The files of the commits after a version, None where the table's log does not hold them any more."""
    paths: list[str] = []
    for each in range(version + 1, latest + 1):
        entries = commit_entries(lake, table, "deltas", each)
        if entries is None:
            return None
        if any(entry.get("txn", {}).get("appId") == log_transaction(log_id) for entry in entries):
            continue
        adds = (entry["add"] for entry in entries if "add" in entry)
        paths += [add["path"] for add in adds if add.get("dataChange", True)]
    return paths


def _not_of(log_id: str, paths: list[str]) -> list[str]:
    return [path for path in paths if not is_written_by(path, log_id)]
