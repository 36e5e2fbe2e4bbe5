"""Write rules in the append: what is accepted and refused, against a plain model, and under concurrency."""

from __future__ import annotations

import asyncio
import json
import secrets
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from driftline.deltas import ColumnDelta, RowDelta, TableSchema, make_hlc, merge, physical_ms
from driftline.errors import GatewayError
from driftline.gateway._auth import Caller
from driftline.gateway._log.log import UNSEEDED, Appended, DeltaLog
from driftline.gateway._log.sqlite import SqliteLog
from driftline.gateway._service import Gateway
from driftline.gateway._settings import GatewaySettings
from driftline.gateway._sync.pull import LogReader
from driftline.gateway._sync.push import entry_of
from driftline.gateway._sync.row_index import RowIndex
from driftline.gateway._sync.rules import RowRules, parse_rules
from driftline.lake import Lake, compact, register, set_horizon, vacuum
from support.gateways import CLOCK, GATEWAY, delta as wire, running
from support.postgres import postgres_server
from support.processes import wait_until

OWN = {"column": "owner", "op": "eq", "value": "jwt:sub"}
TEAM = {"column": "team", "op": "in", "value": "jwt:teams"}
NARROW = {"column": "done", "op": "eq", "value": "param:done"}
BUCKETS = [
    {"name": "own", "tables": ["notes"], "filters": [OWN]},
    {"name": "team", "tables": ["notes"], "filters": [TEAM, NARROW]},
]
PEOPLE: dict[str, dict[str, Any]] = {
    "ann": {"sub": "ann", "teams": ["red"]},
    "bob": {"sub": "bob", "teams": ["red", "blue"]},
    "eve": {"sub": "eve", "teams": []},
}
ROLES = {"ops": "admin", "ann": "client", "eve": "client"}
NOW = make_hlc(physical_ms() - 60_000)


class Gate:
    """A log with rules, and callers that push to it and pull from it."""

    def __init__(self, folder: str | Path, **rules: Any) -> None:
        path = Path(folder) / "log.sqlite"
        self.open_log: Callable[[], DeltaLog] = lambda: SqliteLog(path)
        if str(folder).startswith("postgresql:"):
            from driftline.gateway._log.postgres import PostgresLog

            gateway = f"gw-{secrets.token_hex(4)}"  # one database serves many gateways
            self.open_log = lambda: PostgresLog(str(folder), gateway)
        self.log = self.opened()
        self.set_rules(**rules)

    def opened(self) -> DeltaLog:
        log = self.open_log()
        log.judge = RowRules()
        return log

    def set_rules(self, **rules: Any) -> None:
        data = json.dumps({"version": 1, "buckets": BUCKETS, **rules}).encode()
        self.rules = parse_rules(data)
        self.log.change_document("rules", lambda _: data, "config", "rules")
        self.index = RowIndex(self.log)
        self.index.catch_up(self.rules, self.log.head().rules)

    def push(self, deltas: Sequence[RowDelta], who: str | None) -> Any:
        claims = None if who is None else PEOPLE[who]
        [result] = self.log.append([[entry_of(each) for each in deltas]], [claims])
        return result

    def pulled(self, who: str) -> list[RowDelta]:
        """Everything that a caller gets, narrowed by nothing."""
        numbers = (self.rules, self.log.head().rules)
        reader = LogReader(self.log, self.index, "gw", lambda: numbers)
        found: list[RowDelta] = []
        for done in ("true", "false"):
            query = {"since": "0", "limit": "1000", "p.done": done}
            page = reader.page(Caller(who, "gw", "client", PEOPLE[who]), query)
            found += [RowDelta.from_wire(json.loads(body)) for body in page.deltas]
        return found


def made(op: Any, row: str, hlc: int, client: str, table: str = "notes", **columns: Any) -> RowDelta:
    entries = [ColumnDelta(name, value) for name, value in columns.items()]
    return RowDelta.make(op=op, table=table, row_id=row, client_id=client, columns=entries, hlc=hlc)


