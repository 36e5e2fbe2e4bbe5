"""`driftline lake`: tables of row deltas: schemas, flushes, compaction, states, history and proofs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli import _views as views
from driftline.cli._group import Function, LazyGroup, chosen_engine, engine_options, format_option, several
from driftline.cli._outcome import DIFFERENT, SAME
from driftline.cli._terminal import progress_bar
from driftline.core import io_errors, open_output, standard_output
from driftline.lake import STATE_FORMATS

if TYPE_CHECKING:
    from driftline.lake import Engine, FlushResult, HistoryEntry, Lake, LogEntry, Scheduler, TableStatus


_lake_option = click.option(
    "--lake",
    "location",
    default="lake",
    envvar="DRIFTLINE_LAKE",
    show_default=True,
    show_envvar=True,
    metavar="PATH|URL",
    help="Where the lake is.",
)
_table_option = click.option("--table", "-t", required=True, metavar="NAME", help="The table.")


@click.group(cls=LazyGroup)
def lake() -> None:
    """Keep row deltas in a lake of Delta tables, fold them and travel in time."""


def output_options(formats: Sequence[str], what: str) -> Callable[[Function], Function]:
    """`--format`, the first one being the default, and `--output`."""
    text = "Write to FILE (whole or not at all) instead of stdout."
    output = click.option("-o", "--output", metavar="FILE", help=text)
    return several(format_option(formats, what, is_first_default=True), output)


def text_or_json(json_means: str) -> Callable[[Function], Function]:
    """`--format text|json`; the design's `--json` stays as another name for the second."""

    def add(command: Function) -> Function:
        @click.option("--format", "format_name", type=click.Choice(["text", "json"]), help=f"json: {json_means}")
        @click.option("--json", "as_json", is_flag=True, hidden=True, help="The same as --format json.")
        @wraps(command)
        def with_format(*, format_name: str | None, as_json: bool, **options: object) -> Any:
            return command(format_name=format_name or ("json" if as_json else "text"), **options)

        return with_format

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
        from driftline.lake import run_locally

        with ExitStack() as stack:
            engines: dict[str, Engine] = {"local": run_locally}
            for table in tables:
                name = chosen_engine("lake", self.engine, self.master, partial(self._sizes, table))
                if name not in engines:
                    from driftline.spark import lake_engine, open_session

                    engines[name] = lake_engine(stack.enter_context(open_session(self.master)))
                with progress_bar() as tracker:
                    yield table, {"engine": engines[name], "tracker": tracker}

    def _sizes(self, table: str) -> list[int | None]:
        """The bytes of the table's delta files."""
        from driftline.lake import load

        deltas_table = load(self.lake, table, "deltas")
        return [0 if deltas_table is None else sum(file.size for file in deltas_table.files())]


def fold_options(command: Function) -> Function:
    """`--lake`, `--engine` and `--master`, given to the command as `folds`."""

    @wraps(command)
    def with_folds(location: str, engine: str, master: str | None, **given: object) -> Any:
        return command(folds=Folds(open_lake(location), engine, master), **given)

    return _lake_option(engine_options(with_folds))


def open_lake(location: str) -> Lake:
    """The lake of `--lake`; storage options come from the environment."""
    from driftline.lake import Lake

    return Lake(location)


# `driftline lake schema|extract|flush|compact`: what changes a lake.
@lake.command(short_help="Register a table's schema, or show it.")
@click.argument("table")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=False)
@_lake_option
def schema(table: str, file: Path | None, location: str) -> int:
    """Register the schema of TABLE from a JSON FILE, or show the registered one."""
    from driftline.deltas import TableSchema
    from driftline.errors import DeltaError
    from driftline.lake import register, required

    lake = open_lake(location)
    if file is None:
        click.echo(json.dumps(required(lake, table).to_wire(), ensure_ascii=False))
        return SAME
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise DeltaError(f"{file} is not JSON: {error}", path=str(file)) from error
    declared = TableSchema.from_wire(content)
    if declared.table != table:
        raise DeltaError(f"{file} is the schema of table {declared.table!r}, not of {table!r}", path=str(file))
    register(lake, declared)
    return SAME


