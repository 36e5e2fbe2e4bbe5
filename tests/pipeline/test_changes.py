"""Tables that follow change events: exactly once by file and offset, whatever happens to the files (pipeline §8)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from driftline.cli._outcome import run as run_command
from driftline.cli.main import driftline
from driftline.errors import PipelineError
from driftline.lake import Lake
from driftline.lake._store.schemas import load_history
from driftline.pipeline import RunRecord, load
from support.shop import lake_rows, results, run

PIPELINE = """\
[pipeline]
name = "p"
[lake]
path = "lake"
[tables.t]
changes = "cdc"
key = "id"
columns = { price = "number", sold = "boolean" }
deltas = true
"""


def debezium(op: str, row: dict[str, Any] | None, before: dict[str, Any] | None = None, table: str = "t") -> str:
    return json.dumps({"op": op, "before": before, "after": row, "source": {"db": "shop", "table": table}}) + "\n"


def wal2json(action: str, row: dict[str, Any] | None = None, identity: dict[str, Any] | None = None) -> str:
    message: dict[str, Any] = {"action": action, "schema": "public", "table": "t"} if action not in "BC" else {}
    for side, image in (("columns", row), ("identity", identity)):
        if image is not None:
            message[side] = [{"name": name, "value": value} for name, value in image.items()]
    return json.dumps({"action": action, **message}) + "\n"


def maxwell(kind: str, data: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> str:
    return json.dumps({"database": "shop", "table": "t", "type": kind, "data": data, "old": old or {}, **more}) + "\n"


def row(number: int, price: float | None = 1.5, name: str = "pen", sold: bool = True) -> dict[str, Any]:
    return {"id": number, "name": name, "price": price, "sold": sold}


def held(number: int, price: float | None = 1.5, name: str = "pen", sold: bool = True) -> dict[str, Any]:
    """The same row as the lake has it: a column without a declared type is text."""
    return {**row(number, price, name, sold), "id": str(number)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "cdc").mkdir()
    (tmp_path / "p.toml").write_text(PIPELINE)
    return tmp_path / "p.toml"


def add(file: Path, name: str, *messages: str) -> None:
    with (file.parent / "cdc" / name).open("a") as out:
        out.write("".join(messages))


def problem(record: RunRecord) -> str:
    return next(stage.problem or "" for stage in record.stages if stage.result == "failed")


def rows(file: Path) -> dict[str, Any]:
    return lake_rows(file.parent, "t")


def test_files_that_grow_and_come_are_read_once(file: Path) -> None:
    add(file, "1.jsonl", debezium("c", row(1)), debezium("c", row(2)), debezium("u", row(1, 2.5)))
    record = run(file)
    assert record.exit_code == 0, record
    assert record.stages[0].counts == {"added": 2, "removed": 0, "changed": 1, "different": 3}
    assert rows(file) == {"1": held(1, 2.5), "2": held(2)}
    assert set(results(run(file)).values()) == {"kept"}
    add(file, "1.jsonl", debezium("d", None, {"id": 2}))
    add(file, "2.jsonl", debezium("c", row(3, None, sold=False)))
    assert run(file).stages[1].counts == {"deltas": 2}
    assert rows(file) == {"1": held(1, 2.5), "3": held(3, None, sold=False)}
    (file.parent / "cdc/1.jsonl").unlink()  # what was read may go
    assert run(file).exit_code == 0
    assert set(rows(file)) == {"1", "3"}


def test_an_unfinished_line_waits_and_so_do_the_files_after_it(file: Path) -> None:
    whole = debezium("c", row(2))
    add(file, "1.jsonl", debezium("c", row(1)), whole[:30])
    add(file, "2.jsonl", debezium("c", row(3)))
    record = run(file)
    assert record.stages[0].notes == (
        "1.jsonl ends in the middle of a message: its last 30 bytes wait; files after it wait",
    )
    assert set(rows(file)) == {"1"}
    add(file, "1.jsonl", whole[30:-1])  # without a line end it is a whole message too
    run(file)
    assert set(rows(file)) == {"1", "2", "3"}


def test_open_transactions_wait_also_across_files(file: Path) -> None:
    add(file, "1.jsonl", wal2json("B"), wal2json("I", row(1)), wal2json("C"), wal2json("B"), wal2json("I", row(2)))
    add(file, "2.jsonl", wal2json("I", row(3)))
    run(file)
    assert set(rows(file)) == {"1"}
    add(file, "2.jsonl", wal2json("C"), wal2json("B"), wal2json("D", None, {"id": 1}))
    run(file)
    assert set(rows(file)) == {"1", "2", "3"}
    add(file, "2.jsonl", wal2json("C"))
    run(file)
    assert set(rows(file)) == {"2", "3"}


def test_maxwells_transactions_and_changed_keys(file: Path) -> None:
    add(file, "1.jsonl", maxwell("insert", row(1), xid=7, xoffset=0), maxwell("insert", row(2), xid=7, xoffset=1))
    assert run(file).exit_code == 2  # nothing is whole yet, and the table is not known
    add(file, "1.jsonl", maxwell("update", row(5), {"id": 2}, xid=7, commit=True))
    run(file)
    assert rows(file) == {"1": held(1), "5": held(5)}


def test_cut_replaced_and_late_files_are_said(file: Path) -> None:
    add(file, "2.jsonl", debezium("c", row(1)), debezium("c", row(2)))
    run(file)
    place = file.parent / "cdc/2.jsonl"
    before = place.read_bytes()
    place.write_bytes(before[:-20])
    assert "changes_cut: 2.jsonl was cut" in problem(run(file))
    place.write_bytes(before.replace(b"pen", b"ink") + before)
    assert "changes_replaced: 2.jsonl was replaced" in problem(run(file))
    place.write_bytes(before)
    assert run(file).exit_code == 0
    add(file, "1.jsonl", debezium("c", row(3)))
    assert "late_changes: 1.jsonl has new messages, but 2.jsonl" in problem(run(file))
    file.write_text(PIPELINE + "partitioned = true\n")
    assert run(file).exit_code == 0
    assert set(rows(file)) == {"1", "2", "3"}


def test_a_full_refresh_reads_everything_anew_unless_something_is_gone(file: Path) -> None:
    add(file, "1.jsonl", debezium("c", row(1)))
    add(file, "2.jsonl", debezium("c", row(2)))
    run(file)
    (file.parent / "cdc/2.jsonl").write_text(debezium("c", row(3)))
    record = run(file, full_refresh=True)
    assert record.exit_code == 0, record
    assert set(rows(file)) == {"1", "3"}
    assert set(results(run(file)).values()) == {"kept"}
    (file.parent / "cdc/1.jsonl").unlink()
    assert "missing_changes" in problem(run(file, full_refresh=True))
    assert set(rows(file)) == {"1", "3"}


def test_positions_of_files_that_are_gone_do_not_gather(file: Path) -> None:
    for number in range(1, 6):
        add(file, f"{number}.jsonl", debezium("c", row(number)))
        assert run(file).exit_code == 0
        (file.parent / f"cdc/{number - 1}.jsonl").unlink(missing_ok=True)
    assert sorted(load_history(Lake(file.parent / "lake"), "t").changes) == ["3.jsonl", "4.jsonl", "5.jsonl"]
    add(file, "6.jsonl", debezium("c", row(6)))
    assert run(file).exit_code == 0
    assert sorted(load_history(Lake(file.parent / "lake"), "t").changes) == ["4.jsonl", "5.jsonl", "6.jsonl"]
    add(file, "1.jsonl", debezium("c", row(1)))
    assert "late_changes" in problem(run(file))
    assert set(rows(file)) == {"1", "2", "3", "4", "5", "6"}
    (file.parent / "cdc/1.jsonl").unlink()
    assert "missing_changes" in problem(run(file, full_refresh=True))


def test_a_lost_lake_is_filled_again(file: Path) -> None:
    import shutil

    add(file, "1.jsonl", debezium("c", row(1)), debezium("d", None, row(1)), debezium("c", row(2)))
    run(file)
    shutil.rmtree(file.parent / "lake")
    assert run(file).exit_code == 0
    assert rows(file) == {"2": held(2)}


def test_columns_come_and_go_as_declared(file: Path) -> None:
    add(file, "1.jsonl", debezium("c", row(1)))
    run(file)
    add(file, "1.jsonl", debezium("c", {**row(2), "city": "Oslo"}))
    assert 'has no column "city": declare on_new_column' in problem(run(file))
    file.write_text(PIPELINE + 'on_new_column = "add"\non_missing_column = "null"\n')
    assert run(file).stages[0].notes == ("column 'city' was added",)
    assert rows(file)["2"] == {**held(2), "city": "Oslo"}
    add(file, "1.jsonl", debezium("c", {"id": 3, "name": "cap", "sold": False}))
    assert run(file).exit_code == 0
    assert rows(file)["3"] == {**held(3, None, "cap", sold=False), "city": None}


def test_another_key_or_source_needs_a_full_refresh(file: Path) -> None:
    add(file, "1.jsonl", debezium("c", row(1)))
    run(file)
    file.write_text(PIPELINE.replace('key = "id"', 'key = "name"'))
    assert "key_changed: table t was loaded under the key id" in problem(run(file))
    for day in (1, 2):
        (file.parent / f"t-2026-03-0{day}.csv").write_text(f"id,name\n{day},pen\n")
    file.write_text(PIPELINE.replace('changes = "cdc"', 'snapshots = "t-{date}.csv"'))
    assert "was loaded from change events and is to be loaded from snapshots" in problem(run(file))


def test_limits_hold_changes_back_before_the_lake(file: Path) -> None:
    file.write_text(PIPELINE + 'fail_if = ["removed > 1"]\n')
    add(file, "1.jsonl", debezium("c", row(1)), debezium("c", row(2)))
    run(file)
    add(file, "1.jsonl", debezium("d", None, {"id": 1}), debezium("d", None, {"id": 2}))
    record = run(file)
    assert results(record)["t/changes/deltas"] == "gated"
    assert record.exceeded == ("t/changes/read: removed > 1 (measured 2)",)
    assert set(rows(file)) == {"1", "2"}
    run(file, ignore_thresholds=True)
    assert rows(file) == {}


def test_other_tables_are_passed_over_and_a_wrong_name_is_told(file: Path) -> None:
    add(file, "1.jsonl", debezium("c", {"no": 1}, table="orders"))
    assert "no_changes: cdc has events of orders, and none of t" in problem(run(file))
    add(file, "1.jsonl", debezium("c", row(1)))
    assert run(file).stages[0].notes == ("1 events of other tables were passed over (orders)",)
    add(file, "1.jsonl", debezium("c", row(2)).replace('"shop"', '"test"'))
    file.write_text(PIPELINE + 'changes_table = "shop.t"\n')
    run(file)
    assert set(rows(file)) == {"1"}


def test_compressed_files_and_bad_messages(file: Path) -> None:
    (file.parent / "cdc/1.jsonl.gz").write_bytes(gzip.compress(debezium("c", row(1)).encode()))
    assert run(file).exit_code == 0
    add(file, "2.jsonl", debezium("c", row(2)), "{]\n")
    said = problem(run(file))
    assert f"invalid_message: 2.jsonl, byte {len(debezium('c', row(2)))}: not a JSON message" in said
    assert set(rows(file)) == {"1"}


CHECKED = PIPELINE + 'snapshots = "snap-{date}.csv"\nnull = [""]\n'


def test_snapshots_beside_changes_are_a_check(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text(CHECKED)
    add(file, "1.jsonl", debezium("c", row(1)), debezium("c", row(2, None)))
    (file.parent / "snap-2026-03-01.csv").write_text("id,name,price,sold\n1,pen,1.5,true\n2,pen,,true\n")
    assert run_command(driftline, ["pipeline", "run", str(file)]) == 0
    assert "note: t/2026-03-01/check: the snapshot agrees with the lake, 0 differences" in capfd.readouterr().err
    add(file, "1.jsonl", debezium("u", row(1, 9.0)))
    record = run(file)
    assert results(record)["t/2026-03-01/check"] == "kept"  # it was right when it was new
    (file.parent / "snap-2026-03-02.csv").write_text("id,name,price,sold\n1,pen,8,true\n3,pen,,true\n")
    record = run(file)
    assert record.exit_code == 1
    assert record.exceeded == ("t/2026-03-02/check: different > 0 (measured 3)",)
    assert record.stages[-1].notes == ("the snapshot and the lake differ in 3 rows",)
    file.write_text(CHECKED + 'on_difference = "warn"\n')
    assert run(file).exit_code == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('fail_if = ["changed > 5%"]', "of changes only added"),
        ('events = "x-{to}.jsonl"', "'events' does not go with 'changes'"),
        ('before = "a.csv"\nafter = "b.csv"', "not with 'before'"),
        ('changes_from = "kafka"', "use one of wal2json"),
    ],
)
def test_declarations_that_cannot_be(file: Path, more: str, words: str) -> None:
    file.write_text(PIPELINE + more + "\n")
    with pytest.raises(PipelineError) as caught:
        load(file)
    assert words in caught.value.message


@pytest.mark.spark
def test_spark_reads_the_same_changes(spark: Any, file: Path) -> None:
    file.write_text(CHECKED)
    add(file, "1.jsonl", *(wal2json("I", row(number)) for number in range(50)))
    add(file, "2.jsonl", wal2json("U", row(7, 3.5), {"id": 7}), wal2json("D", None, {"id": 8}), wal2json("B"))
    add(file, "2.jsonl", wal2json("D", None, {"id": 9}))  # waits for its commit
    cells = "".join(f"{n},pen,{3.5 if n == 7 else 1.5},true\n" for n in range(50) if n != 8)
    (file.parent / "snap-2026-03-01.csv").write_text("id,name,price,sold\n" + cells)
    record = run(file, engine="spark", master="local[2]")
    assert (record.exit_code, record.engine) == (0, "spark"), record.stages
    assert record.stages[-1].notes == ("the snapshot agrees with the lake, 0 differences",)
    there = rows(file)
    assert set(results(run(file)).values()) == {"kept"}  # the engine does not matter to what was read
    import shutil

    shutil.rmtree(file.parent / "lake")
    assert run(file).exit_code == 0
    assert rows(file) == there
