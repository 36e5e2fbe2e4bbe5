"""Sources under fault: damaged files of every format that is read, and an object store that fails at random."""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import driftline as dl
from driftline.errors import DriftlineError
from faults.tools import Tally, attempt, mutate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

ROWS = [{"id": n, "name": f"naïve {n}", "note": 'two\nlines, "quoted"' if n % 3 == 0 else None} for n in range(40)]
COLUMNS = {name: [row[name] for row in ROWS] for name in ("id", "name", "note")}


def run(seed: int, rounds: int) -> Iterator[Tally]:
    """One tally a kind of fault."""
    for name, write in _WRITERS.items():
        yield _damaged(name, write, seed, rounds)
    yield _failing_store(seed, max(4, rounds // 5))


def _damaged(name: str, write: Callable[[Path], tuple[str, Path]], seed: int, rounds: int) -> Tally:
    """A damaged side against a whole one: an error in clear words, or the same events on every way of reading."""
    tally = Tally(f"damaged {name}")
    dice = random.Random(f"{name}{seed}")
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "whole")
        whole.mkdir()
        other, _ = write(whole)
        for number in range(rounds):
            place = Path(folder, str(number))
            place.mkdir()
            given, damaged = write(place)
            damaged.write_bytes(mutate(damaged.read_bytes(), dice))
            results = [
                attempt(tally, lambda e=engine, g=given: _events(g, other, e), DriftlineError, f"{name} {number}")
                for engine in ("local", "vectorized")
            ]
            if results[0] != results[1]:
                tally.loss(f"{name}, seed {seed}, round {number}: the ways of reading differ")
    return tally


def _events(a: str, b: str, engine: str) -> bytes:
    return b"".join(dl.diff(a, b, key="id", engine=engine).lines())


def _csv(folder: Path) -> tuple[str, Path]:
    import csv

    path = folder / "t.csv"
    with open(path, "w", newline="", encoding="utf-8") as out:
        table = csv.DictWriter(out, list(COLUMNS))
        table.writeheader()
        table.writerows(ROWS)
    return str(path), path


def _jsonl(folder: Path) -> tuple[str, Path]:
    path = folder / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path), path


def _json_array(folder: Path) -> tuple[str, Path]:
    path = folder / "t.json"
    path.write_text(json.dumps(ROWS))
    return str(path), path


def _parquet(folder: Path) -> tuple[str, Path]:
    path = folder / "t.parquet"
    pq.write_table(pa.table(COLUMNS), path, row_group_size=10, write_page_checksum=True)
    return str(path), path


def _sqlite(folder: Path) -> tuple[str, Path]:
    path = folder / "t.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name, note)")
    database.executemany("INSERT INTO t VALUES (:id, :name, :note)", ROWS)
    database.commit()
    database.close()
    return f"{path}::t", path


def _delta_log(folder: Path) -> tuple[str, Path]:
    from deltalake import write_deltalake

    path = folder / "t"
    write_deltalake(str(path), pa.table(COLUMNS))
    write_deltalake(str(path), pa.table({"id": [100], "name": ["x"], "note": ["y"]}), mode="append")
    return str(path), path / "_delta_log" / f"{1:020d}.json"


_WRITERS = {
    "CSV": _csv,
    "JSON Lines": _jsonl,
    "JSON array": _json_array,
    "Parquet": _parquet,
    "SQLite": _sqlite,
    "Delta log": _delta_log,
}


def _failing_store(seed: int, rounds: int) -> Tally:
    """Requests that fail, end early or come late: the right events, or an error in clear words."""
    from support.s3 import s3_server, unreliable

    tally = Tally("object store that fails at random")
    with s3_server("data") as (client, settings):
        expected = _put_tables(client)
        for number in range(rounds):
            with unreliable(settings, 1000 * seed + number):
                found = attempt(
                    tally,
                    lambda: _events("s3://data/a.csv", "s3://data/b.csv", "vectorized"),
                    DriftlineError,
                    f"round {number}",
                )
            if isinstance(found, bytes) and found != expected:
                tally.loss(f"seed {seed}, round {number}: other events than there are changes")
    return tally


def _put_tables(client: Any) -> bytes:
    """Two tables in the store; the events between them, found on disk."""
    text = "id,v\n" + "".join(f"{n},v{n}\n" for n in range(20_000))
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("a.csv", text), ("b.csv", text.replace("77,v", "77,w"))):
            client.put_object(Bucket="data", Key=name, Body=content.encode())
            Path(folder, name).write_text(content)
        return _events(f"{folder}/a.csv", f"{folder}/b.csv", "local")
