"""Imports of a file as they are written, one text for each imported name."""

from __future__ import annotations

import re

from driftline.codeindex.definitions import Captures
from driftline.codeindex.languages import Language

_FROM = re.compile(r"from\s+(\S+)\s+import\s+(.*)", re.DOTALL)
_SOURCE = re.compile(r"""(?:from\s*)?(['"])(.+?)\1\s*(?:with\s*\{.*\})?;?\s*$""", re.DOTALL)
_SCRIPTS = frozenset(("javascript", "typescript", "tsx"))


def imported_names(language: Language, source: bytes, captures: Captures) -> list[str]:
    """The imports, sorted and each once."""
    nodes = [*captures.get("imp", ()), *captures.get("reexport", ())]
    texts = [source[slice(*node.byte_range)].decode("utf-8", "backslashreplace") for node in nodes]
    return sorted({name for text in texts for name in _names(language.name, text)})


def _names(language: str, text: str) -> list[str]:
    if language == "python":
        return _python_names(text)
    if language in _SCRIPTS:
        found = _SOURCE.search(text)
        return [found[2]] if found else []
    if language == "csharp":
        text = text.removeprefix("global ").removeprefix("using").rstrip("; ")
    return [" ".join(text.split()).strip("\"'<>`")]


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
