"""The outputs of a stage, written under temporary names and committed together; fingerprints of files.

On a disk an output is written beside its place and renamed. In a store it is uploaded to a temporary name and copied by
the store. A folder of ordered parts is written in place: parts have names of their own, and the manifest, which is
put last, makes them count (storage §2, §4).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from driftline import core
from driftline.core import Location, ObjectPath, PartWriter, Tracker, io_errors
from driftline.errors import DriftlineError, InputError, StorageError
from driftline.pipeline._declare.declaration import Pipeline, Place, TableAddress
from driftline.pipeline._declare.tables import TableReader
from driftline.pipeline._stages.stage import OutputFile, Stage

_MARK = ".part"
_FILE_NAME = "fingerprints.json"


class Outputs:
    """Temporary places for a stage's outputs; `commit` puts them all into place, `discard` removes what is left."""

    def __init__(self, pipeline: Pipeline, stage: Stage) -> None:
        self._pipeline = pipeline
        self._places = stage.outputs
        self._folders = stage.part_folders
        self._writers: dict[str, PartWriter] = {}
        self._temporary: dict[str, Location] = {}
        for role, place in self._places.items():
            if role not in self._folders:  # a folder of its own: whatever an engine puts beside its output goes with it
                token = f"{os.getpid()}-{secrets.token_hex(4)}-{role}"
                is_stored = isinstance(place, ObjectPath)
                own = (
                    _leftovers(pipeline, place) / token
                    if is_stored
                    else place.with_name(f".{place.name}.{token}{_MARK}")
                )
                self._temporary[role] = own / place.name

    def path(self, role: str) -> Location:
        """Where the stage writes; the folder is made."""
        temporary = self._temporary[role]
        with io_errors(self._pipeline.shown(temporary.parent)):
            temporary.parent.mkdir(parents=True, exist_ok=True)
        return temporary

    @contextmanager
    def writing(self, role: str) -> Iterator[BinaryIO]:
        """A stream into an output; a folder gets it as parts."""
        parts = self.parts(role)
        if parts is not None:
            yield cast(BinaryIO, parts)  # which is only written to
            return
        place = self.path(role)
        if isinstance(place, ObjectPath):
            with core.uploading(place.url) as out:
                yield out
        else:
            with io_errors(self._pipeline.shown(place)), open(place, "wb", buffering=1 << 20) as out:
                yield out

    def parts(self, role: str) -> PartWriter | None:
        """The writer of an output that is a folder of ordered parts; None for other ones."""
        if role in self._folders and role not in self._writers:
            self._writers[role] = PartWriter(self._places[role])
        return self._writers.get(role)

    def written(self, role: str) -> list[Location]:
        """The files of an output that is written and not committed yet, in order."""
        return self._writers[role].places() if role in self._folders else [self._temporary[role]]

    def commit(self) -> tuple[OutputFile, ...]:
        """Make every output durable and put it into place."""
        for role, temporary in self._temporary.items():
            files = [file for file in files_below(temporary) if file.exists()]
            if not files:
                raise StorageError(f"the stage wrote no {role}", code="missing_output")
            for file in files:
                if isinstance(file, Path):  # what a store has taken is durable
                    with io_errors(file.name):
                        core.sync_directory(file)
        for role, temporary in self._temporary.items():
            place = self._places[role]
            with io_errors(self._pipeline.shown(place)):
                _move(temporary, place)
            core.remove(temporary.parent)
        for writer in self._writers.values():
            writer.commit()
        self._writers.clear()
        return tuple(entry for role in self._places for entry in self._described(role))

    def discard(self) -> None:
        """Remove what was not committed."""
        for temporary in self._temporary.values():
            core.remove(temporary.parent)
        for writer in self._writers.values():
            writer.discard()
        self._writers.clear()

    def _described(self, role: str) -> list[OutputFile]:
        """An output as the record holds it: a folder of parts as a whole, any other folder by its files."""
        place = self._places[role]
        if role in self._folders:
            size = sum(part.size for part in core.read_manifest(place) or ())
            return [OutputFile(role, f"{self._pipeline.shown(place)}/", size, _parts_checksum(place), 0)]
        found = []
        for file in files_below(place):
            if isinstance(file, ObjectPath):
                about = core.stat_object(file.url)
                stated = about.size, f"etag:{about.etag}", 0
            else:
                status = file.stat()
                stated = status.st_size, checksum(file), status.st_mtime_ns
            found.append(OutputFile(role, self._pipeline.shown(file), *stated))
        return found


