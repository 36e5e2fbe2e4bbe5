"""`driftline check`: many pairs of tables at once, from one file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.engine_options import spark_conf
from driftline.cli.terminal import progress_bar, stdout_console

if TYPE_CHECKING:
    from driftline.pipeline._check import CheckReport, PairResult

_FORMATS = {".json": "json", ".xml": "junit", ".html": "html"}
_COLOURS = {"passed": "green", "warned": "yellow", "failed": "bold red", "error": "bold red"}
_EPILOG = """\b
Examples:
  driftline check pairs.toml
  driftline check pairs.toml --select 'sales_*' --parallel 4
  driftline check pairs.toml -o report.html
  driftline check pairs.toml --format junit -o report.xml

\b
A file of pairs:
  [defaults]
  key = "id"
  fail_if = ["different > 0.1%"]

\b
  [pairs.customers]
  old = "postgresql://old-host/shop::public.customers"
  new = "warehouse/customers.parquet"
  tolerance = { balance = "0.01" }

Without fail_if any difference fails a pair.

Exit codes: 0 all pairs passed, 1 a limit was exceeded, 2 a pair could not be compared.
"""


@click.command(epilog=_EPILOG)
@click.argument("file", metavar="PAIRS")
@click.option("--select", multiple=True, metavar="NAME", help="Only these pairs, as sales_*. May be repeated.")
@click.option(
    "--parallel", type=click.IntRange(min=1), metavar="N", help="So many at once. Default: what the file says."
)
@click.option("--engine", type=click.Choice(["auto", "local", "spark"]), help="Default: what the file says.")
@click.option("--master", metavar="URL", help="Spark master or sc:// address; implies --engine spark.")
@spark_conf
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "json", "junit", "html"]),
    help="Default: by the ending of -o FILE, else a table for people.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the report to FILE instead of stdout.")
@click.option("--progress/--no-progress", default=None, help="Draw progress bars. Default: on a terminal.")
def check(
    *,
    file: str,
    select: tuple[str, ...],
    parallel: int | None,
    engine: str | None,
    master: str | None,
    format_name: str | None,
    output: str | None,
    progress: bool | None,
) -> int:
    """Compare the pairs of tables that the file PAIRS names, and report on all of them."""
    from driftline.pipeline._check import check_pairs, load_pairs

    declared = load_pairs(file)
    shape = format_name or _FORMATS.get(os.path.splitext(output or "")[1], "text")
    with progress_bar(show=progress) as tracker:
        report = check_pairs(
            declared,
            select=select,
            engine=engine or ("spark" if master else None),
            master=master,
            parallel=parallel,
            tracker=tracker,
        )
    _write(report, shape, output)
    return report.exit_code


def _write(report: CheckReport, shape: str, output: str | None) -> None:
    from driftline.core._files import open_output

    if shape == "text" and output is None:
        _show(report)
        return
    with open_output(output, ()) as out:
        out.write(_rendered(report, shape))
    if output is not None:
        click.echo(_closing(report), err=True)


def _rendered(report: CheckReport, shape: str) -> bytes:
    from driftline.pipeline import _check as check_formats

    if shape == "text":
        return "".join(f"{line}\n" for line in _lines(report)).encode()
    ways: dict[str, Any] = {
        "json": check_formats.check_json,
        "junit": check_formats.check_junit,
        "html": check_formats.check_html,
    }
    rendered: bytes = ways[shape](report)
    return rendered


def _show(report: CheckReport) -> None:
    """A table, then what was exceeded or went wrong, then the sum."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("pair", "result", "seconds", "counts"):
        table.add_column(name, justify="right" if name == "seconds" else "left", overflow="fold")
    for result in report.results:
        verdict = Text(result.verdict, _COLOURS[result.verdict])
        table.add_row(Text(result.pair), verdict, f"{result.seconds:.1f}", Text(_counts(result)))
    console = stdout_console()
    if not sys.stdout.isatty():
        console.width = 160
    console.print(table)
    for line in _details(report):
        console.print(line, markup=False, soft_wrap=True)
    console.print(_closing(report), markup=False)


def _lines(report: CheckReport) -> list[str]:
    rows = [f"{result.verdict:<7} {result.pair}  {_counts(result)}".rstrip() for result in report.results]
    return [*rows, *_details(report), _closing(report)]


def _counts(result: PairResult) -> str:
    from driftline.pipeline._run.report import counts_text

    return counts_text(result.counts) if result.counts else result.code or ""


def _details(report: CheckReport) -> list[str]:
    found = []
    for result in report.results:
        if result.problem is not None:
            found.append(f"error: {result.pair}: {result.code}: {result.problem}")
        found += [f"failed: {result.pair}: {words}" for words in result.exceeded]
        found += [f"warning: {result.pair}: {words}" for words in result.warnings]
    return found


def _closing(report: CheckReport) -> str:
    totals = report.to_dict()["totals"]
    words = ", ".join(f"{count} {name}" for name, count in totals.items() if count)
    return f"{report.name}: {len(report.results)} pairs in {report.seconds:.1f} s: {words}"
