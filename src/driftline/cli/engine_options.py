"""The options of commands that run on this machine or on Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

import click

from driftline.cli.commands import Function
from driftline.cli.completion import Words
from driftline.core._engines import EngineName, use_spark_settings
from driftline.errors import OptionError

if TYPE_CHECKING:
    from driftline.core._engines import EngineChoice, Job


def engine_options(command: Function) -> Function:
    """Add `--engine`, `--master` and `--spark-conf`."""
    engine = click.option(
        "--engine",
        type=Words(lambda: get_args(EngineName)),
        default="auto",
        show_default=True,
        metavar="|".join(get_args(EngineName)),
        help="Where the work runs.",
    )
    master = click.option("--master", metavar="URL", help="Spark master or sc:// address; implies --engine spark.")
    return engine(master(spark_conf(command)))


def spark_conf(command: Function) -> Function:
    """Add `--spark-conf`, which holds for every session of the command."""
    return click.option(
        "--spark-conf",
        multiple=True,
        metavar="KEY=VALUE",
        expose_value=False,
        callback=_take_settings,
        help="A setting of Spark, such as spark.executor.memory=4g; may be repeated.",
    )(command)


def _take_settings(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> None:
    settings = dict(pair.partition("=")[::2] for pair in given if "=" in pair)
    if len(settings) < len(given):
        raise OptionError("--spark-conf is KEY=VALUE, each key once", code="invalid_spark_setting")
    use_spark_settings(settings)


def chosen_engine(job: Job, wanted: str, master: str | None, size: Callable[[], int]) -> str:
    """The engine to use; on a terminal the choice of `auto` is told."""
    from driftline.core._engines import choose_engine

    return tell_choice(wanted, choose_engine(job, wanted, size=size, master=master))


def tell_choice(wanted: str, choice: EngineChoice) -> str:
    """The engine's name; Spark is said with its reason on a terminal where the user left the choice open."""
    from driftline.cli.terminal import say

    if wanted == "auto" and choice.name != "local":
        say(f"engine: {choice.name} ({choice.reason})")
    return choice.name
