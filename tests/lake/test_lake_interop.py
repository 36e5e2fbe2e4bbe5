"""Other tools read the lake as it is: Polars and deltalake's query engine see the rows that `materialize` writes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder

from driftline.lake import Lake, compact, flush, flush_envelopes, materialize, register, vacuum, verify
from driftline.lake._read.state import all_deltas
from driftline.lake._store.rows import escape_name, unescape_name
from support.lakes import SCHEMA, delta, load_lake

BATCHES = [
    [delta("INSERT", f"r{n}", n, title=f"t{n}", done=n % 2 == 0, **{"Unit Price": n / 4}) for n in range(40)],
    [delta("UPDATE", f"r{n}", 100 + n, title=None, **{"tags (all)": [n]}) for n in range(0, 40, 3)]
    + [delta("DELETE", f"r{n}", 200 + n) for n in range(0, 40, 5)],
]


@pytest.fixture(params=[{0, 1}, {1}], ids=["two generations", "one generation"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    return load_lake(tmp_path, BATCHES, request.param)


def materialized(lake: Lake) -> list[dict[str, Any]]:
    out = io.BytesIO()
    materialize(lake, "todos", out)
    names = ["_row_id", *SCHEMA.names]
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    return [{name: row.get(name) for name in names} for row in rows]


def in_own_words(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the files with their own names, json columns parsed, in the order of row ids."""
    named = [{unescape_name(name): value for name, value in row.items()} for row in rows]
    for row in named:
        row["tags (all)"] = None if row["tags (all)"] is None else json.loads(row["tags (all)"])
    return sorted(named, key=lambda row: row["_row_id"])


def test_polars_reads_base_and_deltas(lake: Lake) -> None:
    base = pl.scan_delta(lake.part("todos", "base")).drop("_stamps").collect()
    assert in_own_words(base.to_dicts()) == materialized(lake)
    deltas = pl.scan_delta(lake.part("todos", "deltas"))
    assert deltas.select(pl.len()).collect().item() == sum(map(len, BATCHES))
    newest = deltas.filter(pl.col("_hlc") >= 200).select("_row_id", "_op").collect()
    assert set(newest["_op"]) == {"DELETE"}
    dead = pl.scan_delta(lake.part("todos", "deletes")).collect()["_row_id"]
    assert set(dead) == set(newest["_row_id"])


def test_deltalakes_own_engine_reads_base_and_deltas(lake: Lake) -> None:
    engine = QueryBuilder()
    engine.register("base", DeltaTable(lake.part("todos", "base")))
    engine.register("deltas", DeltaTable(lake.part("todos", "deltas")))
    names = ", ".join(f'"{escape_name(name)}"' for name in ("_row_id", *SCHEMA.names))
    rows = query(engine, f"SELECT {names} FROM base")
    assert in_own_words(rows) == materialized(lake)
    counted = query(engine, "SELECT _op, count(*) AS n FROM deltas GROUP BY _op ORDER BY _op")
    assert [(row["_op"], row["n"]) for row in counted] == [("DELETE", 8), ("INSERT", 40), ("UPDATE", 14)]


def test_a_winner_by_sql_is_the_winner_of_the_fold(lake: Lake) -> None:
    """Stamps order in any engine as they do here (the client ids of this lake are ASCII)."""
    deltas = pl.scan_delta(lake.part("todos", "deltas")).filter(pl.col("_columns").list.contains("title"))
    winners = deltas.sort("_hlc", "_client_id", "_delta_id").group_by("_row_id").last().select("_row_id", "_hlc")
    base = pl.scan_delta(lake.part("todos", "base")).select(
        "_row_id", pl.col("_stamps").struct.field("columns").struct.field("title").struct.field("hlc").alias("won")
    )
    both = base.join(winners, on="_row_id").collect()
    assert both.height > 20
    assert (both["won"] == both["_hlc"]).all()


def query(engine: QueryBuilder, sql: str) -> list[dict[str, Any]]:
    import pyarrow as pa

    rows: list[dict[str, Any]] = pa.table(engine.execute(sql)).to_pylist()
    return rows


def test_a_store_without_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything goes through the store handler of deltalake, as it does for an object-store URL."""
    monkeypatch.setattr(Lake, "is_local", False)
    lake = Lake(str(tmp_path))
    flush(lake, "todos", BATCHES[0], gateway_id="gw", sequence=1)
    register(lake, SCHEMA)
    flush_envelopes(lake, "todos")
    flush(lake, "todos", BATCHES[1], gateway_id="gw", sequence=2)
    assert lake.tables() == ["todos"]
    assert compact(lake, "todos", rows_per_range=10).is_new
    assert verify(lake, "todos", oracle=True).is_proved
    assert len(materialized(lake)) == 32
    assert len(list(all_deltas(lake, "todos"))) == sum(map(len, BATCHES))
    assert len(vacuum(lake, "todos", hours=0)) == 1
    assert verify(lake, "todos").is_proved


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    assert Lake(f"file://{tmp_path}") == Lake(str(tmp_path))
    assert "secret" not in repr(Lake("s3://bucket/lake", {"AWS_SECRET_ACCESS_KEY": "secret"}))
