"""Headers: unique names, the same on both sides, and the key columns among them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from driftline.errors import TableError
from driftline.tables.options import DiffOptions


def check_headers(header_a: Sequence[str], header_b: Sequence[str], options: DiffOptions) -> None:
    """Raise the first header error, in the ruled order: duplicates in A, in B, mismatch, missing key column."""
    _check_unique(header_a, "A")
    _check_unique(header_b, "B")
    _check_match(header_a, header_b, options)
    for name in options.key_columns:
        for side, header in (("A", header_a), ("B", header_b)):
            if name not in header:
                raise TableError(
                    f"Missing key column {_quoted(name)} in {side}", code="missing_key_column", side=side, column=name
                )


def _check_unique(header: Sequence[str], side: str) -> None:
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise TableError(
                f"Duplicate column name in {side}: {_quoted(name)}",
                code="duplicate_column_name",
                side=side,
                column=name,
            )
        seen.add(name)


def _check_match(header_a: Sequence[str], header_b: Sequence[str], options: DiffOptions) -> None:
    in_sorted_mode = options.header_mode == "sorted"
    a, b = (sorted(header_a), sorted(header_b)) if in_sorted_mode else (list(header_a), list(header_b))
    if a != b:
        kind = "Header mismatch (sorted mode)" if in_sorted_mode else "Header mismatch"
        raise TableError(f"{kind}: A has {_listed(a)}, B has {_listed(b)}", code="header_mismatch")


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _listed(names: Sequence[str]) -> str:
    return json.dumps(names, ensure_ascii=False)
