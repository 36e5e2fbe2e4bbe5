"""Names as SQLite compares and writes them.

>>> folded("Users") == folded("USERS"), folded("Ä") == folded("ä"), quoted("my table")
(True, False, '"my table"')
"""

from __future__ import annotations

_LOWER_ASCII = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def folded(name: str) -> str:
    """The form in which two names are the same: SQLite folds ASCII letters only (changesets §1.4)."""
    return name.translate(_LOWER_ASCII)


def quoted(name: str) -> str:
    """An SQL identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'
