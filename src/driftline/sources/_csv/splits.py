"""Cutting a CSV file into byte ranges that start and end at record boundaries, multi-line cells included."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import BinaryIO

import pyarrow as pa

from driftline.core import io_errors
from driftline.sources._addresses import InputFile
from driftline.sources._csv.parse import (
    count_quotes,
    parse_range,
    pick_records,
    quoting_is_sound,
    record_ends,
    spelling_of,
)
from driftline.sources._csv.strict import BOM, UTF_8, CsvReading, parse_records
from driftline.sources._source import Counted, ParsedRange, RecordIndex, RecordNumbers, RowPart, Spelling, Split

_COUNT_CHUNK = 1 << 20
_WINDOW = 1 << 16
_GUESS_BYTES = 1 << 16  # read to distinguish a line end between records from one inside a cell
_LARGEST_HEADER = 64 << 20
_SAMPLE_BYTES = 1 << 16
_HEAD_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes `start` to `end` of a file; both are record boundaries if the file's quoting is sound."""

    file: InputFile
    start: int
    end: int

    def read(self) -> bytes:
        """The bytes; raises if the file has changed since it was opened."""
        with io_errors(self.file.name), self.file.open(buffered=False) as stream:
            data = read_exactly(stream, self.start, self.end - self.start)
        if len(data) != self.end - self.start:
            self.file.check_unchanged()
        return data


@dataclass(frozen=True, slots=True)
class CsvSplit(Split):
    """A byte range of a CSV file between two record boundaries."""

    range: ByteRange
    header: tuple[str, ...]
    reading: CsvReading

    @property
    def size(self) -> int:
        return self.range.end - self.range.start

    @property
    def files(self) -> tuple[InputFile, ...]:
        return (self.range.file,)

    def read(self) -> ParsedRange:
        return replace(parse_range(self.range.read(), self.header, self.reading), data=None)

    def read_part(self, part: RowPart) -> ParsedRange:
        """Some columns of all rows, and the bytes of the records if requested."""
        parsed = parse_range(self.range.read(), self.header, self.reading, part.columns or self.header[:1])
        return parsed if part.text else replace(parsed, data=None)

    def pick(self, records: RecordNumbers, known: RecordIndex | None = None) -> pa.Table:
        return pick_records(self.range.read(), records, self.header, self.reading, known)

    def count(self) -> Counted:
        """The number of records, without parsing them where each is a row."""
        if self.reading.leaves_out:
            parsed = self.read()
            return Counted(parsed.records, parsed.records if parsed.table is None else parsed.table.num_rows)
        records = len(record_ends(self.range.read()))
        return Counted(records, records)

    def head(self) -> pa.Table | None:
        """The complete records in the first bytes, or None where there is none or they do not parse."""
        whole = self.range
        start = ByteRange(whole.file, whole.start, min(whole.end, whole.start + _HEAD_BYTES)).read()
        ends = record_ends(start)
        if start and len(start) < self.size:
            ends = ends[:-1]
        return parse_range(start[: ends[-1]], self.header, self.reading).table if len(ends) else None


@dataclass(frozen=True, slots=True)
class Layout:
    """A file's first record and the ranges of its data; `first` is None where only the strict reader can read it."""

    first: list[str] | None
    ranges: tuple[ByteRange, ...]
    blank: int = 0  # records that were left out before the first


def plan_file(
    file: InputFile, reading: CsvReading, target_bytes: int, pool: Executor | None = None, *, guess: bool = False
) -> Layout:
    """Read the first record and cut the data into ranges of about `target_bytes`.

    With `guess` no quote is counted: a line end that looks like the end of a record is taken for one. A wrong guess is
    detected when the ranges are read: the first one that ends inside a cell has an odd number of quotes, which is not
    sound, and then the file must be planned without guessing.
    """
    if reading.encoding != UTF_8:
        return Layout(None, ())
    with io_errors(file.name), file.open(buffered=False) as stream:
        begin = start = len(BOM) if read_exactly(stream, 0, len(BOM)) == BOM else 0
        blank = 0
        while (found := _read_record(stream, start, reading.delimiter)) is not None and reading.is_blank(found[0]):
            start, blank = found[1], blank + 1
        if found is None:
            return Layout(None, ())
        first, end = found
        data_start = begin if reading.no_header else end
        guessed = _guessed_boundaries(file, stream, data_start, target_bytes, reading.delimiter) if guess else None
        boundaries = guessed or _boundaries(file, stream, data_start, target_bytes, pool)
    return Layout(first, tuple(ByteRange(file, *pair) for pair in pairwise(boundaries)), blank)


