"""The list of commands with their older names, shell completion, and the options of engines.

Code is imported only when its command is called, so `driftline --help` responds at once and without pyspark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from driftline.core import EngineName, load_function, use_spark_settings
from driftline.errors import OptionError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from driftline.core import EngineChoice, Job, Sizes

Function = Callable[..., Any]  # what click makes a command of; its options are its arguments
_FILES = ("FILE", "DIR", "PATH")


# name -> (module:attribute below `_commands`, short help); in the order of the help page
COMMANDS: dict[str, tuple[str, str]] = {
    "diff": ("tables:diff", "Find what changed between two tables, databases or revisions."),
    "patch": ("tables:patch", "Apply the events of a diff to a table."),
    "merge": ("tables:merge", "Merge two changed versions of a table."),
    "compare": ("compare:compare", "Decide whether two JSON payloads are equivalent."),
    "payloads": ("payloads:payloads", "Compare payloads: batches, captures, suggested rules."),
    "changeset": ("changeset:changeset", "Read, combine, apply and make SQLite changesets."),
    "serve": ("serve:serve", "Serve payload comparisons and row deltas over HTTP."),
    "gateway": ("gateway:gateway", "Sync row deltas with a gateway: push, pull, make tokens."),
    "index": ("index:index", "Compare two builds of a code index; keep a registry of diffs."),
    "lake": ("lake:lake", "Keep row deltas in a lake, fold them, travel in time."),
    "pipeline": ("pipeline:pipeline", "Run a declared pipeline from snapshots to lake and changesets."),
    "check": ("pipeline:check", "Check many pairs of tables at once, by a file of pairs."),
    "git": ("git:git", "Diff and merge databases and tables in Git."),
    "ui": ("serve:ui", "Look in a browser: diffs, payloads, pipelines, lakes, changesets, code."),
    "doctor": ("doctor:doctor", "Check this machine and say in words what is wrong."),
}
# Older names, also of commands inside groups; none of them is shown in help pages.
ALIASES: dict[str, str] = {
    "compare-batch": "payloads batch",
    "payloads compare": "compare",
    "gateway serve": "serve",
    "index diff compute": "index diff",
    "index diff list": "index list",
    "index diff show": "index show",
    "index diff prune": "index prune",
    "push": "gateway push",
    "pull": "gateway pull",
    "token": "gateway token",
}
LEAVING = ("push", "pull", "token")  # the others stay for good


# What the first screen names; the others follow below "More".
FIRST_COMMANDS = ("diff", "compare", "changeset", "pipeline", "ui")


class Command(click.Command):
    """A command whose examples and notes are in `examples.txt`, under its path."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = self.epilog or examples(ctx.command_path)
        super().format_epilog(ctx, formatter)


def examples(path: str) -> str:
    """The section of a command in `examples.txt`."""
    text = Path(__file__).with_name("examples.txt").read_text("utf-8")
    _, title, behind = text.partition(f"## {path.removeprefix('driftline ')}\n")
    return f"\b\n{behind.partition('## ')[0]}".replace("\\b", "\b") if title else ""


