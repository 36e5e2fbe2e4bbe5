"""Functions over the columns of DataFrames, lazily, in the caller's own session (classic or Connect).

    rows = merge_rows(driftline.spark.diff(before, after, key=["id"]))
    reports = compare_payloads(frame, "old", "new", schema)
    deltas = row_deltas(driftline.spark.diff(before, after, key=["id"]), table="users", client_id="nightly", start=hlc)

    rows = state_as_of(deltas, schema, "2026-11-15")

Each runs the function for one machine in tasks. driftline is shipped to the executors of the session; the packages it
needs must be installed there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import functions as f, types as t

from driftline.core import JsonObject, exact_loads
from driftline.deltas import MAX_DIGITS, MAX_HLC, ColumnSchema, TableSchema, delta_from_wire
from driftline.errors import DriftlineError, OptionError, PayloadError
from driftline.lake import LAST_TIMESTAMP, parse_timestamp
from driftline.lake.kernels import ROW_ID, escape_columns, state_file_schema
from driftline.spark._runtime.pyspark_internals import newer_type, to_partitions, with_row_numbers
from driftline.spark._runtime.session import ship_to_tasks
from driftline.spark._tasks import BLOCK_SCHEMA, ShuffleBlock, pack, prepare_worker, table_blob, unpack

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from driftline.spark._frames.diff import DataFrameDiff

Batches = Iterator[pa.RecordBatch]
PointInTime = int | str | datetime

_COMPARISON = "is_match boolean, report string, error string"
_INDEX_DIFF = "diff_id string, changed boolean, summary string, events array<string>, error string"
_ARROW_TYPES = {"string": pa.string(), "boolean": pa.bool_(), "array<string>": pa.list_(pa.string())}
_SPARK_TYPES = {
    "string": "string",
    "number": "double",
    "boolean": "boolean",
    "json": "string",
    "integer": "bigint",
    "decimal": f"decimal({MAX_DIGITS},{{}})",
}
_HELD_BYTES = 64 << 20  # of deltas that are folded at once


def merge_rows(changes: DataFrameDiff) -> DataFrame:
    """A row for each event of a keyed diff, ready for MERGE: `op` and the columns of the table.

    `op` is insert, update or delete. An update has the new values, a delete the old ones.
    """
    events = changes.events
    if "key" not in events.columns:
        raise OptionError("MERGE matches rows by key: diff with key=[…]", code="needs_key")
    names = check_same_columns(changes, "MERGE").fieldNames()
    op = "CASE type WHEN 'added' THEN 'insert' WHEN 'removed' THEN 'delete' ELSE 'update' END"
    rows = events.where("type <> 'unchanged'").select(f.expr(op).alias("op"), f.coalesce("after", "row").alias("row"))
    return rows.select("op", *(f.col("row")[name].alias(name) for name in names))


def side_by_side(changes: DataFrameDiff) -> DataFrame:
    """A row for each event, flat: `type`, the key or row number, and every column as `NAME_before` and `NAME_after`.

    The side that an event does not have is null.
    """
    events, kind = changes.events, f.col("type")
    cells = {}
    for side, alone in (("before", "removed"), ("after", "added")):
        own = side in events.columns
        for field in _fields(events, side if own else "row"):
            cell = f.when(kind.isin(alone, "unchanged"), f.col("row")[field.name].cast(field.dataType))
            cells[f"{field.name}_{side}"] = f.coalesce(f.col(side)[field.name], cell) if own else cell
    return _flat(events, {"type": kind}, cells)


def changed_cells(changes: DataFrameDiff) -> DataFrame:
    """A row for each cell that changed: the key or row number, `column`, and its values as text, `before` and `after`.

    Nested values are JSON text and binary ones hexadecimal; a null stays null.
    """
    if "delta" not in changes.events.columns:
        raise OptionError("rows without key and position have no changed cells: diff with key=[…]", code="needs_key")
    names = {"from": "before", "to": "after"}
    cells = [
        f.struct(
            f.lit(column.name).alias("column"),
            *(_as_text(f.col("delta")[column.name], each).alias(names[each.name]) for each in column.dataType.fields),  # type: ignore[attr-defined]
        )
        for column in _fields(changes.events, "delta")
    ]
    changed = f.filter(f.array(*cells), lambda cell: f.array_contains(f.col("changed"), cell["column"]))
    parts = {name: f.col("cell")[name] for name in ("column", *names.values())}
    rows = changes.events.where("type = 'changed'").select("*", f.explode(changed).alias("cell"))
    return _flat(rows, {}, parts)


def _fields(events: DataFrame, name: str) -> list[t.StructField]:
    kind = events.schema[name].dataType
    assert isinstance(kind, t.StructType), "rows and keys are structs"
    return kind.fields


def _as_text(change: Column, side: t.StructField) -> Column:
    value, kind = change[side.name], side.dataType
    if isinstance(kind, t.BinaryType):
        return f.hex(value)
    is_nested = isinstance(kind, (t.ArrayType, t.MapType, t.StructType, newer_type("VariantType")))
    return f.to_json(value, {"ignoreNullFields": "false"}) if is_nested else value.cast("string")


def _flat(events: DataFrame, first: Mapping[str, Column], cells: Mapping[str, Column]) -> DataFrame:
    """The columns, with those of the key or the row number behind the first; no two may have one name."""
    place = {"row_index": f.col("row_index")} if "row_index" in events.columns else {}
    if "key" in events.columns:
        place = {field.name: f.col("key")[field.name] for field in _fields(events, "key")}
    columns = [*first.items(), *place.items(), *cells.items()]
    names = [name.lower() for name, _ in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"two columns would be called {twice!r}: rename one before the diff", code="invalid_option")
    return events.select(*(column.alias(name) for name, column in columns))


def compare_payloads(
    frame: DataFrame,
    old: str,
    new: str,
    schema: Any,
    *,
    config: Mapping[str, Any] | None = None,
    root: str | None = None,
) -> DataFrame:
    """The frame with `is_match` and `report` (JSON) for the payloads in two columns of JSON text.

    A pair that cannot be compared has neither, and `error` says why. The schema is compiled here once, so that a
    mistake in it is raised now.
    """
    from driftline.payloads import compile as compile_schema

    compile_schema(schema, config, root)
    ship_to_tasks(frame.sparkSession)
    comparing = partial(_comparer, schema, dict(config or {}), root)
    return _extended(frame, comparing, _COMPARISON, old, new)


def row_deltas(
    changes: DataFrameDiff,
    *,
    table: str,
    client_id: str,
    start: int,
    schema: TableSchema | Mapping[str, Any] | None = None,
) -> DataFrame:
    """The row deltas of a diff, as `driftline.deltas.from_events` makes them: timestamp and JSON text of each.

    `start` is the timestamp of the first event; those of the others follow it in the order of the events. Numbers are
    those of the schema's columns, which is the one to `fold` with; without one, integers are of type `integer` and
    decimals of `decimal(S)`, as the DataFrames declare them.
    """
    if not 0 <= start <= MAX_HLC:
        raise OptionError(f"start is a timestamp from 0 to 2^63 - 1, not {start}", code="invalid_hlc")
    _check_whole(changes)
    ship_to_tasks(changes.events.sparkSession)
    numbered = with_row_numbers(changes.events.where("type <> 'unchanged'"), "event_number", dense=True)
    types = _declared_types(changes, schema)
    return numbered.mapInArrow(partial(_delta_task, table, client_id, start, types), "hlc long, delta string")


def _declared_types(changes: DataFrameDiff, schema: TableSchema | Mapping[str, Any] | None) -> dict[str, str]:
    """The types of columns of numbers: of the schema, else those that the DataFrames declare."""
    if schema is not None:
        table = schema if isinstance(schema, TableSchema) else TableSchema.from_wire(schema)
        return {column.name: column.type for column in table.columns if column.is_exact or column.kind == "number"}
    row = changes.events.schema["row"].dataType
    assert isinstance(row, t.StructType), "a row is a struct"
    kinds = {each.name: each.dataType for each in row}
    integers = {name: "integer" for name, kind in kinds.items() if isinstance(kind, t.IntegralType)}
    return integers | {
        name: f"decimal({kind.scale})" for name, kind in kinds.items() if isinstance(kind, t.DecimalType)
    }


def index_diffs(
    frame: DataFrame,
    before: str,
    after: str,
    *,
    cache_root: str | None = None,
    modes: Sequence[str] = ("code",),
    max_events: int = 20000,
    include_relations: bool = True,
    detect_renames: bool = True,
) -> DataFrame:
    """The frame with what changed between the code indexes that two columns refer to: a repository in each row.

    References are those of `driftline index diff` (`path:…`, `git:…`, `build:…`), on storage that the workers see.
    Added are `diff_id`, `changed`, `summary` (JSON), `events` (JSON texts in order), and `error` where there is no
    diff.
    """
    from driftline.codeindex import DiffOptions

    limits = {"max_events": max_events, "include_relations": include_relations, "detect_renames": detect_renames}
    DiffOptions.of(modes, **limits)  # type: ignore[arg-type]  # a mistake in them is raised now
    ship_to_tasks(frame.sparkSession)
    differ = partial(_index_diff, cache_root=cache_root, modes=tuple(modes), limits=limits)
    return _extended(frame, lambda: differ, _INDEX_DIFF, before, after)


def check_same_columns(changes: DataFrameDiff, who: str) -> t.StructType:
    """The columns of a diff's rows, which must be the same on both sides."""
    _check_whole(changes)
    row, after = (changes.events.schema[name].dataType for name in ("row", "after"))
    if row.simpleString() != after.simpleString():
        raise OptionError(
            f"{who} needs rows with the same columns and types on both sides: rename and cast before the diff",
            code="invalid_option_combination",
        )
    assert isinstance(row, t.StructType), "a row is a struct"
    return row


