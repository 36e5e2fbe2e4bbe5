"""`driftline index api`: what happened to the public surface, as a gate for CI."""

from __future__ import annotations

import click

from driftline.cli.index_answers import (
    answers,
    cache_root_option,
    output_options,
    print_json,
    repo_option,
    say_lines,
)
from driftline.cli.index_diff import TwoSidesCommand
from driftline.cli.outcome import DIFFERENT, SAME
from driftline.cli.terminal import progress_bar
from driftline.errors import IndexRefError

_EPILOG = """\b
Examples:
  driftline index api git:v1.0 git:HEAD
  driftline index api --from git:origin/main --to git:HEAD --exit-code --format markdown

Breaking: removed, another kind, a base removed; a parameter removed, moved, now required or keyword-only. In typed
languages every changed signature is. A name that its module still imports, or that a base class has, is not gone.

Exit codes: 0 done, 2 error; with --exit-code, 1 when something breaks.
"""


@click.command("api", cls=TwoSidesCommand, epilog=_EPILOG)
@click.argument("refs", nargs=-1, metavar="[FROM TO]")
@click.option("--from", "from_ref", metavar="REF", help="The side before.")
@click.option("--to", "to_ref", metavar="REF", help="The side after.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when something breaks.")
@click.option("--breaking-only", is_flag=True, help="Leave compatible changes out.")
@repo_option
@cache_root_option
@output_options()
@answers
def api(
    *,
    from_ref: str | None,
    to_ref: str | None,
    exit_code: bool,
    breaking_only: bool,
    repo: str | None,
    cache_root: str | None,
    format_name: str,
    compact: bool,
) -> int:
    """Say what changed in the public surface, and what breaks callers."""
    from driftline.codeindex import api as compare
    from driftline.codeindex import api_text

    if not from_ref or not to_ref:
        raise IndexRefError("--from and --to are both needed")
    with progress_bar() as tracker:
        report = compare(from_ref, to_ref, cache_root, repo=repo, tracker=tracker)
    shown = report.only_breaking() if breaking_only else report
    if format_name == "text":
        say_lines(api_text.report_lines(shown))
    elif format_name == "markdown":
        click.echo(api_text.report_markdown(shown))
    elif format_name == "json":
        print_json({"ok": True, **shown.to_dict()}, compact)
    else:
        for change in shown.to_dict()["changes"]:
            print_json(change, compact=True)
    return DIFFERENT if exit_code and report.breaking else SAME
