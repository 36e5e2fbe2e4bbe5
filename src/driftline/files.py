"""Outputs that are whole or absent, locks with an owner, and byte streams through plain, gzip and zstd.

>>> import tempfile, pathlib
>>> target = pathlib.Path(tempfile.mkdtemp()) / "out.txt"
>>> with atomic_write(target) as out:
...     _ = out.write(b"done")
>>> target.read_bytes()
b'done'
"""

from __future__ import annotations

import contextlib
import errno
import glob
import gzip
import io
import json
import os
import re
import secrets
import socket
import stat
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

from backports import zstd

from driftline.errors import InputError, LockedError, NotFoundError, OptionError, StorageError

Compression = Literal["plain", "gzip", "zstd"]
StrPath = str | os.PathLike[str]

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BUFFER_BYTES = 1 << 20
_GRACE_SECONDS = 60.0  # how long a lock may say nothing about its holder
STANDARD_OUTPUT = "standard output"
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]+)\Z")
_STANDARD_DEVICES = {"/dev/stdout": 1, "/dev/stderr": 2}


@contextmanager
def open_output(path: StrPath | None, inputs: Iterable[StrPath] = ()) -> Iterator[BinaryIO]:
    """Where a command writes its result: `path`, whole or not at all, or standard output when there is none."""
    if path is not None:
        with atomic_write(path, inputs) as out:
            yield out
        return
    out = standard_output()
    try:
        yield out
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise explain_os_error(error, error.filename or STANDARD_OUTPUT) from error


def standard_output() -> BinaryIO:
    """Standard output for bytes, behind what was written to it as text."""
    sys.stdout.flush()
    return cast(BinaryIO, sys.stdout.buffer)


@contextmanager
def atomic_write(path: StrPath, inputs: Iterable[StrPath] = ()) -> Iterator[BinaryIO]:
    """A binary file that appears under `path` whole, synced to disk, or not at all.

    Symbolic links are followed, and mode and owner of a file that is replaced stay. What cannot be replaced (a
    device, a pipe) is written to as it is. An output that is one of `inputs` is refused.
    """
    refuse_output_among(path, inputs)
    with explain_io_errors(path):
        descriptor = _open_descriptor(path)
        status = _status_of(path)
        if descriptor is not None or (status is not None and not stat.S_ISREG(status.st_mode)):
            with open(path if descriptor is None else os.dup(descriptor), "wb", buffering=_BUFFER_BYTES) as out:
                yield out
            return
    yield from _write_beside(path)


