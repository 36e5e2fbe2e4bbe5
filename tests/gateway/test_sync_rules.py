"""Sync rules on merged rows: a caller ends at the merged state of exactly the rows it may see."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from driftline.deltas import ColumnDelta, RowDelta, merge
from driftline.deltas._merge import RowMerge, fold_from_plain, fold_rows, fold_to_plain
from driftline.errors import GatewayError
from driftline.gateway._auth import Caller
from driftline.gateway._log.log import Appended
from driftline.gateway._log.sqlite import SqliteLog
from driftline.gateway._sync.pull import View, read_page, start_of
from driftline.gateway._sync.push import parse_push
from driftline.gateway._sync.row_index import RowIndex
from driftline.gateway._sync.rules import SyncRules, parse_rules
from support.gateways import GATEWAY, Server, delta, running
from support.processes import wait_until

MINE = {"name": "mine", "tables": ["todos"], "filters": [{"column": "owner", "op": "eq", "value": "jwt:sub"}]}


def rules(*buckets: Any) -> dict[str, Any]:
    return {"version": 1, "buckets": list(buckets)}


def ops(deltas: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["op"], each["rowId"]) for each in deltas]


def test_sparse_updates_deletes_and_leaving_rows(server: Server) -> None:
    admin, alice, bob = server.client("ops", role="admin"), server.client("alice"), server.client("bob")
    assert admin.admin("sync-rules", {**rules(MINE), "writes": "open"}).json() == {"buckets": 1}
    insert = delta(row="1", op="INSERT", owner="alice", title="A")
    sparse = delta(row="1", title="B")
    alice.push(insert, sparse, delta(row="2", op="INSERT", owner="bob", title="secret"))
    found, cursor = alice.pull_all()
    assert found == [insert, sparse]  # as they are, with their ids
    assert ops(bob.pull_all()[0]) == [("INSERT", "2")]

    # The row leaves: a DELETE for alice, the whole row for bob.
    alice.push(delta(row="1", owner="bob"))
    found, cursor = alice.pull_all(cursor=cursor)
    assert ops(found) == [("DELETE", "1")]
    state = merge(RowDelta.from_wire(each) for each in bob.pull_all()[0])
    assert state["todos", "1"].columns == {"owner": "bob", "title": "B"}

    # Hidden changes are hidden, the row comes back whole, and a real DELETE arrives.
    alice.push(delta(row="1", title="C"))
    assert alice.pull_all(cursor=cursor)[0] == []
    alice.push(delta(row="1", owner="alice"))
    found, cursor = alice.pull_all(cursor=cursor)
    assert [each["columns"] for each in found] == [
        [{"column": "owner", "value": "alice"}, {"column": "title", "value": "C"}]
    ]
    alice.push(delta(row="1", op="DELETE"), delta(row="2", op="DELETE"))
    assert ops(alice.pull_all(cursor=cursor)[0]) == [("DELETE", "1")]
    everything = [RowDelta.from_wire(each) for each in alice.pull_all()[0]]
    assert not merge(everything)["todos", "1"].live
    assert all(each.has_own_id() for each in everything)
    assert ("todos", "2") not in merge(everything)


def test_admins_see_everything_and_rules_can_go(server: Server) -> None:
    admin, alice = server.client("ops", role="admin"), server.client("alice")
    alice.push(delta(row="1", owner="bob"), delta(row="2", table="other", owner="alice"))
    admin.admin("sync-rules", rules(MINE))
    cursor = alice.pull(since="0").json()["cursor"]
    assert alice.pull_all()[0] == []
    assert len(admin.pull_all()[0]) == 2
    assert admin.admin("sync-rules", method="DELETE").json() == {"buckets": 0}
    assert alice.pull(cursor=cursor).json()["code"] == "MUST_REFETCH"  # it was made under other rules
    assert len(alice.pull_all()[0]) == 2


def test_claims_and_operators(server: Server) -> None:
    admin = server.client("ops", role="admin")
    bucket = {
        "name": "team",
        "tables": ["todos"],
        "filters": [{"column": "team", "op": "in", "value": "jwt:teams"}, {"column": "level", "op": "lte", "value": 3}],
    }
    admin.admin("sync-rules", rules(bucket, {"name": "public", "tables": ["news"]}))
    rows = [
        delta("ops", row="red-low", team="red", level=1),
        delta("ops", row="red-high", team="red", level=4),
        delta("ops", row="blue-low", team="blue", level=3),
        delta("ops", row="no-level", team="red"),
        delta("ops", row="text-level", team="red", level="1"),
        delta("ops", table="news", row="n"),
    ]
    assert admin.push(*rows).status_code == 200
    seen = lambda **claims: [each["rowId"] for each in server.client("c", **claims).pull_all()[0]]  # noqa: E731
    assert seen(teams=["red", "blue"]) == ["red-low", "blue-low", "n"]
    assert seen(teams="red") == ["red-low", "n"]
    assert seen() == ["n"]


@pytest.mark.parametrize(
    ("op", "wanted", "matching"),
    [
        ("eq", 2, [2, 2.0, "2"]),
        ("eq", "2", [2, 2.0, "2"]),
        ("neq", 2, [1, 3, None, True]),
        ("in", [1, "2"], [1, 2, 2.0, "2"]),
        ("gt", 1, [2, 2.0, 3]),
        ("lt", 2, [1]),
        ("gte", 2, [2, 2.0, 3]),
        ("lte", 2, [1, 2, 2.0]),
        ("gt", "1", [2, 2.0, 3, "2"]),
        ("eq", None, [None]),
        ("eq", True, [True]),
        ("eq", "true", [True]),
    ],
)
def test_filters(op: str, wanted: Any, matching: list[Any]) -> None:
    bucket = {"name": "b", "tables": ["t"], "filters": [{"column": "c", "op": op, "value": wanted}]}
    parsed = parse_rules(json.dumps(rules(bucket)).encode())
    values = [1, 2, 2.0, 3, "2", None, True]
    found = [value for value in values if parsed.sees("t", {"c": value}, {})]
    assert [repr(value) for value in found] == [repr(value) for value in matching]
    assert not parsed.sees("t", {}, {})
    assert not parsed.sees("u", {"c": wanted}, {})


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]",
        b'{"version":1}',
        b'{"version":"1","buckets":[]}',
        json.dumps(rules({"name": "a", "tables": []})).encode(),
        json.dumps(rules({"name": "a", "tables": ["no table"]})).encode(),
        json.dumps(rules(MINE, MINE)).encode(),
        json.dumps(rules({**MINE, "extra": 1})).encode(),
        json.dumps(rules({**MINE, "filters": [{"column": "c", "op": "like", "value": 1}]})).encode(),
        json.dumps(rules({**MINE, "filters": [{"column": "_c", "op": "eq", "value": 1}]})).encode(),
        json.dumps(rules({**MINE, "filters": [{"column": "c", "op": "in", "value": 1}]})).encode(),
        json.dumps(rules({**MINE, "filters": [{"column": "c", "op": "gt", "value": [1]}]})).encode(),
        json.dumps(rules({**MINE, "filters": [{"column": "c", "op": "eq", "value": "jwt:"}]})).encode(),
        json.dumps({"version": 2, "buckets": []}).encode(),
    ],
)
def test_malformed_rules(bad: bytes, shared_server: Server) -> None:
    with pytest.raises(GatewayError):
        parse_rules(bad)
    answer = shared_server.client(role="admin").http.post(f"/admin/sync-rules/{GATEWAY}", content=bad)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")


owners = st.sampled_from(["alice", "bob"])
changes = st.tuples(
    st.sampled_from(["INSERT", "UPDATE", "UPDATE", "UPDATE", "DELETE"]),
    st.sampled_from(["1", "2"]),
    st.integers(0, 6),  # few moments, so that late arrivals and ties are common
    owners,
    st.dictionaries(st.sampled_from(["owner", "x", "y"]), owners, max_size=3),
)


class Log:
    """A gateway's log without its server."""

    def __init__(self, directory: str) -> None:
        self.log = SqliteLog(Path(directory) / "log")
        self.index = RowIndex(self.log)
        self.rules: SyncRules = parse_rules(json.dumps(rules(MINE)).encode())
        self.base = 1 << 40  # fixed, because ids (and so ties) depend on it

    def push(self, change: Any) -> list[RowDelta]:
        op, row, moment, client, columns = change
        entries = [] if op == "DELETE" else [ColumnDelta(name, value) for name, value in columns.items()]
        made = RowDelta.make(
            op=op, table="todos", row_id=row, client_id=client, columns=entries, hlc=self.base + moment
        )
        body = json.dumps({"clientId": client, "deltas": [made.to_wire()]}).encode()
        [result] = self.log.append([parse_push(body).entries])
        # A DELETE has the id of an INSERT without columns; the second of the two is refused.
        return [made] if isinstance(result, Appended) else []

    def pull(self, cursor: Any, limit: int) -> Any:
        query = {"since": "0"} if cursor is None else {"cursor": cursor.encode()}
        start = start_of(query, self.log, 1)
        upto = self.index.catch_up(self.rules, 1)
        return read_page(self.log, start, limit, View(self.index, self.rules, {"sub": "alice"}, GATEWAY), upto)


