"""`driftline merge`: three versions of a table to one."""

from __future__ import annotations

from typing import Any

import click

from driftline.cli.outcome import DIFFERENT, SAME
from driftline.cli.table_options import given_options, table_options
from driftline.tables._options import check_options

_EPILOG = """\b
Examples:
  driftline merge base.csv ours.csv theirs.csv --key id -o merged.csv
  driftline merge base.csv ours.csv theirs.csv --key id --prefer ours -o ours.csv

Conflicts are listed on stdout, an event a line. Without --prefer nothing is written then.
Exit codes: 0 merged, 1 conflicts, 2 error.
"""


@click.command(epilog=_EPILOG)
@click.argument("base")
@click.argument("ours")
@click.argument("theirs")
@table_options
@click.option("--prefer", type=click.Choice(["ours", "theirs"]), help="Which side decides a conflict.")
@click.option("-o", "--output", metavar="FILE", required=True, help="Write to FILE; it may be OURS.")
def merge(base: str, ours: str, theirs: str, *, prefer: Any, output: str, **rules: Any) -> int:
    """Merge the changes that OURS and THEIRS made to the CSV table BASE."""
    from driftline.core._files import atomic_write, open_output
    from driftline.core._workspace import Workspace
    from driftline.tables._events import event_line
    from driftline.tables._patch import CsvStyle, header_row, merge_tables, open_text

    options = check_options(**given_options(**rules))
    with Workspace() as workspace:
        _, table, _ = open_text(base, "A", options, workspace)
        source, mine, _ = open_text(ours, "A", options, workspace)
        _, other, _ = open_text(theirs, "B", options, workspace)
        merged = merge_tables(table, mine, other, options, prefer)
        if not merged.conflicts or prefer is not None:
            with atomic_write(output, (base, theirs)) as out:
                rows = [*header_row(source.reading, merged.header), *merged.records()]
                CsvStyle.of(source).write(rows, out)
    if merged.conflicts:
        with open_output(None) as out:
            out.writelines(map(event_line, merged.conflicts))
    return DIFFERENT if merged.conflicts and prefer is None else SAME
