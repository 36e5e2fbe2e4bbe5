"""Gateways whose log is on PostgreSQL: several servers, killed ones, lost connections, standbys that are promoted."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from driftline.lake import Lake
from driftline.lake._read.state import all_deltas
from support.gateways import Server, delta, running
from support.postgres import PostgresServer, postgres_server, running_postgres
from support.processes import PATIENCE, wait_until

pytestmark = pytest.mark.postgres

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
        wait_until(lambda: len(acknowledged) > 100)
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
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'driftline'")
        deadline = time.monotonic() + PATIENCE
        again = delta(row="2", n=2)
        while (status := client.push(again).status_code) != 200:
            assert status == 503
            assert time.monotonic() < deadline
        while client.http.get("/ready").status_code != 200:
            assert time.monotonic() < deadline
        assert [each["rowId"] for each in _pulled(client, deadline)] == ["1", "2"]


@pytest.fixture
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A server, and a standby that follows it."""
    with running_postgres() as primary, primary.standby() as standby:
        yield primary, standby


def either_of(primary: PostgresServer, standby: PostgresServer) -> str:
    """One address for both: whoever takes writes is connected to."""
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"postgresql://tester@{hosts}/postgres?target_session_attrs=read-write"


def test_a_promoted_standby_with_every_commit_is_noticed_while_running(
    pair: tuple[PostgresServer, PostgresServer], tmp_path: Path
) -> None:
    primary, standby = pair
    with running(tmp_path, *QUIET, "--log", either_of(*pair)) as server:
        client, admin = server.client(), server.client(role="admin")
        kept = [delta(row=str(number), n=number) for number in range(3)]
        assert client.push(*kept[:2]).status_code == 200
        assert admin.admin("flush").json()["flushed"] == 2
        assert client.push(kept[2]).status_code == 200
        cursor = client.pull_all()[1]
        before = admin.admin("metrics", method="GET").json()["log"]["id"]
        _fail_over(primary, standby)
        # No push has gone by yet: a reader alone must see that the log may be another one.
        refused = _answer(lambda: client.pull(cursor=cursor))
        assert (refused.status_code, refused.json()["reason"]) == (410, "log_replaced")
        assert refused.json()["snapshot"] == "/v1/sync/gw-1/snapshot"
        kept.append(delta(row="3", n=3))
        assert _answer(lambda: client.push(kept[3])).status_code == 200
        assert client.pull_all()[0] == kept
        log = admin.admin("metrics", method="GET").json()["log"]
        assert before in log["was"]
        assert _answer(lambda: admin.admin("flush")).json()["flushed"] == 2
        assert client.http.get("/ready").status_code == 200
        assert client.pull_all(cursor=client.pull(since="0", limit=1).json()["cursor"])[0] == kept[1:]
    assert _ids(tmp_path) == Counter(each["deltaId"] for each in kept)


def test_a_promoted_standby_that_lacks_commits_gets_them_from_the_lake(
    pair: tuple[PostgresServer, PostgresServer], tmp_path: Path
) -> None:
    primary, standby = pair
    with running(tmp_path, *QUIET, "--log", either_of(*pair)) as server:
        client, admin = server.client(), server.client(role="admin")
        kept = [delta(row=str(number), n=number) for number in range(5)]
        assert client.push(*kept[:2]).status_code == 200
        _wait_for_replica(primary, standby)
        standby.stop()
        assert client.push(*kept[2:4]).status_code == 200  # what the standby never hears of
        assert admin.admin("flush").json()["flushed"] == 4
        cursor = client.pull_all()[1]
        primary.stop()
        standby.start()
        standby.promote()
        refused = _answer(lambda: client.pull(cursor=cursor))
        assert (refused.status_code, refused.json()["reason"]) == (410, "log_replaced")
        assert _answer(lambda: client.push(kept[4])).status_code == 200
        assert _answer(lambda: admin.admin("flush")).json()["flushed"] == 1
        # What the lake had and the log had lost is pulled again, and a new client has it all.
        assert {each["deltaId"] for each in client.pull_all()[0]} == {each["deltaId"] for each in kept}
        rows = client.http.get("/v1/sync/gw-1/snapshot").text.splitlines()[1:-1]
        assert sorted(json.loads(row)["rowId"] for row in rows) == ["0", "1", "2", "3", "4"]
        assert "driftline_set_back_total 1\n" in client.http.get("/metrics").text
    assert _ids(tmp_path) == Counter(each["deltaId"] for each in kept)


def test_a_restarted_database_is_the_same_log(tmp_path: Path) -> None:
    with running_postgres() as database, running(tmp_path, *QUIET, "--log", database.address) as server:
        client = server.client()
        assert client.push(delta(row="1", n=1)).status_code == 200
        cursor = client.pull_all()[1]
        database.stop()
        assert client.push(delta(row="2", n=2)).status_code == 503
        database.start()
        again = delta(row="2", n=2)
        assert _answer(lambda: client.push(again)).status_code == 200
        assert client.pull_all(cursor=cursor)[0] == [again]


def test_a_lost_notification_is_made_up_for(database: str, tmp_path: Path) -> None:
    """Listeners of one server hear of the other server's commits although every LISTEN is cut off."""
    options = (*QUIET, "--log", database, "--lake", str(tmp_path / "lake"))
    with (
        running(tmp_path / "a", *options) as one,
        running(tmp_path / "b", *options) as other,
        psycopg.connect(database, autocommit=True) as admin,
        psycopg.connect(database) as foreign,
    ):
        foreign.execute("SELECT txid_current()")  # a transaction that stays open all the while holds nothing up
        cursor = one.client().pull_all()[1]
        for number in range(3):
            asked: list[dict[str, Any]] = []
            waiting = threading.Thread(
                target=lambda at=cursor, into=asked: into.append(one.client().pull(cursor=at, wait="30").json())
            )
            waiting.start()
            listening = "query LIKE 'LISTEN%' OR query LIKE 'notifies%'"
            ended = admin.execute(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {listening}")
            assert ended.fetchone() is not None
            assert other.client().push(delta(row=str(number), n=number)).status_code == 200
            waiting.join(PATIENCE)
            assert [each["rowId"] for each in asked[0]["deltas"]] == [str(number)]
            cursor = asked[0]["cursor"]


def _fail_over(primary: PostgresServer, standby: PostgresServer) -> None:
    _wait_for_replica(primary, standby)
    primary.stop()
    standby.promote()


def _wait_for_replica(primary: PostgresServer, standby: PostgresServer) -> None:
    with psycopg.connect(primary.address, autocommit=True) as one, psycopg.connect(standby.address) as other:
        written = one.execute("SELECT pg_current_wal_lsn()").fetchone()
        deadline = time.monotonic() + PATIENCE
        while other.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written).fetchone() != (True,):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _answer(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """The first answer that is not `come again`: each connection is opened anew by the next try."""
    deadline = time.monotonic() + PATIENCE
    while (answer := ask()).status_code == 503:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return answer


def _ids(data: Path) -> Counter[str]:
    return Counter(each.delta_id for each in all_deltas(Lake(str(data / "lake")), "todos"))


def _pulled(client: Any, deadline: float) -> list[dict[str, Any]]:
    while True:  # each thread's connection was ended, and is opened again by the next try
        answer = client.pull(since="0")
        if answer.status_code == 200:
            deltas: list[dict[str, Any]] = answer.json()["deltas"]
            return deltas
        assert answer.status_code == 503
        assert time.monotonic() < deadline
