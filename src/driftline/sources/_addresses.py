"""Addresses of inputs (sources §1), and the files behind them: local ones, and objects read by pinned ranges (§4).

>>> parse_address("data/orders.csv").path, parse_address("shop.db::users").table
('data/orders.csv', 'users')
>>> parse_address("delta:s3://lake/orders@7").version
'7'
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from driftline import core
from driftline.core import Location, ObjectVersion, StrPath, atomic_write, io_errors, is_url
from driftline.errors import InputError

_TABLE_MARK = "::"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# Counts only at the end, before digits or an ISO time with its zone.
_VERSION = re.compile(r"(.+)@(\d+|\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2}))\Z")
_PREFIXES = ("delta", "iceberg", "spark")
_SERVED = (
    "use a path, s3://, gs://, abfs://, file://, delta:LOCATION, iceberg:CATALOG/NAMESPACE.TABLE, "
    "spark:CATALOG.SCHEMA.TABLE, postgresql://…::TABLE, FILE.db::TABLE, FILE.duckdb::TABLE or BOOK.xlsx::SHEET"
)
_KNOWN_SCHEMES = (*core.SCHEMES, "file", "postgresql")
_COMPRESSED_SUFFIXES = (".gz", ".zst", ".zstd", ".bz2", ".xz", ".zip")
_PASSWORD = re.compile(r"//([^/@:]*):[^/@]*@")
_QUERY = re.compile(r"(.+?)::\s*((?:select|with)\s.*)", re.IGNORECASE | re.DOTALL)
_GLOB_LETTERS = "*?["


@dataclass(frozen=True, slots=True)
class Address:
    """The text of an address, and its parts.

    `kind` is the word before a `:` that names a format (`delta:…`) or a database (`postgresql`), else "".
    """

    text: str
    path: str
    table: str | None = None
    kind: str = ""
    version: str | None = None

    @property
    def query(self) -> str | None:
        """The table part if it is a query: `FILE::SELECT …` or `FILE::WITH …`."""
        return self.table if self.table is not None and _QUERY.fullmatch(f"x::{self.table}") else None


def parse_address(text: str) -> Address:
    """The parts of an address; raises for one that no format serves."""
    if os.path.exists(text):
        return Address(text, text)
    kind, mark, rest = text.partition(":")
    if mark and kind in _PREFIXES and not rest.startswith("//"):
        versioned = _VERSION.match(rest)
        path, version = (versioned[1], versioned[2]) if versioned else (rest, None)
        return Address(text, _local(path), kind=kind, version=version)
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1] not in _KNOWN_SCHEMES:
        raise unsupported(text, scheme[1])
    if scheme is not None and scheme[1] == "postgresql":
        location, _, table = text.partition(_TABLE_MARK)
        if _PASSWORD.search(location):
            words = "a password does not belong into an address, where others see it: set PGPASSWORD or use ~/.pgpass"
            raise InputError(words, code="password_in_address")
        return Address(text, location, table or None, "postgresql")
    versioned = _VERSION.match(text)
    if versioned is not None and is_delta_folder(versioned[1]):
        return Address(text, _local(versioned[1]), kind="delta", version=versioned[2])
    query = _QUERY.fullmatch(text)
    path, mark, table = text.rpartition(_TABLE_MARK) if query is None else (query[1], _TABLE_MARK, query[2])
    if mark:
        return Address(text, _local(path), table)
    return Address(text, _local(text))


def is_delta_folder(path: str) -> bool:
    """Whether a local folder is a Delta table."""
    return not is_url(path) and Path(_local(path), "_delta_log").is_dir()


def is_of_catalog(given: Any) -> bool:
    """Whether an input is a table of a Spark catalog, which only Spark's tasks read."""
    return isinstance(given, str) and given.startswith("spark:") and parse_address(given).kind == "spark"


def unsupported(text: str, scheme: str) -> InputError:
    """The error for an address that no format serves."""
    hint = {
        "hdfs": "copy the files to a path or an object store that this machine sees",
        "mysql": "export the table, or hand it over as a Spark or Arrow object",
    }.get(scheme, _SERVED)
    shown = without_password(text)
    words = f"{shown}: addresses of {scheme} are not served: {hint}"
    return InputError(words, code="unsupported_address", path=shown)


