"""The list of commands: a name, where its code lives and its one-line help.

Code is imported only when its command is called, so `driftline --help` answers at once and without pyspark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click

Function = Callable[..., Any]  # what click makes a command of; its options are its arguments

# name -> (module:attribute, short help); in the order of the help page
COMMANDS: dict[str, tuple[str, str]] = {
    "diff": ("driftline.cli.diff:diff", "Find what changed between two tables."),
    "patch": ("driftline.cli.patch:patch", "Apply the events of a diff to a table."),
    "merge": ("driftline.cli.merge:merge", "Merge two changed versions of a table."),
    "compare": ("driftline.cli.compare:compare", "Decide whether two JSON payloads are equivalent."),
    "payloads": ("driftline.cli.payloads:payloads", "Compare payloads: batches, captures, suggested rules."),
    "changeset": ("driftline.cli.changeset:changeset", "Read, combine, apply and make SQLite changesets."),
    "serve": ("driftline.cli.serve:serve", "Serve payload comparisons and row deltas over HTTP."),
    "gateway": ("driftline.cli.gateway:gateway", "Sync row deltas: serve a gateway, push, pull, make tokens."),
    "index": ("driftline.cli.index:index", "Compare two builds of a code index; keep a registry of diffs."),
    "lake": ("driftline.cli.lake:lake", "Keep row deltas in a lake, fold them, travel in time."),
    "pipeline": ("driftline.cli.pipeline:pipeline", "Run a declared pipeline from snapshots to lake and changesets."),
    "check": ("driftline.cli.check:check", "Check many pairs of tables at once, by a file of pairs."),
    "git": ("driftline.cli.git:git", "Diff and merge databases and tables in Git."),
    "ui": ("driftline.cli.ui:ui", "Look in a browser: diffs, payloads, pipelines, lakes, changesets, code."),
    "doctor": ("driftline.cli.doctor:doctor", "Check this machine and say in words what is wrong."),
    "dev": ("driftline.cli.conformance:dev", "For those who build on driftline: run fixtures."),
}


@dataclass(frozen=True)
class Alias:
    """An older name of a command: what it is called now, and whether the older name stays for good."""

    now: str
    for_good: bool = False


# Older names, also of commands inside groups; none of them is shown in help pages.
ALIASES: dict[str, Alias] = {
    "compare-batch": Alias("payloads batch", for_good=True),
    "conformance": Alias("dev conformance", for_good=True),
    "push": Alias("gateway push"),
    "pull": Alias("gateway pull"),
    "token": Alias("gateway token"),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on first use."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Lazy commands in their declared order, then the eager ones."""
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of that name."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command table, from the declared short helps alone."""
        rows = [(name, text) for name, (_, text) in self.lazy.items()]
        for name in super().list_commands(ctx):
            command = super().get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=80)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

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
    """The words of a call with an older command name replaced; a name that will go is told on stderr."""
    for length in range(min(3, len(words)), 0, -1):
        alias = ALIASES.get(" ".join(words[:length]))
        if alias is not None:
            if not alias.for_good:
                old = " ".join(words[:length])
                click.echo(f'note: "driftline {old}" is now "driftline {alias.now}"; the old name will go', err=True)
            return [*alias.now.split(), *words[length:]]
    return words


def nearest_hint(word: str, known: list[str]) -> str:
    """` Did you mean "…"?`, or nothing where no known word is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1)
    return f' Did you mean "{near[0]}"?' if near else ""