# The model: a plain list of what was accepted, replayed for every question.


def before_of(accepted: Sequence[RowDelta], key: tuple[str, str]) -> tuple[str, dict[str, Any]]:
    """Whether a row never was, lives or is dead, and its values; of a dead row those that it had."""
    own = [each for each in accepted if (each.table, each.row_id) == key]
    state = merge(own).get(key)
    if state is not None and state.live:
        return "lives", state.columns
    written = [each for each in own if each.op != "DELETE"]
    if not written:
        return "dead" if own else "never", {}
    return "dead", merge(written)[key].columns


def readable(who: str, table: str, row: dict[str, Any]) -> bool:
    in_team = row.get("team") in PEOPLE[who]["teams"] and row.get("team") is not None
    return table == "notes" and (row.get("owner") == who or in_team)


def may_write(accepted: Sequence[RowDelta], delta: RowDelta, who: str) -> bool:
    key = (delta.table, delta.row_id)
    was, row = before_of(accepted, key)
    is_written = any(each.op != "DELETE" and (each.table, each.row_id) == key for each in accepted)
    state = merge([*(each for each in accepted if (each.table, each.row_id) == key), delta])[key]
    fits = not state.live or readable(who, delta.table, state.columns)
    if delta.op == "INSERT" and was != "lives":
        return fits if state.live else readable(who, delta.table, row)
    if not is_written:
        return False
    return readable(who, delta.table, row) and (delta.op == "DELETE" or fits)


values = st.fixed_dictionaries(
    {},
    optional={
        "owner": st.sampled_from([*PEOPLE, None]),
        "team": st.sampled_from(["red", "blue", None]),
        "done": st.booleans(),
        "t": st.integers(0, 3),
    },
)
changes = st.tuples(
    st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE"]), st.sampled_from("xy"), st.integers(1, 6), values
)
batches = st.tuples(st.sampled_from([*PEOPLE]), st.lists(changes, min_size=1, max_size=3))


