"""Diffs computed and persisted, old ones pruned, and many repositories compared at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from driftline.codeindex._build.build import GIT_BUILD, writer_lock
from driftline.codeindex._diff.diff import DiffRequest, IndexDiff, ModeScheduler, cut, only_below, prepare, run
from driftline.codeindex._diff.modes import diff_mode
from driftline.codeindex._git import STAGED, WORKING_TREE
from driftline.codeindex._read.artifacts import CHUNK_META, fingerprints, read_pieces, stored_bytes
from driftline.codeindex._read.resolve import DiffOptions, IndexDir, diff_id, kind_of, whole_number
from driftline.codeindex._registry.registry import DIFF_ID, LeakCheck, Registry
from driftline.codeindex._storage import CacheRoot, explain, index_lock, names_in, read_object
from driftline.core import (
    EngineChoice,
    JsonObject,
    Tracker,
    WorkerContext,
    choose_engine as choose_by_size,
    exclusive_lock,
    no_progress,
)
from driftline.errors import DriftlineError, IndexRefError, LockedError

PATHS_ARE_NOT_PERSISTED = "path references are not persisted (--persist-unsafe persists them, redacted)"


@dataclass(frozen=True, slots=True)
class KeptDiff:
    """A diff, and whether it was persisted or reused."""

    result: IndexDiff
    persisted: bool = False
    reused: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Keeping:
    """Whether and how a diff is persisted."""

    persist: bool = True
    persist_unsafe: bool = False
    wait_ms: int = 10_000

    def allows(self, request: DiffRequest) -> bool:
        """For path references only `persist_unsafe` is enough; a state that no commit has is gone soon."""
        committed = not {request.before.label, request.after.label} & {WORKING_TREE, STAGED}
        return committed and (self.persist_unsafe or (self.persist and not request.has_path_refs))


def compute(
    request: DiffRequest,
    cache: CacheRoot | None,
    keeping: Keeping | None = None,
    *,
    scheduler: ModeScheduler = diff_mode,
    tracker: Tracker | None = None,
) -> KeptDiff:
    """The diff of a request: from the registry where it is still right, else computed and kept."""
    policy = keeping or Keeping()
    if not policy.allows(request):
        note = PATHS_ARE_NOT_PERSISTED if policy.persist and request.has_path_refs else None
        return KeptDiff(run(request, scheduler=scheduler, tracker=tracker), note=note)
    if cache is None:
        raise IndexRefError("a cache root is needed to persist a diff (--cache-root, or --no-persist)")
    registry = Registry(cache)
    marks = {"from": fingerprints(request.before), "to": fingerprints(request.after)}
    stored = _reusable(registry, request, marks)
    if stored is not None:
        return KeptDiff(stored, persisted=True, reused=True)
    result = run(request, scheduler=scheduler, tracker=tracker)
    with index_lock(registry.cache, policy.wait_ms):
        # Another process may have computed the same diff meanwhile: the first one stays.
        stored = _reusable(registry, request, marks)
        if stored is not None:
            return KeptDiff(stored, persisted=True, reused=True)
        indexes = [index.path for side in (request.before, request.after) for index in side.indexes.values()]
        places = [cache.path, *indexes, *([request.repository] if request.repository else [])]
        registry.save(result, marks, LeakCheck(places))
    return KeptDiff(result, persisted=True)


def _reusable(registry: Registry, request: DiffRequest, marks: dict[str, dict[str, str]]) -> IndexDiff | None:
    """The stored diff, unless it was truncated or the artifacts have changed since."""
    inputs = request.inputs
    stored = registry.find(diff_id(inputs), inputs)
    if stored is None or stored.summary["truncated"] or stored.inputs.get("fingerprints") != marks:
        return None
    # Under the names that were used this time: two tags may be one tree.
    labels = {"from": request.before.label, "to": request.after.label}
    sides = {side: {**stored.summary[side], "label": label} for side, label in labels.items() if label is not None}
    summary, index = stored.summary | sides, request.after.indexes.get("code")
    labelled = replace(stored, summary=summary, repository=request.repository, after_index=index)
    return cut(labelled, request.options.max_events)


# Old diffs, and what killed processes left behind.


@dataclass(slots=True)
class Pruned:
    """What a prune removed, or would remove."""

    removed: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    builds: list[str] = field(default_factory=list)
    kept: int = 0
    dry_run: bool = False

    def to_dict(self) -> JsonObject:
        lists = {"removed": self.removed, "orphans": self.orphans, "builds": self.builds}
        return {**lists, "kept": self.kept, "dryRun": self.dry_run}


def prune(
    registry: Registry,
    *,
    max_diffs: object = 50,
    retain_days: object = 30,
    max_builds: object = 20,
    dry_run: bool = False,
    wait_ms: int = 10_000,
    now: datetime | None = None,
) -> Pruned:
    """Remove old diffs and builds, and what killed processes left.

    A diff stays among the newest `max_diffs` or if it is younger than `retain_days`, a build of a git tree among the
    newest `max_builds`, or as the latest one.
    """
    newest = whole_number(max_diffs, "max-diffs", minimum=0)
    builds = whole_number(max_builds, "max-builds", minimum=0)
    days = min(whole_number(retain_days, "retain-days", minimum=0), 365_000)
    oldest = (now or datetime.now(UTC)) - timedelta(days=days)
    with nullcontext() if dry_run else index_lock(registry.cache, wait_ms):
        plan = _plan(registry, newest, oldest, builds, dry_run=dry_run)
        if dry_run:
            return plan
        manifest = registry.manifest()
        for diff_id in plan.removed:
            del manifest["diffs"][diff_id]
        if plan.removed:
            # First out of the manifest: a prune that is killed here leaves orphans for the next one.
            registry.write_manifest(manifest)
        for name in (*plan.removed, *plan.orphans):
            _remove(registry, "diffs", name)
        for name in plan.builds:
            _remove(registry, "builds", name)
        return plan


def _plan(registry: Registry, newest: int, oldest: datetime, builds: int, *, dry_run: bool) -> Pruned:
    listed = registry.entries()
    entries = [entry for entry in listed if not entry.get("foreign")]
    # Directories of diffs, listed or not, and temporary files; other files belong to other tools.
    names = names_in(registry.cache.inside("diffs", "diffs"), "diffs")
    present = {name for name in names if DIFF_ID.fullmatch(name) or (name.startswith(".") and name.endswith(".tmp"))}
    stays = [
        entry["diffId"] in present and (rank < newest or _created_at(entry["createdAt"]) > oldest)
        for rank, entry in enumerate(entries)
    ]
    removed = [entry["diffId"] for entry, stay in zip(entries, stays, strict=True) if not stay]
    known = {entry["diffId"] for entry in listed}
    return Pruned(removed, sorted(present - known), _old_builds(registry, builds), sum(stays), dry_run)


def _old_builds(registry: Registry, newest: int) -> list[str]:
    """Builds of git trees that are not needed, and folders whose writer is gone."""
    folder = Path(registry.cache.inside("builds", "builds"))
    names = names_in(folder, "builds")
    current = folder / "current.json"
    latest = read_object(current, "builds/current.json").get("buildId") if current.is_file() else None
    made = [name for name in names if GIT_BUILD.fullmatch(name)]
    made.sort(key=lambda name: (folder / name).stat().st_mtime_ns, reverse=True)
    left = [name for name in names if name.startswith(".") and name.endswith(".tmp") and not _is_written(folder / name)]
    return sorted([*(name for name in made[newest:] if name != latest), *left])


def _is_written(folder: Path) -> bool:
    """Whether a process still writes a temporary folder: then it holds the lock of it."""
    try:
        with exclusive_lock(writer_lock(folder), scope="index-build"):
            return False
    except LockedError:
        return True


def _remove(registry: Registry, folder: str, name: str) -> None:
    path = Path(registry.cache.inside(folder, folder)) / name
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise explain(error, f"{folder}/{name}") from None


def _created_at(created_at: str) -> datetime:
    try:
        found = datetime.fromisoformat(created_at.replace("Z", "+00:00"))
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


# Jobs: one diff as plain data, which another process can compute.


@dataclass(frozen=True, slots=True)
class IndexDiffJob:
    """Everything needed to compute one diff, as plain data."""

    from_ref: str
    to_ref: str
    cache_root: str | None
    options: DiffOptions
    keeping: Keeping
    allow_mismatch: bool = False
    repository: str = "."
    repo: str | None = None
    paths: tuple[str, ...] = ()
    fetch_missing: bool = False

    @classmethod
    def of(
        cls,
        from_ref: str,
        to_ref: str,
        cache_root: str | None,
        *,
        modes: Sequence[str] | str = (),
        persist: bool = True,
        persist_unsafe: bool = False,
        wait_ms: object = 10_000,
        kind: str | None = None,
        paths: Sequence[str] = (),
        **others: Any,
    ) -> IndexDiffJob:
        """A job from the values of a user's options."""
        own = ("allow_mismatch", "repo", "fetch_missing")
        more = {name: others.pop(name) for name in own if name in others}
        options = DiffOptions.of(modes or ("code",), kind=kind_of(kind, (from_ref, to_ref)), **others)
        keeping = Keeping(persist, persist_unsafe, whole_number(wait_ms, "wait-ms", minimum=0))
        return cls(from_ref, to_ref, cache_root, options, keeping, paths=tuple(paths), **more)

    def prepare(self, tracker: Tracker | None = None) -> tuple[DiffRequest, CacheRoot | None]:
        """Find what the references mean; git revisions that have no build yet get one."""
        how: Any = {"allow_mismatch": self.allow_mismatch, "fetch_missing": self.fetch_missing}
        how |= {"wait_ms": self.keeping.wait_ms, "tracker": tracker}
        request = prepare(self.from_ref, self.to_ref, self.cache_root, self.options, repo=self.repo, **how)
        return request, request.cache

    def run(self) -> KeptDiff:
        """Resolve, compute on this machine and keep."""
        return self.shown(compute(*self.prepare(), self.keeping))

    def shown(self, kept: KeptDiff) -> KeptDiff:
        """What was requested: the diff below the paths."""
        return replace(kept, result=only_below(kept.result, self.paths)) if self.paths else kept


