"""Rules on columns with exact numbers (`integer`, `decimal(S)`) compare by value; the judge computes with fractions."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from driftline.core import exact_loads
from driftline.deltas import ColumnDelta, RowDelta, TableSchema, exact_wire, make_hlc, merge, physical_ms
from driftline.errors import GatewayError
from driftline.gateway._auth import Caller, KeySet, TokenPolicy, verify
from driftline.gateway._lake.flush import note_registered
from driftline.gateway._log.log import Appended, DeltaLog
from driftline.gateway._log.sqlite import SqliteLog
from driftline.gateway._sync.pull import LogReader
from driftline.gateway._sync.push import entry_of, exact_types, read_schemas
from driftline.gateway._sync.row_index import RowIndex
from driftline.gateway._sync.rules import RowRules, SyncRules, read_stored_rules
from support.gateways import GATEWAY, delta as wire, running
from support.postgres import postgres_server

ORDERS = {"gt": gt, "lt": lt, "gte": ge, "lte": le}
OPS = ("eq", "neq", "in", *ORDERS)
INTEGERS = [0, 7, -7, *(sign * (1 << power) + near for sign in (1, -1) for power in (53, 60) for near in (-1, 0, 1))]
DECIMALS = ["0", "7", "-7", "0.1", "0.10000000000000001", "1234567890123456.1", "1234567890123456.12", "-0.000001"]
NOW = make_hlc(physical_ms() - 60_000)


def holds(op: str, found: Fraction, wanted: Any) -> bool:
    """The judge; `wanted` is a fraction, a list of fractions, or None where no number is wanted."""
    several = wanted if isinstance(wanted, list) else [wanted]
    if op in ORDERS:
        return isinstance(wanted, Fraction) and ORDERS[op](found, wanted)
    return (found in several) != (op == "neq")


@st.composite
def tokens(draw: st.DrawFn) -> str:
    """A number of JSON in one of its spellings."""
    text = str(draw(st.sampled_from([*map(str, INTEGERS), *DECIMALS])))
    spelled = draw(st.sampled_from(["plain", "zeros", "exponent"]))
    if spelled == "zeros":
        return f"{text}00" if "." in text else f"{text}.00"
    return f"{text}e0" if spelled == "exponent" else text


def ruled(op: str, value: str, kind: str | None = None) -> SyncRules:
    """Rules with one filter, whose value is given as JSON text."""
    item = f'{{"column":"c","op":"{op}","value":{value}}}'
    document = f'{{"version":1,"buckets":[{{"name":"b","tables":["t"],"filters":[{item}]}}]}}'
    return read_stored_rules(document.encode(), {"t": {"c": kind}} if kind else {})


@settings(max_examples=400)
@given(
    st.sampled_from(["integer", "decimal(18)", "decimal"]),
    st.sampled_from(OPS),
    st.data(),
    st.sampled_from(["number", "text", "claim", "claim of text", "parameter", "list", "word"]),
)
def check_filter(counted: set[tuple[str, bool]], kind: str, op: str, data: st.DataObject, way: str) -> None:
    value = data.draw(st.sampled_from(INTEGERS if kind == "integer" else DECIMALS))
    token = data.draw(tokens())
    wanted: Any = Fraction(token)
    raw, claims, parameters = f'"{token}"', {}, {}
    if way == "number":
        raw = token
    elif way.startswith("claim"):
        raw, claims = '"jwt:x"', {"x": exact_loads(token) if way == "claim" else token}
    elif way == "parameter":
        raw, parameters = '"param:x"', {"x": token}
    elif way == "list" and op not in ORDERS:
        other = data.draw(tokens())
        raw, wanted = f'["{token}",{other}]', [Fraction(token), Fraction(other)]
    elif way == "word":
        raw, wanted = '"many"', None
    if op == "in" and raw[0] not in '["':
        raw = f"[{raw}]"
    rules = ruled(op, raw, kind)
    found = rules.sees("t", {"c": exact_wire(kind, value)}, claims, parameters)
    assert found == holds(op, Fraction(value), wanted)
    assert not rules.sees("t", {}, claims, parameters)
    counted.add((op, found))


def test_filters_compare_by_value() -> None:
    counted: set[tuple[str, bool]] = set()
    check_filter(counted)
    assert counted == {(op, found) for op in OPS for found in (True, False)}


def test_what_is_no_number_of_the_type_is_compared_as_before() -> None:
    """A value from before the column had its type, and null."""
    assert ruled("eq", '"abc"', "integer").sees("t", {"c": "abc"}, {})
    assert ruled("eq", "1.5", "integer").sees("t", {"c": 1.5}, {})
    assert ruled("eq", "null", "integer").sees("t", {"c": None}, {})
    assert not ruled("eq", "0", "integer").sees("t", {"c": None}, {})
    huge = ruled("eq", '"1e99999999999999999999"', "integer")
    assert not huge.sees("t", {"c": 1}, {})


def test_the_digest_of_a_view_knows_digits_and_types() -> None:
    """Two claims that one double holds are two views, and so is a column before and after it has its type."""
    plain, typed = ruled("in", '"jwt:c"'), ruled("in", '"jwt:c"', "integer")
    texts = ("9007199254740992", "9007199254740993", "0.1", "0.10000000000000001")
    claims = [{"c": exact_loads(text)} for text in texts]
    claims += [{"c": [each["c"]]} for each in claims]
    for rules in (plain, typed):
        assert len({rules.view_digest(each) for each in claims}) == len(claims)
    assert plain.view_digest({"c": 1}) != typed.view_digest({"c": 1})
    elsewhere = msgspec.structs.replace(plain, types={"t": {"d": "integer"}, "u": {"c": "integer"}})
    assert plain.view_digest({"c": 1}) == elsewhere.view_digest({"c": 1})


def test_numbers_beyond_every_exponent_are_refused_or_match_nothing() -> None:
    huge = "1e99999999999999999999"
    with pytest.raises(GatewayError, match="not a set of sync rules"):
        ruled("eq", huge, "integer")
    assert not ruled("lt", f'"{huge}"', "integer").sees("t", {"c": 1}, {})
    key, claims = "k" * 32, b'{"sub":"a","gw":"gw","exp":4102444800,"x":%b}'
    keys, signed = KeySet((key,), ()), partial(jwt.api_jws.encode, key=key)
    assert verify(signed(claims % b"1e400"), keys, TokenPolicy())["x"] > 10**300
    with pytest.raises(GatewayError) as refused:
        verify(signed(claims % huge.encode()), keys, TokenPolicy())
    assert refused.value.code == "AUTH_ERROR"
    lone = ruled("eq", '"jwt:x"')
    assert lone.view_digest({"x": "\ud800"}) != lone.view_digest({"x": "\ud801"})


# Reads and writes, on both logs.

SCHEMA = TableSchema("t", [{"name": "n", "type": "integer"}, {"name": "d", "type": "decimal(18)"}])
FILTERS = [{"column": "n", "op": "eq", "value": "jwt:n"}, {"column": "d", "op": "lte", "value": "jwt:limit"}]
RULES = {"version": 1, "buckets": [{"name": "b", "tables": ["t"], "filters": FILTERS}]}
PEOPLE: dict[str, dict[str, Any]] = {
    "ann": {"sub": "ann", "n": (1 << 53) + 1, "limit": "0.10000000000000001"},
    "bob": {"sub": "bob", "n": str(1 << 53), "limit": 0.1},
    "eve": {"sub": "eve", "n": 7, "limit": 1e20},
}


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres_server() as address:
        yield address


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def opened(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    if request.param == "sqlite":
        return partial(opened_log, None)
    return partial(opened_log, request.getfixturevalue("database"))


@contextmanager
def opened_log(address: str | None, folder: str) -> Iterator[DeltaLog]:
    from driftline.gateway._log.postgres import PostgresLog

    log = SqliteLog(Path(folder) / "log.sqlite") if address is None else PostgresLog(address, secrets.token_hex(8))
    log.judge = RowRules()
    note_registered(log, SCHEMA)
    log.change_document("rules", lambda _: json.dumps(RULES).encode(), "config", "rules")
    try:
        yield log
    finally:
        log.close()


def readable(who: str, n: int | None, d: str | None) -> bool:
    claims = PEOPLE[who]
    return n is not None and d is not None and n == int(claims["n"]) and Fraction(d) <= Fraction(str(claims["limit"]))


rows = st.tuples(st.sampled_from([7, 1 << 53, (1 << 53) + 1, None]), st.sampled_from([*DECIMALS, None]))
writes = st.tuples(st.sampled_from([*PEOPLE]), st.sampled_from("xy"), rows)


def test_reads_and_writes(opened: Callable[[str], Any]) -> None:
    """Random inserts and updates: what is accepted, and what everybody pulls, against the judge."""
    answers: Counter[str] = Counter()

    @settings(max_examples=25)
    @given(st.lists(writes, min_size=1, max_size=8))
    def run(steps: list[Any]) -> None:
        with tempfile.TemporaryDirectory() as folder, opened(folder) as log:
            rules = read_stored_rules(json.dumps(RULES).encode(), exact_types(read_schemas(log.document("schemas"))[0]))
            assert rules.types == {"t": {"n": "integer", "d": "decimal(18)"}}
            index = RowIndex(log)
            index.catch_up(rules, log.head().rules)
            held: dict[str, tuple[Any, Any]] = {}
            for number, (who, row, (n, d)) in enumerate(steps):
                columns = [
                    ColumnDelta("n", None if n is None else exact_wire("integer", n)),
                    ColumnDelta("d", None if d is None else d),
                ]
                op: Any = "UPDATE" if row in held else "INSERT"
                made = RowDelta.make(op=op, table="t", row_id=row, client_id=who, columns=columns, hlc=NOW + number)
                [result] = log.append([[entry_of(made)]], [PEOPLE[who]])
                allowed = readable(who, n, d) and (row not in held or readable(who, *held[row]))
                if allowed:
                    assert isinstance(result, Appended), result
                    held[row] = (n, d)
                else:
                    assert isinstance(result, GatewayError)
                    assert result.reason == "write_rules"
                answers["accepted" if allowed else "refused"] += 1
            for who in PEOPLE:
                reader = LogReader(log, index, "gw", lambda: (rules, log.head().rules))
                page = reader.page(Caller(who, "gw", "client", PEOPLE[who]), {"since": "0", "limit": "1000"})
                state = merge(RowDelta.from_wire(json.loads(body)) for body in page.deltas)
                shown = {key[1] for key, each in state.items() if each.live}
                assert shown == {row for row, values in held.items() if readable(who, *values)}
                answers["shown" if shown else "hidden"] += 1

    run()
    assert set(answers) == {"accepted", "refused", "shown", "hidden"}


@pytest.mark.servers
def test_over_http(tmp_path: Path) -> None:
    """Pull, snapshot and push agree; a cursor of before the column had its type is refused, by its view."""
    with running(tmp_path, "--rate-limit", "0", "--flush-seconds", "3600", "--no-compact") as server:
        admin = server.client("ops", role="admin")
        assert admin.admin("sync-rules", RULES).status_code == 200
        ann, bob = (
            server.client(who, **{k: v for k, v in PEOPLE[who].items() if k != "sub"}) for who in ("ann", "bob")
        )
        before = ann.pull(since="0").json()["cursor"]
        assert admin.admin("schema", SCHEMA.to_wire()).status_code == 200
        gone = ann.pull(cursor=before)
        assert (gone.status_code, gone.json()["reason"]) == (410, "view_changed")
        own = wire("ann", "1", "INSERT", table="t", n="9007199254740993", d="0.10000000000000001")
        other = wire("bob", "2", "INSERT", table="t", n="9007199254740992", d="0.1")
        assert ann.push(own).status_code == 200
        assert bob.push(other).status_code == 200
        for n, d in (("9007199254740992", "0.1"), ("9007199254740993", "0.10000000000000002")):
            refused = ann.push(wire("ann", "3", "INSERT", table="t", n=n, d=d))
            assert (refused.status_code, refused.json()["reason"]) == (403, "write_rules")
        for _ in range(2):  # out of the log's tail, then out of the lake
            for client, row in ((ann, "1"), (bob, "2")):
                assert [each["rowId"] for each in client.pull(since="0").json()["deltas"]] == [row]
                lines = client.http.get(f"/sync/{GATEWAY}/snapshot").text.splitlines()
                assert [json.loads(line)["rowId"] for line in lines[1:-1]] == [row]
            assert admin.admin("flush").status_code == 200
            assert admin.push(wire("ops", "9", "INSERT", table="t", n=1)).status_code == 200
