"""`driftline changeset`: read, combine, invert, apply and make SQLite changesets and patchsets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.outcome import DIFFERENT, SAME
from driftline.errors import OptionError

if TYPE_CHECKING:
    from driftline.changesets import ChangeFile, Table

_EPILOG = """\b
Examples:
  driftline changeset show changes.bin --database app.db
  driftline changeset apply changes.bin app.db --on-conflict omit
  driftline changeset diff old.db new.db -o changes.bin
  driftline changeset concat monday.bin tuesday.bin -o both.bin

A FILE of - is standard input. Files that are made go to -o or to standard output.
"""


@click.group(epilog=_EPILOG)
def changeset() -> None:
    """Read, combine, invert, apply and make SQLite changesets and patchsets."""


def _schema_options(command: Callable[..., Any]) -> Callable[..., Any]:
    database = click.option("--database", "-d", metavar="DB", help="Take table and column names from this database.")
    schema = click.option("--schema", metavar="FILE", help="Take them from CREATE TABLE statements in this file.")
    return database(schema(command))


def _output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("-o", "--output", metavar="FILE", help="Write to FILE (whole or not at all), not to stdout.")(
        command
    )


@changeset.command(
    epilog="""\b
Examples:
  driftline changeset show changes.bin
  driftline changeset show changes.bin --schema tables.sql
  driftline changeset show changes.bin --database app.db --format jsonl
"""
)
@click.argument("file")
@_schema_options
@click.option(
    "--format", "form", type=click.Choice(["text", "jsonl"]), default="text", show_default=True, help="How to print it."
)
def show(file: str, database: str | None, schema: str | None, form: str) -> None:
    """Print what a changeset or patchset says: + insert, ~ update, - delete; * marks the key."""
    from driftline.changesets.showing import json_lines, text_lines

    changes = _read(file, _tables(database, schema))
    for line in (json_lines if form == "jsonl" else text_lines)(changes):
        print(line)


@changeset.command(
    epilog="""\b
Examples:
  driftline changeset sql changes.bin --database app.db > changes.sql
"""
)
@click.argument("file")
@_schema_options
def sql(file: str, database: str | None, schema: str | None) -> None:
    """Print a changeset or patchset as SQL statements."""
    from driftline.changesets.showing import statements

    for statement in statements(_read(file, _tables(database, schema))):
        print(statement)


@changeset.command(
    epilog="""\b
Examples:
  driftline changeset digest changes.sql --schema tables.sql -o changes.bin
"""
)
@click.argument("file")
@_schema_options
@_output_option
def digest(file: str, database: str | None, schema: str | None, output: str | None) -> None:
    """Make a patchset from INSERT, UPDATE … WHERE key and DELETE … WHERE key statements."""
    from driftline.changesets import Patchset

    tables = _tables(database, schema)
    if not tables:
        raise OptionError("digest needs --database or --schema: values depend on the declared types")
    try:
        text = _read_bytes(file).decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"{file} is not UTF-8 text (at byte {error.start})") from None
    _write(Patchset.digest_sql(text, tables), output, file)


@changeset.command(
    epilog="""\b
Examples:
  driftline changeset invert changes.bin -o undo.bin
"""
)
@click.argument("file")
@_output_option
def invert(file: str, output: str | None) -> None:
    """Make the changeset that undoes another one."""
    from driftline.changesets import invert as inverted

    _write(inverted(_read_bytes(file)), output, file)


@changeset.command(
    epilog="""\b
Examples:
  driftline changeset concat monday.bin tuesday.bin -o both.bin
"""
)
@click.argument("files", nargs=-1, required=True)
@_output_option
def concat(files: tuple[str, ...], output: str | None) -> None:
    """Make one file that does what several do one after the other."""
    from driftline.changesets import concat as merged

    _write(merged(*map(_read_bytes, files)), output, *files)


@changeset.command(
    epilog="""\b
Examples:
  driftline changeset apply changes.bin app.db
  driftline changeset apply changes.bin app.db --on-conflict replace --table users
  driftline changeset apply remote.bin app.db --on-conflict omit --rebase-data rebase.bin
