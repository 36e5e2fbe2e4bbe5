"""`driftline dev conformance`: run folders of table-diff fixtures."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import click

from driftline.cli._outcome import DIFFERENT, SAME

_EPILOG = """\b
Examples:
  driftline dev conformance fixtures/
  driftline dev conformance fixtures/keyed_basic --engine spark

A fixture is a folder with config.json, a.csv, b.csv and either expected.jsonl or expected_error.json.
Fields of config.json: mode, key_columns, header_mode, emit_unchanged, ignore_row_order.

Exit codes: 0 every fixture passed, 1 some did not, 2 error.
"""


@click.group()
def dev() -> None:
    """For those who build on driftline: run fixtures."""


@dev.command(epilog=_EPILOG)
@click.argument("folder", metavar="DIR")
@click.option(
    "--engine",
    type=click.Choice(["local", "vectorized", "kernels", "spark"]),
    default="local",
    show_default=True,
    help="The engine to test; vectorized (once kernels) is local without the shortcut for small files.",
)
@click.option("--master", metavar="URL", help="Spark master or sc:// address.")
@click.option("-q", "--quiet", is_flag=True, help="Name only the fixtures that fail.")
def conformance(folder: str, engine: str, master: str | None, quiet: bool) -> int:
    """Run the fixture DIR, or all fixtures below DIR, and say which pass."""
    from driftline.tables import run_fixtures

    engine = "vectorized" if engine == "kernels" else engine
    passed = failed = 0
    with _one_session(engine, master):
        for outcome in run_fixtures(folder, engine, master=master):
            passed += outcome.passed
            failed += not outcome.passed
            if not outcome.passed:
                click.echo(f"FAIL {outcome.name}: {outcome.complaint}")
            elif not quiet:
                click.echo(f"ok   {outcome.name}")
    click.echo(f"{passed} passed, {failed} failed")
    return DIFFERENT if failed else SAME


def _one_session(engine: str, master: str | None) -> AbstractContextManager[object]:
    """All fixtures share one Spark session, because starting one takes seconds."""
    if engine != "spark":
        return nullcontext()
    from driftline.spark import open_session

    return open_session(master)
