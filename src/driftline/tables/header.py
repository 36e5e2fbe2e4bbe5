"""Headers: unique names, the same on both sides, and the key columns among them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import get_close_matches

from driftline.errors import TableError
from driftline.tables.options import DiffOptions

_OTHER_DELIMITERS = {";": ";", "\t": "tab", "|": "|", ",": ","}
_MOST_NAMES = 20


def check_headers(header_a: Sequence[str], header_b: Sequence[str], options: DiffOptions) -> None:
    """Raise the first header error, in the ruled order: duplicates in A, in B, mismatch, missing key column."""
    _check_unique(header_a, "A")
    _check_unique(header_b, "B")
    _check_match(header_a, header_b, options)
    for name in options.key_columns:
        for side, header in (("A", header_a), ("B", header_b)):
            if name not in header:
                raise TableError(
                    f"Missing key column {_quoted(name)} in {side}{_which_columns(name, header)}",
                    code="missing_key_column",
                    side=side,
                    column=name,
                )


def _which_columns(name: str, header: Sequence[str]) -> str:
    """What helps whoever named a column that is not there: another delimiter, the nearest name, or all names."""
    if len(header) == 1:
        for delimiter, option in _OTHER_DELIMITERS.items():
            if delimiter in header[0]:
                return f': its only column is {_quoted(header[0])}; for this delimiter give --delimiter "{option}"'
    near = get_close_matches(name, header, n=1)
    hint = f"; did you mean {_quoted(near[0])}?" if near else ""
    more = f" and {len(header) - _MOST_NAMES} more" if len(header) > _MOST_NAMES else ""
    return f" (columns: {', '.join(map(_quoted, header[:_MOST_NAMES]))}{more}){hint}"


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
        raise TableError(
            f"{kind}: A has {_listed(a)}, B has {_listed(b)}; {_header_difference(a, b)}", code="header_mismatch"
        )


def _header_difference(a: Sequence[str], b: Sequence[str]) -> str:
    only_a, only_b = [name for name in a if name not in b], [name for name in b if name not in a]
    if not only_a and not only_b:
        return "the same columns in another order: --header-mode sorted takes that"
    parts = [f"only in {side}: {_listed(names)}" for side, names in (("A", only_a), ("B", only_b)) if names]
    return ", ".join(parts)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _listed(names: Sequence[str]) -> str:
    return json.dumps(names, ensure_ascii=False)
