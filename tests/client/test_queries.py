"""Queries and subscriptions of a store, against a dictionary of rows that is filtered and sorted in plain Python."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from driftline.client import Change, Store
from driftline.deltas import FILTER_OPS, ColumnDelta, RowDelta
from driftline.errors import DeltaError, InputError, OptionError
from support.gateways import GATEWAY, Server, token

LONG = "x" * 90
VALUES = [
    0,
    1,
    2,
    1.5,
    -3,
    "1",
    "1.5",
    "true",
    "",
    "a",
    "ab",
    "é",
    "😀",
    "\uff5e",
    LONG + "a",
    LONG + "b",
    None,
    True,
    False,
]
VALUES += [[1], {"a": 1}]
EXACT = [0, 2**60, 2**60 + 1, -(2**60) - 1, 7]
IDS = ["1", "2", "10", "a", "😀", "\uff5e"]
TYPES = {"t": {"i": "integer", "d": "decimal(2)"}}
COLUMNS = {"v": VALUES, "w": VALUES, "i": EXACT, "d": [Decimal("0.1"), Decimal("12345678901234567.89"), Decimal(2)]}
WANTED = [*VALUES, *EXACT, *COLUMNS["d"], "1.0", "0.10", "12345678901234567.890", 12345678901234567.89, "1e400", "-2"]

COLUMN = st.sampled_from(sorted(COLUMNS))
WRITE = st.dictionaries(COLUMN, st.none(), min_size=1).flatmap(
    lambda names: st.fixed_dictionaries({name: st.sampled_from(COLUMNS[name]) for name in names})
)
STEP = st.one_of(
    st.tuples(st.sampled_from(["put", "pull", "refused put", "undone"]), st.sampled_from(IDS), WRITE),
    st.tuples(st.sampled_from(["delete", "pulled delete", "refused delete"]), st.sampled_from(IDS), st.just({})),
)


def _filter(op: str) -> st.SearchStrategy[dict[str, Any]]:
    one = st.sampled_from(WANTED)
    many = st.lists(one, max_size=3)
    value = {"in": many, "eq": one | many, "neq": one | many}.get(
        op, one.filter(lambda each: not isinstance(each, list))
    )
    return st.fixed_dictionaries({"column": COLUMN, "op": st.just(op), "value": value})


FILTERS = st.lists(st.sampled_from(FILTER_OPS).flatmap(_filter), max_size=3)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def number(value: Any, *, exact: bool) -> Fraction | None:
    """Of JSON numbers and their texts; columns without an exact type compare doubles."""
    try:
        digits = str(value) if is_number(value) else json.loads(value, parse_float=str, parse_int=str)
        if not isinstance(digits, str) or (isinstance(value, str) and value.startswith('"')):
            return None
        double = float(digits)
    except (TypeError, ValueError):
        return None
    if not exact:
        return Fraction(double) if abs(double) != float("inf") else None
    return Fraction(digits)


def equal(found: Any, wanted: Any, exact: bool) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if isinstance(found, bool):
        return wanted is found or (isinstance(wanted, str) and wanted == str(found).lower())
    if is_number(found):
        other = number(wanted, exact=exact)
        return other is not None and other == number(found, exact=exact)
    if isinstance(found, str):
        if is_number(wanted):
            wanted = int(float(wanted)) if float(wanted).is_integer() else float(wanted)
            wanted = str(wanted)
        return found == wanted
    return type(found) is type(wanted) and found == wanted


def order(found: Any, wanted: Any, exact: bool) -> int | None:
    if is_number(found):
        one, other = number(found, exact=exact), number(wanted, exact=exact)
        return None if one is None or other is None else (one > other) - (one < other)
    if isinstance(found, str) and isinstance(wanted, str):
        units = [text.encode("utf-16-be") for text in (found, wanted)]
        return (units[0] > units[1]) - (units[0] < units[1])
    return None


def passes(row: dict[str, Any], where: list[dict[str, Any]]) -> bool:
    for each in where:
        column, op, wanted = each["column"], each["op"], each["value"]
        if column not in row:
            return False
        exact = column in TYPES["t"] and row[column] is not None
        if op in ("eq", "in", "neq"):
            any_of = any(equal(row[column], one, exact) for one in (wanted if isinstance(wanted, list) else [wanted]))
            if any_of is (op == "neq"):
                return False
            continue
        sign = order(row[column], wanted, exact)
        if sign is None or not {"gt": sign > 0, "lt": sign < 0, "gte": sign >= 0, "lte": sign <= 0}[op]:
            return False
    return True


def rank(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    if isinstance(value, bool):
        return 1, value
    if is_number(value):
        return 2, Fraction(str(value))
    return (3, value.encode("utf-16-be")) if isinstance(value, str) else (4, json.dumps(value))


def by_id(rows: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(rows.items(), key=lambda row: row[0].encode("utf-16-be"))


def wire(column: str, value: Any) -> Any:
    if column == "d":
        return format(value.normalize(), "f")
    return str(value) if isinstance(value, int) and abs(value) > 2**53 else value


class World:
    """A store with indexes and one without, which live the same, and the rows as they should be."""

    def __init__(self) -> None:
        self.stores = [
            Store(":memory:", "a", types=TYPES, indexes={"t": ["w", "v", "i", "d"]}),
            Store(":memory:", "a", types=TYPES),
        ]
        self.rows: dict[str, dict[str, Any]] = {}
        self.hlc = 1 << 60  # a pulled change is newer than all before it, and so is what is written after it

    def step(self, kind: str, row_id: str, columns: dict[str, Any]) -> None:
        after = {name: dict(row) for name, row in self.rows.items()}
        if "delete" in kind:
            after.pop(row_id, None)
        else:
            after.setdefault(row_id, {}).update(columns)
        for store in self.stores:
            if "pull" in kind:
                self.pull(store, row_id, columns)
                continue
            if kind == "undone":
                with pytest.raises(ZeroDivisionError):
                    self.write_and_fail(store, row_id)
                continue
            last = store.pending
            store.delete("t", row_id) if "delete" in kind else store.put("t", row_id, columns)
            if "refused" in kind and store.pending > last:
                store.reject(store.queued(10_000)[-1][0], "FORBIDDEN", "refused")
        if "refused" not in kind and kind != "undone":
            self.rows = after
        self.hlc += 1 << 30

    def write_and_fail(self, store: Store, row_id: str) -> None:
        with store.writing(), store._changing([("t", row_id)]):
            store._enqueue("t", row_id, None, {"v": "never"})
            raise ZeroDivisionError

    def pull(self, store: Store, row_id: str, columns: dict[str, Any]) -> None:
        op = "UPDATE" if columns else "DELETE"
        entries = [ColumnDelta(name, wire(name, value)) for name, value in columns.items()]
        made = RowDelta.make(op=op, table="t", row_id=row_id, client_id="b", columns=entries, hlc=self.hlc)
        assert store.take([made], str(self.hlc), self.hlc, after=store.cursor) is not None


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=25), st.lists(FILTERS, min_size=4, max_size=8), COLUMN, st.data())
def test_queries_and_subscriptions_are_what_plain_python_finds(
    steps: list[Any], filters: list[list[dict[str, Any]]], column: str, data: st.DataObject
) -> None:
    world = World()
    mirror: dict[str, Any] = {}
    calls: list[list[Change]] = []

    def hear(changes: list[Change]) -> None:
        calls.append(changes)
        for change in changes:
            mirror.pop(change.row_id, None)
            if change.columns is not None:
                mirror[change.row_id] = change.columns

    world.stores[0].subscribe("t", hear, where=filters[0])
    for step in steps:
        calls.clear()
        world.step(*step)
        assert mirror == {row_id: row for row_id, row in world.rows.items() if passes(row, filters[0])}
        assert len(calls) <= (2 if step[0].startswith("refused") else 1)
    each_op = [[{"column": column, "op": op, "value": data.draw(_filter(op))["value"]}] for op in FILTER_OPS]
    limit, descending = data.draw(st.none() | st.integers(0, 4)), data.draw(st.booleans())
    for where in [*filters, *each_op]:
        found = [(row_id, row) for row_id, row in by_id(world.rows) if passes(row, where)]
        ordered = sorted(found, key=lambda row: rank(row[1].get(column)), reverse=descending)
        for store in world.stores:
            assert repr(list(store.query("t", where).items())) == repr([(key, in_order(row)) for key, row in found])
            assert list(store.query("t", where, limit=limit)) == [row_id for row_id, _ in found[:limit]]
            asked = store.query("t", where, order_by=column, descending=descending, limit=limit)
            assert list(asked) == [row_id for row_id, _ in ordered[:limit]]


def in_order(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in sorted(row)}


def test_what_no_query_means_is_refused() -> None:
    store = Store(":memory:", "a")
    good = {"column": "v", "op": "eq", "value": 1}
    refused: list[Any] = [
        [{**good, "op": "like"}],
        [{**good, "more": 1}],
        [{"column": "v", "op": "eq"}],
        [{**good, "column": "_v"}],
        [{**good, "op": "in"}],
        [{**good, "op": "lt", "value": [1]}],
        [{**good, "value": float("nan")}],
        [{**good, "value": Decimal("inf")}],
        [{**good, "value": object()}],
        [("v", "eq", 1)],
        good,
        "v",
    ]
    for where in refused:
        with pytest.raises(DeltaError) as error:
            store.query("t", where)
        assert "\n" not in str(error.value)
        with pytest.raises(DeltaError):
            store.subscribe("t", print, where=where)
    with pytest.raises(DeltaError, match="op is one of eq, neq, in, gt, lt, gte, lte, not 'like'"):
        store.query("t", refused[0])
    for action in (lambda: store.query("no table"), lambda: store.query("t", order_by="_x")):
        with pytest.raises(DeltaError):
            action()
    for limit in (-1, 1.5, True):
        with pytest.raises(OptionError, match="limit is a number of rows"):
            store.query("t", limit=limit)  # type: ignore[arg-type]
    with pytest.raises(DeltaError):
        Store(":memory:", "a", indexes={"t": ["_v"]})
    assert store.query("t", [good]) == {}


def test_an_index_reads_the_rows_that_it_finds_and_no_others() -> None:
    store = Store(":memory:", "a", indexes={"t": ["n", "kind"]})
    for number_ in range(300):
        store.put("t", str(number_), {"n": number_, "kind": f"k{number_ % 100}"})
    read: list[Any] = []
    state = store._state
    store._state = lambda key: (read.append(key), state(key))[1]  # type: ignore[method-assign]
    within = [{"column": "n", "op": "gte", "value": 100}, {"column": "n", "op": "lt", "value": 105}]
    assert list(store.query("t", within)) == ["100", "101", "102", "103", "104"]
    assert len(read) == 6  # and the row at the open end
    read.clear()
    assert list(store.query("t", [{"column": "kind", "op": "eq", "value": "k7"}, *within])) == []
    assert len(read) == 3


def test_indexes_stay_in_the_file_and_are_made_for_stores_of_before(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with_rows = Store(path, "a")
    with_rows.put("t", "1", {"v": "x"})
    with_rows.close()
    before = sqlite3.connect(path)  # as the version before left it
    before.executescript("DROP TABLE indexed; PRAGMA user_version = 1")
    before.close()
    where = [{"column": "v", "op": "eq", "value": "x"}]
    indexed = Store(path, "a", indexes={"t": ["v", "v"]})
    assert indexed.query("t", where) == {"1": {"v": "x"}}
    indexed.close()
    again = Store(path, "a")  # names no indexes: those of the file are used and kept up
    again.put("t", "2", {"v": "x"})
    assert (again._indexes(), list(again.query("t", where))) == ({"t": ["v"]}, ["1", "2"])
    again.close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 3")
    newer.close()
    with pytest.raises(InputError, match="format 3; format 2 is understood"):
        Store(path, "a")


def test_what_a_function_raises_is_reported_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(":memory:", "a", url="http://127.0.0.1:9", gateway=GATEWAY, token="t")
    reported: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: reported.append((kind, str(error))))
    told: list[list[Change]] = []

    def wrong(changes: list[Change]) -> None:
        changes[0].columns["v"].append("its own copy")  # type: ignore[index,union-attr]
        store.sync()

    def answer(changes: list[Change]) -> None:
        told.append(changes)
        if changes[0].row_id == "1":
            store.put("t", "2", {"v": []})  # told when this call is over
            assert len(told) == 1

    first = store.subscribe("t", wrong)
    store.subscribe("t", answer)
    store.put("t", "1", {"v": []})
    assert [kind for kind, _ in reported] == [OptionError, OptionError]
    assert "cannot sync" in reported[0][1]
    assert told == [[Change("t", "1", {"v": []})], [Change("t", "2", {"v": []})]]
    first.close()
    store.put("t", "3", {"v": []})
    assert (len(reported), len(told), store.pending) == (2, 3, 3)


def test_threads_hear_the_last_state_last() -> None:
    store = Store(":memory:", "a")
    seen: list[Any] = []
    store.subscribe("t", lambda changes: seen.extend(change.columns for change in changes), row_id="1")

    def write(name: str) -> None:
        for number_ in range(50):
            store.put("t", "1", {name: number_})
            store.put("t", "2", {name: number_})

    threads = [threading.Thread(target=write, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 150
    assert seen[-1] == store.get("t", "1") == dict.fromkeys("xyz", 49)


def test_pulls_and_refusals_of_a_gateway_are_told_once_a_commit(server: Server) -> None:
    schema = {"table": "todos", "columns": [{"name": "n", "type": "number"}]}
    assert server.client("ops", role="admin").admin("schema", schema).is_success
    one, two = (
        Store(":memory:", name, url=server.url, gateway=GATEWAY, token=token(name), indexes={"todos": ["n"]})
        for name in "ab"
    )
    told: list[list[Change]] = []
    watched = one.subscribe("todos", told.append, where=[{"column": "n", "op": "gt", "value": 0}])
    one.sync()
    for number_ in range(3):
        two.put("todos", str(number_), {"n": number_})
    two.sync()
    one.put("todos", "1", {"n": 5})
    one.put("todos", "9", {"n": 1})
    one.put("todos", "9", {"n": "not a number"})
    told.clear()
    one.sync()
    assert told == [[Change("todos", "9", {"n": 1})], [Change("todos", "2", {"n": 2})]]
    assert list(one.query("todos", [{"column": "n", "op": "gt", "value": 1}])) == ["1", "2"]
    watched.close()
    two.sync()
    two.delete("todos", "1")
    two.sync()
    one.sync()
    assert (len(told), list(one.query("todos", [{"column": "n", "op": "gt", "value": 1}]))) == (2, ["2"])
