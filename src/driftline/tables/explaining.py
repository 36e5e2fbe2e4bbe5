"""`driftline diff --explain`: what a diff would do, without doing it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from driftline.sources.formats.csv import CsvSource
from driftline.sources.port import Source
from driftline.sources.workspace import Workspace
from driftline.tables.columns import Column, Comparison, settle_columns
from driftline.tables.engines import DiffJob
from driftline.tables.heading import rules_in_words
from driftline.tables.key_candidates import key_candidates
from driftline.tables.local import open_sides

_MOST_COLUMNS = 40


def explain(job: DiffJob, engine: str) -> Iterator[str]:
    """Lines about files, columns, rules, key and engine; raises what would be wrong with the headers."""
    with Workspace() as workspace:
        a, b = open_sides(job, workspace)
        yield f"A: {_shown(job.a)}, {_described(a)}"
        yield f"B: {_shown(job.b)}, {_described(b)}"
        compared = settle_columns(a.header("A"), b.header("B"), job.options)
    yield from _columns(compared)
    yield from _identity(job)
    yield f"rules: {' · '.join(rules_in_words(job.options)) or 'none, cells are compared as they are'}"
    yield f"engine: {engine}"


def _shown(given: Any) -> str:
    return os.fspath(given) if isinstance(given, (str, os.PathLike)) else type(given).__name__


def _described(source: Source) -> str:
    files = f"{len(source.files)} files, " if len(source.files) > 1 else ""
    about = f"{source.format}, {files}{source.size:,} bytes"
    if isinstance(source, CsvSource):
        reading = source.reading
        return f"{about}, {reading.encoding}, delimiter {reading.delimiter!r}"
    return about


def _columns(compared: Comparison) -> Iterator[str]:
    names = [_named(column) for column in compared.columns]
    more = f" and {len(names) - _MOST_COLUMNS} more" if len(names) > _MOST_COLUMNS else ""
    yield f"compared: {', '.join(names[:_MOST_COLUMNS])}{more}"
    left_out = [name for name in compared.header_a if name not in {column.a for column in compared.columns}]
    if left_out:
        yield f"not compared: {', '.join(left_out)}"
    for words, columns in (("only in B", compared.added), ("only in A", compared.removed)):
        if columns:
            yield f"{words}: {', '.join(columns)}"


def _named(column: Column) -> str:
    rule = column.rule
    words = [*rule.steps, *([rule.kind] if rule.kind else []), *(["tolerance"] if rule.tolerance else [])]
    name = column.a if column.a == column.b else f"{column.a} → {column.b}"
    return f"{name} ({', '.join(words)})" if words else name


def _identity(job: DiffJob) -> Iterator[str]:
    if job.options.key_columns:
        yield f"key: {', '.join(job.options.key_columns)}"
        return
    how = "rows in any order" if job.options.ignore_row_order else "rows by position"
    candidates = key_candidates(job)
    hint = f"; columns that could be the key: {', '.join(candidates)}" if candidates else ""
    yield f"key: none, {how}{hint}"
