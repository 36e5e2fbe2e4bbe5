"""From what a user names to the files of one side: a path, a folder, a glob, `-`, or `file.db::table`."""

from __future__ import annotations

import glob
import os
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from driftline.errors import InputError
from driftline.files import StrPath, compression_of, compression_of_bytes, decompressed, naming_the_file, open_bytes
from driftline.sources.workspace import Workspace

Kind = Literal["csv", "parquet", "jsonl", "sqlite"]

STANDARD_INPUT = "-"
_TABLE_MARK = "::"
_BLOCK_BYTES = 1 << 20
_KINDS: dict[str, Kind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".txt": "csv",
}
_TAB_SUFFIXES = (".tsv", ".tab")
_COMPRESSED_SUFFIXES = (".gz", ".zst", ".zstd")
_PARQUET_MAGIC = b"PAR1"
_SQLITE_MAGIC = b"SQLite format 3\x00"
_UNREADABLE: dict[bytes, str] = {  # first bytes, as a pattern, and what to do about them
    rb"PK\x03\x04|PK\x05\x06": "a ZIP archive: unpack it first",
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Excel workbook: save the sheet as CSV",
    rb"BZh[1-9]1AY&SY": "compressed with bzip2: unpack it first, or use gzip or zstd",
    rb"\xfd7zXZ\x00": "compressed with xz: unpack it first, or use gzip or zstd",
    rb"7z\xbc\xaf\x27\x1c": "a 7-Zip archive: unpack it first",
}
_WORKBOOKS = (".xlsx", ".xlsm", ".ods")
_STREAMS = (STANDARD_INPUT, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


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
        now = InputFile.of(self.path, self.name)
        if (now.size, now.modified_ns) != (self.size, self.modified_ns):
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
    if is_stream(name):
        file = _spooled_stream(name, workspace)
        return Input(_kind_of(file.path, name), (file,), delimiter or _usual_delimiter(name))
    path, mark, table = name.rpartition(_TABLE_MARK)
    if mark and not os.path.exists(name):
        return Input("sqlite", (_plain_file(path, workspace),), table=table)
    paths = _expand(name)
    kinds = {_kind_of(path, path) for path in paths}
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
    # A .json file there is more often about the data than the data.
    return not name.startswith(("_", ".")) and known_suffix(name) in _KINDS and known_suffix(name) != ".json"


def known_suffix(name: str) -> str:
    """The ending of a name, without that of a compression."""
    path = Path(name.lower())
    return path.with_suffix("").suffix if path.suffix in _COMPRESSED_SUFFIXES else path.suffix


def _usual_delimiter(name: str) -> str:
    return "\t" if known_suffix(name) in _TAB_SUFFIXES else ","


def is_stream(given: StrPath) -> bool:
    """Whether what was given can be read only once: standard input, a pipe, `<(…)`."""
    name = os.fspath(given)
    if name == STANDARD_INPUT:
        return True
    try:
        kind = os.stat(name).st_mode
    except (OSError, ValueError):
        return False  # whoever opens it says why
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)


def check_two_sides(a: StrPath, b: StrPath) -> None:
    """Raise if both sides are standard input, which can be read once."""
    if os.fspath(a) in _STREAMS and os.fspath(b) in _STREAMS:
        raise InputError("only one side can be standard input: name a file for the other", code="input_read_twice")


def _kind_of(path: str, name: str) -> Kind:
    with naming_the_file(name), open(path, "rb") as file:
        start = file.read(len(_SQLITE_MAGIC))
    if start == _SQLITE_MAGIC:
        raise InputError(
            f"{name} is a SQLite database: name the table too, as {name}::TABLE", code="missing_table_name", path=name
        )
    if start.startswith(_PARQUET_MAGIC):
        return "parquet"
    for magic, words in _UNREADABLE.items():
        if re.match(magic, start):
            is_workbook = Path(name.lower()).suffix in _WORKBOOKS
            words = "an Excel workbook: save the sheet as CSV" if is_workbook else words
            raise InputError(f"{name} is {words}", code="unsupported_format", path=name)
    return _KINDS.get(known_suffix(name), "csv")


def _plain_file(path: str, workspace: Workspace) -> InputFile:
    if compression_of(path) == "plain":
        return InputFile.of(path, path)
    with open_bytes(path) as stream:
        return _spool(stream, path, workspace)


def _spooled_stream(name: str, workspace: Workspace) -> InputFile:
    if name == STANDARD_INPUT:
        return _spool_packed(cast(BinaryIO, sys.stdin.buffer), "standard input", workspace)
    with naming_the_file(name), open(name, "rb") as stream:
        return _spool_packed(stream, name, workspace)


def _spool_packed(raw: BinaryIO, name: str, workspace: Workspace) -> InputFile:
    start = cast(Any, raw).peek(4)[:4] if hasattr(raw, "peek") else b""
    return _spool(decompressed(raw, compression_of_bytes(start), name), name, workspace)


def _spool(stream: BinaryIO, name: str, workspace: Workspace) -> InputFile:
    target = workspace.new_file("input")
    with naming_the_file(name), open(target, "wb") as out:
        while block := stream.read(_BLOCK_BYTES):
            with naming_the_file(workspace.folder):
                out.write(block)
    return InputFile.of(target, name)
