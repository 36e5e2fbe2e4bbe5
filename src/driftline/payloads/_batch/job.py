"""A batch of comparisons as data: where pairs come from, which schemas apply, how input is cut into splits, and the
records of a split: a pair, or one side of it, with its id.

Ids sort numbers before strings, numbers by value and strings by code point; what has no id comes first. Records of one
id stay in the order of the input.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from driftline.core import AnyPath, compression_of, io_errors, is_url, open_bytes, open_to_read, size_of
from driftline.errors import InputError, PayloadError
from driftline.payloads._compare.compare import PayloadPlan, compile as compile_schema
from driftline.payloads._rules.path_rules import PathRule
from driftline.payloads._schema.documents import Bundle
from driftline.payloads._values.text import check_members, parse_json, raw_members, readable_members, to_json_bytes
from driftline.payloads._values.values import Json, spelled

SPLIT_BYTES = 64 << 20

Role = Literal["pairs", "old", "new"]


@dataclass(frozen=True, slots=True)
class Source:
    """A file of pairs, or of one side."""

    path: str
    role: Role
    size: int

    @property
    def is_parquet(self) -> bool:
        """Whether the file is Parquet, by its name."""
        return self.path.endswith((".parquet", ".pq"))


@dataclass(frozen=True, slots=True)
class BatchJob:
    """Everything a task needs to know."""

    sources: tuple[Source, ...]
    schemas: Mapping[str | None, bytes | Bundle]
    config: Mapping[str, Json] = field(default_factory=dict)
    root: str | None = None
    id_name: str = "id"
    flags: tuple[PathRule, ...] = ()
    masked: tuple[str, ...] = ()
    mask_key: bytes | None = None  # one for all tasks of a run
    headers: tuple[str, ...] | None = None  # None: records hold payloads; else complete responses, with these headers
    schema_names: Mapping[str | None, str] = field(default_factory=dict)

    def plan(self, endpoint: str | None) -> PayloadPlan:
        """The plan of an endpoint; None is the schema for all others."""
        schema = self.schemas.get(endpoint, self.schemas.get(None))
        if schema is None:
            raise PayloadError(f"no schema for the endpoint {endpoint!r}", details={"reason": "unknown endpoint"})
        return compile_schema(schema, self.config, self.root, flags=self.flags, is_record=self.headers is not None)

    @property
    def size(self) -> int:
        """The bytes of all sources."""
        return sum(source.size for source in self.sources)


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of a source: a byte range of lines, or a range of Parquet row groups."""

    number: int
    source: Source
    start: int
    end: int


def open_source(path: AnyPath, role: Role) -> Source:
    """A source that exists."""
    name = str(path)
    if is_url(name):
        return Source(name, role, size_of(name))
    with io_errors(name):
        size = Path(name).stat().st_size
    if Path(name).is_dir():
        raise InputError(f"{name} is a directory, a file is wanted", code="is_a_directory", path=name)
    return Source(name, role, size)


