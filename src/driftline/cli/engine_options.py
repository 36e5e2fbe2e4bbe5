"""The options of commands that run on this machine or on Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--engine` and `--master`."""
    engine = click.option(
        "--engine",
        type=click.Choice(["auto", "local", "spark"]),
        default="auto",
        show_default=True,
        help="Where the work runs.",
    )
    master = click.option("--master", metavar="URL", help="Spark master or sc:// address; implies --engine spark.")
    return engine(master(command))
