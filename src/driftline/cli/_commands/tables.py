"""`driftline diff`, `patch` and `merge`: what changed between two tables, applied to one, merged from two."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from driftline import sinks, tables
from driftline.cli._group import Command, Function, GroupedCommand, Words, engine_options, report_choice
from driftline.cli._outcome import DIFFERENT, SAME
from driftline.cli._terminal import progress_bar, say
from driftline.core import io_errors, is_sqlite_file, keep_pages, load_function, names_revision, open_output
from driftline.errors import DriftlineError, OptionError, TableError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from driftline.sinks import Title

_SIDES = ("a", "b")
_FOR_PEOPLE = ("terminal", "summary", "markdown", "html")  # formats that say the kind of change
_SHORT_SWITCH = 0.001  # seconds: threads that parse need the interpreter often, and only briefly


# Options of table diffs, made from `tables.OPTIONS`, and rules files.
def table_options(command: Function) -> Function:
    """Add every option of a diff, and `--rules`."""
    rules = click.option("--rules", metavar="FILE", help="Options from a TOML file; those given here replace them.")
    command = rules(command)
    for name, option in reversed(tables.OPTIONS.items()):
        command = _click_option(name, option)(command)
    return click.option("--ignore-column-order", is_flag=True, help="The same as --header-mode sorted.")(command)


def reading_options(command: Function) -> Function:
    """Add the options that say how one CSV file is read."""
    for name, option in reversed(tables.OPTIONS.items()):
        if name in tables.OPTION_GROUPS["CSV files"] and not name.endswith(("_a", "_b")):
            command = _click_option(name, option)(command)
    return command


class ColumnNames(click.ParamType[str]):
    """A text that begins with the name of a column; completed from the headers of the tables that are given before."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The columns that begin like what was typed, with = behind them where a value follows."""
        from click.shell_completion import CompletionItem

        end = "=" if "=" in (param.metavar or "") else ""
        names = dict.fromkeys(name for side in _SIDES if (given := ctx.params.get(side)) for name in _header(given))
        return [CompletionItem(f"{name}{end}") for name in names if name.startswith(incomplete)]


def _header(given: str) -> list[str]:
    from driftline.core import Workspace
    from driftline.sources import open_source

    try:
        with Workspace() as workspace:
            return list(open_source(given, workspace).header("A"))
    except (DriftlineError, OSError):
        return []  # a table that cannot be read has no columns to offer; the command itself says why


def _click_option(name: str, option: tables.Option) -> Function:
    names, text = [option.flag, name], option.help
    if option.short is not None:
        names.insert(0, option.short)
    if option.given == "flag":
        return click.option(*names, is_flag=True, default=None, help=text)
    about: dict[str, Any] = {"metavar": option.metavar, "help": text, "multiple": option.given != "text"}
    if option.words:
        about["type"] = Words(lambda: option.words)
    elif option.metavar.startswith(("COL", "OLD")):
        about["type"] = ColumnNames()
    return click.option(*names, **about)


def given_options(
    *, rules: str | None = None, ignore_column_order: bool = False, path: str = "", **given: object
) -> dict[str, Any]:
    """The options of the rules file for a path, each replaced by what the command line gives."""
    chosen = {name: value for name, value in given.items() if value is not None and value != ()}
    if ignore_column_order:
        chosen.setdefault("header_mode", "sorted")
    return {**(read_rules(rules, path) if rules is not None else {}), **chosen}


@contextmanager
def naming_hints(job: tables.TableDiffJob, given: dict[str, Any]) -> Iterator[None]:
    """Say behind an error which options take such files."""
    try:
        yield
    except DriftlineError as error:
        from driftline.tables import remedy

        words = remedy(error, job, given, in_python=False)
        if words is not None:
            error.message = f"{error.message}; {words}"
        raise


def read_rules(path: str, table: str = "") -> dict[str, Any]:
    """The options of a rules file, those of `[files."PATTERN"]` for a table that the pattern matches included.

    A section replaces options of the whole file; the exact path counts before patterns, and of these the last one.
    """
    with io_errors(path):
        text = Path(path).read_bytes()
    try:
        import tomllib

        content = tomllib.loads(text.decode())
    except ValueError as error:
        raise OptionError(f"{path} is not valid TOML: {error}", code="invalid_option") from None
    files = content.pop("files", {})
    if not isinstance(files, dict) or not all(isinstance(section, dict) for section in files.values()):
        raise OptionError(f'{path}: files holds sections such as [files."orders.csv"]', code="invalid_option")
    for section in (content, *files.values()):
        unknown = sorted(section.keys() - tables.option_names())
        if unknown:
            raise OptionError(f"{path}: unknown option {unknown[0]!r}", code="invalid_option")
    matching = [name for name in files if table and PurePath(table).match(name)]
    chosen = table if table in matching else matching[-1] if matching else None
    sections = (content, {} if chosen is None else files[chosen])
    return {tables.ALIASES.get(name, name): value for section in sections for name, value in section.items()}


