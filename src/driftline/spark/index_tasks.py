"""What Spark tasks do for an index diff: Arrow batches in, a kernel of `codeindex` over them, Arrow batches out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa

from driftline.codeindex._diff import modes as kernels
from driftline.codeindex._diff.files import Event, FileChange, file_event
from driftline.codeindex._diff.modes import Record, SelectedRows, Split, change_from_payload, change_payload, path_key
from driftline.codeindex._options import DiffOptions
from driftline.codeindex._storage import compact_json
from driftline.errors import DriftlineError, EngineError, IndexRefError
from driftline.spark.runtime.workers import settle_worker

RECORD_SCHEMA = "side int, key binary, file_id string, row_id string, count bigint, payload binary"
CHANGE_SCHEMA = (
    "kind string, key binary, old_key binary, hash string, ids string, side int, count bigint, payload binary"
)
EVENT_SCHEMA = "key binary, seq bigint, kind string, line binary"

CHANGE_TAG, CHUNK_TAG, IMPORTS_TAG = 0, 1, 2

_ARROW_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 10_000
_ROW_OVERHEAD = 64

# Around an error in the text of a task's failure, which also quotes source lines: those do not hold the mark.
_MARK = "\u2063driftline\u2063"
_ERROR = re.compile(f"{_MARK}(.*?){_MARK}", re.DOTALL)

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]


def scan_task(scan: Callable[[Split], Iterator[Record]]) -> Task:
    """Read the splits that this task was given."""

    def run(batches: Batches) -> Batches:
        splits = (text for batch in batches for text in batch.column("split").to_pylist())
        records = (record for text in splits for record in scan(msgspec.json.decode(text, type=Split)))
        return _as_batches(map(_record_row, records), RECORD_SCHEMA)

    return _telling_errors(run)


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
    """Rows of both sides, sorted by path: what happened to each path. Counts of skipped rows pass through."""
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
    """Events of files whose insides are not compared."""

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

    return _telling_errors(run)


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
    """Whole diffs, a repository each."""

    def run(batches: Batches) -> Batches:
        from driftline.codeindex._registry.keep import DiffJob, run_job

        settle_worker()
        for batch in batches:
            jobs = [msgspec.json.decode(text, type=DiffJob) for text in batch.column("job").to_pylist()]
            outcomes = [compact_json(run_job(job, with_events=with_events)).decode() for job in jobs]
            yield pa.RecordBatch.from_arrays([batch.column("id"), pa.array(outcomes, pa.string())], ["id", "outcome"])

    return run


@contextmanager
def retelling_errors() -> Iterator[None]:
    """An error that a task raised on purpose, raised again here as what it was."""
    try:
        yield
    except DriftlineError:
        raise
    except Exception as error:
        told = _ERROR.search(str(error))
        if told is None:
            raise EngineError(f"the Spark job failed: {_first_line(error)}") from error
        content = json.loads(told.group(1))
        raise IndexRefError(content["message"], code=content["code"]) from None


def _telling_errors(task: Task) -> Task:
    """Tasks report errors as text, so the code is put into it."""

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


def _event_row(key: bytes, seq: int, event: Event) -> tuple[Any, ...]:
    return (key, seq, event["kind"], compact_json(event))


def _rows(batches: Iterable[pa.RecordBatch], *names: str) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _as_batches(rows: Iterable[tuple[Any, ...]], schema: str) -> Batches:
    settle_worker()
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
