"""Killed while everything runs at once: what was acknowledged is there once, and all clients end at the same rows."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from support.crash_world import World
from support.gateways import Server, delta, running
from support.postgres import postgres_server
from support.processes import PATIENCE, on_this_machine, wait_until

pytestmark = pytest.mark.kills


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.faults)])
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_nothing_acknowledged_is_lost_or_doubled(store: str, kills: int, tmp_path: Path) -> None:
    dice = random.Random(kills)
    with contextlib.ExitStack() as stack:
        # On PostgreSQL two servers share one log, and one of them goes on while the other one is dead.
        if store == "postgresql":
            pytest.importorskip("psycopg", reason="needs psycopg, of the extra postgresql")
            world = World(tmp_path, 2, "--log", stack.enter_context(postgres_server()))
        else:
            world = World(tmp_path, 1)
        stack.callback(world.put_down)
        for _ in range(kills):
            world.kill_one(dice)
        world.wait_for_compactions(1 + kills // 4)
        world.judge(world.settle())


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path, "--rate-limit", "0", "--workers", "2") as server:
        client = server.client()
        assert client.push(delta(row="1")).status_code == 200
        children = [int(text) for text in _children(server.process.pid)]
        assert len(children) >= 2
        for child in children:
            try:
                command = Path(f"/proc/{child}/cmdline").read_text()
            except FileNotFoundError:
                continue
            if "spawn_main" in command:
                os.kill(child, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if server.client().push(delta(row="2")).status_code == 200:
                    break
            except httpx.HTTPError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert [each["rowId"] for each in server.client().pull_all()[0]] == ["1", "2"]
        assert server.stop() == 0


def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    with running(tmp_path, "--workers", "2") as server:
        workers = [int(text) for text in _children(server.process.pid)]
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        wait_until(lambda: not any(Path(f"/proc/{worker}/cmdline").exists() for worker in workers))


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_several_workers_share_one_log(tmp_path: Path) -> None:
    with running(tmp_path, "--rate-limit", "0", "--workers", "2") as server:

        def write(name: str) -> None:
            for number in range(12):
                client = server.client(name)  # a new connection each time, so that both workers get some
                answer = client.push(*[delta(name, row=f"{name}-{number}-{each}") for each in range(5)])
                assert answer.status_code == 200
                client.http.close()

        threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c", "d")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = server.client().pull_all(limit=77)[0]
        assert len({each["deltaId"] for each in found}) == len(found) == 240
        metrics = server.client().http.get("/metrics").text
        assert "driftline_deltas_accepted_total 240\n" in metrics
        assert server.stop() == 0


def test_an_orderly_end_drains_and_flushes_within_ten_seconds(tmp_path: Path) -> None:
    with running(tmp_path, "--rate-limit", "0") as server:
        client = server.client()
        client.push(*[delta(row=str(number)) for number in range(100)])
        assert server.stop(timeout=on_this_machine(10)) == 0
    assert [path for path in (tmp_path / "lake").rglob("*.json") if "envelopes" in path.parts]
    assert server.lines[-1]["event"] == "closed"


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_write_rules_hold_while_servers_are_killed(store: str, tmp_path: Path) -> None:
    """What was acknowledged is there once; what was refused, or tried on the rows of others, is nowhere."""
    own = [{"name": "own", "tables": ["todos"], "filters": [{"column": "owner", "op": "eq", "value": "jwt:sub"}]}]
    options = ["--rate-limit", "0", "--flush-seconds", "0.2"]
    acknowledged: list[str] = []
    stolen: list[str] = []
    with contextlib.ExitStack() as stack:
        options += ["--log", stack.enter_context(postgres_server())] if store == "postgresql" else []
        for turn in range(3):
            with running(tmp_path / "data", *options) as server:
                answer = server.client("ops", role="admin").admin("sync-rules", {"version": 1, "buckets": own})
                assert answer.status_code == 200
                _write_until_dead(server, turn, acknowledged, stolen)
        with running(tmp_path / "data", *options) as server:
            found = [each["deltaId"] for each in server.client("ops", role="admin").pull_all()[0]]
            shown = {name: server.client(name).pull_all()[0] for name in ("ann", "bob")}
    assert len(acknowledged) > 5 < len(stolen)
    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found)
    assert not set(stolen) & set(found)
    assert all(each["rowId"].startswith(name) for name, deltas in shown.items() for each in deltas)


def _write_until_dead(server: Server, turn: int, acknowledged: list[str], stolen: list[str]) -> None:
    """Two callers write their own rows and try to take over those of the other one; the server is killed meanwhile."""
    with contextlib.suppress(httpx.HTTPError):
        for number in range(10_000):
            if number == 10:
                threading.Timer(0.05, server.process.kill).start()
            name, other = ("ann", "bob") if number % 2 else ("bob", "ann")
            client = server.client(name)
            made = delta(name, f"{name}{turn}-{number % 6}", "INSERT", owner=name, n=number)
            if (answer := client.push(made)).status_code == 200:
                acknowledged.append(made["deltaId"])
            assert answer.status_code in (200, 503), answer.text
            theft = delta(name, f"{other}{turn}-{(number + 1) % 6}", owner=name)
            stolen.append(theft["deltaId"])
            assert client.push(theft).status_code in (403, 503)
