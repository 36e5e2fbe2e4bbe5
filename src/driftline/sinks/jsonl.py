"""JSONL: the stream as it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO


def write(lines: Iterable[bytes], out: BinaryIO, **settings: object) -> None:
    """One event a line."""
    out.writelines(lines)
