"""`driftline index diff`: what changed between two builds of a code index, and the registry of such diffs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.engine_options import engine_options
from driftline.cli.outcome import DIFFERENT, ERROR, SAME
from driftline.cli.terminal import progress_bar, say
from driftline.errors import DriftlineError, IndexRefError

if TYPE_CHECKING:
    from driftline.codeindex import IndexDiff, KeptDiff, Registry
    from driftline.codeindex.diffing import ModeScheduler
    from driftline.codeindex.jobs import DiffJob

_DIFF_EPILOG = """\b
Examples:
  driftline index diff --from tag:release --to latest --cache-root .cache/myrepo
  driftline index diff compute --from path:old --to path:new --format jsonl
  driftline index diff list --cache-root .cache/myrepo --json
  driftline index diff show --diff diff_779bdbb509bd9a01 --cache-root .cache/myrepo --format markdown
  driftline index diff prune --cache-root .cache/myrepo --max-diffs 20 --dry-run

A side is latest, build:<id>, snap:<id>, tag:<tag> or path:<directory>. Without a subcommand, compute is meant.

Exit codes: 0 done, 2 error; with --exit-code, 1 when there are differences.
"""
_COMPUTE_EPILOG = """\b
Examples:
  driftline index diff compute --from build:b1 --to latest --cache-root .cache/myrepo --json
  driftline index diff compute --from path:old --to path:new --modes code,prose --format jsonl --compact
  driftline index diff compute --from snap:snap-1 --to latest --cache-root .cache/a --cache-root .cache/b --exit-code

JSON, JSONL and Markdown go to stdout, human text to stderr. Diffs of path: references are not persisted unless
--persist-unsafe is given; then only a hash of the path is.
"""

_SHOW_EPILOG = """\b
Examples:
  driftline index diff show --diff diff_779bdbb509bd9a01 --cache-root .cache/myrepo
  driftline index diff show --diff diff_779bdbb509bd9a01 --cache-root .cache/myrepo --format jsonl --compact
"""
_LIST_EPILOG = """\b
Examples:
  driftline index diff list --cache-root .cache/myrepo
  driftline index diff list --cache-root .cache/myrepo --modes code,prose --json
"""
_PRUNE_EPILOG = """\b
Examples:
  driftline index diff prune --cache-root .cache/myrepo --max-diffs 20 --retain-days 7 --dry-run
  driftline index diff prune --cache-root .cache/myrepo --json
