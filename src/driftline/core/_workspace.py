"""A private folder for files that live only as long as the work: spooled inputs, spilled rows.

It lies in TMPDIR unless a parent is named, and goes with the work. A process that is killed leaves its folder behind:
whoever makes the next one in TMPDIR sees that nobody holds the folder's lock, and removes it.
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
from typing import TYPE_CHECKING, BinaryIO, Generic, Protocol, TypeVar

from driftline.core._files import io_errors

if TYPE_CHECKING:
    import pyarrow as pa


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
            with io_errors(parent):
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


# What does not fit into memory: pieces by key, in memory up to a limit and in files of a workspace beyond it.
#
# One store for every room. Pieces of a key come back in the order in which they were added. When the limit is passed,
# all that is held moves into files, one for each key; taking a key removes its file, and the workspace removes the rest
# (`workspace.py`, also after a kill). How pieces are written is a `Codec`.


Key = TypeVar("Key", bound=Hashable)
Piece = TypeVar("Piece")


class Codec(Protocol[Piece]):
    """How pieces are weighed, appended to a file and read back; what is written twice is read as both."""

    def size(self, piece: Piece) -> int:
        """About how many bytes of memory a piece takes."""

    def write(self, pieces: Sequence[Piece], out: BinaryIO) -> None:
        """Append pieces to a file."""

    def read(self, path: Path) -> list[Piece]:
        """All pieces of a file, in their order; they may be joined."""


class SpillStore(Generic[Key, Piece]):
    """Pieces by key.

    >>> import tempfile
    >>> with Workspace(tempfile.gettempdir()) as workspace:
    ...     store = SpillStore(workspace, 4, BytesCodec())
    ...     for number in range(5):
    ...         store.add(number % 2, b"%d," % number)
    ...     b"".join(store.take(0)), b"".join(store.take(1)), store.take(1)
    (b'0,2,4,', b'1,3,', [])
    """

    def __init__(self, workspace: Workspace, limit_bytes: int, codec: Codec[Piece]) -> None:
        self._workspace = workspace
        self._limit = limit_bytes
        self._codec = codec
        self._held = 0
        self._pieces: defaultdict[Key, list[Piece]] = defaultdict(list)
        self._files: dict[Key, Path] = {}

    def add(self, key: Key, piece: Piece) -> None:
        """Keep a piece."""
        self._pieces[key].append(piece)
        self._held += self._codec.size(piece)
        if self._held > self._limit:
            self._spill()

    def __contains__(self, key: Key) -> bool:
        return key in self._pieces or key in self._files

    def keys(self) -> set[Key]:
        """The keys that have pieces."""
        return self._pieces.keys() | self._files.keys()

    def take(self, key: Key) -> list[Piece]:
        """Hand out the pieces of a key and forget them."""
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


class BytesCodec:
    """Bytes that are read as one."""

    def size(self, piece: bytes) -> int:
        """Their number."""
        return len(piece)

    def write(self, pieces: Sequence[bytes], out: BinaryIO) -> None:
        """One after the other."""
        out.writelines(pieces)

    def read(self, path: Path) -> list[bytes]:
        """All of them."""
        return [path.read_bytes()]


class ArrowCodec:
    """Arrow tables of one schema, as streams one behind the other."""

    def size(self, piece: pa.Table) -> int:
        """A slice counts by its share of the buffers below it."""
        return int(piece.nbytes)

    def write(self, pieces: Sequence[pa.Table], out: BinaryIO) -> None:
        """As one stream."""
        import pyarrow as pa

        whole = pa.concat_tables(pieces).unify_dictionaries().combine_chunks()
        with pa.ipc.new_stream(out, whole.schema) as writer:
            writer.write_table(whole)

    def read(self, path: Path) -> list[pa.Table]:
        """A table for each stream; they are read when they are used."""
        import pyarrow as pa

        tables = []
        with pa.memory_map(str(path)) as source:
            while source.tell() < source.size():
                tables.append(pa.ipc.open_stream(source).read_all())
        return tables
