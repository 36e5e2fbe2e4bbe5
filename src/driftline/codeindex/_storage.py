"""What an index is stored in and made from: files below a cache root, JSON values, and the objects of a git repository.

Damage is an error that names the location inside the cache, never an absolute path, and nothing outside is read;
what the operating system refuses is reported the same way.
"""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from driftline.core import JsonObject, canonical_json, exclusive_lock
from driftline.errors import IndexRefError, LockedError

Number = int | float

LOCK = "locks/index.lock"

# Hooks run with these set, and they would lead away from the requested repository.
_STRAY_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
_SHALLOW = (
    "this clone is shallow, and its history may not reach that far: fetch it first "
    "(git fetch --unshallow --tags; in CI: fetch-depth: 0)"
)

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
    """Whether there is a directory."""
    status = status_of(path, place)
    return status is not None and stat.S_ISDIR(status.st_mode)


def exists(path: Path, place: str) -> bool:
    """Whether there is anything."""
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
        return _parse_leniently(data, place)


def _parse_leniently(data: bytes, place: str) -> Any:
    # msgspec refuses lone surrogates, which JavaScript writes; the standard library takes them.
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise IndexRefError(f"{place} is not valid JSON") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# JSON values of artifacts, converted as loosely as JavaScript would.


def text_or_empty(value: object) -> str:
    """A value put into a key: falsy becomes '', anything else its text.

    >>> text_or_empty(None), text_or_empty(7.0), text_or_empty("f")
    ('', '7', 'f')
    """
    if isinstance(value, str):
        return value
    return canonical_json(value) if value else ""


def text_or_none(value: object) -> str | None:
    """A text that is there, or None."""
    return text_or_empty(value) or None


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
    """An event as a line of `events.jsonl`."""
    return compact_json(event) + b"\n"


# A git repository as a store of objects: revisions, trees and blobs, never a checkout.


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One path of a tree; `size` is None for a submodule, whose object is a commit."""

    path: str
    mode: str
    object_id: str
    size: int | None


class GitRepository:
    """A repository, a bare clone or a worktree."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(os.path.abspath(directory))
        if not self.directory.is_dir():
            raise IndexRefError("the repository does not exist or is not a directory (--repo)", code="NOT_FOUND")
        common = self._ask("rev-parse", "--git-common-dir").decode("utf-8", "surrogateescape").rstrip("\n")
        self.common_directory = Path(os.path.abspath(self.directory / common))

    def tree_id(self, revision: str) -> str:
        """The tree of a revision; what cannot be found is `NOT_FOUND`, with a word about shallow clones."""
        done = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{tree}}")
        if done.returncode == 0:
            return done.stdout.decode().strip().splitlines()[-1]
        hint = f"; {_SHALLOW}" if self.is_shallow() else ""
        raise IndexRefError(f"git:{revision} is no revision of this repository{hint}", code="NOT_FOUND")

    def is_shallow(self) -> bool:
        """Whether history was cut off when the repository was cloned."""
        return self._run("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"

    def entries(self, tree_id: str) -> list[TreeEntry]:
        """All paths of a tree, in git's order; bytes that are not UTF-8 are written as \\xNN."""
        listed = self._ask("ls-tree", "-r", "-z", "-l", "--full-tree", tree_id)
        return [_entry(record) for record in listed.split(b"\0") if record]

    def blobs(self, object_ids: Iterable[str]) -> Iterator[bytes]:
        """The content of blobs, in the order asked for, from one process."""
        with tempfile.TemporaryFile() as wanted:
            wanted.write(b"".join(f"{object_id}\n".encode() for object_id in object_ids))
            wanted.seek(0)
            with subprocess.Popen(
                self._command("cat-file", "--batch"), stdin=wanted, stdout=subprocess.PIPE, env=_environment()
            ) as process:
                assert process.stdout is not None
                while header := process.stdout.readline():
                    words = header.split()
                    if len(words) != 3:
                        process.kill()
                        raise IndexRefError(f"git has no content for object {words[0].decode()}: fetch it first")
                    yield process.stdout.read(int(words[2]))
                    process.stdout.read(1)

    def _ask(self, *words: str) -> bytes:
        done = self._run(*words)
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").replace(str(self.directory), "the repository")
            first = next(iter(said.strip().splitlines()), "git failed").removeprefix("fatal: ")
            raise IndexRefError(f"git cannot read the repository: {first}")
        return done.stdout

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(self._command(*words), capture_output=True, check=False, env=_environment())
        except FileNotFoundError:
            raise IndexRefError("git is not installed: git: references and index build need it") from None
        except ValueError:
            raise IndexRefError("a revision cannot hold a NUL") from None

    def _command(self, *words: str) -> list[str]:
        return ["git", "-C", str(self.directory), *words]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _STRAY_VARIABLES}
    return {**kept, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1"}


def _entry(record: bytes) -> TreeEntry:
    facts, _, path = record.partition(b"\t")
    mode, _, object_id, size = facts.split()
    text = path.decode("utf-8", "backslashreplace")
    return TreeEntry(text, mode.decode(), object_id.decode(), None if size == b"-" else int(size))
