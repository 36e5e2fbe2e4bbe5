"""Computing a diff and keeping it: reuse, the policy for paths, and persistence under the lock."""

from __future__ import annotations

from dataclasses import dataclass, replace

from driftline.codeindex.diffing import DiffRequest, IndexDiff, ModeScheduler, cut, run
from driftline.codeindex.fingerprint import fingerprints
from driftline.codeindex.identity import diff_id
from driftline.codeindex.leaks import LeakCheck
from driftline.codeindex.mode_diff import diff_mode
from driftline.codeindex.registry import Registry
from driftline.codeindex.storage import CacheRoot
from driftline.core._progress import Tracker
from driftline.errors import IndexRefError

PATHS_ARE_NOT_PERSISTED = "path references are not persisted (--persist-unsafe persists them, redacted)"


@dataclass(frozen=True, slots=True)
class KeptDiff:
    """A diff and what became of it."""

    result: IndexDiff
    persisted: bool = False
    reused: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Keeping:
    """Whether and how a diff is persisted."""

    persist: bool = True
    persist_unsafe: bool = False
    wait_ms: int = 0

    def allows(self, request: DiffRequest) -> bool:
        """For path references only `persist_unsafe` is enough."""
        return self.persist_unsafe or (self.persist and not request.has_path_refs)


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
    stored = reusable(registry, request, marks)
    if stored is not None:
        return KeptDiff(stored, persisted=True, reused=True)
    result = run(request, scheduler=scheduler, tracker=tracker)
    with registry.locked(policy.wait_ms):
        # Another process may have computed the same diff meanwhile: the first one stays.
        stored = reusable(registry, request, marks)
        if stored is not None:
            return KeptDiff(stored, persisted=True, reused=True)
        registry.save(result, marks, _leak_check(request, cache))
    return KeptDiff(result, persisted=True)


def reusable(registry: Registry, request: DiffRequest, marks: dict[str, dict[str, str]]) -> IndexDiff | None:
    """The stored diff, unless it was truncated or the artifacts have changed since."""
    inputs = request.inputs
    stored = registry.find(diff_id(inputs), inputs)
    if stored is None or stored.summary["truncated"] or stored.inputs.get("fingerprints") != marks:
        return None
    return cut(_labelled(stored, request), request.options.max_events)


def _labelled(stored: IndexDiff, request: DiffRequest) -> IndexDiff:
    """A stored diff under the names that were used this time: two tags may be one tree."""
    labels = {"from": request.before.label, "to": request.after.label}
    sides = {side: {**stored.summary[side], "label": label} for side, label in labels.items() if label is not None}
    return replace(stored, summary=stored.summary | sides)


def _leak_check(request: DiffRequest, cache: CacheRoot) -> LeakCheck:
    sides = (request.before, request.after)
    indexes = [index.path for side in sides for index in side.indexes.values()]
    return LeakCheck([cache.path, *indexes, *([request.repository] if request.repository else [])])
