"""`driftline lake`: the group, and what its commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.commands import Function, LazyGroup
from driftline.cli.engine_options import chosen_engine, engine_options
from driftline.cli.terminal import progress_bar

if TYPE_CHECKING:
    from driftline.lake import Lake
    from driftline.lake._fold.compact import Engine


_COMMANDS: dict[str, tuple[str, str]] = {
    "schema": ("driftline.cli.lake_write:schema", "Register a table's schema, or show it."),
    "extract": ("driftline.cli.lake_write:extract", "Turn two snapshots of a table into deltas."),
    "flush": ("driftline.cli.lake_write:flush", "Add deltas from JSON lines or envelopes."),
    "compact": ("driftline.cli.lake_write:compact", "Fold new deltas into a new snapshot."),
    "materialize": ("driftline.cli.lake_read:materialize", "Write the state of a table at any timestamp."),
    "changes": ("driftline.cli.lake_read:changes", "Write the net change between two timestamps."),
    "verify": ("driftline.cli.lake_read:verify", "Prove that the snapshot is the replay of all deltas."),
    "tables": ("driftline.cli.lake_read:tables", "List the tables: rows, columns, what is not folded or waits."),
    "log": ("driftline.cli.lake_read:log", "List the commits of a table."),
    "history": ("driftline.cli.lake_read:history", "List every delta of a row and what it won."),
    "vacuum": ("driftline.cli.lake_write:vacuum", "Remove files that nothing refers to; set a horizon."),
}
_EPILOG = """\b
Examples:
  driftline lake extract old.csv new.csv --key id --table users --client-id nightly --load-base
  driftline lake compact --table users
  driftline lake materialize --table users --as-of 2026-11-15T12:00:00Z --format csv -o users.csv
  driftline lake verify --table users

The lake is a folder or an object-store URL: --lake, or the variable DRIFTLINE_LAKE, or ./lake.
A timestamp is an hlc in digits, or a time such as 2026-11-15T12:00:00Z.
"""


@click.group(cls=LazyGroup, lazy=_COMMANDS, epilog=_EPILOG)
def lake() -> None:
    """Keep row deltas in a lake of Delta tables, fold them and travel in time."""


def lake_option(command: Function) -> Function:
    """`--lake`."""
    return click.option(
        "--lake",
        "location",
        default="lake",
        envvar="DRIFTLINE_LAKE",
        show_default=True,
        show_envvar=True,
        metavar="PATH|URL",
        help="Where the lake is.",
    )(command)


def table_option(command: Function) -> Function:
    """`--table`."""
    return click.option("--table", "-t", required=True, metavar="NAME", help="The table.")(command)


def output_options(formats: Sequence[str], what: str) -> Callable[[Function], Function]:
    """`--format`, the first one being the default, and `--output`."""

    def add(command: Function) -> Function:
        choice = click.option(
            "--format",
            "format_name",
            type=click.Choice(formats),
            default=formats[0],
            show_default=True,
            help=what,
        )
        text = "Write to FILE (whole or not at all) instead of stdout."
        return choice(click.option("-o", "--output", metavar="FILE", help=text)(command))

    return add


def text_or_json(json_means: str) -> Callable[[Function], Function]:
    """`--format text|json`; the design's `--json` stays as another name for the second."""

    def add(command: Function) -> Function:
        @click.option("--format", "format_name", type=click.Choice(["text", "json"]), help=f"json: {json_means}")
        @click.option("--json", "as_json", is_flag=True, hidden=True, help="The same as --format json.")
        @wraps(command)
        def settled(*, format_name: str | None, as_json: bool, **options: object) -> Any:
            return command(format_name=format_name or ("json" if as_json else "text"), **options)

        return settled

    return add


@dataclass(frozen=True, slots=True)
class Folds:
    """A lake and where the folds of its tables run."""

    lake: Lake
    engine: str
    master: str | None

    @contextmanager
    def of(self, table: str) -> Iterator[dict[str, Any]]:
        """The engine and the tracker for work on a table, as the lake's functions take them."""
        for _, way in self.of_each([table]):
            yield way

    def of_each(self, tables: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The same for several tables, which share one Spark session where they need one."""
        with ExitStack() as stack:
            session: Any = None
            for table in tables:
                name = chosen_engine("lake", self.engine, self.master, partial(table_bytes, self.lake, table))
                if name == "spark" and session is None:
                    from driftline.spark._runtime.session import open_session

                    session = stack.enter_context(open_session(self.master))
                with progress_bar() as tracker:
                    yield table, {"engine": _fold_engine(name, session), "tracker": tracker}


def fold_options(command: Function) -> Function:
    """`--lake`, `--engine` and `--master`, given to the command as `folds`."""

    @wraps(command)
    def with_folds(location: str, engine: str, master: str | None, **given: object) -> Any:
        return command(folds=Folds(open_lake(location), engine, master), **given)

    return lake_option(engine_options(with_folds))


def open_lake(location: str) -> Lake:
    """The lake of `--lake`; storage options come from the environment, as `deltalake` reads them."""
    from driftline.lake import Lake

    return Lake(location)


def table_bytes(lake: Lake, table: str) -> int:
    """How many bytes of delta files a table has."""
    from driftline.lake._store.delta import files_of, load

    deltas_table = load(lake, table, "deltas")
    return 0 if deltas_table is None else sum(file.size for file in files_of(deltas_table))


def _fold_engine(name: str, session: Any) -> Engine:
    """The scheduler of folds: threads of this machine, or a Spark session."""
    if name == "local":
        from driftline.lake._fold.local import run_locally

        return run_locally
    from driftline.spark._lake import fold_engine

    return fold_engine(session)
