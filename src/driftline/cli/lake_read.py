"""`driftline lake materialize|changes|verify|log|history`: what reads a lake."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from driftline.cli.lake import Folds, fold_options, lake_option, open_lake, output_options, table_option, text_or_json
from driftline.cli.lake_views import on_terminal, proof_words, show_history, show_log, show_tables, tell
from driftline.cli.outcome import DIFFERENT, SAME
from driftline.core._files import open_output, standard_output
from driftline.lake import STATE_FORMATS

if TYPE_CHECKING:
    from driftline.lake import TableStatus


@click.command(
    epilog="""\b
Examples:
  driftline lake materialize --table users
  driftline lake materialize --table users --as-of 2026-11-15T12:00:00Z --format parquet -o users.parquet
  driftline lake materialize --table users --format sqlite -o users.db

Rows come in the order of row ids. In JSONL a column that was never set is left out and an explicit null is written.
"""
)
@table_option
@click.option("--as-of", metavar="TIMESTAMP", help="The timestamp to travel to.  [default: now]")
@click.option("--generation", type=click.IntRange(1), metavar="N", help="An earlier generation.  [default: the newest]")
@output_options(STATE_FORMATS, "What to write.")
@fold_options
def materialize(
    table: str, as_of: str | None, generation: int | None, format_name: str, output: str | None, folds: Folds
) -> int:
    """Write the rows of a table as they are now, or were at a timestamp within retention."""
    from driftline.lake import materialize as write_state
    from driftline.lake._store.lake import parse_timestamp

    timestamp = None if as_of is None else parse_timestamp(as_of)
    target = standard_output() if output is None else output
    with folds.of(folds.lake.table_name(table)) as way:
        write_state(folds.lake, table, target, format=format_name, as_of=timestamp, generation=generation, **way)
    _tell_waiting(folds, table)
    return SAME


@click.command(
    epilog="""\b
Examples:
  driftline lake changes --table users --from 2026-11-14T00:00:00Z --to 2026-11-15T00:00:00Z
  driftline lake changes --table users --from 0 --format deltas | driftline gateway push - --gateway main
  driftline lake changes --table users --from 0 --format changeset -o users.changeset

The window is everything after --from up to and including --to. Exit codes: 0 no change, 1 changes, 2 error.
"""
)
@table_option
@click.option("--from", "since", required=True, metavar="TIMESTAMP", help="Where the window begins (not included).")
@click.option("--to", "until", metavar="TIMESTAMP", help="Where it ends (included).  [default: now]")
@output_options(["events", "deltas", "changeset"], "Table-diff events, row deltas or a SQLite changeset.")
@fold_options
def changes(table: str, since: str, until: str | None, format_name: str, output: str | None, folds: Folds) -> int:
    """Write the net change of a table between two timestamps."""
    from driftline.lake._read.changes import write_changes
    from driftline.lake._store.lake import LAST_TIMESTAMP, parse_timestamp

    begin, end = parse_timestamp(since), LAST_TIMESTAMP if until is None else parse_timestamp(until)
    with folds.of(folds.lake.table_name(table)) as way, open_output(output) as out:
        counts = write_changes(folds.lake, table, out, since=begin, until=end, kind=format_name, **way)
    _tell_waiting(folds, table)
    return DIFFERENT if counts.any_difference else SAME


@click.command(
    epilog="""\b
Examples:
  driftline lake verify --table users
  driftline lake verify --table users --oracle

Exit codes: 0 proved, 1 differences (the row ids are listed), 2 error.
"""
)
@table_option
@click.option("--oracle", is_flag=True, help="Also replay every delta in plain Python (slow).")
@fold_options
def verify(table: str, oracle: bool, folds: Folds) -> int:
    """Prove that the snapshot is what a replay of all deltas gives, and that every delta id is right."""
    from driftline.lake import verify as verify_table

    with folds.of(folds.lake.table_name(table)) as way:
        proof = verify_table(folds.lake, table, oracle=oracle, **way)
    record = {
        "table": table,
        "proved": proof.is_proved,
        "snapshot": proof.snapshot,
        "deltas": proof.deltas,
        "rowsInBase": proof.rows_in_base,
        "rowsReplayed": proof.rows_replayed,
        "hashOfBase": proof.hash_of_base,
        "hashOfReplay": proof.hash_of_replay,
        "differingRows": list(proof.differing_rows),
        "waiting": proof.waiting,
    }
    tell(record, proof_words(table, proof))
    return SAME if proof.is_proved else DIFFERENT


@click.command(
    epilog="""\b
