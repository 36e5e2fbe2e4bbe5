"""What driftline asks of Spark, once each: run on another Spark than the locked one (`make test-sparks`)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from pyspark.sql import functions

import driftline as dl
import driftline.spark
from driftline.changesets._make.rows import from_events
from driftline.errors import EngineError
from driftline.pipeline import load, run_pipeline
from driftline.tables._options import check_options

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]


def test_files_have_the_bytes_of_the_local_engine(spark, tmp_path: Path) -> None:
    for name, shift in (("a", 0), ("b", 3)):
        rows = (f'{n},"text, {n % (7 + shift)}",{n / 2}\n' for n in range(shift, 500))
        (tmp_path / f"{name}.csv").write_text("id,name,value\n" + "".join(rows))
    files = tmp_path / "a.csv", tmp_path / "b.csv"
    for rules in ({"key": "id"}, {}, {"ignore_row_order": True}, {"key": "id", "tolerance": {"value": "1%"}}):
        check_options(**rules)
        on_spark, local = (list(dl.diff(*files, engine=engine, **rules)) for engine in ("spark", "local"))
        assert on_spark == local


HAS_RULES = hasattr(functions, "arrow_udf")  # of columns of DataFrames: since Spark 4.1


def test_dataframes_without_rules(spark) -> None:
    a = spark.sql("SELECT id, concat('n', id) AS name, id / 2 AS score FROM range(20)")
    b = spark.sql("SELECT id, concat('n', id % 15) AS name, id / 2 AS score FROM range(5, 25)")
    changes = driftline.spark.diff(a, b, key="id")
    kinds = [event["type"] for event in changes.events.collect()]
    assert kinds == ["removed"] * 5 + ["changed"] * 5 + ["added"] * 5
    assert driftline.spark.merge_rows(changes).count() == 15
    deltas = driftline.spark.row_deltas(changes, table="t", client_id="c", start=1)
    columns = [
        {"name": "id", "type": "integer"},
        {"name": "name", "type": "string"},
        {"name": "score", "type": "number"},
    ]
    assert driftline.spark.fold(deltas, {"table": "t", "columns": columns}).count() == 10
    positional = driftline.spark.diff(a, b)
    assert positional.stats.first()["rows_changed"] == 20


def test_a_pipeline(spark, tmp_path: Path) -> None:
    for day in (1, 2, 3):
        rows = (f"{n},{n % (day + 6)}\n" for n in range(day, 200))
        (tmp_path / f"t-2026-03-0{day}.csv").write_text("id,v\n" + "".join(rows))
    (tmp_path / "p.toml").write_text(
        '[pipeline]\nname = "p"\n[lake]\npath = "lake"\n[tables.t]\nsnapshots = "t-{date}.csv"\nkey = "id"\n'
        'deltas = true\ncompact = true\nchangeset = "{to}.changeset"\n'
        '[[tables.t.state]]\npath = "state.csv"\nformat = "csv"\nas_of = "2026-03-02"\n'
    )
    record = run_pipeline(load(tmp_path / "p.toml"), engine="spark")
    assert record.exit_code == 0, [stage.problem for stage in record.stages]
    held = {line.partition(",")[2] for line in (tmp_path / "state.csv").read_text().splitlines()}
    assert held == set((tmp_path / "t-2026-03-02.csv").read_text().splitlines())


@pytest.mark.skipif(HAS_RULES, reason="this Spark has functions over Arrow arrays")
def test_rules_on_an_older_spark_are_refused_by_name(spark) -> None:
    frame = spark.sql("SELECT id, id / 2 AS score FROM range(20)")
    with pytest.raises(EngineError, match=r"need Spark 4\.1 or newer"):
        driftline.spark.diff(frame, frame, key="id", tolerance={"score": "0.01"})


@pytest.mark.skipif(not HAS_RULES, reason="since Spark 4.1")
def test_dataframes(spark) -> None:
    a = spark.sql("SELECT id, concat(' n', id) AS name, id / 2 AS score FROM range(20)")
    b = spark.sql("SELECT id, concat('N', id % 15) AS name, id / 2 + 0.001 AS score FROM range(5, 25)")
    rules = {"normalize": {"name": "trim,case"}, "tolerance": {"score": "0.01"}, "duplicates": "match"}
    changes = driftline.spark.diff(a, b, key="id", column_stats=True, **rules)
    events = changes.events.collect()
    assert [event["type"] for event in events] == ["removed"] * 5 + ["changed"] * 5 + ["added"] * 5
    assert changes.stats.first()["column_stats"][1]["changed"] == 5
    assert driftline.spark.merge_rows(changes).count() == 15
    deltas = driftline.spark.row_deltas(changes, table="t", client_id="c", start=1)
    columns = [
        {"name": "id", "type": "integer"},
        {"name": "name", "type": "string"},
        {"name": "score", "type": "number"},
    ]
    assert driftline.spark.fold(deltas, {"table": "t", "columns": columns}).count() == 10
    file = io.BytesIO()
    assert driftline.spark.write_changeset(changes, file, table="t") == 15
    schema = {"type": "schema", "columns_a": a.columns, "columns_b": a.columns}
    plain = [{k: v for k, v in event.asDict(recursive=True).items() if v is not None} for event in events]
    types = {"id": "INTEGER", "name": "TEXT", "score": "NUMERIC"}
    assert len(file.getvalue()) == len(bytes(from_events([schema, *plain], "t", types=types)))


def test_payloads(spark) -> None:
    frame = spark.createDataFrame([('{"a": 1}', '{"a": 2}')], "old string, new string")
    [row] = driftline.spark.compare_payloads(frame, "old", "new", {"properties": {}}).collect()
    assert row["is_match"] is False
    assert json.loads(row["report"])
