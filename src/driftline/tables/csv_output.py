"""CSV tables that are read as a whole and written again in the style of the file that was read (tables §7.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from driftline.core._files import StrPath
from driftline.core._workspace import Workspace
from driftline.errors import InputError, TableError
from driftline.sources._csv.strict import CsvReading, TextTable, decoded, exact_encoding
from driftline.sources._formats.csv import CsvSource
from driftline.sources._open import open_source
from driftline.tables.options import DiffOptions

_BLOCK_ROWS = 1000
_FIRST_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """How rows are written: minimal quotes, a line end behind every row, no mark at the start."""

    delimiter: str
    encoding: str
    line_end: str

    @classmethod
    def of(cls, source: CsvSource) -> CsvStyle:
        """The style of a side's first file."""
        file, reading = source.files[0], source.reading
        with file.open() as stream:
            start = stream.read(4)
            line_end = _line_end(decoded(stream, reading.encoding))
        return cls(reading.delimiter, exact_encoding(reading.encoding, start), line_end)

    def write(self, rows: Iterable[Sequence[str]], out: BinaryIO) -> None:
        """Write rows."""
        block: list[str] = []
        for row in rows:
            block.append(self._line(row))
            if len(block) >= _BLOCK_ROWS:
                out.write(self._encoded("".join(block)))
                block = []
        out.write(self._encoded("".join(block)))

    def _line(self, row: Sequence[str]) -> str:
        if len(row) == 1 and not row[0]:
            return '""' + self.line_end  # nothing at all would be a blank line
        return self.delimiter.join(map(self._field, row)) + self.line_end

    def _field(self, cell: str) -> str:
        if any(letter in cell for letter in (self.delimiter, '"', "\r", "\n")) or cell.startswith("\ufeff"):
            return f'"{cell.replace(chr(34), chr(34) * 2)}"'
        return cell

    def _encoded(self, text: str) -> bytes:
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise TableError(
                f"{text[error.start : error.end]!r} cannot be written in {self.encoding}: name another --encoding",
                code="invalid_encoding",
            ) from None


def _line_end(pieces: Iterable[str]) -> str:
    """The first line end outside quotes."""
    inside, text = False, ""
    for piece in pieces:
        text += piece
        if text.endswith("\r"):
            continue  # a line feed may follow
        for part in re.split('(")', text):
            inside ^= part == '"'
            found = None if inside else _FIRST_LINE_END.search(part)
            if found:
                return found[0]
        text = ""
    found = _FIRST_LINE_END.search(text)
    return found[0] if found and not inside else "\n"


def header_row(reading: CsvReading, header: Sequence[str]) -> list[Sequence[str]]:
    """The line of names, where the file has one."""
    return [] if reading.no_header else [header]


def open_text(
    given: StrPath, side: str, options: DiffOptions, workspace: Workspace
) -> tuple[CsvSource, TextTable, list[list[str]]]:
    """A CSV source, its table, and the record that stands above its rows, as it is in the file."""
    source = open_source(given, workspace, options.reading(side))
    if not isinstance(source, CsvSource):
        raise InputError(f"{given} is {source.format}: only CSV tables can be written again", code="unsupported_format")
    table = source.text_table(side)
    return source, table, [] if source.reading.no_header else [source.first_record(side)]
