"""The folder that the console shows: what lies in it, and that nobody gets out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driftline.errors import InputError

HIDDEN_FOLDER = ".driftline"  # where the console keeps results and uploads
_TABLE_ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".json", ".db", ".sqlite", ".sqlite3")
_PACKED_ENDINGS = (".gz", ".zst")
_MOST_FILES = 2000
_DEEPEST = 5


@dataclass(frozen=True)
class Entry:
    """One table that can be chosen: its name relative to the folder, its size and when it was changed."""

    name: str
    size: int
    modified: float


class Workspace:
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
        if not path.is_relative_to(self.root):
            raise refused
        return path

    def table_address(self, name: str) -> str:
        """What `driftline diff` takes for a name: a path, with `::TABLE` behind it for a table of a database."""
        file, mark, table = name.partition("::")
        return f"{self.path_of(file)}{mark}{table}"

    def relative(self, path: Path) -> str:
        """A path as it is shown: relative to the folder."""
        return path.relative_to(self.root).as_posix()

    def tables(self) -> list[Entry]:
        """What looks like a table, by name; SQLite databases table by table."""
        found = []
        for path, stat in self._files(_TABLE_ENDINGS):
            for name in _tables_of(path, self.relative(path)):
                found.append(Entry(name, stat.st_size, stat.st_mtime))
        return sorted(found, key=lambda entry: entry.name)[:_MOST_FILES]

    def find(self, file_name: str) -> list[Path]:
        """All files of that very name, newest first."""
        found = [(stat.st_mtime, path) for path, stat in self._files((file_name,)) if path.name == file_name]
        return [path for _, path in sorted(found, reverse=True)]

    def _files(self, endings: tuple[str, ...]) -> Iterator[tuple[Path, os.stat_result]]:
        """Regular files below the folder, not hidden and not behind a link, down to a bounded depth."""
        left = _MOST_FILES * 10
        for folder, names, files in os.walk(self.root):
            depth = len(Path(folder).relative_to(self.root).parts)
            names[:] = [] if depth >= _DEEPEST else sorted(name for name in names if not name.startswith("."))
            for name in sorted(files):
                left -= 1
                if left < 0:
                    return
                plain = name.removesuffix(".gz").removesuffix(".zst").lower()
                path = Path(folder, name)
                if name.startswith(".") or path.is_symlink() or not plain.endswith(endings):
                    continue
                try:
                    yield path, path.stat()
                except OSError:
                    continue  # gone while we looked


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
