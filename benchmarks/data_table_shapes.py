"""Odd shapes of tables: a giant multi-line cell, one column, many columns, long keys that differ at the end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl

Pair = tuple[Path, Path]


def with_quoted_cell(pair: Pair, folder: Path, cell_bytes: int) -> Pair:
    """A copy of a pair in which one row in the middle of both files has a quoted cell of many lines."""
    cell = ("one line of a long note\n" * (cell_bytes // 24 + 1))[:cell_bytes]
    made = folder / "a.csv", folder / "b.csv"
    for source, target in zip(pair, made, strict=True):
        if not target.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            _insert_row(source, target, cell)
    return made


def without_quotes(pair: Pair, folder: Path) -> Pair:
    """A copy of a pair in which no cell needs quotes."""
    return _rewritten(pair, folder, pl.all().str.replace_all('[",]', ""))


def with_two_numbers(pair: Pair, folder: Path) -> Pair:
    """A copy of a pair whose `note` is a number, of which B has some a little off, beside `amount`."""
    number = pl.col("email").hash(7) % 1_000_000
    off = pl.when(number % 10 == 0).then(pl.lit("001")).otherwise(pl.lit(""))
    note = pl.concat_str((number // 100).cast(pl.String), pl.lit("."), (number % 100).cast(pl.String).str.zfill(2))
    return _rewritten(pair, folder, note.alias("note"), pl.concat_str(note, off).alias("note"))


def _rewritten(pair: Pair, folder: Path, in_a: pl.Expr, in_b: pl.Expr | None = None) -> Pair:
    made = folder / "a.csv", folder / "b.csv"
    folder.mkdir(parents=True, exist_ok=True)
    for source, target, change in zip(pair, made, (in_a, in_a if in_b is None else in_b), strict=True):
        if not target.is_file():
            pl.read_csv(source, infer_schema=False).with_columns(change).write_csv(target)
    return made


def _insert_row(source: Path, target: Path, cell: str) -> None:
    half = source.stat().st_size // 2
    with source.open("rb") as data, target.open("wb") as out:
        out.write(data.read(half))
        out.write(data.readline())
        out.write(f'multi-line,n,e,1,c,s,2020-01-01,"{cell}"\n'.encode())
        while block := data.read(1 << 24):
            out.write(block)


def one_column(folder: Path, rows: int) -> Pair:
    """Nothing but keys."""
    keys = [f"key-{number:08d}" for number in range(rows)]
    return _write(folder, ["id"], ([key] for key in keys), ([key] for key in _shuffled(keys) if not key.endswith("99")))


def many_columns(folder: Path, rows: int, columns: int = 300) -> Pair:
    """A key and many short columns; one cell of every hundredth row changes."""
    header = ["id", *(f"c{number}" for number in range(1, columns))]
    filler = [f"v{number % 97}" for number in range(1, columns)]
    changed = [*filler[:150], "CHANGED", *filler[151:]]
    numbers = range(rows)
    after = ([str(number), *(changed if number % 100 == 0 else filler)] for number in _shuffled(list(numbers)))
    return _write(folder, header, ([str(number), *filler] for number in numbers), after)


def composite_key(folder: Path, rows: int) -> Pair:
    """A key of five columns (k1 to k5) and three more."""
    header = ["k1", "k2", "k3", "k4", "k5", "x", "y", "z"]
    return _keyed(folder, header, rows, lambda n: [f"r{n % 5}", f"s{n % 70}", f"t{n % 900}", "const", str(n)])


def long_equal_prefixes(folder: Path, rows: int) -> Pair:
    """Keys of 60 characters that agree in all but the last ones."""
    return _keyed(folder, ["id", "x", "y", "z"], rows, lambda n: [f"{'same-prefix-' * 4}{n:012d}"])


def _keyed(folder: Path, header: list[str], rows: int, key) -> Pair:
    def row(number: int, mark: str) -> list[str]:
        return [*key(number), f"value {number}", f"{number * 7919 % 100003}", mark if number % 100 == 0 else "same"]

    numbers = list(range(rows))
    return _write(folder, header, (row(n, "before") for n in numbers), (row(n, "after") for n in _shuffled(numbers)))


def _shuffled(items: list) -> list:
    return [items[index] for index in np.random.default_rng(5).permutation(len(items))]


def _write(folder: Path, header: list[str], a: Iterable[list[str]], b: Iterable[list[str]]) -> Pair:
    made = folder / "a.csv", folder / "b.csv"
    for target, rows in zip(made, (a, b), strict=True):
        if not target.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            with target.open("w", encoding="utf-8", newline="\n") as out:
                out.write(",".join(header) + "\n")
                out.writelines(",".join(cells) + "\n" for cells in rows)
    return made
