"""Clients that begin with a snapshot, at any time, end where one ends that read every delta.

Everything of a gateway but its HTTP: a log, a lake, flushes, compactions, retention, rules, deltas from elsewhere; and
stores as applications have them.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from driftline.client import Store
from driftline.deltas import ColumnDelta, RowDelta, TableSchema
from driftline.errors import DriftlineError, GatewayError
from driftline.gateway._auth import Caller
from driftline.gateway._lake.flush import Flusher, LakeTie, copy_facts, import_foreign, load_configuration
from driftline.gateway._lake.snapshot import PageSigner, Request, Snapshots, page_keys
from driftline.gateway._log.log import Appended, DeltaLog
from driftline.gateway._log.sqlite import SqliteLog
from driftline.gateway._sync.pull import LogReader
from driftline.gateway._sync.push import check_horizons, parse_push
from driftline.gateway._sync.row_index import RowIndex
from driftline.gateway._sync.rules import NO_RULES, SyncRules
from driftline.lake import compact, register, set_horizon
from driftline.lake._flush_target import FlushTarget
from driftline.lake._read.state import all_deltas, state_rows
from driftline.lake._store.flush import flush_content
from support.crash_world import replayed
from support.postgres import postgres_server

GATEWAY = "gw-1"
BASE = 1 << 40  # fixed, because ids (and so ties) depend on it
SCHEMA = {"table": "todos", "columns": [{"name": "team", "type": "string"}, {"name": "x", "type": "number"}]}
RULES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "by team": {"column": "team", "op": "in", "value": "jwt:teams"},
    "small": {"column": "x", "op": "lt", "value": 2},
}
CLAIMS: list[list[str]] = [["red"], ["red", "blue"], []]

changes = st.tuples(
    st.sampled_from(["INSERT", "UPDATE", "UPDATE", "UPDATE", "DELETE"]),
    st.sampled_from(["1", "2", "3"]),
    st.integers(1, 8),  # few timestamps, so that late arrivals and ties are common
    st.fixed_dictionaries({}, optional={"team": st.sampled_from(["red", "blue"]), "x": st.integers(0, 3)}),
)
clients = st.integers(0, 1)
actions = st.one_of(
    st.tuples(st.just("push"), changes),
    st.tuples(st.just("push"), changes),
    st.tuples(st.just("push"), changes),
    st.tuples(st.just("pull"), clients),
    st.tuples(st.just("pull"), clients),
    st.tuples(st.just("begin"), clients),
    st.tuples(st.just("claims"), clients, st.sampled_from(CLAIMS)),
    st.tuples(st.just("rules"), st.sampled_from(list(RULES))),
    st.tuples(st.just("flush")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("register")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("prune"), st.integers(1, 4)),
    st.tuples(st.just("horizon"), st.integers(2, 8)),
    st.tuples(st.just("foreign"), changes),
)


class Gateway:
    """A gateway without its server."""

    def __init__(self, folder: Path, log: DeltaLog) -> None:
        self.log = log
        self.store = FlushTarget(str(folder / "lake"))
        self.flusher = Flusher(LakeTie(self.log, self.store, GATEWAY, run="1"))
        self.index = RowIndex(self.log)
        self.reader = LogReader(self.log, self.index, GATEWAY, self.rules)
        self.snapshots = Snapshots(self.log, self.store, folder / "snapshots")
        self.accepted: list[dict[str, Any]] = []
        self.filter: dict[str, Any] | None = None

    def rules(self) -> tuple[SyncRules | None, int]:
        configuration = load_configuration(self.log)
        return configuration.rules, configuration.rules_number

    def push(self, change: Any) -> None:
        made = made_of(change, "a")
        push = parse_push(json.dumps({"clientId": "a", "deltas": [made.to_wire()]}).encode())
        with suppress_refusals() as refused:
            check_horizons(
                push, load_configuration(self.log).floors, lambda entry: self.log.has(entry.hlc, entry.delta_id)
            )
        if refused:
            return
        [result] = self.log.append([push.entries])
        # Refused: older than what is forgotten, or a DELETE with the id of an INSERT without columns.
        self.accepted += [made.to_wire()] if isinstance(result, Appended) else []

    def foreign(self, change: Any) -> None:
        """Another way into the lake; a DELETE with the id of an INSERT without columns is refused there too."""
        made = made_of(change, "b")
        with suppress_refusals("VALIDATION_ERROR") as refused:
            name = f"{made.op}-{made.delta_id[:16]}"  # as of a file: what it holds names it
            flush_content(self.store.lake, "todos", [made], "other", f"other:{name}", name)
        assert import_foreign(self.log, self.store)[1] == []
        self.accepted += [] if refused else [made.to_wire()]

    def flush(self) -> None:
        self.flusher.flush()

    def register(self) -> None:
        register(self.store.lake, TableSchema.from_wire(SCHEMA))

    def compact(self) -> None:
        if any(schema for schema, _ in self.store.facts().values()):
            compact(self.store.lake, "todos")

    def horizon(self, timestamp: int) -> None:
        """History before it goes for good, as an operator says; what has arrived is in the lake before."""
        self.flush()
        if any(schema for schema, _ in self.store.facts().values()):
            with suppress_refusals():
                set_horizon(self.store.lake, "todos", BASE + timestamp)
        copy_facts(self.log, self.store)

    def prune(self, count: int) -> None:
        """As a server forgets: rows are kept first, and only what the lake has goes."""
        rules, number = self.rules()
        self.index.catch_up(rules or NO_RULES, number)
        self.log.prune(min(self.log.head().pruned + count, self.log.head().flushed))

    def change_rules(self, name: str) -> None:
        self.filter = RULES[name]
        bucket = {"name": "b", "tables": ["todos"], "filters": [self.filter]}
        body = None if self.filter is None else json.dumps({"version": 1, "buckets": [bucket]}).encode()
        self.log.change_document("rules", lambda _: body, "config", "rules")

    def expected(self, teams: list[str]) -> dict[str, dict[str, Any]]:
        """The rows that a caller should have: replayed, then filtered, both by the bare rule."""
        rows = replayed(self.accepted, "todos")
        return {row: columns for row, columns in rows.items() if self._is_seen(columns, teams)}

    def _is_seen(self, columns: Mapping[str, Any], teams: list[str]) -> bool:
        if self.filter is None:
            return True
        if self.filter["column"] == "team":
            return columns.get("team") in teams
        return "x" in columns and columns["x"] < 2


class Replica:
    """A store, fed by hand instead of over HTTP."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        self.gateway = gateway
        self.store = Store(":memory:", name)
        self.teams = CLAIMS[0]

    @property
    def caller(self) -> Caller:
        return Caller("c", GATEWAY, claims={"teams": self.teams})

    def begin(self) -> None:
        self.store.begin_snapshot()
        following, cursor = None, ""
        while True:
            rules, number = self.gateway.rules()
            signer = PageSigner(page_keys(self.gateway.log), GATEWAY, self.caller.client_id)
            token = None if following is None else signer.read(following)
            request = Request(token, signer, 2, rules, number, self.caller.claims, {})
            prepared = replace(request, page=self.gateway.snapshots.prepare(request))
            lines = [json.loads(line) for line in self.gateway.snapshots.page(prepared).splitlines()]
            self.store.add_to_snapshot(lines[1:-1])
            following, cursor = lines[-1]["end"]["next"], lines[-1]["end"]["cursor"]
            if following is None:
                break
        self.store.end_snapshot(cursor, 0)

    def pull(self) -> None:
        """As clients do: from the cursor, and anew where that is refused."""
        try:
            self._pull()
        except GatewayError as error:
            if error.code != "MUST_REFETCH":
                raise
            self.begin()
            self._pull()

    def _pull(self) -> None:
        has_more = True
        while has_more:
            after = self.store.cursor
            start = {"since": "0"} if after is None else {"cursor": after}
            page = self.gateway.reader.page(self.caller, {"limit": "2", **start})
            deltas = [RowDelta.from_wire(json.loads(body)) for body in page.deltas]
            assert self.store.take(deltas, page.cursor.encode(), 0, after=after) is not None
            has_more = page.has_more


