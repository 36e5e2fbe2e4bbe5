"""No path of this machine reaches a persisted file (index diffs §4.5).

A leak is a string that begins with a directory of this run. Refs, paths and labels may not look like a drive path or
a `file://` address either. Routes such as `/api/users`, and whatever else source text holds, are names.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator

from driftline.errors import IndexRefError

# Members that hold text of the indexed sources, and keys made of it.
_SOURCE_TEXT = frozenset(
    ("name", "signature", "chunkKind", "to", "fromKey", "edgeKey", "logicalKey", "logicalKeyBefore", "logicalKeyAfter",
     "calls")
)  # fmt: skip
_MACHINE_PATH = re.compile(r"[A-Za-z]:[\\/]|file://", re.IGNORECASE)
# A key's parts are joined by `|`, and `file:` starts a file-level key: a path may begin after them.
_BEGINNING = r"(?:\A|\||\bfile:)"


class LeakCheck:
    """Refuses records that hold a path of this machine."""

    def __init__(self, directories: Iterable[str | os.PathLike[str]] = ()) -> None:
        given = [*directories, os.path.expanduser("~"), tempfile.gettempdir()]
        known = {os.path.abspath(path) for path in given} | {os.path.realpath(path) for path in given}
        texts = sorted(re.escape(path) for path in known if path.strip(os.sep))
        self._known = re.compile(rf"{_BEGINNING}(?:{'|'.join(texts)})(?![^/\\|])" if texts else r"(?!)")

    def refuse(self, record: object, what: str, *, is_event: bool = False) -> None:
        """Raise if any string of `record`, a member's name included, is such a path."""
        for place, text, is_source in _strings(record, "", _SOURCE_TEXT if is_event else frozenset()):
            if self._known.search(text) or (not is_source and _MACHINE_PATH.match(text)):
                raise IndexRefError(
                    f"{what}{place} holds an absolute path, which is never persisted: nothing was written "
                    "(see the diff with --no-persist)"
                )


def _strings(
    value: object, place: str, source: frozenset[str], is_source: bool = False
) -> Iterator[tuple[str, str, bool]]:
    """Every string with its place, and whether it is text of the indexed sources."""
    if isinstance(value, str):
        yield place, value, is_source
    elif isinstance(value, dict):
        for name, item in value.items():
            yield place, name, is_source
            here = f"{place}.{name}" if name.isidentifier() else place
            yield from _strings(item, here, source, is_source or name in source)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item, place, source, is_source)
