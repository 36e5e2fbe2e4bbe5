"""Imports of a file as they are written, one text for each imported name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from driftline.codeindex.definitions import Captures, Span
from driftline.codeindex.languages import Language

_FROM = re.compile(r"from\s+(\S+)\s+import\s+(.*)", re.DOTALL)
_SOURCE = re.compile(r"""(?:from\s*)?(['"])(.+?)\1\s*(?:with\s*\{.*\})?;?\s*$""", re.DOTALL)
_EXPORT = re.compile(r"export\s+(?:type\s+)?(?:\{(?P<names>[^}]*)\}|(?P<star>\*(?:\s*as\s+\S+)?))\s*from\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LOAD = re.compile(rb"(?:require|require_relative|load|source|[.])[\s(]+([^\s()]+)")
_SCRIPTS = frozenset(("javascript", "typescript", "tsx"))


def imported_names(language: Language, source: bytes, captures: Captures) -> list[str]:
    """The imports, sorted and each once."""
    nodes = [*captures.get("imp", ()), *captures.get("reexport", ())]
    texts = [source[slice(*node.byte_range)].decode("utf-8", "backslashreplace") for node in nodes]
    loaded = [found[1].decode("utf-8", "backslashreplace").strip("\"'") for _, found in _loads(source, captures)]
    return sorted({*loaded, *(name for text in texts for name in _names(language.name, text))})


def loading_calls(source: bytes, captures: Captures) -> list[Span]:
    """Where calls are that only import."""
    return [span for span, _ in _loads(source, captures)]


def _loads(source: bytes, captures: Captures) -> Iterator[tuple[Span, re.Match[bytes]]]:
    # Not by a predicate in the query: those fail on names that are not UTF-8.
    for node in captures.get("load", ()):
        found = _LOAD.match(source, *node.byte_range)
        if found is not None:
            yield node.byte_range, found


def _names(language: str, text: str) -> list[str]:
    if language == "python":
        return _python_names(text)
    if language in _SCRIPTS:
        found = _SOURCE.search(text)
        return [found[2], *_reexports(text, found[2])] if found else []
    if language == "csharp":
        text = text.removeprefix("global ").removeprefix("using").rstrip("; ")
    return [" ".join(text.split()).strip("\"'<>`")]


def _reexports(text: str, source: str) -> Iterator[str]:
    """`export { a, b as c } from "m"` as one text for each name; nothing for an import.

    >>> list(_reexports("export { a, b as c, } from './m'", "./m")), list(_reexports("export * as d from 'm'", "m"))
    (['export a from ./m', 'export b as c from ./m'], ['export * as d from m'])
    """
    found = _EXPORT.match(_COMMENT.sub("", text))
    if found is not None:
        parts = (found["names"] or found["star"]).split(",")
        yield from (f"export {' '.join(part.split())} from {source}" for part in parts if part.strip())


def _python_names(text: str) -> list[str]:
    """`from m import a, b` as one text for each name.

    >>> _python_names("from .m import (a,\\n  b as c,)"), _python_names("import a.b, c")
    (['from .m import a', 'from .m import b as c'], ['import a.b', 'import c'])
    """
    plain = re.sub(r"#[^\n]*", "", text).replace("\\\n", " ")
    found = _FROM.fullmatch(plain.strip())
    head, names = (f"from {found[1]} import", found[2]) if found else ("import", plain.strip().removeprefix("import"))
    parts = (" ".join(part.split()) for part in names.strip(" ()\n\t\r").split(","))
    return [f"{head} {part}" for part in parts if part.strip("()")]
