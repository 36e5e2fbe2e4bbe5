"""Ordered output as a folder of parts with a manifest (storage §4), and ranges of complete lines for parallel reads.

Every attempt gives its parts new names, so that nothing is overwritten. The folder's content changes atomically, when
the manifest is written: created if there was none, or replaced if it still is the one from the start of the job. What
the manifest does not name is no part of the output, and is removed after a day.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import xxhash

from driftline.core import _objects as objects
from driftline.core._files import AnyPath, atomic_write, io_errors, open_to_read, sync_directory, write_atomically
from driftline.core._objects import Location, ObjectPath, location
from driftline.errors import InputError, NotFoundError, StorageError

MANIFEST = "_manifest.json"
BYTES_PER_RANGE = 8 << 20
_FORMAT = "driftline-parts"
_PART_BYTES = 64 << 20
_SWEEP_SECONDS = 86_400.0
_COPY_BYTES = 4 << 20

Version = objects.ObjectVersion | bytes | None  # of a manifest: in a store, on a disk, or none yet


@dataclass(frozen=True, slots=True)
class Part:
    """A part that was written: its name in the folder, its size in bytes and its hash."""

    name: str
    size: int
    checksum: str


def manifest_version(folder: Location) -> Version:
    """The current version of the manifest; a commit is refused if it has changed since."""
    if isinstance(folder, ObjectPath):
        return (folder / MANIFEST).version()
    try:
        return (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None


def read_manifest(folder: Location) -> tuple[Part, ...] | None:
    """The parts of a folder, or None where it has no manifest."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except (NotFoundError, FileNotFoundError):
        return None
    try:
        content = json.loads(data)
        if content["format"] != _FORMAT or content["version"] != 1:
            raise ValueError(content["format"])
        return tuple(Part(one["name"], one["size"], one["checksum"]) for one in content["parts"])
    except (ValueError, KeyError, TypeError) as error:
        message = f"{folder}/{MANIFEST} is damaged or of another format: write the output again"
        raise InputError(message, code="damaged_manifest", path=str(folder)) from error


def pieces(given: AnyPath) -> list[Location]:
    """The files behind an output in their order: the parts of a folder, else the file itself."""
    place = location(str(given))
    if isinstance(place, Path) and not place.is_dir():
        return [place]
    parts = read_manifest(place)
    return [place] if parts is None else [place / part.name for part in parts]


def write_part(folder: Location, number: int, chunks: Iterable[bytes | memoryview], ending: str = ".jsonl") -> Part:
    """Write one part under a unique name."""
    name = f"part-{number:06d}-{os.urandom(8).hex()}{ending}"
    digest, size = xxhash.xxh3_128(), 0
    with atomic_write(folder / name) as out:
        for chunk in chunks:
            out.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return Part(name, size, f"xxh128:{digest.hexdigest()}")


def commit_parts(folder: Location, parts: Sequence[Part], known: Version) -> None:
    """Make the parts the content of the folder, unless it changed since `known`."""
    content = {
        "format": _FORMAT,
        "version": 1,
        "writer": os.urandom(8).hex(),
        "size": sum(part.size for part in parts),
        "parts": [asdict(part) for part in parts],
    }
    data = json.dumps(content, indent=1).encode() + b"\n"
    if not _put_manifest(folder, data, known, [part.name for part in parts]):
        raise StorageError(
            f"{folder} was written by somebody else meanwhile: run again", code="output_changed", path=str(folder)
        )
    sweep(folder, {part.name for part in parts})


def _put_manifest(folder: Location, data: bytes, known: Version, names: Iterable[str]) -> bool:
    if isinstance(folder, ObjectPath):
        if isinstance(known, objects.ObjectVersion):
            return objects.replace(known, data) is not None
        return objects.create(f"{folder.url}/{MANIFEST}", data) is not None
    if manifest_version(folder) != known:
        return False
    for name in names:
        with io_errors(folder / name):
            sync_directory(folder / name)
    write_atomically(folder / MANIFEST, data)
    return True


def sweep(folder: Location, kept: set[str], seconds: float = _SWEEP_SECONDS) -> None:
    """Remove parts that no manifest names, once no reader can still be reading them."""
    if isinstance(folder, ObjectPath):
        whole = {f"{folder.url}/{name}" for name in (*kept, MANIFEST)}
        objects.delete_old(f"{folder.url}/", whole, seconds)
        return
    for path in folder.glob("part-*"):
        if path.name not in kept and time.time() - path.stat().st_mtime > seconds:
            path.unlink(missing_ok=True)