@lake.command(short_help="Turn two snapshots of a table into deltas.")
@click.argument("a")
@click.argument("b")
@click.option("-k", "--key", "key", multiple=True, required=True, metavar="COL", help="A key column; may be repeated.")
@_table_option
@click.option("--client-id", required=True, metavar="ID", help="Who makes the deltas.")
@click.option("--start", metavar="TIMESTAMP", help="The first timestamp.  [default: now, after all known ones]")
@click.option("--load-base", is_flag=True, help="Load A first where the lake does not hold it.")
@click.option("--header-mode", default="strict", show_default=True, metavar="strict|sorted", help="Compare headers.")
@_lake_option
@engine_options
def extract(
    a: str, b: str, table: str, load_base: bool, start: str | None, location: str, master: str | None, **options: Any
) -> int:
    """Append the deltas that lead from snapshot A of a table to snapshot B."""
    from driftline.lake import extract_snapshots, parse_timestamp
    from driftline.sources import input_size

    lake = open_lake(location)
    name = chosen_engine("lake", options.pop("engine"), master, lambda: map(input_size, (a, b)))
    options.update(table=table, load_base=load_base, diff_engine=name, master=master)
    options["start"] = None if start is None else parse_timestamp(start, first=True)
    with ExitStack() as stack:
        options["tracker"] = stack.enter_context(progress_bar())
        if name == "spark":
            from driftline.spark import load_schedulers, open_session

            options["schedulers"] = load_schedulers(stack.enter_context(open_session(master)))
        result = extract_snapshots(lake, a, b, **options)
    record = {"table": table, "deltas": result.deltas, "start": str(result.start)}
    words = f"{table}: {views.counted(result.deltas, 'delta')} added"
    words += f", {result.base_deltas:,} for A before them" if load_base else ""
    views.print_result({**record, "base": result.base_deltas} if load_base else record, words)
    if result.was_done_before:
        click.echo("note: this extraction was in the lake already; nothing was added", err=True)
    return SAME


@lake.command(short_help="Add deltas from JSON lines or envelopes.")
@click.argument("files", nargs=-1)
@click.option("--gateway", default="flush", show_default=True, metavar="ID", help="Whose deltas these are.")
@click.option("--table", "-t", metavar="NAME", help="Without FILES: only this table's envelopes.")
@_lake_option
@engine_options
def flush(
    files: tuple[str, ...], gateway: str, table: str | None, location: str, engine: str, master: str | None
) -> int:
    """Add deltas from FILES: JSON lines (`-` for stdin) or JSON envelopes.

    Without FILES, envelopes that wait in the lake for a schema become Parquet.
    """
    from driftline.lake import flush_envelopes, registered

    lake = open_lake(location)
    if files:
        results = list(_flush_files(lake, files, gateway, engine, master))
    else:
        names = [table] if table else [name for name in lake.tables() if registered(lake, name) is not None]
        results = [result for name in names for result in flush_envelopes(lake, name)]
    for result in results:
        views.print_result(result.to_dict(), views.flush_text(result))
    if not results and views.on_terminal():
        click.echo("nothing to flush")
    return SAME


@lake.command(short_help="Fold new deltas into a new snapshot.")
@click.option("--table", "-t", metavar="NAME", help="The table.  [default: every table]")
@click.option("--full", is_flag=True, help="Fold from the deltas alone instead of from the last snapshot.")
@click.option("--target-file-mb", type=click.IntRange(1), default=32, show_default=True, help="Size of base files.")
@click.option("--state-feed/--no-state-feed", default=None, help="Begin, or end, a change data feed of `state`.")
@fold_options
def compact(table: str | None, full: bool, target_file_mb: int, state_feed: bool | None, folds: Folds) -> int:
    """Fold new deltas into a new snapshot; only touched ranges of row ids are rewritten."""
    from driftline.lake import compact as compact_table, registered

    lake = folds.lake
    names = [table] if table else [name for name in lake.tables() if registered(lake, name) is not None]
    for name, way in folds.of_each(names):
        result = compact_table(lake, name, full=full, target_file_bytes=target_file_mb << 20, feed=state_feed, **way)
        if result.notice is not None:
            click.echo(f"note: {result.notice}", err=True)
        views.print_result(result.to_dict(), views.compaction_text(result))
    return SAME


