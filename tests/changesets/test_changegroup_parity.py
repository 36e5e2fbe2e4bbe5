"""Merging, inverting, rebasing and diffing random files: SQLite's answer is ours."""

from __future__ import annotations

import io
import random

import apsw
import pytest
from hypothesis import given, settings, strategies as st

from driftline.changesets import apply, concat, diff, invert, parse, rebase
from driftline.changesets._make.sections import ChangegroupOnDisk
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.core._workspace import Workspace
from driftline.errors import ChangesetError
from support.random_work import SHAPES, work_of
from support.sqlite_oracle import contents

shapes = st.sampled_from(sorted(SHAPES))
seeds = st.integers(0, 1 << 40)


def recorded_pieces(shape, seed, size, count):
    """Files that sessions recorded one after the other on one database; both formats."""
    connection = apsw.Connection(":memory:")
    connection.execute(SHAPES[shape])
    work_of(shape, seed, size)(connection)
    changesets, patchsets = [], []
    for number in range(count):
        session = apsw.Session(connection, "main")
        session.attach()
        session.indirect = random.Random(seed + number).random() < 0.3
        work_of(shape, seed + number, size)(connection)
        changesets.append(session.changeset())
        patchsets.append(session.patchset())
        session.close()
    return changesets, patchsets


def merged_by_sqlite(files):
    builder = apsw.ChangesetBuilder()
    for data in files:
        builder.add(data)
    return builder.output()


@settings(max_examples=60, deadline=None)
@given(shape=shapes, seed=seeds, size=st.sampled_from([3, 20, 60, 128, 200]), count=st.integers(1, 4))
def test_concat_and_invert(shape, seed, size, count):
    changesets, patchsets = recorded_pieces(shape, seed, size, count)
    for files in (changesets, patchsets, changesets[::-1], patchsets[::-1]):
        assert bytes(concat(*files)) == merged_by_sqlite(files)
    for data in changesets:
        assert bytes(invert(data)) == apsw.Changeset.invert(data)
        assert bytes(invert(invert(data))) == data


