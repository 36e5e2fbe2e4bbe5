"""The folder that the console shows: its tables and files, and no path outside it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from driftline.errors import InputError
from driftline.sources import is_delta_folder

HIDDEN_FOLDER = ".driftline"  # where the console keeps results and uploads
_TABLE_ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".json", ".db", ".sqlite", ".sqlite3")
_EVENTS_START = b'{"type":"schema","columns_a":'
# A version of a Delta table: a number or a time, nothing that a path could be made of.
_VERSION = re.compile(r"(.+)@(\d+|[\d-]{10}[T ][\d:.]+(?:Z|[+-][\d:]+))")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ORDER = {"before": 0, "old": 0, "previous": 0, "after": 1, "new": 1, "current": 1, "latest": 1}
_ORDER |= {day: number for number, day in enumerate(_DAYS)}
_VARIANT = re.compile(rf"\d+|(?<![a-z])(?:{'|'.join(_ORDER)})(?![a-z])", re.IGNORECASE)
_MOST_PAIRS = 6
_MOST_FILES = 20_000
_DEEPEST = 5


@dataclass(frozen=True)
class FolderEntry:
    """One table that can be chosen: its name relative to the folder, its size and when it was changed."""

    name: str
    size: int
    modified: float


class Folder:
    """A folder; every name that a request gives is looked up below it and nowhere else."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve(strict=True)
        self.hidden = self.root / HIDDEN_FOLDER

    def path_of(self, name: str) -> Path:
        """The existing path of a name; a name that leads out of the folder, also through a link, does not exist."""
        refused = InputError(f"there is no {name!r} in this folder", code="not_found")
        if not name or "\0" in name or Path(name).is_absolute():
            raise refused
        try:
            path = (self.root / name).resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise refused from error
        # A pipe or a device could be waited for without end.
        if not path.is_relative_to(self.root) or not (path.is_file() or path.is_dir()):
            raise refused
        return path

    def new_path(self, name: str) -> Path:
        """The path of a file that exists or may be created: in an existing folder, and not behind a link."""
        path = Path(name)
        parent = self.path_of(str(path.parent)) if path.parent != Path() else self.root
        if not path.name or path.name in (".", "..") or "\0" in name or path.is_absolute():
            raise InputError(f"{name!r} is no name for a file in this folder", code="not_found")
        found = parent / path.name
        if found.is_symlink() or found.is_dir():
            raise InputError(f"{name!r} is no plain file", code="not_found")
        return found

    def table_address(self, name: str) -> str:
        """What `driftline diff` takes: a path, with `::TABLE` behind a database or `@VERSION` behind a Delta table."""
        path, rest = self._table_path(name)
        if path.is_dir():
            self.refuse_links_out(path, name)
            named = _files_of_delta(f"{path}{rest}") if is_delta_folder(str(path)) else ()
            if not all(Path(file).resolve().is_relative_to(self.root) for file in named):
                raise InputError(f"{name} leads out of this folder", code="not_found")
        return f"{path}{rest}"

    def table_size(self, name: str) -> int:
        path, _ = self._table_path(name)
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        return sum(each.stat().st_size for each in files)

    def _table_path(self, name: str) -> tuple[Path, str]:
        try:
            return self.path_of(name), ""
        except InputError:
            file, mark, table = name.rpartition("::")
            versioned = _VERSION.fullmatch(name)
            if mark and table:
                return self.path_of(file), f"::{table}"
            if versioned and is_delta_folder(str(self.path_of(versioned[1]))):
                return self.path_of(versioned[1]), f"@{versioned[2]}"
            raise

    def refuse_links_out(self, folder: Path, name: str) -> None:
        """A folder that is read as a whole may hold no link that leads elsewhere."""
        for parent, folders, files in os.walk(folder):
            links = (Path(parent, each) for each in (*folders, *files) if os.path.islink(os.path.join(parent, each)))
            if not all(link.resolve().is_relative_to(self.root) for link in links):
                raise InputError(f"{name} leads out of this folder", code="not_found")

    def relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def tables(self) -> list[FolderEntry]:
        """Tables that are no results, by name; SQLite databases table by table, folders of part files as a whole."""
        found = []
        parts: dict[Path, list[tuple[str, os.stat_result]]] = {}
        for path, known in self._files(_TABLE_ENDINGS):
            if delta := next((folder for folder in path.parents if is_delta_folder(str(folder))), None):
                parts.setdefault(delta, []).append(("delta", known))
                continue
            if _ending(path) == ".jsonl" and self.begins_as_events(self.relative(path)):
                continue
            parts.setdefault(path.parent, []).append((_ending(path), known))
            for name in _tables_of(path, self.relative(path)):
                found.append(FolderEntry(name, known.st_size, known.st_mtime))
        for folder, files in parts.items():
            if folder != self.root and len({ending for ending, _ in files}) == 1:
                sizes, times = [each.st_size for _, each in files], [each.st_mtime for _, each in files]
                found.append(FolderEntry(f"{self.relative(folder)}/", sum(sizes), max(times)))
        return sorted(found, key=lambda entry: entry.name)

    def events_files(self, most: int = 20) -> list[FolderEntry]:
        """Results that commands wrote into the folder, newest first."""
        found = [
            FolderEntry(self.relative(path), known.st_size, known.st_mtime) for path, known in self._files((".jsonl",))
        ]
        newest = sorted(found, key=lambda entry: -entry.modified)[: most * 10]
        return [entry for entry in newest if self.begins_as_events(entry.name)][:most]

    def begins_as_events(self, name: str) -> bool:
        """Whether a file looks like the events of a table diff."""
        return self.head(name, len(_EVENTS_START)) == _EVENTS_START

    def head(self, name: str, size: int = 1 << 16) -> bytes:
        """The first bytes of a file; none of one that cannot be read."""
        try:
            with (self.root / name).open("rb") as file:
                return file.read(size)
        except OSError:
            return b""

    def names(self, endings: tuple[str, ...], most: int = 500) -> list[str]:
        """Files with one of the endings, by name."""
        return sorted(self.relative(path) for path, _ in self._files(endings) if path.name.endswith(endings))[:most]

    def find(self, file_name: str) -> list[Path]:
        """All files of that very name, in order."""
        return sorted(path for path, _ in self._files((file_name,)) if path.name == file_name)

    def folders(self, is_selected: Callable[[Path], bool], deepest: int) -> list[str]:
        """Folders that are selected, but none inside of such a one, and none that is hidden or behind a link."""
        found = []
        for folder, inner, _ in os.walk(self.root):
            path = Path(folder)
            if is_selected(path):
                found.append(self.relative(path))
            stops = found[-1:] == [self.relative(path)] or len(path.relative_to(self.root).parts) >= deepest
            inner[:] = [] if stops else sorted(name for name in inner if not name.startswith("."))
        return found

    def _files(self, endings: tuple[str, ...]) -> Iterator[tuple[Path, os.stat_result]]:
        """Regular files below the folder, not hidden and not behind a link, down to a bounded depth."""
        left = _MOST_FILES
        for folder, names, files in os.walk(self.root):
            depth = len(Path(folder).relative_to(self.root).parts)
            names[:] = [] if depth >= _DEEPEST else sorted(name for name in names if not name.startswith((".", "_")))
            for name in sorted(files):
                left -= 1
                if left < 0:
                    return
                plain = name.removesuffix(".gz").removesuffix(".zst").lower()
                path = Path(folder, name)
                if name.startswith(".") or path.is_symlink() or not plain.endswith(endings):
                    continue
                try:
                    known = path.stat()
                except OSError:
                    continue  # gone while we looked
                if stat.S_ISREG(known.st_mode):
                    yield path, known


