"""The pytest plugin, in a pytest of its own: what a failed assertion shows, and what it costs where nothing fails."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TEST = """
import driftline as dl

def test_orders():
    before = [{"id": 1, "price": "9.99"}, {"id": 2, "price": "5.00"}]
    after = [{"id": 1, "price": "9.95"}, {"id": 3, "price": "5.00"}]
    dl.assert_equal(before, after, key="id")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("COLUMNS", "100")
    return lambda *options: pytester.runpytest_subprocess("-p", "driftline.pytest_plugin", *options)


def test_a_failure_shows_the_differences_and_leaves_a_report(pytester: pytest.Pytester, run) -> None:
    pytester.makepyfile(test_it=TEST)
    found = run("--driftline-reports", "reports")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines([
        "*dl.assert_equal(before, after, key=*",
        "E * tables differ: 1 added, 1 removed, 1 changed, 0 unchanged (key id)",
        "E *  changed id=1: price: '9.99' → '9.95'",
        "*test_it.py:6: TablesDifferError",
        "*- tables that differ -*",
        "list → list   key id",
        "~  1   price   9.99    9.95*",
        "*- tables that differ: report -*",
        "reports*test_it.py-test_orders.html",
    ])  # fmt: skip
    assert "-o changes.jsonl" not in found.stdout.str(), "there is no command to be typed"
    assert "api.py" not in found.stdout.str(), "the way inside driftline is no part of the failure"
    (page,) = (pytester.path / "reports").iterdir()
    assert "list → list" in page.read_text()


def test_other_failures_stay_as_they_are(pytester: pytest.Pytester, run) -> None:
    pytester.makepyfile(
        test_it="""
        import sys

        def test_plain():
            assert not {"polars", "pyarrow", "driftline.tables"} & set(sys.modules)

        def test_fails():
            assert 1 == 2
        """
    )
    found = run()
    found.assert_outcomes(passed=1, failed=1)
    assert "tables that differ" not in found.stdout.str()


def test_the_wheel_announces_the_plugin() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    announced = project["entry-points"]["pytest11"]["driftline"]
    assert hasattr(import_module(announced), "pytest_runtest_makereport")
