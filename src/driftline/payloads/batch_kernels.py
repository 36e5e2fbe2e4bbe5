"""The two steps of a batch that run in parallel: scatter records by ranges of ids, then compare one range in order.

Files in between have names of their own, so that a task which runs twice does no harm; only returned names count.
"""

from __future__ import annotations

import os
import secrets
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, zip_longest
from typing import Any, BinaryIO

import msgspec

from driftline.errors import PayloadError
from driftline.files import naming_the_file
from driftline.payloads.batch_job import BatchJob, Split
from driftline.payloads.batch_records import Record, SortKey, read_records, sort_key
from driftline.payloads.batch_totals import BatchTotals
from driftline.payloads.comparison import PayloadPlan, error_response
from driftline.payloads.payload_text import parse_json, read_payload
from driftline.payloads.report import Entry, Report, encode
from driftline.payloads.rule_usage import RulePlace, is_met, rule_places
from driftline.payloads.values import NEW, OLD

SAMPLED_RECORDS = 64
_FLUSH_BYTES = 8 << 20
_ROWS_PER_GROUP = 10_000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The output of one range of ids."""

    number: int
    lines: str
    table: str
    totals: BatchTotals


def sample_keys(job: BatchJob, split: Split) -> list[SortKey]:
    """Some keys of a split, for cutting ids into ranges."""
    keys = []
    for record in read_records(split, job.id_name):
        keys.append(sort_key(record))
        if len(keys) == SAMPLED_RECORDS:
            break
    return keys


def scatter(job: BatchJob, split: Split, bounds: list[SortKey], folder: str) -> list[tuple[int, str]]:
    """Write the records of a split into a file for each range; (range, path) of those that have any."""
    spool = _Spool(folder, split.number)
    for record in read_records(split, job.id_name):
        spool.add(bisect_right(bounds, sort_key(record)), record)
    return spool.close()


class _Spool:
    """Gathers records by range and writes them in large pieces."""

    def __init__(self, folder: str, number: int) -> None:
        self._stem = os.path.join(folder, f"split-{number:06d}-{secrets.token_hex(8)}")
        self._waiting: dict[int, list[bytes]] = {}
        self._size = 0
        self._paths: dict[int, str] = {}

    def add(self, range_number: int, record: Record) -> None:
        data = _encode(record)
        pieces = self._waiting.setdefault(range_number, [])
        pieces.append(len(data).to_bytes(4, "little"))
        pieces.append(data)
        self._size += len(data)
        if self._size >= _FLUSH_BYTES:
            self._flush()

    def close(self) -> list[tuple[int, str]]:
        self._flush()
        return sorted(self._paths.items())

    def _flush(self) -> None:
        for number, pieces in self._waiting.items():
            path = self._paths.setdefault(number, f"{self._stem}-{number:06d}")
            with naming_the_file(path), open(path, "ab") as out:
                out.write(b"".join(pieces))
        self._waiting, self._size = {}, 0


def _read_spool(path: str) -> Iterator[Record]:
    with naming_the_file(path), open(path, "rb") as file:
        data = memoryview(file.read())
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        yield _decode(data[at + 4 : at + 4 + size])
        at += 4 + size


def compare_range(job: BatchJob, number: int, spools: list[str], folder: str) -> RangeResult:
    """Compare the pairs of one range in the order of their ids."""
    records = sorted((record for path in spools for record in _read_spool(path)), key=sort_key)
    stem = os.path.join(folder, f"range-{number:06d}-{secrets.token_hex(8)}")
    work = _RangeWork(job)
    lines = f"{stem}.jsonl"
    with naming_the_file(lines), open(lines, "wb", buffering=1 << 20) as out, _Table(f"{stem}.parquet") as table:
        for pair in _pairs(records):
            work.do(pair, out, table)
    return RangeResult(number, lines, f"{stem}.parquet", work.totals)


def _pairs(records: list[Record]) -> Iterator[Record]:
    """Whole pairs: sides with the same id are joined in the order of the input."""
    for _, group in groupby(records, key=lambda record: sort_key(record)[:2]):
        members = list(group)
        yield from (record for record in members if record.role == "pairs" or record.problem is not None)
        olds = [record for record in members if record.role == "old" and record.problem is None]
        news = [record for record in members if record.role == "new" and record.problem is None]
        for old, new in zip_longest(olds, news):
            first = old or new
            endpoint = (new.endpoint if new is not None else None) or first.endpoint
            yield Record("joined", first.place, first.id, endpoint, old.old if old else None, new.new if new else None)


@dataclass(slots=True)
class _RangeWork:
    """Compares pairs one by one and adds them up."""

    job: BatchJob
    totals: BatchTotals = field(default_factory=BatchTotals)
    _unmet: dict[str | None, list[RulePlace]] = field(default_factory=dict)
    _plans: dict[str | None, PayloadPlan] = field(default_factory=dict)

    def do(self, pair: Record, out: BinaryIO, table: _Table) -> None:
        try:
            report = self._report(pair)
        except PayloadError as error:
            self.totals.failed += 1
            answer = {key: value for key, value in error_response(error).items() if key != "partial_result"}
            body = encode({"id": pair.id, "endpoint": pair.endpoint, **answer})
            table.add(pair, None, error.code, body)
        else:
            self.totals.add_report(pair.endpoint, sort_key(pair), pair.id, report)
            content = report.to_dict(execution=False)
            body = encode({"id": pair.id, "endpoint": pair.endpoint, "report": content})
            table.add(pair, report, None, body)
        out.write(body)
        out.write(b"\n")

    def _report(self, pair: Record) -> Report:
        if pair.problem is not None:
            raise PayloadError(pair.problem, details={"reason": pair.problem})
        if pair.old is None or pair.new is None:
            return _lonely(pair)
        plan = self._plans.get(pair.endpoint) or self._plans.setdefault(pair.endpoint, self.job.plan(pair.endpoint))
        old, new = read_payload(pair.old, OLD, plan.config), read_payload(pair.new, NEW, plan.config)
        self._note_met(pair, old, new)
        return plan.compare_values(old, new)

    def _note_met(self, pair: Record, old: Any, new: Any) -> None:
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


def _lonely(pair: Record) -> Report:
    """The report of a record whose partner is not there."""
    side = "new" if pair.new is None else "old"
    text = pair.old if pair.new is None else pair.new
    value = parse_json(text or b"", "the record")
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


class _Table:
    """The reports as Parquet, a row for each pair."""

    def __init__(self, path: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._pa = pa
        self._schema = pa.schema(
            [("id", pa.string()), ("endpoint", pa.string()), ("is_match", pa.bool_()), ("mismatches", pa.int64()),
             ("warnings", pa.int64()), ("error", pa.string()), ("report", pa.string())]
        )  # fmt: skip
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, *details: object) -> None:
        self._flush()
        self._writer.close()

    def add(self, pair: Record, report: Report | None, error: str | None, body: bytes) -> None:
        """Add the row of a pair."""
        self._rows.append(
            {
                "id": pair.id if isinstance(pair.id, str) or pair.id is None else encode(pair.id).decode(),
                "endpoint": pair.endpoint,
                "is_match": report.is_match if report is not None else None,
                "mismatches": len(report.diffs) if report is not None else None,
                "warnings": len(report.warnings) if report is not None else None,
                "error": error,
                "report": body.decode("utf-8"),
            }
        )
        if len(self._rows) >= _ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._pa.Table.from_pylist(self._rows, self._schema))
            self._rows = []