# `driftline diff` of what is no table: the command that runs instead, and what else it is given.
_REVISIONS = ("revisions", "index diff", "driftline.cli._commands.index:index_diff", ("--exit-code",))
_DOCUMENTS = ("JSON documents", "compare", "driftline.cli._commands.compare:compare", ())
_DATABASES = ("databases", "changeset diff", "driftline.cli._commands.changeset:diff", ())


class DiffCommand(GroupedCommand):
    """A diff of two tables; of two databases, revisions or JSON documents it becomes the command of their package."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the command that runs."""
        other = _other_command(args, list(self._inputs(args)))
        if other is None:
            return super().make_context(info_name, args, parent, **extra)
        what, name, location, added = other
        if parent is None or parent.params.get("error_format") != "json":
            click.echo(f"comparing {what}, as driftline {name} does", err=True)
        command: click.Command = load_function(location)
        try:
            return command.make_context(name, [*added, *args], parent, **extra)
        except click.UsageError as error:
            if other is not _DATABASES:
                raise
            hint = "the inputs are databases: to compare tables, name one of each, as FILE.db::TABLE"
            raise click.UsageError(f"{error.format_message()} {hint}", error.ctx) from None

    def _inputs(self, args: list[str]) -> Iterator[str]:
        """The words that are neither options nor their values; of other commands, only options that diff has count."""
        with_value = {name for option in self.params if not getattr(option, "is_flag", True) for name in option.opts}
        for before, word in pairwise(["", *args]):
            if before not in with_value and not word.startswith("-"):
                yield word


def _other_command(args: list[str], inputs: list[str]) -> tuple[str, str, str, tuple[str, ...]] | None:
    if any(map(names_revision, inputs)):
        return _REVISIONS
    if any(word == "--schema" or word.startswith("--schema=") for word in args):
        return _DOCUMENTS
    return _DATABASES if sum(map(is_sqlite_file, inputs)) >= len(_SIDES) else None


_BRIEF = (
    *("key_columns", "ignore_row_order", "tolerance", "normalize", "types", "ignore", "only", "rename", "header_mode"),
    *("delimiter", "encoding", "fail_if", "rules", "format_name", "output", "engine", "help", "help_all"),
)
_SECTIONS = {
    **tables.OPTION_GROUPS,
    "Checks and output": (
        *("fail_if", "output", "format_name", "limit", "emit_unchanged", "column_stats", "changed_columns_only"),
        *("table", "column_types", "progress", "explain"),
    ),
    "More": ("engine", "master", "spark_conf", "memory", "rules", "ignore_column_order", "help_all", "help"),
}


