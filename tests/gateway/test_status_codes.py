"""Every refusal of the protocol (gateway §3), with its status, its code and a body that says why."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import time
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from support.gateways import CLOCK, GATEWAY, SECRET, Server, delta, running, token
from support.processes import wait_until

PUSH, PULL = f"/sync/{GATEWAY}/push", f"/sync/{GATEWAY}/pull"

# What an error tells programs beside its code; messages are for people.
MEMBERS: dict[int, tuple[str, ...]] = {
    400: ("positions", "column", "limit"),
    401: (),
    403: ("positions", "reason"),
    404: (),
    405: (),
    408: (),
    409: ("positions", "aheadMs", "maxDriftMs", "maxHlc", "serverHlc", "serverTime"),
    410: ("reason", "snapshot"),
    413: ("limit",),
    415: (),
    422: ("positions", "column"),
    429: ("retryAfter",),
    503: ("reason", "retryAfter"),
}


def assert_refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    body: dict[str, Any] = answer.json()
    assert set(body) - set(MEMBERS[status]) == {"error", "code", "requestId"}
    assert ("retryAfter" in body) == ("retry-after" in answer.headers)
    assert ("reason" in body) == (code == "MUST_REFETCH") or status == 503
    assert body["error"]
    assert body["requestId"] == answer.headers["x-request-id"]
    return body


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def unsigned() -> str:
    return jwt.encode({"sub": "alice", "gw": GATEWAY, "exp": int(time.time()) + 60}, "", algorithm="none")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Basic YWxpY2U6cHc="},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer not.a.token"},
        {"Authorization": "Bearer " + "x" * 5000},
        bearer(token(exp=int(time.time()) - 10)),
        bearer(token(exp=None)),
        bearer(token(exp=str(int(time.time()) + 600))),
        bearer(token(exp=[9999999999])),
        bearer(token(exp=float("inf"))),
        bearer(token(exp=True)),
        bearer(token(exp=1 << 63)),
        bearer(token(exp=10**400)),
        bearer(token(sub=None)),
        bearer(token(gw=None)),
        bearer(token(aud="somebody-else")),
        bearer(token(nbf=int(time.time()) + 600)),
        bearer(unsigned()),
        bearer(jwt.encode({"sub": "alice", "gw": GATEWAY, "exp": 9999999999}, "w" * 40, algorithm="HS256")),
        bearer(jwt.encode({"sub": "alice", "gw": GATEWAY, "exp": 9999999999}, SECRET * 2, algorithm="HS512")),
        bearer(token()[:-3] + "abc"),
    ],
)
def test_no_valid_token(shared_server: Server, headers: dict[str, str]) -> None:
    for method, path in (("POST", PUSH), ("GET", PULL), ("POST", f"/admin/flush/{GATEWAY}")):
        answer = httpx.request(method, shared_server.url + path, headers=headers)
        assert_refused(answer, 401, "AUTH_ERROR")
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("others", ["Bearer not.a.token", f"Bearer {token(sub='bob')}", f"Bearer {token()}", ""])
def test_two_tokens_are_none(shared_server: Server, others: str) -> None:
    """Whatever is in front of the gateway may look at the other one."""
    pair = [("Authorization", f"Bearer {token()}"), ("Authorization", others)]
    for headers in (pair, pair[::-1]):
        answer = httpx.get(shared_server.url + PULL, headers=headers)
        assert_refused(answer, 401, "AUTH_ERROR")


def test_another_gateway_or_role_or_client(shared_server: Server) -> None:
    client = shared_server.client()
    foreign = shared_server.client(gw="gw-2")
    assert_refused(foreign.pull(since="0"), 403, "FORBIDDEN")
    assert_refused(foreign.push(delta()), 403, "FORBIDDEN")
    # A valid token of another gateway does not open that gateway's path here either.
    assert_refused(foreign.http.get("/sync/gw-2/pull?since=0"), 403, "FORBIDDEN")
    assert_refused(client.http.get("/sync/gw-2/pull?since=0"), 403, "FORBIDDEN")
    assert_refused(client.http.get("/sync/GW-1/pull?since=0"), 403, "FORBIDDEN")
    for route in ("flush", "schema", "sync-rules"):
        assert_refused(client.admin(route, {}), 403, "FORBIDDEN")
    assert_refused(client.admin("metrics", method="GET"), 403, "FORBIDDEN")
    assert_refused(shared_server.client(role="root").pull(since="0"), 403, "FORBIDDEN")
    assert_refused(client.pull(since="0", clientId="bob"), 403, "FORBIDDEN")
    assert_refused(client.push(delta(), clientId="bob"), 403, "FORBIDDEN")
    body = assert_refused(client.push(delta(), delta("bob")), 403, "FORBIDDEN")
    assert "deltas[1]" in body["error"]


def other(**changes: Any) -> dict[str, Any]:
    return {**delta(title="A"), **changes}


@pytest.mark.parametrize(
    "bad",
    [
        other(hlc=5),
        other(hlc="0x10"),
        other(hlc=""),
        other(hlc="-1"),
        delta(hlc=0, title="A"),
        other(hlc=" 1"),
        other(hlc=None),
        other(hlc="1" * 400),
        other(op="UPSERT"),
        other(op="DELETE"),
        other(table="no table"),
        other(table=""),
        other(rowId=""),
        other(rowId="r" * 5000),
        other(rowId=7),
        other(columns={}),
        other(columns=[{"column": "a"}]),
        other(columns=[{"column": "a", "value": 1, "extra": 2}]),
        other(columns=[{"column": "a", "value": 1}, {"column": "A", "value": 1}]),
        other(columns=[{"column": "_a", "value": 1}]),
        other(columns=[{"column": "x" * 300, "value": 1}]),
        other(columns=[{"column": "a", "value": "\ud800"}]),
        other(deltaId="0" * 64),
        other(deltaId=delta(title="B")["deltaId"]),
        other(deltaId=other()["deltaId"].upper()),
        other(rowId="another"),
        other(extra=1),
        {},
        None,
        7,
        [],
    ],
)
def test_malformed_deltas_refuse_the_whole_batch(shared_server: Server, bad: Any) -> None:
    client, good = shared_server.client(), delta(row="good-one")
    assert_refused(client.push(good, bad), 400, "VALIDATION_ERROR")
    assert good not in client.pull_all(limit=10_000)[0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"clientId":"alice"}',
        b'{"clientId":"alice","deltas":{}}',
        b'{"clientId":7,"deltas":[]}',
        b'{"clientId":"","deltas":[]}',
        b'{"clientId":"alice","deltas":[],"lastSeenHlc":7}',
        b'{"clientId":"alice","deltas":[],"lastSeenHlc":"x"}',
        b'{"clientId":"alice","deltas":[],"more":1}',
        b"[" * 100_000,
        b'{"clientId":"alice","deltas":[' + b'{"a":' * 50_000,
        b'{"clientId":"alice","deltas":[{"columns":[{"column":"a","value":' + b"[" * 3000,
        b"9" * 100_000,
        json.dumps({"clientId": "alice", "deltas": [delta(a=1)] * 10_001}).encode(),
    ],
)
def test_malformed_bodies(shared_server: Server, body: bytes) -> None:
    answer = shared_server.client().http.post(PUSH, content=body)
    assert_refused(answer, 400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"since": ""},
        {"since": "abc"},
        {"since": "-1"},
        {"since": "0x1"},
        {"since": "1.5"},
        {"since": "9" * 30},
        {"since": "0", "limit": "0"},
        {"since": "0", "limit": "-5"},
        {"since": "0", "limit": "1.5"},
        {"since": "0", "limit": "ten"},
        {"since": "0", "limit": ""},
        {"since": "0", "limit": "9" * 5000},
        {"cursor": ""},
        {"cursor": "%%%"},
        {"cursor": "AAAA"},
        {"cursor": "é" * 10},
    ],
)
def test_malformed_pulls(shared_server: Server, query: dict[str, str]) -> None:
    assert_refused(shared_server.client().pull(**query), 400, "VALIDATION_ERROR")


def test_a_known_id_with_another_operation(shared_server: Server) -> None:
    client, known = shared_server.client(), delta(row="op-change", a=1)
    assert client.push(known).status_code == 200
    body = assert_refused(client.push(delta(), {**known, "op": "INSERT"}), 400, "VALIDATION_ERROR")
    assert "deltas[1]" in body["error"]
    assert_refused(client.push(delta(row="x", b=1), *_both_ops()), 400, "VALIDATION_ERROR")


def _both_ops() -> list[dict[str, Any]]:
    one = delta(row="fresh", a=1)
    return [one, {**one, "op": "INSERT"}]


def test_clock_drift(shared_server: Server) -> None:
    client, good = shared_server.client(), delta(row="not-with-drift")
    body = assert_refused(client.push(good, delta(hlc=CLOCK.now() + (60_000 << 16))), 409, "CLOCK_DRIFT")
    assert "ms ahead (max drift: 5000ms)" in body["error"]
    assert good not in client.pull_all(limit=10_000)[0]
    assert client.push(delta(hlc=CLOCK.now() + (3000 << 16))).status_code == 200


def test_body_limit_counts_the_real_body(tmp_path: Path) -> None:
    with running(tmp_path, "--body-limit", "0.1") as server:
        client = server.client()
        large = json.dumps({"clientId": "alice", "deltas": [delta(text="x" * 200_000)]}).encode()
        assert_refused(client.http.post(PUSH, content=large), 413, "PAYLOAD_TOO_LARGE")
        chunks = (large[start : start + 10_000] for start in range(0, len(large), 10_000))
        assert_refused(client.http.post(PUSH, content=chunks), 413, "PAYLOAD_TOO_LARGE")
        assert client.push(delta(text="x" * 10_000)).status_code == 200
        # A header that promises little does not help: the server reads no more than promised.
        host, port = server.url.removeprefix("http://").split(":")
        raw = http.client.HTTPConnection(host, int(port))
        raw.request("POST", PUSH, body=iter([large]), headers={**bearer(token()), "Content-Length": "10"})
        assert raw.getresponse().status == 400
        raw.close()
        assert_refused(
            client.http.post(PUSH, content=b"x", headers={"Content-Encoding": "gzip"}), 415, "UNSUPPORTED_MEDIA_TYPE"
        )


def test_schemas(server: Server) -> None:
    client, admin = server.client(), server.client("ops", role="admin")
    assert client.push(delta(table="free", anything=1)).status_code == 200
    columns = [
        {"name": "title", "type": "string"},
        {"name": "count", "type": "number"},
        {"name": "done", "type": "boolean"},
        {"name": "tags", "type": "json"},
    ]
    schema = {"table": "todos", "columns": columns}
    assert admin.admin("schema", schema).json() == schema
    assert client.push(delta(title="a", count=1.5, done=False, tags=["x"])).status_code == 200
    assert client.push(delta(title=None, count=None, done=None, tags=None)).status_code == 200
    assert client.push(delta(op="DELETE")).status_code == 200
    for bad in (
        delta(table="free", anything=1),
        delta(unknown=1),
        delta(title=1),
        delta(count="1"),
        delta(count=True),
        delta(done=0),
    ):
        body = assert_refused(client.push(delta(title="ok"), bad), 422, "SCHEMA_ERROR")
        assert "deltas[1]" in body["error"]
    retyped = {"table": "todos", "columns": [{"name": "title", "type": "number"}]}
    assert_refused(admin.admin("schema", retyped), 422, "SCHEMA_ERROR")
    assert_refused(admin.admin("schema", {"table": "Todos", "columns": []}), 422, "SCHEMA_ERROR")
    for malformed in ({}, [], {"table": "t"}, {"table": "t", "columns": [{"name": "a", "type": "date"}]}):
        assert_refused(admin.admin("schema", malformed), 400, "VALIDATION_ERROR")
    assert admin.admin("schema", {"table": "todos", "columns": [*columns, {"name": "new", "type": "json"}]}).is_success
    assert client.push(delta(new={"a": 1})).status_code == 200


def test_table_names_differing_in_case(shared_server: Server) -> None:
    client = shared_server.client()
    assert client.push(delta(table="Orders")).status_code == 200
    assert_refused(client.push(delta(table="ORDERS")), 400, "VALIDATION_ERROR")
    assert_refused(client.push(delta(table="mixed"), delta(table="Mixed")), 400, "VALIDATION_ERROR")
    assert client.push(delta(table="mixed")).status_code == 200


def test_rate_limit_is_per_client(tmp_path: Path) -> None:
    with running(tmp_path, "--rate-limit", "2") as server:
        alice, bob = server.client(), server.client("bob")
        statuses = [alice.pull(since="0").status_code for _ in range(12)]
        assert statuses[:4] == [200] * 4
        limited = alice.pull(since="0")
        assert_refused(limited, 429, "RATE_LIMITED")
        assert int(limited.headers["retry-after"]) >= 1
        assert bob.pull(since="0").status_code == 200


def test_unknown_paths_and_methods(shared_server: Server) -> None:
    client = shared_server.client()
    assert_refused(client.http.get("/nowhere"), 404, "NOT_FOUND")
    assert_refused(client.http.get(PUSH), 405, "METHOD_NOT_ALLOWED")
    assert_refused(client.http.delete(PULL), 405, "METHOD_NOT_ALLOWED")


def old_form(cursor: str) -> str:
    """The cursor as the first version of driftline would have made it."""
    log_id = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).split(b".")[1]
    return base64.urlsafe_b64encode(b"1.%b.0.1" % log_id).decode().rstrip("=")


def test_cursors_of_another_log_or_of_forgotten_times(tmp_path: Path) -> None:
    with running(tmp_path / "one") as server:
        client = server.client()
        client.push(delta(row="1"))
        foreign = client.pull(since="0").json()["cursor"]
        assert_refused(client.pull(cursor=old_form(foreign)), 410, "MUST_REFETCH")
    with running(tmp_path / "two", "--retention-days", "0.000001") as server:
        client = server.client()
        assert assert_refused(client.pull(cursor=foreign), 410, "MUST_REFETCH")["reason"] == "log_replaced"
        begin = client.pull(since="0").json()["cursor"]
        pushed = [delta(row=str(number)) for number in range(3)]
        client.push(*pushed)
        server.client(role="admin").admin("flush")
        wait_until(lambda: client.pull(since="0").status_code != 200)
        # A bare update without the forgotten insert would be a wrong state: since is refused like the cursor.
        for start in ({"since": "0"}, {"since": str(int(pushed[2]["hlc"]) - 1)}, {"cursor": begin}):
            assert assert_refused(client.pull(**start), 410, "MUST_REFETCH")["reason"] == "retention"
        assert_refused(client.push(pushed[0]), 409, "TOO_OLD")
        client.push(delta(row="after"))
        kept = client.pull(since=pushed[2]["hlc"]).json()["deltas"]
        assert [each["rowId"] for each in kept] == ["after"]


def test_a_log_set_back_behind_a_cursor_is_noticed(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        server.client().push(delta(row="1"))
        server.stop()
    copy = shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with running(tmp_path / "data") as server:
        server.client().push(delta(row="2"))
        cursor = server.client().pull(since="0").json()["cursor"]
    with running(copy, "--lake", str(tmp_path / "other")) as server:  # same sequence, another record at it
        server.client().push(delta(row="3"))
        body = assert_refused(server.client().pull(cursor=cursor), 410, "MUST_REFETCH")
        assert body["reason"] == "log_replaced"


def test_request_ids_are_taken_over_when_sane(shared_server: Server) -> None:
    client = shared_server.client()
    assert client.http.get("/health", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert client.http.get("/health", headers={"X-Request-Id": "a b\tc"}).headers["x-request-id"] != "a b\tc"


def test_cors_is_closed_unless_opened(shared_server: Server, tmp_path: Path) -> None:
    origin = {"Origin": "https://app.example"}
    assert "access-control-allow-origin" not in httpx.get(f"{shared_server.url}/health", headers=origin).headers
    with running(tmp_path, "--cors-origin", "https://app.example") as server:
        answer = httpx.get(f"{server.url}/health", headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        other_origin = httpx.get(f"{server.url}/health", headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other_origin.headers


def test_logs_are_json_and_hold_no_secrets(server: Server) -> None:
    server.client().push(delta(a="private text"))
    server.stop()
    request = next(line for line in server.lines if line["event"] == "request")
    assert (request["method"], request["status"], request["clientId"]) == ("POST", 200, "alice")
    assert all(line["event"] != "text" for line in server.lines)
    everything = json.dumps(server.lines)
    for secret in (SECRET, "eyJ", "private text"):
        assert secret not in everything
