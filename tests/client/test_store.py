"""The client's store against a real gateway: offline, optimistic, refused, bootstrapped, followed."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from driftline.client import Change, Store
from driftline.client._http import GatewayClient
from driftline.deltas import Clock, ColumnDelta, RowDelta
from driftline.deltas._merge import RowMerge, fold_from_plain, fold_to_plain
from driftline.errors import DeltaError, GatewayError, InputError, OptionError
from support.gateways import GATEWAY, Server, running, token
from support.processes import PATIENCE, wait_until

TEAMS = {
    "version": 1,
    "buckets": [{"name": "b", "tables": ["todos"], "filters": [{"column": "team", "op": "in", "value": "jwt:teams"}]}],
}


def store(server: Server, path: Any, client: str, **claims: Any) -> Store:
    return Store(path, client, url=server.url, gateway=GATEWAY, token=lambda: token(client, **claims))


def test_writes_are_seen_at_once_and_sent_later(server: Server, tmp_path: Path) -> None:
    offline = Store(tmp_path / "a.db", "a")
    offline.put("todos", "1", {"title": "milk", "done": False})
    offline.put("todos", "1", {"done": True})
    offline.put("todos", "1", {"done": True})  # nothing changes: nothing is sent
    offline.put("todos", "2", {"title": "bread"})
    offline.delete("todos", "2")
    offline.delete("todos", "none")
    assert offline.rows("todos") == {"1": {"done": True, "title": "milk"}}
    assert (offline.get("todos", "2"), offline.pending) == (None, 4)
    with pytest.raises(OptionError, match="give url"):
        offline.sync()
    offline.close()

    one, two = store(server, tmp_path / "a.db", "a"), store(server, ":memory:", "b")
    report = one.sync()
    assert (report.pushed, one.pending, report.changes) == (4, 0, [])
    assert two.sync().changes == [Change("todos", "1", {"done": True, "title": "milk"})]
    two.put("todos", "1", {"title": "oat milk"})
    two.sync()
    assert one.sync().changes == [Change("todos", "1", {"done": True, "title": "oat milk"})]
    one.delete("todos", "1")
    one.sync()
    assert two.sync().changes == [Change("todos", "1", None)]
    assert one.rows("todos") == two.rows("todos") == {}


def test_what_no_gateway_would_take_is_refused_at_once() -> None:
    local = Store(":memory:", "a")
    refused: list[tuple[str, Any]] = [
        ("no table", {"a": 1}),
        ("t", {"_a": 1}),
        ("t", {"a": object()}),
        ("t", {1: 2}),
        ("t", {"a": {1: 2}}),
        ("t", {"a": 2**53}),
        ("t", {"a": -(2**53)}),
        ("t", {"a": [{"b": 1234567890123456789}]}),
        ("t", {"a": float("nan")}),
        ("t", {"a": [float("inf")]}),
    ]
    for table, columns in refused:
        with pytest.raises(DeltaError):
            local.put(table, "1", columns)
    assert local.pending == 0
    local.put("t", "1", {"a": 2**53 - 1, "b": 1 - 2**53, "c": 1e20, "d": "1234567890123456789", "e": -0.0})
    assert local.get("t", "1") == {"a": 2**53 - 1, "b": 1 - 2**53, "c": 1e20, "d": "1234567890123456789", "e": 0}


def test_a_store_belongs_to_one_client(tmp_path: Path) -> None:
    Store(tmp_path / "a.db", "a").close()
    with pytest.raises(InputError, match="belongs to client 'a'"):
        Store(tmp_path / "a.db", "b")


def test_what_is_no_store_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE meta (name, value)")
    other.close()
    (tmp_path / "noise.db").write_bytes(bytes(range(256)) * 32)
    for name in ("other.db", "noise.db"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(InputError) as refused:
            Store(tmp_path / name, "a")
        assert refused.value.code == "damaged_store"
        assert (tmp_path / name).read_bytes()[100:] == before[100:]  # but for the journal mode in the header
    with pytest.raises(InputError, match="cannot be opened"):
        Store(tmp_path / "no folder" / "a.db", "a")


def test_refused_writes_are_set_aside_and_the_rest_is_sent(server: Server) -> None:
    schema = {"table": "todos", "columns": [{"name": "title", "type": "string"}, {"name": "n", "type": "number"}]}
    assert server.client("ops", role="admin").admin("schema", schema).is_success
    local = store(server, ":memory:", "a")
    local.put("todos", "1", {"title": "good"})
    local.put("todos", "2", {"title": 7})
    local.put("todos", "1", {"n": "not a number"})
    local.put("Todos", "3", {"title": "another table's name"})
    local.put("todos", "4", {"title": "good too"})
    report = local.sync()
    assert (report.pushed, report.rejected, local.pending) == (2, 3, 0)
    assert local.rows("todos") == {"1": {"title": "good"}, "4": {"title": "good too"}}
    assert Change("todos", "1", {"title": "good"}) in report.changes
    refused = local.rejected()
    assert [each.delta.row_id for each in refused] == ["2", "1", "3"]
    assert refused[0].code == "SCHEMA_ERROR"
    assert "title" in refused[0].message
    local.forget_rejected()
    assert local.rejected() == []


def test_an_answer_that_was_lost_changes_nothing(server: Server) -> None:
    local = store(server, ":memory:", "a")
    local.put("todos", "1", {"n": 1})
    GatewayClient(server.url, GATEWAY, "a", token=token("a")).push([delta for _, delta in local.queued(10)])
    local.put("todos", "1", {"n": 2})
    assert local.sync().pushed == 2
    assert len(server.client().pull_all()[0]) == 2
    assert local.rows("todos") == {"1": {"n": 2}}


def test_offline_says_so_and_keeps_everything(tmp_path: Path) -> None:
    lonely = Store(tmp_path / "a.db", "a", url="http://127.0.0.1:9", gateway=GATEWAY, token="t")
    lonely.put("todos", "1", {"n": 1})
    lonely._connection.open(0)
    with pytest.raises(GatewayError) as refused:
        lonely.sync()
    assert (refused.value.code, lonely.pending) == ("unreachable", 1)


def test_a_changed_view_replaces_what_is_confirmed(server: Server, tmp_path: Path) -> None:
    admin = server.client("ops", role="admin")
    admin.admin("sync-rules", TEAMS)
    writer = store(server, ":memory:", "ops", role="admin")
    for number, team in enumerate(["red", "blue", "red"]):
        writer.put("todos", str(number), {"team": team})
    writer.sync()
    red = store(server, tmp_path / "r.db", "r", teams=["red"])
    red.sync()
    assert list(red.rows("todos")) == ["0", "2"]
    red.put("todos", "0", {"note": "mine"})
    red.close()
    both = store(server, tmp_path / "r.db", "r", teams=["red", "blue"])
    report = both.sync()
    assert report.from_snapshot
    assert Change("todos", "1", {"team": "blue"}) in report.changes
    assert both.get("todos", "0") == {"note": "mine", "team": "red"}
    both.close()
    blue = store(server, tmp_path / "r.db", "r", teams=["blue"])
    assert Change("todos", "2", None) in blue.sync().changes
    assert list(blue.rows("todos")) == ["1"]


@pytest.mark.parametrize("seed", range(3))
def test_clients_converge_whatever_happens(server: Server, seed: int) -> None:
    dice = random.Random(seed)
    clients = [store(server, ":memory:", name) for name in ("a", "b", "c")]
    for _ in range(120):
        client = dice.choice(clients)
        row = dice.choice("123")
        action = dice.random()
        if action < 0.55:
            client.put("todos", row, {dice.choice("xyz"): dice.randrange(5)})
        elif action < 0.7:
            client.delete("todos", row)
        else:
            client.sync()
    for _ in range(2):
        for client in clients:
            client.sync()
    first, *others = [client.rows("todos") for client in clients]
    assert others == [first] * 2
    assert all(client.pending == 0 for client in clients)


def test_following_with_for(server: Server) -> None:
    one, two = store(server, ":memory:", "a"), store(server, ":memory:", "b")
    seen: list[Change] = []
    follower = one.follow()
    thread = threading.Thread(target=lambda: seen.extend(follower))
    thread.start()
    two.put("todos", "1", {"n": 1})
    two.sync()
    wait_until(lambda: Change("todos", "1", {"n": 1}) in seen)
    one.put("todos", "1", {"n": 2})  # sent by the follower, without a call of sync
    wait_until(lambda: one.pending == 0)
    assert two.sync().changes == [Change("todos", "1", {"n": 2})]
    assert Change("todos", "1", {"n": 2}) not in seen  # its own write was seen before
    follower.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    one.close()


def test_an_application_syncs_and_closes_while_it_follows(server: Server) -> None:
    one, two = store(server, ":memory:", "a"), store(server, ":memory:", "b")
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            for _ in one.follow():
                pass
        except BaseException as error:  # noqa: BLE001 - looked at below
            failures.append(error)

    following = threading.Thread(target=follow)
    following.start()
    for number in range(40):
        one.put("todos", str(number), {"n": number})
        two.put("todos", str(number), {"m": number})
        (one if number % 2 else two).sync()
    two.sync()
    one.sync()
    assert (one.pending, one.rows("todos")) == (0, {str(n): {"n": n, "m": n} for n in sorted(range(40), key=str)})
    one.close()
    following.join(PATIENCE)
    assert (following.is_alive(), failures) == (False, [])


def test_a_page_is_taken_only_where_the_store_stands() -> None:
    """As when a follower's event comes after a snapshot has replaced what the event goes on from."""
    alone = Store(":memory:", "a")
    made = RowDelta.make(op="INSERT", table="t", row_id="1", client_id="b", columns=[ColumnDelta("x", 1)], hlc=5)
    assert alone.take([made], "two", 0, after="one") is None
    assert (alone.rows("t"), alone.cursor) == ({}, None)
    assert alone.take([made], "one", 0, after=None) == [Change("t", "1", {"x": 1})]
    assert alone.cursor == "one"


