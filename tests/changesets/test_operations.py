"""Single operations and edited files: dict views, reverse, sum, add, filter, and rebuilding through the builders."""

from __future__ import annotations

import itertools
import random

import apsw
import pytest

from driftline.changesets import (
    UNDEFINED,
    Changeset,
    Operation,
    Patchset,
    Table,
    concat,
    invert,
    iterate,
    parse,
)
from driftline.errors import ChangesetError, InputError, OptionError
from support.changegroup_reference import inverted, merged
from support.random_work import SHAPES, work_of
from support.sqlite_oracle import run_session

USERS = Table("users", columns=[("id", "INTEGER"), ("name", "TEXT"), ("age", "INTEGER")], primary_key=["id"])


@pytest.fixture(scope="module", params=["rowid", "reversed composite", "untyped"])
def files(request):
    found = []
    for seed in range(3):
        changeset, patchset, _, tables = run_session(
            [SHAPES[request.param]], [], lambda c, s=seed: work_of(request.param, s, 40)(c)
        )
        found.append((changeset, patchset, tables))
    return found


def test_a_parsed_file_is_rebuilt_through_the_builders(files):
    for changeset, patchset, tables in files:
        for data, kind in ((changeset, Changeset), (patchset, Patchset)):
            added = kind()
            for operation in parse(data, tables):
                added.add(operation)
            assert bytes(added) == merged([data])
        rebuilt = Changeset()
        for operation in parse(changeset, tables):
            if operation.kind == "insert":
                rebuilt.insert(operation.table, operation.new)
            elif operation.kind == "delete":
                rebuilt.delete(operation.table, operation.old)
            else:
                rebuilt.update(operation.table, operation.old, operation.new)
        assert sorted(map(repr, rebuilt)) == sorted(map(repr, parse(changeset, tables)))


def test_filtered_keeps_the_order_and_the_bytes(files):
    for changeset, patchset, tables in files:
        for data in (changeset, patchset):
            whole = parse(data, tables)
            assert bytes(whole.filtered(lambda operation: True)) == data
            kept = whole.filtered(lambda operation: operation.kind != "update")
            assert type(kept) is type(whole)
            assert [repr(op) for op in kept] == [repr(op) for op in whole if op.kind != "update"]
            assert bytes(whole.filtered(lambda operation: False)) == b""


def test_reverse_is_what_inverting_does(files):
    for changeset, patchset, tables in files:
        undone = parse(inverted(changeset), tables)
        assert [operation.reverse() for operation in parse(changeset, tables)] == list(undone)
        assert [operation.reverse().reverse() for operation in undone] == list(undone)
        for operation in parse(patchset, tables):
            with pytest.raises(ChangesetError, match="cannot be inverted"):
                operation.reverse()


@pytest.mark.parametrize("kind", [Changeset, Patchset])
def test_the_sum_of_two_operations_is_sqlites(kind):
    rows = [(1, "a", None), (1, "b", 2), (1, "a", 3)]
    made = [kind().insert(USERS, row) for row in rows] + [kind().delete(USERS, row) for row in rows]
    made += [kind().update(USERS, old, new) for old, new in itertools.permutations(rows, 2)]
    for first, second in itertools.product(made, repeat=2):
        builder = apsw.ChangesetBuilder()
        builder.add(bytes(first))
        builder.add(bytes(second))
        [a], [b] = first, second
        total = a + b
        summed = kind() if total is None else kind().add(total)
        assert bytes(summed) == builder.output()
        assert bytes(first.filtered(lambda _: True).add(b)) == builder.output()


def test_sums_of_other_rows_and_formats_are_refused():
    one = Operation(USERS, "insert", None, (1, "a", 1))
    other = Operation(USERS, "insert", None, (2, "a", 1))
    with pytest.raises(ChangesetError, match="have no sum"):
        one + other
    [patch] = Patchset().insert(USERS, (1, "a", 1))
    with pytest.raises(ChangesetError, match="one format"):
        one + patch
    with pytest.raises(ChangesetError, match="this is a changeset"):
        Changeset().add(patch)
    with pytest.raises(TypeError):
        one + 1


def test_views_and_short_forms():
    changes = Changeset().update(USERS, (1, "a", 3), {"name": "b"})
    [operation] = changes
    assert operation.old_values == {"id": 1, "name": "a"}
    assert operation.new_values == {"name": "b"}
    assert repr(operation) == "<update of users: {'id': 1, 'name': 'a'} -> {'name': 'b'}>"
    [born] = Changeset().insert(USERS, (1, None, 3), indirect=True)
    assert (born.old_values, born.new_values) == ({}, {"id": 1, "name": None, "age": 3})
    assert repr(born) == "<insert of users: {'id': 1, 'name': None, 'age': 3}, indirect>"


