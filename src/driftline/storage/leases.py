"""A lock in an object store is a lease: created if absent, renewed while it is held, taken over when it has expired.

A lease does not stop a slow writer that lost it: what decides is committed by conditional verbs (storage §3).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftline.errors import DriftlineError, LockedError, NotFoundError
from driftline.storage import objects
from driftline.storage.object_path import ObjectPath

LEASE_SECONDS = 60.0
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What the lease's object says."""

    scope: str
    lock_id: str
    holder: str
    host: str
    pid: int
    machine: str
    started_at: str
    expires: float
    renewals: int = 0

    def to_json(self) -> bytes:
        """The object; every renewal makes other bytes, so that no two versions look alike."""
        return json.dumps(
            {
                "scope": self.scope,
                "lockId": self.lock_id,
                "holder": self.holder,
                "host": self.host,
                "pid": self.pid,
                "machine": self.machine,
                "startedAt": self.started_at,
                "expires": self.expires,
                "renewals": self.renewals,
            }
        ).encode()


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
        """Raise if somebody else may hold it by now."""
        if self._lost.is_set() or time.monotonic() - self._renewed_at > self._seconds:
            raise LockedError(
                f"the lease {self._version.url} was lost (this machine was cut off, or stood still): run again",
                code="lease_lost",
                path=self._version.url,
            )

    def renew_until_done(self) -> None:
        """Keep it alive, in a thread of its own."""
        while not self._done.wait(self._seconds / 4):
            try:
                self._renew(time.time() + self._seconds)
            except DriftlineError:
                continue  # tried again until it has expired
            if self._lost.is_set():
                return

    def stop(self) -> None:
        """No more renewals."""
        self._done.set()

    def release(self) -> None:
        """Let it expire at once; it is not deleted, so that whoever comes next still replaces a known version."""
        if not self._lost.is_set():
            self._renew(0.0)

    def _renew(self, expires: float) -> None:
        began = time.monotonic()
        record = replace(self._record, expires=expires, renewals=self._record.renewals + 1)
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
        there = _there(place)
        if there is None:
            version = objects.create(place.url, record.to_json())
        elif _is_free(there[0]):
            version = objects.replace(there[1], record.to_json())
        else:
            version = None
        if version is not None:
            return Lease(record, version, seconds)
        if time.monotonic() >= deadline:
            raise LockedError(_held_words(place, there[0] if there else {}), path=place.url)
        time.sleep(_POLL_SECONDS)


def _new_record(scope: str, seconds: float) -> LeaseRecord:
    return LeaseRecord(
        scope,
        secrets.token_hex(8),
        f"process {os.getpid()} on {socket.gethostname()}",
        socket.gethostname(),
        os.getpid(),
        _machine(),
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        time.time() + seconds,
    )


def _there(place: ObjectPath) -> tuple[dict[str, Any], objects.ObjectVersion] | None:
    try:
        data, version = objects.read(place.url)
    except NotFoundError:
        return None
    try:
        record = json.loads(data)
    except ValueError:
        record = None
    return (record if isinstance(record, dict) else {}), version


def _is_free(record: dict[str, Any], now: Callable[[], float] = time.time) -> bool:
    """Whether a lease has expired, was never one, or was held by a process of this very machine that has ended."""
    expires = record.get("expires")
    if not isinstance(expires, int | float) or expires < now():
        return True
    pid = record.get("pid")
    return record.get("machine") == _machine() != "" and isinstance(pid, int) and not _runs(pid)


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for yet does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return status.rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])


def _machine() -> str:
    """This start of this machine, and what its process numbers count in (containers count their own)."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _held_words(place: ObjectPath, record: dict[str, Any]) -> str:
    since = f" since {record['startedAt']}" if "startedAt" in record else ""
    return (
        f"{place.name} is held by {record.get('holder', 'another process')}{since}: wait for it to end, or allow more "
        "waiting time"
    )
