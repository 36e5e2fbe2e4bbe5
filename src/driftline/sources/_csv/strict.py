"""The strict CSV reader, which defines the semantics of a CSV file (tables §2): encoding, delimiter, header, odd rows.

It is Python's own reader with strict quoting over strictly decoded text. Faster parsers may be used only where they
provably agree with it.

>>> list(read_records(b'id,note\\n1,"a,b"\\n\\n', side="A"))
[['id', 'note'], ['1', 'a,b'], ['']]
"""

from __future__ import annotations

import codecs
import csv
import io
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec, module_from_spec
from itertools import chain
from typing import Any, BinaryIO, Literal

from driftline.core import io_errors
from driftline.errors import TableError
from driftline.sources._addresses import InputFile

Ragged = Literal["error", "pad", "skip"]

DELIMITERS = ",;\t|"  # those that are searched for; the first of equals
UTF_8 = "utf-8"
BOM = codecs.BOM_UTF8
_BOM_TEXT = "\ufeff"
_LONGEST_BOM = 4
_SAMPLE_BYTES = 1 << 16
_SAMPLE_CHARACTERS = 1 << 24  # of a longer first line only the start is used
_CHUNK_BYTES = 1 << 20
_LARGEST_FIELD = (1 << (8 * struct.calcsize("l") - 1)) - 1  # the limit is a C long
_UNCLOSED_QUOTE = "unexpected end of data"
_BYTE_ORDERS = {
    "utf-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
    "utf-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
}


@dataclass(frozen=True, slots=True)
class CsvReading:
    """The options of a CSV reader; the same for every split of an input."""

    delimiter: str = ","
    encoding: str = UTF_8
    no_header: bool = False
    rename_columns: bool = False
    ragged: Ragged = "error"
    skip_blank_lines: bool = False
    header: tuple[str, ...] | None = None  # of a file without one, where another has it

    @property
    def leaves_out(self) -> bool:
        return self.ragged == "skip" or self.skip_blank_lines

    def names(self, first: Sequence[str]) -> list[str]:
        """The names of the columns, by the first record that is not left out."""
        if self.no_header:
            return list(self.header or (f"c{number}" for number in range(1, len(first) + 1)))
        return named_apart(first) if self.rename_columns else list(first)

    def is_blank(self, record: Sequence[str]) -> bool:
        """Whether a record is left out as a blank line: one empty field."""
        return self.skip_blank_lines and len(record) == 1 and not record[0]

    def fitted(self, record: list[str], width: int) -> list[str] | None:
        """A record with the width of the header, if the options allow it; None where it is left out."""
        if len(record) == width:
            return None if self.is_blank(record) else record
        if self.is_blank(record) or self.ragged == "skip":
            return None
        if self.ragged == "pad":
            if len(record) < width:
                return [*record, *[""] * (width - len(record))]
            if not any(record[width:]):
                return record[:width]
        return record


@dataclass
class TextTable:
    """A CSV table in memory: its header and its rows, each with its record's number in the file."""

    header: list[str]
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    skipped: int = 0

    @classmethod
    def of(cls, records: Iterable[list[str]], reading: CsvReading | None = None) -> TextTable:
        """The table of a file's records, of which one at least is not left out."""
        reading = reading or CsvReading()
        numbered = enumerate(records, 1)
        first = number, record = next(one for one in numbered if not reading.is_blank(one[1]))
        table = cls(reading.names(record), skipped=number - 1)
        if reading.no_header:
            table.rows.append(first)
        table.add(numbered, reading)
        return table

    def add(self, numbered: Iterable[tuple[int, list[str]]], reading: CsvReading) -> None:
        """Add records."""
        width = len(self.header)
        for number, record in numbered:
            kept = reading.fitted(record, width)
            if kept is None:
                self.skipped += 1
            else:
                self.rows.append((number, kept))


def named_apart(header: Sequence[str]) -> list[str]:
    """Distinct names: an empty one becomes `cN`, a repeated one gets the smallest free `.k`.

    >>> named_apart(["id", "", "id", "id.2", "id"])
    ['id', 'c2', 'id.3', 'id.2', 'id.4']
    """
    filled = [name or f"c{number}" for number, name in enumerate(header, 1)]
    taken, given = set(filled), set[str]()
    names = []
    for name in filled:
        if name in given:
            free = next(k for k in range(2, 2 * len(filled) + 3) if f"{name}.{k}" not in taken)
            name = f"{name}.{free}"
            taken.add(name)
        given.add(name)
        names.append(name)
    return names


def exact_encoding(encoding: str, start: bytes) -> str:
    """The codec that leaves a leading U+FEFF in the text; without one, UTF-16 and UTF-32 are little-endian."""
    if encoding in ("utf-8-sig", UTF_8):
        return UTF_8
    if encoding not in _BYTE_ORDERS:
        return encoding
    orders = _BYTE_ORDERS[encoding]
    return next((name for mark, name in orders if start.startswith(mark)), orders[0][1])


def decoded(stream: BinaryIO, encoding: str) -> Iterator[str]:
    """The text of a stream from its start, in chunks, up to the first byte that cannot be decoded."""
    stream.seek(0)
    chunk = stream.read(_SAMPLE_BYTES)
    decoder = codecs.getincrementaldecoder(exact_encoding(encoding, chunk))("strict")
    try:
        while chunk:
            yield decoder.decode(chunk)
            chunk = stream.read(_SAMPLE_BYTES)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return