@contextmanager
def suppress_refusals(*codes: str) -> Iterator[list[str]]:
    """Whether something was refused because it lies before the horizon, there is nothing to keep yet, or for a code."""
    refused: list[str] = []
    try:
        yield refused
    except DriftlineError as error:
        if error.code not in ("TOO_OLD", "no_snapshot", *codes):
            raise
        refused.append(error.code)


def made_of(change: Any, client: str) -> RowDelta:
    op, row, timestamp, columns = change
    entries = [] if op == "DELETE" else [ColumnDelta(name, value) for name, value in columns.items()]
    return RowDelta.make(op=op, table="todos", row_id=row, client_id=client, columns=entries, hlc=BASE + timestamp)


def run(steps: list[Any], open_log: Callable[[Path], DeltaLog] = SqliteLog) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(Path(folder), open_log(Path(folder) / "log"))
        replicas = [Replica(gateway, "one"), Replica(gateway, "two")]
        for action, *more in steps:
            match action:
                case "pull":
                    replicas[more[0]].pull()
                case "begin":
                    replicas[more[0]].begin()
                case "claims":
                    replicas[more[0]].teams = more[1]
                case "rules":
                    gateway.change_rules(more[0])
                case _:
                    getattr(gateway, action)(*more)
        late = Replica(gateway, "late")
        late.begin()
        for replica in (*replicas, late):
            replica.pull()
            assert replica.store.rows("todos") == gateway.expected(replica.teams)
        gateway.log.close()


