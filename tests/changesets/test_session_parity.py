"""Differential fuzz: what a SQLite session records of random work is what our builders make of the same events."""

from __future__ import annotations

import apsw
import pytest
from hypothesis import given, settings, strategies as st

from driftline.changesets import Table, invert, parse
from support.random_work import SHAPES, work_of
from support.sqlite_oracle import contents, replay

shapes = st.sampled_from(sorted(SHAPES))
seeds = st.integers(0, 1 << 40)


def recorded(shape, seed, before, size):
    """A session over random work on a table that already has rows."""
    ddl = [SHAPES[shape]]

    def prepared(connection):
        work_of(shape, seed, before)(connection)

    base = apsw.Connection(":memory:")
    base.execute(ddl[0])
    prepared(base)
    rows = base.execute("SELECT * FROM t").fetchall()

    def start(connection):
        if rows:
            connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)

    return ddl, start, work_of(shape, seed + 1, size)


def session_of(ddl, start, work):
    connection = apsw.Connection(":memory:")
    connection.execute(ddl[0])
    start(connection)
    session = apsw.Session(connection, "main")
    session.attach()
    work(connection)
    return connection, session.changeset(), session.patchset()


def events_of(ddl, start, work):
    twin = apsw.Connection(":memory:")
    twin.execute(ddl[0])
    start(twin)
    table = Table.from_database(twin, "t")
    events = []

    def note(update):
        old = None if update.op == "INSERT" else update.old
        new = None if update.op == "DELETE" else update.new
        events.append((update.op, "t", old, new, False))

    twin.preupdate_hook(note)
    work(twin)
    return events, table


def check_parity(shape, seed, before, size):
    ddl, start, work = recorded(shape, seed, before, size)
    connection, changeset, patchset = session_of(ddl, start, work)
    events, table = events_of(ddl, start, work)
    ours, our_patch = replay(events, [table])
    data = bytes(ours)
    assert data == changeset
    assert bytes(our_patch) == patchset
    assert bytes(parse(changeset)) == changeset
    # In the other direction: SQLite applies our bytes to the same content.
    target = apsw.Connection(":memory:")
    target.execute(ddl[0])
    start(target)
    untouched = contents(target)
    apsw.Changeset.apply(data, target)
    assert without_null_keys(contents(target), table) == without_null_keys(contents(connection), table)
    apsw.Changeset.apply(bytes(invert(data)), target)
    assert contents(target) == untouched


def without_null_keys(found, table):
    """Sessions do not see rows with a NULL in their key."""
    places = [2 * index for index in table.key_indexes]
    return [row for row in found["t"] if all(row[place] is not None for place in places)]


@pytest.mark.parametrize("steps", [10, pytest.param(60, marks=pytest.mark.faults)])
@settings(max_examples=80, deadline=None)
@given(shape=shapes, seed=seeds, before=st.integers(0, 40), size=st.integers(1, 60))
def test_short_sequences(steps, shape, seed, before, size):
    for step in range(steps):
        check_parity(shape, seed + 1000 * step, before, size)


@settings(max_examples=25, deadline=None)
@given(
    shape=shapes,
    seed=seeds,
    before=st.sampled_from([0, 127, 128, 256, 300]),
    size=st.sampled_from([126, 127, 128, 129, 130, 255, 256, 257, 500, 511, 512, 513, 1030]),
)
def test_around_growth(shape, seed, before, size):
    check_parity(shape, seed, before, size)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_thousands_of_rows(shape):
    check_parity(shape, 5, 1000, 5000)
