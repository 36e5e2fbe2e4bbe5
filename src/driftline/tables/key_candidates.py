"""Columns that could be the key: never empty and never repeated, judged by the first rows of both sides."""

from __future__ import annotations

from itertools import islice

from driftline.errors import InputError, StorageError
from driftline.sources.inputs import is_stream, open_source
from driftline.sources.workspace import Workspace
from driftline.tables.engines import DiffJob
from driftline.tables.rules import key_cell_is_missing

_ROWS = 10_000


def key_candidates(job: DiffJob) -> list[str]:
    """Names of candidate key columns, in the order of A's header; none for typed sources and streams."""
    if is_stream(job.a) or is_stream(job.b):
        return []
    try:
        with Workspace() as workspace:
            sides = [open_source(given, workspace, job.options.reading) for given in (job.a, job.b)]
            readers = [source.records(side, checked=False) for source, side in zip(sides, "AB", strict=True)]
            heads = [list(islice(records, _ROWS + 1)) for records in readers if records is not None]
            if len(heads) < len(sides):
                return []
    except (InputError, StorageError):
        return []  # a hint is not worth an error
    return [name for name in heads[0][0] if all(_identifies(name, head) for head in heads)]


def _identifies(name: str, head: list[list[str]]) -> bool:
    header, *records = head
    cells = [record[header.index(name)] for record in records]
    return len(set(cells)) == len(cells) and not any(key_cell_is_missing(cell) for cell in cells)
