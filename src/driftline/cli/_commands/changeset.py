"""`driftline changeset`: read, combine, invert, apply and make SQLite changesets and patchsets."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from driftline.cli._group import Command, Function, choice, examples
from driftline.cli._outcome import DIFFERENT, SAME
from driftline.errors import OptionError

if TYPE_CHECKING:
    from driftline.changesets import CdcNote, CdcOptions, Database, Note, Problem, Table

_SHOWN_ROWS = 20  # of those that triggers altered
_SUFFIXES = {".bin": "changeset", ".changeset": "changeset", ".patchset": "patchset", ".sql": "sql"}


@click.group(epilog=examples("changeset"))
def changeset() -> None:
    """Read, combine, invert, apply and make SQLite changesets and patchsets."""


_command = partial(changeset.command, cls=Command)


def _switch_off(name: str, text: str) -> Callable[[Function], Function]:
    own_name = name.removeprefix("--no-").replace("-", "_")
    return click.option(name, own_name, is_flag=True, flag_value=False, default=True, help=text)


def _schema_options(command: Function) -> Function:
    database = click.option("--database", "-d", metavar="DB", help="Take table and column names from this database.")
    schema = click.option("--schema", metavar="FILE", help="Take them from CREATE TABLE statements in this file.")
    return database(schema(command))


_output_option = click.option(
    "-o", "--output", metavar="FILE", help="Write to FILE (whole or not at all), not to stdout."
)


@_command()
@click.argument("file")
@_schema_options
@choice("--format", "text jsonl json", "How to print it.")
def show(file: str, database: str | None, schema: str | None, form: str) -> None:
    """Print what a changeset or patchset says: + insert, ~ update, - delete; * marks the key."""
    from driftline.changesets import json_array_lines, json_lines, operations_of, reopenable, summary, text_lines

    tables = _tables(database, schema)
    with reopenable(_source(file)) as open_changes:
        with open_changes() as stream:
            counts = list(summary(stream, tables).run_lengths())
        with open_changes() as stream:
            shown = {"text": partial(text_lines, counts=counts), "jsonl": json_lines, "json": json_array_lines}[form]
            for line in cast("Callable[..., Iterator[str]]", shown)(operations_of(stream, tables)):
                print(line)


@_command()
@click.argument("file")
@_schema_options
def sql(file: str, database: str | None, schema: str | None) -> None:
    """Print a changeset or patchset as an SQL script for the plain SQLite shell."""
    from driftline.changesets import write_sql
    from driftline.core import standard_output

    known = _database(database, schema)
    if known is None:
        raise OptionError(
            "sql needs --database or --schema: the columns have no names in the file", code="schema_needed"
        )
    write_sql(standard_output(), _source(file), known)


@_command()
@click.argument("file")
@_schema_options
@_output_option
def digest(file: str, database: str | None, schema: str | None, output: str | None) -> None:
    """Make a patchset from INSERT, UPDATE … WHERE key and DELETE … WHERE key statements."""
    from driftline.changesets import Patchset

    tables = _tables(database, schema)
    if not tables:
        raise OptionError("digest needs --database or --schema: values depend on the declared types")
    text = _read_text(file)
    _write(Patchset.digest_sql(text, tables).write_to, output, file)


@_command()
@click.argument("file")
@_output_option
def invert(file: str, output: str | None) -> None:
    """Make the changeset that undoes another one."""
    from driftline.changesets import invert_to

    _write(lambda out: invert_to(out, _source(file)), output, file)


@_command()
@click.argument("files", nargs=-1, required=True)
@click.option("--database", "-d", metavar="DB", help="Fill in columns that its tables have and a file has not.")
@click.option("--schema", metavar="FILE", help="The same from CREATE TABLE statements in this file.")
@_output_option
@click.option("--memory", metavar="SIZE", help="Memory to stay within, such as 500MB or 2GB. Default: half of it.")
def concat(
    files: tuple[str, ...], database: str | None, schema: str | None, output: str | None, memory: str | None
) -> None:
    """Make one file that does what several do one after the other; files beyond memory are merged on disk."""
    from driftline.changesets import concat_to
    from driftline.tables import default_limit, memory_limit

    limit = memory_limit(memory)
    known = _database(database, schema)

    def write(out: BinaryIO) -> None:
        concat_to(out, map(_source, files), schema=known, memory=lambda: limit or default_limit())

    _write(write, output, *files)


@_command()
@click.argument("file")
@click.argument("database")
@choice("--on-conflict", "abort omit replace", "Give up, leave out the change, or let it win.")
@click.option("--table", "-t", "tables", multiple=True, metavar="NAME", help="Touch this table only; may be repeated.")
@click.option("--invert", is_flag=True, help="Undo the changes instead.")
@click.option(
    "--as-recorded",
    is_flag=True,
    help="No triggers and no cascades: the file, of diff or of a session, already holds what they do.",
)
@_switch_off("--no-triggers", "Do not fire the database's triggers.")
@_switch_off("--no-foreign-keys", "Do not enforce foreign keys.")
@_switch_off("--no-foreign-key-actions", "No cascades: the file already holds the rows they would change.")
@click.option("--ignore-noop", is_flag=True, help="Changes that are there already are no conflicts.")
@click.option("--allow-extra-columns", is_flag=True, help="The database may have more columns; defaults fill them.")
@click.option("--skip-missing-tables", is_flag=True, help="Leave out changes of tables that the database has not.")
@click.option(
    "--timeout", type=float, default=5.0, show_default=True, metavar="SECONDS", help="How long to wait for a lock."
)
@click.option("--rebase-data", metavar="FILE", help="Write what `changeset rebase` needs to FILE.")
@choice("--format", "text json", "How to report what was done; text reports conflicts only.")
def apply(
    file: str, database: str, tables: tuple[str, ...], rebase_data: str | None, form: str, **options: Any
) -> None:
    """Apply a changeset or patchset to a database, whole or not at all."""
    from driftline.changesets import apply as apply_changes
    from driftline.core import write_atomically

    applied = apply_changes(_source(file), database, tables=tables or None, **options)
    for conflict, action in applied.conflicts:
        click.echo(f"{action}: {conflict.describe()}", err=True)
    for warning in applied.warnings:
        click.echo(f"warning: {warning}", err=True)
    for operation in applied.altered[:_SHOWN_ROWS]:
        click.echo(f"altered by a trigger or cascade: {operation!r}", err=True)
    if len(applied.altered) > _SHOWN_ROWS:
        click.echo(f"altered by a trigger or cascade: {len(applied.altered) - _SHOWN_ROWS} more rows", err=True)
    if rebase_data is not None:
        write_atomically(rebase_data, applied.rebase_data)
    if form == "json":
        click.echo(json.dumps(applied.to_dict(), ensure_ascii=False))
    elif sys.stderr.isatty():
        from driftline.cli._views import show_applied

        show_applied(applied)


@_command()
@click.argument("file")
@click.argument("rebase_data", nargs=-1, required=True)
@_output_option
def rebase(file: str, rebase_data: tuple[str, ...], output: str | None) -> None:
    """Move local changes behind remote ones that were applied with --rebase-data."""
    from driftline.changesets import rebase as rebased

    _write(rebased(_source(file), *map(_read_bytes, rebase_data)).write_to, output, file, *rebase_data)


@_command()
@click.argument("old")
@click.argument("new")
@click.option(
    "--table", "-t", "tables", multiple=True, metavar="NAME", help="Compare this table only; may be repeated."
)
@click.option("--skip", multiple=True, metavar="NAME", help="Leave this table out; may be repeated.")
@click.option("--shadow", is_flag=True, help="Compare the tables that virtual tables keep for themselves.")
@click.option("--virtual", is_flag=True, help="Compare full-text and R-tree tables by their rows.")
@click.option("--stat", is_flag=True, help="Compare sqlite_stat1, the statistics of ANALYZE.")
@click.option("--allow-incomplete", is_flag=True, help="Write what can be said, and list what cannot.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["changeset", "patchset", "sql"]),
    help="What to make; sql is a script that changes the schema, too.  [default: by the name of -o, or changeset]",
)
@_output_option
def diff(old: str, new: str, tables: tuple[str, ...], form: str | None, output: str | None, **options: Any) -> int:
    """Make the changes that turn database OLD into database NEW."""
    from driftline.changesets import DiffFindings, DiffSettings, diff_to, script_to
    from driftline.core import format_of

    found = DiffFindings()
    form = form or ("changeset" if output is None else format_of(output, _SUFFIXES))
    settings = DiffSettings(tables or None, patchset=form == "patchset", **options)
    is_script = form == "sql"

    def write(out: BinaryIO) -> None:
        nonlocal found
        found = (script_to if is_script else diff_to)(out, old, new, settings)

    with _reporting_problems():
        _write(write, output, old, new, is_text=is_script)
    _report(found.problems, found.notes)
    if output is not None:
        from driftline.cli._terminal import say

        schema = f"{found.statements:,} statements about the schema" if found.statements else ""
        rows = f"{found.records:,} changes in {', '.join(found.names)}" if found.records else ""
        counted = " and ".join(filter(None, (schema, rows)))
        say(f"{counted} written to {output}" if counted else "no difference")
    return DIFFERENT if found.records or found.statements or found.problems else SAME


@_command(context_settings={"ignore_unknown_options": True})
@click.argument("database")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@choice("--format", "changeset patchset", "What to make.")
@click.option("--allow-incomplete", is_flag=True, help="Write what can be said, and list what cannot.")
@click.option("-o", "--output", metavar="FILE", required=True, help="Write to FILE (whole or not at all).")
def record(database: str, command: tuple[str, ...], form: str, allow_incomplete: bool, output: str) -> int:
    """Run COMMAND and write what it changed in a database."""
    from driftline.changesets import record as record_command
    from driftline.core import open_output

    with open_output(output, (database,)) as out, _reporting_problems():
        code, found = record_command(
            out, database, command, patchset=form == "patchset", allow_incomplete=allow_incomplete
        )
    _report(found.problems, found.notes)
    return code


@_command(name="from-cdc")
@click.argument("file")
@_schema_options
@choice("--format", "patchset changeset deltas", "What to make; a changeset needs whole old rows.")
@click.option("--source", type=click.Choice(["wal2json", "debezium", "maxwell"]), help="Where all messages are from.")
@choice(
    "--before",
    "key full",
    "What images before a change hold where a message does not tell: full where replica identity is full.",
)
@choice("--on-truncate", "error skip", "Stop at a TRUNCATE, or pass over it with a note.")
@click.option("--per-transaction", metavar="DIR", help="Write a numbered file for each transaction into DIR.")
@click.option("--client-id", metavar="ID", help="Who makes the deltas (--format deltas).")
@click.option("--start", type=int, metavar="HLC", help="The first timestamp of deltas.  [default: now]")
@_output_option
def from_cdc(
    file: str,
    database: str | None,
    schema: str | None,
    form: str,
    output: str | None,
    per_transaction: str | None,
    client_id: str | None,
    start: int | None,
    **options: Any,
) -> None:
    """Make changes from the messages of wal2json, Debezium or Maxwell."""
    from driftline.changesets import CdcOptions, deltas_from_cdc, from_cdc as read_cdc
    from driftline.core import open_output, write_all
    from driftline.deltas import Clock

    tables = _tables(database, schema)
    if not tables:
        raise OptionError("from-cdc needs --database or --schema: values depend on the declared types")
    if form != "deltas" and (client_id is not None or start is not None):
        raise OptionError("--client-id and --start are for --format deltas")
    notes: list[CdcNote] = []
    with _lines(file) as lines:
        if form == "deltas":
            if client_id is None or per_transaction is not None:
                raise OptionError("deltas need --client-id, and go into one file")
            first = Clock() if start is None else start
            with open_output(output, (file,)) as out:
                for delta in deltas_from_cdc(lines, tables, client_id=client_id, start=first, notes=notes, **options):
                    text = json.dumps(delta.to_wire(), ensure_ascii=False, separators=(",", ":"))
                    write_all(out, f"{text}\n".encode())
        elif per_transaction is not None:
            if output is not None:
                raise OptionError("give -o or --per-transaction, not both")
            notes = _write_transactions(lines, tables, form, per_transaction, CdcOptions(**options))
        else:
            captured = read_cdc(lines, tables, format=form, **options)  # type: ignore[arg-type]
            _write(captured.changes.write_to, output, file)
            notes = captured.notes
    for note in notes:
        click.echo(f"note[{note.code}]: {note.name}: line {note.line} was passed over", err=True)


@contextmanager
def _lines(file: str) -> Iterator[Iterable[bytes]]:
    from driftline.core import io_errors, open_bytes

    if file == "-":
        yield sys.stdin.buffer
        return
    with io_errors(file), open_bytes(file) as stream:
        yield stream


def _write_transactions(
    lines: Iterable[bytes], tables: list[Table], form: str, directory: str, options: CdcOptions
) -> list[CdcNote]:
    import re
    import tempfile
    from pathlib import Path

    from driftline.changesets import transactions
    from driftline.core import atomic_write, io_errors

    folder = Path(directory)
    with io_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OptionError(f"{folder} is not empty: old transactions would be mixed with new ones", code="not_empty")
    notes: list[CdcNote] = []
    # All files appear at the end, so that a bad message leaves none of them.
    with tempfile.TemporaryDirectory(dir=folder) as waiting:
        for number, captured in enumerate(transactions(lines, tables, options, format=form), 1):  # type: ignore[arg-type]
            notes = captured.notes
            is_name = re.fullmatch("[0-9A-Za-z_-]{1,60}", captured.transaction or "")
            own = f"-{captured.transaction}" if is_name else ""
            with atomic_write(Path(waiting) / f"{number:06d}{own}.{form}") as out:
                captured.changes.write_to(out)
        for path in sorted(Path(waiting).iterdir()):
            path.rename(folder / path.name)
    return notes


@contextmanager
def _reporting_problems() -> Iterator[None]:
    """List the problems of a diff that is incomplete before its error."""
    from driftline.errors import ChangesetError

    try:
        yield
    except ChangesetError as error:
        _report(error.context.get("problems", ()), error.context.get("notes", ()))
        raise


def _report(problems: Iterable[Problem], notes: Iterable[Note]) -> None:
    for problem in problems:
        click.echo(f"problem[{problem.code}]: {problem.table}: {problem.text}", err=True)
    for note in notes:
        click.echo(f"note[{note.code}]: {note.name}: {note.text}", err=True)


def _source(file: str) -> Any:
    """What a FILE argument stands for: a file name, or standard input."""
    return sys.stdin.buffer if file == "-" else file


def _read_bytes(file: str) -> bytes:
    from driftline.changesets import content_of

    return content_of(_source(file))


def _read_text(file: str) -> str:
    try:
        return _read_bytes(file).decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"{file} is not UTF-8 text (at byte {error.start})") from None


def _write(write: Callable[[BinaryIO], object], output: str | None, *inputs: str, is_text: bool = False) -> None:
    from driftline.core import open_output

    if output is None and not is_text and sys.stdout.isatty():
        raise OptionError("a changeset is not text: name a file with -o, or send stdout somewhere")
    with open_output(output, inputs) as out:
        write(out)


def _database(database: str | None, schema: str | None) -> Database | None:
    from driftline.changesets import database_from_sql

    if database is not None and schema is not None:
        raise OptionError("give --database or --schema, not both")
    return database if schema is None else database_from_sql(_read_text(schema))


def _tables(database: str | None, schema: str | None) -> list[Table]:
    from driftline.changesets import tables_from_database

    known = _database(database, schema)
    return [] if known is None else tables_from_database(known)
