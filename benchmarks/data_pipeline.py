"""Nights of tables for the pipeline benchmark: seeded, 8 columns, about 100 bytes a row, each night shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

NIGHTS = ("2026-03-01", "2026-03-02", "2026-03-03")
CHANGED, ADDED, REMOVED = 0.01, 0.005, 0.005  # 2 % in all


def write_tables(directory: Path, sizes: dict[str, int], nights: Sequence[str] = NIGHTS) -> None:
    """`{table}-{date}.csv` for each table and night, unless they are there."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, (table, rows) in enumerate(sizes.items()):
        if not (directory / f"{table}-{nights[-1]}.csv").exists():
            chance = np.random.default_rng(number)
            night = first_night(chance, rows)
            for name in nights:
                night.sample(fraction=1.0, shuffle=True, seed=number).write_csv(directory / f"{table}-{name}.csv")
                night = next_night(chance, night)


def first_night(chance: np.random.Generator, rows: int) -> pl.DataFrame:
    return make_rows(chance, np.arange(rows))


def make_rows(chance: np.random.Generator, numbers: np.ndarray) -> pl.DataFrame:
    count = len(numbers)
    digits = pl.Series(numbers).cast(pl.String).str.zfill(9)
    return pl.DataFrame(
        {
            "id": "K" + digits,
            "name": "customer number " + digits,
            "city": pl.Series(chance.integers(0, 500, count)).cast(pl.String) + " Example Street",
            "amount": pl.Series(chance.integers(0, 10**7, count) / 100).round(2),
            "status": pl.Series(chance.integers(0, 5, count)).replace_strict(
                {0: "new", 1: "paid", 2: "packed", 3: "shipped", 4: "done"}, return_dtype=pl.String
            ),
            "day": "2026-" + pl.Series(chance.integers(1, 13, count)).cast(pl.String).str.zfill(2) + "-15",
            "code": pl.Series(chance.integers(10**11, 10**12, count)).cast(pl.String),
            "note": pl.Series(chance.integers(0, 1000, count)).cast(pl.String) + " units, leave at the door",
        }
    )


def next_night(chance: np.random.Generator, night: pl.DataFrame) -> pl.DataFrame:
    rows = night.height
    fate = chance.random(rows)
    changed = pl.Series(chance.integers(0, 10**7, rows) / 100).round(2)
    kept = night.with_columns(
        amount=pl.when(pl.Series(fate < CHANGED)).then(changed).otherwise(pl.col("amount"))
    ).filter(pl.Series(fate < 1 - REMOVED))
    start = int(night["id"].max()[1:]) + 1
    return pl.concat([kept, make_rows(chance, np.arange(start, start + int(rows * ADDED)))])
