"""Files of lines cut into byte ranges that begin and end at line ends, so that tasks can read them side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from driftline.files import StrPath, explain_io_errors

BYTES_PER_RANGE = 8 << 20


@dataclass(frozen=True, slots=True)
class LineRange:
    """The bytes of a file from `start` up to `stop`; whole lines."""

    path: str
    start: int
    stop: int

    def lines(self) -> Iterator[bytes]:
        """The lines that are not blank, without their ends."""
        with explain_io_errors(self.path), open(self.path, "rb") as file:
            file.seek(self.start)
            data = file.read(self.stop - self.start)
        return (line for line in data.split(b"\n") if line.strip())

    def count(self) -> int:
        """How many lines it has."""
        with explain_io_errors(self.path), open(self.path, "rb") as file:
            file.seek(self.start)
            return file.read(self.stop - self.start).count(b"\n")


def line_ranges(path: StrPath, bytes_per_range: int = BYTES_PER_RANGE) -> list[LineRange]:
    """A file cut at the first line end after every `bytes_per_range` bytes."""
    name = os.path.abspath(path)
    ranges: list[LineRange] = []
    with explain_io_errors(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = 0
        while start < size:
            file.seek(min(start + bytes_per_range, size))
            file.readline()
            stop = min(max(file.tell(), start + 1), size)
            ranges.append(LineRange(name, start, stop))
            start = stop
    return ranges
