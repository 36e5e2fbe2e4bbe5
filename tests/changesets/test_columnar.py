"""Whole columns: the same bytes as row by row, and as SQLite for values that meet an affinity."""

from __future__ import annotations

import io
import random
import sys

import apsw
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from driftline.changesets import Changeset, Patchset, Table, write_columns
from driftline.errors import ChangesetError
from support.processes import run_process
from support.random_work import random_value

TABLE = Table("t", [("v", "TEXT"), ("k", "INTEGER"), "x", ("r", "REAL"), ("n", "NUMERIC")], primary_key=["k", "x"])


def make_rows(rng, count):
    """Rows with distinct keys of many types, also long ones."""
    keys = rng.sample(range(10 * count + 1), count)
    extra = ["a", b"a", 2.5, "long " * rng.choice([1, 13, 40]), b"\0" * 200]
    return [(random_value(rng), key, rng.choice([*extra, key]), random_value(rng), random_value(rng)) for key in keys]


def as_columns(rows):
    return {column.name: [row[index] for row in rows] for index, column in enumerate(TABLE.columns)}


def changed(rng, row):
    return tuple(
        value if TABLE.key_flags[index] or rng.random() < 0.5 else random_value(rng) for index, value in enumerate(row)
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 40), count=st.integers(1, 300), kind=st.sampled_from([Changeset, Patchset]))
def test_columns_of_mixed_values(seed, count, kind):
    rng = random.Random(seed)
    rows = make_rows(rng, count)
    one, two = count // 3, 2 * count // 3
    pairs = [(row, changed(rng, row)) for row in rows[one:two]]
    by_rows, by_columns = kind(), kind()
    for row in rows[:one]:
        by_rows.insert(TABLE, row)
    for old, new in pairs:
        by_rows.update(TABLE, old, new)
    for row in rows[two:]:
        by_rows.delete(TABLE, row, indirect=True)
    if one:
        by_columns.insert_columns(TABLE, as_columns(rows[:one]))
    if pairs:
        by_columns.update_columns(TABLE, as_columns([old for old, _ in pairs]), as_columns([new for _, new in pairs]))
    by_columns.delete_columns(TABLE, as_columns(rows[two:]), indirect=True)
    assert bytes(by_columns) == bytes(by_rows)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 40), count=st.integers(1, 60))
def test_values_meet_affinities_as_in_sqlite(seed, count):
    rng = random.Random(seed)
    ddl = "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b REAL, c NUMERIC, d INT, e BLOB, f, g VARCHAR(3), h DATE)"
    rows = [(number, *(number_like(rng) for _ in range(8))) for number in rng.sample(range(1000), count)]
    connection = apsw.Connection(":memory:")
    connection.execute(ddl)
    session = apsw.Session(connection, "main")
    session.attach()
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    changes = Changeset()
    for row in rows:
        changes.insert(Table.from_sql(ddl), row)
    assert bytes(changes) == session.changeset()


def number_like(rng):
    digits = "".join(rng.choice("0123456789") for _ in range(rng.choice([1, 3, 17, 18, 19, 20, 25])))
    text = rng.choice(["", " ", "\t"]) + rng.choice(["", "-", "+"]) + digits
    text += rng.choice(["", ".", ".5", ".0", "e3", "E-2", "e400", "x", "\0", "\x00 7", " \n", "_1"])
    return rng.choice([text, text, random_value(rng), rng.uniform(-1, 1) * 10 ** rng.randrange(-20, 25)])


