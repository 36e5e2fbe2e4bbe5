"""Every format answers the same questions the same way (sources §2)."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from driftline.core._workspace import Workspace
from driftline.sources._formats import FORMATS
from driftline.sources._open import open_source

NAMES = ("id", "größe", "a,b")
ROWS = [(1, "x", None), (2, 'q"', "ü"), (3, "", "line\nbreak")]


def write_csv(folder: Path) -> str:
    import csv

    with open(folder / "t.csv", "w", newline="", encoding="utf-8") as out:
        table = csv.writer(out)
        table.writerow(NAMES)
        table.writerows(("" if cell is None else cell for cell in row) for row in ROWS)
    return str(folder / "t.csv")


def write_jsonl(folder: Path) -> str:
    import json

    # A blank line is no row, and the last object brings the columns that the first lacks.
    lines = [json.dumps({n: v for n, v in zip(NAMES, row, strict=True) if v is not None}) for row in ROWS]
    (folder / "t.jsonl").write_text("\n\n".join(lines))
    return str(folder / "t.jsonl")


def write_parquet(folder: Path) -> str:
    columns = [pa.array(column) for column in zip(*ROWS, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, list(NAMES)), folder / "t.parquet", row_group_size=2)
    return str(folder / "t.parquet")


def write_arrow(folder: Path) -> str:
    columns = [pa.array(column) for column in zip(*ROWS, strict=True)]
    feather.write_feather(pa.Table.from_arrays(columns, list(NAMES)), folder / "t.feather", chunksize=2)
    return str(folder / "t.feather")


def write_sqlite(folder: Path) -> str:
    with sqlite3.connect(folder / "t.db") as database:
        database.execute('CREATE TABLE "t 1" (id, größe, "a,b")')
        database.executemany('INSERT INTO "t 1" VALUES (?, ?, ?)', ROWS)
    database.close()
    return f"{folder / 't.db'}::t 1"


def write_delta(folder: Path) -> str:
    deltalake = pytest.importorskip("deltalake", reason="needs deltalake, the extra lake")
    columns = [pa.array(column) for column in zip(*ROWS, strict=True)]
    deltalake.write_deltalake(str(folder / "t"), pa.Table.from_arrays(columns, list(NAMES)))
    return str(folder / "t")


def write_hive(folder: Path) -> str:
    for number, row in enumerate(ROWS):
        place = folder / "t" / f"a,b={'__HIVE_DEFAULT_PARTITION__' if row[2] is None else quote(row[2])}"
        place.mkdir(parents=True)
        columns = {"id": [row[0]], "größe": [row[1]]}
        pq.write_table(pa.table(columns), place / f"{number}.parquet")
    return str(folder / "t")


def write_duckdb(folder: Path) -> str:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb, the extra duckdb")
    columns = [pa.array(column) for column in zip(*ROWS, strict=True)]
    table = pa.Table.from_arrays(columns, list(NAMES))
    with duckdb.connect(str(folder / "t.duckdb")) as database:
        database.register("rows", table)
        database.execute('CREATE TABLE "t 1" AS SELECT * FROM rows')
    return f"{folder / 't.duckdb'}::t 1"


WRITERS = {
    "arrow": write_arrow,
    "delta": write_delta,
    "duckdb": write_duckdb,
    "hive": write_hive,
    "csv": write_csv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
    "sqlite": write_sqlite,
}


def test_every_format_is_asked_here() -> None:
    # test_postgresql, test_iceberg, spark/test_catalog_tables: they need a server, a catalog.
    # A workbook has no empty text, only empty cells.
    asked_elsewhere = {"postgresql", "iceberg", "spark", "workbook"}
    assert set(FORMATS) == set(WRITERS) | asked_elsewhere


@pytest.mark.parametrize("name", WRITERS)
def test_header_splits_rows_and_fingerprint(tmp_path: Path, name: str) -> None:
    given = WRITERS[name](tmp_path)
    with Workspace() as workspace:
        source = pickle.loads(pickle.dumps(open_source(given, workspace)))
        assert source.format == name
        assert source.header("A") == NAMES
        assert source.typed == (name != "csv")
        assert (source.types() is None) == (name not in ("parquet", "arrow", "delta", "duckdb", "hive"))
        side = source.lay_out("A", 20, workspace)
        assert side.header == NAMES
        assert side.expected_rows > 0
        tables = [split.read().table for split in pickle.loads(pickle.dumps(side.splits))]
        assert [split.count().rows for split in side.splits] == [table.num_rows for table in tables]
        whole = pa.concat_tables(tables)
        whole = whole.sort_by("id") if name == "hive" else whole
        assert whole.column("id").to_pylist() == ["1", "2", "3"]
        texts = ["", "ü", "line\nbreak"] if name == "csv" else ["null", '"ü"', '"line\\nbreak"']
        assert whole.column("a,b").to_pylist() == texts
        for split, table in zip(side.splits, tables, strict=True):
            last = np.array([table.num_rows - 1])
            assert split.pick(last).to_pylist() == table.slice(table.num_rows - 1).to_pylist()
            head = split.head()
            assert head is None or head.slice(0, 1).to_pylist() == table.slice(0, 1).to_pylist()
        sampled = source.sample("A", 2)
        assert sampled["id"] == (["2"] if name == "hive" else ["1", "2"])
        assert source.fingerprint(lambda file: Path(file.path).name)


@pytest.mark.parametrize("name", WRITERS)
def test_paths_hold_in_other_folders(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = WRITERS[name](tmp_path)
    monkeypatch.chdir(tmp_path)
    with Workspace() as workspace:
        source = open_source(Path(given).name, workspace).with_absolute_paths()
        monkeypatch.chdir("/")
        assert source.header("A") == NAMES
