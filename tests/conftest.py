"""What all tests share: the choice of a set, one Spark session and one S3 emulator a process, and the summary."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from support import kinds, proof
from support.processes import PATIENCE, heed_signals
from support.s3 import s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

proof.load_profile()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--set", choices=kinds.SETS, default="all", help="which kinds of tests to run (support/kinds.py)")


def pytest_configure() -> None:
    heed_signals()
    if find_spec("httpx"):  # which gives up after 5 seconds
        from httpx._config import DEFAULT_TIMEOUT_CONFIG

        for name in ("connect", "read", "write", "pool"):
            setattr(DEFAULT_TIMEOUT_CONFIG, name, PATIENCE)


def pytest_report_header() -> str:
    return f"examples of properties: {'random' if proof.is_searching() else 'the same in every run'}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the set, skip those whose programs are not installed, and put long groups first."""
    wanted = config.getoption("--set")
    twice = [name for name, count in Counter(item.nodeid for item in items).items() if count > 1]
    if twice:  # a parallel run would run only the first of them, without a word
        raise pytest.UsageError(f"tests that share an id: {', '.join(twice)}")
    found = [(kinds.kind_of(item), item) for item in items]
    kept = [(kind, item) for kind, item in found if kinds.is_wanted(kind, item, wanted)]
    for kind, item in kept:
        item.user_properties.append(("kind", kind.name))
        if kind.group:
            item.add_marker(pytest.mark.xdist_group(kind.group))
        for tool in filter(kinds.missing, kinds.needs_of(item)):
            item.add_marker(pytest.mark.skip(reason=f"needs {tool}: {kinds.advice(tool)}"))
        if proof.is_searching() and kinds.is_property(item):
            proof.search_longer(item)
    config.hook.pytest_deselected(items=[item for kind, item in found if not kinds.is_wanted(kind, item, wanted)])
    items[:] = [item for _, item in sorted(kept, key=lambda each: not each[0].group)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from support.scheduling import FilesAndGroups

    return FilesAndGroups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Write a failing example of a random search down."""
    report = yield
    if report.when == "call" and report.failed and proof.is_searching() and kinds.is_property(item):
        file = proof.write_case(item, call.excinfo)
        if file is not None:
            report.sections.append(("failing example", f"written to {file}"))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was skipped, once for each reason, with the command that installs what is missing."""
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    lines = [f"{count} tests: {reason}" for reason, count in sorted(skipped.items())]
    if lines:
        terminalreporter.section("skipped", sep="-")
        for line in lines:
            terminalreporter.line(line)
    wanted = config.getoption("--set")
    if wanted in ("quick", "rest") and not config.option.file_or_dir:
        _keep_results(wanted, terminalreporter.stats, lines)


def _reason(report: Any) -> str:
    return str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else "?"


def _keep_results(name: str, stats: dict[str, list[Any]], lines: list[str]) -> None:
    """Write the figures of a whole set down, for `python -m support.kinds`."""
    rows: dict[str, dict[str, float]] = defaultdict(lambda: {"tests": 0, "skipped": 0, "seconds": 0.0})
    for outcome in ("passed", "failed", "error", "skipped", ""):
        for report in stats.get(outcome, []):
            row = rows[dict(getattr(report, "user_properties", ())).get("kind", "plain")]
            row["seconds"] += getattr(report, "duration", 0.0)
            row["tests"] += outcome in ("passed", "failed")
            row["skipped"] += outcome == "skipped"
    kinds.RESULTS.mkdir(parents=True, exist_ok=True)
    (kinds.RESULTS / f"{name}.json").write_text(json.dumps({"kinds": rows, "skipped": lines}, indent=1))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session for the whole test process."""
    from driftline.spark._runtime.session import open_session

    with open_session("local[2]") as session:
        yield session


@pytest.fixture(scope="session")
def s3_process() -> Iterator[tuple[Any, dict[str, str]]]:
    """One S3 emulator for the whole test process, with a bucket `data`: a client, and how to reach it."""
    with s3_server("data") as (client, settings):
        yield client, settings


@pytest.fixture(scope="module")
def s3(s3_process: tuple[Any, dict[str, str]]) -> Iterator[tuple[Any, dict[str, str]]]:
    """The emulator, reached through the environment for as long as a module's tests run."""
    from driftline.core import _objects as objects

    client, settings = s3_process
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        objects._store.cache_clear()
        yield client, settings
    objects._store.cache_clear()
