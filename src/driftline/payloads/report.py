"""What a comparison answers: entries, a summary, coverage and a trace.

>>> entry = Entry(path="$.a", type="VALUE_MISMATCH")
>>> entry.path, entry["type"]
('$.a', 'VALUE_MISMATCH')
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from driftline.payloads.values import WrittenNumber, spelled


class Entry(dict[str, Any]):
    """A diff, warning or trace entry: the object that reports print, readable by attribute too."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the entry has no {name!r}") from None


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The outcome of one comparison; `is_match` is None where it was cut short."""

    is_match: bool | None
    summary: dict[str, int]
    diffs: list[Entry]
    warnings: list[Entry]
    execution: dict[str, Any] = field(default_factory=dict)
    coverage: dict[str, Any] | None = None
    trace: list[Entry] | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Report:
        """The report that `to_dict` has written."""
        entries = {
            name: [Entry(entry) for entry in content[name]]
            for name in ("diffs", "warnings", "trace")
            if name in content
        }
        return cls(**{**content, **entries})

    def to_dict(self, *, execution: bool = True) -> dict[str, Any]:
        """The report as data (payloads §6.1); without `execution` it is the same for the same input."""
        content: dict[str, Any] = {"is_match": self.is_match}
        if execution:
            content["execution"] = self.execution
        content |= {"summary": self.summary, "diffs": self.diffs, "warnings": self.warnings}
        if self.coverage is not None:
            content["coverage"] = self.coverage
        if self.trace is not None:
            content["trace"] = self.trace
        return content

    def __str__(self) -> str:
        """The verdict and what differs, a line or two each.

        >>> print(Report(False, {}, [Entry(path="$.a", type="VALUE_MISMATCH", severity="ERROR", message="1 != 2")], []))
        mismatch: 1 difference, 0 warnings
          $.a VALUE_MISMATCH: 1 != 2
        """
        verdict = {True: "match", False: "mismatch", None: "cut short"}[self.is_match]
        counts = f"{_count(len(self.diffs), 'difference')}, {_count(len(self.warnings), 'warning')}"
        shown = [*self.diffs, *self.warnings][:_SHOWN]
        lines = [f"  {entry['path']} {entry['type']}: {entry['message']}" for entry in shown]
        left = len(self.diffs) + len(self.warnings) - len(shown)
        return "\n".join([f"{verdict}: {counts}", *lines, *([f"  … and {left} more"] if left else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The report as a table, for notebooks."""
        head = html.escape(str(self).split("\n", 1)[0])
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(entry)) + "</tr>"
            for entry in [*self.diffs, *self.warnings][:_SHOWN]
        )
        names = "".join(f"<th>{name}</th>" for name in ("path", "type", "old", "new", "why"))
        return f"<p><b>{head}</b></p>" + (f"<table><tr>{names}</tr>{rows}</table>" if rows else "")

    def to_json(self, *, execution: bool = True) -> bytes:
        """The report as compact JSON."""
        return encode(self.to_dict(execution=execution))


_SHOWN = 20  # entries in a repr


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cells(entry: Entry) -> tuple[str, ...]:
    sides = (spelled(entry[name]) if name in entry else "" for name in ("old_value", "new_value"))
    return (entry["path"], entry["type"], *sides, entry["message"])


def encode(value: object) -> bytes:
    """Compact JSON in UTF-8; numbers appear as written, lone surrogates escaped."""
    try:
        return _quick.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        return _encode_slowly(value)


def indented(data: bytes, indent: int = 2) -> bytes:
    """JSON text with line breaks; the text itself is re-spaced, so that numbers stay as they are written."""
    try:
        return msgspec.json.format(data, indent=indent)
    except msgspec.DecodeError:  # lone surrogates
        return json.dumps(json.loads(data), indent=indent).encode()


def _written(value: object) -> Any:
    if isinstance(value, WrittenNumber):
        return msgspec.Raw(value.written.encode())
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_quick = msgspec.json.Encoder(enc_hook=_written, decimal_format="number")


def _encode_slowly(value: object) -> bytes:
    # Only reached for strings that are not Unicode text and for very deep values.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text).encode()
