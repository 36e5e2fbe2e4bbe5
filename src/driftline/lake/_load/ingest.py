"""Ingestion: lines of table-diff events or of wire deltas become delta files.

Two kernels run over byte ranges of lines: `survey` counts events and the types of their values, `write_range` makes
the deltas of a range and writes them. Events get the timestamps start, start + 1, … in their order, so a rerun with the
same start makes the same deltas.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import repeat
from pathlib import Path

import msgspec

from driftline.core import AnyPath, JsonObject, LineRange, exact_number, io_errors, line_ranges, read_pieces
from driftline.deltas import (
    ColumnSchema,
    RowDelta,
    TableSchema,
    abbreviate,
    from_events,
    number_kind,
    row_id_of_key,
    with_doubles,
)
from driftline.errors import DeltaError, DriftlineError, LakeError
from driftline.lake._store import flush
from driftline.lake._store.envelopes import parse_envelope, wrong_id
from driftline.lake._store.lake import Lake, relative
from driftline.lake._store.parquet import DataFile, read_file
from driftline.lake._store.rows import decode_deltas, delta_file_schema
from driftline.lake._store.schemas import every_column, refused_before, registered, required_table, too_old
from driftline.lake._store.tables import Commit, loaded, retried, transaction_version

_FRAME = frozenset({"schema", "stats", "unchanged"})
_NUMBERS = (int, float, Decimal)
_LONG_NUMBER = re.compile(rb"[0-9.]{16}|[0-9][eE][+-]?[0-9]{2}")  # shorter ones survive as doubles
_KINDS = {str: "string", bool: "boolean", type(None): "null"}
_decode = msgspec.json.decode
_decode_digits = msgspec.json.Decoder(float_hook=exact_number).decode


@dataclass(frozen=True, slots=True)
class Extraction:
    """How events become deltas: their table, client and first timestamp."""

    table: str
    client_id: str
    start: int
    schema: TableSchema
    reading: Callable[[JsonObject], JsonObject] | None = None  # gives the cells of an event their types
    numbers: Mapping[str, bool] = field(default_factory=dict)  # columns of doubles, whose numbers must survive that
    same_timestamp: bool = False  # all deltas at `start`; only where every event is of another row


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """The plan for every task; `extraction` is None for lines that are deltas already."""

    lake: Lake
    gateway_id: str
    columns: Mapping[str, Sequence[ColumnSchema]]
    refused: Mapping[str, int | None]
    extraction: Extraction | None = None
    existing: Mapping[str, flush.ExistingIds] = field(
        default_factory=dict
    )  # where ids of deltas from other writers are looked up


@dataclass
class Survey:
    """Statistics of a range of events: their number, the columns of the schema event, and the types of values."""

    events: int = 0
    columns: list[str] = field(default_factory=list)
    types: dict[str, set[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """A delta file that is not committed yet; None where all deltas of a range were in the lake already."""

    table: str
    file: DataFile | None
    deltas: int
    known: int = 0


Scheduler = Callable[[IngestPlan, Sequence[tuple[LineRange, int]]], Iterable[IngestedFile]]


def flush_file(lake: Lake, path: Path, gateway_id: str, scheduler: Scheduler | None = None) -> list[flush.FlushResult]:
    """Flush a file of deltas (JSON lines or an envelope), whose content is its identity; a result for each table."""
    with io_errors(path), open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        start = file.read(64)
    if start.lstrip().startswith(b'{"version"'):
        envelope = parse_envelope(path.read_bytes(), path.name)
        return _flush_deltas(lake, envelope.deltas, envelope.gateway_id or gateway_id, digest)
    ranges = line_ranges(path)
    known = [table for table in lake.tables() if registered(lake, table) is not None]
    if not known:  # without any schema, all deltas become envelopes
        deltas = (_parse_delta(line, path.name, n) for lines in ranges for n, line in enumerate(lines.lines()))
        return _flush_deltas(lake, deltas, gateway_id, digest)
    plan = plan_ingest(lake, known, gateway_id)
    files = (scheduler or ingest_locally)(plan, [(lines, 0) for lines in ranges])
    return commit_ingested(plan, files, f"file:{digest}")


def _flush_deltas(lake: Lake, deltas: Iterable[RowDelta], gateway_id: str, digest: str) -> list[flush.FlushResult]:
    by_table: dict[str, list[RowDelta]] = defaultdict(list)
    for delta in deltas:
        by_table[delta.table].append(delta)
    return [
        flush.flush_content(lake, table, batch, gateway_id, f"file:{digest}", f"f{digest[:16]}")
        for table, batch in sorted(by_table.items())
    ]


def survey(lines: LineRange) -> Survey:
    """Count the data events of a range and the types of their values."""
    found = Survey()
    seen: dict[str, set[str]] = defaultdict(set)
    for line in lines.lines():
        event = _event(line, lines, exact=True)
        if event.get("type") == "schema":
            found.columns = list(dict.fromkeys([*event["columns_a"], *event["columns_b"]]))
        if event.get("type") in _FRAME:
            continue
        found.events += 1
        for name, value in (event.get("after") or event.get("row") or {}).items():
            kind = type(value)
            seen[name].add(number_kind(value) if kind in _NUMBERS else _KINDS.get(kind, "json"))
    found.types = dict(seen)
    return found


def event_columns(path: AnyPath) -> list[str]:
    """The columns of input B of a table diff, by its first event."""
    schema = _event(next(read_pieces(path), b""), LineRange(str(path), 0, 0))
    return list(schema["columns_b"])


def inferred_schema(table: str, surveys: Iterable[Survey], key: Sequence[str] = ()) -> TableSchema:
    """The narrowest schema that accepts every value; a column without values is a string."""
    names: dict[str, set[str]] = {}
    for each in surveys:
        for name in (*each.columns, *each.types):
            names.setdefault(name, set()).update(each.types.get(name, ()))
    columns = [{"name": name, "type": _common_type(kinds)} for name, kinds in names.items()]
    return TableSchema(table, columns, key)


def plan_ingest(lake: Lake, tables: Iterable[str], gateway_id: str, extraction: Extraction | None = None) -> IngestPlan:
    """The plan for deltas of tables that have a schema; deltas of other writers may be in the lake already."""
    columns: dict[str, Sequence[ColumnSchema]] = {}
    refused: dict[str, int | None] = {}
    existing: dict[str, flush.ExistingIds] = {}
    for table in tables:
        deltas_table, _ = required_table(lake, table)
        columns[table] = every_column(deltas_table)
        refused[table] = refused_before(deltas_table)
        if extraction is None:
            existing[table] = flush.existing_ids(lake, table, deltas_table)
    return IngestPlan(lake, gateway_id, columns, refused, extraction, existing)


def write_range(plan: IngestPlan, lines: LineRange, first: int = 0) -> list[IngestedFile]:
    """Make the deltas of a range and write them, a file for each table; `first` counts the events before it."""
    by_table: dict[str, list[RowDelta]] = defaultdict(list)
    for position, delta in enumerate(_deltas(plan, lines, first)):
        limit = plan.refused.get(delta.table)
        if limit is not None and delta.hlc < limit:
            raise too_old(delta.table, delta.hlc, limit, position)
        by_table[delta.table].append(delta)
    written = []
    for table, batch in by_table.items():
        if table not in plan.columns:
            message = f"no schema is registered for table {table!r}: register one with `driftline lake schema`"
            raise DeltaError(message, code="SCHEMA_ERROR")
        is_own = plan.extraction is not None
        fresh = batch if is_own else flush.unknown(lines.path, batch, plan.existing[table].known(batch))
        if len(fresh) < len(batch):
            written.append(IngestedFile(table, None, 0, len(batch) - len(fresh)))
        for file in flush.write_delta_files(plan.lake, table, fresh, plan.gateway_id, plan.columns[table]):
            written.append(IngestedFile(table, file, file.rows))
    return written


def ingest_locally(plan: IngestPlan, work: Sequence[tuple[LineRange, int]]) -> Iterator[IngestedFile]:
    """The scheduler without Spark: one range after the other."""
    for lines, first in work:
        yield from write_range(plan, lines, first)


def commit_ingested(plan: IngestPlan, files: Iterable[IngestedFile], application: str) -> list[flush.FlushResult]:
    """Commit the written files, a commit for each table, unless this application did it before."""
    by_table: dict[str, list[IngestedFile]] = defaultdict(list)
    for each in files:
        by_table[each.table].append(each)
    return [_commit(plan, table, entries, application) for table, entries in sorted(by_table.items())]


def _each_once(plan: IngestPlan, table: str, entries: list[IngestedFile]) -> list[IngestedFile]:
    """Remove copies: ranges are written in parallel, so a delta that is in two of them is in two files."""
    files = [entry.file for entry in entries if entry.file is not None]
    crossing = [file for file in files if any(_overlap(file, other) for other in files if other is not file)]
    repeated = flush.repeated_rows(plan.lake, table, crossing)
    columns = plan.columns[table]
    found: list[IngestedFile] = []
    for entry in entries:
        gone = repeated.get(entry.file.path) if entry.file else None
        if entry.file is None or gone is None:
            found.append(entry)
            continue
        held = read_file(plan.lake, relative(table, "deltas", entry.file.path), delta_file_schema(columns))
        kept = [delta for row, delta in enumerate(decode_deltas(held, table, columns)) if row not in gone]
        written = flush.write_delta_files(plan.lake, table, kept, plan.gateway_id, columns)
        found.append(IngestedFile(table, None, 0, len(gone)))
        found += [IngestedFile(table, each, each.rows) for each in written]
    return found


def _commit(plan: IngestPlan, table: str, entries: list[IngestedFile], application: str) -> flush.FlushResult:
    if table in plan.existing:
        entries = _each_once(plan, table, entries)
    count = sum(entry.deltas for entry in entries)
    adds = [entry.file for entry in entries if entry.file is not None]
    known = sum(entry.known for entry in entries)
    done_before = not adds

    def attempt() -> bool:
        nonlocal done_before
        deltas_table = loaded(plan.lake, table)
        if done_before or transaction_version(deltas_table, application) is not None:
            done_before = True
            return True
        before = {file.path for file in plan.existing[table].files} if table in plan.existing else None
        for file in deltas_table.files() if before is not None else ():
            # A file that was added since the lookup of ids may contain some of them.
            if file.path not in (before or ()) and any(_overlap(file, add) for add in adds):
                message = f"{table} took other deltas of the same time meanwhile: run it again"
                raise LakeError(message, code="commit_conflict")
        if refused_before(deltas_table) != plan.refused.get(table):
            raise LakeError(f"the horizon of {table} moved meanwhile: run it again", code="commit_conflict")
        details = {"operation": "flush", "gateway": plan.gateway_id, "deltas": count}
        transactions = {application: 1, **(flush.checked(deltas_table) if table in plan.existing else {})}
        return deltas_table.append(Commit(adds, (), transactions, details))

    retried(attempt, f"flushing to {table}")
    if done_before:
        return flush.FlushResult(table, 0, (), "parquet", known + count)
    return flush.FlushResult(table, count, tuple(file.path for file in adds), "parquet", known)


def _overlap(one: DataFile, other: DataFile) -> bool:
    if one.min_hlc is None or other.min_hlc is None:
        return True
    return one.min_hlc <= (other.max_hlc or 0) and other.min_hlc <= (one.max_hlc or 0)


def _deltas(plan: IngestPlan, lines: LineRange, first: int) -> Iterator[RowDelta]:
    if plan.extraction is not None:
        how = plan.extraction
        typed = _typed_events(how, lines)
        start: int | Iterator[int] = repeat(how.start) if how.same_timestamp else how.start + first
        yield from from_events(typed, table=how.table, client_id=how.client_id, start=start, schema=how.schema)
        return
    for position, line in enumerate(lines.lines()):
        yield _parse_delta(line, lines.path, position)


def _typed_events(how: Extraction, lines: LineRange) -> Iterator[JsonObject]:
    exact = bool(how.numbers) or any(column.is_exact for column in how.schema.columns)
    for line in lines.lines():
        event = _event(line, lines, exact=exact)
        if event.get("type") in _FRAME:
            continue
        try:
            if how.numbers and _LONG_NUMBER.search(line):
                event = with_doubles(event, how.numbers)
            yield event if how.reading is None else how.reading(event)
        except DeltaError as error:
            row = row_id_of_key(list(event["key"].values())) if "key" in event else str(event.get("row_index"))
            words = f"row {abbreviate(row)}: {error.message}"
            raise DeltaError(words, code=error.code, table=how.table, row=row) from error


def _parse_delta(line: bytes, name: str, position: int) -> RowDelta:
    """A delta of a line of JSON, its id checked; an error names the file and the line."""
    try:
        delta = RowDelta.from_wire(_decode(line))
    except (msgspec.DecodeError, DriftlineError) as error:
        raise DeltaError(f"{name}, delta {position}: {error}", path=name, index=position) from error
    if not delta.has_own_id():
        raise wrong_id(name, position, delta)
    return delta


def _event(line: bytes, lines: LineRange, *, exact: bool = False) -> JsonObject:
    """The event of a line; `exact` keeps the digits of long numbers, which a double may not hold."""
    try:
        event = (_decode_digits if exact and _LONG_NUMBER.search(line) else _decode)(line)
    except msgspec.DecodeError as error:
        raise DeltaError(f"{lines.path} holds a line that is not JSON: {error}", path=lines.path) from error
    if not isinstance(event, dict):
        raise DeltaError(f"{lines.path} holds a line that is not an event", path=lines.path)
    return event


def _common_type(kinds: set[str]) -> str:
    """The narrowest type; numbers are doubles unless that would change one of them."""
    known = kinds - {"null"}
    if not known:
        return "string"
    if known <= {"whole", "fraction"}:
        return "number"
    if known <= {"whole", "integer"}:
        return "integer"
    if known <= {"whole", "fraction", "integer", "decimal"}:
        return "decimal"
    return known.pop() if len(known) == 1 else "json"
