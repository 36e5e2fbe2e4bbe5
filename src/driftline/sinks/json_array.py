"""JSON: the events as one array, an event a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO


def write(lines: Iterable[bytes], out: BinaryIO, **settings: object) -> None:
    """An array of all events; line breaks never occur inside an event."""
    opening = b"[\n"
    for line in lines:
        out.write(opening + line.rstrip(b"\n"))
        opening = b",\n"
    out.write(b"[]\n" if opening == b"[\n" else b"\n]\n")
