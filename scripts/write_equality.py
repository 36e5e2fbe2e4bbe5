"""Writes the table of docs/reference/equality.md by asking every comparison; `--check` compares it."""

from __future__ import annotations

import csv
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import source_counts
from generated import with_part, write_or_check

import driftline as dl
from driftline import changesets, deltas

PAGE = source_counts.ROOT / "docs/reference/equality.md"
ABSENT = object()

# What is asked: both values of one cell, member, column or field.
PAIRS: dict[str, tuple[Any, Any]] = {
    "0.0 and -0.0": (0.0, -0.0),
    "1 and 1.0": (1, 1.0),
    "1 and true": (1, True),
    '1 and "1"': (1, "1"),
    "0.3 and 0.1 + 0.2": (0.3, 0.1 + 0.2),
    "NaN and NaN": (float("nan"), float("nan")),
    "2<sup>53</sup> and 2<sup>53</sup> + 1": (2**53, 2**53 + 1),
    'null and ""': (None, ""),
    "null and missing": (None, ABSENT),
    '"a" and "A"': ("a", "A"),
    '"a" and "a "': ("a", "a "),
    "é as one code point and as two": ("\u00e9", "e\u0301"),
    "`{a, b}` and `{b, a}`": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "`[1, 2]` and `[2, 1]`": ([1, 2], [2, 1]),
}


def _row(value: object) -> dict[str, Any]:
    return {"id": 1} if value is ABSENT else {"id": 1, "v": value}


def _in_tables(a: object, b: object) -> bool:
    rows = ([_row(side)] for side in (a, b))
    with dl.diff(*rows, key="id", header_mode="common") as found:
        return bool(found)


def _in_csv(a: object, b: object) -> bool:
    if not all(isinstance(side, str | int | float) and side == side for side in (a, b)) or isinstance(b, bool):
        raise TypeError("a CSV file has text only")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.csv", "b.csv")]
        for path, value in zip(paths, (a, b), strict=True):
            with path.open("w", newline="") as out:
                csv.writer(out).writerows([["id", "v"], [1, value]])
        return bool(dl.diff(*paths, key="id"))


def _in_payloads(a: object, b: object) -> bool:
    return bool(dl.compare(_row(a), _row(b)))


def _in_deltas(a: object, b: object) -> bool:
    return deltas.extract(_row(a), _row(b), table="t", row_id="r", client_id="c", hlc=1) is not None


def _in_databases(a: object, b: object) -> bool:
    if ABSENT in (a, b):
        raise TypeError("a row has every column of its table")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.db", "b.db")]
        for path, value in zip(paths, (a, b), strict=True):
            connection = sqlite3.connect(path)
            connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
            connection.execute("INSERT INTO t VALUES (1, ?)", (value,))
            connection.commit()
            connection.close()
        return bool(changesets.diff(*paths))


WHERE: dict[str, Callable[[object, object], bool]] = {
    "tables, typed": _in_tables,
    "tables, CSV": _in_csv,
    "payloads": _in_payloads,
    "row deltas": _in_deltas,
    "SQLite databases": _in_databases,
}


def _verdict(differs: Callable[[object, object], bool], a: object, b: object) -> str:
    try:
        return "**different**" if differs(a, b) else "equal"
    except (TypeError, sqlite3.Error, dl.DriftlineError):
        return "–"


def table() -> str:
    """A row a pair of values, a column a comparison."""
    lines = [f"| | {' | '.join(WHERE)} |", "|---|" + "---|" * len(WHERE)]
    lines += [
        f"| {name} | {' | '.join(_verdict(differs, *pair) for differs in WHERE.values())} |"
        for name, pair in PAIRS.items()
    ]
    return "\n".join(lines)


def main() -> None:
    write_or_check({PAGE: with_part(PAGE, "equality", table())})


if __name__ == "__main__":
    main()