@pytest.mark.parametrize("count", [1, 127, 128, 129, 5000])
def test_arrow_polars_and_numpy(count):
    rng = np.random.default_rng(count)
    table = Table("t", [("id", "INTEGER"), ("name", "TEXT"), ("score", "REAL"), ("flag", "INTEGER"), "raw"], ["id"])
    ids = rng.permutation(count * 3)[:count]
    names = [None if number % 7 == 0 else f"näme {number}" for number in ids.tolist()]
    scores = np.where(ids % 5 == 0, np.nan, ids / 3)
    flags = (ids % 2 == 0).tolist()
    raw = [None if number % 11 == 0 else bytes([number % 256]) * (number % 140) for number in ids.tolist()]
    expected = Changeset()
    for row in zip(ids.tolist(), names, scores.tolist(), flags, raw, strict=True):
        expected.insert(table, row)
    arrow = pa.table(
        {
            "RAW": pa.chunked_array([raw[:1], raw[1:]], pa.binary()),
            "id": pa.array(ids, pa.int32()),
            "name": pa.array(names).dictionary_encode(),
            "score": pa.array(scores),
            "flag": pa.array(flags),
        }
    )
    frame = pl.DataFrame(
        {"id": ids, "name": names, "score": scores, "flag": flags, "raw": pl.Series(raw, dtype=pl.Binary)}
    )
    plain = {"id": ids, "name": names, "score": scores, "flag": np.array(flags), "raw": raw}
    for data in (arrow, arrow.combine_chunks().to_batches()[0], frame, plain):
        changes = Changeset()
        changes.insert_columns(table, data)
        assert bytes(changes) == bytes(expected)


def test_patchsets_by_key_columns():
    table = Table("t", [("id", "INTEGER"), ("a", "TEXT"), ("b", "TEXT")], ["id"])
    by_rows, by_columns = Patchset(), Patchset()
    for number in range(300):
        by_rows.update(table, {"id": number}, {"b": f"b{number}"})
    for number in range(300, 400):
        by_rows.delete(table, number)
    keys = pa.table({"id": range(300)})
    by_columns.update_columns(table, keys, keys.append_column("b", pa.array([f"b{number}" for number in range(300)])))
    by_columns.delete_columns(table, pa.table({"id": range(300, 400)}))
    assert bytes(by_columns) == bytes(by_rows)


