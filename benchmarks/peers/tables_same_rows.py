"""A keyed diff as a few lines of Polars or DuckDB: every row that differs with its key, before and after, as JSONL.

    python tables_same_rows.py polars|duckdb A B OUT KEY…

Rows are found by their hashes, ordered by key and written by the library itself; nothing is checked. A side is CSV,
whose cells are text, Parquet or JSON Lines.
"""

from __future__ import annotations

import sys


def by_polars(a: str, b: str, out: str, keys: list[str]) -> None:
    import polars as pl

    def read(path: str) -> pl.LazyFrame:
        if path.endswith(".parquet"):
            return pl.scan_parquet(path)
        if path.endswith(".jsonl"):
            return pl.scan_ndjson(path)
        return pl.scan_csv(path, infer_schema=False, empty_string_is_null=False)

    before, after = pl.collect_all([read(a), read(b)])
    hashed = [
        frame.select(*keys, frame.hash_rows().alias("hash")).with_row_index("at").lazy() for frame in (before, after)
    ]
    joined = hashed[0].join(hashed[1], on=keys, how="full", coalesce=True, suffix="_b")
    found = joined.filter(pl.col("hash").ne_missing(pl.col("hash_b"))).sort(keys).collect()
    columns = [found.select(pl.struct(keys).alias("key")).to_series()]
    for name, frame, at in (("before", before, found["at"]), ("after", after, found["at_b"])):
        rows = frame.select(pl.struct(pl.all()).alias(name)).to_series()
        columns.append(
            rows.gather(at.fill_null(0)).to_frame().select(pl.when(pl.lit(at.is_not_null())).then(name)).to_series()
        )
    pl.DataFrame(columns).write_ndjson(out)


def by_duckdb(a: str, b: str, out: str, keys: list[str]) -> None:
    import duckdb

    def read(path: str) -> str:
        if path.endswith(".csv"):
            return (
                f"read_csv('{path}', header=true, delim=',', quote='\"', escape='\"', all_varchar=true, nullstr='\x01')"
            )
        return f"'{path}'" if path.endswith(".parquet") else f"read_json('{path}', format='newline_delimited')"

    database = duckdb.connect()
    database.execute("SET threads = 2")
    for name, path in (("a", a), ("b", b)):
        database.execute(f"CREATE TEMP TABLE {name} AS SELECT {name}, hash({name}) AS h FROM {read(path)} AS {name}")
    same = " AND ".join(f'a.a."{key}" = b.b."{key}"' for key in keys)
    key = ", ".join(f'\'{key}\': coalesce(a.a."{key}", b.b."{key}")' for key in keys)
    order = ", ".join(f'coalesce(a.a."{key}", b.b."{key}")' for key in keys)
    rows = f"""
        SELECT {{{key}}} AS key, a.a AS before, b.b AS after FROM a FULL OUTER JOIN b ON {same}
        WHERE a.h IS DISTINCT FROM b.h ORDER BY {order}"""
    database.execute(f"COPY ({rows}) TO '{out}' (FORMAT json)")


if __name__ == "__main__":
    {"polars": by_polars, "duckdb": by_duckdb}[sys.argv[1]](*sys.argv[2:5], sys.argv[5:])