def find_delimiter(file: InputFile, encoding: str, *, skip_blank_lines: bool) -> str:
    """The most frequent delimiter outside quotes in the first line; every quote toggles."""
    with io_errors(file.name), file.open() as stream:
        counts = dict.fromkeys(DELIMITERS, 0)
        inside, at_start, seen = False, True, 0
        for piece in decoded(stream, encoding):
            for letter in piece.removeprefix(_BOM_TEXT) if not seen else piece:
                if letter in "\r\n" and not inside:
                    if at_start and skip_blank_lines:
                        continue
                    return max(counts, key=lambda letter: counts[letter])
                at_start = False
                inside ^= letter == '"'
                if not inside and letter in counts:
                    counts[letter] += 1
            seen += len(piece)
            if seen > _SAMPLE_CHARACTERS:
                break
    return max(counts, key=lambda letter: counts[letter])


def _private_csv() -> Any:
    """A copy of Python's csv module without a limit on the size of a field (tables §2.1).

    The module has one limit for the process, which may be another program; the copy, from the same C code, has its own.
    """
    spec = find_spec("_csv")
    assert spec is not None, "every Python has the module below csv"
    assert spec.loader is not None, "every Python has the module below csv"
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    copy.field_size_limit(_LARGEST_FIELD)
    return copy


_csv = _private_csv()
CsvError: type[csv.Error] = _csv.Error


def parse_records(text: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """The records of lines of text whose line ends are untouched; a blank line is a record with one empty field.

    >>> list(parse_records(['1,"a,b"\\n', "\\n"], ","))
    [['1', 'a,b'], ['']]
    """
    for record in _csv.reader(text, delimiter=delimiter, strict=True):
        yield record or [""]


def read_records(content: bytes, *, side: str, delimiter: str = ",", encoding: str = UTF_8) -> Iterator[list[str]]:
    """The records of a file in memory, header first, after checking that it is not empty and can be decoded."""
    return stream_records(io.BytesIO(content), side=side, delimiter=delimiter, encoding=encoding)


def stream_records(
    stream: BinaryIO, *, side: str, delimiter: str = ",", encoding: str = UTF_8, known_encoding: bool = False
) -> Iterator[list[str]]:
    """The records of a seekable stream; first all of it is checked to be text, unless that is known."""
    if not known_encoding:
        check_encoding(stream, side=side, encoding=encoding)
    stream.seek(0)
    codec = exact_encoding(encoding, stream.read(_LONGEST_BOM))
    stream.seek(0)
    text = io.TextIOWrapper(stream, encoding=codec, newline="")
    try:
        lines = chain([text.readline().removeprefix(_BOM_TEXT)], text)
        yield from _parse(filter(None, lines), side, delimiter)
    except UnicodeDecodeError:
        raise invalid_encoding(side, 0, encoding) from None  # only where it was not checked first
    finally:
        if not stream.closed:
            text.detach()  # else the caller's stream would be closed with it


def check_encoding(stream: BinaryIO, *, side: str, encoding: str = UTF_8) -> None:
    """Raise `empty_file` or `invalid_encoding` (with the byte offset) where one applies."""
    stream.seek(0)
    chunk = stream.read(_CHUNK_BYTES)
    decoder = codecs.getincrementaldecoder(exact_encoding(encoding, chunk))("strict")
    offset, is_empty = 0, True
    while True:
        held_back = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raise invalid_encoding(side, offset - held_back + error.start, encoding) from None
        is_empty = is_empty and text in ("", _BOM_TEXT)
        if not chunk:
            break
        offset += len(chunk)
        chunk = stream.read(_CHUNK_BYTES)
    if is_empty:
        raise empty_file(side)


def empty_file(side: str) -> TableError:
    """The error for a file with no bytes, or only a BOM."""
    return TableError(f"{side} file is empty", code="empty_file", side=side)


def invalid_encoding(side: str, offset: int, encoding: str = UTF_8) -> TableError:
    """The error for bytes that are not text in the encoding."""
    hint = "save the file as UTF-8, or name its encoding with --encoding" if encoding == UTF_8 else "name another one"
    words = f"Invalid {encoding.upper()} in {side} at byte offset {offset}: {hint}"
    return TableError(words, code="invalid_encoding", side=side, offset=offset)


def _parse(text: Iterable[str], side: str, delimiter: str) -> Iterator[list[str]]:
    row = 1
    try:
        for record in parse_records(text, delimiter):
            yield record
            row += 1
    except CsvError as error:
        is_open = str(error) == _UNCLOSED_QUOTE
        words = "a quote is opened and never closed" if is_open else "text after a closing quote"
        words = f"CSV parse error in {side} at row {row}: {words}"
        raise TableError(words, code="csv_parse_error", side=side, row=row) from None


def rewrite_soundly(
    source: BinaryIO, target: BinaryIO, *, side: str, delimiter: str = ",", encoding: str = UTF_8
) -> None:
    """Write the same records with every field quoted, so that the vectorized parser can read them."""
    text = io.TextIOWrapper(target, encoding="utf-8", newline="")
    table = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    table.writerows(stream_records(source, side=side, delimiter=delimiter, encoding=encoding))
    text.flush()
    text.detach()
