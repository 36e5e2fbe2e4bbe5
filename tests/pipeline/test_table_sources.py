"""The retail example over tables that are no files: the lake, the counts and the states are those of the CSV files.

Judges: the run over CSV files, and what DuckDB, Polars and plain Spark read of the outputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

from driftline.errors import DriftlineError
from driftline.lake import Lake, extract_snapshots
from driftline.lake._read.state import state_rows
from driftline.pipeline import Selection, dry_run, load, run_pipeline
from driftline.pipeline._declare.snapshots import parse_period
from support.postgres import postgres_server
from support.processes import run_process
from support.shop import results, run

pytestmark = pytest.mark.histories

deltalake = pytest.importorskip("deltalake", reason="needs deltalake, the extra lake")

ROOT = Path(__file__).parents[2]
DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")
TABLES = {
    "customers": {"credit": pa.float64()},
    "products": {"price": pa.float64(), "stock": pa.int64(), "active": pa.bool_()},
    "orders": {"pieces": pa.int64(), "total": pa.float64()},
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's data and its run over CSV files: what every other run is compared with."""
    folder = tmp_path_factory.mktemp("retail")
    run_process(["python3", ROOT / "examples/retail/make_data.py", folder, "--rows", "300"], check=True)
    (folder / "retail.toml").write_text(own_tables("data/{table}-{{date}}.csv"))
    assert run(folder / "retail.toml").result == "done"
    return folder


def own_tables(pattern: str, more: str = "") -> str:
    """The example's file with another source of its three daily tables, and without what is not about them."""
    text = (ROOT / "examples/retail/retail.toml").read_text()
    head, _, _ = text.partition("[tables.prices]")
    return more + re.sub(r'"data/(\w+)-\{date\}\.csv"', lambda m: f'"{pattern.format(table=m[1])}"', head)


def typed(shop: Path, table: str, day: str) -> pa.Table:
    """A snapshot with the types that a database has for it; a customer without a tier has a null there."""
    found = arrow_csv.read_csv(
        shop / f"data/{table}-{day}.csv",
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types={**dict.fromkeys(_header(shop, table, day), pa.string()), **TABLES[table]},
            strings_can_be_null=False,
        ),
    )
    if "tier" not in found.column_names:
        return found
    tiers = pa.array([tier or None for tier in found.column("tier").to_pylist()], pa.string())
    return found.set_column(found.column_names.index("tier"), "tier", tiers)


def _header(shop: Path, table: str, day: str) -> list[str]:
    return (shop / f"data/{table}-{day}.csv").read_text().splitlines()[0].split(",")


def lake_of(folder: Path) -> dict[str, Any]:
    """What the lake holds of each table at the end of each day."""
    lake = Lake(folder / "lake")
    days = [(table, day, parse_period(day)) for table in TABLES for day in DAYS]
    found = {f"{table} {day}": dict(state_rows(lake, table, as_of=one.end)) for table, day, one in days if one}
    for rows in found.values():
        for row in rows.values():
            if row.get("tier") == "":  # a CSV file has no other way to write a null
                row["tier"] = None
    return found


def same_content(folder: Path, shop: Path, text: str, change: Callable[[], None], **options: Any) -> None:
    """A run over `text` has the content of the CSV run; a second one does nothing, one after a change does that."""
    (folder / "retail.toml").write_text(text)
    record = run(folder / "retail.toml", **options)
    assert record.result == "done", [stage.problem for stage in record.stages if stage.problem]
    assert lake_of(folder) == lake_of(shop)
    counted = {stage.stage: stage.counts for stage in record.stages if stage.stage.endswith("/diff")}
    again = run(folder / "retail.toml", **options)
    assert set(results(again).values()) == {"kept"}, "nothing changed, nothing is done"
    change()
    changed = run(folder / "retail.toml", ignore_thresholds=True, **options)
    assert changed.result == "done", [stage.problem for stage in changed.stages if stage.problem]
    done = {stage.stage for stage in changed.stages if stage.result == "done"}
    assert {"orders/2026-03-03/diff", "orders/2026-03-03/deltas"} <= done
    assert not {name for name in done if name.startswith(("customers/", "products/"))}
    here, there = lake_of(folder), lake_of(shop)
    assert {name: rows for name, rows in here.items() if name != "orders 2026-03-03"} == {
        name: rows for name, rows in there.items() if name != "orders 2026-03-03"
    }
    assert here["orders 2026-03-03"].keys() < there["orders 2026-03-03"].keys()
    assert counted["orders/2026-03-02/diff"]["changed"] > 0


