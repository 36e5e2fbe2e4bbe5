"""Reading one table of a pipeline file, key by key; every mistake names its line and what to write instead.

Where each key of a TOML document stands, because `tomllib` does not say.

>>> key_lines('[a]\\nb = 1\\n[[c]]\\nd.e = "x"\\n')[("c", 0, "d", "e")]
4
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from driftline.core import JsonObject
from driftline.errors import PipelineError

KeyPath = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_SYNTAX_LINE = re.compile(r"\s*\(at line (\d+), column (\d+)\)")
_TOKEN = re.compile(r"\"\"\"|'''|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|#[^\n]*|[\[\]{}\n]")


def parse_toml(text: str, name: str) -> JsonObject:
    """The document as plain data; a syntax error names the file and the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _SYNTAX_LINE.search(str(error))
        line = int(where.group(1)) if where else text.count("\n") + 1
        problem = _SYNTAX_LINE.sub("", str(error))
        raise PipelineError(f"{name}:{line}: {problem[:1].lower()}{problem[1:]}", line=line, path=name) from error


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line of every table header and key; keys of inline tables stand on the line of their key."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    prefix: KeyPath = ()
    for number, statement in _statements(text):
        header = _HEADER.match(statement.split("\n", 1)[0])
        if header and not _looks_like_key(statement):
            path = _with_indexes(_key_parts(header.group(2)), counts)
            if header.group(1) == "[[":
                counts[path] = counts.get(path, -1) + 1
                path = (*path, counts[path])
            prefix = path
            lines.setdefault(prefix, number)
        elif "=" in statement:
            lines.setdefault((*prefix, *_key_parts(statement)), number)
    return lines


def line_of(path: KeyPath, lines: dict[KeyPath, int]) -> int | None:
    """The line of a key, or of the nearest thing around it."""
    while path:
        if path in lines:
            return lines[path]
        starts = [line for known, line in lines.items() if known[: len(path)] == path]
        if starts:
            return min(starts)
        path = path[:-1]
    return None


def _looks_like_key(statement: str) -> bool:
    return not statement.lstrip().startswith("[")


def _with_indexes(parts: KeyPath, counts: dict[KeyPath, int]) -> KeyPath:
    """A header below an array of tables belongs to the array's last entry."""
    path: KeyPath = ()
    for place, part in enumerate(parts):
        path = (*path, part)
        if path in counts and place < len(parts) - 1:
            path = (*path, counts[path])
    return path


def _key_parts(text: str) -> KeyPath:
    parts: list[str] = []
    place = 0
    while match := _KEY_PART.match(text, place):
        parts.append(next(group for group in match.groups() if group is not None))
        place = match.end()
        if text[place : place + 1] != ".":
            break
        place += 1
    return tuple(parts)


def _statements(text: str) -> list[tuple[int, str]]:
    """Logical lines with their first line's number: values may go on over several lines."""
    found: list[tuple[int, str]] = []
    start, depth, closing = 0, 0, ""
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if closing:
            closing = "" if mark == closing else closing
        elif mark in ('"""', "'''"):
            closing = mark
        elif mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        elif mark == "\n" and depth == 0:
            found.append((text.count("\n", 0, start) + 1, text[start : token.start()]))
            start = token.end()
    found.append((text.count("\n", 0, start) + 1, text[start:]))
    return [(number, line) for number, line in found if line.strip() and not line.lstrip().startswith("#")]


class Document:
    """A parsed file with the lines of its keys."""

    def __init__(self, name: str, data: JsonObject, lines: dict[KeyPath, int]) -> None:
        self.name = name
        self.lines = lines
        self.root = Section(self, (), data)

    def fail(self, path: KeyPath, problem: str, code: str | None = None) -> NoReturn:
        """Raise the mistake with the line of its key."""
        line = line_of(path, self.lines) or 1
        raise PipelineError(f"{self.name}:{line}: {problem}", code=code, line=line, path=self.name)


