"""A process of driftline's own starts without pandas, and finds it where it is asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.processes import run_process

SOURCE = str(Path(__file__).parents[2] / "src")
SCRIPT = """
import sys
from driftline.core._processes import block_pandas
block_pandas()
block_pandas()
FIRST
import pyarrow as pa
made = pa.table({"a": pa.array([1, 2])})
assert "pandas" not in sys.modules
assert not [finder for finder in sys.meta_path if type(finder).__module__ == "driftline.core._processes"]
assert made.to_pandas()["a"].tolist() == [1, 2]
import pandas
assert pa.Table.from_pandas(pandas.DataFrame({"a": [1.5, None]}))["a"].to_pylist() == [1.5, None]
"""


@pytest.mark.parametrize("first", ["", "import polars"])  # Polars looks for pyarrow without importing it
def test_pandas_is_left_out_until_somebody_converts(first: str) -> None:
    pytest.importorskip("pandas", reason="needs pandas, a dev dependency")
    script = SCRIPT.replace("FIRST", first)
    done = run_process(
        [sys.executable, "-c", script], env={"PYTHONPATH": SOURCE}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