def name_repositories(jobs: Sequence[IndexDiffJob]) -> list[IndexDiffJob]:
    """Jobs with names for their repositories: the shortest end of the path that is unique."""
    roots = [Path(os.path.abspath(job.cache_root)).parts[1:] if job.cache_root else (".",) for job in jobs]
    named = []
    for job, parts in zip(jobs, roots, strict=True):
        ends = (parts[-length:] for length in range(1, len(parts) + 1))
        others = [other for other in roots if other != parts]
        unique = (end for end in ends if all(other[-len(end) :] != end for other in others))
        named.append(replace(job, repository="/".join(next(unique, parts)) or "."))
    return named


def choose_engine(request: DiffRequest, engine: str, master: str | None) -> EngineChoice:
    """The engine for a request and the reason for it."""
    indexes = [index for side in (request.before, request.after) for index in side.indexes.values()]
    return choose_by_size("index", engine, sizes=lambda: list(map(_chunk_bytes, indexes)), master=master)


def _chunk_bytes(index: IndexDir) -> int | None:
    """Bytes of the chunk rows of an index, as stored; None for one that the diff itself will refuse."""
    try:
        return stored_bytes(index, CHUNK_META, read_pieces(index))
    except DriftlineError:
        return None


def run_many(
    jobs: Sequence[IndexDiffJob], tracker: Tracker | None = None, *, with_events: bool = False
) -> list[JsonObject]:
    """Compute many repositories in processes of this machine; an outcome each, in the order given."""
    workers = min(len(jobs), os.cpu_count() or 1)
    run = partial(run_job, with_events=with_events)
    if workers < 2:
        return list(map(run, jobs))
    watch = tracker or no_progress()
    outcomes = []
    with (
        watch.phase("repositories", total=len(jobs), unit="items"),
        ProcessPoolExecutor(workers, mp_context=WorkerContext()) as pool,
    ):
        for outcome in pool.map(run, jobs):
            outcomes.append(outcome)
            watch.advance()
    return outcomes


def run_job(job: IndexDiffJob, *, with_events: bool = False) -> JsonObject:
    """The outcome of one job as plain data; an error is an outcome too."""
    try:
        kept = job.run()
        events = {"inputs": kept.result.inputs, "events": list(kept.result.events)} if with_events else {}
    except (DriftlineError, OSError) as error:
        # The message of the system names an absolute path.
        reason = error.message if isinstance(error, DriftlineError) else error.strerror or type(error).__name__
        code = error.code.wire if isinstance(error, DriftlineError) else "INVALID_REQUEST"
        return {"ok": False, "repository": job.repository, "code": code, "message": reason}
    result, how = kept.result, {"persisted": kept.persisted, "reused": kept.reused}
    facts = {"ok": True, "repository": job.repository, "diffId": result.diff_id, "changed": result.has_changes}
    return {**facts, **how, "summary": result.summary, **events}
