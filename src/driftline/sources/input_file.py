"""A plain file of one side, and what it was when the work began."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from driftline.core._files import StrPath, explain_io_errors
from driftline.errors import InputError

_COMPRESSED_SUFFIXES = (".gz", ".zst", ".zstd")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A plain file of one side, how it is called towards the user, and its state when it was opened."""

    path: str
    name: str
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: StrPath, name: str) -> InputFile:
        """Take note of a file as it is now."""
        with explain_io_errors(name):
            status = os.stat(path)
        return cls(os.fspath(path), name, status.st_size, status.st_mtime_ns)

    def open(self, *, buffered: bool = True) -> BinaryIO:
        """A seekable stream of its bytes."""
        return open(self.path, "rb", buffering=-1 if buffered else 0)

    def for_arrow(self) -> Any:
        """What Arrow's readers take; a path lets them read without Python."""
        return self.path

    def check_unchanged(self) -> None:
        """Raise if the file is not what it was when the work began."""
        now = InputFile.of(self.path, self.name)
        if (now.size, now.modified_ns) != (self.size, self.modified_ns):
            raise InputError(
                f"{self.name} changed while it was being read: run again when nobody writes to it",
                code="file_changed",
                path=self.name,
            )

    def with_absolute_path(self) -> InputFile:
        """The same file for a process in another folder."""
        return replace(self, path=os.path.abspath(self.path))


def known_suffix(name: str) -> str:
    """The ending of a name, without that of a compression."""
    path = Path(name.lower())
    return path.with_suffix("").suffix if path.suffix in _COMPRESSED_SUFFIXES else path.suffix
