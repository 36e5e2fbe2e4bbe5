"""Damaged changeset files through everything that reads them: clear errors, and databases change whole or not at all.

Files are recorded by SQLite itself and then mutated: bits, bytes, cuts, doubled and moved pieces, spliced files.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

from driftline.changesets import (
    Changeset,
    apply,
    concat,
    diff,
    dump_lines,
    invert,
    iterate,
    json_lines,
    merge,
    parse,
    rebase,
    text_lines,
    to_sql,
)
from driftline.errors import DriftlineError
from faults.tools import Tally, mutate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.changegroup_reference import inverted, merged

_SCHEMA = """
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER);
CREATE TABLE pets (k TEXT PRIMARY KEY, owner INTEGER REFERENCES users (id), data) WITHOUT ROWID;
CREATE TABLE notes (a, b);
CREATE TABLE log (n INTEGER PRIMARY KEY, what);
CREATE TRIGGER watch AFTER INSERT ON users BEGIN INSERT INTO log (what) VALUES (new.name); END;
INSERT INTO users VALUES (1, 'Alice', 30), (2, 'Bob', 41), (3, 'é', NULL);
INSERT INTO pets VALUES ('rex', 1, x'00ff'), ('tom', 2, 1.5);
INSERT INTO notes VALUES (1, 2), ('x', NULL);
"""
_MARKERS = b"TP\x12\x17\x09\x00\x01\x02\x03\x04\x05\x80\xff"
_PER_ROUND = 20
_SECONDS = 20


def run(seed: int, rounds: int) -> Iterator[Tally]:
    """Thousands of damaged files, each read, merged, inverted, shown and applied."""
    r = random.Random(seed)
    files = [_recorded(r, patchset) for patchset in (False, True) for _ in range(20)]
    damaged = [_damaged(r, files) for _ in range(rounds * _PER_ROUND)]
    yield _reading(damaged)
    yield _combining(damaged, files)
    yield _applying(damaged, r)
    yield _comparing(r, rounds)


def _recorded(r: random.Random, patchset: bool) -> bytes:
    """What a session records of some work."""
    connection = _database()
    session = apsw.Session(connection, "main")
    session.config(apsw.SQLITE_SESSION_OBJCONFIG_ROWID, 1)
    session.attach()
    for _ in range(r.randint(1, 12)):
        number = r.randint(1, 9)
        statement = r.choice(
            [
                "INSERT OR IGNORE INTO users VALUES (:n, 'new', :n)",
                "UPDATE users SET name = name || 'x', age = :n WHERE id = :n",
                "DELETE FROM pets WHERE owner = :n",
                "INSERT OR IGNORE INTO pets VALUES ('p' || :n, 1, zeroblob(:n * 30))",
                "INSERT INTO notes VALUES (:n, 'n')",
                "UPDATE notes SET b = :n",
            ]
        )
        connection.execute(statement, {"n": number})
    return session.patchset() if patchset else session.changeset()


def _database() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(_SCHEMA)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _damaged(r: random.Random, files: list[bytes]) -> bytes:
    data = bytearray(r.choice(files))
    for _ in range(r.choice([0, 1, 1, 1, 2, 5])):
        place = r.randrange(len(data) + 1)
        kind = r.randrange(7)
        if kind == 0:
            del data[place:]
        elif kind == 1:
            data[place:place] = r.choice(files)[: r.randint(1, 60)]
        elif kind == 2:
            del data[place : place + r.randint(1, 20)]
        elif kind == 3:
            data += data[place : place + 100]
        elif kind == 4:
            data[place:place] = bytes(r.choices(_MARKERS, k=r.randint(1, 6)))
        elif place < len(data):
            data[place] = r.choice(_MARKERS) if kind == 5 else data[place] ^ (1 << r.randrange(8))
    return bytes(data)


def _reading(damaged: list[bytes]) -> Tally:
    tally = Tally("mutated files: parse, iterate, show, sql")
    for data in damaged:
        _guarded(tally, data, lambda data=data: _read(data))
    return tally


def _read(data: bytes) -> str | None:
    changes = parse(data)
    if bytes(changes) != data or len(changes) != len(list(iterate(io.BytesIO(data)))):
        return "a parsed file is not the same bytes again"
    for lines in (text_lines(changes), json_lines(changes)):
        for line in lines:
            line.encode(errors="surrogateescape")
    for _ in to_sql(operation for operation in changes if operation.table.is_named):
        pass
    return None


def _combining(damaged: list[bytes], files: list[bytes]) -> Tally:
    tally = Tally("mutated files: concat, invert, rebase")
    for number, data in enumerate(damaged):
        other = files[number % len(files)]
        _guarded(tally, data, lambda data=data, other=other: _combine(data, other))
    return tally


def _combine(data: bytes, other: bytes) -> str | None:
    told = _result(lambda: bytes(concat(data, other))), _result(lambda: merged([data, other]))
    if isinstance(told[0], bytes) and isinstance(told[1], bytes) and told[0] != told[1]:
        return "SQLite and the model merge to different bytes"
    told = _result(lambda: bytes(invert(data))), _result(lambda: inverted(data))
    if isinstance(told[0], bytes) and isinstance(told[1], bytes) and list(iterate(told[0])) != list(iterate(told[1])):
        return "SQLite and the model invert to different bytes"
    if isinstance(parse(data), Changeset):
        rebase(data, b"")
    return None


def _result(call: Callable[[], bytes]) -> bytes | str:
    try:
        return call()
    except DriftlineError as error:
        return error.code


def _applying(damaged: list[bytes], r: random.Random) -> Tally:
    tally = Tally("mutated files: apply, whole or not at all")
    for data in damaged:
        options: dict[str, Any] = {
            "on_conflict": r.choice(["abort", "omit", "replace"]),
            "invert": r.random() < 0.2,
            "skip_missing_tables": r.random() < 0.5,
            "triggers": r.random() < 0.5,
            "change_filter": r.choice([None, None, lambda operation: operation.kind != "delete"]),
        }
        _guarded(tally, data, lambda data=data, options=options: _apply(data, options))
    return tally


def _comparing(r: random.Random, rounds: int) -> Tally:
    """Damaged database files: compared, dumped and merged, or refused in words."""
    tally = Tally("mutated databases: diff, dump, merge")
    with tempfile.TemporaryDirectory() as folder:
        old, new, ours = (os.path.join(folder, name) for name in ("old.db", "new.db", "ours.db"))
        connection = apsw.Connection(old)
        connection.execute(_SCHEMA)
        connection.execute("CREATE INDEX i ON users (age); ANALYZE")
        connection.close()
        whole = Path(old).read_bytes()
        for _ in range(rounds * 2):
            damaged = bytearray(whole)
            for _ in range(r.choice([1, 1, 2, 8])):
                damaged[r.randrange(16, len(damaged))] = r.randrange(256)
            Path(new).write_bytes(mutate(whole, r) if r.random() < 0.2 else damaged)
            Path(ours).write_bytes(whole)
            _guarded(tally, b"", lambda: _compare(old, new, ours, whole))
    return tally


def _compare(old: str, new: str, ours: str, whole: bytes) -> str | None:
    for call in (
        lambda: diff(old, new, allow_incomplete=True),
        lambda: diff(new, old, allow_incomplete=True),
        lambda: list(dump_lines(new)),
    ):
        with contextlib.suppress(DriftlineError):
            call()
    merged = merge(old, ours, new)
    if merged.problems and Path(ours).read_bytes() != whole:
        return "a merge that was refused changed ours"
    return None


def _apply(data: bytes, options: dict[str, Any]) -> str | None:
    connection = _database()
    before = _content(connection)
    try:
        applied = apply(data, connection, **options)
    except DriftlineError:
        return None if _content(connection) == before else "a file that was refused changed the database"
    counts = [report for report in applied.tables.values() if report.applied < 0]
    if counts:
        return f"a report does not add up: {counts}"
    dangling = connection.execute("PRAGMA foreign_key_check").fetchall()
    return f"dangling rows: {dangling}" if dangling else None


def _content(connection: apsw.Connection) -> str:
    tables = ("users", "pets", "notes", "log")
    return repr([connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables])


def _guarded(tally: Tally, data: bytes, call: Callable[[], str | None]) -> None:
    tally.tried += 1
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(_SECONDS)
    try:
        complaint = call()
    except DriftlineError:
        complaint = None
    except TimeoutError:
        tally.hang(data.hex())
        return
    except BaseException as error:
        tally.traceback(f"{type(error).__name__}: {error}: {data.hex()}")
        return
    finally:
        signal.alarm(0)
    if complaint is not None:
        tally.loss(f"{complaint}: {data.hex()}")


def _too_long(number: int, frame: Any) -> None:
    raise TimeoutError
