"""delta-rs' own MERGE: each delta file, reduced to one row per key, merged into a table; no stamps are kept.

`python deltars_merge.py LAKE OUT` prints the figures as JSON. It does less than the fold (no per-column stamps, so a
late delta would merge wrongly), which is in its favour.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import sys
import time

import polars as pl
from deltalake import DeltaTable, write_deltalake

COLUMNS = ["name", "city", "amount", "count", "active", "note"]


def newest_per_row(path: pathlib.Path) -> pl.DataFrame:
    frame = pl.read_parquet(path, columns=["_op", "_row_id", "_hlc", *COLUMNS]).sort("_hlc")
    values = [pl.col(column).drop_nulls().last() for column in COLUMNS]
    return frame.group_by("_row_id").agg(pl.col("_op").last(), pl.col("_hlc").last(), *values)


def merge(target: DeltaTable, source: pl.DataFrame) -> None:
    updates = {column: f"coalesce(s.{column}, t.{column})" for column in COLUMNS}
    inserts = {name: f"s.{name}" for name in ("_row_id", "_hlc", *COLUMNS)}
    (
        target.merge(source.to_arrow(), predicate="t._row_id = s._row_id", source_alias="s", target_alias="t")
        .when_matched_delete(predicate="s._op = 'DELETE'")
        .when_matched_update({**updates, "_hlc": "s._hlc"})
        .when_not_matched_insert(inserts, predicate="s._op <> 'DELETE'")
        .execute()
    )


def main() -> None:
    lake, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    shutil.rmtree(out, ignore_errors=True)
    files = sorted(lake.joinpath("tables/orders/deltas").rglob("*.parquet"))
    start = time.perf_counter()
    first = newest_per_row(files[0]).filter(pl.col("_op") != "DELETE").drop("_op")
    write_deltalake(str(out), first.to_arrow())
    for path in files[1:]:
        merge(DeltaTable(str(out)), newest_per_row(path))
    print(json.dumps({"wall_s": time.perf_counter() - start, "rows": DeltaTable(str(out)).count()}))


if __name__ == "__main__":
    main()