def test_delta_tables(shop: Path, tmp_path: Path) -> None:
    def write(table: str, day: str, rows: int | None = None) -> None:
        deltalake.write_deltalake(
            str(tmp_path / f"warehouse/{table}-{day}"), typed(shop, table, day)[:rows], mode="overwrite"
        )

    for table in TABLES:
        for day in DAYS:
            write(table, day)
    text = own_tables("delta:warehouse/{table}-{{date}}")
    same_content(tmp_path, shop, text, lambda: write("orders", DAYS[2], 100))


def test_versions_of_delta_tables_are_named(shop: Path, tmp_path: Path) -> None:
    for day in DAYS:
        deltalake.write_deltalake(str(tmp_path / "orders"), typed(shop, "orders", day), mode="overwrite")
    moment = deltalake.DeltaTable(str(tmp_path / "orders"), version=1).history()[0]["timestamp"]
    (tmp_path / "p.toml").write_text(
        '[pipeline]\nname = "p"\n[tables.t]\nbefore = "orders@0"\nafter = "delta:orders@1"\nkey = "order_id"\n'
        'events = "e.jsonl"\n[tables.u]\nbefore = "delta:orders@0"\n'
        'after = "delta:orders@2999-01-01T00:00:00Z"\nkey = "order_id"\nevents = "f.jsonl"\n'
    )
    assert moment
    assert run(tmp_path / "p.toml").result == "done"
    plan = dry_run(load(tmp_path / "p.toml"))
    assert [stage.plan for stage in plan] == ["keep", "keep"]
    assert plan[1].reads == ("delta:orders@0", "delta:orders@2999-01-01T00:00:00Z")
    assert len((tmp_path / "f.jsonl").read_text().splitlines()) > len((tmp_path / "e.jsonl").read_text().splitlines())


def test_iceberg_tables(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyiceberg", reason="needs pyiceberg, the extra iceberg")
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    (tmp_path / "warehouse").mkdir()
    for name, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path}/c.db",
        "WAREHOUSE": f"file://{tmp_path}/warehouse",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SHOP__{name}", value)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    shops = catalog.load_catalog("shop")
    shops.create_namespace("retail")

    def write(table: str, day: str, rows: int | None = None) -> None:
        data = typed(shop, table, day)[:rows]
        name = f"retail.{table}_{day.replace('-', '')}"
        (shops.load_table(name) if rows else shops.create_table(name, schema=data.schema)).overwrite(data)

    for table in TABLES:
        for day in DAYS:
            write(table, day)
    text = own_tables("iceberg:shop/retail.{table}_{{date}}")
    same_content(tmp_path, shop, text, lambda: write("orders", DAYS[2], 100))


@pytest.mark.postgres
def test_tables_of_postgresql_are_read_once_in_a_run(shop: Path, tmp_path: Path) -> None:
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="needs the extra postgresql")
    with postgres_server() as uri:

        def sql(statement: str) -> None:
            with dbapi.connect(uri) as connection, connection.cursor() as cursor:
                cursor.execute(statement)
                connection.commit()

        sql("CREATE SCHEMA retail")
        with dbapi.connect(uri) as connection, connection.cursor() as cursor:
            for table in TABLES:
                for day in DAYS:
                    name = f"{table}_{day.replace('-', '')}"
                    cursor.adbc_ingest(name, typed(shop, table, day), db_schema_name="retail")
            connection.commit()
        text = own_tables(f"{uri}::retail.{{table}}_{{{{date}}}}")

        def change() -> None:
            sql("UPDATE retail.orders_20260302 SET note = note")  # the same rows in another order
            sql("DELETE FROM retail.orders_20260303 WHERE order_id > 'O0000100'")

        same_content(tmp_path, shop, text, change)
        assert not list((tmp_path / ".driftline/retail/work").glob("table-*")), "copies are removed"
        sql("DELETE FROM retail.orders_20260303")
        assert run(tmp_path / "retail.toml", ignore_thresholds=True).result == "done"
        assert lake_of(tmp_path)["orders 2026-03-03"] == {}, "a table without rows has columns"

        sql("CREATE TABLE x (id int PRIMARY KEY, v text)")
        sql("CREATE TABLE y (id int PRIMARY KEY, v text)")
        sql("INSERT INTO y VALUES (1, 'a')")
        between = {"key": ["id"], "table": "t", "client_id": "c"}
        extract_snapshots(Lake(tmp_path / "other"), f"{uri}::x", f"{uri}::y", load_base=True, **between)
        sql("INSERT INTO y VALUES (2, 'b')")
        with pytest.raises(DriftlineError, match="the lake") as caught:  # and not "it was done before"
            extract_snapshots(Lake(tmp_path / "other"), f"{uri}::x", f"{uri}::y", **between)
        assert caught.value.code == "base_mismatch"


