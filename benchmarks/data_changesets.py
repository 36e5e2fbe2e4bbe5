"""Rows, updates and mixed operations for the changeset benchmarks; the same for every contender."""

from __future__ import annotations

import random
import uuid
from typing import Any, NamedTuple

Values = tuple[Any, ...]

INSERTS_DDL = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)"
COMPOSITE_DDL = "CREATE TABLE t (region TEXT, code TEXT, name TEXT, amount INTEGER, PRIMARY KEY (region, code))"


class Mixed(NamedTuple):
    """Rows that are there before, and what happens to them."""

    base: list[Values]
    inserts: list[Values]
    updates: list[tuple[Values, Values]]
    deletes: list[Values]


def insert_rows(count: int) -> list[Values]:
    rng = random.Random(5)
    ids = rng.sample(range(10 * count), count)
    return [(number, f"user name {number * 7919 % 1_000_003}", rng.randint(0, 100)) for number in ids]


def composite_rows(count: int) -> list[Values]:
    rng = random.Random(6)
    regions = ["north", "south", "east", "west", "overseas"]
    codes = rng.sample(range(10 * count), count)
    return [(rng.choice(regions), f"C-{code:09d}", f"name {code % 9973}", rng.randint(0, 10**6)) for code in codes]


def updates(count: int) -> Mixed:
    rows = composite_rows(count)
    return Mixed(rows, [], [(row, (*row[:2], row[2] + "x", row[3] + 1)) for row in rows], [])


def mixed(count: int) -> Mixed:
    """A third each of inserts, updates and deletes."""
    rows = composite_rows(count)
    third = count // 3
    changed = [(row, (*row[:3], row[3] + 1)) for row in rows[third : 2 * third]]
    return Mixed(rows[third:], rows[:third], changed, rows[2 * third :])


def people(count: int, *, uuids: bool, first: int = 0) -> list[Values]:
    """Rows of a table with an integer or a UUID key."""
    rng = random.Random(first + 7)
    numbers = range(first, first + count)
    keys: list[Any] = [str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in numbers] if uuids else list(numbers)
    return [
        (key, f"name {number}", f"user{number}@example.org", number % 90)
        for key, number in zip(keys, numbers, strict=True)
    ]
