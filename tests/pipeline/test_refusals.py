"""What a pipeline cannot do it says, instead of doing something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.cli.main import driftline
from driftline.cli.outcome import run as run_command
from driftline.errors import DriftlineError
from driftline.pipeline import load
from pipeline.shop import PIPELINE, make_shop, run


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("data/customers-{date}.csv", "s3://bucket/customers-{date}.csv", "snapshots"),
        ("out/customers-{to}.jsonl", "s3://bucket/{to}.jsonl", "events"),
        ("out/customers-now.csv", "gs://bucket/now.csv", "path"),
    ],
)
def test_addresses_are_refused_by_name(tmp_path: Path, old: str, new: str, key: str) -> None:
    file = make_shop(tmp_path, PIPELINE.replace(old, new), rows=30)
    with pytest.raises(
        DriftlineError, match=f"'{key}' is '{new.replace('{', '.').replace('}', '.')}', an address"
    ) as caught:
        load(file)
    assert caught.value.code == "unsupported_address"
    assert not (tmp_path / "s3:").exists()


@pytest.mark.parametrize("engine", ["local"])
def test_a_delta_table_and_partitions_are_not_read_as_loose_files(tmp_path: Path, engine: str) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    for day in ("2026-03-01", "2026-03-02"):
        write_deltalake(str(tmp_path / f"data/t-{day}"), pa.table({"id": ["1", day]}))
        write_deltalake(str(tmp_path / f"data/t-{day}"), pa.table({"id": ["2"]}), mode="overwrite")
        part = tmp_path / f"data/h-{day}/region=n"
        part.mkdir(parents=True)
        (part / "a.csv").write_text("id\n1\n")
    file = tmp_path / "p.toml"
    tables = "".join(
        f'[tables.{n}]\nsnapshots = "data/{n}-{{date}}"\nkey = "id"\nevents = "{n}-{{to}}.jsonl"\n' for n in "th"
    )
    file.write_text(f'[pipeline]\nname = "p"\n{tables}')
    record = run(file, engine=engine)
    assert record.exit_code == 2
    problems = {stage.stage[0]: stage.problem for stage in record.stages}
    assert problems["t"].startswith("delta_table: ")
    assert problems["h"].startswith("partitioned_folder: ")


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


def test_a_running_pipeline_is_told_once_how_to_wait(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from driftline.pipeline.running import locked

    file = make_shop(tmp_path, rows=30)
    with locked(load(file), 0.0):
        assert run_command(driftline, ["pipeline", "run", str(file)]) == 2
    told = capfd.readouterr().err
    assert "--wait SECONDS waits for it" in told
    assert "waiting time" not in told
