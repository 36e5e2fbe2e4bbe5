"""Index diffs on Spark: files and chunks of large indexes joined by file, and many repositories at once.

Tasks run the kernels of `codeindex`, so the events are the same bytes as on one machine. Only counts, the paths of the
files to compare inside (up to a limit) and at most `max_events` events reach the driver.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from driftline.codeindex import V2, DiffOptions, IndexDiffJob, IndexEvent, ModeScheduler, diff_mode, kernels
from driftline.codeindex.kernels import AFTER, BEFORE, FileChange, ModeDiff, SelectedRows, Split, path_of
from driftline.core import Tracker, no_progress, utf16_sort_key
from driftline.errors import DriftlineError, IndexRefError
from driftline.spark._jobs import explain_spark_error
from driftline.spark._runtime.session import open_session
from driftline.spark._tasks import TaskPool, frame_schema, prepare_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Up to this many files to compare inside, tasks get their paths and leave all other rows unread.
NEEDED_FILES_LIMIT = 100_000

RECORD_SCHEMA = "side int, key binary, file_id string, row_id string, count bigint, payload binary"
CHANGE_SCHEMA = (
    "kind string, key binary, old_key binary, hash string, ids string, side int, count bigint, payload binary"
)
EVENT_SCHEMA = "key binary, seq bigint, kind string, line binary"

CHANGE_TAG, CHUNK_TAG, IMPORTS_TAG = 0, 1, 2
NO_COLD = "cast(null as binary) as cold"

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
Rows = Iterator[tuple[Any, ...]]


@contextmanager
def index_scheduler(master: str | None = None) -> Iterator[ModeScheduler]:
    """A scheduler that compares modes on Spark; the session starts when the first one needs it."""
    with ExitStack() as stack:
        sessions: list[SparkSession] = []

        def schedule(
            mode: str, before: kernels.IndexDir, after: kernels.IndexDir, options: DiffOptions, tracker: Tracker
        ) -> ModeDiff:
            if options.kind == V2:
                # Only the shards of changed files are read, which one machine does before a session has started.
                return diff_mode(mode, before, after, options, tracker)
            sides = kernels.different_sides(before, after)
            if sides is None:
                return ModeDiff(mode, fast_path=True)
            if not sessions:
                sessions.append(stack.enter_context(open_session(master, app_name="driftline index diff")))
            with tracker.phase("compare on Spark", unit="stages"), _raising_task_errors(), ExitStack() as kept:
                return _ModeRun(sessions[0], ModeDiff(mode), sides, options, kept).diff()

        yield schedule


def run_jobs(
    jobs: Sequence[IndexDiffJob], master: str | None = None, *, with_events: bool = False
) -> list[dict[str, Any]]:
    """Compute many repositories, a task each; results in the order of the jobs."""
    with open_session(master, app_name="driftline index diffs") as spark:
        run = partial(kernels.run_job, with_events=with_events)
        return list(TaskPool(spark, no_progress(), "compare on Spark").map(run, jobs))


@dataclass
class _ModeRun:
    """The frames of one comparison; those that are used twice are persisted until `kept` closes."""

    spark: SparkSession
    result: ModeDiff
    sides: tuple[kernels.IndexSide, kernels.IndexSide]
    options: DiffOptions
    kept: ExitStack
    partitions: int = _MIN_PARTITIONS

    def diff(self) -> ModeDiff:
        changes = self._keep(self._changes())
        for kind, side, count in changes.groupBy("kind", "side").sum("count").collect():
            if kind == "skipped":
                self._note_skipped({side: count})
            else:
                self.result.counts[f"file.{kind}"] += count
        kernels.note_file_counts(self.result, self.options)
        if self.result.limit_event is not None:
            events = self._file_events(changes.where("kind <> 'skipped'"))
        else:
            inside = self._keep(self._inside_events(changes.where("kind in ('modified', 'renamed')")))
            self.result.counts.update(
                {row["kind"]: row["count"] for row in inside.where("seq > 0").groupBy("kind").count().collect()}
            )
            events = inside.union(self._file_events(changes.where("kind in ('added', 'removed')")))
        ordered = events.orderBy("key", "seq").limit(self.options.max_events).select("line").toArrow()
        self.result.ready_events = [json.loads(line) for line in ordered.column("line").to_pylist()]
        return self.result

    def _keep(self, frame: DataFrame) -> DataFrame:
        self.kept.callback(frame.persist().unpersist)
        return frame

    def _changes(self) -> DataFrame:
        files = self._scan("file_meta", kernels.scan_files)
        classified = _mapped(self._sorted_by(files, "key"), _classified, CHANGE_SCHEMA)
        if not self.options.detect_renames:
            return classified
        self._keep(classified)
        may_pair = "kind in ('added', 'removed') and hash is not null"
        paired = _mapped(self._sorted_by(classified.where(may_pair), "hash"), _paired, CHANGE_SCHEMA)
        return classified.where(f"not ({may_pair})").union(paired)

    def _note_skipped(self, by_side: dict[int, int]) -> None:
        self.result.before_scan.skipped_rows += by_side.get(BEFORE, 0)
        self.result.after_scan.skipped_rows += by_side.get(AFTER, 0)

    def _file_events(self, changes: DataFrame) -> DataFrame:
        mode = self.result.mode

        def events(batches: Batches) -> Rows:
            for key, kind, payload in _rows(batches, "key", "kind", "payload"):
                yield _event_row(key, 0, kernels.file_event(mode, kernels.change_from_payload(kind, payload)))

        return _mapped(changes, events, EVENT_SCHEMA)

    def _inside_events(self, compared: DataFrame) -> DataFrame:
        """The events of modified and renamed files: all records of a path are in one task, the change first."""
        mode, options, needed = self.result.mode, self.options, self._needed(compared)
        if needed is None:
            return self.spark.createDataFrame([], frame_schema(EVENT_SCHEMA))
        before = compared.selectExpr(f"{BEFORE} as side", "old_key as found_key", "key as path_key")
        places = before.union(compared.selectExpr(f"{AFTER} as side", "key as found_key", "key as path_key"))
        changes = ("key", f"{CHANGE_TAG} as tag", "kind", "0 as side", "0L as count", "payload", NO_COLD)
        records = compared.selectExpr(*changes).unionByName(self._chunk_records(places, needed))
        if options.include_relations:
            records = records.unionByName(self._import_records(places, needed))

        def events(batches: Batches) -> Rows:
            rows = _rows(batches, "key", "tag", "kind", "side", "count", "payload", "cold")
            for key, group in groupby(rows, key=itemgetter(0)):
                for seq, event in enumerate(_path_records(group).events(mode, options)):
                    yield _event_row(key, seq, event)

        return _mapped(self._sorted_by(records, "key", "tag"), events, EVENT_SCHEMA)

    def _needed(self, compared: DataFrame) -> dict[int, SelectedRows] | None:
        """The rows that tasks select; None where no file is compared inside."""
        count = self.result.counts["file.modified"] + self.result.counts["file.renamed"]
        if count == 0:
            return None
        if count > NEEDED_FILES_LIMIT:
            return {BEFORE: SelectedRows(), AFTER: SelectedRows()}
        rows = compared.select("key", "old_key", "ids").collect()
        paths = {BEFORE: {path_of(row.old_key) for row in rows}, AFTER: {path_of(row.key) for row in rows}}
        ids = [json.loads(row.ids) for row in rows]
        return {
            side: SelectedRows(frozenset(paths[side]), frozenset(text for both in ids for text in both[side]))
            for side in (BEFORE, AFTER)
        }

    def _chunk_records(self, places: DataFrame, needed: dict[int, SelectedRows]) -> DataFrame:
        limit = self.options.max_chunks_per_file
        rows = self._keep(self._scan("chunk_meta", lambda split: kernels.scan_chunks(split, needed[split.side], limit)))
        named = rows.where("key is not null")
        if rows.where("key is null").limit(1).count():
            named = named.union(self._named_by_id(rows.where("key is null")))
        placed = _at_places(named, places)
        cold = self._cold_rows(placed)
        joined = placed.join(cold, ["side", "row_id"], "left") if cold is not None else placed
        return _as_records(joined, CHUNK_TAG, NO_COLD if cold is None else "cold")

    def _named_by_id(self, unnamed: DataFrame) -> DataFrame:
        """Rows that only have a file id, named by `file_meta`; unknown ids are counted."""
        ids = self._scan("file_meta", kernels.scan_files).where("key is not null and file_id is not null")
        names = ids.groupBy("side", "file_id").agg({"key": "min"}).withColumnRenamed("min(key)", "found_key")
        found = unnamed.drop("key").join(names, ["side", "file_id"], "left")
        self._note_skipped(dict(found.where("found_key is null").groupBy("side").sum("count").collect()))
        return found.where("found_key is not null").selectExpr(
            "side", "found_key as key", "file_id", "row_id", "count", "payload"
        )

    def _cold_rows(self, placed: DataFrame) -> DataFrame | None:
        if not any(side.chunk_meta_cold for side in self.sides):
            return None
        ids = placed.where("payload is not null").select("side", "row_id")
        needed: dict[int, Collection[str] | None] = {BEFORE: None, AFTER: None}
        if ids.count() <= NEEDED_FILES_LIMIT:
            listed = ids.distinct().collect()
            needed = {side: frozenset(row.row_id for row in listed if row.side == side) for side in needed}
        rows = self._scan("chunk_meta_cold", lambda split: kernels.scan_cold(split, needed[split.side]))
        # A repeated id joins once: the last members win, as on one machine.
        return rows.groupBy("side", "row_id").agg({"payload": "max"}).withColumnRenamed("max(payload)", "cold")

    def _import_records(self, places: DataFrame, needed: dict[int, SelectedRows]) -> DataFrame:
        rows = self._keep(self._scan("file_relations", lambda split: kernels.scan_imports(split, needed[split.side])))
        self._note_skipped(dict(rows.where("key is null").groupBy("side").sum("count").collect()))
        return _as_records(_at_places(rows.where("key is not null"), places), IMPORTS_TAG, NO_COLD)

    def _scan(self, artifact: str, scan: Callable[[Split], Iterator[kernels.Record]]) -> DataFrame:
        """The records of an artifact of both sides, a split in each task."""
        sides = enumerate(getattr(side, artifact) for side in self.sides)
        splits = [split for number, found in sides for split in kernels.plan_splits(number, found)]
        self.partitions = max(self.partitions, len(splits) // _SPLITS_PER_PARTITION)

        def records(batches: Batches) -> Rows:
            for (number,) in _rows(batches, "id"):
                yield from scan(splits[number])

        return _mapped(self.spark.range(0, len(splits), 1, max(len(splits), 1)), records, RECORD_SCHEMA)

    def _sorted_by(self, frame: DataFrame, key: str, *more: str) -> DataFrame:
        """All rows of a key in one task, one key after the other."""
        return frame.repartition(self.partitions, key).sortWithinPartitions(key, *more)


def _at_places(rows: DataFrame, places: DataFrame) -> DataFrame:
    """Rows with the path that the change of their file has."""
    return rows.withColumnRenamed("key", "found_key").join(places, ["side", "found_key"])


def _as_records(placed: DataFrame, tag: int, cold: str) -> DataFrame:
    return placed.selectExpr("path_key as key", f"{tag} as tag", "null as kind", "side", "count", "payload", cold)


# Tasks: Arrow batches in, a kernel of `codeindex`, Arrow batches out.


def _mapped(frame: DataFrame, rows: Callable[[Batches], Rows], schema: str) -> DataFrame:
    """The rows that tasks make of a frame; the code of an error goes into its text, which is all that Spark reports."""

    def run(batches: Batches) -> Batches:
        try:
            yield from _as_batches(rows(batches), schema)
        except DriftlineError as error:
            content = json.dumps({"code": error.code.wire, "message": error.message})
            raise RuntimeError(f"{_MARK}{content}{_MARK}") from None

    return frame.mapInArrow(run, frame_schema(schema))


def _classified(batches: Batches) -> Rows:
    """Rows of both sides, sorted by path: the change of each path. Counts of skipped rows pass through."""
    for key, group in groupby(_rows(batches, "key", "side", "count", "payload"), key=itemgetter(0)):
        if key is None:
            yield from (("skipped", None, None, None, None, side, count, None) for _, side, count, _ in group)
            continue
        change, ids = kernels.classify_file((side, payload) for _, side, _, payload in group)
        if change is not None:
            yield _change_row(change, [sorted(ids[side]) for side in (BEFORE, AFTER)])


def _paired(batches: Batches) -> Rows:
    """Removed and added files, sorted by hash: pairs of one hash are renames."""
    for _, group in groupby(_rows(batches, "hash", "kind", "ids", "payload"), key=itemgetter(0)):
        changes: list[FileChange] = []
        ids: dict[tuple[str, str], list[list[str]]] = {}
        for _, kind, ids_text, payload in group:
            change = kernels.change_from_payload(kind, payload)
            changes.append(change)
            ids[kind, change.path] = json.loads(ids_text)
        for change in kernels.pair_renames(changes):
            before = ids["removed", change.before.file][BEFORE] if change.before else []
            yield _change_row(change, [before, ids["added", change.after.file][AFTER] if change.after else []])


def _path_records(rows: Rows) -> kernels.PathRecords:
    _, _, kind, _, _, change, _ = next(rows)
    records = kernels.PathRecords(kernels.change_from_payload(kind, change))
    for _, tag, _, side, count, payload, cold in rows:
        if tag == CHUNK_TAG:
            records.add_chunk(side, count, payload, cold)
        else:
            records.imports[side].extend(kernels.parse_payload(payload))
    return records


@contextmanager
def _raising_task_errors() -> Iterator[None]:
    """Raise the driftline error of a task again on the driver."""
    try:
        yield
    except DriftlineError:
        raise
    except Exception as error:
        marked = _ERROR.search(str(error))
        if marked is None:
            raise explain_spark_error(error) from error
        content = json.loads(marked.group(1))
        raise IndexRefError(content["message"], code=content["code"]) from None


def _change_row(change: FileChange, ids: list[list[str]]) -> tuple[Any, ...]:
    old_key = utf16_sort_key(change.before.file) if change.before else None
    content = change.after or change.before
    content_hash = content.hash if content and change.kind in ("added", "removed") else None
    safe_hash = None if content_hash is None else json.dumps(content_hash)
    payload = kernels.change_payload(change)
    return (change.kind, utf16_sort_key(change.path), old_key, safe_hash, json.dumps(ids), None, 1, payload)


def _event_row(key: bytes, seq: int, event: IndexEvent) -> tuple[Any, ...]:
    return (key, seq, event["kind"], kernels.compact_json(event))


def _rows(batches: Batches, *names: str) -> Rows:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _as_batches(rows: Rows, schema: str) -> Batches:
    prepare_worker()
    arrow = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in map(str.split, schema.split(","))])
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
