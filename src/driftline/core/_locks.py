"""Locks with an owner: lock files on a local disk, leases in object stores.

A lease is created if absent, renewed while it is held and taken over when it has expired. It does not stop a slow
writer that lost it: what decides is committed by conditional puts (storage §3).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from driftline.core import _objects as objects
from driftline.core._files import StrPath
from driftline.core._objects import Location, ObjectPath
from driftline.errors import DriftlineError, LockedError, NotFoundError

LEASE_SECONDS = 60.0
_POLL_SECONDS = 0.25  # between attempts to take a lease
_GRACE_SECONDS = 60.0  # how long a lock file may name no owner


@contextmanager
def file_lock(place: Location, *, scope: str, wait_seconds: float = 0.0) -> Iterator[Callable[[], None]]:
    """Hold the lock at a path or URL; the yielded function raises once a lease is lost (a lock file never is)."""
    if isinstance(place, ObjectPath):
        with lease(place, scope=scope, wait_seconds=wait_seconds) as held:
            yield held.check
        return
    with exclusive_lock(place, scope=scope, wait_seconds=wait_seconds):
        yield lambda: None


class LockOwner(msgspec.Struct, frozen=True, rename="camel"):
    """The owner of a lock, as a lock file or a lease names it."""

    scope: str
    pid: int
    host: str
    lock_id: str
    started_at: str

    def to_json(self) -> bytes:
        """The bytes of the file or object."""
        return json.dumps(msgspec.to_builtins(self)).encode()


def _owner(scope: str) -> LockOwner:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return LockOwner(scope, os.getpid(), socket.gethostname(), secrets.token_hex(8), now)


# Leases in object stores.


class LeaseRecord(LockOwner, frozen=True, kw_only=True):
    """The content of a lease's object; every renewal changes it, so that no two versions are equal."""

    holder: str
    machine: str
    expires: float
    renewals: int = 0


class Lease:
    """A lease that is held; `check` raises once it is lost."""

    def __init__(self, record: LeaseRecord, version: objects.ObjectVersion, seconds: float) -> None:
        self._record = record
        self._version = version
        self._seconds = seconds
        self._lost = threading.Event()
        self._done = threading.Event()
        self._renewed_at = time.monotonic()

    def check(self) -> None:
        """Raise if another process may hold the lease by now."""
        if self._lost.is_set() or time.monotonic() - self._renewed_at > self._seconds:
            url = self._version.url
            message = f"the lease {url} was lost (this machine was cut off, or stood still): run again"
            raise LockedError(message, code="lease_lost", path=url)

    def renew_until_done(self) -> None:
        """Renew the lease until `stop`; runs in a dedicated thread."""
        while not self._done.wait(self._seconds / 4):
            try:
                self._renew(time.time() + self._seconds)
            except DriftlineError:
                continue  # tried again until it has expired
            if self._lost.is_set():
                return

    def stop(self) -> None:
        """Stop the renewals."""
        self._done.set()

    def release(self) -> None:
        """Expire the lease at once; it is not deleted, so that the next holder replaces a known version."""
        if not self._lost.is_set():
            self._renew(0.0)

    def _renew(self, expires: float) -> None:
        began = time.monotonic()
        record = msgspec.structs.replace(self._record, expires=expires, renewals=self._record.renewals + 1)
        version = objects.replace(self._version, record.to_json())
        if version is None:
            self._lost.set()
            return
        self._record, self._version, self._renewed_at = record, version, began


@contextmanager
def lease(
    place: ObjectPath, *, scope: str, wait_seconds: float = 0.0, seconds: float = LEASE_SECONDS
) -> Iterator[Lease]:
    """Hold the lease at `place`; `LockedError` when it is not free within `wait_seconds`."""
    held = _take(place, scope, time.monotonic() + wait_seconds, seconds)
    renewing = threading.Thread(target=held.renew_until_done, name="lease", daemon=True)
    renewing.start()
    try:
        yield held
    finally:
        held.stop()
        renewing.join()
        with contextlib.suppress(DriftlineError):  # then it expires by itself
            held.release()


