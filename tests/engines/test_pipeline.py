"""A pipeline with tables, a lake, patchsets and payloads: the same files from every engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.engines import engines_for
from support.shop import DAYS, PIPELINE, lake_rows, make_shop, output_bytes, run, snapshot_rows

# One table, two days, one payload set: each job costs a second in a session that has just started.
SMALL = PIPELINE.partition("[[tables.customers.state]]")[0] + 'patchset = "out/{table}-{to}.patchset"\n'
SMALL += '[payloads.api]\npairs = "pairs.jsonl"\nschema = "schema.yaml"\nreport = "out/api"\n'


def outputs(directory: Path, engine: str) -> dict[str, str]:
    """The hash of every file that a run wrote, Parquet aside, whose writers differ."""
    file = make_shop(directory, SMALL, rows=60)
    (directory / f"data/customers-{DAYS[2]}.csv").unlink()
    (directory / "pairs.jsonl").write_text('{"id": "1", "old": {"a": 1}, "new": {"a": 2}}\n' * 5)
    (directory / "schema.yaml").write_text("type: object\nproperties:\n  a: {type: integer}\n")
    record = run(file, engine=engine, **({"master": "local[2]"} if engine == "spark" else {}))
    assert (record.exit_code, record.engine) == (0, engine), record.stages
    assert lake_rows(directory, "customers") == snapshot_rows(directory, "customers", DAYS[1], ("price",))
    return {name: digest for name, digest in output_bytes(directory).items() if ".parquet" not in name}


@pytest.mark.parametrize("engine", engines_for("pipeline"))
def test_a_run(engine: str, tmp_path: Path) -> None:
    found = outputs(tmp_path / engine, engine)
    assert len(found) > 5
    assert found == outputs(tmp_path / "judge", "local")
