"""The cache root and the promise that nothing outside of it is read through it."""

from __future__ import annotations

import os
from pathlib import Path

from driftline.errors import IndexRefError


class CacheRoot:
    """The directory that holds `builds/`, `snapshots/`, `diffs/` and `locks/` of one repository."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(directory))
        self.real = Path(os.path.realpath(self.path))
        if not self.real.is_dir():
            raise IndexRefError("the cache root does not exist or is not a directory", code="NOT_FOUND")

    def inside(self, relative: str, what: str) -> Path:
        """The place of `relative` below the root; leaving it, by name or through a symlink, is refused."""
        try:
            candidate = Path(os.path.abspath(self.path / relative))
            lexical = candidate.is_relative_to(self.path) or candidate.is_relative_to(self.real)
            if lexical and Path(os.path.realpath(candidate)).is_relative_to(self.real):
                return candidate
        except (OSError, ValueError):
            pass
        raise IndexRefError(f"{what} leaves the cache root")