def read_exactly(stream: BinaryIO, start: int, count: int) -> bytes:
    """Up to `count` bytes from `start`; fewer only at the end of the file."""
    stream.seek(start)
    data = stream.read(count)
    while len(data) < count:
        more = stream.read(count - len(data))
        if not more:
            break
        data += more
    return data


def _read_record(stream: BinaryIO, start: int, delimiter: str) -> tuple[list[str], int] | None:
    """The fields of the record at `start` and the offset behind it, or None where only the strict reader may decide."""
    end = next_record_end(stream, start, inside_quotes=False)
    if end == start or end - start > _LARGEST_HEADER:
        return None
    record = read_exactly(stream, start, end - start)
    if not quoting_is_sound(record, delimiter):
        return None
    try:
        text = record.decode()
    except UnicodeDecodeError:
        return None
    return next(parse_records(io.StringIO(text, newline=""), delimiter)), end


def _boundaries(file: InputFile, stream: BinaryIO, start: int, target_bytes: int, pool: Executor | None) -> list[int]:
    """Offsets where ranges begin, and the end of the file."""
    wanted = list(range(start, file.size, target_bytes))
    counts = list((pool.map if pool else map)(partial(_quotes_between, file), wanted[:-1], wanted[1:]))
    boundaries = [start]
    for position, quotes_so_far in zip(wanted[1:], accumulate(counts), strict=True):
        if position > boundaries[-1]:
            boundary = next_record_end(stream, position, inside_quotes=quotes_so_far % 2 == 1)
            if boundary < file.size:
                boundaries.append(boundary)
    return [*boundaries, file.size] if file.size > start else boundaries


def _guessed_boundaries(
    file: InputFile, stream: BinaryIO, start: int, target_bytes: int, delimiter: str
) -> list[int] | None:
    """As `_boundaries`, by the lines after each position alone; None where those do not look like records."""
    boundaries = [start]
    for position in range(start + target_bytes, file.size, target_bytes):
        window = read_exactly(stream, position, _GUESS_BYTES)
        first_end, last_end = window.find(b"\n") + 1, window.rfind(b"\n") + 1
        if first_end == last_end or not quoting_is_sound(window[first_end:last_end], delimiter):
            return None
        if boundaries[-1] < position + first_end < file.size:
            boundaries.append(position + first_end)
    return [*boundaries, file.size] if file.size > start else boundaries


def _quotes_between(file: InputFile, start: int, end: int) -> int:
    with io_errors(file.name), file.open(buffered=False) as stream:
        return sum(count_quotes(chunk) for chunk in _chunks(stream, start, end))


def _chunks(stream: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    stream.seek(start)
    while start < end:
        chunk = stream.read(min(_COUNT_CHUNK, end - start))
        if not chunk:
            return
        start += len(chunk)
        yield chunk


def next_record_end(stream: BinaryIO, position: int, *, inside_quotes: bool) -> int:
    """The offset behind the first line end outside quotes at or after `position`, else the end of the file."""
    window_bytes = _WINDOW
    while True:
        # One byte more than is searched, because LF after CR belongs to the same line end.
        window = read_exactly(stream, position, window_bytes + 1)
        searched = window[:window_bytes]
        found, inside_quotes = _line_end_outside_quotes(searched, inside_quotes)
        if found is not None:
            is_crlf = window[found : found + 2] == b"\r\n"
            return position + found + (2 if is_crlf else 1)
        position += len(searched)
        if len(window) <= window_bytes:
            return position
        window_bytes = min(window_bytes * 2, _COUNT_CHUNK * 8)  # a long cell: take bigger steps


def _line_end_outside_quotes(window: bytes, inside: bool) -> tuple[int | None, bool]:
    position = 0
    while True:
        quote = window.find(b'"', position)
        if not inside:
            stop = quote if quote >= 0 else len(window)
            ends = [end for end in (window.find(b"\n", position, stop), window.find(b"\r", position, stop)) if end >= 0]
            if ends:
                return min(ends), False
        if quote < 0:
            return None, inside
        inside = not inside
        position = quote + 1


def look_at_start(ranges: Sequence[ByteRange], delimiter: str) -> tuple[float, Spelling]:
    """About how many bytes a record has, and how cells are written, by a sample of the first range."""
    if not ranges:
        return 1.0, spelling_of(b"", delimiter)
    first = ranges[0]
    sample = ByteRange(first.file, first.start, min(first.end, first.start + _SAMPLE_BYTES)).read()
    return len(sample) / max(len(record_ends(sample)), 1), spelling_of(sample, delimiter)
