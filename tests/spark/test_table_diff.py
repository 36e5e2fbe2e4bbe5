"""Table diffs on Spark: every fixture byte for byte, cut every way, with exact errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftline.tables.conformance import _job_of, find_fixtures, run_fixture
from driftline.tables.engines import find_engine

pytestmark = pytest.mark.spark

FIXTURES = Path(__file__).parents[1] / "conformance" / "tables"


@pytest.mark.parametrize("fixture", find_fixtures(FIXTURES), ids=lambda path: path.name)
def test_fixture(spark, fixture: Path) -> None:
    expected = fixture / "expected.jsonl"
    if not expected.exists():
        assert run_fixture(fixture, "spark") is None
        return
    written: list[bytes] = []
    find_engine("spark")(_job_of(fixture, None), lambda data: written.append(bytes(data)))
    assert b"".join(written) == expected.read_bytes()
