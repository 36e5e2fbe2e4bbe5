"""Diffs on stdout, and on stderr for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from driftline.cli.index_answers import binary_stdout, print_json, say_lines
from driftline.errors import IndexRefError

if TYPE_CHECKING:
    from driftline.codeindex import IndexDiff


def print_diff(
    result: IndexDiff,
    format_name: str,
    compact: bool,
    facts: dict[str, Any],
    *,
    with_events: bool,
    repo: str | None = None,
) -> None:
    """One diff in the format asked for; with a repository, reviews show its source."""
    from driftline.codeindex import render

    if format_name == "text":
        say_lines(render.summary_lines(result))
    elif format_name in ("markdown", "html"):
        click.echo(_page(result, format_name, repo))
    elif format_name == "json":
        events = {"events": list(result.events)} if with_events else {}
        print_json({"ok": True, "diffId": result.diff_id, **facts, "summary": result.summary, **events}, compact)
    else:
        with binary_stdout() as write:
            for event in result.events:
                write(render.json_line(event, compact=compact))


def _page(result: IndexDiff, format_name: str, repo: str | None) -> str:
    from driftline.codeindex import render
    from driftline.codeindex.git_objects import GitRepository
    from driftline.codeindex.options import V2
    from driftline.codeindex.review import review_html, review_markdown
    from driftline.codeindex.review_source import ReviewSource

    if result.inputs["kind"] != V2:
        if format_name == "html":
            raise IndexRefError("--format html shows diffs of git: references; this one is semantic-v1")
        return render.diff_markdown(result)
    source = ReviewSource(result.events, GitRepository(repo) if repo else None)
    return (review_html if format_name == "html" else review_markdown)(result, source)


def print_outcomes(outcomes: list[dict[str, Any]], format_name: str, compact: bool) -> None:
    """The diffs of many repositories, one after the other; failures are told in place, and on stderr."""
    failed = [outcome for outcome in outcomes if not outcome["ok"]]
    if format_name == "json":
        print_json({"ok": not failed, "diffs": outcomes}, compact)
        return
    if format_name == "text":
        say_lines(map(_outcome_line, outcomes))
        return
    for outcome in outcomes:
        if format_name == "markdown":
            click.echo(_markdown(outcome))
        elif outcome["ok"]:
            _print_events(outcome, compact)
    say_lines(map(_outcome_line, failed))


def _print_events(outcome: dict[str, Any], compact: bool) -> None:
    from driftline.codeindex import render

    with binary_stdout() as write:
        for event in outcome["events"]:
            write(render.json_line({"repository": outcome["repository"], **event}, compact=compact))


def _markdown(outcome: dict[str, Any]) -> str:
    from driftline.codeindex import IndexDiff, render

    head = f"# {outcome['repository']}\n\n"
    if not outcome["ok"]:
        return f"{head}error[{outcome['code']}]: {outcome['message']}\n"
    result = IndexDiff(outcome["diffId"], outcome["inputs"], outcome["summary"], outcome["events"])
    return f"{head}{render.diff_markdown(result)}\n"


def _outcome_line(outcome: dict[str, Any]) -> str:
    if not outcome["ok"]:
        return f"{outcome['repository']}: error[{outcome['code']}]: {outcome['message']}"
    total = outcome["summary"]["totalEvents"]
    return f"{outcome['repository']}: {outcome['diffId']}, {total} {'event' if total == 1 else 'events'}"
