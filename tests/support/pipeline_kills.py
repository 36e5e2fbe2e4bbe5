"""Runs a pipeline that is killed again and again: `pipeline_kills.py FILE boundaries` or `… FILE random SEED`.

Everything is imported once; each run is a fork, which dies by SIGKILL either at the first checkpoint that no earlier
run has died at, or at a random moment. The last run is left alone. Prints how many were killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import polars  # noqa: F401
import pyarrow as pa

import driftline.codeindex._registry.keep
import driftline.lake._read.state
import driftline.tables._vectorized  # noqa: F401
from driftline.lake._load import load as loading
from driftline.lake._store.delta import _StoredDelta
from driftline.lake._store.tables import Commit
from driftline.pipeline import load, run_pipeline
from driftline.pipeline._run import records
from driftline.pipeline._stages import outputs


def at_boundaries(file: Path) -> int:
    used: set[str] = set()
    while True:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            watch(used, writer)
            os._exit(run_pipeline(load(file), engine="local").exit_code)
        os.close(writer)
        name = os.read(reader, 1000).decode()
        os.close(reader)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, f"the last run ended with {os.WEXITSTATUS(status)}"
            return len(used)
        used.add(name)


def watch(used: set[str], writer: int) -> None:
    """Die before and after each durable step, once for each."""

    def guarded(owner: object, method: str, name_of) -> None:
        original = getattr(owner, method)

        def wrapped(*arguments, **options):
            name = f"{method} {name_of(*arguments, **options)}"
            checkpoint(f"before {name}")
            result = original(*arguments, **options)
            checkpoint(f"after {name}")
            return result

        setattr(owner, method, wrapped)

    def checkpoint(name: str) -> None:
        if name not in used:
            os.write(writer, name.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def commit_name(deltas: _StoredDelta, commit: Commit, *_: object) -> str:
        return f"{deltas._table.table_uri} {commit.metadata.get('label', commit.metadata['operation'])}"

    guarded(records.RecordStore, "keep_stage", lambda store, record: record.stage)
    guarded(outputs.Outputs, "commit", lambda own: sorted(str(place) for place in own._places.values()))
    guarded(_StoredDelta, "append", commit_name)
    guarded(loading.ingestion, "plan_ingest", lambda lake, tables, by, how: f"{tables} {how.start}")
    guarded(loading.schemas, "register", lambda lake, schema: schema.table)


def at_random(file: Path, seed: int) -> int:
    chance = random.Random(seed)
    killed = 0
    for _ in range(25):
        child = os.fork()
        if child == 0:
            os._exit(run_pipeline(load(file), engine="local").exit_code)
        time.sleep(chance.random() * 0.35)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
    child = os.fork()
    if child == 0:
        os._exit(run_pipeline(load(file), engine="local").exit_code)
    _, status = os.waitpid(child, 0)
    assert os.WEXITSTATUS(status) == 0
    return killed


if __name__ == "__main__":
    pa.array([0])  # looks for pandas once, and not once in every fork
    path = Path(sys.argv[1])
    print(at_boundaries(path) if sys.argv[2] == "boundaries" else at_random(path, int(sys.argv[3])))
