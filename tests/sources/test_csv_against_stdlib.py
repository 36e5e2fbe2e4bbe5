"""The quick way of reading CSV against Python's own reader, on bytes made to be awkward, at every split size."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings, strategies as st

from driftline.core._workspace import Workspace
from driftline.errors import TableError
from driftline.sources._addresses import InputFile
from driftline.sources._csv import parse as csv_splits
from driftline.sources._csv.parse import blank_records, count_quotes, quoting_is_sound, record_ends
from driftline.sources._csv.strict import read_records, rewrite_soundly
from driftline.sources._formats.csv import CsvSource

TOKENS = [b'"', b'""', b",", b"\n", b"\r", b"\r\n", b"a", b"bc", b" ", b"\x00", b"\xef\xbb\xbf", "é".encode()]
REMEDY = "save the file as UTF-8, or name its encoding with --encoding"
BROKEN = [b"\xff", b"\xe2\x82", b"\xed\xa0\x80", b"\xc3"]

soup = st.lists(st.sampled_from(TOKENS + BROKEN[:1]), max_size=24).map(b"".join)
quoted_cell = st.lists(st.sampled_from(["a", "\n", "\r\n", "\r", ",", '""', "é", "\x00"]), max_size=4).map(
    lambda parts: f'"{"".join(parts)}"'
)
plain_cell = st.sampled_from(["", "a", "b c", "é", " ", "x\x00"])
line_end = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def mostly_sound_csv(draw: st.DrawFn) -> bytes:
    """A header and records, most of the right width; sometimes ragged, blank, or with a stray quote."""
    width = draw(st.integers(1, 3))
    lines = [",".join(f"h{number}" for number in range(width))]
    for _ in range(draw(st.integers(0, 8))):
        cells = draw(st.lists(st.one_of(plain_cell, quoted_cell), min_size=width, max_size=width))
        odd = draw(st.integers(0, 30))
        if odd == 0:
            cells.append("extra")
        elif odd == 1:
            cells = [""]
        elif odd == 2:
            cells[0] = 'stray"quote'
        lines.append(",".join(cells))
    text = "".join(line + draw(line_end) for line in lines)
    return (text if draw(st.booleans()) else text.rstrip("\r\n")).encode()


def exact_reading(content: bytes) -> list[list[str]] | str:
    try:
        return list(read_records(content, side="A"))
    except TableError as error:
        return f"{error.code}: {error.message}"


def quick_reading(content: bytes, split_bytes: int) -> list[list[str]] | str:
    """All records through splits; the exact way steps in only where the quick one proves nothing."""
    with tempfile.TemporaryDirectory() as folder, Workspace(folder) as workspace:
        path = Path(folder) / "a.csv"
        path.write_bytes(content)
        source = CsvSource((InputFile.of(path, "a.csv"),))
        try:
            side = source.lay_out("A", split_bytes, workspace)
            parsed = None if side is None else [split.read() for split in side.splits]
            if side is None or parsed is None or not all(part.sound for part in parsed):
                side = source.normalized("A", workspace).lay_out("A", split_bytes, workspace)
                assert side is not None
                parsed = [split.read() for split in side.splits]
        except TableError as error:
            return f"{error.code}: {error.message}"
    records = [list(side.header)]
    for part in parsed:
        assert part.sound
        if part.width_mismatch is not None:
            row = len(records) + 1 + part.width_mismatch.record
            return f"width at {row}: {part.width_mismatch.got}"
        records += [list(row.values()) for row in _rows(part.table)]
    return records


def _rows(table) -> list[dict[int, str]]:
    columns = [column.to_pylist() for column in table.columns]
    return [dict(enumerate(cells)) for cells in zip(*columns, strict=True)]


def widths_checked(reading: list[list[str]] | str) -> list[list[str]] | str:
    if isinstance(reading, str):
        return reading
    for row, record in enumerate(reading, 1):
        if len(record) != len(reading[0]):
            return f"width at {row}: {len(record)}"
    return reading


@settings(max_examples=250, deadline=None)
@given(
    content=st.one_of(soup, mostly_sound_csv()),
    split_bytes=st.integers(1, 40),
    guess_bytes=st.sampled_from([3, 8, 20, 1 << 16]),
)
@example(content=b"", split_bytes=1, guess_bytes=8)
@example(content=b"\xef\xbb\xbf", split_bytes=1, guess_bytes=8)
@example(content=b"h\n\xef\xbb\xbf\n", split_bytes=1, guess_bytes=8)
@example(content=b"\r\n\r\n", split_bytes=1, guess_bytes=8)
@example(content=b'"a\r\n"\r\n"b"\r\n', split_bytes=3, guess_bytes=8)
@example(content=b'h\n"', split_bytes=1, guess_bytes=8)
@example(content=b'h,i\n"x,y\nz","w"\n\n', split_bytes=5, guess_bytes=8)
@example(content=b'h\n"' + b"a\n" * 30 + b'"\n1\n', split_bytes=7, guess_bytes=8)  # every guess is wrong
def test_quick_reading_equals_the_standard_library(content: bytes, split_bytes: int, guess_bytes: int) -> None:
    with mock.patch.object(csv_splits, "_GUESS_BYTES", guess_bytes):
        assert quick_reading(content, split_bytes) == widths_checked(exact_reading(content))


@settings(max_examples=30, deadline=None)
@given(content=mostly_sound_csv())
def test_every_split_size_reads_the_same(content: bytes) -> None:
    expected = widths_checked(exact_reading(content))
    for split_bytes in range(1, len(content) + 2):
        assert quick_reading(content, split_bytes) == expected


@settings(max_examples=300, deadline=None)
@given(content=st.lists(st.sampled_from(TOKENS), max_size=16).map(b"".join))
def test_sound_quoting_means_that_parity_finds_the_records(content: bytes) -> None:
    if not content or content.startswith(b"\xef\xbb\xbf") or not quoting_is_sound(content):
        return
    ends = record_ends(content).tolist()
    assert record_ends(content, len(ends)).tolist() == ends
    pieces = [content[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    expected = [record or [""] for record in csv.reader(io.StringIO(content.decode(), newline=""), strict=True)]
    assert [_only_record(piece) for piece in pieces] == expected
    assert [record == [""] and piece[:1] in b"\r\n" for record, piece in zip(expected, pieces, strict=True)] == list(
        blank_records(content)
    )


def _only_record(piece: bytes) -> list[str]:
    (record,) = csv.reader(io.StringIO(piece.decode(), newline=""), strict=True)
    return record or [""]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("place", range(6))
def test_invalid_utf8_is_found_at_its_offset(broken: bytes, place: int) -> None:
    content = b"ab\ncd\nef"[:place] + broken + b"ab\ncd\nef"[place:]
    with pytest.raises(UnicodeDecodeError) as caught:
        content.decode()
    expected = f"invalid_encoding: Invalid UTF-8 in A at byte offset {caught.value.start}: {REMEDY}"
    assert exact_reading(content) == expected
    assert all(quick_reading(content, split_bytes) == expected for split_bytes in (1, 3, 100))


def test_a_rewritten_file_is_sound_and_means_the_same() -> None:
    content = b'a,b\r\n5" disk,"x\r\ny"\n"",\r'
    out = io.BytesIO()
    rewrite_soundly(io.BytesIO(content), out, side="A")
    assert quoting_is_sound(out.getvalue())
    assert exact_reading(out.getvalue()) == exact_reading(content)


def test_offsets_of_bad_bytes_behind_a_chunk_border() -> None:
    content = b"a" * ((1 << 20) - 1) + b"\xe2\x82\n"
    assert exact_reading(content) == exact_reading(content)
    assert f"byte offset {(1 << 20) - 1}:" in str(exact_reading(content))


def test_quotes_are_counted() -> None:
    assert count_quotes(b'a"b""') == 3
    assert record_ends(b"").tolist() == []