# `driftline lake materialize|changes|verify|tables|log|history`: what reads a lake.
@lake.command(short_help="Write the state of a table at any timestamp.")
@_table_option
@click.option("--as-of", metavar="TIMESTAMP", help="The timestamp to travel to.  [default: now]")
@click.option("--generation", type=click.IntRange(1), metavar="N", help="An earlier generation.  [default: the newest]")
@output_options(STATE_FORMATS, "What to write.")
@fold_options
def materialize(
    table: str, as_of: str | None, generation: int | None, format_name: str, output: str | None, folds: Folds
) -> int:
    """Write the rows of a table as they are now, or were at a timestamp within retention."""
    from driftline.lake import materialize as write_state, parse_timestamp

    timestamp = None if as_of is None else parse_timestamp(as_of, whole_day=True)
    target = standard_output() if output is None else output
    with folds.of(folds.lake.table_name(table)) as way:
        write_state(folds.lake, table, target, format=format_name, as_of=timestamp, generation=generation, **way)
    _report_pending(folds, table)
    return SAME


@lake.command(short_help="Write the net change between two timestamps.")
@_table_option
@click.option("--from", "since", required=True, metavar="TIMESTAMP", help="Where the window begins (not included).")
@click.option("--to", "until", metavar="TIMESTAMP", help="Where it ends (included).  [default: now]")
@output_options(["events", "deltas", "changeset"], "Table-diff events, row deltas or a SQLite changeset.")
@fold_options
def changes(table: str, since: str, until: str | None, format_name: str, output: str | None, folds: Folds) -> int:
    """Write the net change of a table between two timestamps."""
    from driftline.lake import LAST_TIMESTAMP, parse_timestamp, write_changes

    begin = parse_timestamp(since)
    end = LAST_TIMESTAMP if until is None else parse_timestamp(until, whole_day=True)
    with folds.of(folds.lake.table_name(table)) as way, open_output(output) as out:
        counts = write_changes(folds.lake, table, out, since=begin, until=end, kind=format_name, **way)
    _report_pending(folds, table)
    return DIFFERENT if counts.any_difference else SAME


@lake.command(short_help="Prove that the snapshot is the replay of all deltas.")
@_table_option
@click.option("--oracle", is_flag=True, help="Also replay every delta in plain Python (slow).")
@fold_options
def verify(table: str, oracle: bool, folds: Folds) -> int:
    """Prove that the snapshot is what a replay of all deltas gives, and that every delta id is right."""
    from driftline.lake import verify as verify_table

    with folds.of(folds.lake.table_name(table)) as way:
        proof = verify_table(folds.lake, table, oracle=oracle, **way)
    views.print_result(proof.to_dict(), views.verification_text(proof))
    return SAME if proof.is_proved else DIFFERENT


@lake.command(short_help="List the tables: rows, columns, what is not folded or waits.")
@text_or_json("one JSON object per table.")
@_lake_option
def tables(format_name: str, location: str) -> int:
    """List the tables of a lake and how far their state is."""
    from driftline.lake import status_of

    lake = open_lake(location)
    return _list((status_of(lake, name) for name in lake.tables()), format_name, views.show_tables, _status_line)


def _list(found: Iterable[Any], format_name: str, show: Function, line: Callable[[Any], str]) -> int:
    """List records: as a table on a terminal, else a line each, or a JSON object."""
    if views.on_terminal() and format_name == "text":
        show(found)
        return SAME
    for each in found:
        click.echo(views.json_text(each.to_dict()) if format_name == "json" else line(each))
    return SAME


def _status_line(status: TableStatus) -> str:
    words = [status.table, status.state_text if status.rows is None else f"{status.rows} rows"]
    words.append(status.columns_text if status.columns is None else f"columns {status.columns_text}")
    words += [f"{count} {what}" for what, count in status.backlog.items()]
    if status.state_age_seconds:
        words.append(f"state {status.state_age_seconds} s behind")
    return "  ".join(words)


