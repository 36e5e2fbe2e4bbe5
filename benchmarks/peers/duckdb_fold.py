"""What a user would write by hand: fold a lake's delta files with DuckDB and write base and deletes, stamps included.

Run with a Python that has duckdb: `python duckdb_fold.py LAKE OUT [--as-of HLC]`.
"""

from __future__ import annotations

import argparse
import pathlib

import duckdb

COLUMNS = ["name", "city", "amount", "count", "active", "note"]
STAMP = "{'hlc': _hlc, 'client': _client_id, 'mark': substr(_delta_id, 1, 16)}"


def fold_sql(files: str, condition: str) -> str:
    """One aggregation: per column the value and stamp of its greatest delta, per row its life and death."""
    # Client ids of the benchmark are ASCII: plain string order is UTF-16 order here.
    order = "(_hlc, _client_id, _delta_id)"
    parts = [
        "max(s) FILTER (_op <> 'DELETE') AS live",
        "max(s) FILTER (_op = 'DELETE') AS deleted",
    ]
    for column in COLUMNS:
        present = f"list_contains(_columns, '{column}')"
        parts.append(f"arg_max({{'v': \"{column}\", 's': s}}, s) FILTER ({present}) AS \"w_{column}\"")
    return f"""
        SELECT _row_id, {", ".join(parts)}
        FROM (SELECT *, {STAMP} AS s FROM read_parquet({files}) WHERE {condition})
        GROUP BY _row_id
    """.replace(order, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lake")
    parser.add_argument("out")
    parser.add_argument("--as-of", type=int)
    given = parser.parse_args()
    out = pathlib.Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    files = sorted(map(str, pathlib.Path(given.lake, "tables/orders/deltas").rglob("*.parquet")))
    condition = "true" if given.as_of is None else f"_hlc <= {given.as_of}"
    connection = duckdb.connect()
    connection.execute("SET threads = 2; SET preserve_insertion_order = false")
    connection.execute(f"CREATE TEMP TABLE folded AS {fold_sql(str(files), condition)}")
    alive = "live IS NOT NULL AND (deleted IS NULL OR live > deleted)"
    visible = "(deleted IS NULL OR w_{0}.s > deleted)"
    values = ", ".join(f'CASE WHEN {visible.format(c)} THEN w_{c}.v END AS "{c}"' for c in COLUMNS)
    stamps = ", ".join(f"'{c}': CASE WHEN {visible.format(c)} THEN w_{c}.s END" for c in COLUMNS)
    row_stamps = f"{{'live': live, 'deleted': deleted, 'columns': {{{stamps}}}}} AS _stamps"
    target = "(FORMAT parquet, COMPRESSION zstd)"
    connection.execute(
        f"COPY (SELECT _row_id, {values}, {row_stamps} FROM folded WHERE {alive} ORDER BY _row_id) "
        f"TO '{out}/base.parquet' {target}"
    )
    connection.execute(
        f"COPY (SELECT _row_id, deleted AS _deleted FROM folded WHERE NOT ({alive}) ORDER BY _row_id) "
        f"TO '{out}/deletes.parquet' {target}"
    )
    count = connection.execute(f"SELECT count(*) FROM read_parquet('{out}/base.parquet')").fetchone()
    print(count[0])


if __name__ == "__main__":
    main()
