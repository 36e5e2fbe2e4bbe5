"""`driftline doctor`: what this machine has, what is wrong with it and how to fix it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal

import click

from driftline.cli._group import Command
from driftline.cli._outcome import ERROR, SAME
from driftline.core import EXTRA_OF
from driftline.errors import DriftlineError
from driftline.version import __version__

Verdict = Literal["ok", "warning", "error"]

_LEAST_BYTES = 2e9  # of disk and of memory


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the check: what was looked at, what was found, and advice where it is needed."""

    subject: str
    found: str
    verdict: Verdict = "ok"
    advice: str = ""


@click.command(cls=Command)
@click.option("--spark/--no-spark", default=True, show_default=True, help="Start a Spark session and run a small job.")
@click.option("--master", metavar="URL", help="Spark master or sc:// address. Default: this machine.")
def doctor(spark: bool, master: str | None) -> int:
    """Check this machine and report what is wrong and how to fix it.

    Ends with 0 when everything works, else with 2.
    """
    findings = []
    for finding in _examine(spark, master):
        findings.append(finding)
        _show(finding)
    return ERROR if any(finding.verdict == "error" for finding in findings) else SAME


def _examine(spark: bool, master: str | None) -> Iterator[Finding]:
    yield Finding("driftline", __version__)
    yield Finding("python", f"{sys.version.split()[0]} ({sys.platform})")
    for package in ("pyarrow", "polars", "deltalake", "apsw", "pyspark", "starlette", "tree_sitter"):
        yield _package(package)
    yield _checked("disk", _disk)
    yield _checked("memory", _memory)
    if find_spec("pyspark") is None:
        return
    yield _checked("java", _java)
    if spark:
        yield _checked("spark", lambda: _spark(master))


def _package(name: str) -> Finding:
    try:
        return Finding(name, version(name))
    except PackageNotFoundError:
        if name not in EXTRA_OF:
            return Finding(name, "missing", "error", "install driftline's dependencies again")
        return Finding(name, f"not installed (pip install 'driftline[{EXTRA_OF[name][0]}]')")


def _checked(subject: str, look: Callable[[], Finding]) -> Finding:
    """A finding, or the error that kept us from it."""
    try:
        return look()
    except DriftlineError as error:
        return Finding(subject, f"error[{error.code}]", "error", error.message)
    except (ImportError, OSError) as error:
        return Finding(subject, "missing or broken", "error", f"{error}: install driftline's dependencies again")


def _disk() -> Finding:
    place = tempfile.gettempdir()
    advice = "large inputs spill there: free some space or set TMPDIR elsewhere"
    return _free_space("disk", shutil.disk_usage(place).free, f"free in {place}", advice)


def _memory() -> Finding:
    import psutil

    advice = "close other programs, or limit driftline with --memory"
    return _free_space("memory", psutil.virtual_memory().available, f"free, {os.cpu_count()} cores", advice)


def _free_space(subject: str, count: int, words: str, advice: str) -> Finding:
    found = f"{count / 1e9:.1f} GB {words}"
    return Finding(subject, found) if count >= _LEAST_BYTES else Finding(subject, found, "warning", advice)


def _java() -> Finding:
    from driftline.spark import find_java

    java = find_java()
    return Finding("java", f"{java.version} (from {java.found_in})")


def _spark(master: str | None) -> Finding:
    from driftline.spark import check_session, chosen_master

    started = time.monotonic()
    outcome = check_session(master)
    seconds = time.monotonic() - started
    found = f"{outcome.version} on {chosen_master(master)}: session and a job in {seconds:.1f} s"
    if outcome.worker_python != f"{sys.version_info.major}.{sys.version_info.minor}":
        advice = "give the workers the same Python minor version (PYSPARK_PYTHON, or an archived environment)"
        return Finding("spark", f"{found}; workers run Python {outcome.worker_python}", "error", advice)
    return Finding("spark", found)


def _show(finding: Finding) -> None:
    mark, colour = {"ok": ("ok", "green"), "warning": ("look", "yellow"), "error": ("bad", "red")}[finding.verdict]
    click.echo(f"{click.style(f'{mark:<5}', fg=colour)} {finding.subject:<10} {_without_home(finding.found)}")
    if finding.advice:
        click.echo(f"      {'':<10} {click.style(_without_home(finding.advice), fg=colour)}")


def _without_home(text: str) -> str:
    home = os.path.expanduser("~")
    return text.replace(home, "~") if len(home) > 1 else text