class GroupedCommand(Command):
    """A command with many options: help in sections, of which `--help` has the main options and `--help-all` every one.

    `sections` are titles with names of parameters; a parameter that no section names comes last. `brief` are the names
    that `--help` shows, with examples of their own.
    """

    def __init__(self, *args: Any, sections: dict[str, tuple[str, ...]], brief: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections, self.brief = sections, brief
        every = click.option(
            "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show every option."
        )
        every(self)

    def titled(self, ctx: click.Context) -> list[tuple[str, list[click.Option]]]:
        """The options of each section, those of no section last."""
        left = {param.name: param for param in self.get_params(ctx) if isinstance(param, click.Option)}
        titled = [(title, [left.pop(name) for name in names if name in left]) for title, names in self.sections.items()]
        return [*titled, ("Other options", list(left.values()))]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, params in self.titled(ctx):
            shown = [param for param in params if _ALL in ctx.meta or param.name in self.brief]
            rows = [row for param in shown if (row := param.get_help_record(ctx)) is not None]
            if _ALL not in ctx.meta:
                rows = [(names, _FIRST_CLAUSE.split(text)[0].rstrip(".")) for names, text in rows]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = examples(ctx.command_path + ("" if _ALL in ctx.meta else " (brief)"))
        super().format_epilog(ctx, formatter)


_ALL = "driftline.help_all"
_FIRST_CLAUSE = re.compile(r"[.;] |  \[")


def _show_all(context: click.Context, option: click.Parameter, requested: bool) -> None:
    if requested:
        context.meta[_ALL] = True
        click.echo(context.get_help())
        context.exit()


class LazyGroup(click.Group):
    """A group whose commands are listed in the order of their declaration, and may be imported on first use."""

    command_class = Command
    group_class = type  # groups inside are of this class

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of that name."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        command = load_function(f"driftline.cli._commands.{self.lazy[cmd_name][0]}")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command table; commands that are not imported yet are not imported for it."""
        rows = [(name, text) for name, (_, text) in self.lazy.items()]
        space = formatter.width - 6 - max(map(len, self.list_commands(ctx)))
        rows += [(name, command.get_short_help_str(space)) for name, command in self.commands.items()]
        first = [row for row in rows if row[0] in FIRST_COMMANDS] if self.lazy else rows
        for title, listed in (("Commands", first), ("More", [row for row in rows if row not in first])):
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = examples(ctx.command_path)
        super().format_epilog(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with older names understood and the nearest name in the error."""
        if ctx.parent is None:
            args = current_names(args)
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(error.message + nearest_hint(args[0], self.list_commands(ctx)), ctx) from error


def current_names(words: list[str]) -> list[str]:
    """The words of a call with an older command name replaced; a name that will be removed is noted on stderr."""
    for length in range(min(3, len(words)), 0, -1):
        old = " ".join(words[:length])
        if old in ALIASES:
            if old in LEAVING:
                click.echo(f'note: "driftline {old}" is now "driftline {ALIASES[old]}"; the old name will go', err=True)
            return [*ALIASES[old].split(), *words[length:]]
    return words


def nearest_hint(word: str, known: list[str]) -> str:
    """` Did you mean "…"?`, or nothing where no known word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1)
    return f' Did you mean "{near[0]}"?' if near else ""


# Shell completion: known words for options, file names for arguments and files.
class Words(click.ParamType[str]):
    """A text of which some values are known; it is checked where it is used, so that the error has its own code."""

    name = "text"

    def __init__(self, words: Callable[[], Iterable[str]]) -> None:
        self._words = words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The words that begin like what was typed."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self._words() if word.startswith(incomplete)]


def offer_files() -> None:
    """Let arguments, and options that take a file, complete to file names; for a process that only completes."""
    from click.shell_completion import CompletionItem

    def shell_complete(
        self: object, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        takes_file = isinstance(param, click.Argument) or (param.metavar or "").startswith(_FILES)
        return [CompletionItem(incomplete, type="file")] if takes_file else []

    setattr(click.types.StringParamType, "shell_complete", shell_complete)  # noqa: B010 - click has no other way


def choice(name: str, values: str, text: str) -> Callable[[Function], Function]:
    """An option with one of some values, of which the first is the default."""
    own_name = "form" if name == "--format" else name.strip("-").replace("-", "_")
    kind = click.Choice(values.split())
    return click.option(name, own_name, type=kind, default=kind.choices[0], show_default=True, help=text)


def several(*parameters: Function) -> Callable[[Function], Function]:
    """Several parameters as one decorator, in their order on the help page."""

    def add(function: Function) -> Function:
        for each in reversed(parameters):
            function = each(function)
        return function

    return add


def format_option(
    formats: Sequence[str], text: str, *, is_first_default: bool = False
) -> Callable[[Function], Function]:
    """`--format` with one of some words."""
    default: dict[str, Any] = {"default": formats[0], "show_default": True} if is_first_default else {}
    return click.option("--format", "format_name", type=click.Choice(formats), help=text, **default)


# The options of commands that run on this machine or on Spark.
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


def chosen_engine(job: Job, requested: str, master: str | None, sizes: Sizes) -> str:
    """The engine to use; on a terminal the choice of `auto` is printed."""
    from driftline.core import choose_engine

    return report_choice(requested, choose_engine(job, requested, sizes=sizes, master=master))


def report_choice(requested: str, choice: EngineChoice) -> str:
    """The engine's name; Spark is said with its reason on a terminal where the user left the choice open."""
    from driftline.cli._terminal import say

    if requested == "auto" and choice.name != "local":
        say(f"engine: {choice.name} ({choice.reason})")
    return choice.name