def test_undefined_values_in_builders():
    changes = Changeset().update(USERS, (1, UNDEFINED, 3), (UNDEFINED, UNDEFINED, 4))
    changes.update(USERS, (1, UNDEFINED, 4), (UNDEFINED, UNDEFINED, 5))
    assert [(operation.old, operation.new) for operation in changes] == [((1, UNDEFINED, 3), (UNDEFINED, UNDEFINED, 5))]
    with pytest.raises(ChangesetError, match='"name" changes and has no old value'):
        Changeset().update(USERS, (1, UNDEFINED, 3), (1, "x", 3))
    with pytest.raises(ChangesetError, match='key column "id"'):
        Changeset().update(USERS, (UNDEFINED, "a", 3), (1, "x", 3))
    with pytest.raises(ChangesetError, match='table users, column "name": SQLite has no type for Undefined'):
        Changeset().insert(USERS, (1, UNDEFINED, 3))
    with pytest.raises(ChangesetError, match='table users, column "age": SQLite has no type for object'):
        Changeset().insert(USERS, {"id": 1, "name": "", "age": object()})


def test_a_tuple_is_a_key_where_all_columns_are():
    table = Table.from_sql("CREATE TABLE t (a, b, PRIMARY KEY (b, a))")
    [operation] = Patchset().delete(table, (1, 2))
    assert operation.old_values == {"a": 2, "b": 1}
    [operation] = Patchset().delete(table, {"a": 1, "b": 2})
    assert operation.old_values == {"a": 1, "b": 2}


def test_patchsets_cannot_be_undone_and_numbers_are_no_files():
    with pytest.raises(ChangesetError, match="a patchset cannot be inverted"):
        Patchset().invert()
    with pytest.raises(ChangesetError, match="a patchset cannot be inverted"):
        invert(Patchset().delete(USERS, 1))
    for wrong in (1000, None, 1.5, [b""]):
        with pytest.raises(OptionError, match="changes are bytes"):
            parse(wrong)


def test_streams_and_bytes_read_the_same(tmp_path, files):
    """Blocks end anywhere: inside headers, lengths, numbers and characters."""
    for changeset, _, tables in files:
        data = changeset + changeset
        path = tmp_path / "f.bin"
        path.write_bytes(data)
        assert list(iterate(path, tables)) == list(iterate(data, tables)) == list(parse(data, tables))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_blocks_may_end_anywhere(size, monkeypatch):
    monkeypatch.setattr("driftline.changesets._format.read._BLOCK_BYTES", size)
    table = Table("tä", columns=["k", "v", "w"], primary_key=["k"])
    changes = Changeset()
    for number in range(30):
        changes.insert(table, (number, "é" * number, b"x" * (number * 20)))
    bad = bytes(changes).replace("é".encode(), b"\xff\xff")
    for data in (bytes(changes), bad):
        assert len(list(iterate(data))) == 30
        assert [operation.encode() for operation in iterate(data)] == [record.encode() for record in iterate(data)]
        with pytest.raises(InputError) as whole:
            parse(data[:-1])
        assert f"at byte {whole.value.offset}" in str(whole.value)


def test_offsets_are_those_of_the_file(tmp_path):
    big = Changeset()
    big.insert_columns(USERS, {"id": list(range(60_000)), "name": ["n" * 30] * 60_000, "age": [1] * 60_000})
    data = bytearray(bytes(big))
    assert len(data) > 2 << 20
    record = len(USERS.header(0x54)) + 50_000 * (2 + 9 + 32 + 9)
    assert data[record] == 0x12
    data[record] = 0x13
    with pytest.raises(ChangesetError, match=rf"unknown operation 0x13 \(at byte {record}\)"):
        parse(bytes(data))
    path = tmp_path / "f.bin"
    path.write_bytes(data)
    for call in (parse, invert, lambda file: concat(file, file), lambda file: list(iterate(file))):
        with pytest.raises(ChangesetError, match=rf"at byte {record}"):
            call(path)


def test_concat_and_invert_are_those_of_the_model():
    r = random.Random(5)
    for shape in ("rowid", "composite", "untyped"):
        files = []
        for seed in range(4):
            changeset, patchset, _, _ = run_session([SHAPES[shape]], [], work_of(shape, seed, r.choice([10, 200])))
            files.append((changeset, patchset))
        for number in (0, 1):
            chosen = [pair[number] for pair in files]
            assert bytes(concat(*chosen)) == merged(chosen)
        assert bytes(invert(files[0][0])) == inverted(files[0][0])