class PartWriter:
    """Writes a stream of lines as parts of about equal size; `commit` makes them the folder's content."""

    def __init__(self, folder: Location, part_bytes: int = _PART_BYTES) -> None:
        self.folder = folder
        self._part_bytes = part_bytes
        self._known = manifest_version(folder)
        self._parts: list[Part] = []
        self._held: list[bytes] = []
        self._size = 0
        if isinstance(folder, Path):
            with io_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)

    def write(self, data: bytes | memoryview) -> int:
        """Add data; a part ends at a line end."""
        self._held.append(bytes(data))
        self._size += len(data)
        if self._size >= self._part_bytes:
            self._cut()
        return len(data)

    def adopt(self, parts: Iterable[Part]) -> None:
        """Append parts that tasks wrote into the folder."""
        self._flush(b"".join(self._held))
        self._held, self._size = [], 0
        self._parts += parts

    def places(self) -> list[Location]:
        """The locations of the parts so far, before the commit."""
        self.adopt(())
        return [self.folder / part.name for part in self._parts]

    def commit(self) -> tuple[Part, ...]:
        """Write the rest and the manifest."""
        self.adopt(())
        commit_parts(self.folder, self._parts, self._known)
        return tuple(self._parts)

    def discard(self) -> None:
        """Remove the parts: no manifest will name them."""
        for part in self._parts:
            (self.folder / part.name).unlink(missing_ok=True)
        if isinstance(self.folder, Path) and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _cut(self) -> None:
        whole, line_end, rest = b"".join(self._held).rpartition(b"\n")
        self._flush(whole + line_end)
        self._held, self._size = [rest], len(rest)

    def _flush(self, data: bytes) -> None:
        if data:
            self._parts.append(write_part(self.folder, len(self._parts), [data]))


def read_pieces(place: AnyPath) -> Iterator[bytes]:
    """The lines of an output, part after part."""
    for piece in pieces(place):
        with open_to_read(piece) as stream:
            yield from stream


def remove(place: Location) -> None:
    """Remove a file, an object, or a folder with all that is in it."""
    if isinstance(place, ObjectPath):
        for each in (*place.below(), place):
            each.unlink()
    elif place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


@contextmanager
def local_files(folder: str) -> Iterator[tuple[str, Callable[[str], str]]]:
    """A local folder for code that writes plain files, and a function that publishes a finished file of it.

    The function returns the file's path, or uploads it and returns its URL when `folder` is in an object store.
    """
    place = location(folder)
    if not isinstance(place, ObjectPath):
        yield folder, str
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="driftline-") as local:

        def publish(path: str) -> str:
            target = place / os.path.basename(path)
            with open(path, "rb") as stream, atomic_write(target) as out:
                shutil.copyfileobj(stream, out, _COPY_BYTES)
            return target.url

        yield local, publish


@dataclass(frozen=True, slots=True)
class LineRange:
    """The bytes of a file or object from `start` up to `stop`: complete lines."""

    path: str
    start: int
    stop: int

    def lines(self) -> Iterator[bytes]:
        """The lines that are not blank, without their ends."""
        return (line for line in self._read().split(b"\n") if line.strip())

    def count(self) -> int:
        """The number of lines."""
        return self._read().count(b"\n")

    def _read(self) -> bytes:
        with io_errors(self.path), open_to_read(self.path) as file:
            file.seek(self.start)
            return file.read(self.stop - self.start)


def line_ranges(
    path: AnyPath, bytes_per_range: int = BYTES_PER_RANGE, start: int = 0, stop: int | None = None
) -> list[LineRange]:
    """An output, or some of a file, cut at the first line end after every `bytes_per_range` bytes of a file."""
    return [one for piece in pieces(path) for one in _ranges_of_file(piece, bytes_per_range, start, stop)]


def _ranges_of_file(path: AnyPath, bytes_per_range: int, start: int, end: int | None) -> Iterator[LineRange]:
    name = path.url if isinstance(path, ObjectPath) else os.path.abspath(path)
    with io_errors(path), open_to_read(path) as file:
        size = file.seek(0, os.SEEK_END) if end is None else end
        while start < size:
            file.seek(min(start + bytes_per_range, size))
            file.readline()
            stop = min(max(file.tell(), start + 1), size)
            yield LineRange(name, start, stop)
            start = stop
