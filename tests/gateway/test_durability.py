"""What was acknowledged survives power loss; a full or failing disk refuses and loses nothing."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from driftline.errors import DriftlineError, GatewayError
from driftline.gateway._log.log import Appended, Entry
from driftline.gateway._log.sqlite import SqliteLog
from driftline.gateway._service import GroupCommit
from driftline.gateway._sync.push import parse_push
from support.faulty_disk import FaultyDisk
from support.gateways import CLOCK, Server, delta, running
from support.processes import PATIENCE

_names = count()


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    made = FaultyDisk(f"faulty-{os.getpid()}-{next(_names)}")
    yield made
    made.unregister()


def entries(number: int, size: int = 5) -> list[Entry]:
    deltas = [delta(row=f"{number}-{each}", n=each, text="x" * 300) for each in range(size)]
    return list(parse_push(json.dumps({"clientId": "alice", "deltas": deltas}).encode()).entries)


def known(log: SqliteLog) -> list[bytes]:
    return [record.body for record in log.read(0, 1_000_000)]


def test_the_log_is_synced_between_writing_and_answering(tmp_path: Path, disk: FaultyDisk) -> None:
    log = SqliteLog(tmp_path / "log", vfs=disk.name)
    for number in range(5):
        disk.syncs.clear()
        [result] = log.append([entries(number)])
        assert isinstance(result, Appended)
        assert any(name.endswith("-wal") for name in disk.syncs)
        assert not disk.unsynced.get(str(tmp_path / "log-wal"))
    log.close()


@pytest.mark.parametrize("seed", range(8))
def test_acknowledged_deltas_survive_power_loss(tmp_path: Path, disk: FaultyDisk, seed: int) -> None:
    choose = random.Random(seed)
    log = SqliteLog(tmp_path / "log", vfs=disk.name)
    acknowledged: list[bytes] = []
    clock = 0
    for number in range(choose.randrange(1, 25)):
        batch = entries(number, choose.randrange(1, 40))
        [result] = log.append([batch])
        assert isinstance(result, Appended)
        clock = result.server_hlc
        acknowledged += [entry.body for entry in batch]
        if choose.random() < 0.3:
            log.checkpoint()
    # The power goes while the next batch is being written.
    disk.sync_fails = True
    with pytest.raises(GatewayError):
        log.append([entries(99)])
    survivor = SqliteLog(disk.survive(tmp_path / "after", choose) / "log")
    disk.sync_fails = False
    log.close()
    found = known(survivor)
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) in (len(acknowledged), len(acknowledged) + 5)
    assert survivor.head().clock >= clock
    with survivor.reading() as session:
        assert session.one("PRAGMA integrity_check") == "ok"
    survivor.close()


def test_the_faulty_disk_notices_a_log_that_does_not_sync(tmp_path: Path, disk: FaultyDisk) -> None:
    log = SqliteLog(tmp_path / "log", vfs=disk.name)
    log._writer.execute("PRAGMA synchronous = NORMAL")
    for number in range(10):
        log.append([entries(number)])
    survivor = SqliteLog(disk.survive(tmp_path / "after", random.Random(1)) / "log")
    log.close()
    assert len(known(survivor)) < 50
    survivor.close()


@pytest.mark.parametrize("trouble", ["full", "sync_fails"])
def test_a_disk_in_trouble_refuses_and_recovers(tmp_path: Path, disk: FaultyDisk, trouble: str) -> None:
    log = SqliteLog(tmp_path / "log", vfs=disk.name)
    first, second = entries(1), entries(2)
    log.append([first])
    setattr(disk, trouble, True)
    for _ in range(3):
        with pytest.raises(GatewayError) as caught:
            log.append([second])
        assert caught.value.code == "BACKPRESSURE_ERROR"
    assert known(log) == [entry.body for entry in first]
    setattr(disk, trouble, False)
    [result] = log.append([second])
    assert isinstance(result, Appended)
    assert len(result.fresh) == len(second)
    assert known(log) == [entry.body for entry in (*first, *second)]
    log.close()


def test_concurrent_pushes_share_a_sync(tmp_path: Path, disk: FaultyDisk) -> None:
    log = SqliteLog(tmp_path / "log", vfs=disk.name)
    disk.syncs.clear()

    async def push_all() -> list[Appended]:
        commit = GroupCommit(log)
        try:
            return await asyncio.gather(*[commit.append(entries(number)) for number in range(100)])
        finally:
            commit.close()

    results = asyncio.run(push_all())
    assert sorted(len(result.fresh) for result in results) == [5] * 100
    assert len(known(log)) == 500
    assert len(disk.syncs) < 50
    log.close()


def test_a_refused_batch_does_not_touch_its_neighbours(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log")
    good, other = entries(1), entries(2)
    ahead = Entry(CLOCK.now() + (60_000 << 16), b"i" * 32, 0, "todos", b"{}")
    results = log.append([good, [*entries(3), ahead], other])
    assert [isinstance(result, DriftlineError) for result in results] == [False, True, False]
    assert known(log) == [entry.body for entry in (*good, *other)]
    log.close()


def test_too_much_waiting_is_backpressure() -> None:
    class Stuck:
        def append(self, batches: Any, claims: Any) -> Any:
            gate.wait(PATIENCE)
            return [Appended(1, []) for _ in batches]

    import threading

    gate = threading.Event()

    async def push_all() -> None:
        commit = GroupCommit(Stuck(), max_pending=10)  # type: ignore[arg-type]
        first = asyncio.create_task(commit.append(entries(1, 8)))
        await asyncio.sleep(0)
        with pytest.raises(GatewayError) as caught:
            await commit.append(entries(2, 8))
        assert (caught.value.code, caught.value.retry_after) == ("BACKPRESSURE_ERROR", 1)
        gate.set()
        await first
        await commit.append(entries(3, 20))  # an empty queue takes even a large batch
        commit.close()

    asyncio.run(push_all())


def test_a_full_disk_under_a_real_server(tmp_path: Path) -> None:
    """The process may write files of 3 MB only: the kernel refuses, as a full disk does."""
    acknowledged: list[dict[str, Any]] = []
    limit = 3_000_000
    with limited(tmp_path, limit) as server:
        client = server.client()
        refused = 0
        for number in range(200):
            batch = [delta(row=f"{number}-{each}", text="x" * 500) for each in range(50)]
            answer = client.push(*batch)
            if answer.status_code == 200:
                acknowledged += batch
                continue
            assert (answer.status_code, answer.json()["code"]) == (503, "BACKPRESSURE_ERROR")
            assert int(answer.headers["retry-after"]) >= 1
            refused += 1
            if refused == 5:
                break
        assert refused == 5
        while client.push(single := delta(row="single", n=len(acknowledged))).status_code == 200:
            acknowledged.append(single)
        assert client.pull_all(limit=10_000)[0] == acknowledged  # reading goes on
        assert client.http.get("/health").status_code == 200
        ready = client.http.get("/ready")
        assert (ready.status_code, ready.json()["code"]) == (503, "BACKPRESSURE_ERROR")
    with running(tmp_path) as server:
        assert server.client().pull_all(limit=10_000)[0] == acknowledged
        assert server.client().push(delta()).status_code == 200


def limited(data: Path, size: int) -> Any:
    class Limited(Server):
        def __init__(self) -> None:
            real = subprocess.Popen

            def limited_popen(*arguments: Any, **options: Any) -> Any:
                return real(
                    *arguments, **options, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
                )

            subprocess.Popen = limited_popen  # type: ignore[assignment,misc]
            try:
                super().__init__(data, "--rate-limit", "0")
            finally:
                subprocess.Popen = real  # type: ignore[misc]

        def __enter__(self) -> Server:
            return self

        def __exit__(self, *_: object) -> None:
            self.kill()

    assert sys.platform != "win32"
    return Limited()
