"""The output of `driftline index`: its options and formats, JSON also for errors, and tables on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli._group import Command, Function
from driftline.cli._terminal import plain_table, stderr_console
from driftline.errors import DriftlineError, IndexRefError, OptionError

if TYPE_CHECKING:
    from driftline.codeindex import ApiReport, IndexDiff, IndexEvent, Registry

FORMATS = ("text", "json", "jsonl", "markdown")
CACHE_ROOT_VARIABLE = "DRIFTLINE_CACHE_ROOT"
_ENDINGS = {".json": "json", ".jsonl": "jsonl", ".md": "markdown", ".html": "html"}
# Flags that scripts also write with a value, `--persist false`.
_SWITCHES = {f"--{name}": f"--no-{name}" for name in ("persist", "include-relations", "detect-renames")}
_VALUES = dict.fromkeys(("true", "t", "1", "yes", "y", "on"), True)
_VALUES |= dict.fromkeys(("false", "f", "0", "no", "n", "off"), False)
_MOST_ROWS = 40
_WHOLE, _COUNTS = ("diff", "made", "modes"), ("files", "chunks")
_LEVEL_STYLES = {"major": "red", "unknown": "magenta", "minor": "green", "patch": "dim"}
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "modified": ("~", "yellow")}
_SIGNS |= dict.fromkeys(("renamed", "moved"), ("→", "cyan"))


class OutputCommand(Command):
    """A command that reports wrong usage as JSON too, where JSON was requested."""

    def make_context(self, info_name: str | None, args: list[str], *others: Any, **extra: Any) -> click.Context:
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


def output_options(formats: Iterable[str] = FORMATS) -> Callable[[Function], Function]:
    """Add `--format`, `--json`, `--compact` and `-o`."""

    def add(command: Function) -> Function:
        to_file = "Write to FILE (whole or not at all); its ending chooses the format."
        command = click.option("-o", "--output", type=click.Path(), metavar="FILE", help=to_file)(command)
        command = click.option("--compact", is_flag=True, help="JSON and JSONL without white space.")(command)
        command = click.option("--json", "as_json", is_flag=True, help="The same as --format json.")(command)
        choice = click.Choice(list(formats))
        return click.option("--format", "format_name", type=choice, help="Default: text, on stderr.")(command)

    return add


_ONE_ROOT = "The repository's cache directory; default: driftline/ inside of the git directory."
cache_root_option = click.option("--cache-root", envvar=CACHE_ROOT_VARIABLE, metavar="DIR", help=_ONE_ROOT)
repo_option = click.option("--repo", metavar="DIR", help="The git repository of git: references. Default: .")


def with_output(command: Callable[..., int]) -> Callable[..., int]:
    """Resolve the format and the output; with JSON an error is written to stdout too, as `{"ok": false, …}`."""

    @wraps(command)
    def run(*, format_name: str | None, as_json: bool, compact: bool, output: str | None, **options: object) -> int:
        requested = format_name or ("json" if as_json else _format_of(output))
        try:
            with without_paths(), _stdout_in(output):
                return command(format_name=requested, compact=compact, **options)
        except DriftlineError as error:
            if requested == "json":
                print_json({"ok": False, "code": error.code.wire, "message": error.message}, compact)
            raise

    return run


def _format_of(output: str | None) -> str:
    if output is None:
        return "text"
    choice = next(option for option in click.get_current_context().command.params if option.name == "format_name").type
    offered = choice.choices if isinstance(choice, click.Choice) else ()
    known = {ending: name for ending, name in _ENDINGS.items() if name in offered}
    ending = Path(output).suffix.lower()
    if ending not in known:
        raise OptionError(f"{output}: its ending tells no format of this command: use {', '.join(known)}, or --format")
    return known[ending]


@contextmanager
def _stdout_in(output: str | None) -> Iterator[None]:
    from driftline.core import text_into

    if output is None:
        yield
        return
    with text_into(output) as text, redirect_stdout(text):
        yield


@contextmanager
def without_paths() -> Iterator[None]:
    """Report errors of the operating system without the absolute path that their messages have."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise IndexRefError(f"a file of the index cannot be used: {error.strerror or type(error).__name__}") from error


def open_registry(cache_root: str | None, repo: str | None = None) -> Registry:
    """The registry of a cache root, or of a repository's default one."""
    from driftline.codeindex import CacheRoot, GitRepository, Registry, default_cache_root

    return Registry(CacheRoot(cache_root or default_cache_root(GitRepository(repo or "."))))


def print_json(value: object, compact: bool) -> None:
    click.echo(json.dumps(value, separators=(",", ":")) if compact else json.dumps(value, indent=2))


def is_watched() -> bool:
    return sys.stderr.isatty()


def say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line, err=True)


def _write_events(events: Iterable[IndexEvent], compact: bool) -> None:
    from driftline.codeindex import json_line
    from driftline.core import open_output

    with open_output(None) as out:
        for event in events:
            out.write(json_line(event, compact=compact))