def _write_beside(path: StrPath) -> Iterator[BinaryIO]:
    """Write a temporary file in the target's folder, and put it into the target's place when it is complete."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with explain_io_errors(path), open(temporary, "wb", buffering=_BUFFER_BYTES) as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        replace_file(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(temporary: StrPath, path: StrPath) -> None:
    """Put a complete file into the place of `path`, or of what a link there leads to; mode and owner stay."""
    with explain_io_errors(path):
        replaced = _status_of(path)
        if replaced is not None and not stat.S_ISREG(replaced.st_mode):
            raise OptionError(f"{os.fspath(path)} is not a regular file", code="not_a_file")
        if replaced is not None:
            _keep_access(temporary, replaced)
        target = os.path.realpath(path)
        os.replace(temporary, target)
        sync_directory(os.path.dirname(target))


def _open_descriptor(path: StrPath) -> int | None:
    """The number behind a path such as /dev/stdout: opened by name, what it leads to would be cut to nothing."""
    name = os.fspath(path)
    found = _DESCRIPTOR.match(name)
    return int(found[1]) if found else _STANDARD_DEVICES.get(name)


def _status_of(path: StrPath) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _keep_access(file: StrPath, replaced: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):  # only root may give files away
        os.chown(file, replaced.st_uid, replaced.st_gid)
    os.chmod(file, stat.S_IMODE(replaced.st_mode))


def refuse_output_among(output: StrPath, inputs: Iterable[StrPath]) -> None:
    """Raise if writing `output` would destroy one of the inputs: a file, one in a folder or glob, `file.db::table`."""
    status = _status_of(output)
    if status is None or not stat.S_ISREG(status.st_mode):
        return
    for given in inputs:
        if any(_is_same_file(status, name) for name in _files_behind(os.fspath(given))):
            raise OptionError(
                f"{os.fspath(output)} is one of the inputs: write the result to another file", code="output_is_input"
            )


def _files_behind(name: str) -> Iterator[str]:
    yield name
    yield name.rpartition("::")[0]
    if os.path.isdir(name):
        yield from (entry.path for entry in os.scandir(name))
    elif glob.has_magic(name):
        yield from glob.iglob(name)


def _is_same_file(status: os.stat_result, name: str) -> bool:
    try:
        return os.path.samestat(status, os.stat(name))
    except (OSError, ValueError):
        return False


def write_atomically(path: StrPath, data: bytes) -> None:
    """Replace `path` by `data` in one step."""
    with atomic_write(path) as out:
        out.write(data)


def write_all(out: IO[bytes], data: bytes | memoryview) -> int:
    """Write every byte; a raw stream may take only a part at a time. How many bytes there were."""
    rest = memoryview(data).cast("B")
    size = len(rest)
    while rest:
        taken = out.write(rest)
        if not taken:
            raise BlockingIOError(errno.EAGAIN, "the stream takes no more bytes")
        rest = rest[taken:]
    return size


class UnbufferedWriter(io.BufferedWriter):
    """A raw stream that takes every write whole and passes it on at once (`python -u` makes stdout raw)."""

    def write(self, data: Any, /) -> int:
        """Write every byte."""
        taken = super().write(data)
        self.flush()
        return taken


def sync_directory(path: StrPath) -> None:
    """Make a rename in this directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explain_io_errors(path: StrPath) -> Iterator[None]:
    """Turn an `OSError` into one clear line about `path`; that nobody reads a pipe any more is left as it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise explain_os_error(error, path) from error


def explain_os_error(error: OSError, path: StrPath) -> StorageError | InputError:
    """The driftline error for an `OSError`, with what to do about it."""
    if isinstance(error, NotFoundError):
        return error  # explained already, where the right name was known
    name = os.fspath(path)
    if error.errno == errno.ENOENT:
        return NotFoundError(f"no such file or directory: {name}", path=name)
    if error.errno == errno.EISDIR:
        return InputError(f"{name} is a directory, a file is wanted", code="is_a_directory", path=name)
    if error.errno in (errno.EACCES, errno.EPERM):
        return InputError(f"no permission for {name}", code="permission_denied", path=name)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"the disk is full while writing {name}: free some space or choose another place",
            code="disk_full",
            path=name,
        )
    return StorageError(f"{name}: {error.strerror or error}", code="io_error", path=name)


def compression_of(path: StrPath) -> Compression:
    """How a file is compressed, by its first bytes (the name may lie)."""
    with explain_io_errors(path), open(path, "rb") as file:
        start = file.read(4)
    return compression_of_bytes(start)


def compression_of_bytes(start: bytes) -> Compression:
    """How a stream that begins with these bytes is compressed."""
    if start.startswith(_GZIP_MAGIC):
        return "gzip"
    return "zstd" if start.startswith(_ZSTD_MAGIC) else "plain"


def open_bytes(path: StrPath) -> BinaryIO:
    """A readable stream of the file's content, decompressed on the way."""
    kind = compression_of(path)
    with explain_io_errors(path):
        raw = open(path, "rb", buffering=_BUFFER_BYTES)  # noqa: SIM115 - handed to the caller
    return decompressed(raw, kind, os.fspath(path))


def decompressed(raw: BinaryIO, kind: Compression, name: str) -> BinaryIO:
    """`raw` read through its decompressor; damage is an `InputError` that names the file."""
    if kind == "plain":
        return raw
    opened: Any = gzip.GzipFile(fileobj=raw, mode="rb") if kind == "gzip" else zstd.ZstdFile(raw, "rb")
    return cast(BinaryIO, io.BufferedReader(_CheckedStream(opened, raw, name), _BUFFER_BYTES))


def read_lines(path: StrPath) -> Iterator[bytes]:
    """The lines of a plain, gzip or zstd file, without their line feeds."""
    with open_bytes(path) as stream:
        for line in stream:
            yield line[:-1] if line.endswith(b"\n") else line


class _CheckedStream(io.RawIOBase):
    """A decompressing stream that closes its source and explains damage."""

    def __init__(self, stream: IO[bytes], raw: BinaryIO, name: str) -> None:
        self._stream = stream
        self._raw = raw
        self._name = name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile, zstd.ZstdError) as error:
            raise InputError(
                f"{self._name} is damaged or cut short: {error}", code="corrupt_compression", path=self._name
            ) from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(OSError, EOFError):
                self._stream.close()
            self._raw.close()
        super().close()


