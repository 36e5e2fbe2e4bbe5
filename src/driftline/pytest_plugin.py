"""The pytest plugin: a failed `dl.assert_equal` shows the differences as a table, and may leave a report.

    pytest                                    # a section "tables that differ" below each such failure
    pytest --driftline-reports reports/       # and an HTML page for each of them

It is found by pytest where driftline is installed; `-p no:driftline` leaves it out.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from driftline.tables import TableDiff

_SECTION = "tables that differ"


def pytest_addoption(parser: pytest.Parser) -> None:
    """One option, in a group of its own."""
    group = parser.getgroup("driftline", "tables that differ")
    group.addoption("--driftline-reports", metavar="DIR", help="Write an HTML report of each assert_equal that fails.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the differences below the failure."""
    report = yield
    result = getattr(call.excinfo.value, "diff", None) if call.excinfo is not None else None
    if result is None:
        return report
    # Not imported before something failed: a test run without tables stays as quick as it was.
    from driftline.sinks import write_events
    from driftline.tables import TableDiff

    if isinstance(result, TableDiff):
        out = io.BytesIO()
        write_events(result.lines(), out, "terminal", heading=result.heading(), hints=False)
        report.sections.append((_SECTION, out.getvalue().decode()))
        folder = item.config.getoption("--driftline-reports")
        if folder:
            report.sections.append((f"{_SECTION}: report", str(_write_report(result, Path(folder), item.nodeid))))
    return report


def _write_report(result: TableDiff, folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{re.sub('[^A-Za-z0-9_.-]+', '-', name).strip('-')}.html"
    result.write(target)
    return target
