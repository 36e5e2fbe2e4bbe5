"""All public vectors: what SQLite's session extension wrote is what we write."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from driftline.changesets import Changeset, Patchset, Table, apply, concat, invert, parse, rebase
from driftline.errors import ChangesetError, ConflictError
from support.sqlite_oracle import replay, run_session

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "sqlite-cases.json").read_text())


def by_id(kind):
    return pytest.mark.parametrize("case", CASES[kind], ids=lambda case: case["id"])


@by_id("session")
def test_session(case):
    def work(connection):
        for statement in case["sql"]:
            connection.execute(statement)

    attach = case["options"].get("attach", ())
    _, _, events, tables = run_session(case["ddl"], case["setup"], work)
    if attach:
        spelled = {name.lower(): name for name in attach}
        renamed = {table.name: Table(spelled[table.name.lower()], table.columns, table.primary_key) for table in tables}
        events = [(kind, renamed[name].name, *rest) for kind, name, *rest in events]
        tables = list(renamed.values())
    changeset, patchset = replay(events, tables)
    assert bytes(changeset).hex() == case["changeset_hex"]
    assert bytes(patchset).hex() == case["patchset_hex"]
    assert len(changeset) == case["changes"]


@by_id("session")
def test_parse_and_serialise_again(case):
    for text, kind, is_patchset in ((case["changeset_hex"], Changeset, False), (case["patchset_hex"], Patchset, True)):
        data = bytes.fromhex(text)
        parsed = parse(data)
        assert bytes(parsed) == data
        assert isinstance(parsed, kind) or not data
        sections = {}
        for operation in parsed:
            sections.setdefault(operation.table.name, [operation.table.header(kind.marker)]).append(
                operation.encode(patchset=is_patchset)
            )
        assert b"".join(b"".join(section) for section in sections.values()) == data


@by_id("concat")
def test_concat(case):
    merged = concat(*map(bytes.fromhex, case["inputs_hex"]))
    assert bytes(merged).hex() == case["output_hex"]


@by_id("invert")
def test_invert(case):
    data = bytes.fromhex(case["input_hex"])
    if "error" in case:
        with pytest.raises(ChangesetError, match="cannot be inverted"):
            invert(data)
    else:
        assert bytes(invert(data)).hex() == case["output_hex"]
        assert bytes(invert(invert(data))) == data


def database(*statements):
    connection = apsw.Connection(":memory:")
    for statement in statements:
        connection.execute(statement)
    return connection


@by_id("apply")
def test_apply(case):
    connection = database(*case["ddl"], *case["target"])
    data = bytes.fromhex(case["input_hex"])
    if case["error"]:
        with pytest.raises(ConflictError) as caught:
            apply(data, connection, case["policy"].lower())
        met = [caught.value.conflict]
    else:
        applied = apply(data, connection, case["policy"].lower())
        assert applied.rebase_data.hex() == case["rebase_hex"]
        met = [conflict for conflict, _ in applied.conflicts]
    seen = [[c.reason, c.operation.kind.upper(), c.current and list(c.current)] for c in met]
    assert seen == case["conflicts"]
    assert [list(row) for row in connection.execute("SELECT * FROM t ORDER BY id")] == case["rows"]


@by_id("rebase")
def test_rebase(case):
    connection = database(*case["ddl"], *case["base"], *case["local"])
    applied = apply(bytes.fromhex(case["remote_hex"]), connection, "omit")
    assert applied.rebase_data.hex() == case["rebase_hex"]
    rebased = rebase(bytes.fromhex(case["local_hex"]), applied)
    assert bytes(rebased).hex() == case["rebased_hex"]
    fresh = database(*case["ddl"], *case["base"])
    apply(bytes.fromhex(case["remote_hex"]), fresh)
    apply(rebased, fresh)
    assert [list(row) for row in fresh.execute("SELECT * FROM t ORDER BY id")] == case["rows"]
