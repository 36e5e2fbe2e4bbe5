"""The rules that say what is compared: one small function each.

They are written with plain operators, so the same function serves single strings and whole columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from driftline.tables.options import DiffOptions

Cells = TypeVar("Cells")


def comparison_columns(header_a: Sequence[str], options: DiffOptions) -> list[str]:
    """Column selection: the compared columns, in comparison order (A's header order, or sorted by name)."""
    return sorted(header_a) if options.header_mode == "sorted" else list(header_a)


def key_parts(row: Mapping[str, Cells], options: DiffOptions) -> tuple[Cells, ...]:
    """Key building: the cells (or columns) that make up the key, in the order of the key columns."""
    return tuple(row[name] for name in options.key_columns)


def cells_differ(before: Any, after: Any) -> Any:
    """Cell equality: strict equality of values; a truth value for cells, a mask for columns."""
    return before != after


def key_cell_is_missing(cell: Any, *, typed: bool = False) -> Any:
    """Whether a key cell counts as missing: the empty string, or null in a typed source; white space is a value."""
    if typed:
        return (cell == "null") | (cell == '""')
    return cell == ""
