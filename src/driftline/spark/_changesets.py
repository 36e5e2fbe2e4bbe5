"""SQLite changesets and patchsets on Spark, from the diff of two DataFrames or the events of a table diff.

Tasks encode records and put them into the order of a changeset by their sort key. The events of a table diff are in a
file or a folder of parts that tasks see: a first job counts the events of each split and finds the column types, a
second one encodes records, shuffles them by range of buckets, sorts each range and writes it as a part. The driver
gets counts and part names only.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate
from operator import or_
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import pyarrow as pa
from pyspark.sql import functions as f, types as t

from driftline import core
from driftline.changesets import Changeset, Patchset, kernels
from driftline.errors import DriftlineError, OptionError
from driftline.spark._frames.functions import check_same_columns, events_of_batch
from driftline.spark._jobs import OrderedPart, join_parts, scratch_place, shared_folder_needed, watched, write_part
from driftline.spark._runtime.pyspark_internals import to_partitions, with_row_numbers
from driftline.spark._runtime.session import open_session, ship_to_tasks
from driftline.spark._tasks import BLOCK_SCHEMA, ShuffleBlock, TaskPool, frame_schema, pack, table_blobs, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from driftline.spark._frames.diff import DataFrameDiff
    from driftline.tables import Stats, TableDiffJob

Batches = Iterator[pa.RecordBatch]
Reading = Callable[[dict[str, Any]], dict[str, Any]]

SPLIT_BYTES = 8 << 20
RANGE_BYTES = 48 << 20

_EVENTS_PER_RANGE = 200_000
_RECORDS, _FACT = "records", "fact"
_NO_CHANGE = ("schema", "stats", "unchanged")


@dataclass(frozen=True)
class EventDecoder:
    """How events are read: the table's name, declared types, columns and key."""

    table: str
    types: Mapping[str, str]
    columns: tuple[str, ...]
    key: tuple[str, ...]
    reading: Reading | None = None

    def collector(self) -> kernels.EventCollector:
        """A collector that has the columns, for splits without the schema event."""
        made = kernels.EventCollector(self.table, types=self.types, primary_key=self.key or None)
        made.add({"type": "schema", "columns_b": list(self.columns)})
        return made


# From the diff of two DataFrames: the parts reach the caller one by one.