def test_what_reaches_the_lake_below_the_forgotten_is_pulled_too() -> None:
    """A load of an older day comes to the lake after the log has forgotten newer deltas."""
    newer, older = ("INSERT", "1", 5, {"x": 1}), ("INSERT", "2", 3, {"x": 1})
    run([("push", newer), ("pull", 0), ("flush",), ("prune", 1), ("foreign", older)])


def test_a_horizon_takes_tombstones_and_nobody_sees_the_dead_again() -> None:
    born, dead = ("INSERT", "1", 2, {"x": 1}), ("DELETE", "1", 3, {})
    steps = [("register",), ("push", born), ("pull", 0), ("push", dead), ("push", ("INSERT", "2", 7, {"x": 1}))]
    run([*steps, ("flush",), ("prune", 3), ("horizon", 6), ("push", born), ("foreign", ("UPDATE", "1", 4, {"x": 2}))])


@pytest.mark.parametrize("way", ["foreign", "push"])
@pytest.mark.parametrize("before", [[], [("register",)]], ids=["envelopes", "parquet"])
@pytest.mark.parametrize("ops", [("INSERT", "DELETE"), ("DELETE", "INSERT"), ("UPDATE", "DELETE")])
def test_an_id_has_one_operation(way: str, before: list[Any], ops: tuple[str, str]) -> None:
    """Deltas without columns share their id whatever they do: the second one is refused, wherever it comes in."""
    first, second = ((way, (op, "1", 1, {})) for op in ops)
    run([*before, first, second])
    run([*before, first, ("flush",), ("begin", 0), second, ("flush",), ("pull", 0)])


def test_an_import_names_what_the_log_knows_with_another_operation(tmp_path: Path) -> None:
    """A delta is on its way from the log while the lake gets its twin: both stay in the lake, and it is said."""
    gateway = Gateway(tmp_path, SqliteLog(tmp_path / "log"))
    gateway.register()
    gateway.push(("INSERT", "1", 1, {}))
    twin, other = made_of(("DELETE", "1", 1, {}), "a"), made_of(("INSERT", "2", 2, {"x": 1}), "b")
    flush_content(gateway.store.lake, "todos", [twin, other], "other", "other:1", "1")
    deltas, [words], _ = import_foreign(gateway.log, gateway.store)
    assert deltas == 1
    assert words.endswith(f"delta {twin.delta_id[:16]}…: its id is known with another op")
    gateway.flush()
    held = {(each.row_id, each.op) for each in all_deltas(gateway.store.lake, "todos")}
    assert held == {("1", "INSERT"), ("1", "DELETE"), ("2", "INSERT")}
    assert dict(state_rows(gateway.store.lake, "todos")) == {"2": {"x": 1}}
    gateway.log.close()


@settings(max_examples=12)
@given(st.lists(actions, min_size=8, max_size=24))
def test_whoever_begins_with_a_snapshot_converges(steps: list[Any]) -> None:
    run(steps)


@pytest.mark.faults
@settings(max_examples=150)
@given(st.lists(actions, min_size=5, max_size=40))
def test_whoever_begins_with_a_snapshot_converges_at_length(steps: list[Any]) -> None:
    run(steps)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres_server() as address:
        yield address


@pytest.mark.postgres
@pytest.mark.parametrize("rounds", [4, pytest.param(60, marks=pytest.mark.faults)])
def test_a_log_on_postgresql_begins_as_well(database: str, rounds: int) -> None:
    postgres_log = pytest.importorskip("driftline.gateway._log.postgres", reason="needs psycopg")
    logs = (f"log-{number}" for number in itertools.count())

    @settings(max_examples=rounds)
    @given(st.lists(actions, min_size=8, max_size=24))
    def converges(steps: list[Any]) -> None:
        run(steps, lambda _: postgres_log.PostgresLog(database, next(logs)))

    converges()