"""

_FORMATS = ("text", "json", "jsonl", "markdown")


class _DefaultToCompute(click.Group):
    """A group whose options without a subcommand are those of `compute`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `compute` in front of options."""
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["compute", *args]
        return super().parse_args(ctx, args)


class _JsonCommand(click.Command):
    """A command that says wrong usage as JSON too, where JSON was asked for."""

    def make_context(self, info_name: str | None, args: list[str], *others: Any, **extra: Any) -> click.Context:
        """Parse the words of the command line."""
        words = list(args)
        try:
            return super().make_context(info_name, args, *others, **extra)
        except click.UsageError as error:
            if "--json" in words or "--format=json" in words or ("--format", "json") in pairwise(words):
                answer = {"ok": False, "code": "INVALID_REQUEST", "message": error.format_message()}
                _print_json(answer, "--compact" in words)
            raise


@click.group()
def index() -> None:
    """Work with code indexes."""


@index.group("diff", cls=_DefaultToCompute, epilog=_DIFF_EPILOG)
def index_diff() -> None:
    """Compare two builds of a code index; list, show and prune what was computed."""


def _output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--compact", is_flag=True, help="JSON and JSONL without white space.")(command)
    command = click.option("--json", "as_json", is_flag=True, help="The same as --format json.")(command)
    return click.option("--format", "format_name", type=click.Choice(_FORMATS), help="Default: text, on stderr.")(
        command
    )


def _cache_root_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--cache-root", envvar="DRIFTLINE_CACHE_ROOT", metavar="DIR", help="The repository's cache directory."
    )(command)


def _answers(command: Callable[..., int]) -> Callable[..., int]:
    """Settle the format; with JSON an error is said on stdout too, as `{"ok": false, …}`."""

    @wraps(command)
    def run(*, format_name: str | None, as_json: bool, compact: bool, **options: Any) -> int:
        wanted = format_name or ("json" if as_json else "text")
        try:
            return command(format_name=wanted, compact=compact, **options)
        except DriftlineError as error:
            if wanted == "json":
                _print_json({"ok": False, "code": error.code, "message": error.message}, compact)
            raise

    return run


@index_diff.command("compute", cls=_JsonCommand, epilog=_COMPUTE_EPILOG)
@click.option("--from", "from_ref", metavar="REF", help="The side before.")
@click.option("--to", "to_ref", metavar="REF", help="The side after.")
@click.option(
    "--cache-root",
    "cache_roots",
    envvar="DRIFTLINE_CACHE_ROOT",
    multiple=True,
    metavar="DIR",
    help="The repository's cache directory; repeat it to compute over many repositories at once.",
)
@click.option(
    "--modes",
    "--mode",
    "modes",
    multiple=True,
    metavar="CSV",
    help="code, prose, extracted-prose, records. Default: code.",
)
@click.option("--max-changed-files", default="200", show_default=True, metavar="N", help="Above: no chunk diff.")
@click.option("--max-chunks-per-file", default="500", show_default=True, metavar="N", help="Above: file skipped.")
@click.option("--max-events", default="20000", show_default=True, metavar="N", help="Events are cut after N.")
@click.option("--include-relations", type=bool, default=True, show_default=True, metavar="BOOL", help="Compare edges.")
@click.option("--detect-renames", type=bool, default=True, show_default=True, metavar="BOOL", help="Pair by hash.")
@click.option("--persist", type=bool, default=True, show_default=True, metavar="BOOL", help="Keep it in the registry.")
@click.option("--persist-unsafe", is_flag=True, help="Persist diffs of path: references too (redacted).")
@click.option("--allow-mismatch", is_flag=True, help="Compare builds made with different configurations.")
@click.option("--wait-ms", default="0", show_default=True, metavar="MS", help="How long to wait for the lock.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when there are differences.")
@click.option("--events", "with_events", is_flag=True, help="With --json: the events too.")
@engine_options
@_output_options
@_answers
def compute(
    *,
    from_ref: str | None,
    to_ref: str | None,
    cache_roots: tuple[str, ...],
    exit_code: bool,
    format_name: str,
    compact: bool,
    with_events: bool,
    engine: str,
    master: str | None,
    **options: Any,
) -> int:
    """Compare two builds of a code index."""
    from driftline.codeindex.jobs import DiffJob

    if not from_ref or not to_ref:
        raise IndexRefError("--from and --to are both needed")
    roots: tuple[str | None, ...] = cache_roots or (None,)
    jobs = [DiffJob.of(from_ref, to_ref, root, **options) for root in roots]
    if len(jobs) > 1:
        return _compute_many(jobs, engine, master, exit_code, format_name, compact)
    kept = _compute_one(jobs[0], engine, master)
    _print_diff(kept.result, format_name, compact, _facts(kept), with_events=with_events)
    if kept.note and format_name == "text":
        _say_text([kept.note])
    return DIFFERENT if exit_code and kept.result.has_changes else SAME


def _compute_one(job: DiffJob, engine: str, master: str | None) -> KeptDiff:
    from driftline.codeindex import compute as compute_diff
    from driftline.codeindex.jobs import choose_engine

    request, cache = job.prepare()
    chosen, reason = choose_engine(request, engine, master)
    if engine == "auto":
        say(f"engine: {chosen} ({reason})")
    with progress_bar() as tracker, _scheduler(chosen, master) as scheduler:
        return compute_diff(request, cache, job.keeping, scheduler=scheduler, tracker=tracker)


def _scheduler(engine: str, master: str | None) -> AbstractContextManager[ModeScheduler]:
    if engine == "spark":
        from driftline.spark.index_diff import mode_scheduler

        return mode_scheduler(master)
    from driftline.codeindex.mode_diff import diff_mode

    return nullcontext(diff_mode)


def _compute_many(
    jobs: list[DiffJob], engine: str, master: str | None, exit_code: bool, format_name: str, compact: bool
) -> int:
    from driftline.engine_choice import choose_engine

    # Repositories are spread over the cores of this machine, unless Spark was asked for or is configured.
    if choose_engine(engine, size=lambda: 0, limit=0, master=master)[0] == "spark":
        from driftline.spark.index_diff import run_jobs

        outcomes = run_jobs(jobs, master)
    else:
        from driftline.codeindex.jobs import run_many

        with progress_bar() as tracker:
            outcomes = run_many(jobs, tracker)
    failed = [outcome for outcome in outcomes if not outcome["ok"]]
    if format_name == "text":
        _say_text(_outcome_line(outcome) for outcome in outcomes)
    elif format_name == "json":
        _print_json({"ok": not failed, "diffs": outcomes}, compact)
    else:
        for outcome in outcomes:
            _print_json(outcome, compact=True)
    if failed:
        return ERROR
    return DIFFERENT if exit_code and any(outcome["changed"] for outcome in outcomes) else SAME


def _outcome_line(outcome: dict[str, Any]) -> str:
    if not outcome["ok"]:
        return f"{outcome['repository']}: error[{outcome['code']}]: {outcome['message']}"
    total = outcome["summary"]["totalEvents"]
    return f"{outcome['repository']}: {outcome['diffId']}, {total} {'event' if total == 1 else 'events'}"


@index_diff.command("show", cls=_JsonCommand, epilog=_SHOW_EPILOG)
@click.option("--diff", "diff_id", metavar="ID", help="The id of a persisted diff.")
@click.option("--events", "with_events", is_flag=True, help="With --json: the events too.")
@_cache_root_option
@_output_options
@_answers
def show(*, diff_id: str | None, cache_root: str | None, format_name: str, compact: bool, with_events: bool) -> int:
    """Show a persisted diff."""
    if not diff_id:
        raise IndexRefError("--diff is needed")
    stored = _registry(cache_root).load(diff_id)
    _print_diff(stored, format_name, compact, {"inputs": stored.inputs}, with_events=with_events)
    return SAME


@index_diff.command("list", cls=_JsonCommand, epilog=_LIST_EPILOG)
@click.option("--modes", "--mode", "modes", multiple=True, metavar="CSV", help="Only diffs with all of these modes.")
@_cache_root_option
@_output_options
@_answers
def list_diffs(*, modes: tuple[str, ...], cache_root: str | None, format_name: str, compact: bool) -> int:
    """List persisted diffs, newest first."""
    from driftline.codeindex import render
    from driftline.codeindex.options import parse_modes

    entries = _registry(cache_root).entries(parse_modes(modes) if modes else ())
    if format_name == "text":
        _say_text(render.entry_lines(entries))
    elif format_name == "json":
        _print_json({"ok": True, "diffs": entries}, compact)
    elif format_name == "jsonl":
        for entry in entries:
            _print_json(entry, compact=True)
    else:
        click.echo(render.entries_markdown(entries))
    return SAME


@index_diff.command("prune", cls=_JsonCommand, epilog=_PRUNE_EPILOG)
@click.option("--max-diffs", default="50", show_default=True, metavar="N", help="Keep the newest N.")
@click.option("--retain-days", default="30", show_default=True, metavar="D", help="Keep diffs younger than D days.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--wait-ms", default="0", show_default=True, metavar="MS", help="How long to wait for the lock.")
@_cache_root_option
@_output_options
@_answers
def prune_diffs(
    *,
    max_diffs: str,
    retain_days: str,
    dry_run: bool,
    wait_ms: str,
    cache_root: str | None,
    format_name: str,
    compact: bool,
) -> int:
    """Remove old diffs and orphan directories; a diff stays if it is among the newest or young enough."""
    from driftline.codeindex import prune, render
    from driftline.codeindex.options import whole_number

    wait = whole_number(wait_ms, "wait-ms", minimum=0)
    pruned = prune(_registry(cache_root), max_diffs=max_diffs, retain_days=retain_days, dry_run=dry_run, wait_ms=wait)
    if format_name == "text":
        _say_text(render.pruned_lines(pruned))
    elif format_name == "markdown":
        click.echo("\n".join(f"- {line}" for line in render.pruned_lines(pruned)))
    else:
        _print_json({"ok": True, **pruned.to_dict()}, compact or format_name == "jsonl")
    return SAME


def _registry(cache_root: str | None) -> Registry:
    from driftline.codeindex import Registry
    from driftline.codeindex.cache_root import CacheRoot

    if not cache_root:
        raise IndexRefError("--cache-root is needed")
    return Registry(CacheRoot(cache_root))


def _facts(kept: KeptDiff) -> dict[str, Any]:
    return {"persisted": kept.persisted, "reused": kept.reused}


def _print_diff(
    result: IndexDiff, format_name: str, compact: bool, facts: dict[str, Any], *, with_events: bool
) -> None:
    from driftline.codeindex import render

    if format_name == "text":
        _say_text(render.summary_lines(result))
    elif format_name == "markdown":
        click.echo(render.diff_markdown(result))
    elif format_name == "json":
        events = {"events": list(result.events)} if with_events else {}
        _print_json({"ok": True, "diffId": result.diff_id, **facts, "summary": result.summary, **events}, compact)
    else:
        with _binary_stdout() as write:
            for event in result.events:
                write(render.json_line(event, compact=compact))


def _print_json(value: Any, compact: bool) -> None:
    click.echo(json.dumps(value, separators=(",", ":")) if compact else json.dumps(value, indent=2))


def _say_text(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line, err=True)


@contextmanager
def _binary_stdout() -> Iterator[Callable[[bytes], Any]]:
    from driftline.files import open_output

    with open_output(None) as out:
        yield out.write
