"""How the commands of `driftline index` answer: formats, JSON also for errors, and options that may name a value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.errors import DriftlineError, IndexRefError

if TYPE_CHECKING:
    from driftline.codeindex import Registry

FORMATS = ("text", "json", "jsonl", "markdown")
CACHE_ROOT_VARIABLE = "DRIFTLINE_CACHE_ROOT"

# Flags that scripts also write with a value, `--persist false`.
_SWITCHES = {f"--{name}": f"--no-{name}" for name in ("persist", "include-relations", "detect-renames")}
_VALUES = {"true": True, "t": True, "1": True, "yes": True, "y": True, "on": True} | {
    "false": False, "f": False, "0": False, "no": False, "n": False, "off": False,
}  # fmt: skip


class AnsweringCommand(click.Command):
    """A command that says wrong usage as JSON too, where JSON was asked for."""

    def make_context(self, info_name: str | None, args: list[str], *others: Any, **extra: Any) -> click.Context:
        """Parse the words of the command line."""
        words = list(args)
        try:
            return super().make_context(info_name, args, *others, **extra)
        except click.UsageError as error:
            if "--json" in words or "--format=json" in words or ("--format", "json") in pairwise(words):
                answer = {"ok": False, "code": "INVALID_REQUEST", "message": error.format_message()}
                print_json(answer, "--compact" in words)
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Understand `--persist false` as `--no-persist`."""
        return super().parse_args(ctx, list(_as_flags(args)))


def _as_flags(words: list[str]) -> Iterator[str]:
    """The words with values of flags folded into the flags."""
    taken = -1
    for position, word in enumerate(words):
        switch, has_value, value = word.partition("=")
        if position == taken:
            continue
        if switch not in _SWITCHES:
            yield word
            continue
        if not has_value and position + 1 < len(words) and words[position + 1].lower() in _VALUES:
            taken = position + 1
            has_value, value = "=", words[taken]
        if has_value and value.lower() not in _VALUES:
            raise click.UsageError(f"{switch} is a flag: write {switch} or {_SWITCHES[switch]}")
        yield switch if _VALUES.get(value.lower(), True) else _SWITCHES[switch]


def output_options(formats: Iterable[str] = FORMATS) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--format`, `--json` and `--compact`."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option("--compact", is_flag=True, help="JSON and JSONL without white space.")(command)
        command = click.option("--json", "as_json", is_flag=True, help="The same as --format json.")(command)
        choice = click.Choice(list(formats))
        return click.option("--format", "format_name", type=choice, help="Default: text, on stderr.")(command)

    return add


def cache_root_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--cache-root` for one root."""
    help_text = "The repository's cache directory; default: driftline/ inside of the git directory."
    return click.option("--cache-root", envvar=CACHE_ROOT_VARIABLE, metavar="DIR", help=help_text)(command)


def repo_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--repo`."""
    return click.option("--repo", metavar="DIR", help="The git repository of git: references. Default: .")(command)


def answers(command: Callable[..., int]) -> Callable[..., int]:
    """Settle the format; with JSON an error is said on stdout too, as `{"ok": false, …}`."""

    @wraps(command)
    def run(*, format_name: str | None, as_json: bool, compact: bool, **options: Any) -> int:
        wanted = format_name or ("json" if as_json else "text")
        try:
            with without_paths():
                return command(format_name=wanted, compact=compact, **options)
        except DriftlineError as error:
            if wanted == "json":
                print_json({"ok": False, "code": error.code, "message": error.message}, compact)
            raise

    return run


@contextmanager
def without_paths() -> Iterator[None]:
    """What the operating system refuses, told without the absolute path that its message has."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise IndexRefError(f"a file of the index cannot be used: {error.strerror or type(error).__name__}") from error


def open_registry(cache_root: str | None, repo: str | None = None) -> Registry:
    """The registry of a cache root, or of a repository's default one."""
    from driftline.codeindex import Registry
    from driftline.codeindex.storage import CacheRoot

    if not cache_root and not repo:
        raise IndexRefError("--cache-root or --repo is needed")
    return Registry(CacheRoot(cache_root or _root_of(repo or ".")))


def _root_of(repo: str) -> Path:
    from driftline.codeindex.building import default_cache_root
    from driftline.codeindex.git_objects import GitRepository

    return default_cache_root(GitRepository(repo))


def print_json(value: Any, compact: bool) -> None:
    """JSON on stdout."""
    click.echo(json.dumps(value, separators=(",", ":")) if compact else json.dumps(value, indent=2))


def say_lines(lines: Iterable[str]) -> None:
    """Text for people on stderr."""
    for line in lines:
        click.echo(line, err=True)


@contextmanager
def binary_stdout() -> Iterator[Callable[[bytes], Any]]:
    """Stdout for bytes."""
    from driftline.files import open_output

    with open_output(None) as out:
        yield out.write
