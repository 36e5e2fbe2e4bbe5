"""`driftline index`: indexes of git revisions, what changed between two of them, and the diffs that were kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from driftline.cli import _index_views as views
from driftline.cli._group import engine_options, report_choice
from driftline.cli._outcome import DIFFERENT, ERROR, SAME
from driftline.cli._terminal import progress_bar
from driftline.errors import IndexRefError

if TYPE_CHECKING:
    from driftline.codeindex import ApiReport, Built, IndexDiffJob, KeptDiff, ModeScheduler


@click.group()
def index() -> None:
    """Compare two versions of a code base, definition by definition."""


_CACHE_ROOTS = "The repository's cache directory; repeat it to compute over many repositories at once."
_MODES = "code, prose, extracted-prose, records. Default: code."
_STATES = ("latest", "worktree", "staged")
_PREFIXES = ("build", "snap", "tag", "path", "git")


class TwoSidesCommand(views.OutputCommand):
    """Takes both sides as options or, shorter, as words like those of `git diff`; paths stand behind `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words, paths = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        rest = super().parse_args(ctx, words)
        refs, staged = ctx.params.pop("refs", ()), ctx.params.pop("staged", False)
        given = [name for name in ("from_ref", "to_ref") if ctx.params[name]]
        if (refs and given) or len(refs) > 2 or (staged and len(refs) > 1):
            raise click.UsageError("write at most two references, or --from and --to", ctx)
        if not given:
            ctx.params["from_ref"], ctx.params["to_ref"] = _sides(refs, staged, ctx.params.get("repo") or ".")
        if "paths" in ctx.params:
            ctx.params["paths"] = tuple(paths)
        elif paths:
            raise click.UsageError("this command takes no paths: use --only", ctx)
        return rest


def _sides(refs: tuple[str, ...], staged: bool, repo: str) -> tuple[str, str]:
    """Both sides of a comparison, from no, one or two words."""
    newest = "staged" if staged else "worktree"
    if len(refs) != 1 or ":" in refs[0].replace(":/", "") or ".." not in refs[0]:
        return _reference(refs[0] if refs else "HEAD"), _reference(refs[1]) if len(refs) > 1 else newest
    three = "..." in refs[0]
    before, _, after = (word.strip() or "HEAD" for word in refs[0].partition("..." if three else ".."))
    if three:
        from driftline.codeindex import GitRepository

        before = GitRepository(repo).merge_base(before, after)
    return f"git:{before}", f"git:{after}"


def _reference(word: str) -> str:
    """A bare revision is one of git."""
    plain = word.strip().lower()
    known = plain in _STATES or plain.partition(":")[0] in _PREFIXES or plain.startswith(("/", ".", "~"))
    return word if known else f"git:{word}"


@index.command("diff", cls=TwoSidesCommand)
@click.argument("refs", nargs=-1, metavar="[FROM [TO] | FROM..TO] [-- PATHS]")
@click.option("--staged", is_flag=True, help="The side after is what is staged, not the working tree.")
@click.option("--paths", "paths", hidden=True, multiple=True, help="Only these paths, as behind --.")
@click.option("--from", "from_ref", metavar="REF", help="The side before.")
@click.option("--to", "to_ref", metavar="REF", help="The side after.")
@views.repo_option
@click.option("--cache-root", "cache_roots", multiple=True, metavar="DIR", help=_CACHE_ROOTS)
@click.option("--modes", "--mode", "modes", multiple=True, metavar="CSV", help=_MODES)
@click.option("--kind", metavar="KIND", help="semantic-v1 or semantic-v2. Default: v2 between git: references.")
@click.option("--max-changed-files", metavar="N", help="Above: no chunk diff. Default: 200, v2: 5000.")
@click.option("--max-chunks-per-file", metavar="N", help="Above: file skipped. Default: 500, v2: 5000.")
@click.option("--max-events", default="20000", show_default=True, metavar="N", help="Events are cut after N.")
@click.option("--include-relations/--no-include-relations", default=True, help="Compare edges. Default: yes.")
@click.option("--detect-renames/--no-detect-renames", default=True, help="Pair what was renamed. Default: yes.")
@click.option("--persist/--no-persist", default=True, help="Keep the diff in the registry. Default: yes.")
@click.option("--persist-unsafe", is_flag=True, help="Persist diffs of path: references too (redacted).")
@click.option("--allow-mismatch", is_flag=True, help="Compare builds made with different configurations.")
@click.option("--wait-ms", default="10000", show_default=True, metavar="MS", help="How long to wait for the lock.")
@click.option("--fetch-missing", is_flag=True, help="Fetch what a partial clone lacks, in one go.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when there are differences.")
@click.option("--events", "with_events", is_flag=True, help="With --format json: the events too.")
@engine_options
@views.output_options((*views.FORMATS, "html", "github"))
@views.with_output
def index_diff(
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
    from driftline.codeindex import IndexDiffJob, name_repositories

    if not from_ref or not to_ref:
        raise IndexRefError("--from and --to are both needed, or neither")
    # The variable names one directory; click would split it at blanks.
    variable = os.environ.get(views.CACHE_ROOT_VARIABLE)
    roots: tuple[str | None, ...] = cache_roots or (variable or None,)
    jobs = name_repositories([IndexDiffJob.of(from_ref, to_ref, root, **options) for root in roots])
    if len(jobs) > 1:
        outcomes = _compute_many(jobs, engine, master, with_events or format_name in ("jsonl", "markdown"))
        views.print_outcomes(outcomes, format_name, compact)
        changed = any(outcome.get("changed") for outcome in outcomes)
        failed = not all(outcome["ok"] for outcome in outcomes)
        return ERROR if failed else DIFFERENT if exit_code and changed else SAME
    kept = _compute_one(jobs[0], engine, master)
    facts = {"persisted": kept.persisted, "reused": kept.reused}
    repo = (jobs[0].repo or ".") if from_ref.strip().lower().startswith(("git:", "worktree", "staged")) else None
    views.print_diff(kept.result, format_name, compact, facts, with_events=with_events, repo=repo)
    if kept.note and format_name == "text":
        views.say_lines([kept.note])
    return DIFFERENT if exit_code and kept.result.has_changes else SAME


def _compute_one(job: IndexDiffJob, engine: str, master: str | None) -> KeptDiff:
    from driftline.codeindex import choose_engine, compute, diff_mode

    with progress_bar() as tracker:
        request, cache = job.prepare(tracker)
    scheduling: AbstractContextManager[ModeScheduler] = nullcontext(diff_mode)
    if report_choice(engine, choose_engine(request, engine, master)) == "spark":
        from driftline.spark import index_scheduler

        scheduling = index_scheduler(master)
    with progress_bar() as tracker, scheduling as scheduler:
        return job.shown(compute(request, cache, job.keeping, scheduler=scheduler, tracker=tracker))


def _compute_many(jobs: list[IndexDiffJob], engine: str, master: str | None, with_events: bool) -> list[dict[str, Any]]:
    from driftline.core import choose_engine

    # Sizes are not known before the indexes are made, which is a part of the work: repositories are spread over the
    # cores of this machine, unless Spark was requested or is configured.
    if choose_engine("index", engine, sizes=lambda: [None], master=master).name == "spark":
        from driftline.spark import run_jobs

        return run_jobs(jobs, master, with_events=with_events)
    from driftline.codeindex import run_many

    with progress_bar() as tracker:
        return run_many(jobs, tracker, with_events=with_events)


@index.command("build", cls=views.OutputCommand)
@click.argument("repository", metavar="REPO[@REF]")
@click.option("--force", is_flag=True, help="Build anew, even if the build is there.")
@click.option("--wait-ms", default="10000", show_default=True, metavar="MS", help="How long to wait for the lock.")
@views.cache_root_option
@views.output_options(("text", "json"))
@views.with_output
def build_index(
    *, repository: str, force: bool, wait_ms: str, cache_root: str | None, format_name: str, compact: bool
) -> int:
    """Index a git revision: its files, definitions, and what they call and import."""
    from driftline.codeindex import GitRepository, build_index as build, default_cache_root, open_cache, whole_number

    # At the last @, unless the whole is a directory.
    whole = os.path.isdir(repository) or "@" not in repository
    directory, _, revision = (repository, "", "HEAD") if whole else repository.rpartition("@")
    source = GitRepository(directory or ".")
    cache = open_cache(cache_root or default_cache_root(source))
    wait = whole_number(wait_ms, "wait-ms", minimum=0)
    with progress_bar() as tracker:
        built = build(source, revision or "HEAD", cache, current=True, force=force, wait_ms=wait, tracker=tracker)
    if format_name == "json":
        views.print_json({"ok": True, **built.to_dict()}, compact)
    else:
        views.say_lines(_lines(built))
    return SAME


def _lines(built: Built) -> Iterator[str]:
    made = "already there" if built.reused else f"{built.parsed} files parsed"
    yield f"{built.build_id}: {built.files} files, {built.chunks} chunks ({made})"
    for reason, count in built.skipped.items():
        yield f"skipped as {reason}: {count}"
    if built.parse_errors:
        yield f"not quite understood: {built.parse_errors} files (their definitions are in the index)"


@index.command("api", cls=TwoSidesCommand)
@click.argument("refs", nargs=-1, metavar="[FROM [TO] | FROM..TO]")
@click.option("--staged", is_flag=True, help="The side after is what is staged, not the working tree.")
@click.option("--from", "from_ref", metavar="REF", help="The side before.")
@click.option("--to", "to_ref", metavar="REF", help="The side after.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when something breaks.")
@click.option("--strict", is_flag=True, help="As --exit-code; unknown changes and stale entries count too.")
@click.option("--breaking-only", is_flag=True, help="Leave compatible changes out.")
@click.option("--all", "everything", is_flag=True, help="Show changes of level patch too.")
@click.option("--only", multiple=True, metavar="PATH|UNIT", help="Only what is defined there; can be repeated.")
@click.option("--write-accepted", is_flag=True, help="Add all breaks to .driftline/api-accepted.toml of the checkout.")
@views.repo_option
@views.cache_root_option
@views.output_options((*views.FORMATS, "github"))
@views.with_output
def api(
    *,
    from_ref: str | None,
    to_ref: str | None,
    exit_code: bool,
    strict: bool,
    breaking_only: bool,
    everything: bool,
    only: tuple[str, ...],
    write_accepted: bool,
    repo: str | None,
    cache_root: str | None,
    format_name: str,
    compact: bool,
) -> int:
    """Say what changed for callers, what breaks them, and which version that needs."""
    from driftline.codeindex import api as compare, report_github, report_lines, report_markdown

    if not from_ref or not to_ref:
        raise IndexRefError("--from and --to are both needed, or neither")
    with progress_bar() as tracker:
        report = compare(from_ref, to_ref, cache_root, repo=repo, only=only, tracker=tracker)
    if write_accepted:
        views.say_lines(_accept(report, repo or "."))
    levels = ("major", "unknown", *(() if breaking_only else ("minor", *(("patch",) if everything else ()))))
    shown = report if format_name in ("json", "jsonl") and not breaking_only else report.only(levels)
    if format_name == "text" and views.is_watched():
        views.show_api(shown)
    elif format_name == "text":
        views.say_lines(report_lines(shown))
    elif format_name in ("github", "markdown"):
        click.echo(report_markdown(shown) if format_name == "markdown" else "\n".join(report_github(shown)))
    elif format_name == "json":
        views.print_json({"ok": True, **shown.to_dict()}, compact)
    else:
        for change in shown.to_dict()["changes"]:
            views.print_json(change, compact=True)
    return DIFFERENT if (exit_code or strict) and report.fails(strict=strict) else SAME


def _accept(report: ApiReport, repo: str) -> list[str]:
    """Add all breaks to the list of accepted ones."""
    from driftline.codeindex import ACCEPTED_FILE, accepted_toml

    path = os.path.join(repo, ACCEPTED_FILE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", encoding="utf-8") as out:
        out.write(accepted_toml(report))
    return [f"{len(report.breaking)} breaks added to {ACCEPTED_FILE}: say why, and commit it"]


@index.command("show", cls=views.OutputCommand)
@click.argument("given_id", metavar="[DIFF]", required=False)
@click.option("--diff", "diff_id", metavar="ID", help="The id of a persisted diff, instead of DIFF.")
@click.option("--events", "with_events", is_flag=True, help="With --format json: the events too.")
@views.cache_root_option
@views.repo_option
@views.output_options((*views.FORMATS, "html"))
@views.with_output
def show(*, given_id: str | None, diff_id: str | None, cache_root: str | None, repo: str | None, **output: Any) -> int:
    """Show a persisted diff."""
    requested = diff_id or given_id
    if not requested:
        raise IndexRefError("the id of a diff is needed: driftline index show DIFF (driftline index list has them)")
    stored = views.open_registry(cache_root, repo).load(requested)
    views.print_diff(stored, facts={"inputs": stored.inputs}, repo=repo, **output)
    return SAME


@index.command("list", cls=views.OutputCommand)
@click.option("--modes", "--mode", "modes", multiple=True, metavar="CSV", help="Only diffs with all of these modes.")
@views.cache_root_option
@views.repo_option
@views.output_options()
@views.with_output
def list_diffs(
    *, modes: tuple[str, ...], cache_root: str | None, repo: str | None, format_name: str, compact: bool
) -> int:
    """List persisted diffs, newest first."""
    from driftline.codeindex import entries_markdown, entry_lines, parse_modes

    entries = views.open_registry(cache_root, repo).entries(parse_modes(modes) if modes else ())
    if format_name == "text" and views.is_watched():
        views.show_entries(entries)
    elif format_name == "text":
        views.say_lines(entry_lines(entries))
    elif format_name == "json":
        views.print_json({"ok": True, "diffs": entries}, compact)
    elif format_name == "jsonl":
        for entry in entries:
            views.print_json(entry, compact=True)
    else:
        click.echo(entries_markdown(entries))
    return SAME


@index.command("prune", cls=views.OutputCommand)
@click.option("--max-diffs", default="50", show_default=True, metavar="N", help="Keep the newest N.")
@click.option("--retain-days", default="30", show_default=True, metavar="D", help="Keep diffs younger than D days.")
@click.option("--max-builds", default="20", show_default=True, metavar="N", help="Keep the newest N builds.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--wait-ms", default="10000", show_default=True, metavar="MS", help="How long to wait for the lock.")
@views.cache_root_option
@views.repo_option
@views.output_options()
@views.with_output
def prune_diffs(
    *,
    dry_run: bool,
    wait_ms: str,
    cache_root: str | None,
    repo: str | None,
    format_name: str,
    compact: bool,
    **limits: Any,
) -> int:
    """Remove old diffs and builds, and what killed processes left; the newest and the young diffs stay."""
    from driftline.codeindex import prune, pruned_lines, whole_number

    wait = whole_number(wait_ms, "wait-ms", minimum=0)
    pruned = prune(views.open_registry(cache_root, repo), dry_run=dry_run, wait_ms=wait, **limits)
    if format_name == "text":
        views.say_lines(pruned_lines(pruned))
    elif format_name == "markdown":
        click.echo("\n".join(f"- {line}" for line in pruned_lines(pruned)))
    else:
        views.print_json({"ok": True, **pruned.to_dict()}, compact or format_name == "jsonl")
    return SAME