def newest_pairs(tables: list[FolderEntry], most: int = _MOST_PAIRS) -> list[tuple[FolderEntry, FolderEntry]]:
    """The two newest versions of each name, outer folders first, then newest; versions differ in numbers or words.

    >>> entries = [FolderEntry(f"day-{day}/users.csv", 1, 0.0) for day in (9, 10, 11)]
    >>> [(a.name, b.name) for a, b in newest_pairs([*entries, FolderEntry("notes.csv", 1, 0.0)])]
    [('day-10/users.csv', 'day-11/users.csv')]
    """
    versions: dict[str, list[FolderEntry]] = {}
    for entry in tables:
        versions.setdefault(_VARIANT.sub("*", entry.name), []).append(entry)
    pairs = [sorted(found, key=_version)[-2:] for found in versions.values() if len(found) > 1]
    order = sorted(pairs, key=lambda pair: (pair[1].name.count("/"), -pair[1].modified, pair[1].name))
    return [(a, b) for a, b in order[:most]]


def _version(entry: FolderEntry) -> tuple[list[int], float]:
    words = _VARIANT.findall(entry.name.lower())
    return [_ORDER[word] if word in _ORDER else int(word) for word in words], entry.modified


def _files_of_delta(address: str) -> list[str]:
    from driftline.core import Workspace
    from driftline.sources import open_source

    with Workspace() as scratch:
        return [file.path for file in open_source(address, scratch).files]


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz").removesuffix(".zst")).suffix.lower()


def _tables_of(path: Path, name: str) -> list[str]:
    if path.suffix.lower() not in (".db", ".sqlite", ".sqlite3"):
        return [name]
    import sqlite3

    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name LIMIT 200"
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=0.2)
        try:
            return [f"{name}::{table}" for (table,) in connection.execute(query)]
        finally:
            connection.close()
    except sqlite3.Error:
        return []
