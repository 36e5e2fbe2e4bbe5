"""CSV and TSV files: text cells, split by byte ranges.

Splitting by quote parity is proven right where quoting is sound. Where it is not, the strict reader writes a copy in
which every field is quoted, and that is split (tables §2).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from driftline.core import Workspace, io_errors
from driftline.errors import TableError
from driftline.sources._addresses import Address, InputFile
from driftline.sources._csv import strict
from driftline.sources._csv.strict import CsvReading, TextTable, empty_file, stream_records
from driftline.sources._source import AUTO, Opening, Pool, ReadOptions, Source, SplitSide, part_mismatch

if TYPE_CHECKING:
    from driftline.sources._csv.parse import ByteRange

_CHECKED_BYTES = 16 << 20  # how much of a file is proven at a time


def open_input(address: Address, opening: Opening) -> CsvSource:
    """Its files and options; a tab is the delimiter of .tsv and .tab."""
    options, files = opening.options, opening.files
    if options.skip_lines or options.comment:
        files = tuple(_without_lines(file, options, opening.workspace) for file in files)
    first = files[0]
    delimiter = options.delimiter_of(first.name)
    if options.delimiter == AUTO:
        delimiter = strict.find_delimiter(first, options.encoding, skip_blank_lines=options.skip_blank_lines)
    given = options.encoding, options.no_header, options.rename_columns, options.ragged, options.skip_blank_lines
    return CsvSource(files, CsvReading(delimiter, *given))


def _without_lines(file: InputFile, options: ReadOptions, workspace: Workspace) -> InputFile:
    """A copy without the lines above the header and those of comments; numbers of rows count from what is left."""
    target = workspace.new_file("lines.csv")
    mark, inside = options.comment, False
    with (
        io_errors(file.name),
        io.TextIOWrapper(file.open(), options.encoding, newline="") as text,
        open(target, "w", encoding=options.encoding, newline="") as out,
    ):
        try:
            for line in islice(text, options.skip_lines, None):
                if inside or not mark or not line.startswith(mark):
                    out.write(line)
                    inside ^= line.count('"') % 2 == 1
        except UnicodeDecodeError as error:
            words = f"{file.name} is not {options.encoding}: {error.reason}"
            raise TableError(words, code="invalid_encoding") from None
    return InputFile.of(target, file.name)


@dataclass(frozen=True, slots=True)
class CsvSource(Source):
    """Consecutive files under one header."""

    files: tuple[InputFile, ...] = field()
    reading: CsvReading = field(default_factory=CsvReading)
    counted: bool = field(default=False, compare=False)  # splits are found by counting quotes, no longer by a guess
    format: str = "csv"
    typed: bool = False

    def header(self, side: str) -> tuple[str, ...]:
        return tuple(next(self.records(side, checked=False)))

    def records(self, side: str, *, checked: bool = True) -> Iterator[list[str]]:
        """Header first, then the records of every file that are not left out."""
        names: list[str] | None = None
        for records in self._parts(side, checked=checked):
            if names is None:
                first = next(record for record in records if not self.reading.is_blank(record))
                names = self.reading.names(first)
                yield names
                records = chain([first], records) if self.reading.no_header else records
            fitted = (self.reading.fitted(record, len(names)) for record in records)
            yield from (record for record in fitted if record is not None)

    def text_table(self, side: str) -> TextTable:
        """The table of all files."""
        table: TextTable | None = None
        for records in self._parts(side, checked=True):
            if table is None:
                table = TextTable.of(records, self.reading)
            else:
                number = table.skipped + len(table.rows) + 2 - self.reading.no_header
                table.add(enumerate(records, number), self.reading)
        assert table is not None, "a side has a file, which is not empty"
        return table

    def first_record(self, side: str) -> list[str]:
        """The first record that is not left out, as it is in the file."""
        records = next(self._parts(side, checked=False))
        return next(record for record in records if not self.reading.is_blank(record))

    def _parts(self, side: str, *, checked: bool) -> Iterator[Iterator[list[str]]]:
        """The records of each file: all of the first one, and of the others those below their headers."""
        names: list[str] | None = None
        for file in self.files:
            records, above = self._file_records(file, side, checked), list[list[str]]()
            while not above or self.reading.is_blank(above[-1]):
                if (record := next(records, None)) is None:
                    raise empty_file(side)
                above.append(record)
            own = self.reading.names(above[-1])
            has_header = names is not None and not self.reading.no_header
            if has_header and own != names:
                raise part_mismatch(side, file.name)
            yield records if has_header else chain(above, records)
            names = names or own

    def _file_records(self, file: InputFile, side: str, checked: bool) -> Iterator[list[str]]:
        """All records of one file; raises if it has changed meanwhile."""
        with io_errors(file.name), file.open() as stream:
            delimiter, encoding = self.reading.delimiter, self.reading.encoding
            yield from stream_records(
                stream, side=side, delimiter=delimiter, encoding=encoding, known_encoding=not checked
            )
        file.check_unchanged()

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        """The first records; what a short one lacks is empty."""
        header, *found = islice(self.records(side, checked=False), rows + 1)
        return {name: [row[at] if at < len(row) else "" for row in found] for at, name in enumerate(header)}

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Pool = None) -> SplitSide | None:
        """Byte ranges, or None where a header needs the strict reader."""
        from driftline.sources._csv.parse import CsvSplit, look_at_start, plan_file

        guess = not self.counted
        layouts = [plan_file(file, self.reading, split_bytes, pool, guess=guess) for file in self.files]
        first = layouts[0].first
        if first is None or any(layout.first is None for layout in layouts):
            return None
        for file, layout in zip(self.files, layouts, strict=True):
            if layout.first != first and not self.reading.no_header:
                raise part_mismatch(side, file.name)
        header = tuple(self.reading.names(first))
        ranges = [one for layout in layouts for one in layout.ranges]
        splits = tuple(CsvSplit(one, header, self.reading) for one in ranges)
        # Without a header the blank lines before the first row are in the ranges.
        blank = 0 if self.reading.no_header else layouts[0].blank
        first_record = 1 if self.reading.no_header else blank + 2
        record_bytes, quotes = look_at_start(ranges)
        return SplitSide(
            header,
            splits,
            int(sum(file.size for file in self.files) / record_bytes),
            first_record=first_record,
            skipped=0 if self.reading.no_header else sum(layout.blank for layout in layouts),
            delimiter=self.reading.delimiter,
            quotes=None if self.reading.leaves_out else quotes,
        )

    def normalized(self, side: str, workspace: Workspace, pool: Pool = None) -> CsvSource:
        """The same side with every file provably sound; raises the errors of the strict reader."""
        files = tuple(self._normalized_file(file, side, workspace, pool) for file in self.files)
        return replace(self, files=files, reading=replace(self.reading, encoding=strict.UTF_8), counted=True)

    def _normalized_file(self, file: InputFile, side: str, workspace: Workspace, pool: Pool) -> InputFile:
        from driftline.sources._csv.parse import plan_file

        layout = plan_file(file, self.reading, _CHECKED_BYTES, pool)
        check = partial(_is_sound, delimiter=self.reading.delimiter)
        if layout.first is not None and all((pool.map if pool else map)(check, layout.ranges)):
            return file
        target = workspace.new_file("rewritten.csv")
        delimiter, encoding = self.reading.delimiter, self.reading.encoding
        with io_errors(file.name), file.open() as stream, open(target, "wb") as out:
            strict.rewrite_soundly(stream, out, side=side, delimiter=delimiter, encoding=encoding)
        file.check_unchanged()
        with open(target, "rb") as stream:
            records = stream_records(stream, side=side, delimiter=delimiter, known_encoding=True)
            if all(map(self.reading.is_blank, records)):
                raise empty_file(side)  # blank lines alone count as nothing
        return InputFile.of(target, file.name)


def _is_sound(part: ByteRange, delimiter: str) -> bool:
    """Whether a range is soundly quoted UTF-8."""
    from driftline.sources._csv.parse import quoting_is_sound

    data = part.read()
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return quoting_is_sound(data, delimiter)
