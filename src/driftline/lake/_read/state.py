"""The state of a table, now or at any timestamp within retention: as JSONL, CSV, Parquet or SQLite, or as rows.

Tasks write part files in the order of row ids, beside the output; the parts are then joined. The output is atomic.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline import core
from driftline.deltas import ColumnSchema, RowDelta, RowMerge, TableSchema, fold_from_plain, fold_to_plain
from driftline.errors import LakeError, OptionError
from driftline.lake._fold.compact import Engine
from driftline.lake._fold.fold import replay
from driftline.lake._fold.local import KeepRows, RangeInput, RangeJob, Result, fold_range, run_locally
from driftline.lake._fold.plan import STATISTICS_LIMIT, FoldPlan, plan_fold
from driftline.lake._read import STATE_FORMATS
from driftline.lake._store import rows as stored
from driftline.lake._store.envelopes import read_envelope, waiting_envelopes
from driftline.lake._store.lake import Lake, attempt_token, relative
from driftline.lake._store.parquet import DataFile, read_batches
from driftline.lake._store.schemas import every_column, registered, schema_of, version_of_generation
from driftline.lake._store.stamps import NONE, ranked_stamps
from driftline.lake._store.tables import load


@dataclass(frozen=True)
class WriteState(RangeJob):
    """The job of materialising: fold a range and write it as a part file."""

    every_range = True

    folder: core.Location
    format: str

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        """Write one part; attempts of one task write different files."""
        rows = fold_range(plan, given).base
        path = self.folder / f"part-{given.key_range.index:05d}-{attempt_token()}"
        render = {"jsonl": stored.jsonl_bytes, "csv": stored.csv_bytes}.get(self.format, _plain_parquet)
        with core.io_errors(path):
            path.write_bytes(render(rows, plan.columns))
        return [{"path": str(path), "rows": rows.num_rows}]


def materialize(
    lake: Lake,
    table: str,
    output: core.AnyPath | BinaryIO,
    *,
    format: str = "jsonl",  # noqa: A002 - the word users know
    as_of: int | None = None,
    generation: int | None = None,
    engine: Engine = run_locally,
    tracker: core.Tracker | None = None,
) -> int:
    """Write the table's state to a file (or a binary stream, for JSONL and CSV); the number of rows."""
    if format not in STATE_FORMATS:
        raise OptionError(f"unknown format {format!r}: use one of {', '.join(STATE_FORMATS)}")
    if registered(lake, lake.table_name(table)) is None:
        return _from_envelopes(lake, table, output, format, as_of)
    version = None if generation is None else version_of_generation(lake, table, generation)
    plan = plan_fold(lake, table, as_of=as_of, deltas_version=version)
    with part_folder(output) as folder:
        parts = list(engine(plan, WriteState(folder, format), tracker))
        _join_parts(plan, parts, output, format)
    return sum(part["rows"] for part in parts)


def _join_parts(plan: FoldPlan, parts: list[Result], output: Any, format: str) -> None:  # noqa: A002
    if format == "sqlite":
        schema = TableSchema(plan.table, plan.columns, plan.key)
        write_sqlite(_only_path(output, format), schema, [part["path"] for part in parts])
    elif format == "parquet":
        _join_parquet(parts, _only_path(output, format))
    else:
        with _opened(output) as out:
            if format == "csv":
                out.write(stored.csv_header(plan.columns))
            for part in parts:
                with core.open_to_read(part["path"]) as source:
                    shutil.copyfileobj(source, out, 1 << 20)


def _plain_parquet(rows: pa.Table, columns: Sequence[ColumnSchema]) -> bytes:
    """A part file, which is read once, soon: not worth compressing."""
    sink = pa.BufferOutputStream()
    pq.write_table(stored.plain_table(rows, columns), sink, compression="none", use_dictionary=False)
    return bytes(sink.getvalue())


