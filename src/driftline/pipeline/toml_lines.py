"""Where each key of a TOML document stands, because `tomllib` does not say.

>>> key_lines('[a]\\nb = 1\\n[[c]]\\nd.e = "x"\\n')[("c", 0, "d", "e")]
4
"""

from __future__ import annotations

import re
import tomllib

from driftline.core._json import JsonObject
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