def splits_of(job: BatchJob, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """The job's input in pieces that tasks can read on their own."""
    ranges = ((source, *ends) for source in job.sources for ends in _ranges(source, split_bytes))
    return [Split(number, *piece) for number, piece in enumerate(ranges)]


def _ranges(source: Source, split_bytes: int) -> Iterable[tuple[int, int]]:
    if source.is_parquet:
        return _row_groups(source.path, split_bytes)
    if compression_of(source.path) != "plain":
        return [(0, source.size)]  # a compressed stream is read from its start
    starts = range(0, max(source.size, 1), split_bytes)
    return [(start, min(start + split_bytes, source.size)) for start in starts]


def _row_groups(path: str, split_bytes: int) -> Iterator[tuple[int, int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_to_read(path) as file:
            metadata = pq.read_metadata(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path} is not a Parquet file: {error}", code="corrupt_parquet", path=path) from None
    start, size = 0, 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= split_bytes:
            yield start, group + 1
            start, size = group + 1, 0
    if start < metadata.num_row_groups:
        yield start, metadata.num_row_groups


class Record(msgspec.Struct, array_like=True):
    """One line or row, with payloads as JSON text (one side alone, until sides are joined); `problem` says why it
    cannot be compared."""

    id: str | int | float | None
    endpoint: str | None = None
    old: bytes | msgspec.Raw | None = None
    new: bytes | msgspec.Raw | None = None
    problem: str | None = None
    line: int | None = None  # of its file, from 1; a row for Parquet
    no_body: int = 0  # responses whose bodies the capture does not have


class _Pair(msgspec.Struct):
    old: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    new: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: Any = None
    endpoint: Any = None
    missing: str | None = None  # the side that a capture does not have
    error: str | None = None  # why a capture could not be read
    no_body: int = 0


_decode_pair = msgspec.json.Decoder(_Pair).decode
_decode_any = msgspec.json.Decoder().decode
SortKey = tuple[int, Any]


def sort_key(record: Record) -> SortKey:
    """The position of a record in the order of the output."""
    identity = record.id
    if identity is None:
        return (0, 0)
    return (2, identity) if isinstance(identity, str) else (1, identity)


def read_lines(split: Split) -> Iterator[bytes]:
    """The lines of text that begin inside the split's byte range, blank ones too, so that lines can be counted."""
    path = split.source.path
    if compression_of(path) != "plain":
        with open_bytes(path) as stream:
            yield from stream
        return
    with io_errors(path), open_to_read(path) as file:
        if split.start:
            file.seek(split.start - 1)
            file.readline()  # the rest of a line that began before
        place = file.tell()
        for line in file if place < split.end else ():
            yield line
            place += len(line)
            if place >= split.end:
                return


def line_record(role: Role, line: bytes | memoryview, id_name: str) -> Record:
    """The record of a line; what cannot be read is a record with a problem."""
    try:
        if role == "pairs":
            check_members(line)
            return _pair_record(_decode_pair(line))
        return _side_record(role, _decode_any(line), msgspec.Raw(line), id_name)
    except (PayloadError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return _odd_line_record(role, bytes(line).rstrip(b"\r\n"), id_name)


def _odd_line_record(role: Role, line: bytes, id_name: str) -> Record:
    """A line that the quick decoder refuses: lone surrogates are fine, what is not JSON becomes a problem."""
    try:
        if role == "pairs":
            found = raw_members(line, "the line")
            given: dict[str, Any] = {name: found[name] for name in ("old", "new") if name in found}
            given |= {name: _decode_any(found[name]) for name in ("id", "endpoint") if name in found}
            return _pair_record(msgspec.convert(given, _Pair))
        return _side_record(role, parse_json(line, "the line"), line, id_name)
    except (PayloadError, msgspec.MsgspecError, ValueError) as error:
        read = readable_members(line)
        endpoint = read.get("endpoint")
        identity = _usable_id(read.get("id" if role == "pairs" else id_name))
        return Record(identity, endpoint if isinstance(endpoint, str) else None, problem=str(error))


def _pair_record(pair: _Pair) -> Record:
    old, new = (None if isinstance(side, msgspec.UnsetType) else side for side in (pair.old, pair.new))
    is_named = pair.endpoint is None or isinstance(pair.endpoint, str)
    problem = pair.error if is_named else f"the endpoint must be text, not {spelled(pair.endpoint)}"
    record = Record(_usable_id(pair.id), pair.endpoint if is_named else None, problem=problem)
    if problem is not None:
        record.no_body = pair.no_body
    elif pair.missing == "new" and old is not None:
        record.old = old
    elif pair.missing == "old" and new is not None:
        record.new = new
    else:
        record.old, record.new = old, new
        record.problem = "the line needs old and new" if old is None or new is None else None
    return _checked(record, "id")


def _side_record(role: str, value: object, text: bytes | msgspec.Raw, id_name: str) -> Record:
    if not isinstance(value, dict):
        return Record(None, problem="the line is not an object")
    endpoint = value.get("endpoint")
    record = Record(_usable_id(value.get(id_name)), endpoint if isinstance(endpoint, str) else None)
    setattr(record, role, text)
    return _checked(record, id_name)


def _checked(record: Record, id_name: str) -> Record:
    if record.id is None and record.problem is None:
        record.problem = f"the record has no usable {id_name} (a string or a number)"
    return record


def _usable_id(value: object) -> str | int | float | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _row_record(role: Role, row: dict[str, Any], id_name: str) -> Record:
    if role != "pairs":
        return _side_record(role, row, to_json_bytes(row), id_name)
    old, new = _json_cell(row.get("old")), _json_cell(row.get("new"))
    problem = "the row needs old and new" if old is None or new is None else None
    return _checked(Record(_usable_id(row.get("id")), row.get("endpoint"), old, new, problem), "id")


def _json_cell(value: object) -> bytes | None:
    """JSON text of a cell: text and bytes are JSON already, structs are written."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else to_json_bytes(value)


def records_of(job: BatchJob, split: Split) -> Iterator[tuple[Record | None, bytes | None]]:
    """The records of a split, with the lines that they came as; None for a blank line, so that lines can be counted."""
    if split.source.is_parquet:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(open_to_read(split.source.path))
        for batch in file.iter_batches(batch_size=1024, row_groups=range(split.start, split.end)):
            yield from ((_row_record(split.source.role, row, job.id_name), None) for row in batch.to_pylist())
        return
    for line in read_lines(split):
        yield None if line.isspace() else line_record(split.source.role, line, job.id_name), line
