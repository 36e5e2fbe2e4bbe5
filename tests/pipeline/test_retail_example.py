from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import run_process
from support.shop import SOURCE

pytestmark = pytest.mark.histories

ROOT = Path(__file__).parents[2]
STORY = ROOT / "examples/retail/story.py"


def tell(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_process(
        [sys.executable, STORY, "--rows", "3000", "--dir", directory, *options],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_story_ends_with_day_three(tmp_path: Path) -> None:
    first = tell(tmp_path / "retail")
    assert first.returncode == 0, first.stderr
    assert "shop.db equals day three" in first.stdout
    assert "lake as of 2026-03-02: " in first.stdout
    assert "note: customers/2026-03-03/diff: column 'tier' was added" in first.stderr
    assert "warning: orders/2026-03-02/diff: changed(status) > 2% (measured " in first.stderr
    assert "note: stock/2026-03-03/check: the snapshot agrees with the lake, 0 differences" in first.stderr
    assert "3 changed of 200" in first.stdout  # prices that differ by more than their rounding
    assert '<g class="step done">' in (tmp_path / "retail/out/report.html").read_text()
    again = tell(tmp_path / "retail")
    assert again.returncode == 0, again.stderr
    assert "(auto), nothing to do\n" in again.stdout


def test_the_data_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run_process(
            [sys.executable, ROOT / "examples/retail/make_data.py", tmp_path / name, "--rows", "500"], check=True
        )
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*"))
    assert len(files) == 16
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
