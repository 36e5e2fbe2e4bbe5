"""Declared types for columns that come without any, such as those of CSV files.

A type is only inferred when no value loses anything by it: every text must be how its number is printed.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from driftline.changesets.format import TAG_INTEGER, TAG_NULL, TAG_REAL, TAG_TEXT
from driftline.changesets.vectors import Mask, Vector

_INTEGER = r"^(?:0|-?[1-9][0-9]{0,17})$"
_DECIMAL = r"^-?(?:0|[1-9][0-9]{0,8})\.[0-9]{0,5}[1-9]$"  # few digits: read and printed again they are the same


def inferred_type(vector: Vector) -> str:
    """INTEGER, REAL, NUMERIC or TEXT for a column's values; empty texts and NULLs fit everywhere.

    >>> from driftline.changesets.vectors import from_values
    >>> [inferred_type(from_values(values)) for values in (["1", "-20", ""], ["1.5"], ["1", "1.5"], ["007"], ["1.50"])]
    ['INTEGER', 'REAL', 'NUMERIC', 'TEXT', 'TEXT']
    """
    texts = vector.has_tag(TAG_TEXT)
    given = np.asarray(pc.binary_length(vector.data)) > 0 if vector.data is not None else texts
    integers = vector.has_tag(TAG_INTEGER) | _matching(vector, _INTEGER)
    reals = vector.has_tag(TAG_REAL) | _matching(vector, _DECIMAL)
    open_to_all = vector.has_tag(TAG_NULL) | (texts & ~given)
    if open_to_all.all() or not (integers | reals | open_to_all).all():
        return "TEXT"
    if not reals.any():
        return "INTEGER"
    return "NUMERIC" if integers.any() else "REAL"


def _matching(vector: Vector, pattern: str) -> Mask:
    texts = vector.has_tag(TAG_TEXT)
    if vector.data is None:
        return texts
    found: Mask = pc.match_substring_regex(vector.data, pattern).to_numpy(zero_copy_only=False)
    return texts & found
