"""Lines of JSON as events: which source a message is from, and in which line something is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from driftline.changesets._cdc import dialects as debezium, maxwell, wal2json
from driftline.changesets._cdc.events import CdcEvent, Message, NumberText, cdc_error
from driftline.errors import ChangesetError, OptionError

SOURCES: dict[str, ModuleType] = {"wal2json": wal2json, "debezium": debezium, "maxwell": maxwell}


def events_of(lines: Iterable[str | bytes], source: str | None = None) -> Iterator[tuple[int, CdcEvent]]:
    """The events of messages, one a line, each with the number of its line; tombstones are passed over."""
    if source is not None and source not in SOURCES:
        raise OptionError(f"change data comes from {', '.join(SOURCES)}, not {source}")
    for number, line in enumerate(lines, 1):
        with_line = _InLine(number)
        with with_line:
            message = _decoded(line)
            if message is None:
                continue
            found = list(_module(message, source).events(message))
        for event in found:
            yield number, event


class _InLine:
    """Adds the number of a line to errors about it."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ChangesetError):
            raise ChangesetError(f"line {self._number}: {error.message}", code=error.code, line=self._number) from error


def in_line(number: int) -> _InLine:
    """Add the number of a line to errors about its message."""
    return _InLine(number)


def _decoded(line: str | bytes) -> Message | None:
    if not line.strip():
        return None
    try:
        message = json.loads(line, parse_float=NumberText, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise cdc_error("invalid_message", f"not a JSON message: {error}") from None
    if message is None:
        return None
    if not isinstance(message, dict):
        raise cdc_error("invalid_message", "a message is a JSON object")
    return message


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _module(message: Message, source: str | None) -> ModuleType:
    for name, module in SOURCES.items():
        if source in (None, name) and module.matches(message):
            return module
    raise cdc_error("unknown_message", f"not a message of {source or 'any known source: ' + ', '.join(SOURCES)}")
