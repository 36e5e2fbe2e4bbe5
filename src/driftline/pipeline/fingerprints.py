"""Fingerprints of files: their bytes as a 128-bit hash, remembered by size, times and inode.

A file that is as it was is not read again; a file whose times changed is.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import xxhash

from driftline.core._files import explain_io_errors, open_to_read, size_of, write_atomically
from driftline.core._json import JsonObject
from driftline.core._objects import ObjectPath, Place, look_at
from driftline.core._progress import Tracker
from driftline.errors import InputError
from driftline.pipeline.declaration import Pipeline

_CHUNK = 4 << 20
_FILE_NAME = "fingerprints.json"


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """What a file was when it was looked at: enough to tell whether it still is."""

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

    def to_record(self) -> JsonObject:
        """The print as a run record shows it."""
        return {"path": self.path, "size": self.size, "fingerprint": self.content}


class FingerprintCache:
    """The fingerprints of one pipeline's files; each file is read once in a run, however many stages use it."""

    def __init__(self, pipeline: Pipeline, state: Place) -> None:
        self._pipeline = pipeline
        self._file = state / _FILE_NAME
        self._known = self._read()
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
        if taken is not None and not _is_as_it_was(path, taken):
            raise InputError(
                f"{taken.path} changed while it was being read: run again when nobody writes to it",
                code="source_changed",
                path=taken.path,
            )

    def save(self) -> None:
        """Keep the fingerprints for the next run."""
        of_disk = {taken.path: taken for path, taken in self._taken.items() if not isinstance(path, ObjectPath)}
        known = {**self._known, **of_disk}
        record = {name: [*entry.status, entry.content] for name, entry in sorted(known.items())}
        write_atomically(self._file, json.dumps(record, indent=1).encode())

    def _fingerprint_of(self, path: Place, tracker: Tracker) -> FileFingerprint:
        shown = self._pipeline.shown(path)
        if isinstance(path, ObjectPath):
            return _stored_fingerprint(path)
        status = _status(path, shown)
        known = self._known.get(shown)
        if known is not None and known.status == status:
            return known
        content = _hash(path, shown, status[0], tracker)
        if _status(path, shown) != status:
            raise InputError(f"{shown} changed while it was being read", code="source_changed", path=shown)
        return FileFingerprint(shown, *status, content)

    def _read(self) -> dict[str, FileFingerprint]:
        try:
            record = json.loads(self._file.read_bytes())
            return {name: FileFingerprint(name, *entry) for name, entry in record.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}  # a memory that is lost or damaged only costs reading the files again


def files_below(path: Place) -> list[Place]:
    """The file itself, or every file of a folder in the order of names."""
    if isinstance(path, ObjectPath):
        below: list[Place] = [found for found in path.below() if not found.name.startswith((".", "_"))]
        return below if below and not path.exists() else [path]
    if not path.is_dir():
        return [path]
    return sorted(found for found in path.rglob("*") if found.is_file() and not found.name.startswith("."))


def size_below(path: Place) -> int:
    """The bytes of a file, or of all files of a folder; nothing where there is none."""
    return sum(map(_size, files_below(path)))


def _size(file: Place) -> int:
    if isinstance(file, ObjectPath):
        version = file.version()
        return version.size if version is not None else 0
    return file.stat().st_size if file.is_file() else 0


def _stored_fingerprint(path: ObjectPath) -> FileFingerprint:
    """Of an object: what the store says about its content, which costs no reading."""
    found = look_at(path.url)
    return FileFingerprint(path.url, found.size, 0, 0, 0, f"etag:{found.etag.strip(chr(34))}:{found.size}")


def _is_as_it_was(path: Place, taken: FileFingerprint) -> bool:
    if isinstance(path, ObjectPath):
        return _stored_fingerprint(path) == taken
    return _status(path, taken.path) == taken.status


def checksum(path: Place) -> str:
    """The hash of a file's bytes."""
    return _hash(path, path.name, size_of(path), Tracker())


def _hash(path: Place, shown: str, size: int, tracker: Tracker) -> str:
    digest = xxhash.xxh3_128()
    with explain_io_errors(shown), open_to_read(path) as file, tracker.phase("fingerprint", total=size):
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            tracker.advance(len(chunk))
    return f"xxh128:{digest.hexdigest()}"


def _status(path: Path, shown: str) -> tuple[int, int, int, int]:
    with explain_io_errors(shown):
        status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
