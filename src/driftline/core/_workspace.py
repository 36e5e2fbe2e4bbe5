"""Temporary storage of a job: `Workspace`, a folder for buffer files, and `SpillStore`, chunks in memory or in files.

The folder is created in TMPDIR unless a parent is named, and removed with the job. A killed process leaves its folder
behind: the next workspace in TMPDIR finds that its lock is free, and removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Protocol, TypeVar

from driftline.core._files import io_errors

if TYPE_CHECKING:
    import pyarrow as pa

Key = TypeVar("Key", bound=Hashable)
Piece = TypeVar("Piece")

_PREFIX = "driftline-"
_OWNER = ".owner"  # locked for as long as the folder is in use
_GRACE_SECONDS = 60  # a folder without a lock may be about to get one


class Workspace:
    """A temporary folder, created at the first use and removed at the end, also after an error."""

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent
        self._folder: Path | None = None
        self._made = 0
        self._lock: int | None = None
        self._open = contextlib.ExitStack()

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
            with io_errors(parent):
                if self._parent is None:
                    remove_abandoned(parent)
                self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
                if self._parent is None:
                    self._lock = os.open(self._folder / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
                    fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self._folder

    def new_file(self, name: str) -> Path:
        """A path for a new file; `name` only makes it readable."""
        self._made += 1
        return self.folder / f"{self._made:05d}-{name}"

    def keep_open(self, thing: Any) -> None:
        """Close `thing` together with the workspace."""
        self._open.callback(thing.close)

    def close(self) -> None:
        """Close the resources, and remove the folder."""
        self._open.close()
        if self._folder is not None:
            import shutil

            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(parent: str) -> None:
    """Remove the folders of workspaces whose processes have ended; unreadable ones are left alone."""
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


class Codec(Protocol[Piece]):
    """How chunks are measured, appended to a file and read back; a file may be appended to several times."""

    def size(self, piece: Piece) -> int:
        """About how many bytes of memory a chunk takes."""

    def write(self, pieces: Sequence[Piece], out: BinaryIO) -> None:
        """Append chunks to a file."""

    def read(self, path: Path) -> list[Piece]:
        """All chunks of a file, in their order; they may be joined."""


class SpillStore(Generic[Key, Piece]):
    """Chunks by key: in memory up to a limit, beyond it in one file a key; each key's chunks stay in their order.

    >>> import pyarrow as pa, tempfile
    >>> with Workspace(tempfile.gettempdir()) as workspace:
    ...     store = SpillStore(workspace, 4, ArrowCodec())
    ...     for number in range(5):
    ...         store.add(number % 2, pa.table({"n": [number]}))
    ...     pa.concat_tables(store.take(1))["n"].to_pylist(), store.take(1)
    ([1, 3], [])
    """

    def __init__(self, workspace: Workspace, limit_bytes: int, codec: Codec[Piece]) -> None:
        self._workspace = workspace
        self._limit = limit_bytes
        self._codec = codec
        self._held = 0
        self._pieces: defaultdict[Key, list[Piece]] = defaultdict(list)
        self._files: dict[Key, Path] = {}

    def add(self, key: Key, piece: Piece) -> None:
        """Add a chunk."""
        self._pieces[key].append(piece)
        self._held += self._codec.size(piece)
        if self._held > self._limit:
            self._spill()

    def __contains__(self, key: Key) -> bool:
        return key in self._pieces or key in self._files

    def keys(self) -> set[Key]:
        """The keys that have chunks."""
        return self._pieces.keys() | self._files.keys()

    def take(self, key: Key) -> list[Piece]:
        """Remove and return the chunks of a key."""
        held = self._pieces.pop(key, [])
        self._held -= sum(map(self._codec.size, held))
        file = self._files.pop(key, None)
        if file is None:
            return held
        with io_errors(file):
            spilled = self._codec.read(file)
            file.unlink()  # what was mapped into memory stays readable
        return [*spilled, *held]

    def _spill(self) -> None:
        for key, pieces in self._pieces.items():
            if key not in self._files:
                self._files[key] = self._workspace.new_file("spilled")
            with io_errors(self._files[key]), open(self._files[key], "ab") as out:
                self._codec.write(pieces, out)
        self._pieces.clear()
        self._held = 0


class ArrowCodec:
    """Arrow tables of one schema, as consecutive IPC streams."""

    def size(self, piece: pa.Table) -> int:
        """The bytes of a table; a slice counts its share of the buffers."""
        return int(piece.nbytes)

    def write(self, pieces: Sequence[pa.Table], out: BinaryIO) -> None:
        """Append the tables as one stream."""
        import pyarrow as pa

        whole = pa.concat_tables(pieces).unify_dictionaries().combine_chunks()
        with pa.ipc.new_stream(out, whole.schema) as writer:
            writer.write_table(whole)

    def read(self, path: Path) -> list[pa.Table]:
        """One memory-mapped table for each stream."""
        import pyarrow as pa

        tables = []
        with pa.memory_map(str(path)) as source:
            while source.tell() < source.size():
                tables.append(pa.ipc.open_stream(source).read_all())
        return tables
