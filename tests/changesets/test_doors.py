"""Doors into SQLite: what a diff or a stream of deltas says, a database does."""

from __future__ import annotations

import csv
import random

import apsw
import pytest

from driftline.changesets import Changeset, Patchset, Table, apply, parse
from driftline.changesets._make.rows import from_deltas, from_events, table_of
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.deltas import ColumnDelta, RowDelta, TableSchema, merge
from driftline.errors import ChangesetError


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def snapshots(seed):
    """Two versions of a table of texts, and what type each column must be found to have."""
    rng = random.Random(seed)
    header = ["name", "id", "price", "code", "ratio"]
    old = {number: [f"n{number}", number, rng.choice(["1.5", "2", ""]), f"0{number}", "0.5"] for number in range(400)}
    new = {number: list(row) for number, row in old.items() if rng.random() > 0.2}
    for row in new.values():
        if rng.random() < 0.3:
            row[rng.choice([0, 2, 3])] = rng.choice(["x", "é"]) if row[0] else ""
            row[2], row[4] = rng.choice(["3.25", "7", ""]), "0.25"
    new.update({number: [f"m{number}", number, "9.75", "00", "1.5"] for number in range(500, 560)})
    return header, list(old.values()), list(new.values())


def filled(table, header, rows):
    connection = apsw.Connection(":memory:")
    columns = ", ".join(f'"{column.name}" {column.declared_type}' for column in table.columns)
    connection.execute(f'CREATE TABLE "{table.name}" ({columns}, PRIMARY KEY ({", ".join(table.primary_key)}))')
    connection.executemany(f'INSERT INTO "{table.name}" VALUES ({", ".join("?" * len(header))})', rows)
    return connection


