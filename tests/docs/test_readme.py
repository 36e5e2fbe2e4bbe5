from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from support.processes import run_process

ROOT = Path(__file__).parents[2]


def test_readme_shows_the_two_commands_first() -> None:
    first_block = re.search(r"^```console\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert first_block is not None
    assert re.findall(r"^\$ (\S+ \S+)", first_block.group(1), re.MULTILINE) == ["make demo", "make test"]


@pytest.mark.skipif(not (ROOT / ".venv/.ready").exists(), reason="`make demo` is run where `make setup` has been run")
def test_make_demo_shows_a_summary_events_and_where_the_rest_lies() -> None:
    # The tests run inside make: its variables must not reach the inner one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = run_process(["make", "demo"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "What changed" in done.stdout
    assert "The first events" in done.stdout
    assert "out/customers.jsonl" in done.stdout
    assert (ROOT / "out/customers.jsonl").stat().st_size > 10_000


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_help_lists_the_verbs() -> None:
    listed = run_process(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for verb in ("setup", "demo", "check", "test", "bench", "docs"):
        assert f"make {verb} " in listed
