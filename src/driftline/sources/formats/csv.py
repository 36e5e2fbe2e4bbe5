"""CSV and its relatives: text cells, split by byte ranges.

Splitting by quote parity is proven right where quoting is sound. Where it is not, the strict reader writes a copy in
which every field is quoted, and that is split (tables §2).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from driftline.files import naming_the_file
from driftline.sources.addresses import Address
from driftline.sources.csv_exact import rewrite_soundly, stream_records
from driftline.sources.input_file import InputFile, known_suffix
from driftline.sources.port import (
    FileFingerprint,
    Opening,
    SplitSide,
    fingerprint_of_files,
    part_mismatch,
)
from driftline.sources.workspace import Workspace

if TYPE_CHECKING:
    from driftline.sources.csv_splits import ByteRange

_TAB_SUFFIXES = (".tsv", ".tab")
_CHECKED_BYTES = 16 << 20  # how much of a file is proven at a time


class CsvFormat:
    """Takes whatever no other format knows."""

    name = "csv"
    suffixes = (".csv", ".tsv", ".tab", ".txt")

    def recognises(self, address: Address, start: bytes | None) -> bool:
        """Every file."""
        return start is not None

    def open(self, address: Address, opening: Opening) -> CsvSource:
        """Its files and the delimiter; tabs where the name says so."""
        usual = "\t" if known_suffix(opening.files[0].name) in _TAB_SUFFIXES else ","
        return CsvSource(opening.files, opening.options.delimiter or usual)


@dataclass(frozen=True, slots=True)
class CsvSource:
    """Files that follow each other under one header."""

    files: tuple[InputFile, ...]
    delimiter: str = ","
    format: str = "csv"
    typed: bool = False
    seekable: bool = True
    ordered: bool = True

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def header(self, side: str) -> tuple[str, ...]:
        """The first record."""
        return tuple(next(self.records(side, checked=False)))

    def types(self) -> None:
        """Text has none."""

    def fingerprint(self, of_file: FileFingerprint) -> str:
        """The bytes of its files."""
        return fingerprint_of_files(self.files, of_file)

    def records(self, side: str, *, checked: bool = True) -> Iterator[list[str]]:
        """Header first, then every record of every file."""
        header: list[str] | None = None
        for file in self.files:
            records = self._file_records(file, side, checked)
            own = next(records)
            if header is None:
                header = own
                yield header
            elif own != header:
                raise part_mismatch(side, file.name)
            yield from records

    def _file_records(self, file: InputFile, side: str, checked: bool) -> Iterator[list[str]]:
        """All records of one file; afterwards the file must be what it was before."""
        with naming_the_file(file.name), file.open() as stream:
            yield from stream_records(stream, side=side, delimiter=self.delimiter, known_encoding=not checked)
        file.check_unchanged()

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        """The first records; what a short one lacks is empty."""
        header, *found = islice(self.records(side, checked=False), rows + 1)
        return {name: [row[at] if at < len(row) else "" for row in found] for at, name in enumerate(header)}

    def lay_out(
        self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None
    ) -> SplitSide | None:
        """Byte ranges, or None where a header cannot be read the quick way."""
        from driftline.sources.csv_splits import CsvSplit, plan_file, record_bytes

        layouts = [plan_file(file, self.delimiter, split_bytes, pool) for file in self.files]
        header = layouts[0].header
        if header is None or any(layout.header is None for layout in layouts):
            return None
        for file, layout in zip(self.files, layouts, strict=True):
            if layout.header != header:
                raise part_mismatch(side, file.name)
        ranges = [one for layout in layouts for one in layout.ranges]
        splits = tuple(CsvSplit(one, tuple(header), self.delimiter) for one in ranges)
        return SplitSide(tuple(header), splits, int(self.size / record_bytes(ranges)))

    def normalized(self, side: str, workspace: Workspace, pool: Executor | None = None) -> CsvSource:
        """The same side with every file provably sound; raises what the strict reader finds wrong."""
        files = tuple(self._normalized_file(file, side, workspace, pool) for file in self.files)
        return replace(self, files=files)

    def _normalized_file(self, file: InputFile, side: str, workspace: Workspace, pool: Executor | None) -> InputFile:
        from driftline.sources.csv_splits import plan_file

        layout = plan_file(file, self.delimiter, _CHECKED_BYTES, pool)
        check = partial(_is_sound, delimiter=self.delimiter)
        if layout.header is not None and all((pool.map if pool else map)(check, layout.ranges)):
            return file
        target = workspace.new_file("rewritten.csv")
        with naming_the_file(file.name), file.open() as stream, open(target, "wb") as out:
            rewrite_soundly(stream, out, side=side, delimiter=self.delimiter)
        file.check_unchanged()
        return InputFile.of(target, file.name)

    def with_absolute_paths(self) -> CsvSource:
        """The same source for processes in other folders."""
        return replace(self, files=tuple(file.with_absolute_path() for file in self.files))


def _is_sound(part: ByteRange, delimiter: str) -> bool:
    """Whether a range is soundly quoted UTF-8."""
    from driftline.sources.csv_quotes import quoting_is_sound

    data = part.read()
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return quoting_is_sound(data, delimiter)
