"""Operations as people and programs read them: an aligned table per table, or a JSON object per line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from driftline.changesets.format import UNDEFINED, Field, Row
from driftline.changesets.operations import Operation
from driftline.changesets.sql_text import literal
from driftline.changesets.table import Table

_SIGNS = {"insert": "+", "update": "~", "delete": "-"}
_WIDEST = 60  # characters of a cell; longer ones are cut
_BLOCK = 1000  # rows that are aligned together, so that large files are shown while they are read


def text_lines(operations: Iterable[Operation]) -> Iterator[str]:
    """A heading per table, then a line per operation with its columns below their names."""
    for name, group in groupby(operations, key=lambda operation: operation.table.name):
        members = list(group)
        yield f"table {name} ({len(members)} {'change' if len(members) == 1 else 'changes'})"
        yield from _aligned(members[0].table, members)


def _aligned(table: Table, operations: Sequence[Operation]) -> Iterator[str]:
    names = [f"{name}*" if flag else name for name, flag in zip(table.column_names, table.key_flags, strict=True)]
    for start in range(0, len(operations), _BLOCK):
        rows = [["", *names]] if start == 0 else []
        rows += [_cells(operation) for operation in operations[start : start + _BLOCK]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cells(operation: Operation) -> list[str]:
    sign = _SIGNS[operation.kind] + (" (indirect)" if operation.indirect else "")
    old, new = _whole(operation, operation.old), _whole(operation, operation.new)
    return [sign, *(_cut(_cell(before, after)) for before, after in zip(old, new, strict=True))]


def _whole(operation: Operation, row: Row | None) -> Row:
    return (UNDEFINED,) * operation.table.width if row is None else row


def _cell(old: Field, new: Field) -> str:
    if new is UNDEFINED:
        return "" if old is UNDEFINED else literal(old)
    return literal(new) if old is UNDEFINED else f"{literal(old)} → {literal(new)}"


def _cut(text: str) -> str:
    visible = text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return visible if len(visible) <= _WIDEST else visible[: _WIDEST - 1] + "…"


def json_lines(operations: Iterable[Operation]) -> Iterator[str]:
    """One JSON object per operation; blobs are `{"blob": hex}`, infinities `{"real": text}`."""
    for operation in operations:
        record: dict[str, Any] = {
            "table": operation.table.name,
            "op": operation.kind,
            "indirect": bool(operation.indirect),
            "old": _named_values(operation.table, operation.old),
            "new": _named_values(operation.table, operation.new),
        }
        yield json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _named_values(table: Table, row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        name: _json_value(value) for name, value in zip(table.column_names, row, strict=True) if value is not UNDEFINED
    }


def _json_value(value: Field) -> Any:
    if isinstance(value, bytes):
        return {"blob": value.hex()}
    if isinstance(value, float) and math.isinf(value):
        return {"real": "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, str):
        # Bytes that are not UTF-8 are shown as replacement characters.
        return value.encode(errors="surrogateescape").decode(errors="replace")
    return value
