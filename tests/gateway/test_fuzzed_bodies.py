"""Whatever is sent, the answer is a clear refusal: never a 5xx, never a dead worker."""

from __future__ import annotations

import json
from typing import Any

import httpx
from hypothesis import given, settings, strategies as st

from support.gateways import GATEWAY, Server, delta, token

PUSH = f"/sync/{GATEWAY}/push"

anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(10**40), 10**40),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
        st.text(min_size=3000, max_size=3000),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)
members = st.sampled_from(["op", "table", "rowId", "clientId", "columns", "hlc", "deltaId"])


@st.composite
def damaged_bodies(draw: st.DrawFn) -> bytes:
    """A good push with something in it replaced, removed, added or cut."""
    good: dict[str, Any] = delta(row=draw(st.text(max_size=4)) or "r", a=1, b={"c": [None]})
    damage = draw(st.integers(0, 4))
    if damage == 0:
        good[draw(members)] = draw(anything)
    elif damage == 1:
        del good[draw(members)]
    elif damage == 2:
        good["columns"] = draw(st.lists(anything, max_size=3))
    elif damage == 3:
        good["columns"] = [{"column": draw(anything), "value": draw(anything)}]
    body: Any = {"clientId": "alice", "deltas": [good]}
    if damage == 4:
        body[draw(st.sampled_from(["clientId", "deltas", "lastSeenHlc", "more"]))] = draw(anything)
    data = json.dumps(body).encode()
    position = draw(st.integers(0, len(data)))
    return draw(st.sampled_from([data, data, data, data[:position], data[:position] + b"\xff" + data[position:]]))


def refused_or_harmless(answer: httpx.Response) -> None:
    assert answer.status_code in (200, 400, 403, 409, 413, 422), answer.text
    if answer.status_code != 200:
        assert set(answer.json()) - {"positions", "column"} == {"error", "code", "requestId"}
        assert len(answer.json()["error"]) < 500


@settings(max_examples=150)
@given(body=damaged_bodies())
def test_damaged_pushes(shared_server: Server, body: bytes) -> None:
    refused_or_harmless(client_of(shared_server).post(PUSH, content=body))


@settings(max_examples=60)
@given(body=st.one_of(st.binary(max_size=200), anything.map(lambda value: json.dumps(value).encode())))
def test_bodies_of_noise(shared_server: Server, body: bytes) -> None:
    client = client_of(shared_server)
    assert client.post(PUSH, content=body).status_code in (400, 403)
    for route in ("schema", "sync-rules"):
        assert client.post(f"/admin/{route}/{GATEWAY}", content=body).status_code == 400


@settings(max_examples=80)
@given(query=st.dictionaries(st.sampled_from(["since", "cursor", "limit", "clientId"]), st.text(max_size=30)))
def test_queries_of_noise(shared_server: Server, query: dict[str, str]) -> None:
    answer = client_of(shared_server).get(f"/sync/{GATEWAY}/pull", params=query)
    assert answer.status_code in (200, 400, 403, 410), answer.text


@settings(max_examples=20)
@given(header=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60))
def test_headers_of_noise(shared_server: Server, header: str) -> None:
    for value in (f"x{header}", f"Bearer x{header}", f"Bearer a.{header}.c"):
        answer = httpx.get(f"{shared_server.url}/sync/{GATEWAY}/pull?since=0", headers={"Authorization": value})
        assert answer.status_code == 401


_clients: dict[str, httpx.Client] = {}


def client_of(server: Server) -> httpx.Client:
    if server.url not in _clients:
        headers = {"Authorization": f"Bearer {token(role='admin')}"}
        _clients[server.url] = httpx.Client(base_url=server.url, headers=headers)
    return _clients[server.url]


def test_the_server_is_still_well(shared_server: Server) -> None:
    assert shared_server.client().push(delta()).status_code == 200
    assert shared_server.process.poll() is None
    assert not [line for line in shared_server.lines if line["level"] == "error"]