def _take(place: ObjectPath, scope: str, deadline: float, seconds: float) -> Lease:
    while True:
        record = _new_record(scope, seconds)
        there = _read_lease(place)
        if there is None:
            version = objects.create(place.url, record.to_json())
        elif _is_free(there[0]):
            version = objects.replace(there[1], record.to_json())
        else:
            version = None
        if version is not None:
            return Lease(record, version, seconds)
        if time.monotonic() >= deadline:
            record_there = there[0] if there else {}
            holder = record_there.get("holder", "another process")
            raise LockedError(_held_message(place.name, holder, record_there), path=place.url)
        time.sleep(_POLL_SECONDS)


def _new_record(scope: str, seconds: float) -> LeaseRecord:
    owner = _owner(scope)
    holder, machine = f"process {owner.pid} on {owner.host}", _machine()
    return LeaseRecord(**msgspec.structs.asdict(owner), holder=holder, machine=machine, expires=time.time() + seconds)


def _read_lease(place: ObjectPath) -> tuple[dict[str, Any], objects.ObjectVersion] | None:
    try:
        data, version = objects.read_object(place.url)
    except NotFoundError:
        return None
    try:
        record = json.loads(data)
    except ValueError:
        record = None
    return (record if isinstance(record, dict) else {}), version


def _is_free(record: dict[str, Any]) -> bool:
    """Whether a lease has expired, is no lease, or was held by a process of this machine that has ended."""
    expires = record.get("expires")
    if not isinstance(expires, int | float) or expires < time.time():
        return True
    pid = record.get("pid")
    return record.get("machine") == _machine() != "" and isinstance(pid, int) and not process_runs(pid)


def _machine() -> str:
    """The boot id of this machine and its namespace of process numbers (containers have their own)."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


# Lock files.


@contextmanager
def exclusive_lock(path: StrPath, *, scope: str, wait_seconds: float = 0.0) -> Iterator[LockOwner]:
    """Hold the lock file `path`; a dead process's lock is taken over, a living one's never.

    Raises `LockedError` when the lock is not free within `wait_seconds`.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    owner = _owner(scope)
    deadline = time.monotonic() + wait_seconds
    while not _try_lock(target, owner):
        if time.monotonic() >= deadline:
            pid = _pid_of(holder := read_lock(target) or {})
            name = f"process {pid}" if pid is not None else "another process"
            raise LockedError(_held_message(target.name, name, holder), path=str(target))
        time.sleep(0.05)
    try:
        yield owner
    finally:
        if (read_lock(target) or {}).get("lockId") == owner.lock_id:
            target.unlink(missing_ok=True)


def _try_lock(target: Path, owner: LockOwner) -> bool:
    # The content is written first and linked into place, so that no process reads a half-written lock.
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
    is_dead = _is_abandoned(grave)
    if not is_dead:  # a living process took the lock between the check and the rename: it gets it back
        with contextlib.suppress(FileExistsError):
            os.link(grave, target)
    grave.unlink(missing_ok=True)
    return is_dead


def _is_abandoned(path: Path) -> bool:
    """Whether no process can hold this lock any more: its owner has ended, or it names none.

    Other tools create the lock first and fill it afterwards, so a lock without an owner is given some time.
    """
    holder = read_lock(path) or {}
    pid, here = _pid_of(holder), socket.gethostname()
    if pid is not None:  # on another host it is taken to be alive
        return holder.get("host", here) == here and not process_runs(pid)
    try:
        status = path.stat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > _GRACE_SECONDS


def read_lock(path: StrPath) -> dict[str, Any] | None:
    """The owner that a lock file names, or None if it is not readable."""
    try:
        # A pipe or device under the lock's name would block, and names no owner.
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
    """Whether a process is a zombie: it was killed, and no parent (in a container often) waits for it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False  # no such file system here
    return status.rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


# Both kinds of lock.


def _held_message(name: str, holder: str, record: dict[str, Any]) -> str:
    since = f" since {record['startedAt']}" if "startedAt" in record else ""
    return f"{name} is held by {holder}{since}: wait for it to end, or allow more waiting time"
