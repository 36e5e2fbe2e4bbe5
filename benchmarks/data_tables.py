"""Seeded pairs of CSV tables: 8 columns, about 100 bytes a row, B shuffled, a few rows changed, added and removed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

FIRST = ["Anna", "Boris", "Chloe", "Dmitri", "Eva", "Farid", "Greta", "Hugo", "Ines", "Jamal", "Katja", "Liam"]
LAST = ["Ivanova", "Smith", "Garcia", "Müller", "Tanaka", "Olsen", "Novak", "Rossi", "Dubois", "Kim", "Silva"]
CITIES = ["Berlin", "Paris", "São Paulo", "Washington, DC", "Tokyo", "Oslo", "Lima"]
STATES = ["active", "inactive", "pending", "closed"]


def make_pair(folder: Path, rows: int, *, changed: float = 0.01, moved: float = 0.005) -> tuple[Path, Path]:
    """Write `a.csv` and `b.csv` unless they are there; `moved` is the share added, and the share removed."""
    a, b = folder / "a.csv", folder / "b.csv"
    if a.is_file() and b.is_file():
        return a, b
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(7)
    table = _table(np.arange(1, rows + 1), seed=1)
    order = chance.permutation(rows)
    removed, touched = _marks(order[: int(rows * moved)], rows), _marks(order[rows - int(rows * changed) :], rows)
    mark = pl.Series(touched)
    after = table.with_columns(
        amount=pl.when(mark).then(pl.col("amount") + "9").otherwise(pl.col("amount")),
        status=pl.when(mark).then(pl.lit("CHANGED")).otherwise(pl.col("status")),
    ).filter(pl.Series(~removed))
    after = pl.concat([after, _table(np.arange(rows + 1, rows + 1 + int(rows * moved)), seed=2)])
    after[chance.permutation(len(after))].write_csv(b)
    table.write_csv(a)
    return a, b


def _marks(positions: np.ndarray, rows: int) -> np.ndarray:
    marks = np.zeros(rows, bool)
    marks[positions] = True
    return marks


def _table(ids: np.ndarray, seed: int) -> pl.DataFrame:
    chance, count = np.random.default_rng(seed), len(ids)
    first, last = np.array(FIRST)[chance.integers(0, 12, count)], np.array(LAST)[chance.integers(0, 11, count)]
    numbers = pl.Series("n", chance.integers(0, 2**62, count)).cast(pl.String)
    kind = pl.Series("q", chance.integers(0, 50, count))
    days = np.datetime64("2016-01-01") + chance.integers(0, 3650, count)
    frame = pl.DataFrame({"id": ids, "first": first, "last": last, "number": numbers, "kind": kind, "day": days})
    quoted, plain = pl.lit('said "hi", then left ') + pl.col("number"), pl.lit("note ") + pl.col("number")
    return frame.select(
        pl.col("id").cast(pl.String),
        name=pl.col("first") + " " + pl.col("last"),
        email=pl.col("first").str.to_lowercase() + "." + pl.col("id").cast(pl.String) + "@example.com",
        amount=pl.Series(chance.integers(0, 10_000_000, count) / 100).cast(pl.String),
        city=pl.Series(np.array(CITIES)[chance.integers(0, 7, count)]),
        status=pl.Series(np.array(STATES)[chance.integers(0, 4, count)]),
        updated=pl.col("day").cast(pl.String),
        note=pl.when(pl.col("kind") == 0).then(quoted).when(pl.col("kind") == 1).then(pl.lit("")).otherwise(plain),
    )