@settings(max_examples=150)
@given(st.lists(batches, max_size=8))
def test_a_caller_changes_and_learns_nothing_that_rules_hide(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gate = Gate(folder)
        accepted: list[RowDelta] = []
        for number, (who, batch) in enumerate(steps):
            deltas = [
                made(op, row, NOW + hlc * 1000 + number, who, **({} if op == "DELETE" else columns))
                for op, row, hlc, columns in batch
            ]
            deltas = list({each.delta_id: each for each in deltas}.values())
            known = {each.delta_id for each in accepted}
            taken: list[RowDelta] = []
            refused, hidden = [], []
            for position, delta in enumerate(deltas):
                if delta.delta_id in known:
                    continue
                if not may_write([*accepted, *taken], delta, who):
                    refused.append(position)
                    continue
                taken.append(delta)
                state = before_of([*accepted, *taken], ("notes", delta.row_id))
                if state[0] == "lives" and not readable(who, "notes", state[1]):
                    hidden.append(position)
            result = gate.push(deltas, who)
            if refused:
                assert isinstance(result, GatewayError)
                assert (result.code, result.reason, result.positions) == ("FORBIDDEN", "write_rules", refused)
            else:
                assert isinstance(result, Appended), result
                assert list(result.hidden) == hidden
                accepted += taken
        for who in PEOPLE:
            shown = {key: state for key, state in merge(gate.pulled(who)).items() if state.live}
            for key, state in shown.items():
                assert readable(who, key[0], before_of(accepted, key)[1])
                assert state.columns.items() <= before_of(accepted, key)[1].items()
        gate.log.close()


# The same with entries of `writes`, each read by the letter of the ruling.

Entry = dict[str, Any]
conditions = st.sampled_from(
    [
        "read",
        False,
        {"before": [], "after": []},
        {"after": [OWN]},
        {"before": "read", "after": []},
        {"before": [{"column": "team", "op": "eq", "value": "red"}], "after": [OWN]},
        {"columns": {"only": ["t", "done", "owner"]}},
        {"before": [], "columns": {"except": ["team"]}},
        {"after": [{"column": "team", "op": "neq", "value": None}]},
    ]
)
entries = st.lists(
    st.fixed_dictionaries(
        {"tables": st.sampled_from([["notes"], ["notes", "box"]])},
        optional={"insert": conditions, "update": conditions, "delete": conditions},
    ),
    min_size=1,
    max_size=2,
)


def passes(who: str, requested: Any, table: str, row: dict[str, Any]) -> bool:
    if requested == "read":
        return readable(who, table, row)
    for item in requested:
        wanted = who if item["value"] == "jwt:sub" else item["value"]
        is_equal = item["column"] in row and row[item["column"]] == wanted
        if item["column"] not in row or is_equal != (item["op"] == "eq"):
            return False
    return True


def may_write_by(rules: Sequence[Entry], accepted: Sequence[RowDelta], delta: RowDelta, who: str) -> bool:
    own = [entry for entry in rules if delta.table in entry["tables"]]
    if not own:
        return may_write(accepted, delta, who)
    key = (delta.table, delta.row_id)
    was, row = before_of(accepted, key)
    there = [each for each in accepted if (each.table, each.row_id) == key]
    after = merge([*there, delta])[key]
    operation = "insert" if delta.op == "INSERT" and was != "lives" else "delete" if delta.op == "DELETE" else "update"
    if operation != "insert" and all(each.op == "DELETE" for each in there):
        return False
    if operation == "insert" and not after.live and not readable(who, delta.table, row):
        return False
    for entry in own:
        found = entry.get(operation, False)
        if found is False:
            continue
        found = {} if found == "read" else found
        names = [each.column for each in delta.columns]
        columns = found.get("columns", {})
        if any(name not in columns.get("only", names) or name in columns.get("except", []) for name in names):
            continue
        if operation != "insert" and not passes(who, found.get("before", "read"), delta.table, row):
            continue
        judged = operation != "delete" and after.live
        if not judged or passes(who, found.get("after", "read"), delta.table, after.columns):
            return True
    return False


steps_in_tables = st.lists(st.tuples(batches, st.sampled_from(["notes", "notes", "box"])), max_size=7)


def check_entries(folder: str, rules: list[Entry], steps: list[Any]) -> None:
    gate = Gate(folder, writes=rules)
    accepted: list[RowDelta] = []
    for number, ((who, batch), table) in enumerate(steps):
        deltas = [
            made(op, row, NOW + hlc * 1000 + number, who, table, **({} if op == "DELETE" else columns))
            for op, row, hlc, columns in batch
        ]
        deltas = list({each.delta_id: each for each in deltas}.values())
        taken: list[RowDelta] = []
        refused: list[int] = []
        for position, delta in enumerate(deltas):
            if delta.delta_id not in {each.delta_id for each in accepted}:
                is_allowed = may_write_by(rules, [*accepted, *taken], delta, who)
                (taken.append(delta) if is_allowed else refused.append(position))
        result = gate.push(deltas, who)
        if refused:
            assert isinstance(result, GatewayError)
            assert (result.code, result.reason, result.positions) == ("FORBIDDEN", "write_rules", refused)
        else:
            assert isinstance(result, Appended), result
            accepted += taken
    gate.log.close()


@settings(max_examples=200)
@given(entries, steps_in_tables)
def test_entries_of_writes_mean_what_a_plain_model_says(rules: list[Entry], steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_entries(folder, rules, steps)


@pytest.mark.postgres
def test_entries_of_writes_mean_the_same_on_postgresql() -> None:
    pytest.importorskip("psycopg", reason="needs psycopg, of the extra postgresql")
    with postgres_server() as address:

        @settings(max_examples=40, deadline=None)
        @given(entries, steps_in_tables)
        def check(rules: list[Entry], steps: list[Any]) -> None:
            check_entries(address, rules, steps)

        check()


def test_two_writers_of_one_free_id(tmp_path: Path) -> None:
    """Two processes with one log: of two pushes for an id one is refused, whatever their timestamps."""
    gate = Gate(tmp_path)
    logs = {who: gate.opened() for who in ("ann", "bob")}

    def race(who: str) -> list[str]:
        won = []
        for number in range(60):
            delta = made("INSERT", str(number), NOW + number, who, owner=who)
            [result] = logs[who].append([[entry_of(delta)]], [PEOPLE[who]])
            if isinstance(result, Appended):
                won.append(str(number))
        return won

    with ThreadPoolExecutor(2) as pool:
        ann, bob = pool.map(race, ("ann", "bob"))
    assert sorted([*ann, *bob], key=int) == [str(number) for number in range(60)]
    for log in (*logs.values(), gate.log):
        log.close()


def test_ids_start_with_a_claim(tmp_path: Path) -> None:
    """Neither a free id nor a taken one of somebody else is told from the other."""
    gate = Gate(tmp_path, writes=[{"tables": ["notes"], "insert": {"ids": "jwt:sub"}}])
    assert isinstance(gate.push([made("INSERT", "ann:1", NOW, "ann", owner="ann")], "ann"), Appended)
    free = gate.push([made("INSERT", "ann:2", NOW + 1, "eve", owner="eve")], "eve")
    taken = gate.push([made("INSERT", "ann:1", NOW + 1, "eve", owner="eve")], "eve")
    assert (free.code, free.message, free.context) == (taken.code, taken.message, taken.context)
    assert isinstance(gate.push([made("INSERT", "eve:1", NOW + 2, "eve", owner="eve")], "eve"), Appended)
    assert gate.push([made("INSERT", "eve", NOW + 2, "eve", owner="eve")], "eve").code == "FORBIDDEN"
    gate.log.close()


def test_what_came_through_the_lake_counts_as_before(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    assert gate.log.import_foreign([entry_of(made("INSERT", "1", NOW, "nightly", owner="ann"))]) == 1
    assert gate.push([made("INSERT", "1", NOW + 1, "eve", owner="eve")], "eve").positions == [0]
    assert isinstance(gate.push([made("UPDATE", "1", NOW + 1, "ann", t=1)], "ann"), Appended)
    assert [each.op for each in gate.pulled("ann")] == ["INSERT", "UPDATE"] * 2
    gate.log.close()


def test_pushes_wait_while_rows_are_merged_for_new_rules(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gate.log.change_document("rules", lambda before: before, "config", "rules")
    with pytest.raises(GatewayError) as refused:
        gate.push([made("INSERT", "1", NOW, "ann", owner="ann")], "ann")
    assert (refused.value.code, refused.value.reason) == ("BACKPRESSURE_ERROR", "rules")
    gate.index.catch_up(gate.rules, gate.log.head().rules)
    assert isinstance(gate.push([made("INSERT", "1", NOW, "ann", owner="ann")], "ann"), Appended)
    gate.log.close()


def test_not_ready_while_the_lakes_rows_are_awaited(tmp_path: Path) -> None:
    """Pushes under rules are 503 until the rows that only the lake has are known; so is `/ready`, all the time."""

    async def reasons(gateway: Gateway) -> list[str | None]:
        await gateway.set_rules(json.dumps({"version": 1, "buckets": BUCKETS}).encode())
        await gateway.check_ready()
        gateway.log.change_document(UNSEEDED, lambda _: b"1", "config")
        found: list[str | None] = []
        body = {"clientId": "ann", "deltas": [wire("ann", "1", "INSERT", table="notes", owner="ann")]}
        caller = Caller("ann", GATEWAY, "client", PEOPLE["ann"])
        for attempt in (gateway.check_ready(), gateway.push(caller, json.dumps(body).encode()), gateway.check_ready()):
            with pytest.raises(GatewayError) as refused:
                await attempt
            found.append(refused.value.reason)
        return found

    gateway = Gateway(GatewaySettings(GATEWAY, tmp_path, insecure=True))
    assert asyncio.run(reasons(gateway)) == ["rules"] * 3
    gateway.close()


def test_a_refusal_does_not_name_another_table(tmp_path: Path) -> None:
    """The check of names that differ in case only comes after the rules."""
    gate = Gate(tmp_path)
    assert isinstance(gate.push([made("INSERT", "1", NOW, "ops", "secrets", x=1)], None), Appended)
    refused = gate.push([made("INSERT", "1", NOW, "eve", "SECRETS", x=1)], "eve")
    assert (refused.code, refused.message) == ("FORBIDDEN", "the sync rules do not allow these writes")
    gate.log.close()


@pytest.mark.parametrize(
    "writes",
    [
        "all",
        7,
        [{"tables": []}],
        [{"insert": "read"}],
        [{"tables": ["no table"]}],
        [{"tables": ["notes"], "insert": True}],
        [{"tables": ["notes"], "insert": {"after": "mine"}}],
        [{"tables": ["notes"], "insert": {"ids": "sub"}}],
        [{"tables": ["notes"], "update": {"ids": "jwt:sub"}}],
        [{"tables": ["notes"], "insert": {"ids": "jwt:"}}],
        [{"tables": ["notes"], "update": {"columns": {"some": ["t"]}}}],
        [{"tables": ["notes"], "update": {"before": [{"column": "x", "op": "eq", "value": "param:x"}]}}],
        [{"tables": ["notes"], "update": {"before": [{"column": "_x", "op": "eq", "value": 1}]}}],
        [{"tables": ["notes"], "update": {"before": [{"column": "x", "op": "gt", "value": [1]}]}}],
    ],
)
def test_rules_that_make_no_sense_are_refused(writes: Any) -> None:
    with pytest.raises(GatewayError) as refused:
        parse_rules(json.dumps({"version": 1, "buckets": BUCKETS, "writes": writes}).encode())
    assert refused.value.code == "VALIDATION_ERROR"
    assert "writes" in refused.value.message or "rules" in refused.value.message


@pytest.mark.servers
def test_rows_that_only_an_archive_has_are_protected(tmp_path: Path) -> None:
    """A new log beside a lake whose old deltas were archived: until the rows are taken from it, pushes get 503."""
    quiet = ("--rate-limit", "0", "--flush-seconds", "3600", "--no-compact", "--lake", str(tmp_path / "lake"))
    lake = Lake(str(tmp_path / "lake"))
    columns = [{"name": name, "type": "string"} for name in ("owner", "team", "t")]
    register(lake, TableSchema.from_wire({"table": "notes", "columns": columns}))
    with running(tmp_path / "one", *quiet) as server:
        admin = server.client("ops", role="admin")
        admin.push(wire("ops", "a1", "INSERT", table="notes", owner="ann", t="diary"))
        assert admin.admin("flush").status_code == 200
    compact(lake, "notes")
    set_horizon(lake, "notes", CLOCK.now())
    vacuum(lake, "notes", hours=0)
    with running(tmp_path / "two", *quiet, "--adopt-lake") as server:
        admin, ann, eve = (server.client(name, role=role) for name, role in ROLES.items())
        assert admin.admin("sync-rules", {"version": 1, "buckets": BUCKETS[:1]}).status_code == 200
        answers = []

        def refused() -> bool:
            answers.append(eve.push(wire("eve", "a1", "INSERT", table="notes", owner="eve")).json())
            return answers[-1]["code"] == "FORBIDDEN"

        wait_until(refused)
        assert {each.get("reason") for each in answers} <= {"rules", "write_rules"}
        assert ann.push(wire("ann", "a1", table="notes", t="2")).status_code == 200
        page = eve.http.get(f"/sync/{GATEWAY}/snapshot").text.splitlines()
        assert [list(json.loads(line)) for line in page] == [["page"], ["end"]]
