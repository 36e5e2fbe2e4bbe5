"""Flows beside text tables: typed tables, changesets, payload pairs, code indexes; and the same bytes on Spark."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import apsw
import pytest

from driftline import changesets
from driftline.pipeline import load, run_pipeline
from support.index_caches import make_cache
from support.repositories import git, make_repository
from support.shop import (
    DAYS,
    PIPELINE,
    assert_lake_is_the_snapshots,
    change_snapshot,
    lake_rows,
    make_shop,
    output_bytes,
    read_snapshot,
    results,
    run,
)

HEAD = '[pipeline]\nname = "shop"\n\n[lake]\npath = "lake"\n\n'


def write_database(path: Path, rows: list[tuple]) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, price REAL)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    connection.close()


def test_tables_of_sqlite_files_keep_their_types(tmp_path: Path) -> None:
    write_database(tmp_path / "a.db", [(1, "x", 1.5), (2, None, 3.0)])
    write_database(tmp_path / "b.db", [(1, "x", 2.5), (2, None, 3.0), (10, "new", None)])
    (tmp_path / "shop.toml").write_text(
        HEAD + '[tables.t]\nbefore = "a.db::t"\nafter = "b.db::t"\nkey = "id"\ndeltas = true\n'
    )
    record = run(tmp_path / "shop.toml")
    assert record.exit_code == 0, record.stages
    assert lake_rows(tmp_path, "t") == {
        "1": {"id": 1, "name": "x", "price": 2.5},
        "2": {"id": 2, "name": None, "price": 3.0},
        "10": {"id": 10, "name": "new", "price": None},
    }


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_typed_files_go_into_the_lake(suffix: str, tmp_path: Path) -> None:
    import polars as pl

    frames = [pl.DataFrame({"id": ["a", "b"], "n": [1, number], "ok": [True, False]}) for number in (2, 3)]
    for name, frame in zip(("1", "2"), frames, strict=True):
        getattr(frame, {"parquet": "write_parquet", "jsonl": "write_ndjson"}[suffix])(tmp_path / f"t-{name}.{suffix}")
    (tmp_path / "shop.toml").write_text(
        HEAD + f'[tables.t]\nsnapshots = "t-{{n}}.{suffix}"\nkey = "id"\ndeltas = true\nevents = "out/{{to}}.jsonl"\n'
    )
    record = run(tmp_path / "shop.toml")
    assert record.exit_code == 0, record.stages
    assert lake_rows(tmp_path, "t") == {
        "a": {"id": "a", "n": 1, "ok": True},
        "b": {"id": "b", "n": 3, "ok": False},
    }
    assert set(results(run(tmp_path / "shop.toml")).values()) == {"kept"}


@pytest.mark.parametrize("kind", ["changeset", "patchset"])
def test_a_changeset_takes_sqlite_from_one_day_to_the_next(kind: str, tmp_path: Path) -> None:
    text = HEAD + (
        '[tables.orders]\nsnapshots = "data/orders-{date}.csv"\nkey = "id"\ncolumns = { price = "number" }\n'
        f'{kind} = "out/orders-{{to}}.bin"\n'
    )
    assert run(make_shop(tmp_path, text)).exit_code == 0
    database = tmp_path / "shop.db"
    connection = apsw.Connection(str(database))
    connection.execute('CREATE TABLE "orders" ("id" TEXT, "name" TEXT, "price" REAL, PRIMARY KEY ("id"))')
    rows = read_snapshot(tmp_path / f"data/orders-{DAYS[0]}.csv").values()
    connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", list(rows))
    connection.close()
    for day in DAYS[1:]:
        changesets.apply((tmp_path / f"out/orders-{day}.bin").read_bytes(), database)
        snapshot = read_snapshot(tmp_path / f"data/orders-{day}.csv").values()
        expected = sorted((key, name, float(price)) for key, name, price in snapshot)
        connection = apsw.Connection(str(database))
        assert sorted(connection.execute("SELECT * FROM orders")) == expected
        connection.close()


def test_payload_pairs(tmp_path: Path) -> None:
    pairs = [{"id": str(n), "old": {"a": n}, "new": {"a": n + (n == 3)}} for n in range(5)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (tmp_path / "schema.yaml").write_text("type: object\nproperties:\n  a: {type: integer}\n")
    (tmp_path / "shop.toml").write_text(
        '[pipeline]\nname = "shop"\n[payloads.api]\npairs = "pairs.jsonl"\nschema = "schema.yaml"\nreport = "out/api"\n'
        'fail_if = ["different > 10%"]\n'
    )
    record = run(tmp_path / "shop.toml")
    assert (record.exit_code, record.exceeded) == (1, ("api/payloads/compare: different > 10% (measured 20.00%)",))
    assert dict(record.stages[0].counts) == {"matching": 4, "different": 1, "errors": 0, "total": 5}
    lines = [json.loads(line) for line in (tmp_path / "out/api/reports.jsonl").read_text().splitlines()]
    assert [line["report"]["is_match"] for line in lines] == [True, True, True, False, True]
    assert results(run(tmp_path / "shop.toml")) == {"api/payloads/compare": "kept"}
    (tmp_path / "schema.yaml").write_text("type: object\nproperties:\n  a: {x-migration-precision: 1}\n")
    record = run(tmp_path / "shop.toml")
    assert (record.exit_code, results(record)) == (0, {"api/payloads/compare": "done"})
    for file in (tmp_path / "out/api").glob("*.json"):
        file.unlink()
    assert results(run(tmp_path / "shop.toml")) == {"api/payloads/compare": "done"}


def test_git_revisions(tmp_path: Path) -> None:
    pytest.importorskip("tree_sitter")
    repo = make_repository(
        tmp_path / "repo", {"m.py": "def f(a):\n    return a\n"}, {"m.py": "def f(b):\n    return b\n"}
    )
    (tmp_path / "shop.toml").write_text(
        '[pipeline]\nname = "shop"\n[indexes.code]\ncache_root = "cache"\nrepo = "repo"\n'
        'from = "git:v1"\nto = "git:HEAD"\nevents = "out/index.jsonl"\n'
    )
    assert results(run(tmp_path / "shop.toml")) == {"code/index/diff": "done"}
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "out/index.jsonl").read_text().splitlines()]
    assert kinds == ["file.modified", "chunk.modified"]
    assert results(run(tmp_path / "shop.toml")) == {"code/index/diff": "kept"}
    git(repo, "update-ref", "refs/heads/main", "v1")
    assert results(run(tmp_path / "shop.toml")) == {"code/index/diff": "done"}


def test_code_indexes(tmp_path: Path) -> None:
    make_cache(tmp_path / "cache")
    (tmp_path / "shop.toml").write_text(
        '[pipeline]\nname = "shop"\n[indexes.code]\ncache_root = "cache"\nfrom = "build:b1"\nto = "latest"\n'
        'events = "out/index.jsonl"\nregistry = true\n'
    )
    record = run(tmp_path / "shop.toml")
    assert record.exit_code == 0, record.stages
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "out/index.jsonl").read_text().splitlines()]
    assert "file.modified" in kinds
    assert record.stages[0].counts["events"] == len(kinds)
    assert len(list((tmp_path / "cache/diffs").glob("*/summary.json"))) == 1
    assert results(run(tmp_path / "shop.toml")) == {"code/index/diff": "kept"}
    shutil.rmtree(tmp_path / "cache/diffs")
    assert results(run(tmp_path / "shop.toml")) == {"code/index/diff": "done"}


@pytest.mark.spark
def test_spark_gives_the_same_bytes_and_one_session(spark, tmp_path: Path) -> None:
    here, there = tmp_path / "local", tmp_path / "spark"
    text = PIPELINE.replace("compact = true\n", 'compact = true\npatchset = "out/{table}-{to}.patchset"\n')
    assert run(make_shop(here, text), engine="local").exit_code == 0
    file = make_shop(there, text)
    record = run_pipeline(load(file), engine="spark", master="local[2]")
    assert (record.exit_code, record.engine) == (0, "spark"), record.stages
    assert output_bytes(there) == output_bytes(here)
    assert_lake_is_the_snapshots(there)
    assert spark.range(3).count() == 3, "the session that was there before is left running"
    # What was done on one engine is true on the other.
    assert set(results(run(file, engine="local")).values()) == {"kept"}
    change_snapshot(there / "data/orders-2026-03-02.csv", lambda rows: rows.update({"5": ["5", "other", "1"]}))
    assert run_pipeline(load(file), engine="spark", master="local[2]").exit_code == 0
    assert_lake_is_the_snapshots(there)