@pytest.mark.parametrize("form", ["changeset", "patchset"])
@pytest.mark.parametrize("engine", ["local"])
def test_diff_of_files_lands_in_a_database(form, engine, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    header, old, new = snapshots(7)
    write_csv("old.csv", [header, *old])
    write_csv("new.csv", [header, *new])
    arguments = ["diff", "old.csv", "new.csv", "--key", "id", "--format", form, "--table", "goods", "-o", "changes.bin"]
    assert run(driftline, [*arguments, "--column-type", "code=TEXT", "--engine", engine]) == 1
    shown = capfd.readouterr()
    assert shown.out == ""
    assert (
        "table goods: name TEXT (inferred), id INTEGER (inferred), price NUMERIC (inferred), "
        "code TEXT (declared), ratio REAL (inferred); key id" in shown.err
    )
    data = (tmp_path / "changes.bin").read_bytes()
    types = {"name": "TEXT", "id": "INTEGER", "price": "NUMERIC", "code": "TEXT", "ratio": "REAL"}
    table = Table("goods", columns=list(types.items()), primary_key=["id"])
    target, wanted = filled(table, header, old), filled(table, header, new)
    apply(data, target)
    everything = "SELECT * FROM goods ORDER BY id"
    assert target.execute(everything).fetchall() == wanted.execute(everything).fetchall()
    assert data == session_bytes(filled(table, header, old), sorted_events(header, old, new), form)


def sorted_events(header, old, new):
    """The statements a diff in key order stands for; keys of CSV files are ordered as text."""
    before, after = ({str(row[1]): row for row in rows} for rows in (old, new))
    for key in sorted(before.keys() | after.keys()):
        yield before.get(key), after.get(key)


def session_bytes(connection, events, form):
    session = apsw.Session(connection, "main")
    session.attach()
    for before, after in events:
        if before is None:
            connection.execute("INSERT INTO goods VALUES (?, ?, ?, ?, ?)", after)
        elif after is None:
            connection.execute("DELETE FROM goods WHERE id = ?", (before[1],))
        elif before != after:
            connection.execute(
                "UPDATE goods SET name = ?, price = ?, code = ?, ratio = ? WHERE id = ?",
                (after[0], after[2], after[3], after[4], before[1]),
            )
    return session.changeset() if form == "changeset" else session.patchset()


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--format", "changeset"], "needs --table"),
        (["--table", "t"], "belong to --format"),
        (["--format", "patchset", "--table", "t", "--limit", "3"], "takes no --limit"),
        (["--format", "patchset", "--table", "t", "--column-type", "id"], "COL=TYPE"),
        (["--format", "patchset", "--table", "t", "--column-type", "nick=TEXT"], 'no column "nick"'),
    ],
)
def test_refused_options_leave_nothing_behind(extra, words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write_csv("a.csv", [["id"], ["1"]])
    write_csv("b.csv", [["id"], ["2"]])
    assert run(driftline, ["diff", "a.csv", "b.csv", "--key", "id", "-o", "out.bin", *extra]) == 2
    assert words in capfd.readouterr().err
    assert not (tmp_path / "out.bin").exists()


def test_positional_diffs_have_no_keys():
    events = [
        {"type": "schema", "columns_a": ["a"], "columns_b": ["a"]},
        {"type": "added", "row_index": 2, "row": {"a": "1"}},
    ]
    with pytest.raises(ChangesetError, match="diff with --key"):
        from_events(events, "t")
    assert isinstance(from_events(events, "t", primary_key=["a"], format="patchset"), Patchset)


def test_declared_tables_and_reordered_columns():
    table = Table("t", columns=[("id", "INTEGER"), ("v", "TEXT")], primary_key=["id"])
    events = [
        {"type": "schema", "columns_a": ["id", "v"], "columns_b": ["v", "id"]},
        {"type": "changed", "key": {"id": "1"}, "before": {"id": "1", "v": "5"}, "after": {"v": "6", "id": "1"}},
        {"type": "stats"},
    ]
    changes = from_events(events, table)
    assert isinstance(changes, Changeset)
    assert [(op.old, op.new[1]) for op in changes] == [((1, "5"), "6")]


TODOS = TableSchema(
    table="todos",
    columns=[
        {"name": "title", "type": "string"},
        {"name": "points", "type": "number"},
        {"name": "done", "type": "boolean"},
        {"name": "tags", "type": "json"},
    ],
)


def delta(op, row_id, hlc, client="laptop", **values):
    columns = [ColumnDelta(name, value) for name, value in values.items()]
    return RowDelta.make(op=op, table="todos", row_id=row_id, client_id=client, columns=columns, hlc=hlc)


def test_values_of_deltas():
    deltas = [
        delta("INSERT", "a", 1, title="x", points=3, done=True, tags={"b": 1, "a": [None]}),
        delta("INSERT", "b", 2, tags="text"),
        delta("UPDATE", "c", 3, points=None, tags=None),
        delta("DELETE", "d", 4),
        delta("INSERT", "e", 5, title="gone"),
        delta("DELETE", "e", 6),
        delta("DELETE", "f", 7),
        delta("INSERT", "f", 8, title="back"),
    ]
    random.Random(1).shuffle(deltas)
    found = {op.key[0]: (op.kind, op.new and tuple(map(str, op.new))) for op in from_deltas(deltas, TODOS)}
    unset = "Undefined.UNDEFINED"
    assert found == {
        "a": ("insert", ("a", "x", "3.0", "1", '{"a":[null],"b":1}')),
        "b": ("insert", ("b", "None", "None", "None", '"text"')),
        "c": ("update", (unset, unset, "None", unset, "None")),
        "d": ("delete", None),
        "f": ("update", (unset, "back", "None", "None", "None")),
    }


def test_deltas_into_a_database_are_what_merging_says():
    rng = random.Random(3)
    base = [delta("INSERT", f"r{number}", number + 1, title=f"t{number}", points=number) for number in range(50)]
    later = []
    for step in range(300):
        row = f"r{rng.randrange(70)}"
        live = merge([*base, *later]).get(("todos", row))
        if live is None or not live.live:
            later.append(delta("INSERT", row, 1000 + step, title=f"new{step}", points=step))
        elif rng.random() < 0.3:
            later.append(delta("DELETE", row, 1000 + step))
        else:
            later.append(delta("UPDATE", row, 1000 + step, points=rng.random()))
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE todos (row_id TEXT PRIMARY KEY, title TEXT, points REAL, done INTEGER, tags TEXT)")
    apply(from_deltas(base, TODOS), connection)
    apply(parse(bytes(from_deltas(rng.sample(later, len(later)), TODOS))), connection)
    wanted = {row: state.columns for (_, row), state in merge([*base, *later]).items() if state.live}
    found = {
        row: {"title": t, "points": p} for row, t, p in connection.execute("SELECT row_id, title, points FROM todos")
    }
    assert found == wanted


def test_key_columns_of_schemas():
    schema = TableSchema(
        table="todos", columns=[{"name": "n", "type": "number"}, {"name": "s", "type": "string"}], key=["s", "n"]
    )
    assert table_of(schema).key_flags == (2, 1)
    patch = from_deltas([delta("DELETE", '["x",7]', 1)], schema)
    assert [op.key for op in patch] == [(7.0, "x")]
    with pytest.raises(ChangesetError, match="not a JSON array of 2"):
        from_deltas([delta("DELETE", "x", 1)], schema)
    with pytest.raises(ChangesetError, match='no schema for table "todos"'):
        from_deltas([delta("DELETE", "x", 1)], [])
