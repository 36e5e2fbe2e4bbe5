"""Push and pull over real HTTP: answers, order, paging, idempotency."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from driftline.deltas import RowDelta, merge
from driftline.errors import GatewayError
from driftline.gateway._service import check_disk
from support.gateways import CLOCK, GATEWAY, Server, delta, running

CASES = {case["id"]: case for case in json.loads((Path(__file__).parents[1] / "vectors/delta-cases.json").read_text())}


def test_pushing_twice_acknowledges_twice_and_applies_once(server: Server) -> None:
    client, expected = server.client(), CASES["G1"]["expected"]
    same = delta(title="A")
    for turn in ("first", "second"):
        answer = client.push(same).json()
        assert answer["accepted"] == expected[turn]["accepted"]
        assert len(answer["deltas"]) == expected[turn]["deltas_returned"]
        assert len(client.pull_all()[0]) == expected[turn]["log"]
        assert int(answer["serverHlc"]) > int(same["hlc"])
    assert client.pull_all()[0] == [same]


def test_since_is_strict_and_keeps_arrival_order(server: Server) -> None:
    case, client = CASES["G7"], server.client()
    base = CLOCK.now() - (10_000 << 16)
    for number, moment in enumerate(case["input"]["arrival_ms"]):
        client.push(delta(row=str(moment), hlc=base + (moment << 16), n=number))
    for since, expected in case["expected"].items():
        found = client.pull_all(since=str(base + (int(since) << 16)))[0]
        assert [int(each["rowId"]) for each in found] == expected


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_every_route_has_a_versioned_twin(shared_server: Server, prefix: str) -> None:
    client, admin = shared_server.client(), shared_server.client(role="admin")
    pushed = client.http.post(
        f"{prefix}/sync/{GATEWAY}/push", json={"clientId": "alice", "deltas": [delta()], "lastSeenHlc": "7"}
    )
    assert pushed.status_code == 200
    assert set(pushed.json()) == {"serverHlc", "serverTime", "accepted", "deltas"}
    pulled = client.http.get(f"{prefix}/sync/{GATEWAY}/pull?clientId=alice&since=0")
    assert set(pulled.json()) == {"deltas", "serverHlc", "serverTime", "hasMore", "cursor"}
    for path in ("/health", "/ready", "/metrics", "/openapi.json"):
        assert client.http.get(prefix + path, headers={"Authorization": ""}).status_code == 200
    assert admin.http.get(f"{prefix}/admin/metrics/{GATEWAY}").json()["lastSeenHlc"] == {"alice": "7"}
    assert admin.http.post(f"{prefix}/admin/flush/{GATEWAY}").status_code == 200


def test_has_more_is_exact_and_limits_are_kept(server: Server) -> None:
    client = server.client()
    client.push(*[delta(row=str(number), n=number) for number in range(5)])
    for limit, count, more in ((1, 1, True), (4, 4, True), (5, 5, False), (6, 5, False), (10**12, 5, False)):
        page = client.pull(since="0", limit=limit).json()
        assert (len(page["deltas"]), page["hasMore"]) == (count, more)
    end = client.pull(since="0").json()["cursor"]
    page = client.pull(cursor=end).json()
    assert (page["deltas"], page["hasMore"], page["cursor"]) == ([], False, end)
    client.push(*[delta(row=f"more-{number}") for number in range(200)])
    assert len(client.pull(since="0").json()["deltas"]) == 100  # the default


def test_a_late_arrival_below_since_comes_with_the_cursor(server: Server) -> None:
    client = server.client()
    client.push(delta(row="old", hlc=CLOCK.now() - (60_000 << 16)), delta(row="new"))
    newest = client.pull_all()[0][-1]["hlc"]
    found, cursor = client.pull_all(since=newest)
    assert found == []
    client.push(delta(row="late", hlc=CLOCK.now() - (30_000 << 16)))
    assert client.pull(since=newest).json()["deltas"] == []
    assert [each["rowId"] for each in client.pull_all(cursor=cursor)[0]] == ["late"]


def test_cursor_pages_of_a_since_pull_keep_skipping_what_the_client_has(server: Server) -> None:
    client = server.client()
    old = CLOCK.now() - (60_000 << 16)
    for number in range(20):
        client.push(delta(row=f"old-{number}", hlc=old + number), delta(row=f"new-{number}"))
    found = client.pull_all(since=str(old + 100), limit=3)[0]
    assert [each["rowId"] for each in found] == [f"new-{number}" for number in range(20)]


def test_paging_while_others_push_has_no_gap_and_no_duplicate(server: Server) -> None:
    batches, size = 40, 250
    expected = batches * size

    def write() -> None:
        client = server.client("bob")
        for batch in range(batches):
            client.push(*[delta("bob", row=f"{batch}-{number}", n=number) for number in range(size)])

    writer = threading.Thread(target=write)
    writer.start()
    reader, cursor, seen = server.client(), "", []
    while True:
        was_writing = writer.is_alive()
        page = (reader.pull(cursor=cursor, limit=100) if cursor else reader.pull(since="0", limit=100)).json()
        seen += [each["deltaId"] for each in page["deltas"]]
        cursor = page["cursor"]
        if not page["hasMore"] and not was_writing:
            break
    writer.join()
    assert len(seen) == len(set(seen)) == expected
    assert seen == [each["deltaId"] for each in reader.pull_all(limit=10_000)[0]]


def test_repush_changes_nothing_after_flush_and_restart(tmp_path: Path) -> None:
    winner, loser = delta(row="x", title="wins"), delta(row="x", hlc=CLOCK.now() - (5 << 16), title="lost")
    with running(tmp_path) as server:
        client = server.client()
        assert len(client.push(winner).json()["deltas"]) == 1
        assert len(client.push(loser).json()["deltas"]) == 1
        assert server.client(role="admin").admin("flush").json() == {"flushed": 2, "tables": {"todos": 2}}
        answer = client.push(loser, winner).json()
        assert (answer["accepted"], answer["deltas"]) == (2, [])
        assert server.stop() == 0
    with running(tmp_path) as server:
        client = server.client()
        answer = client.push(winner, loser).json()
        assert (answer["accepted"], answer["deltas"]) == (2, [])
        assert client.pull_all()[0] == [winner, loser]
        assert server.client(role="admin").admin("flush").json()["flushed"] == 0
        state = merge(RowDelta.from_wire(each) for each in client.pull_all()[0])
        assert state["todos", "x"].columns == {"title": "wins"}


def test_the_servers_clock_survives_and_never_goes_back(tmp_path: Path) -> None:
    ahead = CLOCK.now() + (4000 << 16)
    with running(tmp_path) as server:
        first = int(server.client().push(delta(hlc=ahead)).json()["serverHlc"])
        server.kill()
    with running(tmp_path) as server:
        second = int(server.client().push().json()["serverHlc"])
    assert second > first > ahead


def test_values_come_back_as_their_canonical_selves(server: Server) -> None:
    values: dict[str, Any] = {"s": 'é"\\\n😂', "n": 0.1, "big": 1e21, "b": True, "z": None, "j": {"b": [1], "a": {}}}
    client = server.client()
    client.push(delta(op="INSERT", **values))
    [found] = client.pull_all()[0]
    assert {entry["column"]: entry["value"] for entry in found["columns"]} == values
    assert RowDelta.from_wire(found).has_own_id()


def test_a_repeated_delta_in_one_batch_counts_once(server: Server) -> None:
    same = delta(a=1)
    answer = server.client().push(same, same).json()
    assert (answer["accepted"], answer["deltas"]) == (2, [same])


def test_the_largest_push_fits(server: Server) -> None:
    deltas = [delta(row=f"row-{number}", title="x" * 100, number=number, flag=True) for number in range(10_000)]
    answer = server.client().push(*deltas)
    assert answer.status_code == 200
    assert answer.json()["accepted"] == 10_000
    assert server.client().pull_all(limit=10_000)[0] == deltas


def test_a_gateway_is_not_ready_where_its_disk_is_nearly_full(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short write may still succeed while every push fails: the free space says so before."""
    usage = shutil.disk_usage(tmp_path)
    check_disk(tmp_path)
    for free in (63 << 20, min(usage.total // 101, (1 << 30) - 1)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, left=free: usage._replace(free=left))
        with pytest.raises(GatewayError) as refused:
            check_disk(tmp_path)
        assert (refused.value.code, refused.value.reason) == ("BACKPRESSURE_ERROR", "disk_full")