def test_repeated_keys_across_columns_and_rows():
    table = Table("t", [("id", "INTEGER"), ("v", "TEXT")], ["id"])
    by_rows, mixed = Changeset(), Changeset()
    for number in range(500):
        by_rows.insert(table, (number % 250, str(number // 250)))  # the second half is impossible and changes nothing
    by_rows.update(table, (3, "0"), (1000, "moved"))
    by_rows.delete(table, (1000, "moved"))
    mixed.insert_columns(
        table, {"id": [number % 250 for number in range(500)], "v": [str(n // 250) for n in range(500)]}
    )
    mixed.update(table, (3, "0"), (1000, "moved"))
    mixed.delete_columns(table, {"id": [1000], "v": ["moved"]})
    assert bytes(mixed) == bytes(by_rows)
    assert mixed.statistics() == {"t": {"insert": 249, "update": 0, "delete": 0, "indirect": 0}}


def inserted(table, data):
    changes = Changeset()
    changes.insert_columns(table, data)
    return bytes(changes)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"id": [1]}, "missing_column"),
        ({"id": [1], "v": ["a"], "w": [1]}, "unknown_column"),
        ({"id": [1, 2], "v": ["a"]}, "row_width_mismatch"),
        ({"id": pa.array([1 << 63], pa.uint64()), "v": ["a"]}, "integer_too_large"),
        ({"id": [1 << 63], "v": ["a"]}, "integer_too_large"),
        ({"id": [1], "v": pa.array([0], pa.timestamp("us"))}, "invalid_value"),
        ({"id": [1], "v": [object()]}, "invalid_value"),
        ({"id": [1], "v": ["\ud800"]}, "invalid_text"),
    ],
)
def test_columns_that_are_refused(data, code):
    table = Table("t", [("id", "INTEGER"), ("v", "TEXT")], ["id"])
    with pytest.raises(ChangesetError) as caught:
        inserted(table, data)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ((1,), "row_width_mismatch"),
        ("ab", "invalid_row"),
        ({"id": 1}, "missing_column"),
        ({"id": 1, "v": 2, "z": 3}, "unknown_column"),
        ((1, object()), "invalid_value"),
    ],
)
def test_rows_that_are_refused(row, code):
    table = Table("t", [("id", "INTEGER"), ("v", "TEXT")], ["id"])
    changes = Changeset()
    with pytest.raises(ChangesetError) as caught:
        changes.insert(table, row)
    assert caught.value.code == code
    assert bytes(changes) == b""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("", ["a"], ["a"]), "invalid_table"),
        (("t", [], ["a"]), "invalid_table"),
        (("t", ["a", "A"], ["a"]), "invalid_table"),
        (("t", ["a"], ["b"]), "invalid_table"),
        (("t", ["a"], []), "no_primary_key"),
    ],
)
def test_tables_that_are_refused(arguments, code):
    with pytest.raises(ChangesetError) as caught:
        Table(*arguments)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "text", ["DROP TABLE t", "CREATE TABLE t (a)", "ATTACH 'x.db' AS y", "nonsense", "SELECT 1", ""]
)
def test_schema_text_is_only_create_table(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChangesetError):
        Table.from_sql(text)
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 40), count=st.integers(1, 600), form=st.sampled_from(["changeset", "patchset"]))
def test_a_stream_of_columns(seed, count, form):
    rng = random.Random(seed)
    rows = make_rows(rng, count)
    kind = Changeset if form == "changeset" else Patchset
    whole, chunks = kind(), []
    while rows:
        size = rng.randrange(1, 200)
        part, rows = rows[:size], rows[size:]
        verb = rng.choice(["insert", "update", "delete"])
        after = [changed(rng, row) for row in part]
        for old, new in zip(part, after, strict=True):
            getattr(whole, verb)(TABLE, old, *([new] if verb == "update" else []))
        chunks.append((verb, as_columns(part), *([as_columns(after)] if verb == "update" else [])))
    out = io.BytesIO()
    assert write_columns(out, TABLE, iter(chunks), format=form) == len(whole)
    assert out.getvalue() == bytes(whole)


@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ([("insert", {"id": [1, 1], "v": ["a", "b"]})], "repeated_key"),
        ([("insert", {"id": [1], "v": ["a"]}), ("delete", {"id": [1], "v": ["a"]})], "repeated_key"),
        ([("update", {"id": [1], "v": ["a"]}, {"id": [2], "v": ["a"]})], "repeated_key"),
        ([("update", {"id": [1], "v": ["a"]}, {"id": [1, 2], "v": ["a", "b"]})], "row_width_mismatch"),
        ([("merge", {"id": [1], "v": ["a"]})], "invalid_chunk"),
    ],
)
def test_streams_that_are_refused(chunks, code):
    table = Table("t", [("id", "INTEGER"), ("v", "TEXT")], ["id"])
    out = io.BytesIO()
    with pytest.raises(ChangesetError) as caught:
        write_columns(out, table, chunks)
    assert caught.value.code == code
    assert out.getvalue() == b""


def test_rows_of_every_type_do_without_pandas():
    """pyarrow imports pandas wherever it meets Python objects; it takes longer than a diff of a small database."""
    pytest.importorskip("pandas")
    program = (
        "import io, sys; from driftline.changesets import Table, write_columns\n"
        "rows = {'id': [1, 2], 't': ['a', None], 'b': [b'x', 2], 'r': [1.5, 'y']}\n"
        "after = {**rows, 't': ['b', 'c']}\n"
        "table = Table('t', [('id', 'INTEGER'), ('t', 'TEXT'), 'b', ('r', 'REAL')], ['id'])\n"
        "write_columns(io.BytesIO(), table, [('update', rows, after)])\n"
        "sys.exit('pandas' in sys.modules)"
    )
    assert run_process([sys.executable, "-c", program], check=False).returncode == 0
