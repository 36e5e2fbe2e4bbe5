"""What small commands import, and why: held by names of modules, not by time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.processes import run_process

PROGRAM = """
import json, sys
from driftline.cli.main import driftline
driftline(sys.argv[2:], standalone_mode=False)
print(json.dumps([name for name in sys.argv[1].split() if name in sys.modules]), file=sys.stderr)
"""
WATCHED = "apsw click decimal deltalake jinja2 numpy polars pyarrow pyspark rich starlette tree_sitter xxhash yaml"
# Command -> what it imports of these, and why: click reads every command line, xxhash knows a file by its content.
IMPORTS: dict[str, set[str]] = {
    "--version": {"click"},
    "--help": {"click"},
    "diff --help": {"click"},
    "diff a.csv b.csv --key id": {"click", "xxhash"},
    "diff a.csv b.csv --key id --format markdown": {"click", "xxhash"},
}


@pytest.mark.parametrize("command", IMPORTS)
def test_a_small_command_imports_what_the_table_says(command: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,x\n")
    (tmp_path / "b.csv").write_text("id,v\n1,y\n")
    done = run_process(
        [sys.executable, "-c", PROGRAM, WATCHED, *command.split()], cwd=tmp_path, capture_output=True, check=False
    )
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert loaded == IMPORTS[command]
