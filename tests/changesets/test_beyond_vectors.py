"""Cases of database diffs, applying, concatenating, change data capture and merging, computed outside driftline."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import apsw
import pytest

from driftline.changesets import apply, concat, diff, from_cdc
from driftline.changesets._format.database import database_from_sql
from driftline.changesets._git import merge
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import DriftlineError

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "changesets-beyond.json").read_text())["cases"]


def cases(kind):
    chosen = [case for case in CASES if case["kind"] == kind]
    assert chosen
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case["id"])


def make(path, statements):
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


def plain(value):
    if isinstance(value, bytes):
        return {"blob": value.hex()}
    if isinstance(value, float):
        return {"real": repr(value)}
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        return {"text_hex": value.encode(errors="surrogateescape").hex()}
    return value


def told(operation, keys):
    record = {"table": operation.table.name, "op": operation.kind}
    for side in ("old", "new"):
        values = getattr(operation, f"{side}_values")
        if values:
            record[side] = {name: plain(value) for name, value in values.items()}
    if "fields" in keys:
        return {"fields": len(operation.new_values), "table": record["table"], "op": record["op"]}
    return record


def by_text(records):
    return sorted(json.dumps(record, sort_keys=True) for record in records)


@cases("diff")
def test_diff(case, tmp_path, capfd):
    expect = case["expect"]
    old, new = make(tmp_path / "old.db", case["old"]), make(tmp_path / "new.db", case["new"])
    out = tmp_path / "out.bin"
    code = run(driftline, ["changeset", "diff", str(old), str(new), "-o", str(out)])
    shown = capfd.readouterr().err
    assert code == expect["exit"]
    if "error" in expect:
        assert f"error[{expect['error']}]" in shown
        assert not out.exists()
        for problem in expect["problems"]:
            assert f"problem[{problem['code']}]: {problem['table']}:" in shown
    found = diff(old, new, allow_incomplete=True)
    assert [{"code": note.code, "name": note.name} for note in found.notes] == expect["notes"]
    assert [{"code": problem.code, "table": problem.table} for problem in found.problems] == expect["problems"]
    if "error" in expect:
        return
    keys = {key for record in expect["changes"] for key in record}
    assert by_text(told(operation, keys) for operation in found.changes) == by_text(expect["changes"])
    data = out.read_bytes()
    assert data == bytes(found.changes)
    if "changeset_hex" in expect:
        assert data.hex() == expect["changeset_hex"]
    if "changeset_sha256" in expect:
        assert hashlib.sha256(data).hexdigest() == expect["changeset_sha256"]


def recorded(what):
    connection = apsw.Connection(":memory:")
    for statement in what["setup"]:
        connection.execute(statement)
    session = apsw.Session(connection, "main")
    if what.get("rowid"):
        session.config(apsw.SQLITE_SESSION_OBJCONFIG_ROWID, 1)
    session.attach()
    for statement in what["run"]:
        connection.execute(statement)
    return session.changeset()


def contents(path, tables):
    connection = apsw.Connection(str(path))
    found = {}
    for table in tables:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        query = f"SELECT {', '.join(f'quote({name})' for name in names)} FROM {table}"
        found[table] = sorted(list(row) for row in connection.execute(query))
    return found


@cases("apply")
def test_apply(case, tmp_path, capfd):
    expect, options = case["expect"], case.get("options", {})
    database = make(tmp_path / "app.db", case["database"])
    changes = recorded(case["file"])
    if expect["exit"]:
        with pytest.raises(DriftlineError) as caught:
            apply(changes, database, **options)
        assert caught.value.code == expect["error"]
        assert caught.value.exit_code == expect["exit"]
        if "reason" in expect:
            assert caught.value.reason == expect["reason"]
        if "tables_named" in expect:
            assert caught.value.tables == expect["tables_named"]
    else:
        applied = apply(changes, database, **options)
        report = applied.to_dict()
        shown = {name: {k: v for k, v in counts.items() if v} for name, counts in report["tables"].items()}
        assert shown == expect["tables"]
        assert report["conflicts"] == expect["conflicts"]
    assert contents(database, case["look"]) == expect["database_after"]


@cases("concat")
def test_concat(case, tmp_path):
    files = []
    for number, what in enumerate(case["files"]):
        files.append(tmp_path / f"{number}.bin")
        files[-1].write_bytes(recorded(what))
    schema = case.get("options", {}).get("schema")
    given = None if schema is None else database_from_sql(schema)
    assert bytes(concat(*files, schema=given)).hex() == case["expect"]["hex"]
    (tmp_path / "tables.sql").write_text(schema)
    out = tmp_path / "out.bin"
    names = list(map(str, files))
    assert (
        run(driftline, ["changeset", "concat", *names, "--schema", str(tmp_path / "tables.sql"), "-o", str(out)]) == 0
    )
    assert out.read_bytes().hex() == case["expect"]["hex"]


@cases("cdc")
def test_cdc(case):
    expect, options = case["expect"], case.get("options", {})
    if "error" in expect:
        with pytest.raises(DriftlineError) as caught:
            from_cdc(case["lines"], case["schema"], **options)
        assert caught.value.code == expect["error"]
        return
    found = from_cdc(case["lines"], case["schema"], **options)
    assert type(found.changes).__name__.lower() == expect["format"]
    assert by_text(told(operation, ()) for operation in found) == by_text(expect["changes"])
    assert bytes(found).hex() == expect["hex"]
    assert found.notes == expect["notes"]


@cases("merge")
def test_merge(case, tmp_path):
    expect = case["expect"]
    paths = {}
    for side in ("base", "ours", "theirs"):
        statements = case["base"] + ([] if side == "base" else case[side])
        paths[side] = str(make(tmp_path / f"{side}.db", statements))
    merged = merge(paths["base"], paths["ours"], paths["theirs"])
    assert (0 if merged.is_clean else 1, len(merged.conflicts)) == (expect["exit"], expect["conflicts"])
    assert contents(paths["ours"], case["look"]) == expect["ours_after"]
