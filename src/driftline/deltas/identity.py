"""Delta ids: SHA-256 over the canonical JSON of who, when, where and what.

The text of ordinary content is put together from cached pieces; `canonical_json` decides wherever a piece is not
obviously the same. A property test holds the two together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from driftline.core._json import canonical_json
from driftline.deltas.column_delta import ColumnDelta

_MAX_EXACT_INTEGER = 1 << 53


ColumnEntry = ColumnDelta | Mapping[str, Any]


def delta_id(*, client_id: str, hlc: int | str, table: str, row_id: str, columns: Iterable[ColumnEntry]) -> str:
    """The id of a delta: equal content, equal id. It hashes what it is given and validates nothing.

    >>> delta_id(client_id="c", hlc=1, table="t", row_id="r", columns=[])[:16]
    '2dcebce880c5d195'
    """
    entries: Sequence[ColumnEntry] = columns if isinstance(columns, list | tuple) else list(columns)
    return hashlib.sha256(hash_input(client_id, hlc, table, row_id, columns_text(entries))).hexdigest()


def hash_input(client_id: str, hlc: int | str, table: str, row_id: str, columns_json: str) -> bytes:
    """The bytes that a delta id hashes, given the canonical text of its columns."""
    text = (
        f'{{"clientId":{_repeated_text(client_id)},"columns":{columns_json},"hlc":"{hlc}",'
        f'"rowId":{encode_basestring(row_id)},"table":{_repeated_text(table)}}}'
    )
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates are escaped, pairs are joined
        return canonical_json_of(client_id, hlc, table, row_id, columns_json)


def canonical_json_of(client_id: str, hlc: int | str, table: str, row_id: str, columns_json: str) -> bytes:
    """The hash input by the general rule alone."""
    names = map(canonical_json, (client_id, str(hlc), row_id, table))
    client, hlc, row, table = names
    text = f'{{"clientId":{client},"columns":{columns_json},"hlc":{hlc},"rowId":{row},"table":{table}}}'
    return text.encode()


def columns_text(columns: Sequence[ColumnEntry]) -> str:
    """The canonical JSON of a delta's columns, in their order, each entry whole."""
    parts = []
    for entry in columns:
        if type(entry) is ColumnDelta:
            value = entry.value
            write = _WRITERS.get(type(value), canonical_json)
            parts.append(f"{_entry_start(entry.column)}{write(value)}}}")
        else:
            parts.append(canonical_json(entry))
    text = f"[{','.join(parts)}]"
    return text if text.isascii() or _is_encodable(text) else _general_columns_text(columns)


def _general_columns_text(columns: Sequence[ColumnEntry]) -> str:
    entries = [
        {"column": entry.column, "value": entry.value} if isinstance(entry, ColumnDelta) else entry for entry in columns
    ]
    return canonical_json(entries)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@lru_cache(maxsize=4096)
def _entry_start(column: str) -> str:
    return f'{{"column":{encode_basestring(column)},"value":'


@lru_cache(maxsize=4096)
def _repeated_text(text: str) -> str:
    return encode_basestring(text)


def _integer_text(value: int) -> str:
    if -_MAX_EXACT_INTEGER <= value <= _MAX_EXACT_INTEGER:
        return repr(value)
    return canonical_json(value)


def _float_text(value: float) -> str:
    # Between 1e-4 and 1e16 Python and JavaScript print the same shortest digits, but for a trailing ".0".
    text = repr(value)
    if "e" in text or "n" in text or value == 0:
        return canonical_json(value)
    return text[:-2] if text.endswith(".0") else text


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring,
    int: _integer_text,
    float: _float_text,
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
}