@lake.command(short_help="List the commits of a table.")
@_table_option
@text_or_json("one JSON object per commit.")
@_lake_option
def log(table: str, format_name: str, location: str) -> int:
    """List the commits of a table: flushes, compactions, schema changes, retention."""
    from driftline.lake import lake_log

    return _list(lake_log(open_lake(location), table), format_name, views.show_log, _commit_line)


def _commit_line(entry: LogEntry) -> str:
    words = [entry.commit, entry.operation]
    if entry.deltas is not None:
        words.append(f"{entry.deltas} deltas")
    if entry.gateway is not None:
        words.append(f"from {entry.gateway}")
    words += filter(None, [entry.time_range])
    if entry.part != "deltas":
        words.append(f"+{entry.files_added} -{entry.files_removed} files")
    return "  ".join(words)


@lake.command(short_help="List every delta of a row and what it won.")
@_table_option
@click.option("--row", "row_id", required=True, metavar="ID", help="The row id.")
@text_or_json("one JSON object per delta.")
@_lake_option
def history(table: str, row_id: str, format_name: str, location: str) -> int:
    """List every delta of a row in the order of replay, and the columns that each one won."""
    from driftline.lake import row_history

    return _list(row_history(open_lake(location), table, row_id), format_name, views.show_row_history, _delta_line)


def _delta_line(entry: HistoryEntry) -> str:
    values = (f"{name}={views.json_text(value)}{'*' if won else ''}" for name, value, won, _ in entry.values)
    return f"{entry.timestamp}  {entry.delta.client_id}  {entry.delta.op}  {', '.join(values)}".rstrip()


def _report_pending(folds: Folds, table: str) -> None:
    """Say what is not in the result: deltas that no schema takes."""
    from driftline.lake import count_waiting, registered

    waiting = count_waiting(folds.lake, table) if registered(folds.lake, table) is not None else 0
    if waiting:
        deltas = "1 delta waits" if waiting == 1 else f"{waiting} deltas wait"
        click.echo(f"note: {deltas} for a schema of {table} that takes them; they are left out", err=True)


@lake.command(short_help="Remove files that nothing refers to; set a horizon.")
@_table_option
@click.option("--hours", type=click.IntRange(0), default=168, show_default=True, help="Keep what is younger.")
@click.option("--horizon", metavar="TIMESTAMP", help="Archive the state before it and let its deltas go, for ever.")
@click.option("--dry-run", is_flag=True, help="Only list the files.")
@fold_options
def vacuum(table: str, hours: int, horizon: str | None, dry_run: bool, folds: Folds) -> int:
    """Remove files that no kept snapshot needs, and list them.

    With --horizon, history begins there: older deltas are refused from then on.
    """
    from driftline.errors import OptionError
    from driftline.lake import parse_timestamp, set_horizon, vacuum as vacuum_table

    if horizon is not None:
        if dry_run:
            raise OptionError("--horizon cannot be tried out: leave --dry-run away")
        with folds.of(folds.lake.table_name(table)) as way:
            set_horizon(folds.lake, table, parse_timestamp(horizon, first=True), **way)
    for path in vacuum_table(folds.lake, table, hours=hours, dry_run=dry_run):
        click.echo(path)
    return SAME


# Flushing files: JSON lines of deltas by ranges (on Spark too), pending files as one.
def _flush_files(
    lake: Lake, files: Iterable[str], gateway: str, engine: str, master: str | None
) -> Iterator[FlushResult]:
    from driftline.lake import flush_file

    with ExitStack() as stack:
        paths = [_as_file(name, stack) for name in files]
        name = chosen_engine("lake", engine, master, lambda: (path.stat().st_size for path in paths))
        scheduler: Scheduler | None = None
        if name == "spark":
            from driftline.spark import ingest_on_spark, open_session

            scheduler = partial(ingest_on_spark, stack.enter_context(open_session(master)))
        for path in paths:
            yield from flush_file(lake, path, gateway, scheduler)


def _as_file(name: str, stack: ExitStack) -> Path:
    import shutil
    import sys
    import tempfile

    if name != "-":
        with io_errors(name):
            Path(name).stat()
        return Path(name)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="driftline-flush-")))
    with open(folder / "stdin", "wb") as out:
        shutil.copyfileobj(sys.stdin.buffer, out, 1 << 20)
    return folder / "stdin"
