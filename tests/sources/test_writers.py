"""Files by every common writer of every format: each is the same table for all others."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import driftline as dl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = pa.table({"id": [1, 2, 3], "name": ["Ann", "Bøb", "a text of more than twelve bytes"], "n": [1.5, 0.0, -2.25]})


def in_duckdb(path: Path, options: str) -> None:
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        connection.execute(f"COPY t TO '{path}' ({options})")


def in_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (id INTEGER, name TEXT, n REAL)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", zip(*TABLE.to_pydict().values(), strict=True))


def as_stream(path: Path) -> None:
    with pa.ipc.new_stream(str(path), TABLE.schema) as out:
        out.write_table(TABLE)


FRAME, POLARS = TABLE.to_pandas(), pl.DataFrame(pl.from_arrow(TABLE))
WRITERS = {
    "polars.parquet": POLARS.write_parquet,
    "polars.csv": POLARS.write_csv,
    "polars.arrow": POLARS.write_ipc,
    "polars.jsonl": POLARS.write_ndjson,
    "polars.json": POLARS.write_json,
    "polars-stream.arrows": POLARS.write_ipc_stream,
    "pyarrow.parquet": lambda path: pq.write_table(TABLE, path),
    "pyarrow.feather": lambda path: pyarrow.feather.write_feather(TABLE, str(path)),
    "pyarrow.csv": lambda path: pyarrow.csv.write_csv(TABLE, str(path)),
    "pyarrow.arrows": as_stream,
    "pyarrow.orc": lambda path: pyarrow.orc.write_table(TABLE, str(path)),
    "duckdb.parquet": lambda path: in_duckdb(path, "FORMAT parquet"),
    "duckdb.csv": lambda path: in_duckdb(path, "FORMAT csv, HEADER"),
    "duckdb.jsonl": lambda path: in_duckdb(path, "FORMAT json"),
    "pandas.parquet": lambda path: FRAME.to_parquet(path, index=False),
    "pandas.csv": lambda path: FRAME.to_csv(path, index=False),
    "pandas.json": lambda path: FRAME.to_json(path, orient="records", force_ascii=True, indent=2),
    "pandas.jsonl": lambda path: FRAME.to_json(path, orient="records", lines=True),
    "pandas.feather": FRAME.to_feather,
    "sqlite.db": in_sqlite,
}


def test_all_pairs(tmp_path: Path) -> None:
    addresses = []
    for name, write in WRITERS.items():
        write(tmp_path / name)
        addresses.append(f"{tmp_path / name}::t" if name.endswith(".db") else str(tmp_path / name))
    for a, b in itertools.combinations(addresses, 2):
        found = dl.diff(a, b, key="id", types={"n": "number"}, engine="vectorized")
        assert (not found, found.counts["unchanged"]) == (True, 3), (a, b, found.describe())


@pytest.mark.parametrize(
    ("name", "start", "words"), [("t.avro", b"Obj\x01\x04", "an Avro file: convert it to Parquet")]
)
def test_formats_that_are_not_read_are_named(tmp_path: Path, name: str, start: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(start)
    with pytest.raises(dl.InputError, match=words):
        dl.diff(tmp_path / name, pd.DataFrame({"id": [1]}))


def test_folders_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Parts of every format that Spark writes, against each other and against a file of every other writer."""
    frame = spark.createDataFrame(TABLE.to_pylist(), "id long, name string, n double").repartition(2)
    for kind in ("parquet", "csv", "json"):  # Spark writes ORC with classes of Hive, which it has not everywhere
        frame.write.format(kind).option("header", "true").save(str(tmp_path / kind))
    folders = [str(tmp_path / kind) for kind in ("parquet", "csv")] + [f"{tmp_path}/json/part-*.json"]
    others = []
    for name in ("polars.parquet", "pyarrow.orc", "duckdb.csv", "pandas.jsonl", "pyarrow.feather"):
        WRITERS[name](tmp_path / name)
        others.append(str(tmp_path / name))
    pairs = [*itertools.combinations(folders, 2), *itertools.product(folders, others)]
    for a, b in pairs:
        found = dl.diff(a, b, key="id", types={"n": "number"}, engine="vectorized")
        assert (not found, found.counts["unchanged"]) == (True, 3), (a, b, found.describe())