def _join_parquet(parts: list[Result], output: core.AnyPath) -> None:
    with core.atomic_write(output) as out:
        writer = None
        for part in parts:
            with core.open_to_read(part["path"]) as source:
                file = pq.ParquetFile(source)
                writer = writer or pq.ParquetWriter(out, file.schema_arrow, compression="zstd", compression_level=1)
                for group in range(file.num_row_groups):
                    writer.write_table(file.read_row_group(group))
        if writer is not None:
            writer.close()


def _from_envelopes(lake: Lake, table: str, output: Any, format: str, as_of: int | None) -> int:  # noqa: A002
    """Write the rows of a table without a schema, which has no types: only JSONL can represent them."""
    if format != "jsonl":
        message = f"table {table!r} has no schema, so {format} is not possible: use jsonl, or register a schema"
        raise LakeError(message, code="no_schema")
    rows = replay(all_deltas(lake, table), as_of=as_of)
    with _opened(output) as out:
        for row_id in sorted(rows):
            out.write(stored.json_line({"_row_id": row_id, **rows[row_id]}))
    return len(rows)


def _only_path(output: Any, format: str) -> core.AnyPath:  # noqa: A002
    if hasattr(output, "write"):
        raise OptionError(f"{format} is written to a file: name one with -o")
    path: core.AnyPath = output
    return path


@contextmanager
def _opened(output: Any) -> Iterator[BinaryIO]:
    if hasattr(output, "write"):
        yield output
    else:
        with core.atomic_write(output) as out:
            yield out


@contextmanager
def part_folder(output: Any) -> Iterator[core.Location]:
    """A folder for parts: beside the output, where executors see it too, or a temporary one for a stream."""
    beside = None if hasattr(output, "write") else core.location(str(output)).parent
    if isinstance(beside, core.ObjectPath):
        folder: core.Location = beside / f".driftline-parts-{attempt_token()}"
    else:
        with core.io_errors(beside or tempfile.gettempdir()):
            folder = Path(tempfile.mkdtemp(prefix=".driftline-parts-", dir=beside and beside.absolute()))
    try:
        yield folder
    finally:
        core.remove(folder)


def write_sqlite(path: core.AnyPath, schema: TableSchema, parts: Iterable[core.AnyPath]) -> None:
    """Fill a new database from part files and move it into place; one in an object store is made here and uploaded."""
    import apsw

    target = core.output_place(path)
    beside = None if isinstance(target, core.ObjectPath) else Path(os.path.realpath(target)).parent
    with core.io_errors(target), tempfile.TemporaryDirectory(prefix=".driftline-", dir=beside) as folder:
        made = Path(folder, target.name)
        connection = apsw.Connection(str(made))
        try:
            _fill(connection, schema, parts)
        finally:
            connection.close()
        if isinstance(target, core.ObjectPath):
            with open(made, "rb") as source, core.atomic_write(target) as out:
                shutil.copyfileobj(source, out, 4 << 20)
        else:
            core.replace_file(made, Path(os.path.realpath(target)))


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _fill(connection: Any, schema: TableSchema, parts: Iterable[core.AnyPath]) -> None:
    names = [*([] if schema.key else [stored.ROW_ID]), *schema.names]
    columns = [f"{quoted(column.name)} {stored.KINDS[column.kind].sql}" for column in schema.columns]
    key = f"PRIMARY KEY ({', '.join(map(quoted, schema.key))})"
    body = [*columns, key] if schema.key else [f"{quoted(stored.ROW_ID)} TEXT PRIMARY KEY NOT NULL", *columns]
    insert = f"INSERT INTO {quoted(schema.table)} VALUES ({', '.join('?' * len(names))})"  # noqa: S608
    connection.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN").fetchall()
    connection.execute(f"CREATE TABLE {quoted(schema.table)} ({', '.join(body)})")
    for part in parts:
        with core.open_to_read(part) as source:
            for batch in pq.ParquetFile(source).iter_batches(1 << 16, columns=names):
                values = [_plain(batch.column(name)).to_pylist() for name in names]
                connection.executemany(insert, zip(*values, strict=True))
    connection.execute("COMMIT")


