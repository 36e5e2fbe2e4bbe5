"""SQLite's own functions through apsw, as plainly as they can be called, and files to work on."""

import sys

import apsw


def diff(old, new, out):
    connection = apsw.Connection(new, flags=apsw.SQLITE_OPEN_READONLY)
    connection.execute("ATTACH ? AS old_version", (old,))
    session = apsw.Session(connection, "main")
    session.attach("t")
    session.diff("old_version", "t")
    with open(out, "wb") as file:
        session.changeset_stream(file.write)


def concat(*files):
    builder = apsw.ChangesetBuilder()
    for name in files[:-1]:
        with open(name, "rb") as file:
            builder.add(file.read)
    with open(files[-1], "wb") as file:
        builder.output_stream(file.write)


def invert(source, out):
    with open(source, "rb") as file, open(out, "wb") as target:
        apsw.Changeset.invert_stream(file.read, target.write)


def apply(source, database):
    connection = apsw.Connection(database)
    with open(source, "rb") as file, connection:
        apsw.Changeset.apply(file.read, connection, conflict=lambda *_: apsw.SQLITE_CHANGESET_ABORT)


def make(count, *files):
    for number, name in enumerate(files):
        connection = apsw.Connection(":memory:")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, amount REAL, note TEXT)")
        session = apsw.Session(connection, "main")
        session.attach()
        first = number * int(count) // 2
        rows = ((n, f"name {n % 9973}", n * 0.25, f"a note, number {n}") for n in range(first, first + int(count)))
        with connection:
            connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        with open(name, "wb") as file:
            session.changeset_stream(file.write)


{"diff": diff, "concat": concat, "invert": invert, "apply": apply, "make": make}[sys.argv[1]](*sys.argv[2:])
