"""The vectorized CSV parser: a file cut into byte ranges at record boundaries, and those to Arrow columns of strings.

pyarrow's parser is used where quoting is sound, because it then agrees with the strict reader; a range that pyarrow
rejects is read again by the strict reader. pyarrow fills a blank line with empty cells, so those are searched for.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv as arrow_csv

from driftline.core import io_errors
from driftline.sources._addresses import InputFile
from driftline.sources._csv.strict import BOM, UTF_8, CsvReading, parse_records
from driftline.sources._source import Counted, ParsedRange, RecordIndex, RowLengthError, RowPart, Split

Positions = npt.NDArray[np.int64]

QUOTE = ord('"')
LINE_FEED = ord("\n")
CARRIAGE_RETURN = ord("\r")

_MASK_BYTES = 1 << 20  # masks of this size stay in the cache; larger ones are new pages, which the kernel must clear
_LARGEST_BLOCK = (1 << 31) - 2  # pyarrow's blocks and string offsets are 32 bit
_FEW = 8  # picking single records pays when at most one of so many is selected

_COUNT_CHUNK = 1 << 20
_WINDOW = 1 << 16
_GUESS_BYTES = 1 << 16  # read to distinguish a line end between records from one inside a cell
_LARGEST_HEADER = 64 << 20
_SAMPLE_BYTES = 1 << 16
_HEAD_BYTES = 32 << 10


def parse_range(
    data: bytes, header: Sequence[str], reading: CsvReading | None = None, columns: Sequence[str] | None = None
) -> ParsedRange:
    """The records of a byte range as string columns named by the header; only `columns`, if they are named."""
    reading = reading or CsvReading()
    if not quoting_is_sound(data, reading.delimiter):
        return ParsedRange(sound=False)
    if not data:
        return ParsedRange(0, _table_of_rows([], header))
    try:
        table = _read_with_arrow(data, header, reading.delimiter, columns)
    except pa.ArrowInvalid:
        return _parse_strictly(data, header, reading)
    if len(header) == 1 and reading.skip_blank_lines:
        rows = np.flatnonzero(~_empty_cells(table.column(0)))  # an empty cell of the only column is a blank line
        if len(rows) == table.num_rows:
            return ParsedRange(table.num_rows, table)
        return ParsedRange(table.num_rows, take_records(table, rows), numbers=rows)
    if len(header) > 1 and _may_have_blank_record(table) and blank_records(data).any():
        return _parse_strictly(data, header, reading)
    return ParsedRange(table.num_rows, table, data=data)


class RecordTexts(NamedTuple):
    """The texts of records: the bounds of each text without its line end, and where the record ends."""

    data: bytes
    bounds: npt.NDArray[np.int32]  # start and stop of the first record, of the second, and so on
    ends: npt.NDArray[np.int32]


def record_texts(data: bytes, records: int) -> RecordTexts:
    """The texts of the records of a range that has been parsed."""
    ends = record_ends(data, records)
    bounds = np.zeros(2 * len(ends), np.int32)
    bounds[2::2] = ends[:-1]
    bounds[1::2] = _before_line_ends(data, ends)
    return RecordTexts(data, bounds, ends.astype(np.int32))


def _before_line_ends(data: bytes, ends: Positions) -> Positions:
    array = np.frombuffer(data, np.uint8)
    last = array[ends - 1]
    stops: Positions = ends - (last == LINE_FEED)
    if b"\r" in data:
        # Outside quotes a CR ends a record, alone or with the LF behind it, and inside a quote follows.
        stops -= array[np.maximum(stops - 1, 0)] == CARRIAGE_RETURN
        stops = np.maximum(stops, np.concatenate([[0], ends[:-1]]))
    return stops


def pick_records(
    data: bytes,
    records: npt.NDArray[np.int64],
    header: Sequence[str],
    reading: CsvReading | None = None,
    known: RecordIndex | None = None,
) -> pa.Table:
    """The given records (counted from 0, in this order) of a range that has been parsed before without an error."""
    known = known or RecordIndex()
    ends = record_ends(data, known.number) if known.ends is None else known.ends
    if len(records) * _FEW > len(ends):
        return parse_range(data, header, reading).take(records)
    starts = np.where(records, ends[records - 1], 0)
    bounds = zip(starts.tolist(), ends[records].tolist(), strict=True)
    cut = (data[start:end] for start, end in bounds)
    picked = b"".join(record if record.endswith((b"\n", b"\r")) else record + b"\n" for record in cut)
    parsed = parse_range(picked, header, reading)
    assert parsed.table is not None, "a range that parsed once parses again"
    return parsed.table


def take_records(table: pa.Table, records: npt.NDArray[np.int64]) -> pa.Table:
    numbers = np.ascontiguousarray(records, dtype=np.int64)
    if np.array_equal(numbers, np.arange(table.num_rows)):
        return table  # Arrow would copy it, after an import of its functions
    # Not `pa.array`, which would import pandas.
    return table.take(pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]))


def _read_with_arrow(
    data: bytes, header: Sequence[str], delimiter: str, columns: Sequence[str] | None = None
) -> pa.Table:
    if len(data) > _LARGEST_BLOCK:
        raise pa.ArrowInvalid("too large for one block")
    _check_utf_8(data)
    names = [str(number) for number in range(len(header))]
    chosen = names if columns is None else [names[header.index(name)] for name in columns]
    if data.startswith(BOM):
        data = BOM + data  # pyarrow takes one away, but inside a file a BOM is data
    table = arrow_csv.read_csv(
        pa.BufferReader(data),
        # One block: no chunk borders inside, and every column is one contiguous array.
        read_options=arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(chosen, pa.string()),
            include_columns=chosen,
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    return table.rename_columns(list(header if columns is None else columns))


def _check_utf_8(data: bytes) -> None:
    """Raise `ArrowInvalid` if the bytes are not UTF-8; as one text, which is faster than cell by cell."""
    bounds = np.array([0, len(data)], np.int32)
    pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]).validate(full=True)


def _may_have_blank_record(table: pa.Table) -> bool:
    """Whether some record has only empty cells, as pyarrow reads a blank line."""
    candidates = np.ones(table.num_rows, dtype=bool)
    for column in table.columns:
        candidates &= _empty_cells(column)
        if not candidates.any():
            return False
    return True


def _empty_cells(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    # The offsets are read directly: comparing with a pyarrow scalar would import pandas, which takes a second.
    chunk = column.chunk(0)
    offsets = np.frombuffer(chunk.buffers()[1], np.int32, len(chunk) + 1)
    return np.equal(offsets[1:], offsets[:-1])


def _parse_strictly(data: bytes, header: Sequence[str], reading: CsvReading) -> ParsedRange:
    """A range that pyarrow rejects, read by the strict reader; rows of another width are the usual reason."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ParsedRange(sound=False)
    records, mismatch = 0, None
    rows: list[list[str]] = []
    numbers: list[int] = []
    for record in parse_records(io.StringIO(text, newline=""), reading.delimiter):
        kept = reading.fitted(record, len(header)) if mismatch is None else None
        if kept is not None and len(kept) != len(header):
            mismatch = RowLengthError(records, len(record))
        elif kept is not None:
            rows.append(kept)
            numbers.append(records)
        records += 1
    if mismatch is not None:
        return ParsedRange(records, None, mismatch)
    left_out = np.array(numbers, np.int64) if len(numbers) < records else None
    return ParsedRange(records, _table_of_rows(rows, header), numbers=left_out)


