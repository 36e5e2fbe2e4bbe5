"""Index diffs on Spark: files and chunks of large indexes joined by file, and many repositories at once.

Tasks run the kernels of `codeindex`, so the events are the same bytes as on one machine. Only counts, the paths of the
files to compare inside (up to a limit) and at most `max_events` events reach the driver.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from driftline.codeindex import V2, DiffOptions, IndexDiffJob, IndexEvent, ModeScheduler, diff_mode, kernels
from driftline.codeindex.kernels import (
    AFTER,
    BEFORE,
    FileChange,
    IndexDir,
    IndexSide,
    ModeDiff,
    Record,
    SelectedRows,
    Split,
    change_from_payload,
    change_payload,
    compact_json,
    file_event,
    note_file_counts,
    open_side,
    path_key,
    path_of,
    plan_splits,
    read_pieces,
    same_artifacts,
)
from driftline.core import Tracker
from driftline.errors import DriftlineError, EngineError, IndexRefError
from driftline.spark._runtime.pyspark_internals import to_partitions
from driftline.spark._runtime.session import open_session
from driftline.spark._runtime.workers import prepare_worker
from driftline.spark._tasks import bytes_column, frame_schema, integer_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Up to this many files to compare inside, tasks get their paths and leave all other rows unread.
WANTED_FILES_LIMIT = 100_000

RECORD_SCHEMA = "side int, key binary, file_id string, row_id string, count bigint, payload binary"
CHANGE_SCHEMA = (
    "kind string, key binary, old_key binary, hash string, ids string, side int, count bigint, payload binary"
)
EVENT_SCHEMA = "key binary, seq bigint, kind string, line binary"

CHANGE_TAG, CHUNK_TAG, IMPORTS_TAG = 0, 1, 2

_ARROW_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_MIN_PARTITIONS = 2
_SPLITS_PER_PARTITION = 2
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 10_000
_ROW_OVERHEAD = 64

# Around an error in the text of a task's failure, which also quotes source lines: those do not contain the mark.
_MARK = "\u2063driftline\u2063"
_ERROR = re.compile(f"{_MARK}(.*?){_MARK}", re.DOTALL)

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]


@contextmanager
def index_scheduler(master: str | None = None) -> Iterator[ModeScheduler]:
    """A scheduler that compares modes on Spark; the session starts when the first one needs it."""
    with ExitStack() as stack:
        sessions: list[SparkSession] = []

        def schedule(mode: str, before: IndexDir, after: IndexDir, options: DiffOptions, tracker: Tracker) -> ModeDiff:
            if options.kind == V2:
                # Only the shards of changed files are read, which one machine does before a session has started.
                return diff_mode(mode, before, after, options, tracker)
            old_pieces, new_pieces = read_pieces(before), read_pieces(after)
            if same_artifacts(before, after, old_pieces, new_pieces):
                return ModeDiff(mode, fast_path=True)
            sides = (open_side(before, old_pieces), open_side(after, new_pieces))
            if not sessions:
                sessions.append(stack.enter_context(open_session(master, app_name="driftline index diff")))
            with tracker.phase("compare on Spark", unit="stages"), raising_task_errors():
                return diff_mode_on_spark(sessions[0], mode, sides, options)

        yield schedule


def run_jobs(
    jobs: Sequence[IndexDiffJob], master: str | None = None, *, with_events: bool = False
) -> list[dict[str, Any]]:
    """Compute many repositories, a task each; results in the order of the jobs."""
    texts = [msgspec.json.encode(job).decode() for job in jobs]
    with open_session(master, app_name="driftline index diffs") as spark, raising_task_errors():
        frame = _one_per_task(spark, "job", texts)
        outcomes = frame.mapInArrow(job_task(with_events), frame_schema("id int, outcome string")).collect()
    return [json.loads(row.outcome) for row in sorted(outcomes, key=lambda row: row.id)]


def diff_mode_on_spark(
    spark: SparkSession, mode: str, sides: tuple[IndexSide, IndexSide], options: DiffOptions
) -> ModeDiff:
    """Compare one mode."""
    run = _ModeRun(spark, mode, sides, options)
    try:
        return run.diff()
    finally:
        run.release()


class _ModeRun:
    """The frames of one comparison; those that are used twice are persisted until `release`."""

    def __init__(
        self, spark: SparkSession, mode: str, sides: tuple[IndexSide, IndexSide], options: DiffOptions
    ) -> None:
        self.spark = spark
        self.sides = sides
        self.options = options
        self.result = ModeDiff(mode)
        self.partitions = _MIN_PARTITIONS
        self.kept: list[DataFrame] = []

    def diff(self) -> ModeDiff:
        """Files, then chunks, then the events in order."""
        changes = self._keep(self._changes())
        self._note_changes(changes)
        if self.result.limit_event is not None:
            events = self._file_events(changes)
        else:
            compared = changes.where("kind in ('modified', 'renamed')")
            inside = self._keep(self._inside_events(compared))
            self.result.counts.update(
                {row["kind"]: row["count"] for row in inside.where("seq > 0").groupBy("kind").count().collect()}
            )
            events = inside.union(self._file_events(changes.where("kind in ('added', 'removed')")))
        ordered = events.orderBy("key", "seq").limit(self.options.max_events).select("line").toArrow()
        self.result.ready_events = [json.loads(line) for line in ordered.column("line").to_pylist()]
        return self.result

    def release(self) -> None:
        """Unpersist the frames."""
        for frame in self.kept:
            frame.unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        self.kept.append(frame.persist())
        return frame

    def _changes(self) -> DataFrame:
        files = self._sorted_by(self._file_rows(), "key")
        classified = files.mapInArrow(classify_task, frame_schema(CHANGE_SCHEMA))
        if not self.options.detect_renames:
            return classified
        self._keep(classified)
        may_pair = "kind in ('added', 'removed') and hash is not null"
        paired = self._sorted_by(classified.where(may_pair), "hash").mapInArrow(
            rename_task, frame_schema(CHANGE_SCHEMA)
        )
        return classified.where(f"not ({may_pair})").union(paired)

    def _file_rows(self) -> DataFrame:
        return self._scan([side.file_meta for side in self.sides], files_scan())

    def _note_changes(self, changes: DataFrame) -> None:
        for row in changes.groupBy("kind", "side").sum("count").collect():
            kind, side, count = row
            if kind == "skipped":
                self._note_skipped({side: count})
            else:
                self.result.counts[f"file.{kind}"] += count
        note_file_counts(self.result, self.options)

    def _note_skipped(self, by_side: dict[int, int]) -> None:
        self.result.before_scan.skipped_rows += by_side.get(BEFORE, 0)
        self.result.after_scan.skipped_rows += by_side.get(AFTER, 0)

    def _file_events(self, changes: DataFrame) -> DataFrame:
        listed = changes.where("kind <> 'skipped'")
        return listed.mapInArrow(file_events_task(self.result.mode), frame_schema(EVENT_SCHEMA))

    def _inside_events(self, compared: DataFrame) -> DataFrame:
        """The events of modified and renamed files: all records of a path are in one task."""
        wanted = self._wanted(compared)
        if wanted is None:
            return self.spark.createDataFrame([], frame_schema(EVENT_SCHEMA))
        places = self._places(compared)
        records = self._change_records(compared).unionByName(self._chunk_records(places, wanted))
        if self.options.include_relations:
            records = records.unionByName(self._import_records(places, wanted))
        task = inside_task(self.result.mode, self.options)
        return self._sorted_by(records, "key", "tag").mapInArrow(task, frame_schema(EVENT_SCHEMA))

    def _wanted(self, compared: DataFrame) -> dict[int, SelectedRows] | None:
        """The rows that tasks select; None where no file is compared inside."""
        count = self.result.counts["file.modified"] + self.result.counts["file.renamed"]
        if count == 0:
            return None
        if count > WANTED_FILES_LIMIT:
            return {BEFORE: SelectedRows(), AFTER: SelectedRows()}
        rows = compared.select("key", "old_key", "ids").collect()
        paths = {BEFORE: {path_of(row.old_key) for row in rows}, AFTER: {path_of(row.key) for row in rows}}
        ids = [json.loads(row.ids) for row in rows]
        return {
            side: SelectedRows(frozenset(paths[side]), frozenset(text for both in ids for text in both[side]))
            for side in (BEFORE, AFTER)
        }

    def _places(self, compared: DataFrame) -> DataFrame:
        """The change of each path of each side."""
        before = compared.selectExpr(f"{BEFORE} as side", "old_key as found_key", "key as path_key")
        return before.union(compared.selectExpr(f"{AFTER} as side", "key as found_key", "key as path_key"))

    def _change_records(self, compared: DataFrame) -> DataFrame:
        empty = "cast(null as binary) as cold"
        return compared.selectExpr("key", f"{CHANGE_TAG} as tag", "kind", "0 as side", "0L as count", "payload", empty)

    def _chunk_records(self, places: DataFrame, wanted: dict[int, SelectedRows]) -> DataFrame:
        scan = chunks_scan(wanted, self.options.max_chunks_per_file)
        rows = self._keep(self._scan([side.chunk_meta for side in self.sides], scan))
        named = rows.where("key is not null")
        if rows.where("key is null").limit(1).count():
            named = named.union(self._named_by_id(rows.where("key is null")))
        placed = _at_places(named, places)
        cold = self._cold_rows(placed)
        joined = placed.join(cold, ["side", "row_id"], "left") if cold is not None else placed
        cold_column = "cold" if cold is not None else "cast(null as binary) as cold"
        return joined.selectExpr(
            "path_key as key", f"{CHUNK_TAG} as tag", "null as kind", "side", "count", "payload", cold_column
        )

    def _named_by_id(self, unnamed: DataFrame) -> DataFrame:
        """Rows that only have a file id, named by `file_meta`; unknown ids are counted."""
        ids = self._file_rows().where("key is not null and file_id is not null")
        names = ids.groupBy("side", "file_id").agg({"key": "min"}).withColumnRenamed("min(key)", "found_key")
        found = unnamed.drop("key").join(names, ["side", "file_id"], "left")
        lost = found.where("found_key is null").groupBy("side").sum("count").collect()
        self._note_skipped({row[0]: row[1] for row in lost})
        return found.where("found_key is not null").selectExpr(
            "side", "found_key as key", "file_id", "row_id", "count", "payload"
        )

    def _cold_rows(self, placed: DataFrame) -> DataFrame | None:
        artifacts = [side.chunk_meta_cold for side in self.sides]
        if not any(artifacts):
            return None
        splits = [split for side, artifact in enumerate(artifacts) for split in plan_splits(side, artifact)]
        rows = self._scan_splits(splits, cold_scan(self._wanted_ids(placed)))
        # A repeated id joins once: the last members win, as on one machine.
        return rows.groupBy("side", "row_id").agg({"payload": "max"}).withColumnRenamed("max(payload)", "cold")

    def _wanted_ids(self, placed: DataFrame) -> dict[int, Collection[str] | None]:
        ids = placed.where("payload is not null").select("side", "row_id")
        if ids.count() > WANTED_FILES_LIMIT:
            return {BEFORE: None, AFTER: None}
        rows = ids.distinct().collect()
        return {side: frozenset(row.row_id for row in rows if row.side == side) for side in (BEFORE, AFTER)}

    def _import_records(self, places: DataFrame, wanted: dict[int, SelectedRows]) -> DataFrame:
        rows = self._keep(self._scan([side.file_relations for side in self.sides], imports_scan(wanted)))
        skipped = rows.where("key is null").groupBy("side").sum("count").collect()
        self._note_skipped({row[0]: row[1] for row in skipped})
        return _at_places(rows.where("key is not null"), places).selectExpr(
            "path_key as key",
            f"{IMPORTS_TAG} as tag",
            "null as kind",
            "side",
            "count",
            "payload",
            "cast(null as binary) as cold",
        )

    def _scan(self, artifacts: Sequence[Any], task: Task) -> DataFrame:
        return self._scan_splits(
            [split for side, artifact in enumerate(artifacts) for split in plan_splits(side, artifact)], task
        )

    def _scan_splits(self, splits: Sequence[Split], task: Task) -> DataFrame:
        self.partitions = max(self.partitions, len(splits) // _SPLITS_PER_PARTITION)
        texts = [msgspec.json.encode(split).decode() for split in splits]
        return _one_per_task(self.spark, "split", texts).mapInArrow(task, frame_schema(RECORD_SCHEMA))

    def _sorted_by(self, frame: DataFrame, key: str, *more: str) -> DataFrame:
        """All rows of a key in one task, one key after the other."""
        return frame.repartition(self.partitions, key).sortWithinPartitions(key, *more)


def _at_places(rows: DataFrame, places: DataFrame) -> DataFrame:
    found = rows.withColumnRenamed("key", "found_key")
    return found.join(places, ["side", "found_key"])


def _one_per_task(spark: SparkSession, name: str, texts: Sequence[str]) -> DataFrame:
    columns = [integer_column(range(len(texts))), bytes_column(pa.string(), [text.encode() for text in texts])]
    table = pa.Table.from_arrays(columns, names=["id", name])
    return to_partitions(spark.createDataFrame(table), max(len(texts), 1), "id")


# Tasks: Arrow batches in, a kernel of `codeindex`, Arrow batches out.


def scan_task(scan: Callable[[Split], Iterator[Record]]) -> Task:
    """Read the splits of this task."""

    def run(batches: Batches) -> Batches:
        splits = (text for batch in batches for text in batch.column("split").to_pylist())
        records = (record for text in splits for record in scan(msgspec.json.decode(text, type=Split)))
        return _as_batches(map(_record_row, records), RECORD_SCHEMA)

    return _marking_errors(run)


def files_scan() -> Task:
    """Rows of `file_meta`."""
    return scan_task(kernels.scan_files)


def chunks_scan(wanted: dict[int, SelectedRows], limit: int) -> Task:
    """Wanted rows of `chunk_meta`."""
    return scan_task(lambda split: kernels.scan_chunks(split, wanted[split.side], limit))


def cold_scan(wanted: dict[int, Collection[str] | None]) -> Task:
    """Wanted rows of `chunk_meta_cold`."""
    return scan_task(lambda split: kernels.scan_cold(split, wanted[split.side]))


def imports_scan(wanted: dict[int, SelectedRows]) -> Task:
    """Wanted rows of `file_relations`."""
    return scan_task(lambda split: kernels.scan_imports(split, wanted[split.side]))


def classify_task(batches: Batches) -> Batches:
    """Rows of both sides, sorted by path: the change of each path. Counts of skipped rows pass through."""
    rows = _rows(batches, "key", "side", "count", "payload")
    return _as_batches(_classified(rows), CHANGE_SCHEMA)


def _classified(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for key, group in groupby(rows, key=itemgetter(0)):
        if key is None:
            yield from (("skipped", None, None, None, None, side, count, None) for _, side, count, _ in group)
            continue
        change, ids = kernels.classify_file((side, payload) for _, side, _, payload in group)
        if change is not None:
            yield _change_row(change, json.dumps([sorted(ids[side]) for side in (kernels.BEFORE, kernels.AFTER)]))


def rename_task(batches: Batches) -> Batches:
    """Removed and added files, sorted by hash: pairs of one hash are renames."""
    rows = _rows(batches, "hash", "kind", "ids", "payload")
    return _as_batches(_paired(rows), CHANGE_SCHEMA)


def _paired(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for _, group in groupby(rows, key=itemgetter(0)):
        changes: list[FileChange] = []
        ids: dict[tuple[str, str], list[list[str]]] = {}
        for _, kind, ids_text, payload in group:
            change = change_from_payload(kind, payload)
            changes.append(change)
            ids[kind, change.path] = json.loads(ids_text)
        for change in kernels.pair_renames(changes):
            yield _change_row(change, json.dumps(_joined_ids(change, ids)))


def _joined_ids(change: FileChange, ids: dict[tuple[str, str], list[list[str]]]) -> list[list[str]]:
    before = ids["removed", change.before.file][0] if change.before else []
    after = ids["added", change.after.file][1] if change.after else []
    return [before, after]


def file_events_task(mode: str) -> Task:
    """Events of files that are not compared inside."""

    def run(batches: Batches) -> Batches:
        rows = _rows(batches, "key", "kind", "payload")
        events = ((key, 0, file_event(mode, change_from_payload(kind, payload))) for key, kind, payload in rows)
        return _as_batches((_event_row(*item) for item in events), EVENT_SCHEMA)

    return run


def inside_task(mode: str, options: DiffOptions) -> Task:
    """Everything about each compared path, sorted by path with the change first: its events."""

    def run(batches: Batches) -> Batches:
        rows = _rows(batches, "key", "tag", "kind", "side", "count", "payload", "cold")
        return _as_batches(_inside(rows, mode, options), EVENT_SCHEMA)

    return _marking_errors(run)


def _inside(rows: Iterator[tuple[Any, ...]], mode: str, options: DiffOptions) -> Iterator[tuple[Any, ...]]:
    for key, group in groupby(rows, key=itemgetter(0)):
        records = _path_records(group)
        for seq, event in enumerate(records.events(mode, options)):
            yield _event_row(key, seq, event)


def _path_records(rows: Iterator[tuple[Any, ...]]) -> kernels.PathRecords:
    _, _, kind, _, _, change, _ = next(rows)
    records = kernels.PathRecords.of(change_from_payload(kind, change))
    for _, tag, _, side, count, payload, cold in rows:
        if tag == CHUNK_TAG:
            records.add_chunk(side, count, payload, cold)
        else:
            records.imports[side] += kernels.parse_payload(payload)
    return records


def job_task(with_events: bool) -> Task:
    """Complete diffs, a repository each."""

    def run(batches: Batches) -> Batches:
        prepare_worker()
        for batch in batches:
            jobs = [msgspec.json.decode(text, type=IndexDiffJob) for text in batch.column("job").to_pylist()]
            outcomes = [compact_json(kernels.run_job(job, with_events=with_events)).decode() for job in jobs]
            yield pa.RecordBatch.from_arrays([batch.column("id"), pa.array(outcomes, pa.string())], ["id", "outcome"])

    return run


@contextmanager
def raising_task_errors() -> Iterator[None]:
    """Raise the driftline error of a task again on the driver."""
    try:
        yield
    except DriftlineError:
        raise
    except Exception as error:
        marked = _ERROR.search(str(error))
        if marked is None:
            raise EngineError(f"the Spark job failed: {_first_line(error)}") from error
        content = json.loads(marked.group(1))
        raise IndexRefError(content["message"], code=content["code"]) from None


def _marking_errors(task: Task) -> Task:
    """Put the code of an error into its text, which is all that Spark reports of a task."""

    def run(batches: Batches) -> Batches:
        try:
            yield from task(batches)
        except DriftlineError as error:
            content = json.dumps({"code": error.code, "message": error.message})
            raise RuntimeError(f"{_MARK}{content}{_MARK}") from None

    return run


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _record_row(record: Record) -> tuple[Any, ...]:
    return (record.side, record.key, record.file_id, record.row_id, record.count, record.payload)


def _change_row(change: FileChange, ids: str) -> tuple[Any, ...]:
    old_key = path_key(change.before.file) if change.before else None
    content = change.after or change.before
    content_hash = content.hash if content and change.kind in ("added", "removed") else None
    safe_hash = None if content_hash is None else json.dumps(content_hash)
    return (change.kind, path_key(change.path), old_key, safe_hash, ids, None, 1, change_payload(change))


def _event_row(key: bytes, seq: int, event: IndexEvent) -> tuple[Any, ...]:
    return (key, seq, event["kind"], compact_json(event))


def _rows(batches: Iterable[pa.RecordBatch], *names: str) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _as_batches(rows: Iterable[tuple[Any, ...]], schema: str) -> Batches:
    prepare_worker()
    fields = [text.strip().split() for text in schema.split(",")]
    arrow = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in fields])
    block: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        block.append(row)
        size += _ROW_OVERHEAD + sum(len(value) for value in row if isinstance(value, bytes | str))
        if size >= _BATCH_BYTES or len(block) >= _BATCH_ROWS:
            yield _batch(block, arrow)
            block, size = [], 0
    if block:
        yield _batch(block, arrow)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