def test_following_with_async_for_over_a_restart(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--rate-limit", "0") as server:
        port = server.url.rpartition(":")[2]
        one, two = store(server, ":memory:", "a"), store(server, ":memory:", "b")

        async def first_changes(count: int) -> list[Change]:
            found: list[Change] = []
            async for change in one.follow():
                found.append(change)
                if len(found) == count:
                    break
            return found

        async def story() -> list[Change]:
            following = asyncio.create_task(first_changes(2))
            two.put("todos", "1", {"n": 1})
            await two.sync_async()
            await asyncio.to_thread(wait_until, lambda: one.get("todos", "1") == {"n": 1})
            server.stop()
            two.put("todos", "1", {"n": 2})
            with running(tmp_path / "data", "--port", port):
                await two.sync_async()
                return await asyncio.wait_for(following, PATIENCE)

        changes = asyncio.run(story())
        assert [change.columns for change in changes] == [{"n": 1}, {"n": 2}]
        one.close()


def test_a_follower_tells_what_it_cannot_mend(server: Server) -> None:
    wrong = Store(":memory:", "a", url=server.url, gateway=GATEWAY, token="wrong")
    with pytest.raises(GatewayError) as refused:
        list(wrong.follow())
    assert refused.value.code == "AUTH_ERROR"


def test_folds_survive_being_written_down() -> None:
    dice = random.Random(4)
    clock = Clock(lambda: 1000)
    for _ in range(200):
        whole, stored = RowMerge(), RowMerge()
        for _ in range(dice.randrange(1, 8)):
            op = dice.choice(["INSERT", "UPDATE", "DELETE"])
            columns = [] if op == "DELETE" else [ColumnDelta(dice.choice("xy"), dice.randrange(9))]
            hlc = dice.choice([clock.now(), dice.randrange(1, 60_000_000)])
            made = RowDelta.make(op=op, table="t", row_id="r", client_id=dice.choice("ab"), columns=columns, hlc=hlc)
            whole.add(made)
            stored.add(made)
            stored = fold_from_plain(fold_to_plain(stored))
        assert stored.state() == whole.state()


def test_exact_numbers_reach_other_clients_and_the_lake(server: Server) -> None:
    types = {"id": "integer", "price": "decimal(2)", "n": "number"}
    columns = [{"name": name, "type": kind} for name, kind in types.items()]
    admin = server.client("ops", role="admin")
    assert admin.admin("schema", {"table": "orders", "columns": columns}).status_code == 200
    exact = {"id": 1234567890123456789, "price": Decimal("12345678901234567.89"), "n": 0.5}
    one = store(server, ":memory:", "a")
    with pytest.raises(DeltaError):
        one.put("orders", "1", exact)  # before the first sync no type is known
    one.sync()
    one.put("orders", "1", exact)
    one.put("orders", "2", {"id": -(2**63), "price": 3, "n": None})
    for column, wrong in (("id", 2**63), ("id", 0.5), ("price", Decimal("0.001")), ("price", "x"), ("n", 2**53)):
        with pytest.raises(DeltaError):
            one.put("orders", "3", {column: wrong})
    assert (one.sync().pushed, one.rejected()) == (2, [])
    found = {"1": exact, "2": {"id": -(2**63), "price": Decimal(3), "n": None}}
    two = store(server, ":memory:", "b")
    two.sync()
    assert two.rows("orders") == one.rows("orders") == found
    assert {type(value) for value in (two.get("orders", "1") or {}).values()} == {int, Decimal, float}
    assert admin.admin("flush").status_code == 200
    files = list((server.data / "lake/tables/orders/deltas").rglob("*.parquet"))
    lake = pl.read_parquet(files).sort("_row_id")
    assert lake["id"].to_list() == [1234567890123456789, -(2**63)]
    assert lake["price"].to_list() == [Decimal("12345678901234567.89"), Decimal(3)]


def test_types_may_be_given_before_the_first_sync(tmp_path: Path) -> None:
    local = Store(tmp_path / "a.db", "a", types={"orders": {"id": "integer"}})
    local.put("orders", "1", {"id": 2**60})
    local.close()
    assert Store(tmp_path / "a.db", "a").get("orders", "1") == {"id": 2**60}