@click.command(cls=DiffCommand, sections=_SECTIONS, brief=_BRIEF)
@click.argument("a")
@click.argument("b")
@table_options
@engine_options
@click.option(
    "--format",
    "format_name",
    type=Words(sinks.event_formats),
    metavar="NAME",
    help=f"{sinks.formats_text()}. Default: by the ending of -o FILE; without -o a summary on a terminal, else jsonl.",
)
@click.option("--table", metavar="NAME", help="Name of the table in a changeset or patchset.")
@click.option(
    "--column-type",
    "column_types",
    multiple=True,
    metavar="COL=TYPE",
    help="Declared SQLite type of a column in a changeset; others are inferred and shown. May be repeated.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to FILE (whole or not at all) instead of stdout: a path or s3://…; "
    "with / at the end a folder of ordered parts.",
)
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most N events of each kind.")
@click.option("--memory", metavar="SIZE", help="Memory to stay within, such as 500MB or 2GB. Default: half of it.")
@click.option(
    "--auto",
    type=click.Choice(["reading", "rules"]),
    is_flag=False,
    flag_value="reading",
    help="Choose how files are read, and the key where none is given, and say it as options; "
    "--auto=rules also takes rules that make frequent changes equal. Write it behind A and B.",
)
@click.option("--explain", is_flag=True, help="Say what would be compared and how, without doing it.")
@click.option("--progress/--no-progress", default=None, help="Draw a progress bar. Default: on a terminal.")
def diff(
    a: str,
    b: str,
    *,
    format_name: str | None,
    table: str | None,
    column_types: tuple[str, ...],
    output: str | None,
    limit: int | None,
    memory: str | None,
    progress: bool | None,
    explain: bool,
    auto: str | None,
    engine: str,
    master: str | None,
    **rules: Any,
) -> int:
    """Find what changed between A and B: tables, databases, revisions or JSON documents."""
    from driftline.tables import heading_of, memory_limit

    sys.setswitchinterval(_SHORT_SWITCH)
    keep_pages()
    given = given_options(**rules, path=b)
    if auto is not None:
        given |= _chosen(a, b, given, with_rules=auto == "rules")
    options = tables.check_options(**given)
    if output is None and format_name is None and sys.stdout.isatty():
        format_name = "terminal"
    format_name = sinks.format_for(output, format_name)
    sinks.find_format(format_name)
    settings = _changeset_settings(format_name, table, column_types, limit)
    is_folder = _is_folder(output, format_name, limit)
    began = time.monotonic()
    job = tables.TableDiffJob(a, b, options, memory=memory_limit(memory), master=master, profile=auto == "reading")
    with naming_hints(job, given), progress_bar(show=progress) as tracker:
        job = replace(job, tracker=tracker)
        if explain:
            return _explain(job, engine, given)
        name = report_choice(engine, tables.choose_engine(engine, job))
        if is_folder and output is not None:
            stats = _write_folder(name, job, output, format_name)
        else:

            def heading(stats: tables.Stats) -> Title:
                return heading_of(job, stats, name, time.monotonic() - began)

            stats = _write_file(name, job, output, format_name, limit, settings, heading)
    if output is not None:
        say(_closing_line(output, stats, began))
    _hint_at_keys(job, stats)
    if auto == "reading" and stats.profile is not None and format_name not in _FOR_PEOPLE:  # they show the rules
        for rule in stats.profile.suggestions():
            click.echo(f"proposed: {rule.sentence}", err=True)
    if not options.fail_if:
        return DIFFERENT if stats.any_difference else SAME
    exceeded = stats.exceeded(options.fail_if)
    for words in exceeded:
        click.echo(f"failed: {words}", err=True)
    return DIFFERENT if exceeded else SAME


def _chosen(a: str, b: str, given: dict[str, Any], *, with_rules: bool) -> dict[str, Any]:
    """The options that are taken for these inputs, each said in a line."""
    from driftline.tables import as_flags, diff as diff_tables, found_renames, reading_of

    chosen = diff_tables(a, b, auto="rules", **given).chosen if with_rules else reading_of(a, b, given)
    for flag in as_flags(chosen):
        click.echo(f"auto: {flag}", err=True)
    for old, (new, alike) in ({} if with_rules else found_renames(a, b, {**given, **chosen})).items():
        click.echo(f"proposed: {as_flags({'rename': {old: new}})[0]}: {alike}", err=True)
    return chosen


def _explain(job: tables.TableDiffJob, engine: str, given: dict[str, Any]) -> int:
    """What would be done; what is wrong with the tables is a part of it, and only what cannot be opened is an error."""
    from driftline.tables import explain_plan, remedy

    name, reason = tables.choose_engine(engine, job)
    try:
        for line in explain_plan(job, f"{name} ({reason})"):
            click.echo(line)
    except TableError as error:
        click.echo(f"error[{error.code}]: {error.message}")
        words = remedy(error, job, given, in_python=False)
        click.echo(f"remedy: {words}" if words else "remedy: none was found")
    return SAME


def _changeset_settings(
    format_name: str, table: str | None, column_types: tuple[str, ...], limit: int | None
) -> dict[str, Any]:
    """What the formats for SQLite need to know; refused for the others."""
    if format_name not in ("changeset", "patchset"):
        if table or column_types:
            raise OptionError("--table and --column-type belong to --format changeset or patchset")
        return {}
    if not table or limit is not None:
        raise OptionError(f"--format {format_name} needs --table NAME and takes no --limit")
    types = dict(pair.rpartition("=")[::2] for pair in column_types)
    if "" in types or "" in types.values():
        raise OptionError("--column-type is COL=TYPE, such as age=INTEGER")
    return {"table": table, "types": types, "notice": lambda line: click.echo(line, err=True)}


def _is_folder(output: str | None, format_name: str, limit: int | None) -> bool:
    """Whether the events go into a folder: of ordered parts (`/` at the end), or a Delta table."""
    if format_name == "delta" and output is None:
        raise OptionError("a Delta table needs a place: name it with -o")
    if output is None or not (output.endswith("/") or format_name == "delta"):
        return False
    from driftline.tables import check_folder

    check_folder(output, format_name, limit)
    return True


