"""The exact way to read CSV: Python's own strict reader over strictly decoded UTF-8.

This reader defines the meaning of a CSV file. Faster ways may be used only where they provably agree with it.

>>> list(read_records(b'id,note\\n1,"a,b"\\n\\n', side="A"))
[['id', 'note'], ['1', 'a,b'], ['']]
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NoReturn

from driftline.errors import TableError
from driftline.sources.csv_reading import UTF_8, exact_encoding
from driftline.sources.strict_csv import CsvError, parse_records

BOM = codecs.BOM_UTF8
_CHUNK_BYTES = 1 << 20
_LONGEST_MARK = 4

_UNCLOSED_QUOTE = "unexpected end of data"


def read_records(content: bytes, *, side: str, delimiter: str = ",", encoding: str = UTF_8) -> Iterator[list[str]]:
    """The records of a whole file in memory, header first, after checking that it is not empty and can be decoded."""
    return stream_records(io.BytesIO(content), side=side, delimiter=delimiter, encoding=encoding)


def stream_records(
    stream: BinaryIO, *, side: str, delimiter: str = ",", encoding: str = UTF_8, known_encoding: bool = False
) -> Iterator[list[str]]:
    """The records of a seekable stream; the whole stream is checked to be text first, unless that is known."""
    if not known_encoding:
        check_encoding(stream, side=side, encoding=encoding)
    stream.seek(0)
    codec = exact_encoding(encoding, stream.read(_LONGEST_MARK))
    stream.seek(0)
    # Wrapped, because closing a TextIOWrapper would close the caller's stream.
    text = io.TextIOWrapper(io.BufferedReader(_Borrowed(stream), _CHUNK_BYTES), encoding=codec, newline="")
    try:
        yield from _parse(_without_mark(text), side, delimiter)
    except UnicodeDecodeError:
        raise invalid_encoding(side, 0, encoding) from None  # only where nobody checked it first


def _without_mark(text: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a text, without one leading U+FEFF."""
    first = text.readline()
    if first:
        yield first.removeprefix("\ufeff")
    yield from text


def check_encoding(stream: BinaryIO, *, side: str, encoding: str = UTF_8) -> None:
    """Raise `empty_file` or `invalid_encoding` (with the byte offset) if that is what is wrong."""
    stream.seek(0)
    chunk = stream.read(_CHUNK_BYTES)
    decoder = codecs.getincrementaldecoder(exact_encoding(encoding, chunk))("strict")
    offset, characters, start = 0, 0, ""
    while chunk:
        text = _decode(decoder, chunk, offset, side, encoding, final=False)
        start = start or text[:1]
        characters += len(text)
        offset += len(chunk)
        chunk = stream.read(_CHUNK_BYTES)
    characters += len(_decode(decoder, b"", offset, side, encoding, final=True))
    if characters == 0 or (characters == 1 and start == "\ufeff"):
        raise empty_file(side)


def empty_file(side: str) -> TableError:
    """The error for a file with no bytes, or only a BOM."""
    return TableError(f"{side} file is empty", code="empty_file", side=side)


def _decode(
    decoder: codecs.IncrementalDecoder, chunk: bytes, offset: int, side: str, encoding: str, *, final: bool
) -> str:
    held_back = len(decoder.getstate()[0])
    try:
        return decoder.decode(chunk, final)
    except UnicodeDecodeError as error:
        raise invalid_encoding(side, offset - held_back + error.start, encoding) from None


def invalid_encoding(side: str, offset: int, encoding: str = UTF_8) -> TableError:
    """The error for bytes that are not text in the encoding."""
    remedy = "save the file as UTF-8, or name its encoding with --encoding" if encoding == UTF_8 else "name another one"
    return TableError(
        f"Invalid {encoding.upper()} in {side} at byte offset {offset}: {remedy}",
        code="invalid_encoding",
        side=side,
        offset=offset,
    )


def _parse(text: Iterable[str], side: str, delimiter: str) -> Iterator[list[str]]:
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


def rewrite_soundly(
    source: BinaryIO, target: BinaryIO, *, side: str, delimiter: str = ",", encoding: str = UTF_8
) -> None:
    """Write the same records with every field quoted, so that the quick way can prove what it does."""
    text = io.TextIOWrapper(target, encoding="utf-8", newline="")
    table = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerows(stream_records(source, side=side, delimiter=delimiter, encoding=encoding))
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
