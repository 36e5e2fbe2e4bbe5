"""Files behind URLs as one side of a comparison: known by ETag, read in pinned ranges (sources §4)."""

from __future__ import annotations

import fnmatch
import secrets
import shutil
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from driftline.core._files import atomic_write
from driftline.core._objects import SCHEMES as SCHEMES
from driftline.core._objects import ObjectVersion, Place, changed, list_below, located, look_at
from driftline.core._objects import is_url as is_url
from driftline.sources.input_file import InputFile

_MAGIC = "*?["


@dataclass(frozen=True, slots=True)
class StoredFile(InputFile):
    """An object as it was when it was found; every read asks for that very version of it."""

    etag: str = ""

    @classmethod
    def at(cls, url: str) -> StoredFile:
        """Take note of an object as it is now."""
        found = look_at(url)
        return cls(url, url, found.size, 0, found.etag)

    @property
    def version(self) -> ObjectVersion:
        """The version that was found."""
        return ObjectVersion(self.path, self.size, self.etag)

    def open(self, *, buffered: bool = True) -> BinaryIO:
        """A seekable stream of pinned ranges."""
        return self.version.open(buffered=buffered)

    def for_arrow(self) -> Any:
        """A stream: Arrow's own file systems decode the names of objects."""
        return self.open()

    def check_unchanged(self) -> None:
        """Raise if the object was replaced."""
        if look_at(self.path).etag != self.etag:
            raise changed(self.path)

    def with_absolute_path(self) -> StoredFile:
        """A URL is the same everywhere."""
        return self

    def read_range(self, start: int, end: int) -> bytes:
        """One request, which fails if the object was replaced."""
        return self.version.read_range(start, end)


def list_urls(url: str) -> list[str]:
    """The objects of a folder (`/` at the end), of a glob, or the one object, in the order of their names."""
    if url.endswith("/"):
        return list_below(url)
    pattern = located(url)[1]
    if not any(letter in pattern for letter in _MAGIC):
        return [url]
    fixed = pattern[: min(pattern.find(letter) for letter in _MAGIC if letter in pattern)].rpartition("/")[0]
    root = url[: len(url) - len(pattern)]
    depth = pattern.count("/")
    keys = [found[len(root) :] for found in list_below(f"{root}{fixed}/" if fixed else root)]
    if pattern in keys:  # the letters of a glob are letters of names too, as in local paths
        return [url]
    return sorted(root + key for key in keys if key.count("/") == depth and fnmatch.fnmatchcase(key, pattern))


def stored_copy(rewritten: Any, source: Any, place: Place) -> Any:
    """A source whose rewritten files lie in a store, so that every machine can read them."""
    files = []
    for before, after in zip(source.files, rewritten.files, strict=True):
        if after == before:
            files.append(after)
            continue
        target = place / f"{secrets.token_hex(8)}-rewritten.csv"
        with open(after.path, "rb") as stream, atomic_write(target) as out:
            shutil.copyfileobj(stream, out, 4 << 20)
        files.append(replace(StoredFile.at(str(target)), name=after.name))
    return replace(rewritten, files=tuple(files))
