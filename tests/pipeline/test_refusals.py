"""What a pipeline cannot do it says, instead of doing something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftline.cli._outcome import run as run_command
from driftline.cli.main import driftline
from driftline.errors import DriftlineError
from driftline.pipeline import load
from support.shop import PIPELINE, lake_rows, make_shop, run


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("data/customers-{date}.csv", "hdfs://bucket/customers-{date}.csv", "snapshots"),
        ("out/customers-{to}.jsonl", "ftp://bucket/{to}.jsonl", "events"),
        ("out/customers-now.csv", "https://bucket/now.csv", "path"),
    ],
)
def test_addresses_are_refused_by_name(tmp_path: Path, old: str, new: str, key: str) -> None:
    file = make_shop(tmp_path, PIPELINE.replace(old, new), rows=30)
    with pytest.raises(
        DriftlineError, match=f"'{key}' is '{new.replace('{', '.').replace('}', '.')}': a pipeline takes"
    ) as caught:
        load(file)
    assert caught.value.code == "unsupported_address"
    assert not (tmp_path / "s3:").exists()


def test_delta_tables_and_partitions_are_read_as_tables(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import write_deltalake

    for day in ("2026-03-01", "2026-03-02"):
        write_deltalake(str(tmp_path / f"data/t-{day}"), pa.table({"id": ["1", day]}))
        write_deltalake(str(tmp_path / f"data/t-{day}"), pa.table({"id": ["2", day]}), mode="overwrite")
        part = tmp_path / f"data/h-{day}/region=n"
        part.mkdir(parents=True)
        pq.write_table(pa.table({"id": ["1", day]}), part / "a.parquet")
    file = tmp_path / "p.toml"
    declared = '[tables.{n}]\nsnapshots = "data/{n}-{{date}}"\nkey = "id"\nevents = "{n}-{{to}}.jsonl"\ndeltas = true\n'
    tables = "".join(declared.format(n=name) for name in "th")
    file.write_text(f'[pipeline]\nname = "p"\n[lake]\npath = "lake"\n{tables}')
    record = run(file)
    assert record.exit_code == 0, [stage.problem for stage in record.stages]
    assert sorted(lake_rows(tmp_path, "t")) == ["2", "2026-03-02"]
    assert lake_rows(tmp_path, "h")["2026-03-02"] == {"id": "2026-03-02", "region": "n"}


def test_a_damaged_run_record_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = make_shop(tmp_path, rows=30)
    run(file)
    [record] = (tmp_path / ".driftline/shop/runs").glob("*.json")
    for damage in (b"", b"{}", b"[1", b'{"stages": 7}'):
        record.write_bytes(damage)
        assert run_command(driftline, ["pipeline", "status", str(file)]) == 2
        told = capfd.readouterr().err
        assert told.startswith("error[damaged_record]: the record of the run ")
        assert record.name in told


def test_a_run_record_of_an_older_version_is_not_called_damaged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = make_shop(tmp_path, rows=30)
    run(file)
    [record] = (tmp_path / ".driftline/shop/runs").glob("*.json")
    data = json.loads(record.read_bytes())
    del data["seal"]
    record.write_text(json.dumps(data))
    assert run_command(driftline, ["pipeline", "status", str(file)]) == 2
    assert "was written by an older version" in capfd.readouterr().err


def test_a_running_pipeline_is_told_once_how_to_wait(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from driftline.pipeline._run.run import locked

    file = make_shop(tmp_path, rows=30)
    with locked(load(file), 0.0):
        assert run_command(driftline, ["pipeline", "run", str(file)]) == 2
    told = capfd.readouterr().err
    assert "--wait SECONDS waits for it" in told
    assert "waiting time" not in told
