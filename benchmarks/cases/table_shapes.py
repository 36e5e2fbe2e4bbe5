"""Table diffs by shape: CPU time against the better of DuckDB and Polars, alternating, the best of five rounds.

Each program writes the key, the row before and the row after of every row that differs as JSONL, and before anything is
measured all three outputs are compared row by row. `to_better` is driftline's CPU time over that of the better
peer, `bar` what it should be at most.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from benchmarks.contest import DATA, ROOT, Contender, Row, driftline_command, hold
from benchmarks.data_tables import make_pair
from benchmarks.measure import measure

Pair = tuple[Path, Path]
PEERS = ("DuckDB", "Polars")


class Shape(NamedTuple):
    """A pair of files, its key, and the bar."""

    name: str
    make: Callable[[Path], Pair]
    bar: float
    keys: Sequence[str] = ("id",)


def run(full: bool) -> list[Row]:
    share = 1 if full else 10
    found: list[Row] = []
    for shape in shapes(share):
        if not full and shape.name.startswith("CSV 10M"):
            continue
        pair = shape.make(DATA / "table-shapes" / f"{shape.name.replace(' ', '-')}-{share}")
        contenders = [_driftline(pair, shape.keys), *(_peer(name, pair, shape.keys) for name in PEERS)]
        check_same(contenders, pair)
        rows = hold(shape.name, contenders, rounds=5, by="cpu_s")
        better = min(row.figures["cpu_s"] for row in rows[1:])
        rows[0].figures |= {"to_better": rows[0].figures["cpu_s"] / better, "bar": shape.bar}
        found += rows
    return found


def shapes(share: int) -> list[Shape]:
    """The shapes, with a share of their rows."""
    return [
        Shape("CSV 100k", lambda folder: make_pair(folder, 100_000 // share), 1.3),
        Shape("CSV 1M", lambda folder: make_pair(folder, 1_000_000 // share), 0.9),
        Shape("CSV 10M", lambda folder: make_pair(folder, 10_000_000 // share), 0.7),
        Shape("all rows changed", lambda folder: make_pair(folder, 100_000 // share, changed=1.0, moved=0.0), 1.3),
        Shape("three text keys", lambda folder: three_keys(folder, 200_000 // share), 1.2, ("k1", "k2", "k3")),
        Shape("cells of 1 KB", lambda folder: long_cells(folder, 30_000 // share), 1.2),
        Shape("Parquet 500k", lambda folder: typed(folder, 500_000 // share, "parquet"), 1.3),
        Shape("JSON Lines 100k", lambda folder: typed(folder, 100_000 // share, "jsonl"), 2.0),
    ]


def three_keys(folder: Path, rows: int) -> Pair:
    """A key of three texts, none of which is unique."""
    number = pl.int_range(rows, eager=True)
    frame = pl.DataFrame(
        {
            "k1": "region-" + (number % 17).cast(pl.String),
            "k2": "customer-" + (number // 17 % 500).cast(pl.String),
            "k3": "order-" + (number // 17 // 500).cast(pl.String),
            "amount": (number * 37 % 10_007).cast(pl.String),
            "note": "note " + (number % 1_013).cast(pl.String),
        }
    )
    return _written(folder, frame, "amount", "csv")


def long_cells(folder: Path, rows: int) -> Pair:
    """A text of a kilobyte in every row."""
    number = pl.int_range(rows, eager=True).cast(pl.String)
    text = pl.Series([(f"{each} lorem ipsum dolor sit amet " * 40)[:1024] for each in number])
    return _written(folder, pl.DataFrame({"id": "id-" + number.str.zfill(8), "text": text, "v": number}), "v", "csv")


def typed(folder: Path, rows: int, kind: str) -> Pair:
    """Eight columns of integers, floats, texts and booleans."""
    number = pl.int_range(rows, eager=True)
    frame = pl.DataFrame(
        {
            "id": number,
            "name": "name " + (number % 9_973).cast(pl.String),
            "email": "user" + number.cast(pl.String) + "@example.org",
            "amount": (number * 7 % 100_003).cast(pl.Float64) / 4,
            "city": "city " + (number % 211).cast(pl.String),
            "active": number % 3 == 0,
            "score": number * 31 % 1_009,
            "note": "a note of some length, number " + (number % 5_003).cast(pl.String),
        }
    )
    return _written(folder, frame, "score", kind)


def _written(folder: Path, old: pl.DataFrame, column: str, kind: str) -> Pair:
    """A pair in which B has changed a hundredth of the rows, lacks some and has some more, in another order."""
    pair = folder / f"a.{kind}", folder / f"b.{kind}"
    if not all(path.is_file() for path in pair):
        folder.mkdir(parents=True, exist_ok=True)
        at = pl.int_range(old.height, eager=True)
        other = old[column].shift(1).fill_null(old[column][0])
        new = old.with_columns(pl.when(pl.lit(at % 100 == 7)).then(other).otherwise(pl.col(column)).alias(column))
        new = new.filter(at % 1_000 != 11).sample(fraction=1.0, shuffle=True, seed=5)
        first = old.filter(at % 1_000 != 13)  # the others were added
        for frame, path in zip((first, new), pair, strict=True):
            write = {"csv": frame.write_csv, "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[kind]
            write(path)
    return pair


def _out(pair: Pair, name: str) -> str:
    return str(pair[0].with_name(f"{name}.out.jsonl"))


def _driftline(pair: Pair, keys: Sequence[str]) -> Contender:
    named = [word for key in keys for word in ("--key", key)]
    out = _out(pair, "driftline")
    return Contender("driftline", driftline_command("diff", *map(str, pair), *named, "--engine", "local", "-o", out))


def _peer(name: str, pair: Pair, keys: Sequence[str]) -> Contender:
    script = ROOT / "benchmarks" / "peers" / "tables_same_rows.py"
    return Contender(name, [sys.executable, str(script), name.lower(), *map(str, pair), _out(pair, name), *keys])


def check_same(contenders: Sequence[Contender], pair: Pair) -> None:
    """Run everybody once: the same keys with the same rows before and after, or the contest is off."""
    found = {}
    for each in contenders:
        measure(each.command, cwd=ROOT)
        found[each.name] = rows_of(Path(_out(pair, each.name)))
    names = list(found)
    for name in names[1:]:
        assert found[name] == found[names[0]], f"{name} found other rows than {names[0]}: {pair[0].parent}"


def rows_of(path: Path) -> dict[str, tuple[Any, Any]]:
    """Rows before and after by key; events of driftline are read as such rows."""
    found: dict[str, tuple[Any, Any]] = {}
    with path.open(encoding="utf-8") as lines:
        for event in map(json.loads, lines):
            kind = event.get("type", "changed")
            if kind in ("schema", "stats"):
                continue
            before = event["row"] if kind == "removed" else event.get("before")
            after = event["row"] if kind == "added" else event.get("after")
            found[json.dumps(event["key"])] = (before, after)
    return found