@settings(max_examples=40, deadline=None)
@given(
    shape=shapes,
    seed=seeds,
    size=st.sampled_from([3, 60, 128, 300]),
    count=st.integers(1, 4),
    shares=st.integers(1, 9),
)
def test_concat_on_disk(shape, seed, size, count, shares):
    """Merged in shares, put together as if one hash table had seen them all."""
    changesets, patchsets = recorded_pieces(shape, seed, size, count)
    for files in (changesets, patchsets, changesets[::-1], patchsets[::-1]):
        total = sum(map(len, files))
        with Workspace() as workspace:
            out = io.BytesIO()
            group = ChangegroupOnDisk(workspace, size=total, memory_bytes=24 * total // shares + 1)
            for data in files:
                group.add_file(io.BytesIO(data))
            group.write_to(out)
        assert out.getvalue() == merged_by_sqlite(files)


def test_concat_beyond_memory(tmp_path, monkeypatch, capfd):
    """The command looks at the sizes; what does not fit together is refused with the same words either way."""
    changesets, patchsets = recorded_pieces(sorted(SHAPES)[0], 7, 200, 3)
    names = [str(tmp_path / f"{number}.bin") for number in range(3)]
    for name, data in zip(names, changesets, strict=True):
        with open(name, "wb") as file:
            file.write(data)
    monkeypatch.setattr("driftline.changesets._format.streams._SMALL_BYTES", 0)
    monkeypatch.setattr("driftline.tables._engines.SMALLEST_LIMIT", 100)
    out = tmp_path / "out.bin"
    assert run(driftline, ["changeset", "concat", *names, "--memory", "3kB", "-o", str(out)]) == 0
    assert out.read_bytes() == merged_by_sqlite(changesets)
    (tmp_path / "1.bin").write_bytes(patchsets[1])
    told = []
    for memory in ("3kB", "3GB"):
        assert run(driftline, ["changeset", "concat", *names, "--memory", memory]) == 2
        told.append(capfd.readouterr().err)
    assert told[0] == told[1]
    assert "mixed_formats" in told[0]


@settings(max_examples=40, deadline=None)
@given(shape=shapes, seed=seeds, size=st.integers(5, 60))
def test_operations_are_what_sqlite_iterates(shape, seed, size):
    changesets, patchsets = recorded_pieces(shape, seed, size, 2)
    for data in changesets + patchsets:
        theirs = [
            (change.op.lower(), plain(change.old), plain(change.new), change.indirect)
            for change in apsw.Changeset.iter(data)
        ]
        ours = [(op.kind, plain(op.old), plain(op.new), bool(op.indirect)) for op in parse(data)]
        assert repr(ours) == repr(theirs)


def plain(row):
    """A row with every way to say "left out" spelled the same."""
    if row is None:
        return None
    return tuple("UNDEFINED" if value is apsw.no_change or repr(value) == "UNDEFINED" else value for value in row)


@settings(max_examples=40, deadline=None)
@given(shape=shapes, seed=seeds, size=st.integers(2, 40), answer=st.sampled_from(["omit", "replace"]))
def test_rebase(shape, seed, size, answer):
    base = apsw.Connection(":memory:")
    base.execute(SHAPES[shape])
    work_of(shape, seed, size)(base)
    local, local_changes = branch(base, shape, seed + 1, size)
    _, remote_changes = branch(base, shape, seed + 2, size)
    applied = apply(remote_changes, local, answer)
    rebaser = apsw.Rebaser()
    rebaser.configure(applied.rebase_data)
    assert bytes(rebase(local_changes, applied)) == rebaser.rebase(local_changes)


def branch(base, shape, seed, size):
    copy = apsw.Connection(":memory:")
    copy.deserialize("main", base.serialize("main"))
    session = apsw.Session(copy, "main")
    session.attach()
    work_of(shape, seed, size)(copy)
    changes = session.changeset()
    session.close()
    return copy, changes


@pytest.mark.parametrize("shape", ["rowid", "text key", "composite", "without rowid"])
def test_diff_of_two_files(shape, tmp_path):
    for seed in range(5):
        old, new = tmp_path / f"old {seed}.db", tmp_path / f"new?{seed}.db"
        for path, own_seed in ((old, seed), (new, seed + 100)):
            connection = apsw.Connection(str(path))
            connection.execute(SHAPES[shape])
            work_of(shape, own_seed, 80)(connection)
            connection.execute("DELETE FROM t WHERE " + null_key_test(connection))
            connection.close()
        changes = diff(old, new)
        apply(changes, old)
        assert contents(apsw.Connection(str(old))) == contents(apsw.Connection(str(new)))
        assert not diff(old, new)
        assert len(diff(old, new, patchset=True)) == 0


def null_key_test(connection):
    keys = [row[1] for row in connection.execute("PRAGMA table_info(t)") if row[5]]
    return " OR ".join(f"{name} IS NULL" for name in keys)


def test_formats_and_schemas_do_not_mix():
    changeset = bytes.fromhex("540201007400120001000000000000000105")
    patchset = b"P" + changeset[1:]
    wider = bytes.fromhex("54030100007400120001000000000000000105" + "05")
    other_key = bytes.fromhex("5402000174001200050100000000000000" + "01")
    for pair, word in (((changeset, patchset), "cannot be combined"), ((changeset, wider), "other columns")):
        with pytest.raises(ChangesetError, match=word):
            concat(*pair)
    with pytest.raises(ChangesetError, match="another key"):
        concat(changeset, other_key)
    # Names match without regard to case; the first spelling stays.
    upper = changeset.replace(b"t\0", b"T\0", 1)
    assert bytes(concat(upper, changeset)) == upper == merged_by_sqlite([upper, changeset])
