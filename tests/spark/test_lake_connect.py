"""The lake's commands through Spark Connect: the same bytes as the local engine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from driftline.lake import replay
from driftline.lake._read.state import all_deltas
from driftline.lake._store.rows import decode_state
from support.lake_damage import delta_files, truncate
from support.lakes import SCHEMA, delta, load_lake, snapshot_table
from support.processes import run_process
from support.spark import SOURCE, connect_server

# The suite goes through Spark Connect once, in test_table_diff_cluster; starting its server is most of the time.
pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.cluster]


def lake_command(root: Path, *words: str) -> tuple[int, str, str]:
    """A process of its own, because this one may have a local session already."""
    done = run_process(
        [sys.executable, "-m", "driftline", "lake", *words, "--lake", str(root), "--table", "todos"],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def test_folds_through_spark_connect(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    rows = [delta("INSERT", f"r{n % 50}", n, title=f"t{n}", done=n % 2 == 0) for n in range(200)]
    lake = load_lake(root, [rows, [delta("DELETE", f"r{n}", 300 + n) for n in range(9)]])
    with connect_server(tmp_path) as master:
        remote = ("--engine", "spark", "--master", master)
        code, out, err = lake_command(root, "compact", *remote)
        assert (code, json.loads(out)["deltas"], err) == (0, 209, "")
        assert dict(decode_state(snapshot_table(lake, "todos"), SCHEMA.columns)) == replay(all_deltas(lake, "todos"))
        state = ("materialize", "--as-of", "120")
        assert lake_command(root, *state, *remote) == lake_command(root, *state, "--engine", "local")
        victim = delta_files(lake)[0]
        truncate(victim)
        code, out, err = lake_command(root, "verify", *remote)
        assert (code, out) == (2, "")
        assert err.startswith("error[corrupt_file]: ")
        assert victim.name in err
        assert len(err.splitlines()) == 1
