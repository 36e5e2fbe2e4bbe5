"""JSON Lines, and arrays of objects in `.json` files: typed cells, read once from the start and copied into batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from driftline.core._workspace import Workspace
from driftline.sources.addresses import Address
from driftline.sources.input_file import InputFile, known_suffix
from driftline.sources.json_rows import json_rows
from driftline.sources.port import FileFingerprint, Opening, SplitSide, fingerprint_of_files

if TYPE_CHECKING:
    from concurrent.futures import Executor


class JsonLinesFormat:
    """Knows its files by their names, because any line of text may be JSON."""

    name = "jsonl"
    # A .json file in a folder is more often about the data than the data.
    suffixes = (".jsonl", ".ndjson")

    def recognises(self, address: Address, start: bytes | None) -> bool:
        """By the ending of the name."""
        return start is not None and known_suffix(address.path) in (*self.suffixes, ".json")

    def open(self, address: Address, opening: Opening) -> JsonLinesSource:
        """Its files."""
        return JsonLinesSource(opening.files)


@dataclass(frozen=True, slots=True)
class JsonLinesSource:
    """Objects whose names are the columns, in the order of first appearance."""

    files: tuple[InputFile, ...]
    format: str = "jsonl"
    typed: bool = True
    seekable: bool = False
    ordered: bool = True

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def header(self, side: str) -> tuple[str, ...]:
        """The names of all objects: the last line may bring a new one."""
        names: dict[str, None] = {}
        for file in self.files:
            for row in json_rows(file):
                names.update(dict.fromkeys(row))
        return tuple(names)

    def types(self) -> None:
        """Every cell has its own."""

    def fingerprint(self, of_file: FileFingerprint) -> str:
        """The bytes of its files."""
        return fingerprint_of_files(self.files, of_file)

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None) -> SplitSide:
        """Batches in the workspace."""
        from driftline.sources.row_spool import spool_rows

        return spool_rows(((file, json_rows(file)) for file in self.files), workspace)

    def normalized(self, side: str, workspace: Workspace, pool: Executor | None = None) -> JsonLinesSource:
        """As it is."""
        return self

    def records(self, side: str, *, checked: bool = True) -> None:
        """Cells are typed."""

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        """The first objects and the names that they have."""
        from driftline.sources.json_cells import cells_by_column

        objects = (row for file in self.files for row in json_rows(file))
        return cells_by_column(islice(objects, rows))

    def text_table(self, side: str) -> None:
        """Cells are typed."""

    def with_absolute_paths(self) -> JsonLinesSource:
        """The same source for processes in other folders."""
        return replace(self, files=tuple(file.with_absolute_path() for file in self.files))
