"""Gateways whose log is on PostgreSQL: several servers, killed ones, lost connections, a database that was restored."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from driftline.lake import Lake
from driftline.lake.state import all_deltas
from gateway.running import Server, delta, running
from postgres_server import postgres_server

psycopg = pytest.importorskip("psycopg", reason="needs psycopg, of the extra postgresql")

QUIET = ("--rate-limit", "0", "--flush-seconds", "3600", "--per-address", "0")


@pytest.fixture
def database() -> Iterator[str]:
    with postgres_server() as address:
        yield address


def push_all(server: Server, name: str, count: int, acknowledged: list[str]) -> None:
    client = server.client(name)
    for number in range(count):
        batch = [delta(name, row=f"{name}{number}-{each}", n=each) for each in range(5)]
        try:
            if client.push(*batch).status_code == 200:
                acknowledged += [each["deltaId"] for each in batch]
        except httpx.HTTPError:
            return


def test_two_servers_share_one_log_and_one_dies(database: str, tmp_path: Path) -> None:
    options = (*QUIET, "--log", database, "--lake", str(tmp_path / "lake"))
    acknowledged: list[str] = []
    with running(tmp_path / "a", *options) as one, running(tmp_path / "b", *options) as other:
        threads = [
            threading.Thread(target=push_all, args=(server, name, 40, acknowledged))
            for server, name in ((one, "x"), (other, "y"), (one, "z"))
        ]
        for thread in threads:
            thread.start()
        seen, cursor = other.client().pull_all()
        time.sleep(0.5)
        one.kill()
        for thread in threads:
            thread.join()
        more, _ = other.client().pull_all(cursor=cursor)
        pulled = Counter(each["deltaId"] for each in [*seen, *more])
        assert set(pulled.values()) == {1}
        assert set(acknowledged) <= set(pulled)
        assert len(acknowledged) > 200
        assert other.client(role="admin").admin("flush").status_code == 200
        rows = other.client().http.get("/v1/sync/gw-1/snapshot", params={"limit": 50_000}).text.splitlines()
        assert len(rows) - 2 == len(pulled)
    assert Counter(each.delta_id for each in all_deltas(Lake(str(tmp_path / "lake")), "todos")) == pulled


def test_lost_connections_and_foreign_transactions_lose_nothing(database: str, tmp_path: Path) -> None:
    with running(tmp_path / "a", *QUIET, "--log", database) as server, psycopg.connect(database) as foreign:
        foreign.execute("SELECT txid_current()")  # stays open: nothing here waits for it
        client = server.client()
        assert client.push(delta(row="1", n=1)).status_code == 200
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '' "
                          "AND pid NOT IN (pg_backend_pid(), %s)", (foreign.info.backend_pid,))  # fmt: skip
        deadline = time.monotonic() + 30
        again = delta(row="2", n=2)
        while (status := client.push(again).status_code) != 200:
            assert status == 503
            assert time.monotonic() < deadline
        while client.http.get("/ready").status_code != 200:
            assert time.monotonic() < deadline
        assert [each["rowId"] for each in _pulled(client, deadline)] == ["1", "2"]


def test_a_database_that_was_restored_is_a_log_set_back(database: str, tmp_path: Path) -> None:
    options = (*QUIET, "--log", database)
    with running(tmp_path / "a", *options) as server:
        server.client().push(delta(row="1", n=1))
        cursor = server.client().pull_all()[1]
        assert server.client(role="admin").admin("flush").status_code == 200
        server.stop()
    with psycopg.connect(database, autocommit=True) as admin:  # as after a promotion: another timeline
        admin.execute("UPDATE driftline_head SET fingerprint = 'of another time'")
    with running(tmp_path / "a", *options) as server:
        client = server.client()
        refused = client.pull(cursor=cursor)
        assert (refused.status_code, refused.json()["reason"]) == (410, "log_replaced")
        client.push(delta(row="2", n=2))
        assert server.client(role="admin").admin("flush").json()["flushed"] == 1
    found = Counter(each.row_id for each in all_deltas(Lake(str(tmp_path / "a" / "lake")), "todos"))
    assert found == {"1": 1, "2": 1}


def _pulled(client: Any, deadline: float) -> list[dict[str, Any]]:
    while True:  # each thread's connection was ended, and is opened again by the next try
        answer = client.pull(since="0")
        if answer.status_code == 200:
            deltas: list[dict[str, Any]] = answer.json()["deltas"]
            return deltas
        assert answer.status_code == 503
        assert time.monotonic() < deadline
