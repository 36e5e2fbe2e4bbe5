"""`driftline`: the command group and the only place where errors become exit codes."""

from __future__ import annotations

import sys

import click

from driftline.cli.commands import COMMANDS, LazyGroup
from driftline.cli.outcome import run_and_exit
from driftline.version import __version__

_EPILOG = """\b
Examples:
  driftline diff old.csv new.csv --key id
  driftline compare old.json new.json --schema api.yaml
  driftline doctor

Exit codes: 0 the same or done, 1 differences, 2 error, 130 cancelled.
"""


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="driftline")
@click.option(
    "--error-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How an error is written to stderr.",
)
def driftline(error_format: str) -> None:
    """Find what changed between two versions of data, and ship the change."""


def main() -> None:
    """Entry point of the `driftline` command and of `python -m driftline`."""
    run_and_exit(driftline, sys.argv[1:])