def _plain(array: pa.Array) -> Any:
    if pa.types.is_decimal(array.type):
        return stored.decimal_texts(array)
    return pc.cast(array, pa.int8()) if pa.types.is_boolean(array.type) else array


def state_rows(lake: Lake, table: str, *, as_of: int | None = None) -> Iterator[tuple[str, core.JsonObject]]:
    """Row ids and their set columns, in the order of row ids."""
    plan = plan_fold(lake, table, as_of=as_of)
    for result in run_locally(plan, KeepRows()):
        yield from stored.decode_state(result["rows"], plan.columns)


def all_deltas(lake: Lake, table: str, row_id: str | None = None) -> Iterator[RowDelta]:
    """Every delta of a table or of one row, from Parquet and from pending envelopes."""
    deltas_table = load(lake, table, "deltas")
    if deltas_table is not None and schema_of(deltas_table) is not None:
        columns = every_column(deltas_table)
        for file in sorted(deltas_table.files(), key=lambda file: (file.min_hlc or 0, file.path)):
            if row_id is None or _may_contain(file, row_id):
                for rows in read_batches(lake, relative(table, "deltas", file.path), stored.delta_file_schema(columns)):
                    requested = rows if row_id is None else rows.filter(pc.equal(rows[stored.ROW_ID], row_id))
                    yield from stored.decode_deltas(requested, table, columns)
    for name in waiting_envelopes(lake, table, deltas_table):
        deltas = read_envelope(lake, table, name).deltas
        yield from (delta for delta in deltas if row_id is None or delta.row_id == row_id)


def _may_contain(file: DataFile, row_id: str) -> bool:
    low, high = file.min_row_id, file.max_row_id
    if low is None or high is None:
        return True
    # A bound of 64 characters may be cut: the least is then a prefix (still least), the greatest is unknown.
    return low <= row_id and (len(high) >= STATISTICS_LIMIT or row_id <= high)


# The rows of a lake for a new client: with their stamps and tombstones, in files that pages are cut from. A table is
# folded once, at a pinned version, into an Arrow file in the order of row ids. Deltas that are not in the table's
# Parquet files (the log's tail, envelopes) are passed as merged rows; the rows that they change are JSON in the file,
# joined with the lake's. So a page is a slice, whatever its reader (deltas-and-lake §11).


JOINED = "_joined"  # a row that does not fit the table's columns, as JSON


def write_rows(lake: Lake, table: str, version: int, more: Mapping[str, RowMerge], target: Path) -> None:
    """Write a table's rows at a version of its deltas, joined with further folds; `version` -1: there are no others."""
    columns, ranges = _folded(lake, table, version)
    schema = rows_schema(columns)
    left = dict(more)
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for rows in ranges:
            last = rows[stored.ROW_ID][-1].as_py().encode() if rows.num_rows else b""
            here = {row_id: left.pop(row_id) for row_id in list(left) if row_id.encode() <= last}
            writer.write_table(_joined(rows, here, table, columns, schema), max_chunksize=10_000)
        writer.write_table(
            _joined(stored.base_file_schema(columns).empty_table(), left, table, columns, schema), max_chunksize=10_000
        )


def folded_rows(lake: Lake, table: str, version: int) -> Iterator[tuple[str, RowMerge]]:
    """A table's rows at a version of its deltas, live and deleted ones, with their stamps."""
    columns, ranges = _folded(lake, table, version)
    for rows in ranges:
        yield from _folds(rows, table, columns)


def rows_schema(columns: Sequence[ColumnSchema]) -> pa.Schema:
    """The schema of such a file: the base's, and the column for joined rows."""
    described = json.dumps([[column.name, column.type] for column in columns])
    schema = stored.base_file_schema(columns).append(pa.field(JOINED, pa.string()))
    return schema.with_metadata({"driftline.columns": described})


def columns_in(schema: pa.Schema) -> list[ColumnSchema]:
    """The table's columns that a file was written with."""
    return [ColumnSchema(name, kind) for name, kind in json.loads(schema.metadata[b"driftline.columns"])]


