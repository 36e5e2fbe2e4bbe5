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
from driftline.codeindex._diff.files import IndexEvent
from driftline.codeindex._diff.modes import ModeDiff, diff_mode
from driftline.codeindex._git import STAGED, WORKING_TREE, GitRepository
from driftline.codeindex._options import DiffOptions, canonical_inputs, diff_id, kind_of
from driftline.codeindex._read.resolve import (
    IndexDir,
    IndexRef,
    ResolvedRef,
    check_compatible,
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
        """Whether the two sides differ."""
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

        columns = ("kind", "mode", "file", "name", "chunkKind", "public", "similarity")
        rows = [
            {name: event.get(name) for name in columns}
            | {
                "changes": event.get("changes"),
                "before": _json(event.get("before")),
                "after": _json(event.get("after")),
            }
            for event in self.events
        ]
        types: JsonObject = dict.fromkeys(("kind", "mode", "file", "name", "chunkKind"), pl.String)
        types |= {"public": pl.Boolean, "similarity": pl.Float64, "changes": pl.List(pl.String)}
        return pl.DataFrame(rows, schema=types | {"before": pl.String, "after": pl.String})

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
        """The canonical inputs."""
        return canonical_inputs(self.before, self.after, self.options)

    @property
    def is_uncommitted(self) -> bool:
        """Whether a side is a state of the checkout."""
        return bool({self.before.label, self.after.label} & {WORKING_TREE, STAGED})

    @property
    def has_path_refs(self) -> bool:
        """Whether a side is named by a path, which is not persisted unless asked for explicitly."""
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
    options = DiffOptions.of(
        modes,
        max_changed_files,
        max_chunks_per_file,
        max_events,
        include_relations,
        detect_renames,
        kind_of(kind, refs),
    )
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

    `fetch_missing` fetches what a partial clone lacks, in one go; else such files are told as not read.
    """
    refs = [ref if isinstance(ref, IndexRef) else parse_ref(ref) for ref in (from_ref, to_ref)]
    repository = GitRepository(repo or ".") if any(ref.is_of_git for ref in refs) else None
    if fetch_missing and repository is not None:
        for ref in refs:
            if ref.kind == "git":
                repository.fetch_missing(repository.tree_id(ref.value))
    cache = _cache(cache_root, repository)
    before, after = (
        _resolve_git(ref, repository, cache, options.modes, wait_ms, tracker)
        if repository is not None and cache is not None and ref.is_of_git
        else resolve(ref, cache, options.modes)
        for ref in refs
    )
    if not allow_mismatch:
        check_compatible(before, after)
    return DiffRequest(before, after, options, cache, repository.directory if repository else None)


def _cache(cache_root: str | os.PathLike[str] | CacheRoot | None, repository: GitRepository | None) -> CacheRoot | None:
    if isinstance(cache_root, CacheRoot):
        return cache_root
    if repository is not None:
        return open_cache(cache_root or default_cache_root(repository))
    return CacheRoot(cache_root) if cache_root else None


def _resolve_git(
    ref: IndexRef,
    repository: GitRepository,
    cache: CacheRoot,
    modes: Sequence[str],
    wait_ms: int,
    tracker: Tracker | None,
) -> ResolvedRef:
    state = {"worktree": WORKING_TREE, "staged": STAGED}.get(ref.kind, ref.value)
    built = build_index(repository, state, cache, wait_ms=wait_ms, tracker=tracker)
    return resolve_tree(built.tree_id, built.root, cache, modes, state)


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
    inputs = request.inputs
    identifier = diff_id(inputs)
    events = list(islice(chain.from_iterable(mode.events() for mode in modes), options.max_events))
    labels = (request.before.label, request.after.label)
    summary = _summary(identifier, inputs, modes, options, created_at or timestamp(), labels)
    return IndexDiff(identifier, inputs, summary, events, modes, request.repository, request.after.indexes.get("code"))


def only_below(result: IndexDiff, paths: Sequence[str]) -> IndexDiff:
    """A result with the events of some paths; counts are those of what is left."""
    if not paths:
        return result
    wanted = [os.path.normpath(path) for path in paths]
    events = [event for event in result.events if any(_is_at(event, path) for path in wanted)]
    kinds = Counter((event["mode"], event["kind"]) for event in events)
    modes = {
        mode: {
            "files": {kind: kinds[mode, f"file.{kind}"] for kind in counts["files"]},
            "chunks": {kind: kinds[mode, f"chunk.{kind}"] for kind in counts["chunks"]},
            "relations": {
                "edgesAdded": kinds[mode, "relation.added"],
                "edgesRemoved": kinds[mode, "relation.removed"],
            },
            "limits": counts["limits"],
        }
        for mode, counts in result.summary["modesSummary"].items()
    }
    return replace(result, events=events, summary=result.summary | {"modesSummary": modes, "totalEvents": len(events)})


def _is_at(event: IndexEvent, wanted: str) -> bool:
    sides = [event.get(side) or {} for side in ("before", "after")]
    files = {event.get("file"), *(side.get("file") for side in sides)}
    return wanted == "." or any(file == wanted or str(file).startswith(f"{wanted}/") for file in files if file)


def cut(result: IndexDiff, max_events: int) -> IndexDiff:
    """A result as it would be with a lower `max_events`."""
    total = result.summary["totalEvents"]
    if total <= max_events:
        return result
    summary = result.summary | _truncation(total, max_events)
    return replace(result, summary=summary, events=list(islice(result.events, max_events)))


def view() -> Any:
    """How a diff is rendered, imported when it is."""
    from driftline.codeindex import _view

    return _view


def _json(record: object) -> str | None:
    return None if record is None else compact_json(record).decode()


def timestamp(now: datetime | None = None) -> str:
    """A time as registries write it."""
    return (now or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _summary_side(endpoint: JsonObject, label: str | None) -> JsonObject:
    side = {name: endpoint[name] for name in ("ref", "identityHash")}
    return side if label is None else {**side, "label": label}


def _summary(
    identifier: str,
    inputs: JsonObject,
    modes: Sequence[ModeDiff],
    options: DiffOptions,
    created_at: str,
    labels: tuple[str | None, str | None],
) -> JsonObject:
    total = sum(mode.counts.total() for mode in modes)
    return {
        "version": 1,
        "diffId": identifier,
        "createdAt": created_at,
        "from": _summary_side(inputs["from"], labels[0]),
        "to": _summary_side(inputs["to"], labels[1]),
        "modes": list(options.modes),
        "modesSummary": {mode.mode: mode.summary() for mode in modes},
        "totalEvents": total,
        **_truncation(total, options.max_events),
        "skippedRows": {
            "from": sum(mode.before_scan.skipped_rows for mode in modes),
            "to": sum(mode.after_scan.skipped_rows for mode in modes),
        },
    }


def _truncation(total: int, max_events: int) -> JsonObject:
    truncated = total > max_events
    return {"truncated": truncated, "truncatedReason": MAX_EVENTS if truncated else None}