# Hidden by a delta that a DELETE covers, which comes later and leaves the row alive.
COVERED = [
    (("INSERT", "2", 0, "alice", {"owner": "alice"}), False, 1),
    (("INSERT", "2", 1, "bob", {}), False, 1),
    (("INSERT", "2", 0, "bob", {"owner": "bob"}), False, 1),
    (("DELETE", "2", 1, "alice", {}), False, 1),
]


@settings(max_examples=60)
@example(COVERED)
@example([(change, True, limit) for change, _, limit in COVERED])
@given(st.lists(st.tuples(changes, st.booleans(), st.integers(1, 3)), max_size=14))
def test_every_caller_converges_to_the_visible_merged_rows(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        gateway = Log(directory)
        accepted: list[RowDelta] = []
        received: list[RowDelta] = []
        cursor = None
        for change, pulls, limit in [*steps, (None, True, 1)]:
            if change is not None:
                accepted += gateway.push(change)
            while pulls:
                page = gateway.pull(cursor, limit)
                received += [RowDelta.from_wire(json.loads(body)) for body in page.deltas]
                cursor, pulls = page.cursor, page.has_more
        expected = visible(accepted)
        assert {key[1]: state.columns for key, state in merge(received).items() if state.live} == expected
        afresh, start = [], None
        while True:
            page = gateway.pull(start, 2)
            afresh += [RowDelta.from_wire(json.loads(body)) for body in page.deltas]
            start = page.cursor
            if not page.has_more:
                break
        assert {key[1]: state.columns for key, state in merge(afresh).items() if state.live} == expected
        gateway.log.close()


@settings(max_examples=60)
@given(st.lists(st.tuples(changes, st.sampled_from(["", "pull", "begin"]), st.integers(1, 3)), max_size=14))
def test_a_caller_that_begins_with_a_snapshot_converges_too(steps: list[Any]) -> None:
    """A snapshot under rules has visible living rows only: what was deleted before it must not come back."""
    with tempfile.TemporaryDirectory() as directory:
        gateway = Log(directory)
        accepted: list[RowDelta] = []
        folds: dict[Any, RowMerge] = {}
        cursor = gateway.pull(None, 1).cursor
        for change, action, limit in [*steps, (None, "pull", 1)]:
            if change is not None:
                accepted += gateway.push(change)
            if action == "begin":
                shown = visible(accepted)
                folds = {key: fold for key, fold in fold_rows(accepted).items() if key[1] in shown}
                folds = {key: fold_from_plain(fold_to_plain(fold)) for key, fold in folds.items()}
                last = gateway.log.head().last
                cursor = cursor.at(last, gateway.log.arrival_at(last) or 0)
            has_more = action == "pull"
            while has_more:
                page = gateway.pull(cursor, limit)
                for delta in (RowDelta.from_wire(json.loads(body)) for body in page.deltas):
                    folds.setdefault((delta.table, delta.row_id), RowMerge()).add(delta)
                cursor, has_more = page.cursor, page.has_more
        found = {key[1]: fold.state().columns for key, fold in folds.items() if fold.state().live}
        assert found == visible(accepted)
        gateway.log.close()


def test_a_late_delta_below_a_delete_before_the_snapshot_stays_hidden(tmp_path: Path) -> None:
    gateway = Log(str(tmp_path))
    gateway.push(("INSERT", "1", 1, "alice", {"owner": "alice", "x": "bob"}))
    gateway.push(("DELETE", "1", 5, "alice", {}))
    last = gateway.log.head().last
    cursor = gateway.pull(None, 1).cursor.at(last, gateway.log.arrival_at(last) or 0)  # the row is in no snapshot
    gateway.push(("UPDATE", "1", 6, "alice", {"owner": "alice"}))
    gateway.push(("UPDATE", "1", 3, "alice", {"y": "alice"}))
    sent = [RowDelta.from_wire(json.loads(body)) for body in gateway.pull(cursor, 10).deltas]
    assert merge(sent)["todos", "1"].columns == {"owner": "alice"}
    gateway.log.close()


def visible(deltas: list[RowDelta]) -> dict[str, Any]:
    return {
        key[1]: state.columns
        for key, state in merge(deltas).items()
        if state.live and state.columns.get("owner") == "alice"
    }


def test_rules_set_after_retention_still_see_whole_rows(tmp_path: Path) -> None:
    with running(tmp_path, "--retention-days", "0.000001", "--rate-limit", "0") as server:
        admin, alice = server.client("ops", role="admin"), server.client("alice")
        alice.push(delta(row="1", op="INSERT", owner="alice", title="A"))
        admin.admin("flush")
        wait_until(lambda: alice.pull(since="0").status_code != 200, "the insert is forgotten")
        assert admin.admin("sync-rules", rules(MINE)).is_success
        last = delta(row="1", title="B")
        alice.push(last)
        found = [each for each in alice.pull(since=str(int(last["hlc"]) - 1)).json()["deltas"] if each["rowId"] == "1"]
        assert merge(RowDelta.from_wire(each) for each in found)["todos", "1"].columns["title"] == "B"


def test_rules_are_refused_where_rows_are_not_whole(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.sqlite")
    index = RowIndex(log)
    change = RowDelta.make(op="INSERT", table="t", row_id="1", client_id="a", columns=[], hlc=5)
    log.append([parse_push(json.dumps({"clientId": "a", "deltas": [change.to_wire()]}).encode()).entries])
    assert index.is_whole()
    log.prune(1)  # as an older version did, which kept no rows without rules
    assert not index.is_whole()
    log.close()
    with running(tmp_path, "--rate-limit", "0") as server:
        refused = server.client("ops", role="admin").admin("sync-rules", rules(MINE))
        assert (refused.status_code, "whole rows" in refused.json()["error"]) == (400, True)


def test_callers_are_plain_records() -> None:
    assert Caller("alice", GATEWAY).role == "client"
    assert not Caller("alice", GATEWAY).is_admin


def test_a_change_of_what_may_be_written_ends_no_cursor(server: Server) -> None:
    admin, alice = server.client("ops", role="admin"), server.client("alice")
    admin.admin("sync-rules", rules(MINE))
    assert alice.push(delta(row="1", op="INSERT", owner="alice")).status_code == 200
    cursor = alice.pull_all()[1]
    read_only = [{"tables": ["todos"]}]
    assert admin.admin("sync-rules", {**rules(MINE), "writes": read_only}).status_code == 200
    refused = alice.push(delta(row="1", title="x"))
    assert (refused.status_code, refused.json()["reason"]) == (403, "write_rules")
    assert alice.pull(cursor=cursor).status_code == 200
    admin.admin("sync-rules", {**rules({**MINE, "name": "other"}), "writes": read_only})
    assert alice.pull(cursor=cursor).json()["reason"] == "rules_changed"
