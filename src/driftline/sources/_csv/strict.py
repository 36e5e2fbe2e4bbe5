"""How a CSV file is read (tables §2): encoding, delimiter, header, and what becomes of odd rows."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from driftline.core._files import explain_io_errors
from driftline.sources.input_file import InputFile

Ragged = Literal["error", "pad", "skip"]

DELIMITERS = ",;\t|"  # those that are looked for; the first of equals
UTF_8 = "utf-8"
_BOM = "\ufeff"
_CHUNK_BYTES = 1 << 16
_SAMPLE_CHARACTERS = 1 << 24  # a first line that is longer is judged by its beginning
_BYTE_ORDERS = {
    "utf-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
    "utf-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
}


@dataclass(frozen=True, slots=True)
class CsvReading:
    """What the readers of CSV text must know; the same for every split of a side."""

    delimiter: str = ","
    encoding: str = UTF_8
    no_header: bool = False
    rename_columns: bool = False
    ragged: Ragged = "error"
    skip_blank_lines: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether records may be left out."""
        return self.ragged == "skip" or self.skip_blank_lines

    def names(self, first: Sequence[str]) -> list[str]:
        """The names of the columns, given the first record that is kept."""
        if self.no_header:
            return [f"c{number}" for number in range(1, len(first) + 1)]
        return named_apart(first) if self.rename_columns else list(first)

    def is_blank(self, record: Sequence[str]) -> bool:
        """Whether a record is left out as a blank line: one empty field."""
        return self.skip_blank_lines and len(record) == 1 and not record[0]

    def fitted(self, record: list[str], width: int) -> list[str] | None:
        """A record as wide as the header, if it may be made so; None where it is left out."""
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
    """A CSV side in memory: its header and the rows that are kept, each with its record's number in the file."""

    header: list[str]
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    skipped: int = 0

    @classmethod
    def of(cls, records: Iterable[list[str]], reading: CsvReading | None = None) -> TextTable | None:
        """The table of a file's records; None where every record is left out."""
        reading = reading or CsvReading()
        numbered = enumerate(records, 1)
        first = next((one for one in numbered if not reading.is_blank(one[1])), None)
        if first is None:
            return None
        number, record = first
        table = cls(reading.names(record), skipped=number - 1)
        if reading.no_header:
            table.rows.append(first)
        table.add(numbered, reading)
        return table

    def add(self, numbered: Iterable[tuple[int, list[str]]], reading: CsvReading) -> None:
        """Take more records."""
        width = len(self.header)
        for number, record in numbered:
            kept = reading.fitted(record, width)
            if kept is None:
                self.skipped += 1
            else:
                self.rows.append((number, kept))

    @property
    def last_number(self) -> int:
        """The number of records so far, the header included."""
        return self.skipped + len(self.rows) + 1


def named_apart(header: Sequence[str]) -> list[str]:
    """Names that differ: an empty one becomes `cN`, one that came before gets the smallest free `.k`.

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
    """The text of a stream from its start, piece by piece; what cannot be read ends it."""
    stream.seek(0)
    chunk = stream.read(_CHUNK_BYTES)
    decoder = codecs.getincrementaldecoder(exact_encoding(encoding, chunk))("strict")
    try:
        while chunk:
            yield decoder.decode(chunk)
            chunk = stream.read(_CHUNK_BYTES)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return


def find_delimiter(file: InputFile, encoding: str, *, skip_blank_lines: bool) -> str:
    """The most frequent delimiter outside quotes in the first line; every quote toggles."""
    with explain_io_errors(file.name), file.open() as stream:
        counts = dict.fromkeys(DELIMITERS, 0)
        inside, at_start, seen = False, True, 0
        for piece in decoded(stream, encoding):
            for letter in piece.removeprefix(_BOM) if not seen else piece:
                if letter in "\r\n" and not inside:
                    if at_start and skip_blank_lines:
                        continue
                    return _most_frequent(counts)
                at_start = False
                inside ^= letter == '"'
                if not inside and letter in counts:
                    counts[letter] += 1
            seen += len(piece)
            if seen > _SAMPLE_CHARACTERS:
                break
    return _most_frequent(counts)


def _most_frequent(counts: dict[str, int]) -> str:
    return max(counts, key=lambda letter: counts[letter])
