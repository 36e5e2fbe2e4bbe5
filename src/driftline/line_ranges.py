"""Lines cut into byte ranges that begin and end at line ends, so that tasks can read them side by side.

The lines lie in a file, an object, or a folder of ordered parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from driftline.files import AnyPath, explain_io_errors, open_to_read
from driftline.part_folders import pieces
from driftline.storage.object_path import ObjectPath

BYTES_PER_RANGE = 8 << 20


@dataclass(frozen=True, slots=True)
class LineRange:
    """The bytes of a file or object from `start` up to `stop`; whole lines."""

    path: str
    start: int
    stop: int

    def lines(self) -> Iterator[bytes]:
        """The lines that are not blank, without their ends."""
        return (line for line in self._read().split(b"\n") if line.strip())

    def count(self) -> int:
        """How many lines it has."""
        return self._read().count(b"\n")

    def _read(self) -> bytes:
        with explain_io_errors(self.path), open_to_read(self.path) as file:
            file.seek(self.start)
            return file.read(self.stop - self.start)


def line_ranges(path: AnyPath, bytes_per_range: int = BYTES_PER_RANGE) -> list[LineRange]:
    """Lines cut at the first line end after every `bytes_per_range` bytes of a file."""
    return [one for piece in pieces(path) for one in _ranges_of_file(piece, bytes_per_range)]


def _ranges_of_file(path: AnyPath, bytes_per_range: int) -> Iterator[LineRange]:
    name = path.url if isinstance(path, ObjectPath) else os.path.abspath(path)
    with explain_io_errors(path), open_to_read(path) as file:
        size = file.seek(0, os.SEEK_END)
        start = 0
        while start < size:
            file.seek(min(start + bytes_per_range, size))
            file.readline()
            stop = min(max(file.tell(), start + 1), size)
            yield LineRange(name, start, stop)
            start = stop
