"""`driftline index diff`: what changed between two versions of a code base."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.engine_options import engine_options, tell_choice
from driftline.cli.index_answers import (
    CACHE_ROOT_VARIABLE,
    FORMATS,
    AnsweringCommand,
    answers,
    output_options,
    print_diff,
    print_outcomes,
    repo_option,
    say_lines,
)
from driftline.cli.outcome import DIFFERENT, ERROR, SAME
from driftline.cli.terminal import progress_bar
from driftline.errors import IndexRefError

if TYPE_CHECKING:
    from driftline.codeindex import KeptDiff
    from driftline.codeindex._diff.diff import ModeScheduler
    from driftline.codeindex._registry.keep import DiffJob

_DIFF_EPILOG = """\b
Examples:
  driftline index diff git:v1.0 git:HEAD
  driftline index diff git:main git:HEAD --format markdown --exit-code
  driftline index diff tag:release latest --cache-root .cache/myrepo

A side is git:<revision> of the repository --repo (which is indexed where that was not done yet), or an index that is
there: latest, build:<id>, snap:<id>, tag:<tag> or path:<directory>. Without a subcommand, compute is meant.

Exit codes: 0 done, 2 error; with --exit-code, 1 when there are differences.
"""
_COMPUTE_EPILOG = """\b
Examples:
  driftline index diff git:v1.0 git:v2.0 --repo ../project -o review.html
  driftline index diff build:b1 latest --cache-root .cache/myrepo --format json
  driftline index diff --from path:old --to path:new --modes code,prose --format jsonl --compact
  driftline index diff snap:snap-1 latest --cache-root .cache/a --cache-root .cache/b --exit-code

JSON, JSONL and Markdown go to stdout, human text to stderr. Diffs of path: references are not persisted unless
--persist-unsafe is given; then only a hash of the path is.
"""


class _DefaultToCompute(click.Group):
    """A group whose words without a subcommand are those of `compute`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `compute` in front of options and references."""
        if args and args[0] not in ("-h", "--help", *self.commands):
            args = ["compute", *args]
        return super().parse_args(ctx, args)


class TwoSidesCommand(AnsweringCommand):
    """Takes both sides as options or, shorter, as two words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the two words where the options would be."""
        rest = super().parse_args(ctx, args)
        refs = ctx.params.pop("refs", ())
        if refs and (len(refs) != 2 or ctx.params["from_ref"] or ctx.params["to_ref"]):
            raise click.UsageError("write two references, or --from and --to", ctx)
        if refs:
            ctx.params["from_ref"], ctx.params["to_ref"] = refs
        return rest


@click.group("diff", cls=_DefaultToCompute, epilog=_DIFF_EPILOG)
def index_diff() -> None:
    """Compare two versions of a code base; list, show and prune what was computed."""


@index_diff.command("compute", cls=TwoSidesCommand, epilog=_COMPUTE_EPILOG)
@click.argument("refs", nargs=-1, metavar="[FROM TO]")
@click.option("--from", "from_ref", metavar="REF", help="The side before.")
@click.option("--to", "to_ref", metavar="REF", help="The side after.")
@repo_option
@click.option(
    "--cache-root",
    "cache_roots",
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
@click.option("--kind", metavar="KIND", help="semantic-v1 or semantic-v2. Default: v2 between git: references.")
@click.option("--max-changed-files", metavar="N", help="Above: no chunk diff. Default: 200, v2: 5000.")
@click.option("--max-chunks-per-file", metavar="N", help="Above: file skipped. Default: 500, v2: 5000.")
@click.option("--max-events", default="20000", show_default=True, metavar="N", help="Events are cut after N.")
@click.option("--include-relations/--no-include-relations", default=True, help="Compare edges. Default: yes.")
@click.option("--detect-renames/--no-detect-renames", default=True, help="Pair what was renamed. Default: yes.")
@click.option("--persist/--no-persist", default=True, help="Keep the diff in the registry. Default: yes.")
@click.option("--persist-unsafe", is_flag=True, help="Persist diffs of path: references too (redacted).")
@click.option("--allow-mismatch", is_flag=True, help="Compare builds made with different configurations.")
@click.option("--wait-ms", default="0", show_default=True, metavar="MS", help="How long to wait for the lock.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when there are differences.")
@click.option("--events", "with_events", is_flag=True, help="With --format json: the events too.")
@engine_options
@output_options((*FORMATS, "html"))
@answers
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
    """Compare two versions of a code base."""
    from driftline.codeindex._registry.keep import DiffJob, name_repositories

    if not from_ref or not to_ref:
        raise IndexRefError("--from and --to are both needed")
    # The variable names one directory; click would split it at blanks.
    variable = os.environ.get(CACHE_ROOT_VARIABLE)
    roots: tuple[str | None, ...] = cache_roots or (variable or None,)
    jobs = name_repositories([DiffJob.of(from_ref, to_ref, root, **options) for root in roots])
    if len(jobs) > 1:
        outcomes = _compute_many(jobs, engine, master, with_events or format_name in ("jsonl", "markdown"))
        print_outcomes(outcomes, format_name, compact)
        changed = any(outcome.get("changed") for outcome in outcomes)
        failed = not all(outcome["ok"] for outcome in outcomes)
        return ERROR if failed else DIFFERENT if exit_code and changed else SAME
    kept = _compute_one(jobs[0], engine, master)
    facts = {"persisted": kept.persisted, "reused": kept.reused}
    repo = (jobs[0].repo or ".") if from_ref.strip().lower().startswith("git:") else None
    print_diff(kept.result, format_name, compact, facts, with_events=with_events, repo=repo)
    if kept.note and format_name == "text":
        say_lines([kept.note])
    return DIFFERENT if exit_code and kept.result.has_changes else SAME


def _compute_one(job: DiffJob, engine: str, master: str | None) -> KeptDiff:
    from driftline.codeindex import compute as compute_diff
    from driftline.codeindex._registry.keep import choose_engine

    with progress_bar() as tracker:
        request, cache = job.prepare(tracker)
    chosen = tell_choice(engine, choose_engine(request, engine, master))
    with progress_bar() as tracker, _scheduler(chosen, master) as scheduler:
        return compute_diff(request, cache, job.keeping, scheduler=scheduler, tracker=tracker)


def _scheduler(engine: str, master: str | None) -> AbstractContextManager[ModeScheduler]:
    if engine == "spark":
        from driftline.spark._index import mode_scheduler

        return mode_scheduler(master)
    from driftline.codeindex._diff.modes import diff_mode

    return nullcontext(diff_mode)


def _compute_many(jobs: list[DiffJob], engine: str, master: str | None, with_events: bool) -> list[dict[str, Any]]:
    from driftline.core._engines import choose_engine

    # Repositories are spread over the cores of this machine, unless Spark was asked for or is configured.
    if choose_engine("index", engine, size=lambda: 0, master=master).name == "spark":
        from driftline.spark._index import run_jobs

        return run_jobs(jobs, master, with_events=with_events)
    from driftline.codeindex._registry.keep import run_many

    with progress_bar() as tracker:
        return run_many(jobs, tracker, with_events=with_events)
