"""Table diffs on one machine, cold process to finished ordered file, against what users would write instead.

The DuckDB and Polars scripts make the same events (`peers/tables_duckdb.py`, `peers/tables_polars.py`) and check
nothing: no widths, no encodings, no quoting.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks import data_table_shapes as shapes
from benchmarks.contest import DATA, ROOT, Contender, Row, driftline_command, hold, peer_command
from benchmarks.data_tables import make_pair

Pair = tuple[Path, Path]
MEMORY_LIMITS = ("500MB", "1GB")


def run(full: bool) -> list[Row]:
    million = 1_000_000 if full else 100_000
    folder = DATA / "tables"
    plain = make_pair(folder / str(million), million)
    changed = make_pair(folder / f"{million}-all-changed", million, changed=1.0, moved=0.0)
    small = make_pair(folder / "1000", 1000)
    rounds = 5 if full else 3
    rows = hold("1,000 rows", [_driftline(small), _duckdb(small), _polars(small)], rounds=rounds)
    rows += hold(f"{million:,} rows", [_driftline(plain), _duckdb(plain), _polars(plain)], rounds=rounds)
    bare = shapes.without_quotes(plain, folder / f"{million}-unquoted")
    rows += hold(f"{million:,} rows, no quotes", [_driftline(bare), _duckdb(bare), _polars(bare)], rounds=rounds)
    rows += hold(f"{million:,} rows, other tools", [_driftline(plain), *_tools(plain)], rounds=1)
    rows += hold(f"{million:,} rows, every row changed", [_driftline(changed), _duckdb(changed)], rounds=min(rounds, 3))
    rows += _rules(folder / f"numbers-{million}", plain, million, rounds)
    rows += hold(f"{million:,} rows, frames in memory", [_frames("driftline", plain), _frames("Polars join", plain)])
    rows += _shapes(folder / f"shapes-{million}", plain, million)
    if full:
        rows += _large(folder, million * 10)
    return rows


def _rules(folder: Path, plain: Pair, rows: int, rounds: int) -> list[Row]:
    """Two columns ignored and a tolerance on two of eight, against the plain diff and against datacompy's."""
    pair = shapes.with_two_numbers(plain, folder)
    rules = ["--ignore", "city", "--ignore", "updated", "--tolerance", "amount=0.005", "--tolerance", "note=0.005"]
    ruled = _driftline(pair, *rules, name="driftline with rules")
    found = hold(f"{rows:,} rows, rules", [_driftline(plain, name="driftline without rules"), ruled], rounds=rounds)
    other = Contender("datacompy", peer_command("tables_tools.py", "datacompy with rules", *map(str, pair), "id"))
    return found + hold(f"{rows:,} rows, the same rules", [ruled, other], rounds=2)


def _frames(way: str, pair: Pair) -> Contender:
    """Measured inside the process, when both frames are there."""
    script = ROOT / "benchmarks" / "peers" / "tables_frames.py"

    def call() -> dict[str, float]:
        command = [sys.executable, str(script), way, *map(str, pair)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return {"wall_s": float(said.split()[0])}

    return Contender(way, call=call)


def _large(folder: Path, rows: int) -> list[Row]:
    pair = make_pair(folder / str(rows), rows)
    quoted = shapes.with_quoted_cell(pair, folder / f"{rows}-quoted", 2000)
    limited = [_driftline(pair, "--memory", limit, name=f"driftline --memory {limit}") for limit in MEMORY_LIMITS]
    found = hold(f"{rows:,} rows", [_driftline(pair), _duckdb(pair)], rounds=2)
    found += hold(f"{rows:,} rows, memory", [_driftline(pair), *limited], rounds=1)
    return found + hold(
        f"{rows:,} rows, one multi-line cell",
        [_driftline(quoted, name="driftline, with the cell"), _driftline(pair, name="driftline, without it")],
        rounds=2,
    )


def _shapes(folder: Path, plain: Pair, rows: int) -> list[Row]:
    five = ["--key", "k1", "--key", "k2", "--key", "k3", "--key", "k4", "--key", "k5"]
    contenders = [
        _driftline(plain, name="plain, 8 columns"),
        _driftline(shapes.with_quoted_cell(plain, folder / "giant", rows * 30), name="one giant multi-line cell"),
        _driftline(shapes.one_column(folder / "one-column", rows), name="one column"),
        _driftline(shapes.many_columns(folder / "columns", rows // 20), name="300 columns, a twentieth of the rows"),
        _driftline(shapes.composite_key(folder / "five-keys", rows), *five, name="a key of five columns", key=None),
        _driftline(shapes.long_equal_prefixes(folder / "prefixes", rows), name="keys equal but the last characters"),
    ]
    return hold(f"{rows:,} rows, shapes", contenders, rounds=2)


def _driftline(pair: Pair, *options: str, name: str = "driftline", key: str | None = "id") -> Contender:
    keys = [] if key is None else ["--key", key]
    out = str(pair[0].with_name("local.jsonl"))
    return Contender(name, driftline_command("diff", *map(str, pair), *keys, *options, "--engine", "local", "-o", out))


def _duckdb(pair: Pair) -> Contender:
    return Contender("DuckDB", peer_command("tables_duckdb.py", *map(str, pair), "id", _out(pair)))


def _polars(pair: Pair) -> Contender:
    # In driftline's own environment: datacompy keeps the peers' one on an older Polars.
    script = ROOT / "benchmarks" / "peers" / "tables_polars.py"
    return Contender("Polars", [sys.executable, str(script), *map(str, pair), "id", _out(pair)])


def _tools(pair: Pair) -> list[Contender]:
    return [
        Contender(name, peer_command("tables_tools.py", name, *map(str, pair), "id"))
        for name in ("pandas", "datacompy", "csv-diff")
    ]


def _out(pair: Pair) -> str:
    return str(pair[0].with_name("peer.jsonl"))
