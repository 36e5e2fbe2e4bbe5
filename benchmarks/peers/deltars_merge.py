"""delta-rs' own MERGE: deltas folded to one row per key with Polars, then merged into a Delta table.

`python deltars_merge.py LAKE OUT [--once] [--stamps]` prints the figures as JSON. Without `--once` every delta file is
folded and merged in turn, as they would arrive; with it all files are folded together and merged into an empty table,
which leaves MERGE nothing to do but insert. `--stamps` keeps for each column the hlc, client and delta id that a late
delta would have to be compared with. Neither keeps equality deletes, target file sizes or the order by row id, and
timestamps are taken to be unique, which is all in its favour.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import time
from collections.abc import Sequence

import polars as pl
from deltalake import DeltaTable, write_deltalake

COLUMNS = ["name", "city", "amount", "count", "active", "note"]


def folded(paths: Sequence[pathlib.Path], stamps: bool) -> pl.DataFrame:
    """One row per key: the newest values, whether each is set, and whether the row was deleted and lives again."""
    kept = ["_client_id", "_delta_id"] if stamps else []
    wanted = ["_op", "_row_id", "_hlc", "_columns", *COLUMNS, *kept]
    frame = pl.concat([pl.read_parquet(path, columns=wanted) for path in paths]).sort("_hlc")
    is_delete = pl.col("_op") == "DELETE"
    frame = frame.with_columns(pl.col("_columns").list.contains(column).alias(f"has_{column}") for column in COLUMNS)
    found = [pl.col("_hlc").filter(is_delete).last().alias("deleted"), pl.col("_hlc").filter(~is_delete).last()]
    for column in COLUMNS:
        newest = [pl.col(column), pl.col("_hlc").alias(f"h_{column}")]
        newest += [pl.col(name).alias(f"{name}_{column}") for name in kept]
        found += [each.filter(pl.col(f"has_{column}")).last() for each in newest]
    rows = frame.group_by("_row_id").agg(found)
    for column in COLUMNS:
        shown = pl.col("deleted").is_null() | (pl.col(f"h_{column}") > pl.col("deleted"))
        rows = rows.with_columns(pl.when(shown).then(pl.col(name)).alias(name) for name in (column, f"h_{column}"))
    return rows


def target_columns(rows: pl.DataFrame, stamps: bool) -> list[str]:
    return [name for name in rows.columns if stamps or name in ("_row_id", "_hlc", *COLUMNS)]


def alive(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(
        pl.col("_hlc").is_not_null() & (pl.col("deleted").is_null() | (pl.col("_hlc") > pl.col("deleted")))
    )


def merge(target: DeltaTable, rows: pl.DataFrame, stamps: bool) -> None:
    """Files come in the order of their timestamps here, so what the source sets is newer than what the target has."""
    set_by_source = {column: f"s.h_{column} IS NOT NULL OR s.deleted IS NOT NULL" for column in COLUMNS}
    updates = {name: f"CASE WHEN {_rule(name, set_by_source)} THEN s.{name} ELSE t.{name} END"
               for name in target_columns(rows, stamps) if name != "_row_id"}  # fmt: skip
    dies = "s.deleted IS NOT NULL AND (s._hlc IS NULL OR s._hlc < s.deleted)"
    (
        target.merge(rows.to_arrow(), predicate="t._row_id = s._row_id", source_alias="s", target_alias="t")
        .when_matched_delete(predicate=dies)
        .when_matched_update(updates)
        .when_not_matched_insert(
            {name: f"s.{name}" for name in target_columns(rows, stamps)}, predicate=f"NOT ({dies})"
        )
        .execute()
    )


def _rule(name: str, set_by_source: dict[str, str]) -> str:
    owners = [column for column in COLUMNS if name == column or name.endswith(f"_{column}")]
    return set_by_source[owners[0]] if owners else f"s.{name} IS NOT NULL"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lake")
    parser.add_argument("out")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--stamps", action="store_true")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    files = sorted(pathlib.Path(given.lake, "tables/orders/deltas").rglob("*.parquet"))
    start = time.perf_counter()
    first, *rest = [files] if given.once else [[path] for path in files]
    rows = folded(first, given.stamps)
    if given.once:
        write_deltalake(given.out, rows.clear().select(target_columns(rows, given.stamps)).to_arrow())
        merge(DeltaTable(given.out), rows, given.stamps)
    else:
        write_deltalake(given.out, alive(rows).select(target_columns(rows, given.stamps)).to_arrow())
    for paths in rest:
        merge(DeltaTable(given.out), folded(paths, given.stamps), given.stamps)
    wall = time.perf_counter() - start
    print(json.dumps({"wall_s": wall, "rows": DeltaTable(given.out).count()}))


if __name__ == "__main__":
    main()
