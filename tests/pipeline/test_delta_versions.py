"""The versions of a Delta table as snapshots: `snapshots = "TABLE@*"` (pipeline §12)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import driftline as dl
from driftline.core._objects import delta_options
from driftline.errors import PipelineError
from driftline.lake import Lake, materialize
from driftline.pipeline import load
from support.shop import results, run

pytestmark = pytest.mark.histories

deltalake = pytest.importorskip("deltalake", reason="needs deltalake, the extra lake")

FILE = """\
[pipeline]
name = "versions"
[lake]
path = "lake"
[tables.t]
snapshots = "{table}@*"
key = "id"
events = "out/t-{{to}}.jsonl"
deltas = true
"""


def add_version(table: str, rows: dict[str, list]) -> None:
    deltalake.write_deltalake(table, pa.table(rows), mode="overwrite", storage_options=delta_options(table))


def three_versions(table: str) -> None:
    add_version(table, {"id": [1, 2], "v": ["a", "b"]})
    add_version(table, {"id": [1, 2, 3], "v": ["a", "B", "c"]})
    add_version(table, {"id": [2, 3], "v": ["B", "c"]})


def test_each_version_is_compared_once_and_the_lake_follows(tmp_path: Path) -> None:
    table = str(tmp_path / "warehouse/t")
    three_versions(table)
    (tmp_path / "p.toml").write_text(FILE.format(table="warehouse/t"))
    record = run(tmp_path / "p.toml")
    assert [stage.stage for stage in record.stages if stage.stage.endswith("/diff")] == ["t/1/diff", "t/2/diff"]
    for version in (1, 2):
        events = [json.loads(line) for line in (tmp_path / f"out/t-{version}.jsonl").read_text().splitlines()]
        assert events == list(dl.diff(f"{table}@{version - 1}", f"{table}@{version}", key="id"))
    assert rows_of_the_lake(tmp_path) == {2: "B", 3: "c"}

    deltalake.DeltaTable(table).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    add_version(table, {"id": [3, 4], "v": ["c", "d"]})
    again = run(tmp_path / "p.toml")  # old versions can no longer be read, and need not be
    done = {stage.stage for stage in again.stages if stage.result == "done"}
    new = {f"t/{version}/{step}" for version in (3, 4, 5) for step in ("diff", "deltas")}  # 3 and 4 are vacuum's
    assert done == {"t/2/deltas", *new}  # the load that was the last one is looked at again
    assert rows_of_the_lake(tmp_path) == {3: "c", 4: "d"}
    assert set(results(run(tmp_path / "p.toml")).values()) == {"kept"}


def test_a_table_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    three_versions(table)
    (tmp_path / "p.toml").write_text(FILE.format(table="delta:t"))
    run(tmp_path / "p.toml")
    shutil.rmtree(table)
    add_version(table, {"id": [7], "v": ["x"]})
    add_version(table, {"id": [7, 8], "v": ["x", "y"]})
    record = run(tmp_path / "p.toml")
    assert {stage.result for stage in record.stages} == {"done"}
    assert rows_of_the_lake(tmp_path) == {7: "x", 8: "y"}


def test_versions_in_a_store(tmp_path: Path, s3) -> None:
    table = "s3://data/versions/t"
    three_versions(table)
    (tmp_path / "p.toml").write_text(FILE.format(table=table).replace("deltas = true\n", 'since = "1"\n'))
    record = run(tmp_path / "p.toml")
    assert results(record) == {"t/2/diff": "done"}
    assert '"rows_removed":1' in (tmp_path / "out/t-2.jsonl").read_text()
    assert set(results(run(tmp_path / "p.toml")).values()) == {"kept"}


@pytest.mark.parametrize(
    ("snapshots", "words"), [("t@*/x", "stands at the end"), ("none@*", "0 snapshots match none@*")]
)
def test_refusals(tmp_path: Path, snapshots: str, words: str) -> None:
    (tmp_path / "p.toml").write_text(FILE.format(table="t").replace("t@*", snapshots))
    with pytest.raises(PipelineError, match=words.replace("*", r"\*")):
        run(tmp_path / "p.toml") if "none" in snapshots else load(tmp_path / "p.toml")


def rows_of_the_lake(folder: Path) -> dict[int, str]:
    target = folder / "state.jsonl"
    materialize(Lake(folder / "lake"), "t", target)
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    return {int(row["id"]): row["v"] for row in rows}
