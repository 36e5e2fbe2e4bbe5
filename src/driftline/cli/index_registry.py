"""`driftline index list|show|prune`: the diffs that were kept."""

from __future__ import annotations

import click

from driftline.cli.index_answers import (
    FORMATS,
    AnsweringCommand,
    answers,
    cache_root_option,
    open_registry,
    output_options,
    print_json,
    repo_option,
    say_lines,
)
from driftline.cli.index_output import print_diff
from driftline.cli.outcome import SAME
from driftline.errors import IndexRefError

_SHOW_EPILOG = """\b
Examples:
  driftline index show diff_779bdbb509bd9a01 --cache-root .cache/myrepo
  driftline index show diff_779bdbb509bd9a01 --cache-root .cache/myrepo --format jsonl --compact
"""
_LIST_EPILOG = """\b
Examples:
  driftline index list --cache-root .cache/myrepo
  driftline index list --cache-root .cache/myrepo --modes code,prose --format json
"""
_PRUNE_EPILOG = """\b
Examples:
  driftline index prune --cache-root .cache/myrepo --max-diffs 20 --retain-days 7 --dry-run
  driftline index prune --cache-root .cache/myrepo --format json
"""


@click.command("show", cls=AnsweringCommand, epilog=_SHOW_EPILOG)
@click.argument("given_id", metavar="[DIFF]", required=False)
@click.option("--diff", "diff_id", metavar="ID", help="The id of a persisted diff, instead of DIFF.")
@click.option("--events", "with_events", is_flag=True, help="With --format json: the events too.")
@cache_root_option
@repo_option
@output_options((*FORMATS, "html"))
@answers
def show(
    *,
    given_id: str | None,
    diff_id: str | None,
    cache_root: str | None,
    repo: str | None,
    format_name: str,
    compact: bool,
    with_events: bool,
) -> int:
    """Show a persisted diff."""
    wanted = diff_id or given_id
    if not wanted:
        raise IndexRefError("the id of a diff is needed: driftline index show DIFF (driftline index list has them)")
    stored = open_registry(cache_root, repo).load(wanted)
    print_diff(stored, format_name, compact, {"inputs": stored.inputs}, with_events=with_events, repo=repo)
    return SAME


@click.command("list", cls=AnsweringCommand, epilog=_LIST_EPILOG)
@click.option("--modes", "--mode", "modes", multiple=True, metavar="CSV", help="Only diffs with all of these modes.")
@cache_root_option
@repo_option
@output_options()
@answers
def list_diffs(
    *, modes: tuple[str, ...], cache_root: str | None, repo: str | None, format_name: str, compact: bool
) -> int:
    """List persisted diffs, newest first."""
    from driftline.codeindex import render
    from driftline.codeindex.options import parse_modes

    entries = open_registry(cache_root, repo).entries(parse_modes(modes) if modes else ())
    if format_name == "text":
        say_lines(render.entry_lines(entries))
    elif format_name == "json":
        print_json({"ok": True, "diffs": entries}, compact)
    elif format_name == "jsonl":
        for entry in entries:
            print_json(entry, compact=True)
    else:
        click.echo(render.entries_markdown(entries))
    return SAME


@click.command("prune", cls=AnsweringCommand, epilog=_PRUNE_EPILOG)
@click.option("--max-diffs", default="50", show_default=True, metavar="N", help="Keep the newest N.")
@click.option("--retain-days", default="30", show_default=True, metavar="D", help="Keep diffs younger than D days.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--wait-ms", default="0", show_default=True, metavar="MS", help="How long to wait for the lock.")
@cache_root_option
@repo_option
@output_options()
@answers
def prune_diffs(
    *,
    max_diffs: str,
    retain_days: str,
    dry_run: bool,
    wait_ms: str,
    cache_root: str | None,
    repo: str | None,
    format_name: str,
    compact: bool,
) -> int:
    """Remove old diffs and orphan directories; a diff stays if it is among the newest or young enough."""
    from driftline.codeindex import prune, render
    from driftline.codeindex.options import whole_number

    wait = whole_number(wait_ms, "wait-ms", minimum=0)
    registry = open_registry(cache_root, repo)
    pruned = prune(registry, max_diffs=max_diffs, retain_days=retain_days, dry_run=dry_run, wait_ms=wait)
    if format_name == "text":
        say_lines(render.pruned_lines(pruned))
    elif format_name == "markdown":
        click.echo("\n".join(f"- {line}" for line in render.pruned_lines(pruned)))
    else:
        print_json({"ok": True, **pruned.to_dict()}, compact or format_name == "jsonl")
    return SAME
