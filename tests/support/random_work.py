"""Random tables and random work on them, reproducible from a seed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import apsw

SHAPES = {
    "rowid": "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER)",
    "text key": "CREATE TABLE t (k TEXT PRIMARY KEY, a REAL, b)",
    "blob key last": "CREATE TABLE t (a NUMERIC, b TEXT, k BLOB PRIMARY KEY)",
    "real key": "CREATE TABLE t (k REAL PRIMARY KEY, v)",
    "untyped": "CREATE TABLE t (k PRIMARY KEY, v, w)",
    "composite": "CREATE TABLE t (a INTEGER, b TEXT, c REAL, d, PRIMARY KEY (a, b))",
    "reversed composite": "CREATE TABLE t (x, a TEXT, y INTEGER, b INTEGER, PRIMARY KEY (b, a))",
    "without rowid": "CREATE TABLE t (a TEXT, b INTEGER, c, PRIMARY KEY (b, a)) WITHOUT ROWID",
    "all key": "CREATE TABLE t (a INTEGER, b TEXT, PRIMARY KEY (a, b))",
    "numeric key": "CREATE TABLE t (v VARCHAR(10), k DECIMAL(10, 2) PRIMARY KEY, w DOUBLE)",
    "strict": "CREATE TABLE t (k ANY PRIMARY KEY, v ANY, w INTEGER) STRICT",
}

_SINGLE_KEYS = ("rowid", "text key", "blob key last", "real key", "untyped", "numeric key", "strict")
_WORDS = [
    "",
    "a",
    "B",
    "é",
    "漢字",
    "🙂",
    "x\0y",
    "12",
    " 7 ",
    "1.50",
    "1e3",
    "0x1",
    "it's",
    "-0",
    "9223372036854775808",
]


def random_value(rng: random.Random) -> Any:
    kind = rng.randrange(9)
    if kind == 0:
        return None
    if kind < 3:
        return rng.choice([0, 1, -1, rng.randrange(-(1 << 63), 1 << 63), rng.randrange(1000)])
    if kind < 5:
        return rng.choice([0.0, -0.0, 1.5, 3.0, float("inf"), float("-inf"), rng.uniform(-1e6, 1e6), 1e300])
    if kind < 8:
        return rng.choice([*_WORDS, "z" * rng.choice([127, 128, 300, 17000])]) + rng.choice(
            ["", "", str(rng.randrange(99))]
        )
    return rng.randbytes(rng.choice([0, 1, 5, 130]))


def random_key(rng: random.Random, shape: str, spread: int) -> Any:
    # Keys of two columns meet again only when each column has few values.
    number = rng.randrange(spread if shape in _SINGLE_KEYS else max(2, int(spread**0.5)))
    if shape in ("rowid",):
        return number * 7919 - 1000
    if shape == "text key":
        return rng.choice(["k", "key of some length ", "é"]) + str(number)
    if shape == "blob key last":
        return number.to_bytes(5, "big")
    if shape == "real key":
        return number / 4
    if shape == "numeric key":
        return rng.choice([number, number + 0.25])
    if number % 7 == 0:
        # Texts and blobs beside integers; integers equal to reals are one key for SQL and two for the session.
        return f"n{number}"
    return number if number % 5 else number.to_bytes(2, "big")


Statement = tuple[str, dict[str, Any]]


def work_of(shape: str, seed: int, size: int) -> Callable[[apsw.Connection], None]:
    """`size` random statements on the table of this shape; the same ones each time."""
    statements = list(_statements(shape, seed, size))

    def work(connection: apsw.Connection) -> None:
        with connection:
            for sql, bound in statements:
                # A value that a STRICT column refuses: the statement does nothing.
                with contextlib.suppress(apsw.ConstraintError, apsw.MismatchError):
                    connection.execute(sql, bound)

    return work


@cache
def _columns(shape: str) -> tuple[list[str], list[str]]:
    connection = apsw.Connection(":memory:")
    connection.execute(SHAPES[shape])
    rows = connection.execute("PRAGMA table_info(t)").fetchall()
    return [row[1] for row in rows], [row[1] for row in rows if row[5]]


def _statements(shape: str, seed: int, size: int) -> Iterator[Statement]:
    rng = random.Random(seed)
    columns, keys = _columns(shape)
    spread = max(3, int(size * rng.choice([0.3, 1, 10])))
    insert_share = rng.choice([0.2, 0.5, 0.9, 1.0])
    for _ in range(size):
        yield _one_statement(rng, shape, columns, keys, spread, insert_share)


def _one_statement(
    rng: random.Random, shape: str, columns: list[str], keys: list[str], spread: int, insert_share: float
) -> Statement:
    values = {name: random_key(rng, shape, spread) if name in keys else random_value(rng) for name in columns}
    if rng.random() < 0.02 and shape not in ("rowid", "without rowid", "strict"):
        values[rng.choice(keys)] = None
    where = " AND ".join(f"{name} = :k_{name}" for name in keys)
    bound = {**values, **{f"k_{name}": random_key(rng, shape, spread) for name in keys}}
    choice = rng.random()
    if choice < insert_share:
        verb = rng.choice(["INSERT OR IGNORE", "INSERT OR REPLACE"])
        sql = f"{verb} INTO t ({', '.join(columns)}) VALUES ({', '.join(':' + name for name in columns)})"
    else:
        kind = rng.randrange(5)
        others = [name for name in columns if name not in keys] or keys
        if kind == 0:
            sql = f"DELETE FROM t WHERE {where}"
        elif kind == 1:
            sql = f"UPDATE OR IGNORE t SET {', '.join(f'{name} = :{name}' for name in columns)} WHERE {where}"
        elif kind == 2:
            sql = f"UPDATE t SET {columns[0]} = {columns[0]} WHERE {where}"
        else:
            name = rng.choice(others)
            sql = f"UPDATE OR REPLACE t SET {name} = :{name} WHERE {where}"
    return sql, bound
