"""Rows of the files to look into, bucket after bucket: in memory for a few files, on disk for many.

A renamed folder can bring every chunk of a large repository into the diff. Buckets hold files that are neighbours in
the order of events, so that one bucket of either side is in memory at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from driftline.codeindex.json_values import compact_json
from driftline.codeindex.storage import parse_json

FILES_PER_BUCKET = 500

_BUFFERED_BYTES = 16 << 20


class Spool(Protocol):
    """Keeps records by bucket and gives them back once."""

    def add(self, bucket: int, tag: str, key: Any, value: Any) -> None:
        """Keep a record."""

    def take(self, bucket: int) -> Iterator[tuple[str, Any, Any]]:
        """The records of a bucket, in the order in which they were added."""


class MemorySpool:
    """Records as they are."""

    def __init__(self) -> None:
        self._records: dict[int, list[tuple[str, Any, Any]]] = defaultdict(list)

    def add(self, bucket: int, tag: str, key: Any, value: Any) -> None:
        """Keep a record."""
        self._records[bucket].append((tag, key, value))

    def take(self, bucket: int) -> Iterator[tuple[str, Any, Any]]:
        """The records of a bucket."""
        return iter(self._records.pop(bucket, []))


class DiskSpool:
    """Records as lines of JSON, a file for each bucket; only a few megabytes wait in memory to be written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waiting: dict[int, list[bytes]] = defaultdict(list)
        self._waiting_bytes = 0

    def add(self, bucket: int, tag: str, key: Any, value: Any) -> None:
        """Keep a record."""
        line = compact_json([tag, key, value]) + b"\n"
        self._waiting[bucket].append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > _BUFFERED_BYTES:
            self._write_waiting()

    def take(self, bucket: int) -> Iterator[tuple[str, Any, Any]]:
        """The records of a bucket."""
        self._write_waiting()
        path = self._path(bucket)
        if not path.exists():
            return
        with open(path, "rb") as lines:
            for line in lines:
                tag, key, value = parse_json(line, "a spooled row")
                yield tag, key, value
        path.unlink()

    def _write_waiting(self) -> None:
        for bucket, lines in self._waiting.items():
            with open(self._path(bucket), "ab") as out:
                out.writelines(lines)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _path(self, bucket: int) -> Path:
        return self._directory / f"{bucket}.jsonl"


@contextmanager
def open_spools(files: int) -> Iterator[tuple[Spool, Spool]]:
    """A spool for each side, of the kind that suits this many files."""
    if files <= FILES_PER_BUCKET:
        yield MemorySpool(), MemorySpool()
        return
    with (
        TemporaryDirectory(prefix="driftline-index-") as before,
        TemporaryDirectory(prefix="driftline-index-") as after,
    ):
        yield DiskSpool(Path(before)), DiskSpool(Path(after))
