"""Ordered output: tasks write part files under names of their own, the driver joins or lists those that were handed in.

A task that Spark runs twice writes two files; only the file whose description reaches the driver counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import xxhash

from driftline.core import _parts as part_folders
from driftline.core._files import explain_io_errors, open_to_read, write_all
from driftline.core._objects import ObjectPath, Place
from driftline.core._parts import Part
from driftline.errors import StorageError

Write = Callable[[bytes | memoryview], object]

_COPY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class OrderedPart:
    """A finished part of the output; parts follow each other by (`range`, `start`)."""

    range: int
    path: str
    start: int
    size: int
    checksum: str = ""

    def in_folder(self) -> Part:
        """The part as a manifest names it."""
        return Part(self.path.rpartition("/")[2], self.size, self.checksum)


def write_part(folder: Place, range_number: int, pieces: Iterable[bytes | memoryview]) -> OrderedPart:
    """Write one range of the output into a new file of a folder that the driver sees too."""
    if isinstance(folder, ObjectPath):
        part = part_folders.write_part(folder, range_number, pieces)
        return OrderedPart(range_number, f"{folder}/{part.name}", 0, part.size, part.checksum)
    path = folder / f"part-{range_number:06d}-{secrets.token_hex(8)}.jsonl"
    digest, size = xxhash.xxh3_128(), 0
    with explain_io_errors(path), open(path, "xb", buffering=0) as out:
        for piece in pieces:
            digest.update(piece)
            size += write_all(out, piece)
    return OrderedPart(range_number, str(path), 0, size, f"xxh128:{digest.hexdigest()}")


def in_order(parts: Iterable[OrderedPart]) -> list[OrderedPart]:
    """The parts as they follow each other."""
    return sorted(parts, key=lambda one: (one.range, one.start))


def join_parts(parts: Iterable[OrderedPart], write: Write) -> None:
    """Stream the parts into one output, in order."""
    for part in in_order(parts):
        with explain_io_errors(part.path), open_to_read(part.path) as stream:
            stream.seek(part.start)
            _copy(stream, part, write)


def _copy(stream: BinaryIO, part: OrderedPart, write: Write) -> None:
    left = part.size
    while left:
        data = stream.read(min(left, _COPY_BYTES))
        if not data:
            raise StorageError(f"a part of the output vanished or was cut short: {part.path}", code="part_lost")
        write(data)
        left -= len(data)


def is_in(part: OrderedPart, folder: Place) -> bool:
    """Whether a task wrote the part into this folder, and did not send it to the driver."""
    return part.path.rpartition("/")[0] == str(folder) and Path(part.path).name.startswith("part-")
