"""Index references: how a user names one version of a code index.

>>> parse_ref(" BUILD:20260124T000000Z_abc ")
IndexRef(kind='build', value='20260124T000000Z_abc')
>>> parse_ref("latest").canonical
'latest'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from driftline.errors import IndexRefError

RefKind = Literal["latest", "build", "snapshot", "tag", "path", "git"]

REDACTED_PATH = "path:<redacted>"

BUILD_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
SNAPSHOT_ID = re.compile(r"snap-[A-Za-z0-9._-]+")
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,63}")

# prefix -> (kind, pattern of the whole value); a path only must not be blank
_FORMS: dict[str, tuple[RefKind, re.Pattern[str]]] = {
    "build": ("build", BUILD_ID),
    "snap": ("snapshot", SNAPSHOT_ID),
    "tag": ("tag", TAG),
    "path": ("path", re.compile(r".*\S.*", re.DOTALL)),
    "git": ("git", re.compile(r"[^\x00-\x1f]*[^\x00-\x20][^\x00-\x1f]*")),
}
_PREFIX_OF: dict[RefKind, str] = {kind: prefix for prefix, (kind, _) in _FORMS.items()}
_KNOWN_FORMS = "git:<revision>, latest, build:<id>, snap:<id>, tag:<tag> or path:<directory>"

# What JavaScript's `trim` removes; Python's `strip` differs at U+FEFF, U+0085 and U+001C to U+001F.
_WHITE_SPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))


@dataclass(frozen=True, slots=True)
class IndexRef:
    """A parsed index reference."""

    kind: RefKind
    value: str = ""

    @property
    def canonical(self) -> str:
        """The one way to write this reference; a path is kept as given, so this form is for memory only."""
        return "latest" if self.kind == "latest" else f"{_PREFIX_OF[self.kind]}:{self.value}"

    @property
    def shown(self) -> str:
        """The form for messages and files: a path is redacted."""
        return REDACTED_PATH if self.kind == "path" else self.canonical


def parse_ref(text: str) -> IndexRef:
    """Parse an index reference; anything else is `INVALID_REQUEST`."""
    if not isinstance(text, str):
        raise IndexRefError(f"an index reference is a text: {_KNOWN_FORMS}")
    trimmed = text.strip(_WHITE_SPACE)
    if trimmed.lower() == "latest":
        return IndexRef("latest")
    prefix, colon, value = trimmed.partition(":")
    form = _FORMS.get(prefix.lower()) if colon else None
    if form is None:
        # The text is not repeated: it may be a bare directory, and messages hold no absolute paths.
        raise IndexRefError(f"not an index reference: write {_KNOWN_FORMS}")
    kind, pattern = form
    if pattern.fullmatch(value) is None:
        raise IndexRefError(f"not a valid value after {prefix.lower()}: (it must match {pattern.pattern})")
    return IndexRef(kind, value)
