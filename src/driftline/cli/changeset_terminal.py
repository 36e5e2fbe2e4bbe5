"""What `driftline changeset` says on a terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from driftline.cli.terminal import stderr_console

if TYPE_CHECKING:
    from driftline.changesets import Applied

_ALWAYS = ("insert", "update", "delete", "applied")


def show_applied(applied: Applied) -> None:
    """A row a table: its records by kind, and what became of them; columns without a number are left out."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from driftline.changesets import TableReport

    reports = {name: asdict(report) for name, report in applied.tables.items()}
    totals = {kind: sum(report[kind] for report in reports.values()) for kind in asdict(TableReport())}
    kinds = [kind for kind, total in totals.items() if total or kind in _ALWAYS]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("table", overflow="fold")
    for kind in kinds:
        table.add_column(kind, justify="right", no_wrap=True)
    for name, report in reports.items():
        table.add_row(Text(name), *(f"{report[kind]:,}" for kind in kinds))
    stderr_console().print(table if reports else "nothing to apply")
