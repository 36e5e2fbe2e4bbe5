"""Killed twenty times while clients push at full rate: what was acknowledged is there once, in the lake too."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import polars
import pytest

from driftline.deltas import RowDelta, TableSchema, merge
from driftline.lake import Lake, register, replay
from driftline.lake.envelopes import envelope_paths, read_envelope
from gateway.running import Client, Server, delta, running

KILLS = 20
SCHEMA = {"table": "todos", "columns": [{"name": "n", "type": "number"}, {"name": "who", "type": "string"}]}


class Writer(threading.Thread):
    """Pushes batches until told to stop; a batch without an answer is pushed again."""

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True)
        self.client_id = name
        self.url = ""
        self.ended = threading.Event()
        self.acknowledged: list[dict[str, Any]] = []
        self.failures: list[str] = []

    def run(self) -> None:
        number = 0
        while not self.ended.is_set():
            tables = ("todos", "free")
            batch = [
                delta(self.client_id, row=str((number + each) % 50), table=tables[each % 2], n=each, who=self.client_id)
                for each in range(20)
            ]
            while not self._pushed(batch) and not self.ended.is_set():
                time.sleep(0.02)
            number += 1

    def _pushed(self, batch: list[dict[str, Any]]) -> bool:
        try:
            client = Client(self.url, self.client_id)
            with client.http:
                answer = client.push(*batch)
        except httpx.HTTPError:
            return False
        if answer.status_code != 200:
            self.failures.append(answer.text)
            return False
        self.acknowledged += batch
        return True


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    choose = random.Random(7)
    writers = [Writer("alice"), Writer("bob")]
    options = ("--rate-limit", "0", "--flush-seconds", "0.2")
    server = Server(tmp_path, *options)
    # A schema at the gateway would refuse `free`: the lake alone knows it, so that both kinds of flush are under fire.
    lake = Lake(str(tmp_path / "lake"))
    register(lake, TableSchema.from_wire(SCHEMA))
    for writer in writers:
        writer.url = server.url
        writer.start()
    for _ in range(KILLS):
        time.sleep(choose.uniform(0.05, 0.5))
        server.kill()
        server = Server(tmp_path, *options)
        for writer in writers:
            writer.url = server.url
    time.sleep(0.3)
    for writer in writers:
        writer.ended.set()
    for writer in writers:
        writer.join(30)
        assert writer.failures == []
    pulled = {name: server.client(name).pull_all(limit=10_000)[0] for name in ("alice", "bob")}
    assert server.client(role="admin").admin("flush").status_code == 200
    server.kill()

    acknowledged = [each for writer in writers for each in writer.acknowledged]
    counts = Counter(each["deltaId"] for each in pulled["alice"])
    assert len(acknowledged) > 400
    assert set(counts.values()) == {1}
    assert {each["deltaId"] for each in acknowledged} <= set(counts)
    assert pulled["alice"] == pulled["bob"]
    deltas = [RowDelta.from_wire(each) for each in pulled["bob"]]
    state = merge(deltas)
    for table in ("todos", "free"):
        live = {row_id: found.columns for (name, row_id), found in state.items() if name == table}
        assert live == replay(each for each in deltas if each.table == table)
    assert Counter(ids_in_lake(lake)) == counts


def ids_in_lake(lake: Lake) -> list[str]:
    """The ids in the Parquet files of one table and the envelopes of the other."""
    found: list[str] = polars.read_delta(lake.part("todos", "deltas"))["_delta_id"].to_list()
    for name in envelope_paths(lake, "free"):
        found += [each.delta_id for each in read_envelope(lake, "free", name).deltas]
    return found


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
        deadline = time.monotonic() + 60
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
        deadline = time.monotonic() + 60
        while any(Path(f"/proc/{worker}/cmdline").exists() for worker in workers):
            assert time.monotonic() < deadline
            time.sleep(0.1)


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
        assert server.stop(timeout=10) == 0
    assert [path for path in (tmp_path / "lake").rglob("*.json") if "envelopes" in path.parts]
    assert server.lines[-1]["event"] == "closed"
