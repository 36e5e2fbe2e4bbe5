"""What an index is stored in: files below a cache root, and JSON values.

Damage is an error that names the location inside the cache, never an absolute path, and nothing outside is read;
what the operating system refuses is reported the same way.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from driftline.core import JsonObject, canonical_json, exclusive_lock
from driftline.errors import IndexRefError, LockedError

Number = int | float

LOCK = "locks/index.lock"

_decode = msgspec.json.Decoder().decode


class CacheRoot:
    """The directory that holds `builds/`, `snapshots/`, `diffs/` and `locks/` of one repository."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(directory))
        self.real = Path(os.path.realpath(self.path))
        self._real_folders: dict[str, str] = {}
        if not is_directory(self.real, "the cache root"):
            raise IndexRefError("the cache root does not exist or is not a directory", code="NOT_FOUND")

    def inside(self, relative: str, what: str) -> Path:
        """The location of `relative` below the root; leaving it, by name or through a symlink, is refused."""
        try:
            candidate = os.path.abspath(os.path.join(self.path, relative))
            lexical = any(is_below(candidate, str(root)) for root in (self.path, self.real))
            if "\0" not in candidate and lexical and is_below(self._real_path(candidate), str(self.real)):
                return Path(candidate)
        except (OSError, ValueError):
            pass
        raise IndexRefError(f"{what} leaves the cache root")

    def _real_path(self, candidate: str) -> str:
        """`realpath`, resolved once a folder: an index has hundreds of shards in one."""
        if os.path.islink(candidate):
            return os.path.realpath(candidate)
        folder, name = os.path.split(candidate)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        return os.path.join(self._real_folders[folder], name)


def is_below(path: str, root: str) -> bool:
    """Whether a path is a directory or below it, by its name."""
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


@contextmanager
def index_lock(cache: CacheRoot, wait_ms: int = 0) -> Iterator[None]:
    """Hold the lock that builds, snapshots and diffs share; `QUEUE_OVERLOADED` while another process has it."""
    path = cache.inside(LOCK, LOCK)
    try:
        with exclusive_lock(path, scope="index-diff", wait_seconds=wait_ms / 1000):
            yield
    except LockedError as error:
        raise LockedError(f"{error.message} (--wait-ms)", code="QUEUE_OVERLOADED") from None
    except OSError as error:
        raise explain(error, LOCK) from None


def explain(error: OSError | ValueError, place: str) -> IndexRefError:
    """The error for a file that cannot be used; the operating system's message would name its absolute path."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return IndexRefError(f"{place} does not exist", code="NOT_FOUND")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable path"
    return IndexRefError(f"{place} cannot be read: {reason}")


def status_of(path: Path, place: str) -> os.stat_result | None:
    """The status of a path, or None; a directory that may not be read is an error, not an absence."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise explain(error, place) from None


def is_directory(path: Path, place: str) -> bool:
    status = status_of(path, place)
    return status is not None and stat.S_ISDIR(status.st_mode)


def exists(path: Path, place: str) -> bool:
    return status_of(path, place) is not None


def regular_size(path: Path, place: str) -> int:
    """The size of a file; a pipe or a device, which could block for ever, is refused."""
    status = status_of(path, place)
    if status is None:
        raise IndexRefError(f"{place} does not exist", code="NOT_FOUND")
    if not stat.S_ISREG(status.st_mode):
        raise IndexRefError(f"{place} is not a regular file")
    return status.st_size


def names_in(directory: Path, place: str) -> list[str]:
    """The sorted names in a directory; none where there is no directory."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise explain(error, place) from None


def read_bytes(path: Path, place: str) -> bytes:
    """A file's content, with errors that name `place` instead of the path."""
    regular_size(path, place)
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise explain(error, place) from None


def read_object(path: Path, place: str) -> JsonObject:
    """The object in a JSON file: missing is `NOT_FOUND`, unreadable is `INVALID_REQUEST`."""
    value = parse_json(read_bytes(path, place), place)
    if not isinstance(value, dict):
        raise IndexRefError(f"{place} does not hold a JSON object")
    return value


def parse_json(data: bytes, place: str) -> Any:
    """The value of a JSON text; `place` names it in the error."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    # msgspec refuses lone surrogates, which JavaScript writes; the standard library takes them.
    try:
        return json.loads(data.decode("utf-8"), parse_constant=int)  # NaN and Infinity are no JSON, and no numbers
    except (ValueError, RecursionError):
        raise IndexRefError(f"{place} is not valid JSON") from None


# JSON values of artifacts, converted as loosely as JavaScript would.


def text_or_empty(value: object) -> str:
    """A value put into a key: falsy becomes '', anything else its text.

    >>> text_or_empty(None), text_or_empty(7.0), text_or_empty("f")
    ('', '7', 'f')
    """
    if isinstance(value, str):
        return value
    return canonical_json(value) if value else ""


def number_or_none(value: object) -> Number | None:
    """A number, whole where it can be, so that `1.0` and `1` are the same; None for anything else."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else value


def row_id(value: object) -> str | None:
    """A row number as text, by which rows are joined on every engine; None for what cannot be one.

    >>> row_id(1) == row_id(1.0), row_id("1") == row_id(1), row_id(None)
    (True, False, None)
    """
    if isinstance(value, str):
        return canonical_json(value)
    if isinstance(value, bool):
        return row_id(int(value))
    number = number_or_none(value)
    return None if number is None else str(number) if isinstance(number, int) else canonical_json(number)


def member(record: object, name: str) -> Any:
    """A member of a record that may not be one."""
    return record.get(name) if isinstance(record, dict) else None


def compact_json(value: object) -> bytes:
    """JSON without white space, members in their own order; lone surrogates are escaped.

    >>> compact_json({"b": 1, "a": "\\ud83d"})
    b'{"b":1,"a":"\\\\ud83d"}'
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A lone surrogate, which JSON can only hold escaped.
        return json.dumps(value, separators=(",", ":")).encode()


def event_line(event: dict[str, Any]) -> bytes:
    return compact_json(event) + b"\n"
