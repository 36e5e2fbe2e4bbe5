"""From what a user names to the files of one side: a path, a folder, a glob, `-`, or `file.db::table`."""

from __future__ import annotations

import glob
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, cast

from driftline.errors import InputError
from driftline.files import StrPath, compression_of, compression_of_bytes, decompressed, naming_the_file, open_bytes
from driftline.sources.workspace import Workspace

Kind = Literal["csv", "parquet", "jsonl", "sqlite"]

STANDARD_INPUT = "-"
_TABLE_MARK = "::"
_KINDS: dict[str, Kind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".txt": "csv",
}
_TAB_SUFFIXES = (".tsv", ".tab")
_COMPRESSED_SUFFIXES = (".gz", ".zst", ".zstd")
_PARQUET_MAGIC = b"PAR1"
_SQLITE_MAGIC = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A plain file of one side, how it is called towards the user, and its state when it was opened."""

    path: str
    name: str
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: StrPath, name: str) -> InputFile:
        """Take note of a file as it is now."""
        with naming_the_file(name):
            status = os.stat(path)
        return cls(os.fspath(path), name, status.st_size, status.st_mtime_ns)

    def check_unchanged(self) -> None:
        """Raise if the file is not what it was when the work began."""
        with naming_the_file(self.name):
            status = os.stat(self.path)
        if (status.st_size, status.st_mtime_ns) != (self.size, self.modified_ns):
            raise InputError(
                f"{self.name} changed while it was being read: run again when nobody writes to it",
                code="file_changed",
                path=self.name,
            )


@dataclass(frozen=True, slots=True)
class Input:
    """One side of a diff: what kind of data, its files in order, the delimiter or the table's name."""

    kind: Kind
    files: tuple[InputFile, ...]
    delimiter: str = ","
    table: str | None = None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def open_input(given: StrPath, workspace: Workspace, *, delimiter: str | None = None) -> Input:
    """Find the files behind what was given; compressed ones and standard input are spooled to plain files."""
    name = os.fspath(given)
    if name == STANDARD_INPUT:
        return _standard_input(workspace, delimiter)
    path, mark, table = name.rpartition(_TABLE_MARK)
    if mark and not os.path.exists(name):
        return Input("sqlite", (_plain_file(path, workspace),), table=table)
    paths = _expand(name)
    kinds = {_kind_of(path) for path in paths}
    if len(kinds) > 1:
        raise InputError(f"{name} mixes files of several kinds: {', '.join(sorted(kinds))}", code="mixed_inputs")
    files = tuple(_plain_file(path, workspace) for path in paths)
    return Input(kinds.pop(), files, delimiter or _usual_delimiter(paths[0]))


def _expand(name: str) -> list[str]:
    """The files of a folder or a glob in the order of their names; a plain path is itself."""
    if os.path.isdir(name):
        with naming_the_file(name):
            found = sorted(entry.path for entry in os.scandir(name) if entry.is_file() and _is_data(entry.name))
        if not found:
            raise InputError(
                f"{name} is a directory without data files: name a file, or a folder of part files",
                code="is_a_directory",
                path=name,
            )
        return found
    if not os.path.exists(name) and glob.has_magic(name):
        found = sorted(path for path in glob.glob(name) if os.path.isfile(path))
        if not found:
            raise InputError(f"no file matches {name}", code="not_found", path=name)
        return found
    return [name]


def _is_data(name: str) -> bool:
    # Spark and others leave `_SUCCESS` and hidden checksum files beside the parts.
    return not name.startswith(("_", ".")) and _known_suffix(name) in _KINDS


def _known_suffix(name: str) -> str:
    path = Path(name.lower())
    return path.with_suffix("").suffix if path.suffix in _COMPRESSED_SUFFIXES else path.suffix


def _usual_delimiter(name: str) -> str:
    return "\t" if _known_suffix(name) in _TAB_SUFFIXES else ","


def _kind_of(path: str) -> Kind:
    with naming_the_file(path), open(path, "rb") as file:
        start = file.read(len(_SQLITE_MAGIC))
    if start == _SQLITE_MAGIC:
        raise InputError(
            f"{path} is a SQLite database: name the table too, as {path}::TABLE", code="missing_table_name", path=path
        )
    if start.startswith(_PARQUET_MAGIC):
        return "parquet"
    return _KINDS.get(_known_suffix(path), "csv")


def _plain_file(path: str, workspace: Workspace) -> InputFile:
    if compression_of(path) == "plain":
        return InputFile.of(path, path)
    with open_bytes(path) as stream:
        return _spool(stream, path, workspace)


def _standard_input(workspace: Workspace, delimiter: str | None) -> Input:
    raw = cast(BinaryIO, sys.stdin.buffer)
    start = cast(bytes, raw.peek(4)[:4]) if hasattr(raw, "peek") else b""
    stream = decompressed(raw, compression_of_bytes(start), "standard input")
    return Input("csv", (_spool(stream, "standard input", workspace),), delimiter or ",")


def _spool(stream: BinaryIO, name: str, workspace: Workspace) -> InputFile:
    target = workspace.new_file("input")
    with naming_the_file(target), open(target, "wb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)
    return InputFile.of(target, name)
