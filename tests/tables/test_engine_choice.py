"""The choice of the engine by the size of what is compared, for every kind of source."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from driftline.core import _engines as engines
from driftline.core._workspace import Workspace
from driftline.errors import InputError
from driftline.sources._formats import FORMATS
from driftline.sources._open import input_size, open_source
from driftline.tables._engines import TableDiffJob, choose_engine
from driftline.tables._options import check_options
from support.postgres import postgres_server
from support.table_inputs import (
    ROWS,
    TABLE,
    arrow,
    csv_file,
    csv_folder,
    csv_glob,
    delta,
    delta_version,
    duckdb_table,
    file_address,
    hive,
    iceberg,
    json_lines,
    packed,
    parquet,
    sqlite_table,
    workbook,
)

LIMIT = 10_000  # bytes: every table below has more of them, and half of them is too little


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SPARK_REMOTE", "SPARK_MASTER", "DRIFTLINE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setitem(engines.LOCAL_LIMITS, "tables", LIMIT)


FILES: list[Callable[[Path], Any]] = [
    csv_file, csv_folder, csv_glob, file_address, json_lines, parquet, arrow, hive, delta, delta_version, sqlite_table,
    duckdb_table, workbook,
]  # fmt: skip


def judge(given: Any, size: int) -> None:
    """Both ways round: above the limit as one side or as both, and the reason names the size."""
    nothing = pa.table({"id": pa.array([], pa.int64())})
    for sides, total in (((given, given), 2 * size), ((given, nothing), size), ((nothing, given), size)):
        choice = choose_engine("auto", TableDiffJob(*sides, check_options(key="id")))
        assert choice == ("spark", f"{total / 1e9:,.1f} GB are above the local limit of {LIMIT / 1e9:,.1f} GB")


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_the_size_is_that_of_the_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    given = make(tmp_path)
    with Workspace() as workspace:
        size = open_source(given, workspace).size
    assert size is not None
    assert size > LIMIT
    assert input_size(given) == size
    judge(given, size)
    monkeypatch.setitem(engines.LOCAL_LIMITS, "tables", 2 * size)
    local = choose_engine("auto", TableDiffJob(given, given, check_options(key="id")))
    assert local == ("local", f"{2 * size / 1e6:,.0f} MB fit this machine well")


def test_a_delta_table_counts_the_files_of_its_version(tmp_path: Path) -> None:
    path = delta(tmp_path)
    first = DeltaTable(path, version=0).file_uris()
    assert input_size(f"{path}@0") == sum(Path(uri.removeprefix("file://")).stat().st_size for uri in first)
    assert input_size(f"{path}@1") < LIMIT < input_size(path)


def test_every_format_is_asked(tmp_path: Path) -> None:
    asked = {"postgresql", "iceberg", "spark"}  # below: they need a server, a catalog
    for make in FILES:
        folder = tmp_path / make.__name__
        folder.mkdir()
        with Workspace() as workspace:
            asked.add(open_source(make(folder), workspace).format)
    assert asked >= set(FORMATS)


def test_tables_of_a_catalog_are_read_by_spark() -> None:
    job = TableDiffJob("a.csv", "spark:shop.b", check_options(key="id"))
    assert choose_engine("auto", job) == ("spark", "Spark reads tables of its catalogs")
    assert choose_engine("local", job).name == "local", "and refused when it is opened"


def test_packed_files_count_as_they_are_stored(tmp_path: Path) -> None:
    path = packed(tmp_path)
    assert input_size(path) == path.stat().st_size


def test_iceberg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    for name, value in {"TYPE": "sql", "URI": f"sqlite:///{tmp_path}/catalog.db", "WAREHOUSE": f"{tmp_path}"}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__CHOICE__{name}", value)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    given = iceberg(tmp_path)
    judge(given, sum(path.stat().st_size for path in tmp_path.rglob("*.parquet")))


def test_objects_of_a_store(s3, tmp_path: Path) -> None:
    client, _ = s3
    for path in csv_folder(tmp_path).iterdir():
        client.put_object(Bucket="data", Key=f"choice/{path.name}", Body=path.read_bytes())
    pq.write_to_dataset(TABLE, tmp_path / "hive", partition_cols=["part"])
    for path in (tmp_path / "hive").rglob("*.parquet"):
        key = f"choice-hive/{path.relative_to(tmp_path / 'hive')}"
        client.put_object(Bucket="data", Key=key, Body=path.read_bytes())
    parts = sum(path.stat().st_size for path in (tmp_path / "parts").iterdir())
    judge("s3://data/choice/1.csv", (tmp_path / "parts/1.csv").stat().st_size)
    judge("s3://data/choice/", parts)
    judge("s3://data/choice/*.csv", parts)
    judge("s3://data/choice-hive/", sum(path.stat().st_size for path in (tmp_path / "hive").rglob("*.parquet")))


def test_tables_of_a_database() -> None:
    from adbc_driver_postgresql import dbapi

    with postgres_server() as uri:
        with dbapi.connect(uri) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE t AS SELECT n AS id, repeat('x', 90) AS v FROM generate_series(1, {ROWS}) n")
            cursor.execute("SELECT pg_table_size('t')")
            [[size]] = cursor.fetchall()
            connection.commit()
        judge(f"{uri}::t", size)
        query = f"{uri}::SELECT * FROM t"
        choice = choose_engine("auto", TableDiffJob(query, query, check_options(key="id")))
        assert choice == ("local", "the size of the input is not known")
        assert choose_engine("auto", TableDiffJob(query, f"{uri}::t", check_options(key="id"))).name == "spark"


@pytest.mark.parametrize("frame", [TABLE, pl.DataFrame(TABLE), TABLE.to_pandas()], ids=["arrow", "polars", "pandas"])
def test_tables_in_memory(frame: Any) -> None:
    size = input_size(frame)
    assert size is not None
    assert size >= LIMIT
    judge(frame, size)


@pytest.mark.parametrize(
    "given", ["-", [{"id": 1}], pl.DataFrame(TABLE).lazy(), TABLE.to_reader()], ids=["stdin", "rows", "lazy", "stream"]
)
def test_what_must_be_read_first_has_no_known_size(given: Any) -> None:
    choice = choose_engine("auto", TableDiffJob(given, TABLE.slice(0, 1), check_options(key="id")))
    assert choice == ("local", "the size of the input is not known")


def test_what_is_not_there_is_said_as_by_the_diff(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.csv"):
        choose_engine("auto", TableDiffJob(tmp_path / "nowhere.csv", TABLE, check_options(key="id")))


def test_explain_names_the_size(tmp_path: Path) -> None:
    code = (
        "import sys; from driftline.core import _engines; _engines.LOCAL_LIMITS['tables'] = int(sys.argv.pop(1));"
        "from driftline.cli.main import main; main()"
    )

    def explained(given: str, limit: int) -> str:
        command = [sys.executable, "-c", code, str(limit), "diff", given, given, "--key", "id", "--explain"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]

    for given in (csv_glob(tmp_path), sqlite_table(tmp_path), str(hive(tmp_path))):
        assert explained(given, LIMIT) == "engine: spark (0.0 GB are above the local limit of 0.0 GB)"
        size = input_size(given) or 0
        assert explained(given, 2 * size) == f"engine: local ({2 * size / 1e6:,.0f} MB fit this machine well)"
