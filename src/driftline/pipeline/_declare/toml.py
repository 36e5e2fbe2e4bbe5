"""A TOML file as declared records; every mistake names its line and what to write instead.

A record is a dataclass whose fields say how they are read (`declared`). `Section` has the readers of plain values.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import MISSING, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from driftline.core import JsonObject, io_errors
from driftline.errors import PipelineError

KeyPath = tuple[str | int, ...]
Reader = Callable[["Section", str], Any]  # of a key; None where it is missing
Record = TypeVar("Record")

_SYNTAX_LINE = re.compile(r"\s*\(at line (\d+), column (\d+)\)")


def parse_toml(text: str, name: str) -> JsonObject:
    """The document as plain data; a syntax error names the file and the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _SYNTAX_LINE.search(str(error))
        line = int(where.group(1)) if where else text.count("\n") + 1
        problem = _SYNTAX_LINE.sub("", str(error))
        raise PipelineError(f"{name}:{line}: {problem[:1].lower()}{problem[1:]}", line=line, path=name) from error


def line_of(text: str, path: KeyPath) -> int:
    """The line on which a key begins, or the nearest thing around it; `tomllib` does not say.

    The first lines of a document are one too, unless they end inside a value: the key begins where the longest one
    without it ends.

    >>> line_of('[a]\\nb = 1\\n[[c]]\\nd.e = "x"\\n', ("c", 0, "d", "e"))
    4
    """
    lines = text.split("\n")

    def begun(count: int) -> tuple[int, JsonObject]:
        while True:
            try:
                return count, tomllib.loads("\n".join(lines[:count]))
            except tomllib.TOMLDecodeError:
                count -= 1

    while path and not _holds(tomllib.loads(text), path):
        path = path[:-1]
    end = bisect_left(range(len(lines) + 1), True, key=lambda count: _holds(begun(count)[1], path))
    return begun(end - 1)[0] + 1 if end else 1


def _holds(data: Any, path: KeyPath) -> bool:
    try:
        for part in path:
            data = data[part]
    except (LookupError, TypeError):
        return False
    return True


def read_document(file: Path) -> Section:
    """The root of a TOML file."""
    with io_errors(file):
        data = file.read_bytes()
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise PipelineError(f"{file.name} is not UTF-8 text (byte {error.start})", path=file.name) from error
    return Section(file.name, text, (), parse_toml(text, file.name))


def declared(read: Reader, default: Any = MISSING, key: str | None = None) -> Any:
    """A field of a record: how it is read, what it is (or is made by) without its key, and the key of another name."""
    how = reading(read, key)
    return field(default_factory=default, metadata=how) if callable(default) else field(default=default, metadata=how)


def reading(read: Reader, key: str | None = None) -> JsonObject:
    """How a field is read."""
    return {"read": read, "key": key}


class Section:
    """One table of the file; keys are taken one by one, and what is left over is unknown."""

    def __init__(self, name: str, text: str, path: KeyPath, data: JsonObject) -> None:
        self._name, self.text_of_file = name, text
        self.path, self.data = path, data
        self._taken: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def fail(self, problem: str, *keys: str, code: str | None = None) -> NoReturn:
        """Raise a mistake with the line of a key, or of the section."""
        line = line_of(self.text_of_file, (*self.path, *keys))
        raise PipelineError(f"{self._name}:{line}: {problem}", code=code, line=line, path=self._name)

    def values(self, kind: type[Any]) -> JsonObject:
        """The values of a record's fields whose keys are present."""
        declarations = [(each.name, each.metadata) for each in fields(kind) if "read" in each.metadata]
        read = {name: how["read"](self, how["key"] or name) for name, how in declarations}
        return {name: value for name, value in read.items() if value is not None}

    def record(self, kind: type[Record], **given: Any) -> Record:
        """All of this table as a record; `given` are other fields of it, and defaults."""
        values = self.values(kind)
        self.finish()
        return kind(**{**given, **values})

    def text(self, key: str) -> str | None:
        """A text that is not blank."""
        value = self._take(key, str, "a text")
        if value is not None and not value.strip():
            self.fail(f"{self.named(key)} is blank", key)
        return value

    def required(self, key: str) -> str:
        """A text that must be there."""
        value = self.text(key)
        if value is None:
            self.fail(f"{self._title()} has no {key!r}")
        return value

    def choice(self, key: str, known: Sequence[str]) -> str | None:
        """One word out of a list."""
        value = self.text(key)
        if value is not None and value not in known:
            near = get_close_matches(value, known, n=1)
            hint = f'did you mean "{near[0]}"? It is one of' if near else "use one of"
            self.fail(f"{self.named(key)} is {value!r}: {hint} {', '.join(known)}", key)
        return value

    def flag(self, key: str) -> bool | None:
        """true or false."""
        return self._take(key, bool, "true or false")

    def number(self, key: str, least: int) -> int | None:
        """A whole number that is at least `least`."""
        value = self._take(key, int, "a whole number")
        if value is not None and (isinstance(value, bool) or value < least):
            self.fail(f"{self.named(key)} is a whole number of at least {least}", key)
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of texts; a single text is a list of one, and an empty list is none."""
        value = self._take(key, object, "")
        items = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
            self.fail(f"{self.named(key)} is a text or a list of texts", key)
        return tuple(items) or None

    def table(self, key: str) -> JsonObject | None:
        """A table of free content."""
        return self._take(key, dict, "a table")

    def given(self, keys: Sequence[str]) -> JsonObject:
        """The values of those keys that are present; the caller checks them."""
        self._taken += keys
        return {key: self.data[key] for key in keys if key in self.data}

    def section(self, key: str) -> Section | None:
        """A table inside this one."""
        value = self.table(key)
        return None if value is None else self._inner(value, key)

    def named_sections(self, key: str) -> list[tuple[str, Section]]:
        """`[key.NAME]` for each name."""
        group = self.section(key)
        names = group.data if group else ()
        return [(name, inner) for name in names if group and (inner := group.section(name)) is not None]

    def list_of_sections(self, key: str) -> list[Section]:
        """`[[key]]`, or a list of inline tables."""
        entries = self._take(key, list, "a list of tables") or []
        if not all(isinstance(entry, dict) for entry in entries):
            self.fail(f"{self.named(key)} is a list of tables: write [[{_dotted(self.path)}.{key}]]", key)
        return [self._inner(entry, key, place) for place, entry in enumerate(entries)]

    def finish(self) -> None:
        """Refuse the first key that was not read."""
        for key in self.unread():
            near = get_close_matches(key, self._taken, n=1)
            hint = f': did you mean "{near[0]}"?' if near else f" (known: {', '.join(sorted(self._taken))})"
            self.fail(f"unknown key {key!r} in {self._title()}{hint}", key)

    def unread(self) -> list[str]:
        """The keys that were not read yet."""
        return [key for key in self.data if key not in self._taken]

    def named(self, key: str) -> str:
        """A key as messages name it."""
        return f"{key!r} in {self._title()}"

    def _inner(self, data: JsonObject, *path: str | int) -> Section:
        return Section(self._name, self.text_of_file, (*self.path, *path), data)

    def _take(self, key: str, kind: type[Record], words: str) -> Record | None:
        self._taken.append(key)
        value = self.data.get(key)
        if value is not None and not isinstance(value, kind):
            shown = repr(value)
            shown = shown if len(shown) <= 40 else shown[:39] + "…"
            self.fail(f"{self.named(key)} is {words}, not {shown}", key)
        return value

    def _title(self) -> str:
        return f"[{_dotted(self.path)}]" if self.path else "the file"


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path if not isinstance(part, int))
