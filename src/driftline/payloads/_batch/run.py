"""Batches of comparisons: scatter records by ranges of ids, compare range by range in order, join what the ranges give.

A scheduler only maps functions over pieces: in this process, over processes of this machine, or on Spark. The bytes
of the output do not depend on it. Files in between have names of their own, so that a task which runs twice does no
harm; only returned names count.
"""

from __future__ import annotations

import os
import secrets
import shutil
import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, islice, zip_longest
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import msgspec

from driftline import core
from driftline.errors import PayloadError
from driftline.payloads._batch.job import BatchJob, Record, SortKey, Split, line_record, records_of, sort_key, splits_of
from driftline.payloads._batch.totals import BatchTotals, RulePlace, is_met, rule_places
from driftline.payloads._batch.view import MOST_REPORTS, find_reports, shown_ids, view_page
from driftline.payloads._captures import Masker
from driftline.payloads._compare.compare import PayloadPlan, error_response
from driftline.payloads._compare.report import Entry, Report, indented
from driftline.payloads._values.text import parse_json, read_payload, to_json_bytes
from driftline.payloads._values.values import NEW, OLD, Json

if TYPE_CHECKING:
    import pyarrow as pa

RANGE_BYTES = 64 << 20
PROCESSES_FROM_BYTES = 64 << 20
SAMPLED_RECORDS = 64
_SAMPLED_SPLITS = 64
_FLUSH_BYTES = 8 << 20
_ROWS_PER_GROUP = 10_000
_HEAD = struct.Struct("<IQ")  # before each record of a spool: its length, and its line in the split

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Scheduler(Protocol):
    """Where pieces of a batch run: results come in the order of the pieces."""

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        """Apply a function to each piece."""


def run_batch(
    job: BatchJob, output: core.AnyPath, scheduler: Scheduler, tracker: core.Tracker | None = None
) -> BatchTotals:
    """Compare all pairs and write reports (JSONL, Parquet), aggregate, coverage and summary (JSON), and pages."""
    tracker = tracker or core.no_progress()
    target = core.output_place(output)
    with core.io_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    for endpoint in job.schemas:
        job.plan(endpoint)  # a schema that cannot be used is said before any work
    folder = target / f".work-{secrets.token_hex(8)}"  # beside the output, so that all workers see it
    with core.io_errors(target):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        return _write_output(job, target, _run_ranges(job, str(folder), scheduler, tracker))
    finally:
        core.remove(folder)


def _run_ranges(job: BatchJob, folder: str, scheduler: Scheduler, tracker: core.Tracker) -> list[RangeResult]:
    def run(phase: str, function: Callable[..., Any], pieces: Sequence[Any], shared: Any) -> Iterator[Any]:
        given = ([one] * len(pieces) for one in (job, shared, folder))
        with tracker.phase(phase, total=len(pieces), unit="items"):
            for result in scheduler.map(function, pieces, *given):
                tracker.advance()
                yield result

    splits = splits_of(job)
    spools: dict[int, list[Spool]] = defaultdict(list)
    counts: list[int] = []
    for lines, found in run("read", scatter, splits, _bounds(job, scheduler)):
        counts.append(lines)
        for spool in found:
            spools[spool.range].append(spool)
    lists = [spools[number] for number in sorted(spools)]
    return list(run("compare", compare_range, lists, _lines_before(splits, counts)))


def _lines_before(splits: list[Split], counts: list[int]) -> list[int]:
    """How many lines of its file come before each split."""
    before: list[int] = []
    for number, split in enumerate(splits):
        is_first = number == 0 or splits[number - 1].source is not split.source
        before.append(0 if is_first else before[-1] + counts[number - 1])
    return before


