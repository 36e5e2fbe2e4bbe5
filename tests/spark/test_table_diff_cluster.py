"""The same bytes on a standalone cluster and through Spark Connect, both started from the installed package."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from local_cluster import StandaloneCluster

from driftline.tables._engines import TableDiffJob, find_engine
from driftline.tables._options import check_options
from support import frame_story
from support.index_caches import small_index
from support.index_layouts import write_index
from support.processes import run_process
from support.spark import SOURCE, connect_server

pytestmark = [pytest.mark.spark, pytest.mark.cluster]


def diff_in_a_new_process(a: Path, b: Path, master: str, *options: str, **environment: str) -> tuple[int, bytes, str]:
    """A process of its own, because this one has a local session already."""
    done = run_process(
        [sys.executable, "-m", "driftline", "diff", str(a), str(b), "--key", "id", "--master", master, *options],
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        capture_output=True,
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    for name, shift in (("a.csv", 0), ("b.csv", 40)):
        rows = [f'{n},"line {n % 9}\nbreak",{(n * 7 + shift // 40 * (n % 50 == 0)) % 13}' for n in range(shift, 2000)]
        (tmp_path / name).write_text("id,note,v\n" + "\n".join(rows) + "\n")
    return tmp_path / "a.csv", tmp_path / "b.csv"


def expected(a: Path, b: Path) -> bytes:
    written: list[bytes] = []
    find_engine("local")(
        TableDiffJob(a, b, check_options(key_columns=["id"])), lambda data: written.append(bytes(data))
    )
    return b"".join(written)


@pytest.mark.faults  # the suite has a cluster in pipeline/test_cluster
def test_standalone_cluster(tmp_path: Path, tables: tuple[Path, Path]) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with StandaloneCluster(workers=1) as cluster:
        master = cluster.url
        # Without a shared folder the events come as a stream, with one as files; 5" makes a file unsound.
        assert diff_in_a_new_process(*tables, master) == (1, expected(*tables), "")
        (tables[0]).write_text(tables[0].read_text() + '5000,5" disk,1\n')
        code, out, err = diff_in_a_new_process(*tables, master, DRIFTLINE_SHARED_DIR=str(shared))
        assert (code, out, err) == (1, expected(*tables), "")
        assert list(shared.iterdir()) == []


def frames_in_a_new_process(master: str, folder: Path) -> dict[str, Any]:
    """The functions on DataFrames, in a program whose session is its own."""
    done = run_process(
        [sys.executable, "-W", "ignore", frame_story.__file__, master, str(folder)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.usefixtures("two_partitions")
def test_spark_connect(tmp_path: Path, tables: tuple[Path, Path], spark) -> None:
    for name in ("old", "new"):
        write_index(tmp_path / name, small_index(name))
    with connect_server(tmp_path) as master:
        found = frames_in_a_new_process(master, tmp_path)
        for name, rows in frame_story.story(spark, tmp_path).items():
            assert rows, name
            assert found[name] == rows, name
        assert diff_in_a_new_process(*tables, master) == (1, expected(*tables), "")
        tables[1].write_text(tables[1].read_text() + "77,dup,1\n")
        code, out, err = diff_in_a_new_process(*tables, master)
        assert (code, out) == (2, b"")
        assert err == (
            'error[duplicate_key]: Duplicate key in B: {"id":"77"} (rows 39 and 1962); --duplicates match pairs the '
            "rows of a key, --duplicates first or last keeps one; or name more key columns; "
            "this pair is read with --duplicates match\n"
        )