def _write_folder(engine: str, job: tables.TableDiffJob, output: str, format_name: str) -> tables.Stats:
    from driftline.tables import diff_to_folder, diff_to_table

    run = tables.find_engine(engine)
    if format_name == "jsonl":
        return diff_to_folder(run, job, output)
    if engine == "spark":
        from driftline.spark import diff_to_table_on_spark

        return diff_to_table_on_spark(run, job, output, format_name)
    return diff_to_table(run, job, output, format_name)


def _write_file(
    engine: str,
    job: tables.TableDiffJob,
    output: str | None,
    format_name: str,
    limit: int | None,
    settings: dict[str, Any],
    heading: Callable[[tables.Stats], Title],
) -> tables.Stats:
    run = tables.find_engine(engine)
    with open_output(output, (job.a, job.b)) as file, sinks.packed(file, output) as out:
        if format_name == "jsonl" and limit is None:
            return run(job, out.write)
        import tempfile

        from driftline.tables import report_settings

        if settings and engine == "spark":
            from driftline.spark import diff_to_changeset

            return diff_to_changeset(run, job, out, format_name, **settings)
        job = replace(job, profile=True) if format_name in _FOR_PEOPLE else job
        if format_name in sinks.FIRST and limit is None and not job.options.changed_columns_only:
            first = sinks.FirstEvents(sinks.FIRST[format_name])
            stats = run(job, first.write)
            sinks.write_events(first.lines(), out, format_name, **report_settings(job.options, stats, heading(stats)))
            return stats
        with tempfile.TemporaryFile() as stream:
            stats = run(job, stream.write)
            stream.seek(0)
            if not settings:
                settings = {**sinks.settings_for(output), **report_settings(job.options, stats, heading(stats))}
            sinks.write_events(stream, out, format_name, limit=limit, **settings)
    return stats


def _closing_line(output: str, stats: tables.Stats, began: float) -> str:
    from driftline.sinks import size_text

    counts = f"+{stats.added:,} −{stats.removed:,} ~{stats.changed:,}"
    total = stats.added + stats.removed + stats.changed
    size = size_text(os.path.getsize(output)) if os.path.isfile(output) else "written"
    return f"{output}: {total:,} changes ({counts}), {size}, {time.monotonic() - began:.1f} s"


def _hint_at_keys(job: tables.TableDiffJob, stats: tables.Stats) -> None:
    """A positional diff that finds most rows changed was perhaps meant to be keyed."""
    if job.options.mode == "keyed" or stats.changed * 2 <= stats.compared:
        return
    from driftline.tables import key_candidates

    names = key_candidates(job)
    which = f" (candidates: {', '.join(names)})" if names else ""
    click.echo(f"hint: more than half of the rows changed; if rows have an identity, give --key COL{which}", err=True)


# `driftline patch`: a table with the changes of a diff applied.


@click.command(cls=Command)
@click.argument("a")
@click.argument("events")
@reading_options
@click.option("-o", "--output", metavar="FILE", help="Write to FILE (whole or not at all) instead of stdout.")
def patch(a: str, events: str, output: str | None, **rules: Any) -> int:
    """Apply EVENTS, the JSONL output of a diff, to the CSV table A."""
    from driftline.tables import patch as patch_file

    lines = iter(cast(BinaryIO, sys.stdin.buffer)) if events == "-" else events
    patch_file(a, lines, output, **given_options(**rules))
    return SAME


# `driftline merge`: three versions of a table to one.


@click.command(cls=Command)
@click.argument("base")
@click.argument("ours")
@click.argument("theirs")
@table_options
@click.option("--prefer", type=click.Choice(["ours", "theirs"]), help="Which side decides a conflict.")
@click.option(
    "--conflicts",
    type=click.Choice(["list", "markers"]),
    default="list",
    help="List conflicts and write nothing, or write both versions (Parquet, Arrow: beside FILE).  [default: list]",
)
@click.option("-o", "--output", metavar="FILE", required=True, help="Write to FILE; it may be OURS.")
def merge(base: str, ours: str, theirs: str, *, prefer: Any, conflicts: Any, output: str, **rules: Any) -> int:
    """Merge the changes that OURS and THEIRS made to the table BASE: CSV, JSON Lines, Parquet or Arrow."""
    from driftline.tables import event_line, merge as merge_files

    given = given_options(**rules, path=ours)
    merged = merge_files(base, ours, theirs, output, prefer=prefer, conflicts=conflicts, **given)
    if merged.conflicts:
        with open_output(None) as out:
            out.writelines(map(event_line, merged.conflicts))
    return DIFFERENT if merged.conflicts and prefer is None else SAME
