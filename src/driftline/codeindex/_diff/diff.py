"""`codeindex.diff`: two references in, an ordered and bounded diff out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from driftline.codeindex._build.build import build_index, default_cache_root, open_cache
from driftline.codeindex._diff.chunks import IndexEvent
from driftline.codeindex._diff.modes import ModeDiff, diff_mode, mode_counts
from driftline.codeindex._git import STAGED, WORKING_TREE, GitRepository
from driftline.codeindex._read.resolve import (
    DiffOptions,
    IndexDir,
    IndexRef,
    ResolvedRef,
    canonical_inputs,
    check_compatible,
    diff_id,
    kind_of,
    parse_ref,
    resolve,
    resolve_tree,
)
from driftline.codeindex._storage import CacheRoot, compact_json
from driftline.core import DiffMembers, JsonObject, Tracker, no_progress

if TYPE_CHECKING:
    import polars as pl

MAX_EVENTS = "max-events"

# Compares one mode of two indexes; the local one and Spark's have this shape.
ModeScheduler = Callable[[str, IndexDir, IndexDir, DiffOptions, Tracker], ModeDiff]


@dataclass(frozen=True, slots=True)
class IndexDiff(DiffMembers):
    """The result of a diff of two indexes: a `Diff` whose changes are its ordered events.

    `summary` counts everything, also events that a limit cut off, and so does the length. `repository` is where reviews
    read the source of definitions.
    """

    _formats: ClassVar[JsonObject] = {".jsonl": "jsonl", ".json": "json", ".md": "markdown", ".html": "html"}

    diff_id: str
    inputs: JsonObject
    summary: JsonObject
    events: Iterable[IndexEvent]
    modes: Sequence[ModeDiff] = field(default=(), repr=False)
    repository: Path | None = field(default=None, repr=False, compare=False)
    after_index: IndexDir | None = field(default=None, repr=False, compare=False)

    @property
    def has_changes(self) -> bool:
        """Whether the two sides differ."""
        return bool(self.summary["totalEvents"])

    def __bool__(self) -> bool:
        return self.has_changes

    def __len__(self) -> int:
        total: int = self.summary["totalEvents"]
        return total

    @property
    def counts(self) -> dict[str, int]:
        """Events, and the files, chunks and relations that they are about."""
        modes = self.summary["modesSummary"].values()
        about = {what: sum(sum(mode[what].values()) for mode in modes) for what in ("files", "chunks", "relations")}
        return {"events": len(self), **about}

    def changes(self) -> Iterator[IndexEvent]:
        """The events, in the order of the output."""
        return iter(self.events)

    def to_dict(self) -> JsonObject:
        """The inputs, the summary and the events as data."""
        content = {"diffId": self.diff_id, "inputs": self.inputs, "summary": self.summary}
        return {**content, "events": list(self.events)}

    def _headline(self) -> str:
        return "\n".join(view().summary_lines(self))

    def _change_lines(self) -> Iterator[str]:
        return map(view().event_text, self.events)

    def _rendered(self, format_name: str) -> Iterator[bytes]:
        yield from view().rendered(self, format_name)

    def to_polars(self) -> pl.DataFrame:
        """The events as a frame: one row each, nested records as JSON."""
        import polars as pl

        types: JsonObject = dict.fromkeys(("kind", "mode", "file", "name", "chunkKind"), pl.String)
        types |= {"public": pl.Boolean, "similarity": pl.Float64, "changes": pl.List(pl.String)}
        sides = dict.fromkeys(("before", "after"), pl.String)
        rows = [
            {name: event.get(name) for name in types}
            | {side: compact_json(event[side]).decode() if event.get(side) is not None else None for side in sides}
            for event in self.events
        ]
        return pl.DataFrame(rows, schema=types | sides)

    to_frame = to_polars  # its name in version 0.2


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """Two resolved references and the options to compare them with."""

    before: ResolvedRef
    after: ResolvedRef
    options: DiffOptions
    cache: CacheRoot | None = None
    repository: Path | None = None

    @property
    def inputs(self) -> JsonObject:
        return canonical_inputs(self.before, self.after, self.options)

    @property
    def has_path_refs(self) -> bool:
        """Whether a side is named by a path, which is not persisted unless requested explicitly."""
        return "path" in (self.before.ref.kind, self.after.ref.kind)


def diff(
    from_ref: str | IndexRef,
    to_ref: str | IndexRef,
    cache_root: str | os.PathLike[str] | None = None,
    modes: str | Iterable[str] = ("code",),
    max_changed_files: int | None = None,
    max_chunks_per_file: int | None = None,
    max_events: int = 20000,
    include_relations: bool = True,
    detect_renames: bool = True,
    *,
    repo: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    allow_mismatch: bool = False,
    tracker: Tracker | None = None,
) -> IndexDiff:
    """Compare two versions of a code base; the diff is not kept, but builds of git revisions are."""
    refs = [str(ref.canonical if isinstance(ref, IndexRef) else ref) for ref in (from_ref, to_ref)]
    limits = (max_changed_files, max_chunks_per_file, max_events)
    options = DiffOptions.of(modes, *limits, include_relations, detect_renames, kind_of(kind, refs))
    request = prepare(from_ref, to_ref, cache_root, options, repo=repo, allow_mismatch=allow_mismatch, tracker=tracker)
    return run(request, tracker=tracker)


def prepare(
    from_ref: str | IndexRef,
    to_ref: str | IndexRef,
    cache_root: str | os.PathLike[str] | CacheRoot | None,
    options: DiffOptions,
    *,
    repo: str | os.PathLike[str] | None = None,
    allow_mismatch: bool = False,
    fetch_missing: bool = False,
    wait_ms: int = 10_000,
    tracker: Tracker | None = None,
) -> DiffRequest:
    """Parse and resolve both references; git revisions that have no build yet get one.

    `fetch_missing` fetches what a partial clone lacks, in one go; else such files are reported as not read.
    """
    refs = [ref if isinstance(ref, IndexRef) else parse_ref(ref) for ref in (from_ref, to_ref)]
    repository = GitRepository(repo or ".") if any(ref.is_of_git for ref in refs) else None
    if fetch_missing and repository is not None:
        for ref in refs:
            if ref.kind == "git":
                repository.fetch_missing(repository.tree_id(ref.value))
    cache = None
    if isinstance(cache_root, CacheRoot):
        cache = cache_root
    elif repository is not None:
        cache = open_cache(cache_root or default_cache_root(repository))
    elif cache_root:
        cache = CacheRoot(cache_root)
    sides = []
    for ref in refs:
        if repository is not None and cache is not None and ref.is_of_git:
            state = {"worktree": WORKING_TREE, "staged": STAGED}.get(ref.kind, ref.value)
            built = build_index(repository, state, cache, wait_ms=wait_ms, tracker=tracker)
            sides.append(resolve_tree(built.tree_id, built.root, cache, options.modes, state))
        else:
            sides.append(resolve(ref, cache, options.modes))
    if not allow_mismatch:
        check_compatible(*sides)
    return DiffRequest(sides[0], sides[1], options, cache, repository.directory if repository else None)


def run(
    request: DiffRequest,
    *,
    scheduler: ModeScheduler = diff_mode,
    tracker: Tracker | None = None,
    created_at: str | None = None,
) -> IndexDiff:
    """Compare mode after mode; sort first, then cut, and count everything."""
    options = request.options
    modes = [
        scheduler(mode, request.before.indexes[mode], request.after.indexes[mode], options, tracker or no_progress())
        for mode in options.modes
    ]
    inputs, total = request.inputs, sum(mode.counts.total() for mode in modes)
    identifier = diff_id(inputs)
    events = list(islice(chain.from_iterable(mode.events() for mode in modes), options.max_events))
    summary: JsonObject = {"version": 1, "diffId": identifier, "createdAt": created_at or timestamp()}
    for name, label in (("from", request.before.label), ("to", request.after.label)):
        endpoint = {member: inputs[name][member] for member in ("ref", "identityHash")}
        summary[name] = endpoint if label is None else {**endpoint, "label": label}
    summary |= {"modes": list(options.modes), "modesSummary": {mode.mode: mode.summary() for mode in modes}}
    summary |= {"totalEvents": total, **_truncation(total, options.max_events)}
    skipped = [(mode.before_scan.skipped_rows, mode.after_scan.skipped_rows) for mode in modes]
    summary["skippedRows"] = {"from": sum(old for old, _ in skipped), "to": sum(new for _, new in skipped)}
    return IndexDiff(identifier, inputs, summary, events, modes, request.repository, request.after.indexes.get("code"))


def only_below(result: IndexDiff, paths: Sequence[str]) -> IndexDiff:
    """A result with the events of some paths; counts are those of what is left."""
    if not paths:
        return result
    needed = [os.path.normpath(path) for path in paths]
    events = [event for event in result.events if any(_is_at(event, path) for path in needed)]
    modes = {}
    for mode, counts in result.summary["modesSummary"].items():
        kinds = Counter(event["kind"] for event in events if event["mode"] == mode)
        modes[mode] = mode_counts(kinds, counts["chunks"], counts["limits"])
    return replace(result, events=events, summary=result.summary | {"modesSummary": modes, "totalEvents": len(events)})


def _is_at(event: IndexEvent, needed: str) -> bool:
    sides = [event.get(side) or {} for side in ("before", "after")]
    files = {event.get("file"), *(side.get("file") for side in sides)}
    return needed == "." or any(file == needed or str(file).startswith(f"{needed}/") for file in files if file)


def cut(result: IndexDiff, max_events: int) -> IndexDiff:
    """A result as it would be with a lower `max_events`."""
    total = result.summary["totalEvents"]
    if total <= max_events:
        return result
    summary = result.summary | _truncation(total, max_events)
    return replace(result, summary=summary, events=list(islice(result.events, max_events)))


def view() -> Any:
    """How a diff is rendered, imported when it is."""
    from driftline.codeindex import _review

    return _review


def timestamp(now: datetime | None = None) -> str:
    """A time as registries write it."""
    return (now or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _truncation(total: int, max_events: int) -> JsonObject:
    truncated = total > max_events
    return {"truncated": truncated, "truncatedReason": MAX_EVENTS if truncated else None}
