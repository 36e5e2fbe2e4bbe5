"""The retail story on a cluster whose machines share nothing but an object store (storage §5).

Each worker has folders of its own where the driver's files lie, by a mount namespace. A worker and the driver are
killed half-way, and the store fails at random: the bytes after the rerun are those of the local engine.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_cluster import StandaloneCluster

from driftline.core._objects import ObjectPath
from driftline.pipeline import load, run_pipeline
from support.processes import run_process, start_process
from support.s3 import unreliable
from support.shop import SOURCE
from support.spark import connect_server

pytest.importorskip("obstore", reason="needs obstore, the extra cloud")
pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.cluster]

RETAIL = Path(__file__).parents[2] / "examples" / "retail"
ROWS = 3000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of the shop on the disk, and what the local engine makes of them."""
    folder = tmp_path_factory.mktemp("retail")
    made = run_process(
        [sys.executable, "-c", f"import make_data, pathlib; make_data.make(pathlib.Path({str(folder)!r}), {ROWS})"],
        cwd=RETAIL,
        check=False,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    shutil.copy(RETAIL / "retail.toml", folder)
    shutil.copy(RETAIL / "api" / "schema.yaml", folder / "api")
    assert run_pipeline(load(folder / "retail.toml"), engine="local").exit_code == 0
    return folder


def stored(data: Path, client: Any, prefix: str, folder: Path) -> Path:
    """The same pipeline with everything in the store; the file is all that lies on the driver's disk."""
    made = {"out", "lake"}
    folders = [path for path in data.iterdir() if path.is_dir() and path.name not in made and path.name[0] != "."]
    for path in [path for folder in folders for path in folder.rglob("*") if path.is_file()]:
        client.put_object(Bucket="data", Key=f"{prefix}/{path.relative_to(data)}", Body=path.read_bytes())
    root = f"s3://data/{prefix}"
    text = (RETAIL / "retail.toml").read_text()
    for name in (*(folder.name for folder in folders), *made):
        text = re.sub(f'"{name}(?=[/"])', f'"{root}/{name}', text)
    text = text.replace('name = "retail"', f'name = "retail"\nstate = "{root}/state"')
    file = folder / f"{prefix}.toml"
    file.write_text(text)
    return file


def outputs(root: Path | ObjectPath) -> dict[str, bytes]:
    """Every output by its name; Parquet files and figures of a run are not the same in bytes."""
    files = root.below() if isinstance(root, ObjectPath) else [path for path in root.rglob("*") if path.is_file()]
    named = {str(file).removeprefix(str(root)): file for file in files}
    other = ("metrics", ".prom", ".parquet", ".html", "shop.db")
    return {name: file.read_bytes() for name, file in named.items() if not any(word in name for word in other)}


def start(file: Path, master: str, settings: dict[str, str]) -> subprocess.Popen[str]:
    scratch = file.parent / "tmp"
    scratch.mkdir(exist_ok=True)
    return start_process(
        [sys.executable, "-m", "driftline", "pipeline", "run", file.name, "--engine", "spark", "--master", master],
        cwd=file.parent,
        env={**os.environ, **settings, "PYTHONPATH": SOURCE, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def cluster(tmp_path: Path, s3: tuple[Any, dict[str, str]]) -> Iterator[StandaloneCluster]:
    if run_process(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount (unshare --mount)")
    with StandaloneCluster(workers=2, hidden=[tmp_path]) as running:
        yield running


def await_events(prefix: str, process: subprocess.Popen[str]) -> None:
    """Until the first stage has been done."""
    while not ObjectPath(f"s3://data/{prefix}/state/stages").below():
        assert process.poll() is None, "the run was over before anything was killed"
        time.sleep(0.2)


def test_workers_share_nothing_but_the_store(
    cluster: StandaloneCluster, data: Path, s3: tuple[Any, dict[str, str]], tmp_path: Path
) -> None:
    process = start(stored(data, s3[0], "private", tmp_path), cluster.url, {})
    await_events("private", process)
    cluster.kill_worker(0)
    shown, words = process.communicate()
    assert process.returncode == 0, shown + words
    expected = outputs(data / "out")
    assert len(expected) > 10
    assert outputs(ObjectPath("s3://data/private/out")) == expected


def test_a_killed_driver_and_a_store_that_fails(
    cluster: StandaloneCluster, data: Path, s3: tuple[Any, dict[str, str]], tmp_path: Path
) -> None:
    file = stored(data, s3[0], "killed", tmp_path)
    process = start(file, cluster.url, {})
    await_events("killed", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with unreliable(s3[1], 11, faults=0.02) as settings:
        for _ in range(5):
            process = start(file, "local[2]", settings)
            shown, words = process.communicate()
            assert process.returncode in (0, 2), shown + words
            if process.returncode == 0:
                break
    assert process.returncode == 0, shown + words
    assert outputs(ObjectPath("s3://data/killed/out")) == outputs(data / "out")


def test_spark_connect_with_everything_in_the_store(data: Path, s3: tuple[Any, dict[str, str]], tmp_path: Path) -> None:
    with connect_server(tmp_path) as master:
        process = start(stored(data, s3[0], "connect", tmp_path), master, {})
        shown, words = process.communicate()
    assert process.returncode == 0, shown + words
    assert outputs(ObjectPath("s3://data/connect/out")) == outputs(data / "out")
