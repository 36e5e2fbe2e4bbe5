"""Ordered output: tasks write part files under names of their own, the driver joins those that were handed in.

A task that Spark runs twice writes two files; only the file whose description reaches the driver counts.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from driftline.errors import StorageError
from driftline.files import explain_io_errors

Write = Callable[[bytes | memoryview], object]

_COPY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class OrderedPart:
    """A finished part of the output; parts follow each other by (`range`, `start`)."""

    range: int
    path: str
    start: int
    size: int


def write_part(folder: str, range_number: int, pieces: Iterable[bytes | memoryview]) -> OrderedPart:
    """Write one range of the output into a new file of a folder that the driver sees too."""
    path = os.path.join(folder, f"range-{range_number:06d}-{secrets.token_hex(8)}")
    size = 0
    with explain_io_errors(path), open(path, "xb", buffering=0) as out:
        for piece in pieces:
            size += _write_all(out, piece)
    return OrderedPart(range_number, path, 0, size)


def _write_all(out: Any, piece: bytes | memoryview) -> int:
    view = memoryview(piece).cast("B")
    written = 0
    while written < len(view):
        written += out.write(view[written:])
    return written


def join_parts(parts: Iterable[OrderedPart], write: Write) -> None:
    """Stream the parts into one output, in order."""
    for part in sorted(parts, key=lambda one: (one.range, one.start)):
        with explain_io_errors(part.path), open(part.path, "rb", buffering=0) as stream:
            stream.seek(part.start)
            _copy(stream, part, write)


def _copy(stream: Any, part: OrderedPart, write: Write) -> None:
    left = part.size
    while left:
        data = stream.read(min(left, _COPY_BYTES))
        if not data:
            raise StorageError(f"a part of the output vanished or was cut short: {part.path}", code="part_lost")
        write(data)
        left -= len(data)
