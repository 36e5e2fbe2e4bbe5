"""`driftline patch`: a table with the changes of a diff applied."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import click

from driftline.cli.outcome import SAME
from driftline.cli.table_options import given_options, reading_options
from driftline.tables._options import check_options

_EPILOG = """\b
Examples:
  driftline diff old.csv new.csv --key id -o changes.jsonl
  driftline patch old.csv changes.jsonl -o patched.csv

Rows stay in the order of A, added rows come behind. Exit codes: 0 done, 1 A does not hold what the events say, 2 error.
"""


@click.command(epilog=_EPILOG)
@click.argument("a")
@click.argument("events")
@reading_options
@click.option("-o", "--output", metavar="FILE", help="Write to FILE (whole or not at all) instead of stdout.")
def patch(a: str, events: str, output: str | None, **rules: Any) -> int:
    """Apply EVENTS, the JSONL output of a diff, to the CSV table A."""
    from driftline.core._files import open_output
    from driftline.core._workspace import Workspace
    from driftline.tables._patch import CsvStyle, open_text, patch_table

    options = check_options(**given_options(**rules))
    with Workspace() as workspace:
        source, table, first = open_text(a, "A", options, workspace)
        rows = patch_table(table, _lines(events), events)
        with open_output(output, (a, events)) as out:
            style = CsvStyle.of(source)
            style.write([*first, *rows], out)
    return SAME


def _lines(name: str) -> Iterator[bytes]:
    from driftline.core._files import read_lines

    return iter(cast(BinaryIO, sys.stdin.buffer)) if name == "-" else read_lines(name)