class Section:
    """One table of the file; keys are taken one by one, and what is left over is unknown."""

    def __init__(self, document: Document, path: KeyPath, data: JsonObject) -> None:
        self._document = document
        self.path = path
        self._data = data
        self._taken: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def line(self, key: str | None = None) -> int:
        """The line of a key, or of the section."""
        path = self.path if key is None else (*self.path, key)
        return line_of(path, self._document.lines) or 1

    def fail(self, problem: str, key: str | None = None, code: str | None = None) -> NoReturn:
        """Raise a mistake in this section."""
        self._document.fail(self.path if key is None else (*self.path, key), problem, code)

    def text(self, key: str, default: str | None = None) -> str | None:
        """A text that is not blank, or the default."""
        value = self._take(key, str, "a text")
        if isinstance(value, str) and not value.strip():
            self.fail(f"{self._named(key)} is blank", key)
        return default if value is None else str(value)

    def required(self, key: str) -> str:
        """A text that must be there."""
        value = self.text(key)
        if value is None:
            self.fail(f"{self._title()} has no {key!r}")
        return value

    def choice(self, key: str, default: str, known: Sequence[str]) -> str:
        """One word out of a list."""
        value = self.text(key, default) or default
        if value not in known:
            near = get_close_matches(value, known, n=1)
            hint = f'did you mean "{near[0]}"? It is one of' if near else "use one of"
            self.fail(f"{self._named(key)} is {value!r}: {hint} {', '.join(known)}", key)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """true or false."""
        value = self._take(key, bool, "true or false")
        return default if value is None else bool(value)

    def number(self, key: str, default: int, least: int) -> int:
        """A whole number that is at least `least`."""
        value = self._take(key, int, "a whole number")
        if value is None:
            return default
        if isinstance(value, bool) or value < least:
            self.fail(f"{self._named(key)} is a whole number of at least {least}", key)
        return int(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single text is a list of one."""
        value = self._data.get(key)
        self._taken.append(key)
        if value is None:
            return ()
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
            self.fail(f"{self._named(key)} is a text or a list of texts", key)
        return tuple(items)

    def data(self, key: str) -> JsonObject:
        """A table of free content."""
        value = self._take(key, dict, "a table")
        return dict(value or {})

    def given(self, keys: Iterable[str]) -> JsonObject:
        """The values of those keys that are present; the caller checks them."""
        self._taken += keys
        return {key: self._data[key] for key in keys if key in self._data}

    def parsed(self, key: str, parse: Callable[[str], Any]) -> tuple[Any, ...]:
        """A list of texts, each read by a function that raises `ValueError`."""
        found = []
        for text in self.texts(key):
            try:
                found.append(parse(text))
            except ValueError as error:
                self.fail(f"{self._named(key)}: {error}", key)
        return tuple(found)

    def section(self, key: str) -> Section | None:
        """A table inside this one."""
        value = self._take(key, dict, "a table")
        return None if value is None else Section(self._document, (*self.path, key), value)

    def named_sections(self, key: str) -> Iterator[tuple[str, Section]]:
        """`[key.NAME]` for each name."""
        group = self.section(key)
        for name in group._data if group else ():
            inner = group.section(name) if group else None
            if inner is not None:
                yield name, inner

    def list_of_sections(self, key: str) -> list[Section]:
        """`[[key]]`, or a list of inline tables."""
        value = self._take(key, list, "a list of tables")
        entries = value or []
        if not all(isinstance(entry, dict) for entry in entries):
            self.fail(f"{self._named(key)} is a list of tables: write [[{_dotted(self.path)}.{key}]]", key)
        return [Section(self._document, (*self.path, key, place), entry) for place, entry in enumerate(entries)]

    def finish(self) -> None:
        """Refuse the first key that was not read."""
        for key in self._data:
            if key not in self._taken:
                self.fail(f"unknown key {key!r} in {self._title()}{_nearest(key, self._taken)}", key)

    def _take(self, key: str, kind: type, words: str) -> Any:
        self._taken.append(key)
        value = self._data.get(key)
        if value is not None and not isinstance(value, kind):
            self.fail(f"{self._named(key)} is {words}, not {_shown(value)}", key)
        return value

    def _title(self) -> str:
        return f"[{_dotted(self.path)}]" if self.path else "the file"

    def _named(self, key: str) -> str:
        return f"{key!r} in {self._title()}"


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path if not isinstance(part, int))


def _nearest(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f': did you mean "{near[0]}"?' if near else f" (known: {', '.join(sorted(known))})"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
