"""A keyed diff in DuckDB SQL, with the same ordered events as driftline's; checks nothing but duplicate keys."""

from __future__ import annotations

import sys

import duckdb


def main(a: str, b: str, key: str, out: str) -> None:
    database = duckdb.connect()
    database.execute("SET threads = 2")
    database.execute("SET preserve_insertion_order = false")
    with open(a, encoding="utf-8-sig") as file:
        header = file.readline().rstrip("\n").split(",")
    for name, path in (("a", a), ("b", b)):
        hashed = ", ".join(f'"{column}"' for column in header)
        database.execute(f"CREATE TEMP TABLE {name} AS SELECT *, hash({hashed}) AS h FROM {_reader(path, header)}")
    differing = f"""
        CREATE TEMP TABLE d AS SELECT k, sum(in_a)::int AS in_a, sum(in_b)::int AS in_b FROM (
            SELECT "{key}" AS k, 1 AS in_a, 0 AS in_b, h FROM a UNION ALL SELECT "{key}", 0, 1, h FROM b)
        GROUP BY k HAVING sum(in_a) <> 1 OR sum(in_b) <> 1 OR min(h) <> max(h)"""
    database.execute(differing)
    assert database.execute("SELECT count(*) FROM d WHERE in_a > 1 OR in_b > 1 OR k = ''").fetchone() == (0,)
    events = f"""
        SELECT {_event(header, key)} AS event FROM (SELECT * FROM a WHERE "{key}" IN (SELECT k FROM d)) a
        FULL OUTER JOIN (SELECT * FROM b WHERE "{key}" IN (SELECT k FROM d)) b ON a."{key}" = b."{key}"
        ORDER BY coalesce(a."{key}", b."{key}")"""
    database.execute(f"COPY ({events}) TO '{out}' (FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\x02')")


def _reader(path: str, header: list[str]) -> str:
    columns = ", ".join(f"'{name}': 'VARCHAR'" for name in header)
    return (
        f"read_csv('{path}', header=true, auto_detect=false, delim=',', quote='\"', escape='\"', "
        f"columns={{{columns}}}, allow_quoted_nulls=false, nullstr='\\x01never', parallel=true)"
    )


def _event(header: list[str], key: str) -> str:
    others = [name for name in header if name != key]
    keyed = f'json_object(\'{key}\', coalesce(a."{key}", b."{key}"))'
    names = ", ".join(f'CASE WHEN a."{name}" <> b."{name}" THEN \'{name}\' END' for name in others)
    deltas = ", ".join(
        f'CASE WHEN a."{n}" <> b."{n}" THEN json_object(\'{n}\', json_object(\'from\', a."{n}", \'to\', b."{n}")) '
        "ELSE '{}' END"
        for n in others
    )
    return f"""CASE
        WHEN b."{key}" IS NULL THEN json_object('type', 'removed', 'key', {keyed}, 'row', {_row("a", header)})
        WHEN a."{key}" IS NULL THEN json_object('type', 'added', 'key', {keyed}, 'row', {_row("b", header)})
        ELSE json_object('type', 'changed', 'key', {keyed},
            'changed', list_filter([{names}], lambda x: x IS NOT NULL),
            'before', {_row("a", header)}, 'after', {_row("b", header)},
            'delta', json_merge_patch('{{}}', {deltas})) END"""


def _row(side: str, header: list[str]) -> str:
    return "json_object(" + ", ".join(f"'{name}', {side}.\"{name}\"" for name in header) + ")"


if __name__ == "__main__":
    main(*sys.argv[1:5])