def _check_whole(changes: DataFrameDiff) -> None:
    if not changes.whole_rows:
        raise OptionError("whole rows are needed: diff without changed_columns_only", code="invalid_option_combination")


def _extended(
    frame: DataFrame, begin: Callable[[], Callable[[Any, Any], JsonObject]], added: str, one: str, other: str
) -> DataFrame:
    """The frame with the columns `added`: what a function, begun in each task, makes of two columns."""

    def task(batches: Batches) -> Batches:
        prepare_worker()
        function = begin()
        kind = pa.struct([(name, _ARROW_TYPES[of]) for name, of in map(str.split, added.split(", "))])
        for batch in batches:
            pairs = zip(batch.column(one).to_pylist(), batch.column(other).to_pylist(), strict=True)
            found = pa.array([function(*pair) for pair in pairs], kind)
            names = [*batch.schema.names, *(field.name for field in kind)]
            yield pa.RecordBatch.from_arrays([*batch.columns, *found.flatten()], names=names)

    own = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in frame.dtypes)
    return frame.mapInArrow(task, f"{own}, {added}")


def _comparer(schema: Any, config: JsonObject, root: str | None) -> Callable[[Any, Any], JsonObject]:
    from driftline.payloads import compile as compile_schema

    plan = compile_schema(schema, config, root)

    def compare(old: str | None, new: str | None) -> JsonObject:
        try:
            report = plan.compare((old or "null").encode(), (new or "null").encode())
        except PayloadError as error:
            return {"error": f"{error.code.wire}: {error.message}"}
        return {"is_match": report.is_match, "report": report.to_json(execution=False).decode()}

    return compare


