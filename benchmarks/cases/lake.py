"""The lake: compaction, incremental compaction, as-of queries and extraction, against DuckDB by hand and MERGE."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.contest import DATA, PEERS_PYTHON, ROOT, Contender, Row, hold
from benchmarks.data_lake import START, add_updates, write_inserts, write_lake

PEERS = ROOT / "benchmarks" / "peers"


def run(full: bool) -> list[Row]:
    deltas, rows = (5_000_000, 1_000_000) if full else (500_000, 100_000)
    lake = _lake("fold", deltas, rows)
    middle = START + deltas // 2
    return [
        *hold(f"compact {deltas:,} deltas over {rows:,} rows", _folders(lake), rounds=3 if full else 1),
        *hold(
            f"state as of the middle of {deltas:,} deltas",
            [
                _ours("as-of", lake, "--as-of", str(middle)),
                _duckdb(lake, "as of", "--as-of", str(middle)),
            ],
            rounds=2 if full else 1,
        ),
        *_driver_memory(full),
        *_incremental(full),
        *_row_by_row(full),
        *_extraction(full),
    ]


def _folders(lake: Path) -> list[Contender]:
    return [
        _ours("compact", lake),
        _ours("compact", lake, "--fresh"),
        _ours("compact", lake, "--engine", "local"),
        _duckdb(lake, "by hand"),
        _merge(lake, "all files at once, no stamps", "--once"),
        _merge(lake, "all files at once, with stamps", "--once", "--stamps"),
        _merge(lake, "file by file, no stamps"),
    ]


def _merge(lake: Path, name: str, *options: str) -> Contender:
    return _script(f"delta-rs MERGE, {name}", sys.executable, "deltars_merge.py", str(lake), f"{lake}-merge", *options)


def _driver_memory(full: bool) -> list[Row]:
    """The Python driver's peak while compacting ever more deltas."""
    sizes = [1_000_000, 10_000_000] if full else [100_000, 300_000]
    rows: list[Row] = []
    for size in sizes:
        lake = _lake(f"driver-{size}", size, size // 5, real_ids=False)
        rows += hold(f"driver memory, {size:,} deltas", [_ours("compact", lake)], rounds=1)
    return rows


def _incremental(full: bool) -> list[Row]:
    """1 % of the rows touched: all within 5 % of the row ids, then spread at random; against the full compaction."""
    rows = 10_000_000 if full else 300_000
    lake = DATA / f"lake-incremental-{rows}"
    if not lake.exists():
        write_inserts(str(lake), rows)
    table = hold(f"{rows:,} rows: full compaction", [_ours("compact", lake)], rounds=1)
    rng = np.random.default_rng(1)
    moment = START + 10 * rows + time.time_ns() // 1000  # after everything that earlier runs left
    near = rows // 2 + rng.choice(rows // 20, rows // 100, replace=False)
    for name, numbers in (("within 5 % of the ids", near), ("at random", rng.choice(rows, rows // 100, replace=False))):
        from driftline.lake import Lake

        add_updates(Lake(str(lake)), numbers, seed=2, start=moment)
        moment += rows
        table += hold(f"{rows:,} rows: 1 % touched, {name}", [_ours("incremental", lake)], rounds=1)
    return table


def _row_by_row(full: bool) -> list[Row]:
    """`extract` with its ids, one row after the other on one core."""
    from driftline.deltas import extract

    count = 200_000 if full else 50_000
    before = {"name": "Ann", "city": "Oslo", "amount": 1.5, "count": 3, "active": True, "note": "x"}
    versions = [(before, {**before, "amount": number / 7, "note": f"note {number}"}) for number in range(count)]
    inserts = [(None, {**before, "count": number}) for number in range(count)]

    def measured(pairs: list[tuple[dict[str, object] | None, dict[str, object]]]) -> dict[str, float]:
        start = time.perf_counter()
        for number, (old, new) in enumerate(pairs):
            extract(old, new, table="orders", row_id=str(number), client_id="client-1", hlc=START + number)
        wall = time.perf_counter() - start
        return {"wall_s": wall, "per_s": count / wall}

    return [
        *hold(
            "extract + delta_id, updates of 2 of 6 columns", [Contender("driftline", call=partial(measured, versions))]
        ),
        *hold("extract + delta_id, inserts of 6 columns", [Contender("driftline", call=partial(measured, inserts))]),
    ]


def _extraction(full: bool) -> list[Row]:
    """Two snapshots, 2 % of the rows changed: extraction into a lake against the table diff of the same files."""
    rows = 1_000_000 if full else 100_000
    a, b = _snapshots(rows)
    work = [
        _script("table diff (spark)", sys.executable, "lake_extract.py", "diff", str(a), str(b)),
        _script("lake extract (spark)", sys.executable, "lake_extract.py", "extract", str(a), str(b)),
    ]
    return hold(f"two snapshots of {rows:,} rows, 2 % changed", work, rounds=3 if full else 1)


def _snapshots(rows: int) -> tuple[Path, Path]:
    a, b = DATA / f"lake-a-{rows}.csv", DATA / f"lake-b-{rows}.csv"
    if not b.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(3)
        changed = set(rng.choice(rows, rows // 50, replace=False).tolist())
        header = "id,name,city,amount,count,active,note,extra\n"
        with open(a, "w") as first, open(b, "w") as second:
            first.write(header)
            second.write(header)
            for number in rng.permutation(rows).tolist():
                line = f"k{number:09d},name of {number},city {number % 997},{number / 7:.2f},{number % 100},true,note"
                first.write(f"{line} {number},x\n")
                second.write(f"{line} {'changed' if number in changed else number},x\n")
    return a, b


def _lake(name: str, deltas: int, rows: int, *, real_ids: bool = True) -> Path:
    path = DATA / f"lake-{name}-{deltas}"
    if not path.exists():
        write_lake(str(path), deltas, rows, real_ids=real_ids)
    return path


def _ours(job: str, lake: Path, *options: str) -> Contender:
    engine = "local" if "local" in options else "spark local[2]"
    engine += ", first job of a session" if "--fresh" in options else ""
    return _script(f"driftline ({engine})", sys.executable, "lake_driftline.py", job, str(lake), *options)


def _duckdb(lake: Path, name: str, *options: str) -> Contender:
    return _script(f"DuckDB, {name}", str(PEERS_PYTHON), "duckdb_fold.py", str(lake), f"{lake}-duckdb", *options)


def _script(name: str, python: str, script: str, *arguments: str) -> Contender:
    return Contender(name, call=partial(_figures, [python, str(PEERS / script), *arguments]))


def _figures(command: list[str]) -> dict[str, float]:
    """The figures that a script prints about itself: the session is up before its clock starts."""
    import os

    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures
