"""`driftline lake schema|extract|flush|compact|vacuum`: what changes a lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.engine_options import chosen_engine, engine_options
from driftline.cli.lake import Folds, fold_options, lake_option, open_lake, table_option
from driftline.cli.lake_views import compaction_words, counted, flush_words, on_terminal, tell
from driftline.cli.outcome import SAME
from driftline.cli.terminal import progress_bar

if TYPE_CHECKING:
    from driftline.lake import FlushResult


@click.command(
    epilog="""\b
Examples:
  driftline lake schema users users.schema.json
  driftline lake schema users

The file holds {"table": "users", "columns": [{"name": "id", "type": "string"}, …], "key": ["id"]}; types are string,
number, boolean and json. Columns may be added and removed; retyping and renaming are refused.
"""
)
@click.argument("table")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@lake_option
def schema(table: str, file: Path | None, location: str) -> int:
    """Register the schema of TABLE from a JSON FILE, or show the registered one."""
    from driftline.deltas import TableSchema
    from driftline.errors import DeltaError
    from driftline.lake import register
    from driftline.lake._store.schemas import required

    lake = open_lake(location)
    if file is None:
        click.echo(json.dumps(required(lake, table).to_wire(), ensure_ascii=False))
        return SAME
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise DeltaError(f"{file} is not JSON: {error}", path=str(file)) from error
    wanted = TableSchema.from_wire(content)
    if wanted.table != table:
        raise DeltaError(f"{file} is the schema of table {wanted.table!r}, not of {table!r}", path=str(file))
    register(lake, wanted)
    return SAME


@click.command(
    epilog="""\b
Examples:
  driftline lake extract old.csv new.csv --key id --table users --client-id nightly --load-base
  driftline lake extract new.csv newer.csv --key id --table users --client-id nightly
  driftline lake extract empty.csv first.csv --key id --table users --client-id nightly --start 117374976000000000

A and B are anything that `driftline diff` reads. A table without a schema gets one from the snapshots. The lake must
hold A: give the version that was loaded last, or load A first with --load-base. An extraction that was done before adds
nothing.
"""
)
@click.argument("a")
@click.argument("b")
@click.option("-k", "--key", "key", multiple=True, required=True, metavar="COL", help="A key column; may be repeated.")
@table_option
@click.option("--client-id", required=True, metavar="ID", help="Who makes the deltas.")
@click.option("--start", metavar="TIMESTAMP", help="The first timestamp.  [default: now, after all known ones]")
@click.option("--load-base", is_flag=True, help="Load A first where the lake does not hold it.")
@click.option("--header-mode", default="strict", show_default=True, metavar="strict|sorted", help="Compare headers.")
@lake_option
@engine_options
def extract(
    a: str,
    b: str,
    *,
    key: tuple[str, ...],
    table: str,
    client_id: str,
    start: str | None,
    load_base: bool,
    header_mode: str,
    location: str,
    engine: str,
    master: str | None,
) -> int:
    """Append the deltas that lead from snapshot A of a table to snapshot B."""
    from contextlib import ExitStack

    from driftline.lake._load.load import extract_snapshots
    from driftline.lake._store.lake import parse_timestamp

    lake = open_lake(location)
    name = chosen_engine("lake", engine, master, lambda: _size(a) + _size(b))
    timestamp = None if start is None else parse_timestamp(start, first=True)
    options: dict[str, Any] = {"header_mode": header_mode, "diff_engine": name, "master": master, "start": timestamp}
    options["load_base"] = load_base
    with ExitStack() as stack:
        options["tracker"] = stack.enter_context(progress_bar())
        if name == "spark":
            from driftline.spark._lake import load_schedulers
            from driftline.spark._runtime.session import open_session

            options["schedulers"] = load_schedulers(stack.enter_context(open_session(master)))
        result = extract_snapshots(lake, a, b, key=key, table=table, client_id=client_id, **options)
    record = {"table": table, "deltas": result.deltas, "start": str(result.start)}
    words = f"{table}: {counted(result.deltas, 'delta')} added"
    words += f", {result.base_deltas:,} for A before them" if load_base else ""
    tell({**record, "base": result.base_deltas} if load_base else record, words)
    if result.was_done_before:
        click.echo("note: this extraction was in the lake already; nothing was added", err=True)
    return SAME


@click.command(
    epilog="""\b
