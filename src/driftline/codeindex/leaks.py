"""No absolute path reaches a persisted file (specification, key design goals and 3.4).

A string is refused when it is an absolute path, when a part of a key is one, when it names a well-known root of a
machine somewhere inside, or when it holds one of the directories of this very run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from driftline.errors import IndexRefError

# A key's parts are joined by `|`, and `file:` starts a file-level key: a path may begin after them. A lone
# operator such as `/` or `/=` is a name, not a path.
_WHOLE = r"(?:\A|\||\bfile:)(?:/+[\w.~@-]|[A-Za-z]:[\\/]|\\\\[\w.?])"
_ROOTS = "home|Users|root|tmp|var|etc|usr|opt|mnt|srv|private|Volumes|Library|workspace|builds"
_INSIDE = rf"(?<![\w.:/\\-])(?:/(?:{_ROOTS})/\w|[A-Za-z]:\\\w)"
_ABSOLUTE = re.compile(f"{_WHOLE}|{_INSIDE}")

_SHORTEST_DIRECTORY = 4  # `/`, `/a` and the like would be found in innocent texts


class LeakCheck:
    """Refuses records that hold an absolute path."""

    def __init__(self, directories: Iterable[str | os.PathLike[str]] = ()) -> None:
        known = {str(path) for path in (*directories, os.path.expanduser("~"), Path.cwd())}
        known |= {os.path.realpath(path) for path in known}
        texts = sorted(re.escape(path) for path in known if len(path) >= _SHORTEST_DIRECTORY)
        # Between boundaries: the directory `/srv` is not in `lib/srv/a.js`.
        self._known = re.compile(rf"(?<![\w.-])(?:{'|'.join(texts)})(?![\w-])" if texts else r"(?!)")

    def refuse(self, record: Any, what: str) -> None:
        """Raise if any string of `record`, a member's name included, holds an absolute path."""
        for place, text in _strings(record, ""):
            if _ABSOLUTE.search(text) or self._known.search(text):
                raise IndexRefError(
                    f"{what}{place} holds an absolute path, which is never persisted: nothing was written "
                    "(see the diff with --persist false)"
                )


def holds_absolute_path(text: str) -> bool:
    """Whether a text is, or obviously contains, an absolute path.

    >>> [holds_absolute_path(text) for text in ("/etc/x", "src/a.js", "C:\\\\x", "|fn|/home/a|", "/", "a/tmp/b")]
    [True, False, True, True, False, False]
    """
    return _ABSOLUTE.search(text) is not None


def _strings(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield place, name
            yield from _strings(item, f"{place}.{name}" if name.isidentifier() else place)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item, place)
