"""Text to a binary stream that belongs to somebody else, and cells as text."""

from __future__ import annotations

import json
from typing import BinaryIO, NamedTuple

_BLOCK_CHARACTERS = 1 << 16


class Heading(NamedTuple):
    """What stands above a view for people: what was compared, by what rows meet, which rules held, and when."""

    compared: str = ""
    how: str = ""
    rules: str = ""
    when: str = ""


class TextWriter:
    """Writes UTF-8 in blocks. Unlike `io.TextIOWrapper` it never closes the stream, nor tries again what failed."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._parts: list[str] = []
        self._held = 0

    def write(self, text: str) -> int:
        """Take some text."""
        self._parts.append(text)
        self._held += len(text)
        if self._held > _BLOCK_CHARACTERS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Pass on what was taken; half a character has no UTF-8 and is written as an escape."""
        text, self._parts, self._held = "".join(self._parts), [], 0
        self._out.write(text.encode("utf-8", "backslashreplace"))


def cell_text(value: object) -> str:
    """Text as it is, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