def _parts_checksum(folder: Location) -> str:
    """One hash for the parts that a manifest names."""
    listed = [f"{part.name} {part.size} {part.checksum}" for part in core.read_manifest(folder) or ()]
    return f"parts:{core.sha256_hex(chr(10).join(listed))[:32]}"


def sweep(pipeline: Pipeline, places: Iterable[Location]) -> None:
    """Remove what killed runs left beside these places; only the holder of the pipeline's lock may."""
    for folder in {_leftovers(pipeline, place) for place in places if isinstance(place, ObjectPath)}:
        core.remove(folder)
    for place in places:
        if isinstance(place, Path) and place.parent.is_dir():
            for left in place.parent.iterdir():
                if left.name.startswith(f".{place.name}.") and left.name.endswith(_MARK):
                    core.remove(left)


def sweep_state(state: Location) -> None:
    """Remove what killed runs left in the pipeline's own directory."""
    if isinstance(state, ObjectPath):
        core.remove(state / "work")
        return
    for left in [*state.rglob(".*.tmp"), *state.rglob(f".*{_MARK}"), *(state / "work").glob("*")]:
        core.remove(left)


def _leftovers(pipeline: Pipeline, place: Location) -> Location:
    """One folder beside the outputs, so that leftovers are found without listing all other files."""
    return place.with_name(f".driftline-{pipeline.name}{_MARK}")


def is_there(place: Location, output: OutputFile, thorough: bool) -> bool:
    """Whether a committed file is what it was; bytes are read only where times differ, or on demand."""
    try:
        if output.path.endswith("/"):
            parts = core.read_manifest(place) or ()
            is_same = _parts_checksum(place) == output.checksum
            files = [(place / part.name, part) for part in parts]
            is_same = is_same and all(core.size_of(file) == part.size for file, part in files)
            return is_same and not (thorough and any(checksum(file) != part.checksum for file, part in files))
        if isinstance(place, ObjectPath):
            found = place.version()
            return found is not None and f"etag:{found.etag}" == output.checksum
        status = place.stat()
    except (OSError, DriftlineError):
        return False
    if status.st_size != output.size:
        return False
    if status.st_mtime_ns == output.modified_ns and not thorough:
        return True
    return checksum(place) == output.checksum


def _move(temporary: Location, place: Location) -> None:
    if isinstance(temporary, ObjectPath):
        assert isinstance(place, ObjectPath)
        if temporary.exists():
            core.copy_object(temporary.url, place.url)
            return
        before = {file.url for file in place.below()}
        moved = {file.url: place.url + file.url.removeprefix(temporary.url) for file in temporary.below()}
        for url, target in moved.items():
            core.copy_object(url, target)
        for url in before.difference(moved.values()):
            core.delete_object(url)
        return
    assert isinstance(place, Path)
    if place.is_dir():
        grave = place.with_name(f".{place.name}.{secrets.token_hex(4)}{_MARK}")
        os.rename(place, grave)
        os.rename(temporary, place)
        shutil.rmtree(grave, ignore_errors=True)
    else:
        core.replace_file(temporary, place)
    core.sync_directory(place.parent)


# Fingerprints: the bytes of a file as a 128-bit hash, read again only when its size, times or inode changed.
@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """Size, times and hash of a file when it was read: enough to see whether it changed."""

    path: str
    size: int
    modified_ns: int
    changed_ns: int
    inode: int
    content: str

    @property
    def status(self) -> tuple[int, int, int, int]:
        """What the file system says about it."""
        return self.size, self.modified_ns, self.changed_ns, self.inode


