from __future__ import annotations

import sys
from pathlib import Path

import driftline
from support.processes import run_process

ASK_FOR_HELP = """
import sys
from driftline.cli.main import driftline as command
from driftline.cli._outcome import run
code = run(command, ["--help"])
heavy = {"pyspark", "py4j", "pyarrow", "polars", "numpy", "pandas"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else code)
"""


def test_help_imports_neither_spark_nor_arrow() -> None:
    source = str(Path(driftline.__file__).parents[1])
    done = run_process([sys.executable, "-c", ASK_FOR_HELP], env={"PYTHONPATH": source}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: driftline" in done.stdout