"""
)
@click.argument("file")
@click.argument("database")
@click.option(
    "--on-conflict",
    type=click.Choice(["abort", "omit", "replace"]),
    default="abort",
    show_default=True,
    help="Give up, leave out the change, or let it win.",
)
@click.option("--table", "-t", "tables", multiple=True, metavar="NAME", help="Touch this table only; may be repeated.")
@click.option("--rebase-data", metavar="FILE", help="Write what `changeset rebase` needs to FILE.")
def apply(file: str, database: str, on_conflict: Any, tables: tuple[str, ...], rebase_data: str | None) -> None:
    """Apply a changeset or patchset to a database, whole or not at all."""
    from driftline.changesets.applying import apply as apply_changes
    from driftline.changesets.applying import describe
    from driftline.files import write_atomically

    applied = apply_changes(_read_bytes(file), database, on_conflict, tables=tables or None)
    for conflict, action in applied.conflicts:
        click.echo(f"{action}: {describe(conflict)}", err=True)
    for name in applied.skipped_tables:
        click.echo(f"warning: the database has no table {name} with a primary key, its changes were left out", err=True)
    if rebase_data is not None:
        write_atomically(rebase_data, applied.rebase_data)


@changeset.command(
    epilog="""\b
Examples:
  driftline changeset apply remote.bin app.db --on-conflict omit --rebase-data rebase.bin
  driftline changeset rebase local.bin rebase.bin -o local-rebased.bin
"""
)
@click.argument("file")
@click.argument("rebase_data", nargs=-1, required=True)
@_output_option
def rebase(file: str, rebase_data: tuple[str, ...], output: str | None) -> None:
    """Move local changes behind remote ones that were applied with --rebase-data."""
    from driftline.changesets import rebase as rebased

    _write(rebased(_read_bytes(file), *map(_read_bytes, rebase_data)), output, file, *rebase_data)


@changeset.command(
    epilog="""\b
Examples:
  driftline changeset diff old.db new.db -o changes.bin
  driftline changeset diff old.db new.db --table users --format patchset -o changes.bin

Exit codes: 0 no difference, 1 differences, 2 error.
"""
)
@click.argument("old")
@click.argument("new")
@click.option(
    "--table", "-t", "tables", multiple=True, metavar="NAME", help="Compare this table only; may be repeated."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["changeset", "patchset"]),
    default="changeset",
    show_default=True,
    help="What to make.",
)
@_output_option
def diff(old: str, new: str, tables: tuple[str, ...], form: str, output: str | None) -> int:
    """Make the changes that turn database OLD into database NEW."""
    from driftline.changesets.applying import diff as compare

    changes = compare(old, new, tables=tables or None, patchset=form == "patchset")
    _write(changes, output, old, new)
    return DIFFERENT if len(changes) else SAME


def _read(file: str, tables: list[Table]) -> ChangeFile:
    from driftline.changesets import parse

    return parse(_read_bytes(file), tables)


def _read_bytes(file: str) -> bytes:
    from driftline.files import naming_the_file, open_bytes

    if file == "-":
        return sys.stdin.buffer.read()
    with naming_the_file(file), open_bytes(file) as stream:
        return stream.read()


def _write(changes: ChangeFile, output: str | None, *inputs: str) -> None:
    from driftline.files import open_output

    if output is None and sys.stdout.isatty():
        raise OptionError("a changeset is not text: name a file with -o, or send stdout somewhere")
    with open_output(output, inputs) as out:
        changes.write_to(out)


def _tables(database: str | None, schema: str | None) -> list[Table]:
    from driftline.changesets.schema import tables_from_database, tables_from_sql
    from driftline.files import naming_the_file

    if database is not None and schema is not None:
        raise OptionError("give --database or --schema, not both")
    if schema is not None:
        with naming_the_file(schema):
            return tables_from_sql(Path(schema).read_text(encoding="utf-8"))
    return [] if database is None else tables_from_database(database)