def _table_of_rows(rows: list[list[str]], header: Sequence[str]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in header)
    return pa.Table.from_arrays([pa.array(column, pa.string()) for column in columns], list(header))


# Quotes and record ends.
# Splitting a file by quote parity is right as long as quoting is sound: every opening quote starts a field and every
# closing one ends it (doubled quotes inside a field close and open again at once). If every split between two parity
# boundaries is sound, then by induction over the splits every boundary is a record boundary of the strict reader too.
# Where a split is not sound, nothing is concluded and the file is read by the strict reader.


def count_quotes(data: bytes) -> int:
    return data.count(b'"')


def quote_positions(data: bytes) -> Positions:
    # `in` searches at memory speed and saves a pass of NumPy where there is nothing to find.
    return _positions(_as_array(data), QUOTE) if b'"' in data else np.empty(0, np.int64)


def quoting_is_sound(data: bytes, delimiter: str = ",", quotes: Positions | None = None) -> bool:
    """Whether the strict reader provably finds the same fields as quote parity; `data` starts at a record.

    >>> quoting_is_sound(b'1,"a ""b"" c"\\n'), quoting_is_sound(b'1,5" disk\\n')
    (True, False)
    """
    quotes = quote_positions(data) if quotes is None else quotes
    if len(quotes) == 0 or len(quotes) % 2:
        return len(quotes) == 0
    array = _as_array(data)
    opening, closing = quotes[0::2], quotes[1::2]
    edges = (ord(delimiter), LINE_FEED, CARRIAGE_RETURN, QUOTE)
    before = array[np.maximum(opening - 1, 0)]
    after = array[np.minimum(closing + 1, len(array) - 1)]
    starts_field = _is_one_of(before, edges) | (opening == 0)
    ends_field = _is_one_of(after, edges) | (closing == len(array) - 1)
    return bool(starts_field.all() and ends_field.all())


