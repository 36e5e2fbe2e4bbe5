"""Databases and files of changes as commands: diff against SQLite's own and sqldiff, concat and invert against streams.

Each contender is a process of its own, so that its peak memory is known; files lie on disk.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import apsw

from benchmarks.contest import DATA, ROOT, Contender, Row, driftline_command, hold

STREAMS = ROOT / "benchmarks" / "peers" / "sqlite_streams.py"
SHAPES = {
    "integer key": "id INTEGER PRIMARY KEY, name TEXT, amount REAL, note TEXT",
    "text key": "id TEXT PRIMARY KEY NOT NULL, name TEXT, amount REAL, note TEXT",
    "without rowid": "id TEXT PRIMARY KEY NOT NULL, name TEXT, amount REAL, note TEXT",
    "no key": "id INTEGER, name TEXT, amount REAL, note TEXT",
}
CHANGED_SHARE = 100  # one row in a hundred is inserted, deleted and updated


def run(full: bool) -> list[Row]:
    count = 1_000_000 if full else 50_000
    rows: list[Row] = []
    for shape in SHAPES:
        old, new = _databases(shape, count)
        rows += _diff(f"diff, {count:,} rows, {shape}", shape, old, new)
    return rows + _files(count)


def _databases(shape: str, count: int) -> tuple[Path, Path]:
    DATA.mkdir(parents=True, exist_ok=True)
    old, new = (DATA / f"{side}-{shape.replace(' ', '-')}-{count}.db" for side in ("old", "new"))
    if old.exists() and new.exists():
        return old, new
    for path in (old, new):
        path.unlink(missing_ok=True)
    connection = apsw.Connection(str(old))
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(f"CREATE TABLE t ({SHAPES[shape]}){' WITHOUT ROWID' if shape == 'without rowid' else ''}")
    key = "n" if "id INTEGER" in SHAPES[shape] else "printf('K-%09d', n * 7919 % 1000003 * 1000 + n % 1000)"
    with connection:
        connection.execute(
            "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < ?) INSERT INTO t "
            f"SELECT {key}, 'name ' || n % 9973, n * 0.25, 'a note of some length, number ' || n FROM s",
            (count,),
        )
    connection.close()
    shutil.copyfile(old, new)
    connection = apsw.Connection(str(new))
    connection.execute("PRAGMA synchronous = OFF")
    rowid = "CAST(substr(note, 31) AS INTEGER)"
    with connection:
        connection.execute(f"DELETE FROM t WHERE {rowid} % {CHANGED_SHARE} = 1")
        connection.execute(f"UPDATE t SET amount = -1 WHERE {rowid} % {CHANGED_SHARE} = 2")
        connection.execute(
            f"INSERT INTO t SELECT {'id + 100000000' if 'id INTEGER' in SHAPES[shape] else 'id || id'}, name, amount, "
            f"note FROM t WHERE {rowid} % {CHANGED_SHARE} = 3"
        )
    connection.close()
    return old, new


def _diff(case: str, shape: str, old: Path, new: Path) -> list[Row]:
    ours, theirs = DATA / "ours.bin", DATA / "theirs.bin"
    contenders = [
        Contender("driftline", _any_exit(driftline_command("changeset", "diff", str(old), str(new), "-o", str(ours))))
    ]
    if shape != "no key":
        command = [sys.executable, str(STREAMS), "diff", str(old), str(new), str(theirs)]
        contenders.append(Contender("session_diff through apsw", command))
    if shutil.which("sqldiff"):
        contenders.append(Contender("sqldiff --changeset", ["sqldiff", "--changeset", str(theirs), str(old), str(new)]))
    rows = hold(case, contenders)
    rows[0].figures["file_mb"] = ours.stat().st_size / 1e6
    return rows


def _any_exit(command: list[str]) -> list[str]:
    """A diff ends with 1 where there are differences, which is no failure here."""
    return ["sh", "-c", '"$@"; [ $? -le 1 ]', "sh", *command]


def _files(count: int) -> list[Row]:
    """Two files with half of the keys in common, large enough that starting Python does not decide."""
    first, second, out = (DATA / f"{name}-{count}.bin" for name in ("first", "second", "out"))
    command = [sys.executable, str(STREAMS), "make", str(count), str(first), str(second)]
    hold("make two files", [Contender("apsw", command)], rounds=1)
    rows: list[Row] = []
    for verb, files in (("concat", [first, second]), ("invert", [first])):
        names = list(map(str, files))
        contenders = [
            Contender("driftline", driftline_command("changeset", verb, *names, "-o", str(out))),
            Contender("apsw streams", [sys.executable, str(STREAMS), verb, *names, str(out)]),
        ]
        found = hold(f"{verb}, {count:,} records a file", contenders)
        found[0].figures["file_mb"] = sum(file.stat().st_size for file in files) / 1e6
        rows += found
    return rows + _apply(first, count)


def _apply(changes: Path, count: int) -> list[Row]:
    """All records of a file put into an empty table of a new database."""
    empty, database = DATA / "empty.db", DATA / "applied.db"
    empty.unlink(missing_ok=True)
    apsw.Connection(str(empty)).execute(f"CREATE TABLE t ({SHAPES['integer key']})")
    fresh = ["sh", "-c", f'cp {empty} {database} && "$@"', "sh"]
    ours = driftline_command("changeset", "apply", str(changes), str(database))
    theirs = [sys.executable, str(STREAMS), "apply", str(changes), str(database)]
    contenders = [Contender("driftline", [*fresh, *ours]), Contender("apsw", [*fresh, *theirs])]
    return hold(f"apply, {count:,} records", contenders)
