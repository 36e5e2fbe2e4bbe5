"""`driftline index build`: an index of a git revision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from driftline.cli.index_answers import (
    AnsweringCommand,
    answers,
    cache_root_option,
    output_options,
    print_json,
    say_lines,
)
from driftline.cli.outcome import SAME
from driftline.cli.terminal import progress_bar

if TYPE_CHECKING:
    from driftline.codeindex.building import Built

_EPILOG = """\b
Examples:
  driftline index build .
  driftline index build ../project@v2.0 --format json
  driftline index build project.git@main --cache-root .cache/project

Reads git objects only, never a checkout; only blobs that no earlier build knows are parsed. The build becomes `latest`.
"""


@click.command("build", cls=AnsweringCommand, epilog=_EPILOG)
@click.argument("repository", metavar="REPO[@REF]")
@click.option("--force", is_flag=True, help="Build anew, even if the build is there.")
@click.option("--wait-ms", default="10000", show_default=True, metavar="MS", help="How long to wait for the lock.")
@cache_root_option
@output_options(("text", "json"))
@answers
def build_index(
    *, repository: str, force: bool, wait_ms: str, cache_root: str | None, format_name: str, compact: bool
) -> int:
    """Index a git revision: its files, definitions, and what they call and import."""
    from driftline.codeindex.building import build, default_cache_root, open_cache
    from driftline.codeindex.git_objects import GitRepository
    from driftline.codeindex.options import whole_number

    directory, revision = _split(repository)
    source = GitRepository(directory)
    cache = open_cache(cache_root or default_cache_root(source))
    wait = whole_number(wait_ms, "wait-ms", minimum=0)
    with progress_bar() as tracker:
        built = build(source, revision, cache, current=True, force=force, wait_ms=wait, tracker=tracker)
    if format_name == "json":
        print_json({"ok": True, **built.to_dict()}, compact)
    else:
        say_lines(_lines(built))
    return SAME


def _split(given: str) -> tuple[str, str]:
    """`REPO@REF` at the last @, unless the whole is a directory."""
    if os.path.isdir(given) or "@" not in given:
        return given, "HEAD"
    directory, _, revision = given.rpartition("@")
    return directory or ".", revision or "HEAD"


def _lines(built: Built) -> Iterator[str]:
    made = "already there" if built.reused else f"{built.parsed} files parsed"
    yield f"{built.build_id}: {built.files} files, {built.chunks} chunks ({made})"
    for reason, count in built.skipped.items():
        yield f"skipped as {reason}: {count}"
    if built.parse_errors:
        yield f"not quite understood: {built.parse_errors} files (their definitions are in the index)"
