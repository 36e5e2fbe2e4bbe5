"""Declared types for columns that come without any, such as those of CSV files.

A type is only inferred when no value loses anything by it: every text must be how its number is printed.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow.compute as pc

from driftline.changesets.format import TAG_INTEGER, TAG_NULL, TAG_REAL, TAG_TEXT
from driftline.changesets.vectors import Mask, Vector

_EMPTY = "^$"
_INTEGER = r"^(?:0|-?[1-9][0-9]{0,17})$"
_DECIMAL = r"^-?(?:0|[1-9][0-9]{0,8})\.[0-9]{0,5}[1-9]$"  # few digits: read and printed again they are the same


class TypeVotes(NamedTuple):
    """What the values of a column are like; votes of parts of a column are joined with `|`."""

    integers: bool = False
    reals: bool = False
    others: bool = False

    def __or__(self, other: TypeVotes) -> TypeVotes:
        return TypeVotes(*(one or two for one, two in zip(self, other, strict=True)))

    def declared_type(self) -> str:
        """The type that loses nothing."""
        if self.others or not (self.integers or self.reals):
            return "TEXT"
        if not self.reals:
            return "INTEGER"
        return "NUMERIC" if self.integers else "REAL"


def inferred_type(vector: Vector) -> str:
    """INTEGER, REAL, NUMERIC or TEXT for a column's values; empty texts and NULLs fit everywhere.

    >>> from driftline.changesets.vectors import from_values
    >>> [inferred_type(from_values(values)) for values in (["1", "-20", ""], ["1.5"], ["1", "1.5"], ["007"], ["1.50"])]
    ['INTEGER', 'REAL', 'NUMERIC', 'TEXT', 'TEXT']
    """
    return type_votes(vector).declared_type()


def type_votes(vector: Vector) -> TypeVotes:
    """The votes of a column's values."""
    integers = vector.has_tag(TAG_INTEGER) | _matching(vector, _INTEGER)
    reals = vector.has_tag(TAG_REAL) | _matching(vector, _DECIMAL)
    abstaining = vector.has_tag(TAG_NULL) | _matching(vector, _EMPTY)
    return TypeVotes(bool(integers.any()), bool(reals.any()), not bool((integers | reals | abstaining).all()))


def _matching(vector: Vector, pattern: str) -> Mask:
    texts = vector.has_tag(TAG_TEXT)
    if vector.data is None:
        return texts
    found: Mask = pc.match_substring_regex(vector.data, pattern).to_numpy(zero_copy_only=False)
    return texts & found
