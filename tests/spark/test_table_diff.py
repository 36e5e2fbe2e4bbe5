"""Table diffs on Spark: cut every way, with exact errors; tests/engines/test_tables.py runs the golden cases."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.core import _engines as engines
from driftline.core._progress import Progress, Tracker
from driftline.errors import Cancelled, DriftlineError
from driftline.spark import _table_diff as table_diff
from driftline.spark._table_diff import SparkPlan
from driftline.spark._table_tasks import FACT, hashes_of
from driftline.spark._tasks import pack, unpack
from driftline.tables._engines import TableDiffJob, find_engine
from driftline.tables._options import check_options

pytestmark = pytest.mark.spark


SMALL = SparkPlan(split_bytes=9000, task_bytes=20_000, bucket_rows=350, range_bytes=20_000, plan_on_spark_bytes=0)
STREAMED = SparkPlan(split_bytes=20_000, bucket_rows=600, range_bytes=30_000, stream_lines=True)
NOTES = ["plain", "", 'said "hi", left', "two\nlines", "two\r\nlines", "é ж 漢", "null", " "]


@pytest.mark.parametrize("sizes", [SMALL, STREAMED], ids=["files", "stream"])
@pytest.mark.parametrize(
    "options",
    [
        {"key_columns": ["id"]},
        {"key_columns": ["group", "id"], "emit_unchanged": True, "header_mode": "sorted"},
        {},
        {"ignore_row_order": True},
    ],
    ids=["keyed", "composite", "positional", "multiset"],
)
def test_any_cut_gives_the_bytes_of_the_local_engine(spark, tmp_path: Path, options: dict, sizes: SparkPlan) -> None:
    a, b = _two_tables(tmp_path, "sorted" in str(options))
    job = TableDiffJob(a, b, check_options(**options))
    assert _run(job, sizes) == _run(job, engine="local")


def test_part_files_of_a_folder_follow_each_other(spark, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "1.csv").write_text("id,v\n1,a\n2,b\n")
    (folder / "2.csv").write_text("id,v\n3,c\n1,d\n")
    (tmp_path / "b.csv").write_text("id,v\n1,a\n")
    job = TableDiffJob(folder, tmp_path / "b.csv", check_options(key_columns=["id"]))
    with pytest.raises(DriftlineError, match=r'Duplicate key in A: \{"id":"1"\} \(rows 2 and 5\)'):
        _run(job)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda rows: [*rows, ["7", "x", "dup"]], 'Duplicate key in B: {"id":"7"} (rows 9 and 602)'),
        (lambda rows: [*rows[:500], ["few"], *rows[500:]], "Row width mismatch in B at row 502: expected 3, got 1"),
        (lambda rows: [*rows[:333], ["", "", ""], *rows[333:]], 'Missing key value in B at row 335: column "id"'),
        (lambda rows: [*rows[:400], ["q1", '"a"b', "c"], *rows[400:]], "CSV parse error in B at row 402"),
    ],
    ids=["duplicate", "width", "missing key", "quoting"],
)
def test_errors_name_the_exact_row(spark, tmp_path: Path, spoil, message: str) -> None:
    rows = [[str(n), "two\nlines" if n % 5 == 0 else "v", "w"] for n in range(600)]
    _write(tmp_path / "a.csv", rows)
    _write(tmp_path / "b.csv", spoil(rows))
    job = TableDiffJob(tmp_path / "a.csv", tmp_path / "b.csv", check_options(key_columns=["id"]))
    with pytest.raises(DriftlineError) as caught:
        _run(job, SMALL)
    assert message in caught.value.message
    with pytest.raises(DriftlineError) as local:
        _run(job, engine="local")
    assert caught.value.to_dict() == local.value.to_dict()


@pytest.mark.parametrize("stream_lines", [False, True])
def test_a_hash_collision_starts_again_with_other_seeds(spark, tmp_path: Path, monkeypatch, stream_lines) -> None:
    a, b = _two_tables(tmp_path, False)
    original, original_graph, used_seeds = table_diff.table_tasks.hash_task, table_diff._task_graph, []

    def task_graph(session, plan):
        used_seeds.append(plan.table.seeds)
        return original_graph(session, plan)

    def hash_task(plan, batches):
        def spoiled():
            for block in unpack(original(plan, batches)):
                if plan.table.seeds == used_seeds[0] and block.kind != FACT:
                    hashes = hashes_of(block).copy()
                    hashes["key"] = 1
                    block = block._replace(kind="hashes", blob=hashes.tobytes())
                yield block

        return pack(spoiled())

    monkeypatch.setattr(table_diff, "_task_graph", task_graph)
    monkeypatch.setattr(table_diff.table_tasks, "hash_task", hash_task)
    job = TableDiffJob(a, b, check_options(key_columns=["id"]))
    assert _run(job, replace(SMALL, stream_lines=stream_lines)) == _run(job, engine="local")
    assert len(set(used_seeds)) == len(used_seeds) == 2


def test_a_file_that_changes_is_told(spark, tmp_path: Path) -> None:
    a, b = _two_tables(tmp_path, False)

    def change_b(report: Progress) -> None:
        if report.phase == "diff" and not b.read_bytes().endswith(b"9999,,\n"):
            b.write_bytes(b.read_bytes() + b"9999,,\n")

    job = TableDiffJob(a, b, check_options(key_columns=["id"]), tracker=Tracker(change_b, interval=0))
    with pytest.raises(DriftlineError, match="changed while it was being read"):
        _run(job)


def test_progress_is_told_and_cancelling_ends_the_job(spark, tmp_path: Path) -> None:
    a, b = _two_tables(tmp_path, False)
    phases: list[str] = []
    job = TableDiffJob(a, b, check_options(), tracker=Tracker(lambda report: phases.append(report.phase)))
    _run(job, SMALL)
    # Splits are guessed, so nothing is read to plan them; only a wrong guess is laid out by a job of its own.
    assert list(dict.fromkeys(phases)) == ["count", "diff", "write"]

    tracker = Tracker(lambda report: report.phase == "diff" and tracker.cancel())
    with pytest.raises(Cancelled):
        _run(TableDiffJob(a, b, check_options(), tracker=tracker), SMALL)
    assert spark.range(5).count() == 5
    assert threading.active_count() < 30


def test_nothing_is_left_behind(spark, tmp_path: Path, monkeypatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv(engines.SHARED_FOLDER_VARIABLE, str(shared))
    a, b = _two_tables(tmp_path, False)
    job = TableDiffJob(a, b, check_options(key_columns=["id"]))
    assert _run(job, SMALL) == _run(job, engine="local")
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "sqlite"])
def test_typed_sources_give_the_bytes_of_the_local_engine(spark, tmp_path: Path, kind: str) -> None:
    a = [{"id": n, "when": f"2026-01-{n % 28 + 1:02d}", "v": n / 7, "tag": None} for n in range(300)]
    b = [{**row, "v": 1.5 if row["id"] % 40 == 0 else row["v"]} for row in reversed(a[5:])]
    job = TableDiffJob(
        _typed(tmp_path, "a", kind, a), _typed(tmp_path, "b", kind, b), check_options(key_columns=["id"])
    )
    assert _run(job, SparkPlan(bucket_rows=200, range_bytes=4000)) == _run(job, engine="local")


def _typed(folder: Path, name: str, kind: str, rows: list[dict]) -> str:
    path = folder / f"{name}.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=100)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with sqlite3.connect(path) as database:
            database.execute("create table t (id integer, day text, v real, tag text)")
            database.executemany("insert into t values (?, ?, ?, ?)", [tuple(row.values()) for row in rows])
        return f"{path}::t"
    return str(path)


def _run(job: TableDiffJob, sizes: SparkPlan | None = None, engine: str = "spark") -> bytes:
    written: list[bytes] = []
    if engine == "spark":
        table_diff.run(job, lambda data: written.append(bytes(data)), sizes)
    else:
        find_engine(engine)(job, lambda data: written.append(bytes(data)))
    return b"".join(written)


def _two_tables(folder: Path, other_order: bool) -> tuple[Path, Path]:
    """B is A in another order, with rows changed, added and removed; unique ids, cells of every kind."""
    chance = random.Random(5)
    a = [[str(n), f"g{n % 7}", chance.choice(NOTES)] for n in chance.sample(range(5000), 900)]
    b = [[key, group, chance.choice(NOTES) if chance.random() < 0.2 else note] for key, group, note in a]
    b = b[30:] + [[str(n), "g1", "new"] for n in range(6000, 6040)]
    chance.shuffle(b)
    _write(folder / "a.csv", a)
    _write(folder / "b.csv", b, [2, 0, 1] if other_order else [0, 1, 2])
    return folder / "a.csv", folder / "b.csv"


def _write(path: Path, rows: list[list[str]], order: tuple[int, ...] | list[int] = (0, 1, 2)) -> None:
    lines = []
    for row in [["id", "group", "note"], *rows]:
        cells = [row[index] for index in order if index < len(row)]
        lines.append(",".join(_quoted(cell) for cell in cells) + "\n")
    path.write_bytes("".join(lines).encode())


def _quoted(cell: str) -> str:
    if cell.startswith('"'):
        return cell  # broken on purpose
    return f'"{cell.replace(chr(34), chr(34) * 2)}"' if set(cell) & set('",\r\n') else cell