@pytest.mark.spark
def test_tables_and_views_of_a_catalog(shop: Path, tmp_path: Path, spark: Any) -> None:
    import pyarrow.parquet as pq

    spark.sql("CREATE DATABASE retail")

    def write(table: str, day: str, rows: int | None = None) -> None:
        name, file = f"retail.{table}_{day.replace('-', '')}", f"{tmp_path}/{table}-{day}.parquet"
        pq.write_table(typed(shop, table, day)[:rows], file)
        if table == "customers":
            spark.sql(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM parquet.`{file}` WHERE customer_id <> ''")
        else:
            spark.read.parquet(file).write.mode("overwrite").saveAsTable(name)

    try:
        for table in TABLES:
            for day in DAYS:
                write(table, day)
        text = own_tables("spark:spark_catalog.retail.{table}_{{date}}")
        same_content(tmp_path, shop, text, lambda: write("orders", DAYS[2], 100))
        assert not list((tmp_path / ".driftline/retail/work").glob("table-*")), "copies are removed"
        write("customers", DAYS[2], 50)
        plan = {stage.stage: stage.why for stage in dry_run(load(tmp_path / "retail.toml"))}
        name = f"spark:spark_catalog.retail.customers_{DAYS[2].replace('-', '')}"
        assert plan[f"customers/{DAYS[2]}/diff"] == f"{name} changed", "the rows of a view are its content"
        with pytest.raises(DriftlineError, match="reads tables of a Spark catalog, which engine local cannot"):
            run(tmp_path / "retail.toml", engine="local")
    finally:
        spark.sql("DROP DATABASE retail CASCADE")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('snapshots = "iceberg:c/n.t@*"', "stands at the end, behind a Delta table"),
        ('snapshots = "t-{n}T{hour}.csv"', "stands once, beside {date}"),
        ('before = "postgresql://u:secret@h/d::t"\nafter = "b.csv"', "without a password"),
        ('snapshots = "spark:c.s.t@*"', "stands at the end, behind a Delta table"),
        ('before = "mysql://h/d::t"\nafter = "b.csv"', "a pipeline takes"),
        ('before = "a.csv"\nafter = "b.csv"\nchangeset = "delta:x"', "a pipeline takes"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "p.toml").write_text(
        f'[pipeline]\nname = "p"\n[tables.t]\n{line}\nkey = "id"\nevents = "e-{{to}}.jsonl"\n'
    )
    with pytest.raises(DriftlineError, match=words) as caught:
        load(tmp_path / "p.toml")
    assert "p.toml:4" in caught.value.message or "p.toml:6" in caught.value.message
    assert "secret" not in caught.value.message


def test_a_table_that_cannot_be_read_fails_its_own_stages_only(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "p.toml").write_text(
        '[pipeline]\nname = "p"\n[tables.t]\nbefore = "delta:nowhere"\nafter = "a.csv"\nkey = "id"\n'
        'events = "t.jsonl"\n'
        '[tables.u]\nbefore = "a.csv"\nafter = "a.csv"\nkey = "id"\nevents = "u.jsonl"\n'
    )
    record = run_pipeline(load(tmp_path / "p.toml"))
    assert results(record) == {"t/after/diff": "failed", "u/after/diff": "done"}
    assert "not_found" in (record.stages[0].problem or "")


@pytest.mark.spark
def test_events_and_states_as_delta_tables_are_read_by_others(shop: Path, tmp_path: Path, spark: Any) -> None:
    import duckdb
    import polars as pl

    folder = shop / "as_delta"
    folder.mkdir()
    (folder / "p.toml").write_text(
        '[pipeline]\nname = "d"\n[lake]\npath = "lake"\n[tables.orders]\nsnapshots = "../data/orders-{date}.csv"\n'
        'key = "order_id"\ncolumns = { pieces = "integer", total = "decimal(2)" }\nevents = "out/{to}"\n'
        'events_format = "delta"\ndeltas = true\n[[tables.orders.state]]\npath = "out/state"\nformat = "delta"\n'
    )
    record = run(folder / "p.toml")
    assert record.result == "done", [stage.problem for stage in record.stages if stage.problem]
    assert set(results(run(folder / "p.toml")).values()) == {"kept"}
    events, state = str(folder / f"out/{DAYS[1]}"), str(folder / "out/state")
    lines = (folder / f".driftline/d/events/orders/{DAYS[1]}.jsonl").read_text().splitlines()
    for table, rows in ((events, len(lines)), (state, len(lake_of(shop)["orders 2026-03-03"]))):
        by_delta = pl.read_delta(table)
        assert by_delta.height == rows
        by_duckdb = pl.DataFrame(duckdb.sql(f"SELECT * FROM read_parquet('{table}/*.parquet')").to_arrow_table())
        by_spark = pl.DataFrame(spark.read.parquet(table).toArrow())
        sort = by_delta.columns[0]
        assert by_delta.sort(sort).equals(by_duckdb.sort(sort))
        assert by_delta.sort(sort).to_dicts() == by_spark.sort(sort).to_dicts()
    kinds = pl.read_delta(state).schema
    assert (kinds["pieces"], kinds["total"]) == (pl.Int64, pl.Decimal(38, 2))
    (folder / f"out/{DAYS[1]}/_delta_log/00000000000000000000.json").unlink()
    again = run(folder / "p.toml")
    assert results(again)[f"orders/{DAYS[1]}/diff"] == "done", "a damaged table is written again"
    assert pl.read_delta(events).height == len(lines)


def test_hours_are_labels(tmp_path: Path) -> None:
    for hour, value in (("2026-03-01/23", "a"), ("2026-03-02/00", "b"), ("2026-03-02/05", "c")):
        file = tmp_path / f"data/{hour}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"id,v\n1,{value}\n")
    (tmp_path / "data/2026-03-02/24.csv").write_text("not an hour")
    text = (
        '[pipeline]\nname = "h"\n[lake]\npath = "lake"\n[tables.t]\nsnapshots = "data/{date}/{hour}.csv"\nkey = "id"\n'
        'events = "out/{to}.jsonl"\nwarn_if = ["age > 1h"]\ndeltas = true\n'
        '[[tables.t.state]]\npath = "at-midnight.csv"\nformat = "csv"\nas_of = "2026-03-02T00"\n'
        '[[tables.t.state]]\npath = "day-one.csv"\nformat = "csv"\nas_of = "2026-03-01"\n'
    )
    (tmp_path / "p.toml").write_text(text)
    record = run(tmp_path / "p.toml")
    assert record.result == "done", [stage.problem for stage in record.stages if stage.problem]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["2026-03-02T00.jsonl", "2026-03-02T05.jsonl"]
    assert (tmp_path / "at-midnight.csv").read_text() == "_row_id,id,v\n1,1,b\n"
    assert (tmp_path / "day-one.csv").read_text() == "_row_id,id,v\n1,1,a\n"
    assert "age > 1h" in record.warnings[0], "the hour ended long ago"
    plan = dry_run(load(tmp_path / "p.toml"), Selection(first="2026-03-02", last="2026-03-02"), full_refresh=False)
    assert {stage.plan for stage in plan} == {"keep"}
    (tmp_path / "data/2026-03-02/05.csv").write_text("id,v\n1,d\n")
    taken = {
        last: [stage.stage for stage in dry_run(load(tmp_path / "p.toml"), Selection(last=last)) if stage.plan == "run"]
        for last in ("2026-03-02", "2026-03-02T04")
    }
    assert "t/2026-03-02T05/diff" in taken["2026-03-02"], "a day has its hours"
    assert "t/2026-03-02T05/diff" not in taken["2026-03-02T04"]
    (tmp_path / "p.toml").write_text(text.replace('key = "id"', 'key = "id"\nsince = "2026-03-02"'))
    assert not [stage for stage in dry_run(load(tmp_path / "p.toml")) if "2026-03-01" in stage.stage]


def test_settings_of_spark_in_the_file(tmp_path: Path) -> None:
    text = '[pipeline]\nname = "p"\n[tables.t]\nbefore = "a.csv"\nafter = "a.csv"\nevents = "e.jsonl"\n[spark]\n{}\n'
    (tmp_path / "p.toml").write_text(text.format('"spark.executor.memory" = "4g"\n"spark.ui.enabled" = true'))
    assert load(tmp_path / "p.toml").spark == {"spark.executor.memory": "4g", "spark.ui.enabled": "true"}
    for line, words in (
        ('spark.executor.memory = "4g"', 'have quoted names, as "spark.executor.memory"'),
        ('"spark.master" = "yarn"', "spark.master is set by driftline: use --master"),
        ('"memory" = "4g"', "have quoted names"),
    ):
        (tmp_path / "p.toml").write_text(text.format(line))
        with pytest.raises(DriftlineError, match=words) as caught:
            load(tmp_path / "p.toml")
        assert "p.toml:" in caught.value.message