Examples:
  driftline lake log --table users
  driftline lake log --table users --format json
"""
)
@table_option
@text_or_json("one JSON object per commit.")
@lake_option
def log(table: str, format_name: str, location: str) -> int:
    """List the commits of a table: flushes, compactions, schema changes, retention."""
    from driftline.lake import lake_log
    from driftline.lake._store.lake import timestamp_text

    entries = lake_log(open_lake(location), table)
    if on_terminal() and format_name == "text":
        show_log(entries)
        return SAME
    for entry in entries:
        if format_name == "json":
            click.echo(json.dumps(entry.to_dict()))
            continue
        words = [f"{entry.part}@{entry.version}", entry.operation]
        if entry.deltas is not None:
            words.append(f"{entry.deltas} deltas")
        if entry.gateway is not None:
            words.append(f"from {entry.gateway}")
        if entry.min_hlc is not None and entry.max_hlc is not None:
            words.append(f"{timestamp_text(entry.min_hlc)} to {timestamp_text(entry.max_hlc)}")
        if entry.part != "deltas":
            words.append(f"+{entry.files_added} -{entry.files_removed} files")
        click.echo("  ".join(words))
    return SAME


@click.command(
    epilog="""\b
Examples:
  driftline lake history --table users --row 42
  driftline lake history --table users --row 42 --format json
"""
)
@table_option
@click.option("--row", "row_id", required=True, metavar="ID", help="The row id.")
@text_or_json("one JSON object per delta.")
@lake_option
def history(table: str, row_id: str, format_name: str, location: str) -> int:
    """List every delta of a row in the order of replay, and the columns that each one won."""
    from driftline.lake import row_history
    from driftline.lake._store.lake import timestamp_text

    entries = row_history(open_lake(location), table, row_id)
    if on_terminal() and format_name == "text":
        show_history(entries)
        return SAME
    for entry in entries:
        if format_name == "json":
            click.echo(json.dumps(entry.to_dict(), ensure_ascii=False))
            continue
        delta = entry.delta
        values = ", ".join(
            f"{each.column}={json.dumps(each.value, ensure_ascii=False)}{'*' if each.column in entry.won else ''}"
            for each in delta.columns
        )
        click.echo(f"{timestamp_text(delta.hlc)}  {delta.client_id}  {delta.op}  {values}".rstrip())
    return SAME


@click.command(
    epilog="""\b
Examples:
  driftline lake tables
  driftline lake tables --format json

The current rows of a table are a plain Delta table for every reader, up to what `unfolded` and `waiting` count:
SELECT * FROM delta_scan('lake/tables/users/state'). `lake compact`, or a gateway by itself, brings it up to date.
"""
)
@text_or_json("one JSON object per table.")
@lake_option
def tables(format_name: str, location: str) -> int:
    """List the tables of a lake and how far their state is."""
    from driftline.lake import status_of

    lake = open_lake(location)
    found = (status_of(lake, name) for name in lake.tables())
    if on_terminal() and format_name == "text":
        show_tables(found)
        return SAME
    for status in found:
        click.echo(json.dumps(status.to_dict(), ensure_ascii=False) if format_name == "json" else _status_line(status))
    return SAME


def _status_line(status: TableStatus) -> str:
    words = [status.table]
    words.append("never compacted" if status.rows is None else f"{status.rows} rows")
    words.append("no schema" if status.columns is None else f"columns {', '.join(status.columns)}")
    counts = (("unfolded", status.unfolded), ("waiting for a schema", status.waiting), ("set aside", status.set_aside))
    words += [f"{count} {what}" for what, count in counts if count]
    if status.state_age_seconds:
        words.append(f"state {status.state_age_seconds} s behind")
    return "  ".join(words)


def _tell_waiting(folds: Folds, table: str) -> None:
    """Say what is not in the result: deltas that no schema takes."""
    from driftline.lake._store.flush import count_waiting
    from driftline.lake._store.schemas import registered

    waiting = count_waiting(folds.lake, table) if registered(folds.lake, table) is not None else 0
    if waiting:
        deltas = "1 delta waits" if waiting == 1 else f"{waiting} deltas wait"
        click.echo(f"note: {deltas} for a schema of {table} that takes them; they are left out", err=True)
