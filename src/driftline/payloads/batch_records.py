"""Records of a batch: a pair, or one side of it, with its id and place in the input.

Ids sort numbers before strings, numbers by value and strings by code point; what has no id comes first, in the order
of the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from driftline.errors import PayloadError
from driftline.files import naming_the_file, open_bytes
from driftline.payloads.batch_job import Role, Split
from driftline.payloads.payload_text import parse_json, raw_members
from driftline.payloads.report import encode


class Record(msgspec.Struct, array_like=True):
    """One line or row; `problem` says why it cannot be compared."""

    role: str
    place: tuple[int, int]
    id: str | int | float | None
    endpoint: str | None = None
    old: bytes | None = None
    new: bytes | None = None
    problem: str | None = None


class _Pair(msgspec.Struct):
    old: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    new: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: Any = None
    endpoint: str | None = None


class _RawPair(msgspec.Struct):
    """A pair whose members are all JSON text still."""

    old: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    new: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: msgspec.Raw = msgspec.Raw(b"null")
    endpoint: msgspec.Raw = msgspec.Raw(b"null")

    def parsed(self) -> _Pair:
        endpoint = msgspec.json.decode(self.endpoint, type=str | None)
        return _Pair(self.old, self.new, msgspec.json.decode(self.id), endpoint)


_decode_pair = msgspec.json.Decoder(_Pair).decode
_decode_any = msgspec.json.Decoder().decode
SortKey = tuple[int, Any, tuple[int, int]]


def sort_key(record: Record) -> SortKey:
    """Where a record stands in the output."""
    if record.id is None:
        return (0, 0, record.place)
    return (2, record.id, record.place) if isinstance(record.id, str) else (1, record.id, record.place)


def read_records(split: Split, id_name: str) -> Iterator[Record]:
    """The records of a split, in order."""
    if split.source.is_parquet:
        yield from _rows(split, id_name)
        return
    for number, line in enumerate(_lines(split)):
        if line.strip():
            yield _line_record(split, number, line, id_name)


def _lines(split: Split) -> Iterator[bytes]:
    """The lines that begin inside the split's byte range."""
    path = split.source.path
    if split.start == 0 and split.end == split.source.size:
        with open_bytes(path) as stream:
            yield from stream
        return
    with naming_the_file(path), open(path, "rb") as file:
        if split.start:
            file.seek(split.start - 1)
            file.readline()  # the rest of a line that began before
        while file.tell() < split.end:
            line = file.readline()
            if not line:
                return
            yield line


def _line_record(split: Split, number: int, line: bytes, id_name: str) -> Record:
    role, place = split.source.role, (split.number, number)
    try:
        if role == "pairs":
            return _pair_record(place, _decode_pair(line))
        return _side_record(role, place, _decode_any(line), line, id_name)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _odd_line_record(role, place, line, id_name)


def _odd_line_record(role: Role, place: tuple[int, int], line: bytes, id_name: str) -> Record:
    """A line that the quick decoder refuses: lone surrogates are fine, what is not JSON becomes a problem."""
    try:
        if role == "pairs":
            return _pair_record(place, msgspec.convert(raw_members(line, "the line"), _RawPair).parsed())
        return _side_record(role, place, parse_json(line, "the line"), line, id_name)
    except (PayloadError, msgspec.MsgspecError, ValueError) as error:
        return Record(role, place, None, problem=str(error))


def _pair_record(place: tuple[int, int], pair: _Pair) -> Record:
    record = Record("pairs", place, _usable_id(pair.id), pair.endpoint)
    if isinstance(pair.old, msgspec.UnsetType) or isinstance(pair.new, msgspec.UnsetType):
        record.problem = "the line needs old and new"
    else:
        record.old, record.new = bytes(pair.old), bytes(pair.new)
    return _checked(record)


def _side_record(role: str, place: tuple[int, int], value: Any, text: bytes, id_name: str) -> Record:
    if not isinstance(value, dict):
        return Record(role, place, None, problem="the line is not an object")
    endpoint = value.get("endpoint")
    record = Record(role, place, _usable_id(value.get(id_name)), endpoint if isinstance(endpoint, str) else None)
    if role == "old":
        record.old = text
    else:
        record.new = text
    return _checked(record, id_name)


def _checked(record: Record, id_name: str = "id") -> Record:
    if record.id is None and record.problem is None:
        record.problem = f"the record has no usable {id_name} (a string or a number)"
    return record


def _usable_id(value: Any) -> str | int | float | None:
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _rows(split: Split, id_name: str) -> Iterator[Record]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(split.source.path)
    number = 0
    for batch in file.iter_batches(batch_size=1024, row_groups=range(split.start, split.end)):
        for row in batch.to_pylist():
            yield _row_record(split, number, row, id_name)
            number += 1


def _row_record(split: Split, number: int, row: dict[str, Any], id_name: str) -> Record:
    role, place = split.source.role, (split.number, number)
    if role != "pairs":
        return _side_record(role, place, row, encode(row), id_name)
    old, new = _json_cell(row.get("old")), _json_cell(row.get("new"))
    record = Record("pairs", place, _usable_id(row.get("id")), row.get("endpoint"), old, new)
    if old is None or new is None:
        record.problem = "the row needs old and new"
    return _checked(record)


def _json_cell(value: Any) -> bytes | None:
    """JSON text of a cell: text and bytes are JSON already, structs are written."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else encode(value)
