"""Two frames in memory: driftline against a join written by hand. Prints the best of some rounds, in seconds."""

from __future__ import annotations

import sys
import time

import polars as pl

ROUNDS = 3


def with_join(a: pl.DataFrame, b: pl.DataFrame) -> int:
    """Counts alone: no order, no events, no check of the keys."""
    others = [name for name in a.columns if name != "id"]
    both = a.join(b, on="id", how="full", suffix="_b")
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_b")) for name in others)
    removed, added = both.filter(pl.col("id_b").is_null()), both.filter(pl.col("id").is_null())
    changed = both.filter(pl.col("id").is_not_null() & pl.col("id_b").is_not_null() & differs)
    return len(removed) + len(added) + len(changed)


def with_driftline(a: pl.DataFrame, b: pl.DataFrame) -> int:
    import driftline

    return len(driftline.diff(a, b, key="id"))


WAYS = {"driftline": with_driftline, "Polars join": with_join}


def main(way: str, *paths: str) -> None:
    types = {"id": pl.Int64, "amount": pl.Float64}
    a, b = (pl.read_csv(path, infer_schema=False).cast(types, strict=False) for path in paths)
    taken, counts = [], set()
    for _ in range(ROUNDS):
        started = time.perf_counter()
        counts.add(WAYS[way](a, b))
        taken.append(time.perf_counter() - started)
    print(min(taken), *counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