def _index_diff(
    before: str, after: str, cache_root: str | None, modes: tuple[str, ...], limits: JsonObject
) -> JsonObject:
    from driftline.codeindex import IndexDiffJob
    from driftline.codeindex.kernels import run_job

    try:
        job = IndexDiffJob.of(before, after, cache_root, modes=modes, persist=False, **limits)
    except DriftlineError as error:
        return {"error": f"{error.code.wire}: {error.message}"}
    outcome = run_job(job, with_events=True)
    if not outcome["ok"]:
        return {"error": f"{outcome['code']}: {outcome['message']}"}
    return {
        "diff_id": outcome["diffId"],
        "changed": outcome["changed"],
        "summary": _json(outcome["summary"]),
        "events": list(map(_json, outcome["events"])),
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _delta_task(table: str, client_id: str, start: int, types: Mapping[str, str], batches: Batches) -> Batches:
    from driftline.deltas import from_events, typed_event, with_doubles

    prepare_worker()
    doubles = {name: True for name, kind in types.items() if kind == "number"}
    exact = {name: kind for name, kind in types.items() if kind != "number"}
    for batch in batches:
        times: list[int] = []
        texts: list[str] = []
        for event, number in zip(events_of_batch(batch), batch.column("event_number").to_pylist(), strict=True):
            typed = [typed_event(with_doubles(event, doubles), exact)]
            for delta in from_events(typed, table=table, client_id=client_id, start=start + number):
                times.append(delta.hlc)
                texts.append(_json(delta.to_wire()))
        columns = [pa.array(times, pa.int64()), pa.array(texts, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=["hlc", "delta"])


def events_of_batch(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The events of a batch with the values that a table diff of typed cells writes."""
    names = [name for name in ("key", "row", "before", "after") if name in batch.schema.names]
    parts = {name: _json_rows(batch.column(name)) for name in names}
    numbers = batch.column("row_index").to_pylist() if "row_index" in batch.schema.names else None
    for at, kind in enumerate(batch.column("type").to_pylist()):
        event = {"type": kind, **{name: rows[at] for name, rows in parts.items() if rows[at] is not None}}
        yield event if numbers is None else {**event, "row_index": numbers[at]}


def _json_rows(column: pa.StructArray) -> list[dict[str, Any] | None]:
    from driftline.sources import json_columns

    names = [field.name for field in column.type]
    cells = json_columns(pa.Table.from_arrays(column.flatten(), [str(at) for at in range(len(names))]))
    rows = zip(*(cells.column(at).to_pylist() for at in range(len(names))), strict=True)
    return [
        {name: exact_loads(text) for name, text in zip(names, row, strict=True)} if there else None
        for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)
    ]


# The state of a table from row deltas: each task folds what it reads, sends the result by row id, and folds again.
# The deltas need no order, and a repeated one counts once.


def fold(deltas: DataFrame, schema: TableSchema | Mapping[str, Any], *, ordered: bool = False) -> DataFrame:
    """The live rows that result from deltas: `_row_id` and the columns of the schema.

    `deltas` has a column `delta` of JSON texts, as `row_deltas` gives them; those of other tables are ignored.
    """
    return state_as_of(deltas, schema, LAST_TIMESTAMP, ordered=ordered)


def state_as_of(
    deltas: DataFrame, schema: TableSchema | Mapping[str, Any], moment: PointInTime, *, ordered: bool = False
) -> DataFrame:
    """The live rows as of a point in time: a timestamp of deltas, or a time."""
    table = schema if isinstance(schema, TableSchema) else TableSchema.from_wire(schema)
    until = _timestamp(moment)
    ship_to_tasks(deltas.sparkSession)
    targets = int(deltas.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    blocks = deltas.select("delta").mapInArrow(partial(_split_task, table, until, targets), BLOCK_SCHEMA)
    kinds = {each.name.replace("`", "``"): _SPARK_TYPES[each.kind].format(each.scale) for each in table.columns}
    columns = ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
    by_row = to_partitions(blocks, targets, "target")
    rows = by_row.mapInArrow(partial(_fold_task, table.columns), f"{ROW_ID} string, {columns}")
    return rows.orderBy(ROW_ID) if ordered else rows


def _timestamp(moment: PointInTime) -> int:
    return parse_timestamp(moment.isoformat() if isinstance(moment, datetime) else str(moment), whole_day=True)


def _split_task(table: TableSchema, until: int, targets: int, batches: Batches) -> Batches:
    """The first task: the deltas of one table up to a timestamp that can matter, by row id."""
    return pack(block for batch in batches for block in _sent(table, until, targets, batch.column(0).to_pylist()))


def _sent(table: TableSchema, until: int, count: int, texts: Sequence[str | None]) -> Iterator[ShuffleBlock]:
    import polars as pl

    from driftline.lake.kernels import encode_deltas, needs_fold, stamp_deltas

    found = [delta_from_wire(msgspec.json.decode(text or "null"), stored=True) for text in texts]
    deltas = [delta for delta in found if delta.table == table.table and delta.hlc <= until]
    stamped = needs_fold(table.columns, stamp_deltas(encode_deltas(deltas, table.columns), table.columns))
    targets = pl.Series(pl.from_arrow(stamped["row_id"])).hash(0) % count
    for target in targets.unique():
        part = stamped.filter(pa.array((targets == target).to_numpy()))
        yield ShuffleBlock(int(target), "deltas", "", 0, table_blob(part.unify_dictionaries().combine_chunks()))


def _fold_task(columns: Sequence[ColumnSchema], batches: Batches) -> Batches:
    """The second task: all deltas of some rows, folded."""
    from driftline.lake.kernels import fold as fold_deltas

    prepare_worker()
    base, deletes = None, None
    held: list[Any] = []

    def fold_held() -> tuple[Any, Any]:
        folded = fold_deltas(columns, pa.concat_tables(held), base, deletes)
        held.clear()
        return folded.base, folded.deletes

    for block in unpack(batches):
        held.append(pa.ipc.open_stream(pa.py_buffer(bytes(block.blob))).read_all())
        if sum(table.nbytes for table in held) > _HELD_BYTES:
            base, deletes = fold_held()
    if held:
        base, deletes = fold_held()
    if base is not None:
        names = [ROW_ID, *escape_columns(columns)]
        fields = zip(names, state_file_schema(columns), strict=True)
        shown = pa.schema([pa.field(name, field.type) for name, field in fields])
        yield from base.select(names).cast(shown).to_batches()