def record_ends(data: bytes, records: int | None = None) -> Positions:
    """The offset behind each record of soundly quoted data; LF, CRLF and a lone CR end a record.

    A known number of `records` saves the search for line ends inside quotes where there are none.

    >>> record_ends(b'a\\n"b\\n"\\r\\nc').tolist()
    [2, 8, 9]
    """
    array = _as_array(data)
    ends = _positions(array, LINE_FEED)
    if b"\r" in data:
        returns = _positions(array, CARRIAGE_RETURN)
        followers = array[np.minimum(returns + 1, len(array) - 1)]
        ends = np.sort(np.concatenate([ends, returns[followers != LINE_FEED]]))
    has_rest = len(array) > 0 and array[-1] not in (LINE_FEED, CARRIAGE_RETURN)
    if len(ends) + has_rest != records and b'"' in data:
        ends = ends[~_inside_quotes(ends, _positions(array, QUOTE))]
    ends = ends + 1
    if len(array) and (not len(ends) or ends[-1] != len(array)):
        ends = np.append(ends, len(array))
    return ends


def _inside_quotes(ends: Positions, quotes: Positions) -> npt.NDArray[np.bool_]:
    """Which line ends are between an opening and a closing quote; few are, so every pair of quotes is searched."""
    before = np.searchsorted(ends, quotes)
    if len(quotes) % 2 == 0 and (before[0::2] == before[1::2]).all():
        return np.zeros(len(ends), np.bool_)
    inside: npt.NDArray[np.bool_] = np.searchsorted(quotes, ends) % 2 == 1
    return inside


def _positions(array: npt.NDArray[np.uint8], byte: int) -> Positions:
    found = [np.flatnonzero(array[at : at + _MASK_BYTES] == byte) + at for at in range(0, len(array), _MASK_BYTES)]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def blank_records(data: bytes) -> npt.NDArray[np.bool_]:
    """Which records consist of a line end only."""
    array = _as_array(data)
    ends = record_ends(data)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return _is_one_of(array[starts], (LINE_FEED, CARRIAGE_RETURN))


def _as_array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _is_one_of(array: npt.NDArray[np.uint8], values: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(array), dtype=np.bool_)
    for value in values:
        found |= array == value
    return found


# Byte ranges that start and end at record boundaries, multi-line cells included.


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

    def read(self, part: RowPart | None = None) -> ParsedRange:
        columns = None if part is None else part.columns or self.header[:1]
        parsed = parse_range(self.range.read(), self.header, self.reading, columns)
        return parsed if part is not None and part.text else replace(parsed, data=None)

    def pick(self, records: Positions, known: RecordIndex | None = None) -> pa.Table:
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
    requested = list(range(start, file.size, target_bytes))
    counts = list((pool.map if pool else map)(partial(_quotes_between, file), requested[:-1], requested[1:]))
    boundaries = [start]
    for position, quotes_so_far in zip(requested[1:], accumulate(counts), strict=True):
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
        stream.seek(start)
        found = 0
        while start < end and (chunk := stream.read(min(_COUNT_CHUNK, end - start))):
            found, start = found + count_quotes(chunk), start + len(chunk)
    return found


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


def look_at_start(ranges: Sequence[ByteRange]) -> tuple[float, float]:
    """About how many bytes and how many quotes a record has, by a sample of the first range."""
    if not ranges:
        return 1.0, 0.0
    first = ranges[0]
    sample = ByteRange(first.file, first.start, min(first.end, first.start + _SAMPLE_BYTES)).read()
    records = max(len(record_ends(sample)), 1)
    return len(sample) / records, count_quotes(sample) / records
