from __future__ import annotations

import contextlib
import errno
import gzip
import io
import json
import os
import socket
import sys
import time
from pathlib import Path

import pytest
from backports import zstd

from driftline.core import _files as files, _locks as locks
from driftline.errors import InputError, LockedError, StorageError
from support.processes import run_process, start_process


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_bytes(b"old")
    with contextlib.suppress(RuntimeError), files.atomic_write(target) as out:
        out.write(b"half of it")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_kill_in_the_middle_never_shows_a_partial_file(tmp_path: Path) -> None:
    target = tmp_path / "big.bin"
    code = (
        "import os, sys; from driftline.core._files import atomic_write\n"
        "with atomic_write(sys.argv[1]) as out:\n"
        "    out.write(b'x' * 5_000_000); out.flush(); os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[2])}
    run_process([sys.executable, "-c", code, str(target)], env=environment, check=False)
    assert not target.exists()


def test_a_full_disk_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StorageError, match="the disk is full while writing") as caught:
        files.write_atomically(tmp_path / "out", b"data")
    assert caught.value.code == "disk_full"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "code"),
    [(lambda p: None, "not_found"), (lambda p: p.mkdir(), "is_a_directory")],
    ids=["missing", "directory"],
)
def test_unreadable_places_are_named(tmp_path: Path, make, code: str) -> None:
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(InputError, match="thing") as caught:
        files.open_bytes(path)
    assert caught.value.code == code


LINES = [b"first", b"", "größer".encode(), b"no end"]
CONTENT = b"\n".join(LINES)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress], ids=["plain", "gzip", "zstd"])
def test_lines_through_every_compression_whatever_the_name(tmp_path: Path, pack) -> None:
    path = tmp_path / "data.txt"
    path.write_bytes(pack(CONTENT))
    assert list(files.read_lines(path)) == LINES


def test_several_members_are_one_stream(tmp_path: Path) -> None:
    for pack in (gzip.compress, zstd.compress):
        path = tmp_path / "many"
        path.write_bytes(pack(b"a\nb") + pack(b"c\n"))
        assert list(files.read_lines(path)) == [b"a", b"bc"]


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_a_stream_cut_short_is_an_error_not_an_end(tmp_path: Path, pack) -> None:
    packed = pack(os.urandom(50_000))
    path = tmp_path / "cut"
    for length in (len(packed) - 1, len(packed) // 2, 12):
        path.write_bytes(packed[:length])
        with pytest.raises(InputError, match="cut is damaged or cut short") as caught:
            list(files.read_lines(path))
        assert caught.value.code == "corrupt_compression"


def test_a_held_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "index.lock"
    with locks.exclusive_lock(path, scope="index") as owner:
        assert json.loads(path.read_text())["lockId"] == owner.lock_id
        with pytest.raises(LockedError, match=f"held by process {os.getpid()}"):
            locks.exclusive_lock(path, scope="index").__enter__()
    assert list(path.parent.iterdir()) == []


def test_a_dead_process_loses_its_lock_a_foreign_host_does_not(tmp_path: Path) -> None:
    path = tmp_path / "index.lock"
    dead = start_process([sys.executable, "-c", ""])
    dead.wait()
    path.write_text(json.dumps({"pid": dead.pid, "host": socket.gethostname(), "lockId": "x"}))
    with locks.exclusive_lock(path, scope="index"):
        pass
    path.write_text(json.dumps({"pid": dead.pid, "host": "elsewhere", "lockId": "x"}))
    with pytest.raises(LockedError):
        locks.exclusive_lock(path, scope="index").__enter__()


COUNT_UP = """
import sys
import time
from pathlib import Path
from driftline.core._locks import exclusive_lock
lock, counter = sys.argv[1:]
for _ in range(10):
    with exclusive_lock(lock, scope="count", wait_seconds=60):
        Path(counter).write_text(str(int(Path(counter).read_text()) + 1))
"""


def test_processes_take_turns(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-c", COUNT_UP, str(tmp_path / "lock"), str(counter)]
    environment = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[2])}
    processes = [start_process(command, env=environment) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert counter.read_text() == "30"


def test_a_killed_process_that_nobody_waited_for_loses_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "index.lock"
    holder = start_process(["sleep", "60"])
    path.write_text(json.dumps({"pid": holder.pid, "host": socket.gethostname(), "lockId": "x"}))
    with pytest.raises(LockedError):
        locks.exclusive_lock(path, scope="index").__enter__()
    holder.kill()
    with locks.exclusive_lock(path, scope="index", wait_seconds=10):
        os.kill(holder.pid, 0)  # it is a zombie now, and still in the table of processes
    holder.wait()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"scope": "build"}', '{"pid": null}', '{"pid": true}', '{"pid": "me"}']
)
def test_a_lock_that_is_still_being_written_is_not_stolen(tmp_path: Path, content: str) -> None:
    path = tmp_path / "index.lock"
    path.write_text(content)
    with pytest.raises(LockedError, match="held by another process"):
        locks.exclusive_lock(path, scope="index").__enter__()
    assert path.read_text() == content
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))
    with locks.exclusive_lock(path, scope="index"):
        pass


def test_a_process_number_may_be_written_as_text(tmp_path: Path) -> None:
    path = tmp_path / "index.lock"
    path.write_text(json.dumps({"pid": str(os.getpid())}))
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))
    with pytest.raises(LockedError):
        locks.exclusive_lock(path, scope="index").__enter__()
    path.write_text(json.dumps({"pid": "9" * 30}))
    with locks.exclusive_lock(path, scope="index"):
        pass


def test_a_pipe_in_the_place_of_a_lock_neither_blocks_nor_is_stolen(tmp_path: Path) -> None:
    path = tmp_path / "index.lock"
    os.mkfifo(path)
    with pytest.raises(LockedError):
        locks.exclusive_lock(path, scope="index").__enter__()
    assert path.is_fifo()


class _Sip(io.RawIOBase):
    """A raw stream that takes at most three bytes at a time."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        self.taken += bytes(data[:3])
        return min(3, len(data))


def test_short_writes_are_gone_on_with() -> None:
    sip = _Sip()
    assert files.write_all(sip, b"0123456789") == 10
    assert sip.taken == b"0123456789"
    sip = _Sip()
    assert files.UnbufferedWriter(sip).write(b"0123456789") == 10
    assert sip.taken == b"0123456789"