class FingerprintCache:
    """The fingerprints of one pipeline's files; each file is read once in a run, however many stages use it."""

    def __init__(self, pipeline: Pipeline, state: Location, tables: TableReader) -> None:
        self._pipeline = pipeline
        self._file = state / _FILE_NAME
        self._known = self._read()
        self._tables = tables
        self._taken: dict[Place, FileFingerprint] = {}
        self._locks: dict[Place, threading.Lock] = {}
        self._lock = threading.Lock()

    def take(self, path: Place, tracker: Tracker) -> FileFingerprint:
        """The print of a file for this run."""
        with self._lock:
            own = self._locks.setdefault(path, threading.Lock())
        with own:
            if path not in self._taken:
                self._taken[path] = self._fingerprint_of(path, tracker)
            return self._taken[path]

    def check(self, path: Place) -> None:
        """Raise if a file is no longer what this run began with."""
        taken = self._taken.get(path)
        if taken is None:
            return
        if isinstance(path, TableAddress):
            self._tables.check(path, taken.content)
            return
        if isinstance(path, ObjectPath):
            is_as_it_was = _stored_fingerprint(path) == taken
        else:
            is_as_it_was = _status(path, taken.path) == taken.status
        if not is_as_it_was:
            raise InputError(
                f"{taken.path} changed while it was being read: run again when nobody writes to it",
                code="source_changed",
                path=taken.path,
            )

    def save(self) -> None:
        """Keep the fingerprints for the next run."""
        of_disk = {taken.path: taken for path, taken in self._taken.items() if isinstance(path, Path)}
        known = {**self._known, **of_disk}
        record = {name: [*entry.status, entry.content] for name, entry in sorted(known.items())}
        core.write_atomically(self._file, json.dumps(record, indent=1).encode())

    def _fingerprint_of(self, path: Place, tracker: Tracker) -> FileFingerprint:
        if isinstance(path, ObjectPath):
            return _stored_fingerprint(path)
        shown = self._pipeline.shown(path)
        if isinstance(path, TableAddress):
            with tracker.phase(f"read {shown}", total=None):
                return FileFingerprint(shown, 0, 0, 0, 0, self._tables.content(path))
        status = _status(path, shown)
        known = self._known.get(shown)
        if known is not None and known.status == status:
            return known
        content = checksum(path, shown, tracker)
        if _status(path, shown) != status:
            raise InputError(f"{shown} changed while it was being read", code="source_changed", path=shown)
        return FileFingerprint(shown, *status, content)

    def _read(self) -> dict[str, FileFingerprint]:
        try:
            record = json.loads(self._file.read_bytes())
            return {name: FileFingerprint(name, *entry) for name, entry in record.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # a memory that is lost or damaged only costs reading the files again


def places_below(path: Place) -> list[Place]:
    """What the fingerprint of a source is made of: its files, or the table itself."""
    return [path] if isinstance(path, TableAddress) else [*files_below(path)]


def files_below(path: Location) -> list[Location]:
    """The file itself, or every file of a folder in the order of names."""
    if isinstance(path, ObjectPath):
        below: list[Location] = [found for found in path.below() if not found.name.startswith((".", "_"))]
        return below if below and not path.exists() else [path]
    if not path.is_dir():
        return [path]
    return sorted(found for found in path.rglob("*") if found.is_file() and not found.name.startswith("."))


def bytes_of(paths: Iterable[Place]) -> int:
    """The bytes of files and of all files of folders; nothing where there is none, or a table is no file."""
    files = [file for path in paths if not isinstance(path, TableAddress) for file in files_below(path)]
    return sum(core.size_of(file) for file in files if file.exists() and not (isinstance(file, Path) and file.is_dir()))


def _stored_fingerprint(path: ObjectPath) -> FileFingerprint:
    """Of an object: what the store says about its content, which costs no reading."""
    found = core.stat_object(path.url)
    return FileFingerprint(path.url, found.size, 0, 0, 0, f"etag:{found.etag.strip(chr(34))}:{found.size}")


def checksum(path: Location, shown: str | None = None, tracker: Tracker | None = None) -> str:
    """The hash of a file's bytes."""
    tracker = tracker or Tracker()
    with io_errors(shown or path.name), tracker.phase("fingerprint", total=core.size_of(path)):
        return f"xxh128:{core.file_digest(path, on_read=tracker.advance)}"


def _status(path: Path, shown: str) -> tuple[int, int, int, int]:
    with io_errors(shown):
        status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
