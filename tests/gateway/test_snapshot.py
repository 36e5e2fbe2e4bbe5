"""Bootstrap: a client that begins with a snapshot and one that read every delta end at the same state."""

from __future__ import annotations

import base64
import gzip
import hmac
import io
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest

from driftline.core._json import utf16_sort_key
from driftline.deltas import RowDelta, TableSchema
from driftline.deltas._merge import RowMerge
from driftline.gateway._lake.snapshot import ARROW, PageToken, page_keys
from driftline.gateway._log.sqlite import SqliteLog
from driftline.lake import Lake, compact, register, set_horizon, vacuum
from support.gateways import CLOCK, GATEWAY, Client, Server, delta, running

SCHEMA = {"table": "todos", "columns": [{"name": "x", "type": "number"}, {"name": "team", "type": "string"}]}
BASE = 65536 * 1000


class Replica:
    """What a client keeps: the folds of rows, from snapshot pages and deltas; stamps have the first 8 bytes of ids."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], RowMerge] = {}

    def take(self, deltas: list[dict[str, Any]]) -> None:
        for each in deltas:
            found = RowDelta.from_wire(each)
            short = msgspec.structs.replace(found, delta_id=found.delta_id[:16])
            self.rows.setdefault((found.table, found.row_id), RowMerge()).add(short)

    def begin(self, records: list[dict[str, Any]]) -> None:
        for record in records:
            stamps = [(int(hlc), utf16_sort_key(client), mark) for hlc, client, mark in record["stamps"]]
            fold = RowMerge()
            if "live" in record:
                fold.written = (*stamps[record["live"]], False)
                fold.columns = {
                    name: ((*stamps[record["by"][name]], False), value) for name, value in record["columns"].items()
                }
            if "deleted" in record:
                fold.deleted = (*stamps[record["deleted"]], True)
            self.rows[record["table"], record["rowId"]] = fold

    def state(self) -> dict[str, dict[str, Any]]:
        states = {f"{table}/{row}": fold.state() for (table, row), fold in self.rows.items()}
        return {name: state.columns for name, state in states.items() if state.live}


def snapshot(client: Client, limit: int | None = None, **more: Any) -> tuple[list[dict[str, Any]], str]:
    """Every row of every page, and the cursor; all pages name the same one."""
    rows: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": limit, **more} if limit else dict(more)
    cursors = set()
    while True:
        answer = client.http.get(f"/sync/{GATEWAY}/snapshot", params=query)
        assert answer.status_code == 200, answer.text
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert set(lines[0]) == {"page"}
        rows += lines[1:-1]
        end = lines[-1]["end"]
        cursors.add(end["cursor"])
        if end["next"] is None:
            assert len(cursors) == 1
            return rows, end["cursor"]
        query = {"page": end["next"], **more}


def flush(server: Server) -> None:
    assert server.client(role="admin").admin("flush").status_code == 200


def test_rows_carry_stamps_and_the_dead_are_told(server: Server) -> None:
    alice, bob = server.client("a"), server.client("b")
    alice.push(delta("a", "1", "INSERT", BASE, x=1, y=1), delta("a", "2", "INSERT", BASE + 1, x=1))
    bob.push(delta("b", "1", "UPDATE", BASE + 2, x=2))
    alice.push(delta("a", "2", "DELETE", BASE + 5))
    rows, cursor = snapshot(alice)
    marks = {hlc: made["deltaId"][:16] for made in alice.pull_all()[0] for hlc in [made["hlc"]]}
    assert rows == [
        {
            "table": "todos",
            "rowId": "1",
            "columns": {"x": 2, "y": 1},
            "stamps": [[str(BASE + 2), "b", marks[str(BASE + 2)]], [str(BASE), "a", marks[str(BASE)]]],
            "by": {"x": 0, "y": 1},
            "live": 0,
        },
        {"table": "todos", "rowId": "2", "stamps": [[str(BASE + 5), "a", marks[str(BASE + 5)]]], "deleted": 0},
    ]
    carol = server.client("c")
    carol.push(delta("c", "1", "UPDATE", BASE + 1, x=9, y=3), delta("c", "2", "UPDATE", BASE + 3, x=9))
    late, _ = alice.pull_all(cursor=cursor)
    assert len(late) == 2
    replica = Replica()
    replica.begin(rows)
    replica.take(late)
    assert replica.state() == {"todos/1": {"x": 2, "y": 3}}


def test_pages_of_one_snapshot_agree_although_pushes_go_on(server: Server) -> None:
    client, admin = server.client(), server.client(role="admin")
    client.push(*(delta(row=str(number), op="INSERT", x=number) for number in range(1, 5)))
    first = client.http.get(f"/v1/sync/{GATEWAY}/snapshot", params={"limit": 2})
    lines = [json.loads(line) for line in first.text.splitlines()]
    assert [line["rowId"] for line in lines[1:-1]] == ["1", "2"]
    client.push(delta(row="3", x=99))
    assert admin.admin("schema", SCHEMA).status_code == 200
    flush(server)
    second = client.http.get(f"/v1/sync/{GATEWAY}/snapshot", params={"page": lines[-1]["end"]["next"]})
    rest = [json.loads(line) for line in second.text.splitlines()]
    assert [(line["rowId"], line["columns"]) for line in rest[1:-1]] == [("3", {"x": 3}), ("4", {"x": 4})]
    assert rest[-1]["end"] == {"next": None, "cursor": lines[-1]["end"]["cursor"]}
    pulled, _ = client.pull_all(cursor=lines[-1]["end"]["cursor"])
    assert [each["rowId"] for each in pulled] == ["3"]


def test_after_retention_the_refusal_names_the_snapshot(tmp_path: Path) -> None:
    with running(tmp_path, "--rate-limit", "0", "--flush-seconds", "3600", "--retention-days", "0.00001") as server:
        client = server.client()
        client.push(delta(row="1", op="INSERT", x=1))
        flush(server)
        while client.pull(since="0").status_code == 200:
            pass
        client.push(delta(row="1", y=2))
        refused = client.pull(since="0").json()
        assert (refused["code"], refused["reason"]) == ("MUST_REFETCH", "retention")
        assert refused["snapshot"] == f"/v1/sync/{GATEWAY}/snapshot"
        rows, cursor = snapshot(client)
        assert [row["columns"] for row in rows] == [{"x": 1, "y": 2}]
        assert client.pull(cursor=cursor).status_code == 200


@pytest.mark.parametrize("seed", [1, 2])
def test_a_new_client_converges_with_one_that_read_everything(tmp_path: Path, seed: int) -> None:
    """Random writes, deletes and late deltas; flushes, a schema, compactions and new clients in between."""
    chance = random.Random(seed)
    with running(tmp_path, "--rate-limit", "0", "--flush-seconds", "3600") as server:
        writers = [server.client(name) for name in ("a", "b", "\U0001f602")]
        old, cursors, replicas = Replica(), [], []
        for step in range(14):
            writer = chance.choice(writers)
            writer.push(*(_random_delta(chance, writer.sub) for _ in range(chance.randrange(1, 12))))
            match chance.randrange(5):
                case 0 | 1:
                    flush(server)
                case 2 if step > 4:
                    server.client(role="admin").admin("schema", SCHEMA)
                case 3:
                    rows, cursor = snapshot(writer, limit=chance.choice([3, 1000]))
                    replicas.append(Replica())
                    replicas[-1].begin(rows)
                    cursors.append(cursor)
        lake = Lake(str(tmp_path / "lake"))
        server.client(role="admin").admin("schema", SCHEMA)
        flush(server)
        compact(lake, "todos")
        rows, cursor = snapshot(writers[0])
        replicas.append(Replica())
        replicas[-1].begin(rows)
        cursors.append(cursor)
        writers[1].push(*(_random_delta(chance, "b") for _ in range(10)))
        old.take(writers[0].pull_all()[0])
        assert len(old.state()) > 3
        for replica, cursor in zip(replicas, cursors, strict=True):
            replica.take(writers[0].pull_all(cursor=cursor)[0])
            assert replica.state() == old.state()


def _random_delta(chance: random.Random, client: str) -> dict[str, Any]:
    op = chance.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
    columns = {} if op == "DELETE" else {name: chance.randrange(100) for name in ("x",) if chance.random() < 0.8}
    if op != "DELETE" and chance.random() < 0.5:
        columns["team"] = chance.choice("ab")
    return delta(client, f"r{chance.randrange(8)}", op, BASE + chance.randrange(200), **columns)


def test_under_rules_only_visible_living_rows_are_told(server: Server) -> None:
    admin = server.client(role="admin")
    rules = {
        "version": 1,
        "writes": "open",
        "buckets": [
            {"name": "b", "tables": ["todos"], "filters": [{"column": "team", "op": "in", "value": "jwt:teams"}]}
        ],
    }
    assert admin.admin("sync-rules", rules).status_code == 200
    writer = server.client("w")
    writer.push(
        *(delta("w", f"{team}{number}", "INSERT", x=number, team=team) for team in "abc" for number in range(3))
    )
    writer.push(delta("w", "a0", "DELETE"), delta("w", "b0", team="a"))
    member = server.client("m", teams=["a"])
    rows, cursor = snapshot(member, limit=2)
    assert [row["rowId"] for row in rows] == ["a1", "a2", "b0"]
    writer.push(delta("w", "c1", team="a"), delta("w", "a1", team="c"))
    replica = Replica()
    replica.begin(rows)
    replica.take(member.pull_all(cursor=cursor)[0])
    assert sorted(replica.state()) == ["todos/a2", "todos/b0", "todos/c1"]
    refused = server.client("m", teams=["a", "b"]).pull(cursor=cursor)
    assert refused.json()["reason"] == "view_changed"
    page = member.http.get(f"/sync/{GATEWAY}/snapshot", params={"limit": 1}).text.splitlines()[-1]
    following = {"page": json.loads(page)["end"]["next"]}
    other = server.client("m", teams=["b"]).http.get(f"/sync/{GATEWAY}/snapshot", params=following)
    assert (other.status_code, other.json()["reason"]) == (410, "view_changed")
    assert admin.admin("sync-rules", None, "DELETE").status_code == 200
    gone = member.http.get(f"/sync/{GATEWAY}/snapshot", params=following)
    assert (gone.status_code, gone.json()["reason"]) == (410, "rules_changed")


def test_arrow_and_gzip_say_the_same(server: Server) -> None:
    client, admin = server.client(), server.client(role="admin")
    assert admin.admin("schema", SCHEMA).status_code == 200
    client.push(*(delta(row=f"{number:02}", op="INSERT", x=number, team="é") for number in range(20)))
    flush(server)
    client.push(delta(row="05", x=None), delta(row="07", op="DELETE"))
    rows, _ = snapshot(client)
    path = f"/sync/{GATEWAY}/snapshot"
    with client.http.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        lines = gzip.decompress(b"".join(answer.iter_raw())).splitlines()
    assert [json.loads(line) for line in lines[1:-1]] == rows
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 8}
    while query:
        answer = client.http.get(path, params=query, headers={"Accept": ARROW})
        assert answer.headers["content-type"] == ARROW
        with pa.ipc.open_stream(io.BytesIO(answer.content)) as stream:
            found += stream.read_all().to_pylist()
            end = json.loads(stream.schema.metadata[b"driftline.end"])
        query = {"page": end["next"]} if end["next"] else {}
    assert [row["_row_id"] for row in found] == [row["rowId"] for row in rows]
    assert [row["x"] for row in found if row["_joined"] is None] == [
        row["columns"]["x"] for row in rows if row["rowId"] not in ("05", "07")
    ]
    assert {row["_row_id"]: json.loads(row["_joined"]) for row in found if row["_joined"]} == {
        row["rowId"]: row for row in rows if row["rowId"] in ("05", "07")
    }


@pytest.mark.parametrize("query", [{"page": "!"}, {"page": "W10"}, {"limit": "0"}, {"limit": "x"}])
def test_what_is_no_page_is_refused(shared_server: Server, query: dict[str, str]) -> None:
    answer: httpx.Response = shared_server.client().http.get(f"/sync/{GATEWAY}/snapshot", params=query)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# Each member of a token that the gateway never makes, under a signature that fits: the key is the log's.
FORGED: dict[str, dict[str, Any]] = {
    "an older form": {"form": 2},
    "a key that is a path": {"fold": "../../escaped"},
    "a key that is empty": {"fold": ""},
    "a key in capitals": {"fold": "A" * 32},
    "a table below the first": {"table": -1},
    "a huge table": {"table": 2**63},
    "a table that is text": {"table": "todos"},
    "a row that is a number": {"after": 7},
    "no limit": {"limit": 0},
    "a huge limit": {"limit": 10**9},
    "rules below the first": {"rules": -1},
    "a long view": {"view": "x" * 65},
    "a time below 0": {"issued_ms": -1},
    "a time that is text": {"issued_ms": "now"},
}


def token_members(text: str) -> dict[str, Any]:
    """The members of a page token, whose signature is not checked."""
    names = [field.name for field in msgspec.structs.fields(PageToken)]
    return dict(zip(names, json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[16:]), strict=True))


def signed(server: Server, members: dict[str, Any], subject: str = "alice") -> str:
    """A token with any members, signed by the key in the server's log."""
    log = SqliteLog(server.data / "log.sqlite")
    try:
        key = next(iter(page_keys(log).values()))
    finally:
        log.close()
    payload = json.dumps(list(members.values()), separators=(",", ":")).encode()
    parts = (GATEWAY.encode(), subject.encode(), payload)
    mac = hmac.digest(key, b"".join(len(part).to_bytes(8, "big") + part for part in parts), "sha256")[:16]
    return base64.urlsafe_b64encode(mac + payload).decode().rstrip("=")


