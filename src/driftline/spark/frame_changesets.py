"""A SQLite changeset or patchset from the diff of two DataFrames.

The records are encoded and put into the session's order in tasks; they come to the caller range by range, and never
all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t

from driftline.changesets._format.changeset import Changeset, Patchset
from driftline.changesets._make.rows import EventCollector, Format, TypeVotes
from driftline.changesets._make.sections import SCHEMA as RECORDS
from driftline.changesets._make.sections import SectionPlan, cut_by_range, encode_events, joined_range
from driftline.errors import DriftlineError, OptionError
from driftline.spark.dataframes import check_same_columns, events_of_batch
from driftline.spark.runtime.shipping import ship_to_tasks
from driftline.spark.shuffle_blocks import SCHEMA, ShuffleBlock, bytes_column, pack, unpack
from driftline.spark.task_errors import error_text, raise_task_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from driftline.spark.dataframe_diff import DataFrameDiff

Batches = Iterator[pa.RecordBatch]

_EVENTS_PER_RANGE = 200_000
_RECORDS, _ERROR = "records", "error"
_PARTS = "content binary, error string"


def write_changeset(
    changes: DataFrameDiff,
    out: BinaryIO,
    *,
    table: str,
    format: Format = "changeset",  # noqa: A002 - the word of the command line
    types: Mapping[str, str] | None = None,
) -> int:
    """Write the changes of a keyed diff as a changeset or patchset of a table; how many there were.

    Columns are declared by their Spark types unless `types` says otherwise. An ordered diff gives the same bytes in
    every run.
    """
    if "key" not in changes.events.columns:
        raise OptionError("a changeset finds rows by key: diff with key=[…]", code="needs_key")
    columns = check_same_columns(changes, "a changeset")
    key = changes.events.schema["key"].dataType.fieldNames()  # type: ignore[attr-defined]
    declared = {field.name: _declared_type(field.dataType) for field in columns.fields} | dict(types or {})
    encoding = _Encoding(table, columns.fieldNames(), key, declared)
    typed = encoding.collector().table([TypeVotes()] * len(columns.fields))
    marker = (Patchset if format == "patchset" else Changeset).marker
    numbered = changes.events.where("type <> 'unchanged'").zipWithIndex("event_number")
    [facts] = numbered.agg(f.count("*").alias("count"), f.max_by("type", "event_number").alias("last")).collect()
    if not facts["count"]:
        return 0
    plan = SectionPlan.of(typed, marker, facts["count"], ends_with_update=facts["last"] == "changed")
    begun = False
    for part in _parts(numbered, encoding, plan, min(plan.buckets, -(-facts["count"] // _EVENTS_PER_RANGE))):
        if part and not begun:
            out.write(typed.header(marker))
            begun = True
        out.write(part)
    return int(facts["count"])


def _declared_type(kind: t.DataType) -> str:
    if isinstance(kind, t.IntegralType | t.BooleanType):
        return "INTEGER"
    if isinstance(kind, t.FractionalType):
        return "NUMERIC" if isinstance(kind, t.DecimalType) else "REAL"
    return "TEXT"


def _parts(numbered: DataFrame, encoding: _Encoding, plan: SectionPlan, ranges: int) -> Iterator[bytes]:
    ship_to_tasks(numbered.sparkSession)
    blocks = numbered.mapInArrow(_EncodeTask(encoding, plan, ranges), SCHEMA)
    parts = blocks.repartitionById(ranges, "target").mapInArrow(_SortTask(plan), _PARTS)
    for row in parts.toLocalIterator():
        raise_task_error(row["error"])
        yield bytes(row["content"])


class _Encoding:
    """How events become rows of a SQLite table."""

    def __init__(self, table: str, columns: list[str], key: list[str], types: dict[str, str]) -> None:
        self._table, self._columns, self._key, self._types = table, columns, key, types

    def collector(self) -> EventCollector:
        made = EventCollector(self._table, types=self._types, primary_key=self._key)
        made.add({"type": "schema", "columns_b": self._columns})
        return made


class _EncodeTask:
    """Records of the events of each batch, by range of buckets."""

    def __init__(self, encoding: _Encoding, plan: SectionPlan, ranges: int) -> None:
        self._encoding, self._plan, self._ranges = encoding, plan, ranges

    def __call__(self, batches: Batches) -> Batches:
        return pack(block for batch in batches if batch.num_rows for block in self._blocks(batch))

    def _blocks(self, batch: pa.RecordBatch) -> Iterator[ShuffleBlock]:
        collector = self._encoding.collector()
        for event in events_of_batch(batch):
            collector.add(event)
        try:
            records = encode_events(self._plan, collector, batch.column("event_number")[0].as_py())
        except DriftlineError as error:
            yield ShuffleBlock(0, _ERROR, "", 0, error_text(error).encode())
            return
        for target, part in cut_by_range(self._plan, records, self._ranges):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, RECORDS) as out:
                out.write_table(part)
            yield ShuffleBlock(target, _RECORDS, "", 0, memoryview(sink.getvalue()))


class _SortTask:
    """The bytes of a range of buckets, in blocks."""

    def __init__(self, plan: SectionPlan) -> None:
        self._plan = plan

    def __call__(self, batches: Batches) -> Batches:
        parts: dict[int, list[pa.Table]] = {}
        for block in unpack(batches):
            if block.kind == _ERROR:
                yield _part(b"", bytes(block.blob).decode())
                return
            parts.setdefault(block.target, []).append(pa.ipc.open_stream(block.blob).read_all())
        for target in sorted(parts):
            try:
                yield from (_part(bytes(content), None) for content in joined_range(self._plan, parts.pop(target)))
            except DriftlineError as error:
                yield _part(b"", error_text(error))


def _part(content: bytes, error: str | None) -> pa.RecordBatch:
    errors = pa.array([error], pa.string())
    return pa.RecordBatch.from_arrays([bytes_column(pa.binary(), [content]), errors], names=["content", "error"])