def _bounds(job: BatchJob, scheduler: Scheduler) -> list[SortKey]:
    """Keys that cut the ids into ranges of about equal size; few enough for memory, many enough for all workers."""
    needed = max(job.size // RANGE_BYTES, getattr(scheduler, "workers", 1) if job.size > PROCESSES_FROM_BYTES else 1)
    if needed <= 1:
        return []
    splits = splits_of(job, max(job.size // _SAMPLED_SPLITS, 1 << 16))
    records = ((record for record, _ in records_of(job, split) if record is not None) for split in splits)
    keys = sorted(sort_key(record) for given in records for record in islice(given, SAMPLED_RECORDS))
    return [keys[len(keys) * number // needed] for number in range(1, needed)] if keys else []


def _write_output(job: BatchJob, target: core.Location, results: list[RangeResult]) -> BatchTotals:
    totals = BatchTotals()
    for result in results:
        totals.merge(result.totals)
    with core.atomic_write(target / "reports.jsonl") as out:
        for result in results:
            with core.open_to_read(result.lines) as lines:
                shutil.copyfileobj(lines, out, 4 << 20)
    _place_tables(target / "reports.parquet", [result.table for result in results])
    view = totals.view(_coverage(job, totals))
    core.write_atomically(target / "aggregate.json", _pretty(view.aggregate))
    core.write_atomically(target / "coverage.json", _pretty(view.coverage))
    reports = find_reports(target, islice(shown_ids(view), MOST_REPORTS))
    core.write_atomically(target / "report.html", b"".join(view_page(view, job, reports)))
    core.write_atomically(target / "summary.json", _pretty(view.summary))
    return totals


def _place_tables(folder: core.Location, tables: list[str]) -> None:
    """Put the ranges' tables side by side; an earlier run's folder goes as a whole."""
    names = [f"part-{number:05d}.parquet" for number in range(len(tables))]
    if isinstance(folder, core.ObjectPath):
        for table, name in zip(tables, names, strict=True):
            core.copy_object(table, f"{folder}/{name}")
        for left in folder.below():
            if left.url.removeprefix(f"{folder}/") not in names:
                left.unlink()
        return
    fresh = folder.with_name(f".reports-{secrets.token_hex(8)}")
    fresh.mkdir()
    for table, name in zip(tables, names, strict=True):
        shutil.move(table, fresh / name)
    if folder.exists():
        shutil.rmtree(folder)
    fresh.rename(folder)


def _coverage(job: BatchJob, totals: BatchTotals) -> list[dict[str, Json]]:
    """Every rule of every schema, and the first id whose payloads have its field."""
    rows = []
    for endpoint in sorted(job.schemas, key=lambda name: name or ""):
        for place in rule_places(job.schemas[endpoint], job.root):
            seen = totals.met.get((endpoint or "", place.pointer))
            rows.append(
                {
                    "endpoint": endpoint,
                    "pointer": place.pointer,
                    "rule": place.rule,
                    "used": seen is not None,
                    "first_id": seen[1] if seen is not None else None,
                }
            )
    return rows


def _pretty(value: object) -> bytes:
    return indented(to_json_bytes(value), 1) + b"\n"


class _Local(NamedTuple):
    """Runs pieces one after the other, or in processes of this machine."""

    map: Callable[..., Iterator[Any]] = map
    workers: int = 1


@contextmanager
def local_scheduler(job: BatchJob, workers: int | None = None) -> Iterator[Scheduler]:
    """This process for small input, all cores for more."""
    count = workers or len(os.sched_getaffinity(0))
    if count == 1 or job.size < PROCESSES_FROM_BYTES:
        yield _Local()
        return
    with ProcessPoolExecutor(count, mp_context=core.WorkerContext()) as pool:
        yield _Local(pool.map, count)


# What runs in parallel.
class Spool(NamedTuple):
    """Records of one split for one range of ids: lines as they came, or rows as records, with their numbers."""

    range: int
    path: str
    split: Split


class RangeResult(NamedTuple):
    """The output of one range of ids."""

    lines: str
    table: str
    totals: BatchTotals


def scatter(split: Split, job: BatchJob, bounds: list[SortKey], folder: str) -> tuple[int, list[Spool]]:
    """Write the records of a split into a file for each range that has any; how many lines it had, and the files."""
    waiting: dict[int, list[bytes]] = defaultdict(list)
    paths: dict[int, str] = {}
    number = size = 0
    with core.local_files(folder) as (local, publish):
        stem = os.path.join(local, f"split-{split.number:06d}-{secrets.token_hex(8)}")

        def flush() -> None:
            for position, pieces in waiting.items():
                path = paths.setdefault(position, f"{stem}-{position:06d}")
                with core.io_errors(path), open(path, "ab") as out:
                    out.write(b"".join(pieces))
            waiting.clear()

        for number, (record, line) in enumerate(records_of(job, split), 1):
            if record is None:
                continue
            data = _encode(record) if line is None else line
            waiting[bisect_right(bounds, sort_key(record))] += (_HEAD.pack(len(data), number), data)
            size += _HEAD.size + len(data)
            if size >= _FLUSH_BYTES:
                flush()
                size = 0
        flush()
        return number, [Spool(position, publish(path), split) for position, path in sorted(paths.items())]


def _read_spool(spool: Spool, id_name: str, lines_before: list[int]) -> Iterator[Record]:
    """The records of a spool; their payloads are views into it."""
    source = spool.split.source
    with core.io_errors(spool.path), core.open_to_read(spool.path) as file:
        data = file.read()
    view = memoryview(data)
    at = 0
    while at < len(data):
        length, line = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        content = view[at : at + length]
        record = Record(*_decode(content)) if source.is_parquet else line_record(source.role, content, id_name)
        record.line = lines_before[spool.split.number] + line
        yield record
        at += length


def compare_range(spools: list[Spool], job: BatchJob, lines_before: list[int], folder: str) -> RangeResult:
    """Compare the pairs of one range in the order of their ids; `lines_before` counts the lines before each split."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [("id", pa.string()), ("endpoint", pa.string()), ("is_match", pa.bool_()), ("mismatches", pa.int64()),
         ("warnings", pa.int64()), ("error", pa.string()), ("report", pa.string())]
    )  # fmt: skip
    # The spools come in the order of the splits and sorting is stable: equal ids keep the order of the input.
    records = [record for spool in spools for record in _read_spool(spool, job.id_name, lines_before)]
    records.sort(key=sort_key)
    work = _RangeWork(job)
    with core.local_files(folder) as (local, publish):
        stem = os.path.join(local, f"range-{spools[0].range:06d}-{secrets.token_hex(8)}")
        lines, table = f"{stem}.jsonl", f"{stem}.parquet"
        with (
            core.io_errors(lines),
            open(lines, "wb", buffering=1 << 20) as out,
            pq.ParquetWriter(table, schema, compression="zstd") as writer,
        ):
            rows = (work.do(pair, out) for pair in (_joined(records) if len(job.sources) > 1 else records))
            while group := list(islice(rows, _ROWS_PER_GROUP)):
                writer.write_batch(_batch(group, schema))
        return RangeResult(publish(lines), publish(table), work.totals)


def _joined(records: list[Record]) -> Iterator[Record]:
    """Whole pairs: sides with the same id are joined in the order of the input."""
    for _, group in groupby(records, key=sort_key):
        members = list(group)
        yield from (record for record in members if record.problem is not None)
        olds = [record for record in members if record.old is not None and record.problem is None]
        news = [record for record in members if record.new is not None and record.problem is None]
        for old, new in zip_longest(olds, news):
            first = old or new
            endpoint = (new.endpoint if new is not None else None) or first.endpoint
            sides = (old.old if old else None, new.new if new else None)
            yield Record(first.id, endpoint, *sides, line=first.line)


@dataclass
class _RangeWork:
    """Compares pairs one by one and adds them up."""

    job: BatchJob
    totals: BatchTotals = field(default_factory=BatchTotals)
    _unmet: dict[str | None, list[RulePlace]] = field(default_factory=dict)
    _plans: dict[str | None, PayloadPlan] = field(default_factory=dict)

    @cached_property
    def _masker(self) -> Masker | None:
        return Masker(self.job.masked, self.job.mask_key) if self.job.masked else None

    def do(self, pair: Record, out: BinaryIO) -> tuple[Any, ...]:
        """Compare a pair and write its line; its row of the table."""
        key = sort_key(pair)
        code: str | None = None
        counts: tuple[int | None, ...] = (None, None, None)
        try:
            report = self._report(pair)
            if self._masker is not None:
                plan = self._plans.get(pair.endpoint)
                report = self._masker.with_aliases(plan.renames if plan is not None else None).report(report)
                pair.id = self._masker.identity(pair.id, self.job.id_name)
        except PayloadError as error:
            if self._masker is not None:
                pair.id = self._masker.identity(pair.id, self.job.id_name)
                if (partial := error.context.get("partial_result")) is not None:
                    error.context["partial_result"] = self._masker.report(Report.of(partial)).to_dict()
            code = error.code.wire
            self.totals.add_failure(pair, key, code, error.message)
            found: dict[str, Any] = {"line": pair.line, **_answer(error)}
        else:
            self.totals.add_report(pair.endpoint, key, pair.id, report)
            counts = (report.is_match, len(report.diffs), len(report.warnings))
            found = {"report": report.to_dict(execution=False)}
        body = to_json_bytes({"id": pair.id, "endpoint": pair.endpoint, **found})
        out.write(body)
        out.write(b"\n")
        identity = pair.id if isinstance(pair.id, str) or pair.id is None else to_json_bytes(pair.id).decode()
        return (identity, pair.endpoint, *counts, code, body)

    def _report(self, pair: Record) -> Report:
        if pair.problem is not None:
            raise PayloadError(pair.problem, details={"reason": pair.problem})
        if pair.old is None or pair.new is None:
            return _lonely(pair)
        plan = self._plans.get(pair.endpoint) or self._plans.setdefault(pair.endpoint, self.job.plan(pair.endpoint))
        old, new = read_payload(bytes(pair.old), OLD, plan.config), read_payload(bytes(pair.new), NEW, plan.config)
        if self.job.headers is None:
            self._note_met(pair, old, new)
        else:
            old, new = (answer_of(value, self.job.headers, side) for value, side in ((old, "old"), (new, "new")))
            self._note_met(pair, old["body"], new["body"])
        return plan.compare_values(old, new)

    def _note_met(self, pair: Record, old: object, new: object) -> None:
        """Look for rules that were not met before."""
        schema = pair.endpoint if pair.endpoint in self.job.schemas else None
        unmet = self._unmet.get(schema)
        if unmet is None:
            unmet = self._unmet[schema] = rule_places(self.job.schemas[schema], self.job.root)
        met = [place for place in unmet if is_met(place, old, new)]
        for place in met:
            self.totals.met[schema or "", place.pointer] = (sort_key(pair), pair.id)
        if met:
            self._unmet[schema] = [place for place in unmet if place not in met]


def answer_of(value: object, headers: tuple[str, ...], side: str) -> dict[str, Json]:
    """What is compared of a whole response: status, the requested headers, and the body."""
    if not isinstance(value, dict) or "status" not in value:
        raise PayloadError(f"{side} is no whole answer: it needs status, headers and body", details={"side": side})
    given = value.get("headers") or {}
    known = {str(name).lower(): item for name, item in given.items()} if isinstance(given, dict) else {}
    chosen = {name: known[name] for name in headers if name in known}
    return {"status": value["status"], "headers": chosen, "body": value.get("body")}


def _answer(error: PayloadError) -> dict[str, Json]:
    """The error response of a pair; a partial result is the same for the same input, but for the clock."""
    answer = error_response(error)
    partial = answer.pop("partial_result")
    if partial is None:
        return answer
    return {**answer, "partial_result": {name: part for name, part in partial.items() if name != "execution"}}


def _lonely(pair: Record) -> Report:
    """The report of a record whose partner is not there."""
    side = "new" if pair.new is None else "old"
    text = pair.old if pair.new is None else pair.new
    value = parse_json(bytes(text or b""), "the record")
    entry = Entry(
        path="$",
        type="MISSING_PARTNER",
        severity="ERROR",
        old_value=value if side == "new" else None,
        new_value=value if side == "old" else None,
        message=f"There is no record with this id in {side.capitalize()}",
        side=side,
    )
    summary = {"total_fields_checked": 0, "mismatches_found": 1, "warnings_count": 0, "fields_ignored": 0}
    return Report(False, summary, [entry], [])


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    *columns, bodies = zip(*rows, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=False)]
    # The bodies are UTF-8 already: no way through Python strings.
    arrays.append(pa.array(bodies, pa.binary()).cast(pa.string()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