def row_lines(rows: pa.Table, table: str, columns: Sequence[ColumnSchema]) -> tuple[bytes, npt.NDArray[np.int32]]:
    """The rows of such a file as lines of a snapshot page, and where each ends; `record_line` is their model."""
    named = sorted(columns, key=lambda column: core.utf16_sort_key(column.name))
    paths = [*(["columns", stored.escape_name(column.name)] for column in named), ["live"], ["deleted"]]
    stamps = stored.one_array(rows[stored.STAMPS])
    ranks, texts = ranked_stamps([pc.struct_field(stamps, path) for path in paths])
    # A DELETE covers what has its own stamp or a lesser one: of two equal stamps its own is the greater.
    order = np.where(ranks < 0, NONE, ranks * 2)
    order[-1] += ranks[-1] >= 0
    order[:-1][order[:-1] < order[-1]] = NONE
    order[:-2][:, order[-2] < 0] = NONE
    # Each stamp of a row once, greatest first, and the places of the columns among them.
    by_row = np.argsort(-order, axis=0, kind="stable")
    ordered = np.take_along_axis(order, by_row, 0)
    is_first = ordered >= 0
    is_first[1:] &= ordered[1:] != ordered[:-1]
    places = np.empty_like(order)
    np.put_along_axis(places, by_row, np.where(ordered < 0, NONE, np.cumsum(is_first, axis=0) - 1), 0)
    living, pieces = pa.array(places[-2] >= 0), [f'{{"table":{core.string_text(table)},"rowId":']
    pieces += [stored.string_texts(stored.one_array(rows[stored.ROW_ID])), pc.if_else(living, ',"columns":{', "")]
    has_some = np.zeros(rows.num_rows, bool)
    for column, place in zip(named, places, strict=False):
        name, values = core.string_text(column.name), stored.one_array(rows[stored.escape_name(column.name)])
        start = pc.if_else(pa.array(has_some), f",{name}:", f"{name}:")
        member = pc.binary_join_element_wise(start, stored.record_texts(values, column), "")
        pieces.append(pc.if_else(pa.array(place >= 0), member, ""))
        has_some |= place >= 0
    pieces.append(pc.if_else(living, '},"stamps":[', ',"stamps":['))
    for number in np.flatnonzero(is_first.any(axis=1)):
        stamp = texts.take(pa.array(ordered[number] // 2, mask=~is_first[number]))
        pieces.append(pc.fill_null(pc.binary_join_element_wise("," if number else "", stamp, ""), ""))
    patterns, pattern = np.unique(places.astype(np.int16), axis=1, return_inverse=True)
    ends = pa.array([_line_end(named, each.tolist()) for each in patterns.T], pa.string())
    lines = pc.binary_join_element_wise(*pieces, ends.take(pa.array(pattern.ravel())), "")
    if JOINED in rows.column_names:
        lines = pc.coalesce(pc.binary_join_element_wise(stored.one_array(rows[JOINED]), "\n", ""), lines)
    return stored.end_to_end(lines)


def _line_end(columns: Sequence[ColumnSchema], places: Sequence[int]) -> str:
    """A line behind its stamps: which of them each column, the row's life and its greatest DELETE have."""
    *by, live, deleted = places
    used = {column.name: place for column, place in zip(columns, by, strict=True) if place >= 0}
    plain = {} if live < 0 else {"by": used, "live": live}
    text = stored.json_line(plain if deleted < 0 else {**plain, "deleted": deleted}).decode()
    return f"],{text[1:]}" if live >= 0 or deleted >= 0 else f"]{text[1:]}"


def _folds(rows: pa.Table, table: str, columns: Sequence[ColumnSchema]) -> Iterator[tuple[str, RowMerge]]:
    """Rows with their stamps, ready to take more deltas."""
    for line in row_lines(rows, table, columns)[0].splitlines():
        plain = json.loads(line)
        yield plain["rowId"], fold_from_plain(plain)


def record_line(table: str, row_id: str, fold: RowMerge) -> str:
    """A row as a line of a snapshot, without its end."""
    return stored.json_line({"table": table, "rowId": row_id, **fold_to_plain(fold)}).decode()[:-1]


def watched_values(
    rows: pa.Table, columns: Sequence[ColumnSchema], names: Sequence[str]
) -> Iterator[core.JsonObject | None]:
    """The named columns that are set in every row, None for a deleted row; other columns are not decoded."""
    chosen = [column for column in columns if column.name in names]
    stamps = rows[stored.STAMPS].combine_chunks()
    living = pc.is_valid(pc.struct_field(stamps, ["live"])).to_pylist()
    values = {}
    for column in chosen:
        name = stored.escape_name(column.name)
        is_set = pc.is_valid(pc.struct_field(stamps, ["columns", name])).to_pylist()
        values[column.name] = (is_set, rows[name].to_pylist(), stored.KINDS[column.kind].read)
    for index, text in enumerate(rows[JOINED].to_pylist()):
        if text is not None:
            yield json.loads(text).get("columns")
        elif not living[index]:
            yield None
        else:
            yield {name: read(held[index]) for name, (is_set, held, read) in values.items() if is_set[index]}


def _folded(lake: Lake, table: str, version: int) -> tuple[tuple[ColumnSchema, ...], Iterator[pa.Table]]:
    if version < 0:
        return (), iter(())
    if load(lake, table, "deltas", version) is None:
        raise LakeError(f"version {version} of {table} is gone", code="snapshot_gone")
    if schema_of(load(lake, table, "deltas", version)) is None:
        return (), iter(())
    plan = plan_fold(lake, table, deltas_version=version, envelopes=False)
    return plan.columns, (_with_dead(result, plan.columns) for result in run_locally(plan, KeepRows()))


def _with_dead(folded: Result, columns: Sequence[ColumnSchema]) -> pa.Table:
    """Live and deleted rows; a deleted row has no values and no stamp of its life."""
    deletes = folded["deletes"]
    dead = {stored.ROW_ID: deletes[stored.ROW_ID], "deleted": deletes["_deleted"].combine_chunks()}
    return pa.concat_tables([folded["rows"], _table(stored.base_file_schema(columns), dead)]).sort_by(stored.ROW_ID)


def _table(schema: pa.Schema, known: Mapping[str, pa.Array]) -> pa.Table:
    """Rows of which only some columns and stamps are known; the others are null."""
    count, kind = len(known[stored.ROW_ID]), schema.field(stored.STAMPS).type
    members = [
        pc.cast(known[each.name], each.type) if each.name in known else pa.nulls(count, each.type) for each in kind
    ]
    filled = {stored.STAMPS: pa.StructArray.from_arrays(members, fields=list(kind)), **known}
    arrays = [filled[each.name] if each.name in filled else pa.nulls(count, each.type) for each in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _joined(
    rows: pa.Table, more: Mapping[str, RowMerge], table: str, columns: Sequence[ColumnSchema], schema: pa.Schema
) -> pa.Table:
    """The rows of a range, those that further folds touch as JSON."""
    plain = rows.append_column(pa.field(JOINED, pa.string()), pa.nulls(rows.num_rows, pa.string())).cast(schema)
    if not more:
        return plain
    touched = pc.is_in(plain[stored.ROW_ID], value_set=pa.array(list(more), pa.string()))
    folds = dict(more)
    for row_id, known in _folds(rows.filter(touched), table, columns):
        known.join(folds[row_id])
        folds[row_id] = known
    texts = {row_id: record_line(table, row_id, fold) for row_id, fold in folds.items()}
    given = {stored.ROW_ID: pa.array(list(texts), pa.string()), JOINED: pa.array(list(texts.values()), pa.string())}
    joined = _table(schema, given)
    return pa.concat_tables([plain.filter(pc.invert(touched)), joined]).sort_by(stored.ROW_ID)