def without_password(text: str) -> str:
    """An address as messages and records show it."""
    return _PASSWORD.sub(r"//\1:***@", text)


def _local(path: str) -> str:
    return path.removeprefix("file://")


# Files.


@dataclass(frozen=True, slots=True)
class InputFile:
    """A plain file of an input, its name for the user, and its state when it was opened."""

    path: str
    name: str
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: StrPath, name: str) -> InputFile:
        with io_errors(name):
            status = os.stat(path)
        return cls(os.fspath(path), name, status.st_size, status.st_mtime_ns)

    def open(self, *, buffered: bool = True) -> BinaryIO:
        return open(self.path, "rb", buffering=-1 if buffered else 0)

    def for_arrow(self) -> Any:
        """The argument for Arrow's readers; with a path they read without Python."""
        return self.path

    def check_unchanged(self) -> None:
        """Raise if the file has changed since it was opened."""
        now = InputFile.of(self.path, self.name)
        if (now.size, now.modified_ns) != (self.size, self.modified_ns):
            words = f"{self.name} changed while it was being read: run again when nobody writes to it"
            raise InputError(words, code="file_changed", path=self.name)

    def with_absolute_path(self) -> InputFile:
        """The same file for a process in another folder."""
        return replace(self, path=os.path.abspath(self.path))


def known_suffix(name: str) -> str:
    """The suffix of a name, without that of a compression."""
    path = Path(name.lower())
    return path.with_suffix("").suffix if path.suffix in _COMPRESSED_SUFFIXES else path.suffix


@dataclass(frozen=True, slots=True)
class StoredFile(InputFile):
    """An object and its ETag; every read requests that version."""

    etag: str = ""

    @classmethod
    def at(cls, url: str) -> StoredFile:
        found = core.stat_object(url)
        return cls(url, url, found.size, 0, found.etag)

    @property
    def version(self) -> ObjectVersion:
        return ObjectVersion(self.path, self.size, self.etag)

    def open(self, *, buffered: bool = True) -> BinaryIO:
        return self.version.open(buffered=buffered)

    def for_arrow(self) -> Any:
        """A stream: Arrow's own file systems decode the names of objects."""
        return self.open()

    def check_unchanged(self) -> None:
        if core.stat_object(self.path).etag != self.etag:
            raise core.changed(self.path)

    def with_absolute_path(self) -> StoredFile:
        """A URL is the same everywhere."""
        return self

    def read_range(self, start: int, end: int) -> bytes:
        """One request, which fails if the object was replaced."""
        return self.version.read_range(start, end)


def noted_file(path: str) -> InputFile:
    """A local file or an object in its current state."""
    return StoredFile.at(path) if is_url(path) else InputFile.of(path, path)


def list_urls(url: str) -> list[str]:
    """The objects of a folder (`/` at the end), of a glob, or the one object, in the order of their names."""
    if url.endswith("/"):
        return core.list_objects(url)
    pattern = core.located(url)[1]
    if not any(letter in pattern for letter in _GLOB_LETTERS):
        return [url]
    fixed = pattern[: min(pattern.find(letter) for letter in _GLOB_LETTERS if letter in pattern)].rpartition("/")[0]
    root = url[: len(url) - len(pattern)]
    depth = pattern.count("/")
    keys = [found[len(root) :] for found in core.list_objects(f"{root}{fixed}/" if fixed else root)]
    if pattern in keys:  # a name may contain the letters of a glob, as in local paths
        return [url]
    return sorted(root + key for key in keys if key.count("/") == depth and fnmatch.fnmatchcase(key, pattern))


def copied_to(path: str, place: Location, name: str) -> str:
    """The location of a copy of a file in a store."""
    target = place / f"{os.urandom(8).hex()}-{name}"
    with open(path, "rb") as stream, atomic_write(target) as out:
        shutil.copyfileobj(stream, out, 4 << 20)
    return str(target)


def stored_copy(rewritten: Any, source: Any, place: Location) -> Any:
    """A source with its rewritten files copied to a store, so that every machine can read them."""
    files = []
    for before, after in zip(source.files, rewritten.files, strict=True):
        if after == before:
            files.append(after)
            continue
        target = copied_to(after.path, place, "rewritten.csv")
        files.append(replace(StoredFile.at(target), name=after.name))
    return replace(rewritten, files=tuple(files))
