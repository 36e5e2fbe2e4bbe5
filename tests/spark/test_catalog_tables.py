"""Tables of a session's catalogs: the bytes of the same data in files, and one line for what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from driftline.core import Workspace
from driftline.errors import DriftlineError
from driftline.sources import open_source, tables_beside
from driftline.tables import TableDiffJob, check_options, choose_engine, find_engine

pytestmark = pytest.mark.spark

COLUMNS = (
    "id", "cast(id * 1.5 as decimal(12, 2)) price", "id % 7 = 0 flag", "timestamp_seconds(id * 86400) at",
    "cast(timestamp_seconds(id) as timestamp_ntz) local", "date_add(date'2020-01-01', cast(id as int)) day",
    "cast(id as double) / 3 share", "cast(id % 100 as tinyint) small", "array(id, id + 1) numbers",
    "named_struct('x', id, 'y', 'é') pair", "map('k', id) entries", "cast(concat('b', id) as binary) raw",
    "if(id % 5 = 0, null, concat('n', id)) text", "cast(id % 3 as int) part",
)  # fmt: skip


@pytest.fixture(scope="module")
def tables(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """`shop.a` and `shop.b`, partitioned, and the same rows as Parquet files."""
    folder = tmp_path_factory.mktemp("catalog")
    spark.sql("CREATE DATABASE shop")
    for name, rows in (("a", "id < 900"), ("b", "id <> 17 AND id % 50 > 0")):
        frame = spark.range(1000).where(rows).selectExpr(*COLUMNS)
        if name == "b":
            frame = frame.withColumn("text", frame["text"].substr(1, 3))
        pq.write_table(frame.toArrow(), folder / f"{name}.parquet")  # Spark's own writer drops the zone of times
        frame.write.partitionBy("part").saveAsTable(f"shop.{name}")
    yield folder
    spark.sql("DROP DATABASE shop CASCADE")


def events(a: object, b: object, engine: str = "spark", **options: Any) -> bytes:
    out: list[bytes] = []
    job = TableDiffJob(a, b, check_options(**(options or {"key_columns": ["id"]})))
    find_engine(choose_engine(engine, job).name)(job, lambda data: out.append(bytes(data)))
    return b"".join(out)


def content(name: str) -> str:
    """What a pipeline knows the rows by."""
    with Workspace() as workspace:
        copied = open_source(name, workspace).copied(None)
        assert copied is not None
        return copied[1]


def test_the_bytes_are_those_of_the_same_rows_in_files(spark: Any, tables: Path) -> None:
    expected = events(tables / "a.parquet", tables / "b.parquet", "local")
    assert expected.count(b"\n") > 500
    assert events("spark:shop.a", "spark:spark_catalog.shop.b", "auto") == expected
    assert events("spark:shop.a", tables / "b.parquet") == expected
    spark.sql("CREATE VIEW shop.of_b AS SELECT * FROM shop.b")
    spark.table("shop.a").createOrReplaceTempView("of_a")
    assert events("spark:of_a", "spark:shop.of_b") == expected
    assert events("spark:of_a", "spark:shop.of_b", ignore_row_order=True) == events(
        tables / "a.parquet", tables / "b.parquet", "local", ignore_row_order=True
    )


def test_a_table_without_rows_has_columns(spark: Any, tables: Path) -> None:
    spark.sql("CREATE TABLE shop.none (id INT, `two words` STRING) USING parquet")
    assert b'"columns_a":["id","two words"]' in events("spark:shop.none", "spark:shop.none")
    assert content("spark:shop.none").startswith("0 ")


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("spark:shop.nothing", "not_found", "spark:shop.nothing does not exist in this session"),
        ("spark:elsewhere.shop.a", "unreadable_input", "spark:elsewhere.shop.a: .*single-part namespace"),
        ("spark:shop.a@3", "unreadable_input", "spark:shop.a@3: .*(?i:time travel)"),
        ("spark:shop.odd", "unsupported_type", 'column "v" is a variant: cast it to text in a view'),
    ],
)
def test_errors_are_one_line(spark: Any, tables: Path, given: str, code: str, words: str) -> None:
    spark.sql("CREATE OR REPLACE TEMP VIEW odd AS SELECT 1 id, parse_json('{}') v")
    with pytest.raises(DriftlineError, match=words) as caught:
        events(given.replace("shop.odd", "odd"), "spark:shop.b")
    assert caught.value.code == code
    assert "\n" not in caught.value.message


def test_a_damaged_file_is_told_in_one_line(spark: Any, tables: Path) -> None:
    (tables / "damaged").mkdir()
    (tables / "damaged/part.parquet").write_bytes(b"PAR1" + b"x" * 500 + b"PAR1")
    spark.sql(f"CREATE TABLE shop.damaged (id INT) USING parquet LOCATION '{tables}/damaged'")
    with pytest.raises(DriftlineError, match=r"^Spark failed: ") as caught:
        events("spark:shop.damaged", "spark:shop.b")
    assert "\n" not in caught.value.message


def test_a_key_is_needed(tables: Path) -> None:
    with pytest.raises(DriftlineError, match="A has no row order: name a key") as caught:
        events("spark:shop.a", "spark:shop.b", mode="positional")
    assert caught.value.code == "needs_key"


def test_the_rows_are_the_content(spark: Any, tables: Path) -> None:
    spark.sql("CREATE TABLE shop.c (id INT, v STRING, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql("INSERT INTO shop.c VALUES (1, 'a', 1), (2, null, 2)")
    first = content("spark:shop.c")
    spark.sql("INSERT OVERWRITE shop.c VALUES (2, null, 2), (1, 'a', 1)")
    assert content("spark:shop.c") == first, "other files, the same rows"
    spark.sql("INSERT OVERWRITE shop.c VALUES (1, 'a', 1), (2, 'c', 2)")
    second = content("spark:shop.c")
    assert second != first, "the same names and numbers of rows"
    spark.sql("INSERT INTO shop.c VALUES (2, 'c', 2)")
    assert content("spark:shop.c") != second, "a row that is there twice"
    spark.sql("INSERT OVERWRITE shop.c VALUES (1, 'a', 1), (2, 'c', 2)")
    spark.sql("ALTER TABLE shop.c ADD COLUMN w STRING")
    assert content("spark:shop.c") != second
    spark.sql("CREATE VIEW shop.some AS SELECT * FROM shop.a WHERE id < 10")
    spark.table("shop.a").where("id < 10").createOrReplaceTempView("some_rows")
    assert content("spark:shop.some") == content("spark:some_rows")
    spark.sql("CREATE OR REPLACE VIEW shop.some AS SELECT * FROM shop.a WHERE id < 11")
    assert content("spark:shop.some") != content("spark:some_rows")


def test_tables_beside(tables: Path) -> None:
    assert {"spark:shop.a@7", "spark:shop.b@7"} <= set(tables_beside("spark:shop.x_{n}@7"))


def test_the_local_engine_refuses_it_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from driftline.spark import _catalog

    monkeypatch.setattr(_catalog, "active_session", lambda: None)
    with pytest.raises(DriftlineError, match=r"which Spark alone reads.*: use --engine spark") as caught:
        events("spark:shop.a", "spark:shop.b", "local")
    assert caught.value.code == "needs_spark"
