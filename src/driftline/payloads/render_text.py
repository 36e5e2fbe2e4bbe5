"""A report for people: path, old, new and the rule, in colour where there is a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from driftline.payloads.report import Entry, Report
from driftline.payloads.values import spelled

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"ERROR": "red", "WARNING": "yellow"}


def print_report(report: Report, console: Console) -> None:
    """Write the report to a console."""
    summary = report.summary
    for entry in [*report.diffs, *report.warnings]:
        _print_entry(entry, console)
    verdict = {True: "match", False: "mismatch", None: "cut short"}[report.is_match]
    console.print(verdict, style="bold green" if report.is_match else "bold red", end="")
    console.print(
        f": {_count(summary['total_fields_checked'], 'field')} compared, "
        f"{_count(summary['mismatches_found'], 'difference')}, {_count(summary['warnings_count'], 'warning')}, "
        f"{summary['fields_ignored']} ignored",
        markup=False,
    )


def _print_entry(entry: Entry, console: Console) -> None:
    console.print(f"{entry.type} ", style=_COLOURS[entry.severity], end="", markup=False)
    console.print(entry.path, style="bold", markup=False, soft_wrap=True)
    for label, value in _lines(entry):
        console.print(f"  {label:<5}", style="dim", end="")
        console.print(value, markup=False, soft_wrap=True)


def _lines(entry: Entry) -> Iterable[tuple[str, Any]]:
    if entry.severity == "ERROR":
        yield "old", spelled(entry.old_value)
        yield "new", spelled(entry.new_value)
    yield "why", entry.message
    if "rule_applied" in entry:
        yield "rule", entry.rule_applied


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
