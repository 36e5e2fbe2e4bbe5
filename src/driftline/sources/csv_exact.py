"""The exact way to read CSV: Python's own strict reader over strictly decoded UTF-8.

This reader defines the meaning of a CSV file. Faster ways may be used only where they provably agree with it.

>>> list(read_records(b'id,note\\n1,"a,b"\\n\\n', side="A"))
[['id', 'note'], ['1', 'a,b'], ['']]
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from typing import BinaryIO, NoReturn

from driftline.errors import TableError
from driftline.sources.strict_csv import CsvError, parse_records

BOM = codecs.BOM_UTF8
_CHUNK_BYTES = 1 << 20

_UNCLOSED_QUOTE = "unexpected end of data"


def read_records(content: bytes, *, side: str, delimiter: str = ",") -> Iterator[list[str]]:
    """The records of a whole file in memory, header first, after checking that it is not empty and is UTF-8."""
    return stream_records(io.BytesIO(content), side=side, delimiter=delimiter)


def stream_records(
    stream: BinaryIO, *, side: str, delimiter: str = ",", known_encoding: bool = False
) -> Iterator[list[str]]:
    """The records of a seekable stream; the whole stream is checked to be UTF-8 first, unless that is known."""
    if not known_encoding:
        check_encoding(stream, side=side)
    stream.seek(len(BOM) if _starts_with_bom(stream) else 0)
    # Wrapped, because closing a TextIOWrapper would close the caller's stream.
    text = io.TextIOWrapper(io.BufferedReader(_Borrowed(stream), _CHUNK_BYTES), encoding="utf-8", newline="")
    yield from _parse(text, side, delimiter)


def check_encoding(stream: BinaryIO, *, side: str) -> None:
    """Raise `empty_file` or `invalid_encoding` (with the byte offset) if that is what is wrong."""
    stream.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    offset = 0
    while chunk := stream.read(_CHUNK_BYTES):
        _decode(decoder, chunk, offset, side, final=False)
        offset += len(chunk)
    _decode(decoder, b"", offset, side, final=True)
    if offset == 0 or (offset == len(BOM) and _starts_with_bom(stream)):
        raise empty_file(side)


def empty_file(side: str) -> TableError:
    """The error for a file with no bytes, or only a BOM."""
    return TableError(f"{side} file is empty", code="empty_file", side=side)


def _decode(decoder: codecs.IncrementalDecoder, chunk: bytes, offset: int, side: str, *, final: bool) -> None:
    held_back = len(decoder.getstate()[0])
    try:
        decoder.decode(chunk, final)
    except UnicodeDecodeError as error:
        raise invalid_encoding(side, offset - held_back + error.start) from None


def invalid_encoding(side: str, offset: int) -> TableError:
    """The error for bytes that are not UTF-8."""
    return TableError(
        f"Invalid UTF-8 in {side} at byte offset {offset}: save the file as UTF-8",
        code="invalid_encoding",
        side=side,
        offset=offset,
    )


def _starts_with_bom(stream: BinaryIO) -> bool:
    stream.seek(0)
    return stream.read(len(BOM)) == BOM


def _parse(text: io.TextIOWrapper, side: str, delimiter: str) -> Iterator[list[str]]:
    row = 0
    try:
        for record in parse_records(text, delimiter):
            row += 1
            yield record
    except CsvError as error:
        _raise_parse_error(side, row + 1, str(error))


def _raise_parse_error(side: str, row: int, reason: str) -> NoReturn:
    words = "a quote is opened and never closed" if reason == _UNCLOSED_QUOTE else "text after a closing quote"
    raise TableError(
        f"CSV parse error in {side} at row {row}: {words}", code="csv_parse_error", side=side, row=row
    ) from None


def rewrite_soundly(source: BinaryIO, target: BinaryIO, *, side: str, delimiter: str = ",") -> None:
    """Write the same records with every field quoted, so that the quick way can prove what it does."""
    text = io.TextIOWrapper(target, encoding="utf-8", newline="")
    table = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerows(stream_records(source, side=side, delimiter=delimiter))
    text.flush()
    text.detach()


class _Borrowed(io.RawIOBase):
    """Reads somebody else's stream without ever closing it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
