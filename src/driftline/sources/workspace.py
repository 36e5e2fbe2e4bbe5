"""A private folder for files that live only as long as the work: spooled inputs, spilled rows.

It lies in TMPDIR unless a parent is named, and goes with the work. A process that is killed leaves its folder behind:
whoever makes the next one in TMPDIR sees that nobody holds the folder's lock, and removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Protocol

from driftline.files import explain_io_errors

_PREFIX = "driftline-"
_OWNER = ".owner"  # locked for as long as the folder is in use
_GRACE_SECONDS = 60  # a folder without a lock may be one that is just being made


class Closeable(Protocol):
    """Whatever wants to be closed."""

    def close(self) -> None:
        """Let go of it."""


class Workspace:
    """A temporary folder, made when it is first needed and gone at the end whatever happens."""

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent
        self._folder: Path | None = None
        self._made = 0
        self._lock: int | None = None
        self._open: list[Closeable] = []

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """The folder itself."""
        if self._folder is None:
            import tempfile

            parent = self._parent or tempfile.gettempdir()
            with explain_io_errors(parent):
                if self._parent is None:
                    remove_abandoned(parent)
                self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
                if self._parent is None:
                    self._lock = os.open(self._folder / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
                    fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self._folder

    def new_file(self, name: str) -> Path:
        """A path for a new file; `name` only helps whoever looks into the folder."""
        self._made += 1
        return self.folder / f"{self._made:05d}-{name}"

    def keep_open(self, thing: Closeable) -> None:
        """Keep a connection for as long as the work lasts."""
        self._open.append(thing)

    def close(self) -> None:
        """Close what was kept open, and remove the folder."""
        while self._open:
            self._open.pop().close()
        if self._folder is not None:
            import shutil

            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(parent: str) -> None:
    """Remove the folders of workspaces whose processes are gone; what cannot be looked at is left alone."""
    import shutil

    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and _is_abandoned(os.path.join(entry.path, _OWNER)):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_abandoned(owner: str) -> bool:
    try:
        lock = os.open(owner, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if time.time() - os.fstat(lock).st_mtime < _GRACE_SECONDS:
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
