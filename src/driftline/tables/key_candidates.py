"""Columns that could be the key: never empty and never repeated, judged by the first rows of both sides."""

from __future__ import annotations

from driftline.errors import InputError, StorageError
from driftline.sources.csv_side import head_records
from driftline.sources.inputs import is_stream, open_input
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
            sides = [open_input(given, workspace, delimiter=job.options.delimiter) for given in (job.a, job.b)]
            if any(source.kind != "csv" for source in sides):
                return []
            heads = [head_records(source, side, _ROWS) for source, side in zip(sides, "AB", strict=True)]
    except (InputError, StorageError):
        return []  # a hint is not worth an error
    return [name for name in heads[0][0] if all(_identifies(name, head) for head in heads)]


def _identifies(name: str, head: list[list[str]]) -> bool:
    header, *records = head
    cells = [record[header.index(name)] for record in records]
    return len(set(cells)) == len(cells) and not any(key_cell_is_missing(cell) for cell in cells)
