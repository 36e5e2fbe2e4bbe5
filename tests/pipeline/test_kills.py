"""A kill at any moment is mended by running again, with the same bytes and the same lake."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from driftline.lake import Lake, verify
from driftline.lake._read.state import all_deltas
from support.processes import run_process
from support.shop import SOURCE, assert_lake_is_the_snapshots, make_shop, output_bytes, results, run, start_cli

pytestmark = pytest.mark.kills

SCRIPT = Path(__file__).parents[1] / "support" / "pipeline_kills.py"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, set[str]]]:
    directory = tmp_path_factory.mktemp("undisturbed")
    assert run(make_shop(directory)).exit_code == 0
    return output_bytes(directory), delta_ids(directory)


def delta_ids(directory: Path) -> dict[str, set[str]]:
    found = {}
    for table in ("customers", "orders"):
        ids = [delta.delta_id for delta in all_deltas(Lake(directory / "lake"), table)]
        assert len(ids) == len(set(ids)), "a delta was flushed twice"
        found[table] = set(ids)
    return found


def kill_again_and_again(file: Path, *arguments: str) -> int:
    done = run_process(
        [sys.executable, SCRIPT, file, *arguments],
        env={"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.split()[-1])


def assert_mended(directory: Path, file: Path, undisturbed) -> None:
    assert set(results(run(file)).values()) == {"kept"}
    outputs, ids = undisturbed
    assert output_bytes(directory) == outputs
    assert delta_ids(directory) == ids
    assert_lake_is_the_snapshots(directory)
    for table in ("customers", "orders"):
        assert verify(Lake(directory / "lake"), table).is_proved
    assert not [path for path in directory.rglob("*") if path.name.endswith((".part", ".tmp"))]


def test_killed_at_every_boundary(tmp_path: Path, undisturbed) -> None:
    file = make_shop(tmp_path)
    assert kill_again_and_again(file, "boundaries") > 60
    assert_mended(tmp_path, file, undisturbed)


@pytest.mark.parametrize("seed", [1])
def test_killed_at_random_moments(seed: int, tmp_path: Path, undisturbed) -> None:
    file = make_shop(tmp_path)
    assert kill_again_and_again(file, "random", str(seed)) > 3
    assert_mended(tmp_path, file, undisturbed)


@pytest.mark.faults
@pytest.mark.spark
def test_killed_on_spark(tmp_path: Path, undisturbed) -> None:
    """The driver dies by SIGKILL after its first stages, and again in the middle of what is left."""
    file = make_shop(tmp_path)
    stages = tmp_path / ".driftline/shop/stages"
    for done in (1, 6):
        process = start_cli(file, "--master", "local[2]")
        while len(list(stages.glob("*.json"))) < done:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.kill()
        process.communicate()
    process = start_cli(file, "--master", "local[2]")
    shown, words = process.communicate()
    assert process.returncode == 0, shown + words
    assert shown.count(" kept ") >= 6
    assert_mended(tmp_path, file, undisturbed)