def write_changeset(
    changes: DataFrameDiff,
    out: BinaryIO,
    *,
    table: str,
    format: kernels.Format = "changeset",  # noqa: A002 - the word of the command line
    types: Mapping[str, str] | None = None,
) -> int:
    """Write the changes of a keyed diff as a changeset or patchset of a table; the number of changes.

    Columns are declared by their Spark types unless `types` says otherwise. An ordered diff gives the same bytes in
    every run.
    """
    if "key" not in changes.events.columns:
        raise OptionError("a changeset finds rows by key: diff with key=[…]", code="needs_key")
    columns = check_same_columns(changes, "a changeset")
    key = changes.events.schema["key"].dataType.fieldNames()  # type: ignore[attr-defined]
    declared = {field.name: _declared_type(field.dataType) for field in columns.fields} | dict(types or {})
    decoder = EventDecoder(table, declared, tuple(columns.fieldNames()), tuple(key))
    typed = decoder.collector().table([kernels.TypeInference()] * len(columns.fields))
    marker = (Patchset if format == "patchset" else Changeset).marker
    numbered = with_row_numbers(changes.events.where("type <> 'unchanged'"), "event_number", dense=True)
    [facts] = numbered.agg(f.count("*").alias("count"), f.max_by("type", "event_number").alias("last")).collect()
    if not facts["count"]:
        return 0
    plan = kernels.SectionPlan.of(typed, marker, facts["count"], ends_with_update=facts["last"] == "changed")
    ranges = min(plan.buckets, -(-facts["count"] // _EVENTS_PER_RANGE))
    ship_to_tasks(numbered.sparkSession)
    blocks = numbered.mapInArrow(partial(_encode_batches, decoder, plan, ranges), frame_schema(BLOCK_SCHEMA))
    has_header = False
    for row in _in_ranges(blocks, plan, ranges, None).toLocalIterator():
        content = bytes(row["blob"]) if row["kind"] == _RECORDS else _opened(bytes(row["blob"]))
        if content and not has_header:
            out.write(typed.header(marker))
            has_header = True
        out.write(content)
    return int(facts["count"])


def _declared_type(kind: t.DataType) -> str:
    if isinstance(kind, t.IntegralType | t.BooleanType):
        return "INTEGER"
    if isinstance(kind, t.FractionalType):
        return "NUMERIC" if isinstance(kind, t.DecimalType) else "REAL"
    return "TEXT"


# From the events of a table diff.


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """What the driver needs to know of a split."""

    events: int
    ends_with_update: bool
    votes: list[kernels.TypeInference]


def diff_to_changeset(
    run: Callable[[TableDiffJob, Callable[[Any], object]], Stats],
    job: TableDiffJob,
    out: BinaryIO,
    format_name: str,
    **settings: Any,
) -> Stats:
    """Diff on Spark and write the changes as a changeset or patchset; `settings` are those of `events_to_changeset`."""
    with open_session(job.master) as spark, scratch_place(spark) as scratch:
        if scratch is None:
            raise shared_folder_needed("a changeset is put into order in files")
        events = core.PartWriter(scratch / "events")
        stats = run(replace(job, parts=events), events.write)
        events.commit()
        settings = {"folder": scratch, "tracker": job.tracker, **settings}
        events_to_changeset(spark, events.folder, out, format_name, **settings)
    return stats


def events_to_changeset(
    spark: SparkSession,
    path: core.AnyPath,
    out: BinaryIO,
    format_name: str,
    *,
    folder: core.Location,
    table: str,
    types: Mapping[str, str],
    reading: Reading | None = None,
    notice: Callable[[str], None] | None = None,
    tracker: core.Tracker | None = None,
    split_bytes: int = SPLIT_BYTES,
    range_bytes: int = RANGE_BYTES,
) -> int:
    """Write diff events (a file or a folder of parts) as the changeset of the local engine; the number of changes.

    All workers see the events, and `folder`, where parts are written. `reading` gives the cells of an event their
    values.
    """
    tracker = tracker or core.no_progress()
    marker = (Patchset if format_name == "patchset" else Changeset).marker
    decoder = _read_decoder(path, table, types, reading)
    splits = core.line_ranges(path, split_bytes)
    facts: list[SplitFacts] = list(TaskPool(spark, tracker, "column types").map(partial(_survey, decoder), splits))
    votes = [reduce(or_, column) for column in zip(*(fact.votes for fact in facts), strict=True)]
    typed = decoder.collector().table(votes)
    if notice is not None:
        notice(kernels.describe_types(typed, types))
    count = sum(fact.events for fact in facts)
    if not count:
        return 0
    last = [fact.ends_with_update for fact in facts if fact.events][-1]
    plan = kernels.SectionPlan.of(typed, marker, count, ends_with_update=last)
    first_events = [0, *accumulate(fact.events for fact in facts)]
    ranges = min(plan.buckets, max(1, -(-sum(split.stop - split.start for split in splits) // range_bytes)))
    encode = partial(_encode_splits, decoder, plan, ranges, splits, first_events)
    tasks = spark.range(0, len(splits), 1, len(splits))
    written = _in_ranges(tasks.mapInArrow(encode, frame_schema(BLOCK_SCHEMA)), plan, ranges, folder)
    rows = watched(spark, tracker, "encode", len(splits) + ranges, written.collect)
    parts: list[OrderedPart] = [_opened(bytes(row["blob"])) for row in rows]
    if any(part.size for part in parts):
        out.write(typed.header(marker))
    join_parts(parts, out.write)
    return count


def _read_decoder(path: core.AnyPath, table: str, types: Mapping[str, str], reading: Reading | None) -> EventDecoder:
    """The columns from the schema event, the key from the first event that has one."""
    columns: tuple[str, ...] = ()
    for line in core.read_pieces(path):
        event = msgspec.json.decode(line)
        if event["type"] == "schema":
            columns = tuple(event["columns_b"])
        elif event["type"] != "stats":
            probe = EventDecoder(table, types, columns, (), reading).collector()
            probe.add(event)
            if probe.key is not None:
                return EventDecoder(table, types, columns, tuple(probe.key), reading)
    return EventDecoder(table, types, columns, (), reading)


def _survey(decoder: EventDecoder, split: core.LineRange) -> SplitFacts:
    collector = _collected(decoder, split)
    return SplitFacts(len(collector), collector.ends_with_update(), collector.votes())


def _encode_splits(
    decoder: EventDecoder,
    plan: kernels.SectionPlan,
    ranges: int,
    splits: Sequence[core.LineRange],
    first_events: Sequence[int],
    batches: Batches,
) -> Batches:
    return pack(
        block
        for batch in batches
        for number in batch.column(0).to_pylist()
        for block in _encoded(plan, ranges, partial(_collected, decoder, splits[number]), first_events[number])
    )


def _encode_batches(decoder: EventDecoder, plan: kernels.SectionPlan, ranges: int, batches: Batches) -> Batches:
    def collected(batch: pa.RecordBatch) -> kernels.EventCollector:
        collector = decoder.collector()
        for event in events_of_batch(batch):
            collector.add(event)
        return collector

    return pack(
        block
        for batch in batches
        if batch.num_rows
        for block in _encoded(plan, ranges, partial(collected, batch), batch.column("event_number")[0].as_py())
    )


def _encoded(
    plan: kernels.SectionPlan, ranges: int, collect: Callable[[], kernels.EventCollector], first_event: int
) -> Iterator[ShuffleBlock]:
    """Records of some events by range of buckets, or the error that they raise."""
    try:
        records = kernels.encode_events(plan, collect(), first_event)
    except DriftlineError as error:
        yield ShuffleBlock(0, _FACT, "", 0, pickle.dumps(error))
        return
    for target, part in kernels.cut_by_range(plan, records, ranges):
        for blob in table_blobs(part):
            yield ShuffleBlock(target, _RECORDS, "", 0, blob)


def _in_ranges(blocks: DataFrame, plan: kernels.SectionPlan, ranges: int, folder: core.Location | None) -> DataFrame:
    """Ranges of buckets in order: parts written into a folder, or blocks of bytes for the driver."""
    sort = partial(_sort_task, plan, folder)
    return blocks.transform(to_partitions, ranges, "target").mapInArrow(sort, frame_schema(BLOCK_SCHEMA))


def _sort_task(plan: kernels.SectionPlan, folder: core.Location | None, batches: Batches) -> Batches:
    def blocks() -> Iterator[ShuffleBlock]:
        ranges: defaultdict[int, list[pa.Table]] = defaultdict(list)
        for block in unpack(batches):
            if block.kind == _FACT:
                yield block
            else:
                ranges[block.target].append(pa.ipc.open_stream(block.blob).read_all())
        for number in sorted(ranges):
            try:
                contents = kernels.joined_range(plan, ranges.pop(number))
                if folder is not None:
                    yield ShuffleBlock(0, _FACT, "", number, pickle.dumps(write_part(folder, number, contents)))
            except DriftlineError as error:
                yield ShuffleBlock(0, _FACT, "", number, pickle.dumps(error))
                continue
            if folder is None:
                yield from (ShuffleBlock(number, _RECORDS, "", 0, content) for content in contents)

    return pack(blocks())


def _collected(decoder: EventDecoder, split: core.LineRange) -> kernels.EventCollector:
    collector = decoder.collector()
    with core.open_to_read(split.path) as file:
        file.seek(split.start)
        lines = file.read(split.stop - split.start).split(b"\n")
    if decoder.reading is None:
        collector.add_lines(lines)
    else:
        for line in filter(None, lines):
            event = msgspec.json.decode(line)
            collector.add(event if event["type"] in _NO_CHANGE else decoder.reading(event))
    return collector


def _opened(blob: bytes) -> Any:
    found = pickle.loads(blob)  # noqa: S301 - written by our own tasks
    if isinstance(found, DriftlineError):
        raise found
    return found
