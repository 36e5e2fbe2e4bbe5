"""Kernels: a byte range of CSV to Arrow columns of strings, and single records out of a range.

pyarrow's parser is used where quoting is sound, because it then agrees with the exact reader; what it reports as
wrong is looked at again by the exact reader. pyarrow fills a blank line with empty cells, so those are searched for.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv as arrow_csv

from driftline.sources.csv_exact import BOM
from driftline.sources.csv_quotes import blank_records, quoting_is_sound, record_ends
from driftline.sources.csv_reading import CsvReading
from driftline.sources.port import ParsedRange, WidthMismatch
from driftline.sources.strict_csv import parse_records

_LARGEST_BLOCK = (1 << 31) - 2  # pyarrow's blocks and string offsets are 32 bit
_FEW = 8  # picking single records pays when at most one of so many is wanted


def parse_range(data: bytes, header: Sequence[str], reading: CsvReading | None = None) -> ParsedRange:
    """The records of a byte range as string columns named by the header."""
    reading = reading or CsvReading()
    if not quoting_is_sound(data, reading.delimiter):
        return ParsedRange(sound=False)
    if not data:
        return ParsedRange(0, _empty_table(header))
    try:
        table = _read_with_arrow(data, header, reading.delimiter)
    except pa.ArrowInvalid:
        return _parse_exactly(data, header, reading)
    if len(header) == 1 and reading.skip_blank_lines:
        return _without_blank_cells(table)
    if len(header) > 1 and _may_have_blank_record(table) and blank_records(data).any():
        return _parse_exactly(data, header, reading)
    return ParsedRange(table.num_rows, table)


def _without_blank_cells(table: pa.Table) -> ParsedRange:
    """A table of one column without its empty cells, which are blank lines."""
    numbers = np.flatnonzero(~_empty_cells(table.column(0)))
    if len(numbers) == table.num_rows:
        return ParsedRange(table.num_rows, table)
    return ParsedRange(table.num_rows, take_records(table, numbers), numbers=numbers)


def pick_records(
    data: bytes,
    records: npt.NDArray[np.int64],
    header: Sequence[str],
    reading: CsvReading | None = None,
    held: int | None = None,
) -> pa.Table:
    """The given records (counted from 0, in this order) of a range that has been parsed before without complaint.

    `held` is the number of records in the range, where it is known.
    """
    ends = record_ends(data, held)
    if len(records) * _FEW > len(ends):
        return parse_range(data, header, reading).take(records)
    starts = np.concatenate([[0], ends[:-1]])
    picked = b"".join(_with_line_end(data[starts[i] : ends[i]]) for i in records)
    parsed = parse_range(picked, header, reading)
    assert parsed.table is not None, "a range that parsed once parses again"
    return parsed.table


def take_records(table: pa.Table, records: npt.NDArray[np.int64]) -> pa.Table:
    """Some rows of a table."""
    numbers = np.ascontiguousarray(records, dtype=np.int64)
    # Not `pa.array`, which would import pandas.
    return table.take(pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]))


def _with_line_end(record: bytes) -> bytes:
    return record if record.endswith((b"\n", b"\r")) else record + b"\n"


def _read_with_arrow(data: bytes, header: Sequence[str], delimiter: str) -> pa.Table:
    if len(data) > _LARGEST_BLOCK:
        raise pa.ArrowInvalid("too large for one block")
    names = [str(number) for number in range(len(header))]
    if data.startswith(BOM):
        data = BOM + data  # pyarrow takes one away, but inside a file a BOM is data
    table = arrow_csv.read_csv(
        pa.BufferReader(data),
        # One block: no chunk borders inside, and every column is one contiguous array.
        read_options=arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, check_utf8=True
        ),
    )
    return table.rename_columns(list(header))


def _may_have_blank_record(table: pa.Table) -> bool:
    """Whether some record has only empty cells, as pyarrow makes of a blank line."""
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


def _parse_exactly(data: bytes, header: Sequence[str], reading: CsvReading) -> ParsedRange:
    """The slow look at a range that pyarrow would not take; rows of another width are the usual reason."""
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
            mismatch = WidthMismatch(records, len(record))
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


def _empty_table(header: Sequence[str]) -> pa.Table:
    return _table_of_rows([], header)
