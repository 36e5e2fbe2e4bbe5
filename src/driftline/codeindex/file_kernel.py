"""The kernel of an index diff: one changed file in, its events and counts out.

Every scheduler, on this machine or on a cluster, calls this function with the rows of one file from both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from driftline.codeindex.chunks import chunk_from_row, match_chunks
from driftline.codeindex.events import Event, chunk_event, chunk_order, file_limit_event, relation_event
from driftline.codeindex.options import DiffOptions
from driftline.codeindex.relations import changed_edges, changed_file_imports
from driftline.codeindex.rows import Row


@dataclass(frozen=True, slots=True)
class FileSide:
    """What one side holds of a file: its chunk rows, how many there are, and the imports of the file."""

    rows: Sequence[Row] = ()
    count: int = 0
    imports: Iterable[str] = ()


@dataclass(slots=True)
class FileOutcome:
    """The chunk, relation and limit events of one file, in order, and how many there are of each kind."""

    events: list[Event] = field(default_factory=list)
    limited: bool = False

    @property
    def counts(self) -> Counter[str]:
        """Events by kind."""
        return Counter(event["kind"] for event in self.events)


def diff_file(mode: str, path: str, before: FileSide, after: FileSide, options: DiffOptions) -> FileOutcome:
    """Compare the chunks and relations of one modified or renamed file."""
    limit = options.max_chunks_per_file
    if before.count > limit or after.count > limit:
        # Half of a file would mislead: its chunks and relations are skipped as a whole.
        return FileOutcome([file_limit_event(mode, path, before.count, after.count, limit)], limited=True)
    old = [chunk_from_row(row) for row in before.rows]
    new = [chunk_from_row(row) for row in after.rows]
    pairs = match_chunks(old, new)
    changed = sorted((pair for pair in pairs if pair.verdict is not None), key=chunk_order)
    events = [chunk_event(mode, path, pair) for pair in changed]
    if options.include_relations:
        edges = [*changed_edges(pairs), *changed_file_imports(path, before.imports, after.imports, old, new)]
        events += [relation_event(mode, path, edge) for edge in sorted(edges, key=lambda edge: edge.order)]
    return FileOutcome(events)