Examples:
  driftline lake flush deltas.jsonl --gateway laptop
  driftline gateway pull --gateway main | driftline lake flush - --gateway main
  driftline lake flush envelopes/*.json
  driftline lake flush --table todos

Every delta is looked up by its id: what the lake has already is left out and counted as "known". So a file can be
flushed again, and what was pulled from a gateway can go into its own lake.
"""
)
@click.argument("files", nargs=-1)
@click.option("--gateway", default="flush", show_default=True, metavar="ID", help="Whose deltas these are.")
@click.option("--table", "-t", metavar="NAME", help="Without FILES: only this table's envelopes.")
@lake_option
@engine_options
def flush(
    files: tuple[str, ...], gateway: str, table: str | None, location: str, engine: str, master: str | None
) -> int:
    """Add deltas from FILES: JSON lines (`-` for stdin) or JSON envelopes.

    Without FILES, envelopes that wait in the lake for a schema become Parquet.
    """
    from driftline.cli.lake_flush import flush_files
    from driftline.lake import flush_envelopes
    from driftline.lake._store.schemas import registered

    lake = open_lake(location)
    if files:
        results = list(flush_files(lake, files, gateway, engine, master))
    else:
        names = [table] if table else [name for name in lake.tables() if registered(lake, name) is not None]
        results = [result for name in names for result in flush_envelopes(lake, name)]
    for result in results:
        tell(_as_record(result), flush_words(result))
    if not results and on_terminal():
        click.echo("nothing to flush")
    return SAME


@click.command(
    epilog="""\b
Examples:
  driftline lake compact --table users
  driftline lake compact --table users --engine spark --master local[4]
  driftline lake compact                     (every table that has a schema)
"""
)
@click.option("--table", "-t", metavar="NAME", help="The table.  [default: every table]")
@click.option("--full", is_flag=True, help="Fold from the deltas alone instead of from the last snapshot.")
@click.option("--target-file-mb", default=32, show_default=True, type=click.IntRange(1), help="Size of base files.")
@fold_options
def compact(table: str | None, full: bool, target_file_mb: int, folds: Folds) -> int:
    """Fold new deltas into a new snapshot; only touched ranges of row ids are rewritten."""
    from driftline.lake import compact as compact_table
    from driftline.lake._store.schemas import registered

    lake = folds.lake
    names = [table] if table else [name for name in lake.tables() if registered(lake, name) is not None]
    for name, way in folds.of_each(names):
        result = compact_table(lake, name, full=full, target_file_bytes=target_file_mb << 20, **way)
        record = {
            "table": name,
            "new": result.is_new,
            "snapshot": result.base_version,
            "deltas": result.deltas_folded,
            "filesWritten": result.files_written,
            "filesReplaced": result.files_replaced,
        }
        tell(record, compaction_words(result))
    return SAME


@click.command(
    epilog="""\b
Examples:
  driftline lake vacuum --table users --dry-run
  driftline lake vacuum --table users --hours 24
  driftline lake vacuum --table users --horizon 2026-01-01T00:00:00Z
"""
)
@table_option
@click.option("--hours", default=168, show_default=True, type=click.IntRange(0), help="Keep what is younger.")
@click.option("--horizon", metavar="TIMESTAMP", help="Archive the state before it and let its deltas go, for ever.")
@click.option("--dry-run", is_flag=True, help="Only list the files.")
@fold_options
def vacuum(table: str, hours: int, horizon: str | None, dry_run: bool, folds: Folds) -> int:
    """Remove files that no kept snapshot needs, and list them.

    With --horizon, history begins there: older deltas are refused from then on.
    """
    from driftline.errors import OptionError
    from driftline.lake import set_horizon
    from driftline.lake import vacuum as vacuum_table
    from driftline.lake._store.lake import parse_timestamp

    if horizon is not None:
        if dry_run:
            raise OptionError("--horizon cannot be tried out: leave --dry-run away")
        with folds.of(folds.lake.table_name(table)) as way:
            set_horizon(folds.lake, table, parse_timestamp(horizon, first=True), **way)
    for path in vacuum_table(folds.lake, table, hours=hours, dry_run=dry_run):
        click.echo(path)
    return SAME


def _as_record(result: FlushResult) -> dict[str, Any]:
    counts = {"deltas": result.deltas, "known": result.known, "waiting": result.waiting, "setAside": result.set_aside}
    return {"table": result.table, **counts, "format": result.format, "files": list(result.files)}


def _size(side: str) -> int:
    path = Path(side)
    return path.stat().st_size if path.is_file() else 0
