"""The options of a diff, checked and put into their canonical form.

>>> DiffOptions.of(modes="prose, code code", max_events=7.9).modes
('code', 'prose')
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from driftline.errors import IndexRefError

MODES = ("code", "prose", "extracted-prose", "records")

_BETWEEN_MODES = re.compile(r"[,\s]+")
_PLAIN_WORD = re.compile(r"[\w.-]{1,40}")


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What to compare and how much of it."""

    modes: tuple[str, ...] = ("code",)
    max_changed_files: int = 200
    max_chunks_per_file: int = 500
    max_events: int = 20000
    include_relations: bool = True
    detect_renames: bool = True

    @classmethod
    def of(
        cls,
        modes: str | Iterable[str] = ("code",),
        max_changed_files: Any = 200,
        max_chunks_per_file: Any = 500,
        max_events: Any = 20000,
        include_relations: bool = True,
        detect_renames: bool = True,
    ) -> DiffOptions:
        """Options from what a user gave."""
        return cls(
            parse_modes(modes),
            whole_number(max_changed_files, "max-changed-files"),
            whole_number(max_chunks_per_file, "max-chunks-per-file"),
            whole_number(max_events, "max-events"),
            bool(include_relations),
            bool(detect_renames),
        )

    def identity(self) -> dict[str, Any]:
        """The options that are part of a diff's identity; `max_events` only cuts the output."""
        return {
            "detectRenames": self.detect_renames,
            "includeRelations": self.include_relations,
            "maxChangedFiles": self.max_changed_files,
            "maxChunksPerFile": self.max_chunks_per_file,
        }


def parse_modes(modes: str | Iterable[str]) -> tuple[str, ...]:
    """Modes from a list or a text split on commas and blanks, in mode order and without doubles."""
    parts = [modes] if isinstance(modes, str) else list(modes)
    words = {word for part in parts for word in _BETWEEN_MODES.split(str(part)) if word}
    unknown = sorted(words.difference(MODES))
    if unknown:
        raise IndexRefError(f"unknown mode {_shown(unknown[0])}: the modes are {', '.join(MODES)}")
    if not words:
        raise IndexRefError(f"no mode given: the modes are {', '.join(MODES)}")
    return tuple(mode for mode in MODES if mode in words)


def _shown(word: str) -> str:
    """A word as messages show it: nothing that could be a path of this machine."""
    return word if _PLAIN_WORD.fullmatch(word) else "(not shown)"


def whole_number(value: Any, name: str, *, minimum: int = 1) -> int:
    """A count: rounded down and at least `minimum`.

    >>> whole_number("2.9", "n"), whole_number(-4, "n"), whole_number(0, "n", minimum=0)
    (2, 1, 0)
    """
    try:
        number = value if isinstance(value, int) else float(value)
        return max(minimum, math.floor(number))
    except (TypeError, ValueError, OverflowError):
        raise IndexRefError(f"{name} must be a number") from None
