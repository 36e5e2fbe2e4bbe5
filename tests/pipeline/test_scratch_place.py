"""What the workers of a cluster exchange lies in the pipeline's own state, which all of them see."""

from __future__ import annotations

from pathlib import Path

from driftline.core import shared_folder
from driftline.pipeline import load
from driftline.pipeline._run.run import locked
from support.shop import make_shop, run


def test_the_state_of_a_pipeline_is_the_scratch_place_of_its_runs(tmp_path: Path) -> None:
    declared = load(make_shop(tmp_path, rows=20))
    with locked(declared, 0):
        place = shared_folder()
        assert place is not None
        assert Path(place).is_dir()
        assert tmp_path in Path(place).parents
    assert shared_folder() is None


def test_what_a_killed_run_left_there_is_swept(tmp_path: Path) -> None:
    file = make_shop(tmp_path, rows=20)
    with locked(load(file), 0):
        left = Path(str(shared_folder())) / "left"
        left.mkdir()
    run(file)
    assert not left.exists()
