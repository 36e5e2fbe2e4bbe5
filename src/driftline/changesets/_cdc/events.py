"""What all sources of change data have in common: rows that were inserted, updated or deleted, and values in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from driftline.changesets._format.encoding import MAX_INTEGER, MIN_INTEGER, Value
from driftline.core import canonical_json
from driftline.errors import ChangesetError

CdcKind = Literal["insert", "update", "delete", "truncate", "begin", "commit"]


class NumberText(str):
    """A JSON number with a fraction or an exponent, kept as its text so that no digit is lost."""

    __slots__ = ()


CdcValue = Value | NumberText
Image = dict[str, CdcValue]
Message = Mapping[str, Any]  # a parsed JSON object


@dataclass(frozen=True, slots=True)
class CdcEvent:
    """One message's news: what happened to a row of a table, or where a transaction begins or ends.

    `old` and `new` hold the columns that the message has. `is_whole` says that columns missing from `old` are known
    to be no columns at all; an image of a key alone is not whole.
    """

    kind: CdcKind
    table: str = ""
    namespace: str = ""  # the database or schema that the table is in
    old: Image | None = None
    new: Image | None = None
    is_whole: bool = True
    transaction: str | None = None


def cdc_error(code: str, text: str) -> ChangesetError:
    """An error about a message; the reader adds its line."""
    return ChangesetError(text, code=code)


def plain_json_value(value: Any) -> CdcValue:
    """A JSON value whose type is all that is known about it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict | list):
        return canonical_json(_with_floats(value))
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        return NumberText(value)
    return value  # type: ignore[no-any-return]


def _with_floats(value: object) -> Any:
    if isinstance(value, NumberText):
        return float(value)
    if isinstance(value, dict):
        return {name: _with_floats(item) for name, item in value.items()}
    return [_with_floats(item) for item in value] if isinstance(value, list) else value


def member(message: Message, name: str, kind: type | tuple[type, ...]) -> Any:
    """A member that a message must have, of the right type."""
    value = message.get(name)
    if not isinstance(value, kind):
        raise cdc_error("invalid_message", f'"{name}" is missing or is not what it should be')
    return value