@pytest.fixture(scope="module")
def flushed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with ten flushed deltas of one table and one of another that is not in the lake yet."""
    with running(tmp_path_factory.mktemp("pages") / "data", "--rate-limit", "0") as server:
        client = server.client()
        register(Lake(str(server.data / "lake")), TableSchema.from_wire(SCHEMA))
        assert client.push(*(delta(row=f"{n:02d}", x=n) for n in range(10))).status_code == 200
        flush(server)
        assert client.push(delta(table="notes", row="1", y=1)).status_code == 200
        yield server


def first_token(client: Client, limit: int = 4) -> str:
    first = client.http.get(f"/sync/{GATEWAY}/snapshot", params={"limit": limit})
    found: str = json.loads(first.text.splitlines()[-1])["end"]["next"]
    return found


@pytest.mark.parametrize("case", FORGED)
def test_a_page_that_no_first_page_named_is_refused_and_writes_nothing(flushed_server: Server, case: str) -> None:
    client = flushed_server.client()
    token = first_token(client)
    forged = signed(flushed_server, token_members(token) | FORGED[case])
    before = files_below(flushed_server.data.parent)
    answer = client.http.get(f"/sync/{GATEWAY}/snapshot", params={"page": forged})
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR"), answer.text
    assert answer.json()["error"] == "page is not one of this gateway"
    assert files_below(flushed_server.data.parent) == before
    assert client.http.get(f"/sync/{GATEWAY}/snapshot", params={"page": token}).status_code == 200


@pytest.mark.parametrize("members", [{"issued_ms": 1}, {"fold": "0" * 32}, {"table": 99}])
def test_a_page_that_is_gone_begins_anew(flushed_server: Server, members: dict[str, Any]) -> None:
    client = flushed_server.client()
    token = signed(flushed_server, token_members(first_token(client)) | members)
    answer = client.http.get(f"/sync/{GATEWAY}/snapshot", params={"page": token})
    assert (answer.status_code, answer.json()["reason"]) == (410, "snapshot_gone")


def folder_of(server: Server, token: str) -> Path:
    return server.data / "snapshots" / str(token_members(token)["fold"])


def test_a_page_is_folded_again_where_its_rows_were_removed(flushed_server: Server) -> None:
    """The manifest in the log says what to merge, also to a process that has not folded it."""
    client = flushed_server.client()
    token = first_token(client)
    second = client.http.get(f"/sync/{GATEWAY}/snapshot", params={"page": token}).text.splitlines()[1:-1]
    shutil.rmtree(folder_of(flushed_server, token))
    again = client.http.get(f"/sync/{GATEWAY}/snapshot", params={"page": token})
    assert again.text.splitlines()[1:-1] == second
    assert folder_of(flushed_server, token).exists()


def test_other_rows_than_before_are_never_served(tmp_path: Path) -> None:
    """A snapshot whose parts were vacuumed and folded otherwise is gone; it does not go on with newer values."""
    with running(tmp_path / "data", "--rate-limit", "0", "--flush-seconds", "3600", "--no-compact") as server:
        client, lake = server.client(), Lake(str(tmp_path / "data" / "lake"))
        register(lake, TableSchema.from_wire(SCHEMA))
        client.push(*(delta(row=f"{n:02d}", x=n) for n in range(10)))
        flush(server)
        token = first_token(client)
        client.push(*(delta(row=f"{n:02d}", x=n + 100) for n in range(10)))
        flush(server)
        compact(lake, "todos")
        set_horizon(lake, "todos", CLOCK.now())
        vacuum(lake, "todos", hours=0)
        shutil.rmtree(folder_of(server, token))
        answer = client.http.get(f"/sync/{GATEWAY}/snapshot", params={"page": token})
        assert (answer.status_code, answer.json()["reason"]) == (410, "snapshot_gone")
        assert [row["columns"] for row in snapshot(client)[0]] == [{"x": n + 100} for n in range(10)]


def test_merged_rows_are_bounded_in_bytes(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--rate-limit", "0", "--flush-seconds", "3600", "--snapshot-mb", "1") as server:
        client = server.client()
        client.push(delta(row="1", op="INSERT", text="x" * 2_000_000))
        refused = client.http.get(f"/sync/{GATEWAY}/snapshot")
        assert (refused.status_code, refused.json()["reason"]) == (503, "snapshot_quota")
        assert refused.json()["retryAfter"] == int(refused.headers["retry-after"])
        assert not list((server.data / "snapshots").rglob("*.arrow"))


def test_tables_outside_the_buckets_are_not_named(server: Server) -> None:
    admin = server.client("ops", role="admin")
    admin.push(delta("ops", table="secrets", row="1", op="INSERT", x=1), delta("ops", row="1", op="INSERT", x=1))
    admin.admin("sync-rules", {"version": 1, "buckets": [{"name": "b", "tables": ["todos"]}]})
    page = server.client().http.get(f"/sync/{GATEWAY}/snapshot").text.splitlines()
    assert json.loads(page[0])["page"]["tables"] == ["todos"]
    assert len(page) == 3
