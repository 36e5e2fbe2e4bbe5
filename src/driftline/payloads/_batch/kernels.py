"""The two steps of a batch that run in parallel: scatter records by ranges of ids, then compare one range in order.

Files in between have names of their own, so that a task which runs twice does no harm; only returned names count.
"""

from __future__ import annotations

import os
import secrets
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, islice, zip_longest
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from driftline.core import io_errors, local_files, open_to_read
from driftline.errors import PayloadError
from driftline.payloads._batch.job import (
    BatchJob,
    Record,
    Role,
    SortKey,
    Split,
    line_record,
    read_lines,
    read_rows,
    sort_key,
)
from driftline.payloads._batch.totals import BatchTotals, RulePlace, is_met, rule_places
from driftline.payloads._captures import Masker
from driftline.payloads._compare.compare import PayloadPlan, error_response
from driftline.payloads._compare.report import Entry, Report
from driftline.payloads._values.text import parse_json, read_payload, to_json_bytes
from driftline.payloads._values.values import NEW, OLD, Json

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLED_RECORDS = 64
_FLUSH_BYTES = 8 << 20
_ROWS_PER_GROUP = 10_000
_HEAD = struct.Struct("<IQ")  # before each record of a spool: its length, and its line in the split

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The output of one range of ids."""

    number: int
    lines: str
    table: str
    totals: BatchTotals


class Spool(NamedTuple):
    """Records of one split for one range of ids: lines as they came, or rows as records, with their numbers."""

    range: int
    path: str
    role: Role
    is_lines: bool
    split: int


class Scattered(NamedTuple):
    """What became of one split: its spools, and how many lines it had."""

    spools: list[Spool]
    lines: int


def sample_keys(job: BatchJob, split: Split) -> list[SortKey]:
    """Some keys of a split, for cutting ids into ranges."""
    if split.source.is_parquet:
        records = read_rows(split, job.id_name)
    else:
        lines = (line for line in read_lines(split) if not line.isspace())
        records = (line_record(split.source.role, line, job.id_name) for line in lines)
    return [sort_key(record) for record in islice(records, SAMPLED_RECORDS)]


def records_of(job: BatchJob, split: Split) -> Iterator[Record]:
    """The records of a split with their lines in it."""
    role, id_name = split.source.role, job.id_name
    if split.source.is_parquet:
        rows: Iterator[Record] = read_rows(split, id_name)
    else:
        rows = (line_record(role, line, id_name) for line in read_lines(split) if not line.isspace())
    for number, record in enumerate(rows, 1):
        record.line = number
        yield record


def scatter(job: BatchJob, split: Split, bounds: list[SortKey], folder: str) -> Scattered:
    """Write the records of a split into a file for each range that has any."""
    with local_files(folder) as (local, publish):
        found = _scatter(job, split, bounds, local)
        return found._replace(spools=[spool._replace(path=publish(spool.path)) for spool in found.spools])


def _scatter(job: BatchJob, split: Split, bounds: list[SortKey], folder: str) -> Scattered:
    spooler = _Spooler(folder, split)
    number = 0
    if split.source.is_parquet:
        for number, record in enumerate(read_rows(split, job.id_name), 1):
            spooler.add(bisect_right(bounds, sort_key(record)), number, _encode(record))
    else:
        role, id_name = split.source.role, job.id_name
        for number, line in enumerate(read_lines(split), 1):
            if not line.isspace():
                spooler.add(bisect_right(bounds, sort_key(line_record(role, line, id_name))), number, line)
    return Scattered(spooler.close(), number)


class _Spooler:
    """Gathers records by range and writes them in large pieces."""

    def __init__(self, folder: str, split: Split) -> None:
        self._number = split.number
        self._stem = os.path.join(folder, f"split-{split.number:06d}-{secrets.token_hex(8)}")
        self._source = split.source
        self._waiting: dict[int, list[bytes]] = {}
        self._size = 0
        self._paths: dict[int, str] = {}

    def add(self, range_number: int, number: int, data: bytes) -> None:
        pieces = self._waiting.get(range_number)
        if pieces is None:
            pieces = self._waiting[range_number] = []
        pieces.append(_HEAD.pack(len(data), number))
        pieces.append(data)
        self._size += _HEAD.size + len(data)
        if self._size >= _FLUSH_BYTES:
            self._flush()

    def close(self) -> list[Spool]:
        self._flush()
        role, is_lines = self._source.role, not self._source.is_parquet
        return [Spool(number, path, role, is_lines, self._number) for number, path in sorted(self._paths.items())]

    def _flush(self) -> None:
        for number, pieces in self._waiting.items():
            path = self._paths.setdefault(number, f"{self._stem}-{number:06d}")
            with io_errors(path), open(path, "ab") as out:
                out.write(b"".join(pieces))
        self._waiting, self._size = {}, 0


def _read_spool(spool: Spool, id_name: str, lines_before: int) -> Iterator[Record]:
    """The records of a spool; their payloads are views into it."""
    with io_errors(spool.path), open_to_read(spool.path) as file:
        data = file.read()
    view = memoryview(data)
    at = 0
    while at < len(data):
        length, line = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        content = view[at : at + length]
        record = line_record(spool.role, content, id_name) if spool.is_lines else Record(*_decode(content))
        record.line = lines_before + line
        yield record
        at += length


def compare_range(job: BatchJob, number: int, spools: list[Spool], lines_before: list[int], folder: str) -> RangeResult:
    """Compare the pairs of one range in the order of their ids; `lines_before` counts the lines before each split."""
    # The spools come in the order of the splits and sorting is stable: equal ids keep the order of the input.
    records = [record for spool in spools for record in _read_spool(spool, job.id_name, lines_before[spool.split])]
    records.sort(key=sort_key)
    work = _RangeWork(job)
    pairs = _joined(records) if len(job.sources) > 1 else records
    with local_files(folder) as (local, publish):
        stem = os.path.join(local, f"range-{number:06d}-{secrets.token_hex(8)}")
        lines, rows = f"{stem}.jsonl", f"{stem}.parquet"
        with io_errors(lines), open(lines, "wb", buffering=1 << 20) as out, ReportTable(rows) as table:
            for pair in pairs:
                work.do(pair, out, table)
        return RangeResult(number, publish(lines), publish(rows), work.totals)


def _joined(records: list[Record]) -> Iterator[Record]:
    """Whole pairs: sides with the same id are joined in the order of the input."""
    for _, group in groupby(records, key=sort_key):
        members = list(group)
        yield from (record for record in members if record.problem is not None)
        olds = [record for record in members if record.role == "old" and record.problem is None]
        news = [record for record in members if record.role == "new" and record.problem is None]
        for old, new in zip_longest(olds, news):
            first = old or new
            endpoint = (new.endpoint if new is not None else None) or first.endpoint
            sides = (old.old if old else None, new.new if new else None)
            yield Record("joined", first.id, endpoint, *sides, line=first.line)


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

    def do(self, pair: Record, out: BinaryIO, table: ReportTable) -> None:
        key = sort_key(pair)
        try:
            report = self._report(pair)
            if self._masker is not None:
                plan = self._plans.get(pair.endpoint)
                report = self._masker.with_aliases(plan.renames if plan is not None else None).report(report)
                pair.id = self._masker.identity(pair.id, self.job.id_name)
        except PayloadError as error:
            if self._masker is not None:
                self._mask_error(pair, error)
            self.totals.add_failure(pair, key, error.code, error.message)
            body = to_json_bytes({"id": pair.id, "endpoint": pair.endpoint, "line": pair.line, **_answer(error)})
            table.add(pair, None, error.code, body)
        else:
            self.totals.add_report(pair.endpoint, key, pair.id, report)
            content = report.to_dict(execution=False)
            body = to_json_bytes({"id": pair.id, "endpoint": pair.endpoint, "report": content})
            table.add(pair, report, None, body)
        out.write(body)
        out.write(b"\n")

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

    def _mask_error(self, pair: Record, error: PayloadError) -> None:
        assert self._masker is not None
        pair.id = self._masker.identity(pair.id, self.job.id_name)
        partial = error.context.get("partial_result")
        if partial is not None:
            error.context["partial_result"] = self._masker.report(Report.of(partial)).to_dict()

    def _note_met(self, pair: Record, old: object, new: object) -> None:
        """Look for rules that were not met before."""
        schema = pair.endpoint if pair.endpoint in self.job.schemas else None
        unmet = self._unmet.get(schema)
        if unmet is None:
            unmet = self._unmet[schema] = rule_places(self.job.schemas[schema], self.job.root)
        if not unmet:
            return
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


class ReportTable:
    """Gathers rows column by column and writes them in groups."""

    def __init__(self, path: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._schema = pa.schema(
            [("id", pa.string()), ("endpoint", pa.string()), ("is_match", pa.bool_()), ("mismatches", pa.int64()),
             ("warnings", pa.int64()), ("error", pa.string()), ("report", pa.string())]
        )  # fmt: skip
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[tuple[Any, ...]] = []

    def __enter__(self) -> ReportTable:
        return self

    def __exit__(self, *details: object) -> None:
        self._flush()
        self._writer.close()

    def add(self, pair: Record, report: Report | None, error: str | None, body: bytes) -> None:
        """Add the row of a pair."""
        identity = pair.id if isinstance(pair.id, str) or pair.id is None else to_json_bytes(pair.id).decode()
        found = (None, None, None) if report is None else (report.is_match, len(report.diffs), len(report.warnings))
        self._rows.append((identity, pair.endpoint, *found, error, body))
        if len(self._rows) >= _ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_batch(self._batch())
            self._rows = []

    def _batch(self) -> pa.RecordBatch:
        import pyarrow as pa

        *columns, bodies = zip(*self._rows, strict=True)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, self._schema, strict=False)]
        # The bodies are UTF-8 already: no way through Python strings.
        return pa.RecordBatch.from_arrays(
            [*arrays, pa.array(bodies, pa.binary()).cast(pa.string())], schema=self._schema
        )
