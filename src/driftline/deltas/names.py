"""What tables, gateways and columns may be called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from driftline.errors import DeltaError

MAX_COLUMN_NAME = 255

_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_GATEWAY_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_CONTROL_OR_SURROGATE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_table_name(name: str) -> str:
    """The name, or an error that says what table names look like."""
    if not isinstance(name, str) or not _is_table_name(name):
        raise DeltaError(
            f"table name {shorten(name)} is not valid: a letter, then up to 63 letters, digits or _", field="table"
        )
    return name


@lru_cache(maxsize=4096)
def _is_table_name(name: str) -> bool:
    return _TABLE_NAME.fullmatch(name) is not None


def check_gateway_id(name: str) -> str:
    """The id, or an error that says what gateway ids look like."""
    if not isinstance(name, str) or not _GATEWAY_ID.fullmatch(name):
        raise DeltaError(
            f"gateway id {shorten(name)} is not valid: a letter, then up to 63 letters, digits, _ or -", field="gateway"
        )
    return name


def check_column_name(name: str) -> str:
    """The name, or an error that says what is wrong with it."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_COLUMN_NAME:
        raise DeltaError(
            f"column name {shorten(name)} is not valid: 1 to {MAX_COLUMN_NAME} characters", field="columns"
        )
    if name.startswith("_"):
        raise DeltaError(f"column name {shorten(name)} is not valid: it begins with _", field="columns")
    if _CONTROL_OR_SURROGATE.search(name):
        raise DeltaError(
            f"column name {shorten(name)} is not valid: control characters and lone surrogates are not allowed",
            field="columns",
        )
    return name


# A stream of deltas repeats a few sets of columns, so each set is checked once.
@lru_cache(maxsize=4096)
def check_column_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, each valid and unique ignoring case."""
    seen: dict[str, str] = {}
    for name in names:
        folded = check_column_name(name).casefold()
        if folded in seen:
            raise DeltaError(_twice_message(seen[folded], name), field="columns")
        seen[folded] = name
    return names


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that appears a second time."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def shorten(value: object, limit: int = 60) -> str:
    """A value for an error message, cut to a bearable length."""
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _twice_message(first: str, second: str) -> str:
    if first == second:
        return f"column {shorten(first)} is named twice"
    return f"columns {shorten(first)} and {shorten(second)} differ only in case"
