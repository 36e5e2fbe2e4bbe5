"""A private folder for files that live only as long as the work: spooled inputs, spilled rows."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol

from driftline.files import explain_io_errors


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

            with explain_io_errors(self._parent or tempfile.gettempdir()):
                self._folder = Path(tempfile.mkdtemp(prefix="driftline-", dir=self._parent))
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
