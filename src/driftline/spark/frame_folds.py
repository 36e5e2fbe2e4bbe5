"""The state of a table from a DataFrame of row deltas: the fold of the lake, in the tasks of the caller's session.

    rows = fold(deltas, schema)                          # as it is now
    rows = state_as_of(deltas, schema, "2026-11-15")     # as it was

Each task folds what it reads, sends what is left by row id, and folds again what meets. No order of the deltas is
needed, and one that comes twice counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from driftline.deltas import ColumnSchema, RowDelta, TableSchema
from driftline.deltas._wire import delta_from_wire
from driftline.lake._store.lake import LAST_TIMESTAMP, parse_timestamp
from driftline.lake._store.rows import ROW_ID, escaped, state_file_schema
from driftline.spark.runtime.shipping import ship_to_tasks
from driftline.spark.runtime.workers import settle_worker
from driftline.spark.shuffle_blocks import SCHEMA, ShuffleBlock, pack, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.lake._fold.fold import Folded

Batches = Iterator[pa.RecordBatch]
Moment = int | str | datetime

_SPARK_TYPES = {"string": "string", "number": "double", "boolean": "boolean", "json": "string"}
_HELD_BYTES = 64 << 20  # so much waits for a fold


def fold(deltas: DataFrame, schema: TableSchema | Mapping[str, Any], *, ordered: bool = False) -> DataFrame:
    """The live rows that deltas lead to: `_row_id` and the columns of the schema.

    `deltas` has a column `delta` of JSON texts, as `row_deltas` gives them; those of other tables are passed over.
    """
    return state_as_of(deltas, schema, LAST_TIMESTAMP, ordered=ordered)


def state_as_of(
    deltas: DataFrame, schema: TableSchema | Mapping[str, Any], moment: Moment, *, ordered: bool = False
) -> DataFrame:
    """The rows that lived at a moment: a timestamp of deltas, or a time."""
    table = schema if isinstance(schema, TableSchema) else TableSchema.from_wire(schema)
    until = _timestamp(moment)
    ship_to_tasks(deltas.sparkSession)
    targets = int(deltas.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    blocks = deltas.select("delta").mapInArrow(_Reading(table, until, targets), SCHEMA)
    columns = ", ".join(f"`{column.name.replace('`', '``')}` {_SPARK_TYPES[column.type]}" for column in table.columns)
    rows = blocks.repartitionById(targets, "target").mapInArrow(_Folding(table.columns), f"{ROW_ID} string, {columns}")
    return rows.orderBy(ROW_ID) if ordered else rows


def _timestamp(moment: Moment) -> int:
    return parse_timestamp(moment.isoformat() if isinstance(moment, datetime) else str(moment))


class _Reading:
    """The first task: deltas of one table up to a moment, those that can matter, by row id."""

    def __init__(self, table: TableSchema, until: int, targets: int) -> None:
        self._table, self._until, self._targets = table, until, targets

    def __call__(self, batches: Batches) -> Batches:
        settle_worker()
        return pack(self._blocks(batches))

    def _blocks(self, batches: Batches) -> Iterator[ShuffleBlock]:
        for batch in batches:
            yield from self._sent(list(self._deltas(batch.column(0).to_pylist())))

    def _deltas(self, texts: Sequence[str | None]) -> Iterator[RowDelta]:
        for text in texts:
            delta = delta_from_wire(msgspec.json.decode(text or "null"), stored=True)
            if delta.table == self._table.table and delta.hlc <= self._until:
                yield delta

    def _sent(self, deltas: Sequence[RowDelta]) -> Iterator[ShuffleBlock]:
        import polars as pl

        from driftline.lake._fold.fold import useful
        from driftline.lake._store.rows import encode_deltas
        from driftline.lake._store.stamps import stamp_deltas

        columns = self._table.columns
        stamped = useful(columns, stamp_deltas(encode_deltas(deltas, columns), columns))
        targets = pl.Series(pl.from_arrow(stamped["row_id"])).hash(0) % self._targets
        for target in targets.unique():
            part = stamped.filter(pa.array((targets == target).to_numpy()))
            yield ShuffleBlock(int(target), "deltas", "", 0, _as_stream(part))


class _Folding:
    """The second task: all that is left of the deltas of some rows."""

    def __init__(self, columns: Sequence[ColumnSchema]) -> None:
        self._columns = columns

    def __call__(self, batches: Batches) -> Batches:
        settle_worker()
        folded: Folded | None = None
        held: list[Any] = []
        for block in unpack(batches):
            held.append(pa.ipc.open_stream(pa.py_buffer(bytes(block.blob))).read_all())
            if sum(table.nbytes for table in held) > _HELD_BYTES:
                folded, held = self._folded(held, folded), []
        if held:
            folded = self._folded(held, folded)
        if folded is not None:
            names = [ROW_ID, *escaped(self._columns)]
            yield from folded.base.select(names).cast(self._shown(names)).to_batches()

    def _folded(self, held: list[Any], before: Folded | None) -> Folded:
        from driftline.lake._fold.fold import fold as fold_deltas

        base, deletes = (None, None) if before is None else (before.base, before.deletes)
        return fold_deltas(self._columns, pa.concat_tables(held), base, deletes)

    def _shown(self, names: Sequence[str]) -> pa.Schema:
        fields = zip(names, state_file_schema(self._columns), strict=True)
        return pa.schema([pa.field(name, field.type) for name, field in fields])


def _as_stream(table: Any) -> bytes:
    part = table.unify_dictionaries().combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.schema) as writer:
        writer.write_table(part)
    content: bytes = sink.getvalue().to_pybytes()
    return content