def print_diff(
    result: IndexDiff, format_name: str, compact: bool, facts: Any, *, with_events: bool, repo: str | None = None
) -> None:
    """One diff in the requested format; with a repository, reviews show its source."""
    from driftline.codeindex import V2, diff_page, review, summary_lines

    if format_name == "text" and is_watched():
        show_diff(result)
    elif format_name == "text":
        say_lines(summary_lines(result))
    elif format_name in ("markdown", "html", "github"):
        click.echo(diff_page(result, format_name, repo))
    elif format_name == "json":
        events = {"events": list(result.events)} if with_events else {}
        judged = {"review": review(result.events).to_dict()} if result.inputs["kind"] == V2 else {}
        answer = {"ok": True, "diffId": result.diff_id, **facts, "summary": result.summary, **judged, **events}
        print_json(answer, compact)
    else:
        _write_events(result.events, compact)


def print_outcomes(outcomes: list[dict[str, Any]], format_name: str, compact: bool) -> None:
    """The diffs of many repositories, one after the other; failures in place, and on stderr."""
    failed = [outcome for outcome in outcomes if not outcome["ok"]]
    if format_name == "json":
        print_json({"ok": not failed, "diffs": outcomes}, compact)
        return
    for outcome in outcomes if format_name != "text" else ():
        if format_name == "markdown":
            click.echo(_markdown(outcome))
        elif outcome["ok"]:
            _write_events(({"repository": outcome["repository"], **event} for event in outcome["events"]), compact)
    say_lines(map(_outcome_line, outcomes if format_name == "text" else failed))


def _markdown(outcome: dict[str, Any]) -> str:
    from driftline.codeindex import IndexDiff, diff_markdown

    head = f"# {outcome['repository']}\n\n"
    if not outcome["ok"]:
        return f"{head}error[{outcome['code'].lower()}]: {outcome['message']}\n"
    result = IndexDiff(outcome["diffId"], outcome["inputs"], outcome["summary"], outcome["events"])
    return f"{head}{diff_markdown(result)}\n"


def _outcome_line(outcome: dict[str, Any]) -> str:
    if not outcome["ok"]:
        return f"{outcome['repository']}: error[{outcome['code'].lower()}]: {outcome['message']}"
    total = outcome["summary"]["totalEvents"]
    return f"{outcome['repository']}: {outcome['diffId']}, {total} {'event' if total == 1 else 'events'}"


# Tables on a terminal, as wide as it is.
def show_diff(result: IndexDiff) -> None:
    from driftline.codeindex import summary_lines

    console = stderr_console()
    for line in summary_lines(result):
        console.print(line, markup=False)
    # Definitions, and files that were added, removed or renamed; a modified file shows by its definitions.
    quiet = ("relation.", "file.modified")
    shown = (event for event in result.events if _kind(event) in _SIGNS and not event["kind"].startswith(quiet))
    rows = [_event_row(event) for event in islice(shown, _MOST_ROWS)]
    if rows:
        console.print(plain_table(("", "definition", "changed", "file"), rows, whole=("", "changed")))
    hidden = sum(1 for _ in shown)
    if hidden:
        console.print(f"{hidden} more: --format markdown, html or jsonl has them", style="dim")


def _kind(event: IndexEvent) -> str:
    return str(event["kind"]).rpartition(".")[2]


def _event_row(event: IndexEvent) -> tuple[Any, ...]:
    from rich.text import Text

    sign, style = _SIGNS[_kind(event)]
    name = str(event.get("name") or ("" if event["kind"].startswith("file.") else "(rest of the file)"))
    before = event.get("before") or {}
    if _kind(event) in ("renamed", "moved") and before.get("name") not in (None, name):
        name = f"{before['name']} → {name}"
    changed = ", ".join(event.get("changes") or ()) or _kind(event)
    return Text(sign, style), name, changed, str(event.get("file", ""))


def show_api(report: ApiReport) -> None:
    from rich.text import Text

    console = stderr_console()
    console.print(f"{report.labels[0]} → {report.labels[1]}", markup=False)
    rows = [
        (Text(change.level, _LEVEL_STYLES[change.level]), change.rule, change.name, change.why, change.file)
        for change in report.changes[:_MOST_ROWS]
    ]
    if rows:
        console.print(plain_table(("", "rule", "name", "why", "file"), rows, whole=("", "rule")))
    if len(report.changes) > len(rows):
        console.print(f"{len(report.changes) - len(rows)} more: --format markdown or jsonl has them", style="dim")
    console.print(report.verdict_line, style="bold", markup=False)


def show_entries(entries: Sequence[dict[str, Any]]) -> None:
    console = stderr_console()
    if not entries:
        console.print("no diffs are kept here")
        return
    rows = []
    for entry in entries:
        counts = entry["summary"] or {"filesChanged": "", "chunksChanged": ""}
        refs = (str(entry[side]) for side in ("from", "to"))
        sides = " → ".join(ref[:16] if ref.startswith("git:") else ref for ref in refs)  # as short as git shows ids
        cells = (entry["diffId"], entry["createdAt"][:16].replace("T", " "), ", ".join(entry["modes"]), sides)
        rows.append((*cells, str(counts["filesChanged"]), str(counts["chunksChanged"])))
    console.print(plain_table((*_WHOLE, "sides", *_COUNTS), rows, right=_COUNTS, whole=_WHOLE))
