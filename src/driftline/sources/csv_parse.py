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
from driftline.sources.port import ParsedRange, WidthMismatch
from driftline.sources.strict_csv import parse_records

_LARGEST_BLOCK = (1 << 31) - 2  # pyarrow's blocks and string offsets are 32 bit
_FEW = 8  # picking single records pays when at most one of so many is wanted


def parse_range(data: bytes, header: Sequence[str], delimiter: str = ",") -> ParsedRange:
    """The records of a byte range as string columns named by the header."""
    if not quoting_is_sound(data, delimiter):
        return ParsedRange(sound=False)
    if not data:
        return ParsedRange(0, _empty_table(header))
    try:
        table = _read_with_arrow(data, header, delimiter)
    except pa.ArrowInvalid:
        return _parse_exactly(data, header, delimiter)
    if len(header) > 1 and _may_have_blank_record(table) and blank_records(data).any():
        return _parse_exactly(data, header, delimiter)
    return ParsedRange(table.num_rows, table)


def pick_records(data: bytes, records: npt.NDArray[np.int64], header: Sequence[str], delimiter: str = ",") -> pa.Table:
    """The given records (counted from 0, in this order) of a range that has been parsed before without complaint."""
    ends = record_ends(data)
    if len(records) * _FEW > len(ends):
        return take_records(_parsed_before(data, header, delimiter), records)
    starts = np.concatenate([[0], ends[:-1]])
    picked = b"".join(_with_line_end(data[starts[i] : ends[i]]) for i in records)
    return _parsed_before(picked, header, delimiter)


def take_records(table: pa.Table, records: npt.NDArray[np.int64]) -> pa.Table:
    """Some rows of a table."""
    numbers = np.ascontiguousarray(records, dtype=np.int64)
    # Not `pa.array`, which would import pandas.
    return table.take(pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]))


def _parsed_before(data: bytes, header: Sequence[str], delimiter: str) -> pa.Table:
    parsed = parse_range(data, header, delimiter)
    assert parsed.table is not None, "a range that parsed once parses again"
    return parsed.table


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


def _parse_exactly(data: bytes, header: Sequence[str], delimiter: str) -> ParsedRange:
    """The slow look at a range that pyarrow would not take; a wrong width is the usual reason."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ParsedRange(sound=False)
    records, mismatch = 0, None
    rows: list[list[str]] = []
    for record in parse_records(io.StringIO(text, newline=""), delimiter):
        if mismatch is None:
            if len(record) == len(header):
                rows.append(record)
            else:
                mismatch = WidthMismatch(records, len(record))
        records += 1
    if mismatch is not None:
        return ParsedRange(records, None, mismatch)
    return ParsedRange(records, _table_of_rows(rows, header))


def _table_of_rows(rows: list[list[str]], header: Sequence[str]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in header)
    return pa.Table.from_arrays([pa.array(column, pa.string()) for column in columns], list(header))


def _empty_table(header: Sequence[str]) -> pa.Table:
    return _table_of_rows([], header)
