"""How a table diff grows with its input: the same table at four sizes, on this machine and on Spark local[2]."""

from __future__ import annotations

from benchmarks.contest import DATA, Contender, Row, driftline_command, hold
from benchmarks.data_pipeline import NIGHTS, write_tables

SIZES = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
QUICK_SHARE = 20


def run(full: bool) -> list[Row]:
    rows: list[Row] = []
    for size in SIZES if full else [size // QUICK_SHARE for size in SIZES]:
        folder = DATA / "growth"
        write_tables(folder, {f"table-{size}": size}, NIGHTS[:2])
        pair = [str(folder / f"table-{size}-{night}.csv") for night in NIGHTS[:2]]
        diff = [*driftline_command("diff"), *pair, "--key", "id", "--output", str(folder / "events.jsonl")]
        contenders = [
            Contender("local", [*diff, "--engine", "local"]),
            Contender("Spark local[2]", [*diff, "--engine", "spark", "--master", "local[2]"]),
        ]
        rows += hold(f"diff of 2 x {size:,} rows", contenders, rounds=2 if size < 5_000_000 else 1)
    return rows
