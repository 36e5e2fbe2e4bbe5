"""One table in every format that driftline reads from files: each function writes it below a folder and names it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import duckdb
import openpyxl
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
from deltalake import write_deltalake

ROWS = 2000
TABLE = pa.table(
    {"id": list(range(ROWS)), "part": ["ab"[n % 2] for n in range(ROWS)], "v": [f"{n:x}" * 9 for n in range(ROWS)]}
)


def csv_file(folder: Path) -> Path:
    path = folder / "t.csv"
    pl.DataFrame(TABLE).write_csv(path)
    return path


def quoted_csv(folder: Path) -> Path:
    """Cells in quotes: where the file ends too soon, one is not closed."""
    pl.DataFrame(TABLE).write_csv(folder / "t.csv", quote_style="always")
    return folder / "t.csv"


def csv_folder(folder: Path) -> Path:
    below = folder / "parts"
    below.mkdir()
    for number in range(4):
        pl.DataFrame(TABLE.slice(number * 500, 500)).write_csv(below / f"{number}.csv")
    return below


def csv_glob(folder: Path) -> str:
    return f"{csv_folder(folder)}/*.csv"


def file_address(folder: Path) -> str:
    return f"file://{csv_file(folder)}"


def packed(folder: Path) -> Path:
    path = folder / "t.csv.gz"
    path.write_bytes(gzip.compress(csv_file(folder).read_bytes()))
    return path


def json_lines(folder: Path) -> Path:
    path = folder / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in TABLE.to_pylist()))
    return path


def parquet(folder: Path) -> Path:
    pq.write_table(TABLE, folder / "t.parquet")
    return folder / "t.parquet"


def duckdb_table(folder: Path) -> str:
    with duckdb.connect(str(folder / "t.duckdb")) as database:
        database.register("rows", TABLE)
        database.execute("CREATE TABLE t AS SELECT * FROM rows")
    return f"{folder / 't.duckdb'}::t"


def workbook(folder: Path) -> str:
    book = openpyxl.Workbook()
    book.active.append(TABLE.column_names)
    for row in TABLE.to_pylist():
        book.active.append(list(row.values()))
    book.save(folder / "t.xlsx")
    return f"{folder / 't.xlsx'}::Sheet"


def arrow(folder: Path) -> Path:
    pyarrow.feather.write_feather(TABLE, folder / "t.arrow")
    return folder / "t.arrow"


def hive(folder: Path) -> Path:
    pq.write_to_dataset(TABLE, folder / "hive", partition_cols=["part"])
    return folder / "hive"


def delta(folder: Path) -> Path:
    write_deltalake(folder / "delta", TABLE)
    write_deltalake(folder / "delta", TABLE.slice(0, 10), mode="overwrite")
    write_deltalake(folder / "delta", TABLE, mode="overwrite")
    return folder / "delta"


def delta_version(folder: Path) -> str:
    return f"delta:{delta(folder)}@0"


def sqlite_table(folder: Path) -> str:
    with sqlite3.connect(folder / "t.db") as database:
        database.execute("CREATE TABLE t (id, part, v)")
        database.executemany("INSERT INTO t VALUES (:id, :part, :v)", TABLE.to_pylist())
    database.close()
    return f"{folder / 't.db'}::t"


def iceberg(folder: Path) -> str:
    from pyiceberg import catalog

    found = catalog.load_catalog("choice", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))
    found.create_namespace("sales")
    found.create_table("sales.t", TABLE.schema).append(TABLE)
    return "iceberg:choice/sales.t"
