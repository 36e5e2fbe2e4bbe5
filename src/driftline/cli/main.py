"""`driftline`: the command group and the only place where errors become exit codes."""

from __future__ import annotations

import gc
import os
import sys

import click

from driftline.cli._group import COMMANDS, LazyGroup, choice
from driftline.cli._outcome import run_and_exit
from driftline.core import block_pandas
from driftline.version import __version__


@click.group(
    cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="driftline")
@choice("--error-format", "text json", "How an error is written to stderr.")
@choice("--color", "auto always never", "Colours; auto: on a terminal, unless NO_COLOR is set.")
def driftline(error_format: str, color: str) -> None:
    """Find what changed between two versions of data, and ship the change."""
    # rich and click both heed these variables, and so do the processes that are started from here.
    if color == "never":
        os.environ["NO_COLOR"] = "1"
    elif color == "always":
        os.environ.pop("NO_COLOR", None)
        os.environ["FORCE_COLOR"] = "1"


def main() -> None:
    """Entry point of the `driftline` command and of `python -m driftline`."""
    # NumPy's library for linear algebra, which no command uses, would start threads that spin while they wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports make a hundred thousand objects, all of which stay: the collector would walk them again and again.
    gc.set_threshold(150_000, 20, 20)
    block_pandas()
    run_and_exit(driftline, sys.argv[1:])
