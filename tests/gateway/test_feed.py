"""The live feed and the long poll (gateway §7), with a real server and real connections."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import httpx

from support.feeds import FEED, feed
from support.gateways import GATEWAY, Server, delta, running
from support.processes import wait_until

TEAMS = {
    "version": 1,
    "buckets": [{"name": "b", "tables": ["todos"], "filters": [{"column": "team", "op": "in", "value": "jwt:teams"}]}],
}


def test_events_come_as_deltas_arrive_and_resume(server: Server) -> None:
    """SF1: the id of an event is the cursor, and a feed goes on behind it."""
    client = server.client()
    start = client.pull(since="0").json()["cursor"]
    with feed(client, cursor=start) as live:
        assert live.block() == {"retry": "2000"}
        pushed = [delta(row="1", title="a"), delta(row="2", title="b")]
        client.push(*pushed)
        event = live.event()
        assert (event["event"], event["id"]) == ("deltas", event["data"]["cursor"])
        assert event["data"]["deltas"] == pushed
        assert event["data"]["serverHlc"].isdecimal()
    late = delta(row="3")
    client.push(late)
    with feed(client, {"Last-Event-ID": event["id"]}, cursor=start) as resumed:  # the header wins
        assert resumed.event()["data"]["deltas"] == [late]
    with feed(client, since="0") as whole:
        assert whole.event()["data"]["deltas"] == [*pushed, late]


def test_many_small_commits_become_few_events(server: Server) -> None:
    client = server.client()
    with feed(client, since="0") as live:
        live.block()
        for number in range(60):
            client.push(delta(row=str(number)))
        events, rows = 0, []
        while len(rows) < 60:
            rows += [each["rowId"] for each in live.event()["data"]["deltas"]]
            events += 1
        assert rows == [str(number) for number in range(60)]
        assert events < 30


def test_bad_cursors_are_refused_before_the_stream_and_new_rules_end_it(server: Server) -> None:
    """SF2."""
    client, admin = server.client(teams=["a"]), server.client("ops", role="admin")
    assert client.http.get(FEED).status_code == 400
    assert client.http.get(FEED, params={"cursor": "nonsense"}).status_code == 400
    assert httpx.get(server.url + FEED).status_code == 401
    old = client.pull(since="0").json()["cursor"]
    admin.admin("sync-rules", TEAMS)
    gone = client.http.get(FEED, params={"cursor": old})
    assert (gone.status_code, gone.json()["code"], gone.json()["reason"]) == (410, "MUST_REFETCH", "rules_changed")
    with feed(client, since="0") as live:
        admin.admin("sync-rules", method="DELETE")
        event = live.event()
        assert (event["event"], event["data"]["code"]) == ("refetch", "MUST_REFETCH")
        assert event["data"]["reason"] == "rules_changed"
        try:
            live.block()
            raise AssertionError("the feed goes on")
        except EOFError:
            pass


def test_feeds_see_through_their_views(server: Server) -> None:
    admin = server.client("ops", role="admin")
    admin.admin("sync-rules", TEAMS)
    red, blue = server.client("r", teams=["red"]), server.client("b", teams=["blue"])
    with feed(red, since="0") as reds, feed(blue, since="0") as blues:
        admin.push(delta("ops", row="1", team="red"))
        admin.push(delta("ops", row="2", team="blue"))
        assert [each["rowId"] for each in reds.event()["data"]["deltas"]] == ["1"]
        assert [each["rowId"] for each in blues.event()["data"]["deltas"]] == ["2"]
        admin.push(delta("ops", row="1", team="blue"))
        assert [each["op"] for each in reds.event()["data"]["deltas"]] == ["DELETE"]
        assert [each["rowId"] for each in blues.event()["data"]["deltas"]] == ["1"]


def test_a_token_ends_its_feed_and_a_server_its_feeds(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        with feed(server.client(exp=int(time.time()) + 5), since="0") as short:
            assert not [line for line in short._lines if line.startswith("data")]  # ended by the server
        with feed(server.client(), since="0") as live:
            live.block()
            ended = threading.Thread(target=server.stop)
            ended.start()
            assert not [line for line in live._lines if line.startswith("data")]
            ended.join()
        assert server.process.returncode == 0
        assert not any("exception" in line for line in server.lines)


def test_other_workers_commits_wake_a_feed(tmp_path: Path) -> None:
    with running(tmp_path, "--workers", "2", "--rate-limit", "0") as server:
        client = server.client()
        with feed(client, since="0") as live:
            live.block()
            seen = []
            for number in range(6):
                # A connection of its own each time: whichever worker takes it.
                with httpx.Client(base_url=server.url, headers=client.http.headers) as http:
                    http.post(f"/sync/{GATEWAY}/push", json={"clientId": "alice", "deltas": [delta(row=str(number))]})
                seen += [each["rowId"] for each in live.event()["data"]["deltas"]]
            assert seen == [str(number) for number in range(6)]


def test_limits_of_listeners(server: Server) -> None:
    client = server.client()
    with ExitStack() as stack:
        held = [stack.enter_context(feed(client, since="0")) for _ in range(4)]
        assert [each.block() for each in held] == [{"retry": "2000"}] * 4
        refused = client.http.get(FEED, params={"since": "0"})
        assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
        assert client.pull(since="0", wait="1").status_code == 429
        other = stack.enter_context(feed(server.client("bob"), since="0"))
        other.block()
        assert "driftline_feeds_open 5" in client.http.get("/metrics").text
    wait_until(lambda: "driftline_feeds_open 0" in client.http.get("/metrics").text)


def test_long_polls(server: Server) -> None:
    client = server.client()
    cursor = client.pull(since="0").json()["cursor"]
    assert client.pull(cursor=cursor, wait="1").json()["deltas"] == []
    pushed = delta(row="1")
    late = threading.Timer(0.5, lambda: client.push(pushed))
    late.start()
    answer = client.pull(cursor=cursor, wait="600").json()  # clamped to 30 seconds
    assert (answer["deltas"], answer["hasMore"]) == ([pushed], False)
    late.join()
    assert client.pull(since="0", wait="10").json()["deltas"] == [pushed]  # something is there: no wait
    for bad in ("x", "-1", "", "1.5"):
        assert client.pull(cursor=cursor, wait=bad).status_code == 400
