"""Rows of an artifact in any storage form, one shard at a time.

A line or array element is first probed for its key alone; only selected rows are parsed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import msgspec

from driftline.codeindex._read.artifacts import Artifact, Part, is_compressed
from driftline.codeindex._storage import explain, parse_json
from driftline.core import JsonObject, Tracker, compression_of_bytes, decompressed, no_progress
from driftline.errors import IndexRefError, InputError

Row = JsonObject

_BLOCK_BYTES = 1 << 20
_MAGIC_BYTES = 4


class Probe(msgspec.Struct, gc=False):
    """The members of a row by which it is selected."""

    id: object = None
    file: object = None
    fileId: object = None  # noqa: N815 - named as in the artifact


# Returns the key of a wanted row, or None to leave the row unparsed.
_Choose = Callable[[Probe], Any]


def every_row(_probe: Probe) -> bool:
    """Chooses all rows."""
    return True


def all_rows(artifact: Artifact, tracker: Tracker | None = None) -> Iterator[Row]:
    """Every row of an artifact."""
    for _, row in selected_rows(artifact, every_row, tracker):
        yield row


def selected_rows(artifact: Artifact, choose: _Choose, tracker: Tracker | None = None) -> Iterator[_Found]:
    """The wanted rows of an artifact with their keys, shard after shard."""
    for part in artifact.parts:
        yield from rows_between(part, 0, None, choose, tracker)


def rows_between(
    part: Part, start: int, end: int | None, choose: _Choose, tracker: Tracker | None = None
) -> Iterator[_Found]:
    """The wanted rows of a part; only uncompressed lines can be cut, a line belonging to where it starts."""
    watch = tracker or no_progress()
    with _opened(part) as stream:
        if part.form == "lines":
            yield from _from_lines(part, stream, choose, watch, start, end)
            return
        data = stream.read()
        watch.advance(len(data))
        if part.form == "array":
            yield from _from_texts(_raw_items(data, part.place), choose, part.place, "element", 0)
            return
        table = _ColumnTable(parse_json(data, part.place), part.place)
        for number in range(table.length):
            key = choose(Probe(**{name: table.value(name, number) for name in Probe.__struct_fields__}))
            if key is not None:
                yield key, table.row(number)


_Found = tuple[Any, Row]  # what the selector made of a row, and the row
_Text = bytes | msgspec.Raw

_probe = msgspec.json.Decoder(Probe).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _from_lines(
    part: Part, stream: BinaryIO, choose: _Choose, tracker: Tracker, start: int, end: int | None
) -> Iterator[_Found]:
    place = part.place if start == 0 else f"{part.place} (from byte {start})"
    number = 0
    for block in _line_blocks(stream, start, end):
        yield from _from_texts(block, choose, place, "line", number)
        number += len(block)
        tracker.advance(sum(map(len, block)))


def _line_blocks(stream: BinaryIO, start: int, end: int | None) -> Iterator[list[bytes]]:
    position = start
    if start > 0:
        # The line that crosses `start` belongs to the range before.
        stream.seek(start - 1)
        position += len(stream.readline()) - 1
    while end is None or position < end:
        left = _BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - position)
        # `readlines` goes on until it has more bytes than the hint, and takes 0 for "no limit".
        block = stream.readlines(left - 1) if left > 1 else [line for line in [stream.readline()] if line]
        if not block:
            return
        yield block
        position += sum(map(len, block))


def _raw_items(data: bytes, place: str) -> Iterable[_Text]:
    try:
        return _decode_items(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        items = parse_json(data, place)
        if not isinstance(items, list):
            raise IndexRefError(f"{place} is not a JSON array") from None
        return (json.dumps(item).encode() for item in items)


def _from_texts(texts: Iterable[_Text], choose: _Choose, place: str, unit: str, before: int) -> Iterator[_Found]:
    for number, text in enumerate(texts, before + 1):
        try:
            probe = _probe(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if not bytes(text).strip():
                continue
            row = _parse_row(text, f"{place} {unit} {number}")
            probe = Probe(row.get("id"), row.get("file"), row.get("fileId"))
        key = choose(probe)
        if key is not None:
            yield key, _parse_row(text, f"{place} {unit} {number}")


class _ColumnTable:
    """A columnar artifact: an array per column; a column with a table holds positions in it."""

    def __init__(self, value: object, place: str) -> None:
        content: JsonObject = value if isinstance(value, dict) else {}
        arrays = content.get("arrays")
        if not isinstance(arrays, dict) or not all(isinstance(array, list) for array in arrays.values()):
            raise IndexRefError(f"{place} is not a columnar artifact: its arrays are missing")
        columns = content.get("columns")
        names = columns if isinstance(columns, list) else list(arrays)
        self.arrays: dict[str, list[Any]] = {name: arrays[name] for name in names if name in arrays}
        tables = content.get("tables")
        self.tables: JsonObject = tables if isinstance(tables, dict) else {}
        length = content.get("length")
        self.length: int = length if isinstance(length, int) else max(map(len, self.arrays.values()), default=0)
        if any(len(array) < self.length for array in self.arrays.values()):
            raise IndexRefError(f"{place} is cut short: an array has fewer than {self.length} values")

    def value(self, name: str, number: int) -> Any:
        """The value of a column in a row; None where there is no such column."""
        array = self.arrays.get(name)
        value = array[number] if array is not None else None
        table = self.tables.get(name)
        if not isinstance(table, list) or not isinstance(value, int) or isinstance(value, bool):
            return value
        return table[value] if 0 <= value < len(table) else None

    def row(self, number: int) -> Row:
        """One row as a record."""
        return {name: self.value(name, number) for name in self.arrays}


@contextmanager
def _opened(part: Part) -> Iterator[BinaryIO]:
    """A part's content, decompressed; errors name the part, never its absolute path."""
    try:
        with io.BufferedReader(io.FileIO(part.path), _BLOCK_BYTES) as raw:
            start = raw.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
            if not start and is_compressed(part.path):
                raise IndexRefError(f"{part.place} is damaged or cut short: it is empty")
            with decompressed(cast(BinaryIO, raw), compression_of_bytes(start), part.place) as stream:
                yield stream
    except OSError as error:
        raise explain(error, part.place) from None
    except InputError as error:
        if isinstance(error, IndexRefError):
            raise
        raise IndexRefError(error.message) from None


def _parse_row(text: _Text, place: str) -> Row:
    row = parse_json(bytes(text), place)
    if not isinstance(row, dict):
        raise IndexRefError(f"{place} is not a JSON object")
    return row
