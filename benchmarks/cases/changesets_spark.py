"""A changeset beyond one process: made on Spark, concatenated within and beyond memory, applied.

The first file inserts every row of a table, the second one updates one row in ten. Beside driftline stands what SQLite
itself does with the same files through apsw; nothing else makes changesets on Spark.
"""

from __future__ import annotations

import sys
from pathlib import Path

import apsw

from benchmarks.contest import DATA, ROOT, Contender, Row, driftline_command, hold

STREAMS = ROOT / "benchmarks" / "peers" / "sqlite_streams.py"
HEADER = "id,name,amount,note\n"
SPARK = ("--engine", "spark", "--master", "local[2]")
SMALL_MEMORY = "512MB"


def run(full: bool) -> list[Row]:
    count = 10_000_000 if full else 100_000
    folder = DATA / "changesets-spark" / str(count)
    empty, old, new = _tables(folder, count)
    first, second, both = (str(folder / f"{name}.bin") for name in ("first", "second", "both"))
    engines = {"Spark local[2]": SPARK, "local engine": ("--engine", "local")}
    rows = hold(
        f"{count:,} inserts made",
        [_made(f"driftline, {n}", empty, old, first, e) for n, e in engines.items()],
        rounds=1,
    )
    rows += hold(
        f"{count // 10:,} updates made", [_made("driftline, Spark local[2]", old, new, second, SPARK)], rounds=1
    )
    concat = driftline_command("changeset", "concat", first, second, "-o", both)
    contenders = [
        Contender("driftline", concat),
        Contender(f"driftline, --memory {SMALL_MEMORY}", [*concat, "--memory", SMALL_MEMORY]),
        Contender("apsw streams", [sys.executable, str(STREAMS), "concat", first, second, both]),
    ]
    rows += hold(f"{count:,} and {count // 10:,} records concatenated", contenders, rounds=1)
    for row in rows:
        row.figures["first_mb"] = Path(first).stat().st_size / 1e6
    return rows + _applied(folder, both, count)


def _made(name: str, old: Path, new: Path, out: str, engine: tuple[str, ...]) -> Contender:
    words = ("diff", str(old), str(new), "--key", "id", "--format", "changeset", "--table", "t", "-o", out, *engine)
    return Contender(name, ["sh", "-c", '"$@"; [ $? -le 1 ]', "sh", *driftline_command(*words)])


def _applied(folder: Path, changes: str, count: int) -> list[Row]:
    empty, database = folder / "empty.db", folder / "applied.db"
    empty.unlink(missing_ok=True)
    apsw.Connection(str(empty)).execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, amount REAL, note TEXT)")
    fresh = ["sh", "-c", f'cp {empty} {database} && "$@"', "sh"]
    ours = driftline_command("changeset", "apply", changes, str(database))
    theirs = [sys.executable, str(STREAMS), "apply", changes, str(database)]
    contenders = [Contender("driftline", [*fresh, *ours]), Contender("apsw", [*fresh, *theirs])]
    rows = hold(f"{count:,} records applied", contenders, rounds=1)
    (found,) = apsw.Connection(str(database)).execute("SELECT count(*), sum(name = 'changed') FROM t")
    assert found == (count, count // 10), found
    return rows


def _tables(folder: Path, count: int) -> tuple[Path, Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    empty, old, new = (folder / f"{name}.csv" for name in ("empty", "old", "new"))
    if not new.exists():
        empty.write_text(HEADER)
        for path, step in ((old, 0), (new, 10)):
            with open(path, "w") as out:
                out.write(HEADER)
                out.writelines(_line(number, step) for number in range(count))
    return empty, old, new


def _line(number: int, step: int) -> str:
    name = "changed" if step and number % step == 0 else f"name {number % 9973}"
    return f'{number},{name},{number * 0.25},"a note, number {number}"\n'