@dataclass(frozen=True, slots=True)
class LockOwner:
    """Who holds a lock, as written into the lock file."""

    scope: str
    pid: int
    host: str
    lock_id: str
    started_at: str

    def to_json(self) -> bytes:
        """The lock file's content."""
        record = {
            "scope": self.scope,
            "pid": self.pid,
            "host": self.host,
            "lockId": self.lock_id,
            "startedAt": self.started_at,
        }
        return json.dumps(record).encode()


@contextmanager
def exclusive_lock(path: StrPath, *, scope: str, wait_seconds: float = 0.0) -> Iterator[LockOwner]:
    """Hold the lock file `path`; a dead process's lock is taken over, a living one's never.

    Raises `LockedError` when the lock is not free within `wait_seconds`.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    owner = LockOwner(scope, os.getpid(), socket.gethostname(), secrets.token_hex(8), _utc_now())
    deadline = time.monotonic() + wait_seconds
    while not _try_lock(target, owner):
        if time.monotonic() >= deadline:
            raise LockedError(_held_message(target), path=str(target))
        time.sleep(0.05)
    try:
        yield owner
    finally:
        _release(target, owner)


def _try_lock(target: Path, owner: LockOwner) -> bool:
    # The content is written first and linked into place, so that nobody ever reads a half-written lock.
    temporary = target.with_name(f".{target.name}.{owner.lock_id}.tmp")
    temporary.write_bytes(owner.to_json())
    try:
        for _ in range(2):
            try:
                os.link(temporary, target)
                return True
            except FileExistsError:
                if not _remove_if_dead(target):
                    return False
        return False
    finally:
        temporary.unlink(missing_ok=True)


def _remove_if_dead(target: Path) -> bool:
    if not _is_abandoned(target):
        return False
    # Only one of several waiting processes may move the dead lock away: a rename has one winner.
    grave = target.with_name(f".{target.name}.{secrets.token_hex(4)}.dead")
    try:
        os.rename(target, grave)
    except FileNotFoundError:
        return True
    if not _is_abandoned(grave):
        # A living process took the lock between our look and our rename: give it back.
        with contextlib.suppress(FileExistsError):
            os.link(grave, target)
        grave.unlink(missing_ok=True)
        return False
    grave.unlink(missing_ok=True)
    return True


def _is_abandoned(path: Path) -> bool:
    """Whether nobody can hold this lock any more: its process has ended, or it never said who holds it.

    Other tools create the lock first and fill it afterwards, so a lock without a holder is given some time.
    """
    holder = read_lock(path)
    if holder is not None and _pid_of(holder) is not None:
        return not process_is_alive(holder)
    try:
        status = path.stat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > _GRACE_SECONDS


def read_lock(path: StrPath) -> dict[str, Any] | None:
    """What a lock file says about its holder, or None if there is no readable one."""
    try:
        # A pipe or device under the lock's name would block, and says nothing about a holder.
        content = json.loads(Path(path).read_bytes()) if Path(path).is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _pid_of(holder: dict[str, Any]) -> int | None:
    """The process number in a lock; some tools write it as text."""
    pid = holder.get("pid")
    if isinstance(pid, str) and pid.strip().isdecimal():
        pid = int(pid)
    return pid if isinstance(pid, int) and not isinstance(pid, bool) else None


def process_is_alive(holder: dict[str, Any]) -> bool:
    """Whether the holder of a lock still runs; on another host it is taken to be alive."""
    if holder.get("host", socket.gethostname()) != socket.gethostname():
        return True
    pid = _pid_of(holder)
    return pid is not None and process_runs(pid)


def process_runs(pid: int) -> bool:
    """Whether a process of this machine runs; one that has ended and was not waited for yet does not."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return not _has_ended(pid)


def _has_ended(pid: int) -> bool:
    """Whether a process is a zombie: killed, and its parent (in a container often nobody) does not care."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False  # no such file system here
    return status.rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


def _release(target: Path, owner: LockOwner) -> None:
    holder = read_lock(target)
    if holder is not None and holder.get("lockId") == owner.lock_id:
        target.unlink(missing_ok=True)


def _held_message(target: Path) -> str:
    holder = read_lock(target) or {}
    pid = _pid_of(holder)
    who = f"process {pid}" if pid is not None else "another process"
    since = f" since {holder['startedAt']}" if "startedAt" in holder else ""
    return f"{target.name} is held by {who}{since}: wait for it to end, or allow more waiting time"


def _utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
