"""What a user would write by hand: fold a lake's delta files with DuckDB and write base and deletes, stamps included.

`python duckdb_fold.py LAKE OUT [--as-of HLC]` prints the figures as JSON. Timestamps of the benchmark are unique, so
`arg_max` over the hlc alone is right here; a general query would have to order by client and delta id too and is
slower. Of the ways tried (structs in `arg_max`, ranks, scalars) this is the quickest.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time

import duckdb

COLUMNS = ["name", "city", "amount", "count", "active", "note"]


def aggregates() -> list[str]:
    """Per column its newest value and stamp, per row the stamps of its life and death."""
    groups = [("live", "_op <> 'DELETE'"), ("deleted", "_op = 'DELETE'")]
    groups += [(f"w_{column}", f"list_contains(_columns, '{column}')") for column in COLUMNS]
    parts = []
    for name, condition in groups:
        if name.startswith("w_"):
            parts.append(f'arg_max_null("{name[2:]}", _hlc) FILTER ({condition}) AS {name}_v')
        parts += [
            f"max(_hlc) FILTER ({condition}) AS {name}_h",
            f"arg_max(_client_id, _hlc) FILTER ({condition}) AS {name}_c",
            f"arg_max(substr(_delta_id, 1, 16), _hlc) FILTER ({condition}) AS {name}_m",
        ]
    return parts


def stamp(name: str) -> str:
    return f"{{'hlc': {name}_h, 'client': {name}_c, 'mark': {name}_m}}"


def fold(files: list[str], out: pathlib.Path, condition: str) -> int:
    connection = duckdb.connect()
    connection.execute("SET threads = 2; SET preserve_insertion_order = false")
    connection.execute(
        f"CREATE TEMP TABLE folded AS SELECT _row_id, {', '.join(aggregates())} "
        f"FROM read_parquet({files}) WHERE {condition} GROUP BY _row_id"
    )
    alive = "live_h IS NOT NULL AND (deleted_h IS NULL OR live_h > deleted_h)"
    shown = {column: f"(deleted_h IS NULL OR w_{column}_h > deleted_h)" for column in COLUMNS}
    values = ", ".join(f'CASE WHEN {shown[c]} THEN w_{c}_v END AS "{c}"' for c in COLUMNS)
    stamps = ", ".join(f"'{c}': CASE WHEN {shown[c]} THEN {stamp(f'w_{c}')} END" for c in COLUMNS)
    whole = f"{{'live': {stamp('live')}, 'deleted': {stamp('deleted')}, 'columns': {{{stamps}}}}} AS _stamps"
    target = "(FORMAT parquet, COMPRESSION zstd)"
    connection.execute(
        f"COPY (SELECT _row_id, {values}, {whole} FROM folded WHERE {alive} ORDER BY _row_id) "
        f"TO '{out}/base.parquet' {target}"
    )
    connection.execute(
        f"COPY (SELECT _row_id, {stamp('deleted')} AS _deleted FROM folded WHERE NOT ({alive}) ORDER BY _row_id) "
        f"TO '{out}/deletes.parquet' {target}"
    )
    counted = connection.execute(f"SELECT count(*) FROM read_parquet('{out}/base.parquet')").fetchone()
    return int(counted[0]) if counted else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lake")
    parser.add_argument("out")
    parser.add_argument("--as-of", type=int)
    given = parser.parse_args()
    out = pathlib.Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    files = sorted(map(str, pathlib.Path(given.lake, "tables/orders/deltas").rglob("*.parquet")))
    start = time.perf_counter()
    rows = fold(files, out, "true" if given.as_of is None else f"_hlc <= {given.as_of}")
    print(json.dumps({"wall_s": time.perf_counter() - start, "rows": rows}))


if __name__ == "__main__":
    main()
