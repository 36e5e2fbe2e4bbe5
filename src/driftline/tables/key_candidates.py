"""Columns that could be the key: never empty and never repeated, judged by the first rows of both sides."""

from __future__ import annotations

from driftline.errors import InputError, StorageError
from driftline.sources.inputs import is_stream, open_source
from driftline.sources.workspace import Workspace
from driftline.tables.engines import DiffJob

_ROWS = 10_000


def key_candidates(job: DiffJob) -> list[str]:
    """Names of candidate key columns, in the order of A's header; none for typed sources and streams."""
    if is_stream(job.a) or is_stream(job.b):
        return []
    try:
        with Workspace() as workspace:
            given = {"A": job.a, "B": job.b}
            sides = [open_source(one, workspace, job.options.reading(side)) for side, one in given.items()]
            if any(source.typed for source in sides):
                return []
            heads = [source.sample(side, _ROWS) for source, side in zip(sides, "AB", strict=True)]
    except (InputError, StorageError):
        return []  # a hint is not worth an error
    return [name for name in heads[0] if all(_identifies(head.get(name)) for head in heads)]


def _identifies(cells: list[str] | None) -> bool:
    return cells is not None and len(set(cells)) == len(cells) and all(cells)
