"""Help where people stumble: what a diff would do (`--explain`), columns that could be the key, options that help."""

from __future__ import annotations

import os
from collections.abc import Iterator

from driftline.core._workspace import Workspace
from driftline.errors import DriftlineError, InputError, StorageError
from driftline.sources._formats.csv import CsvSource
from driftline.sources._open import is_stream, open_source
from driftline.sources._source import Source
from driftline.tables.columns import Column, Comparison, settle_columns
from driftline.tables.engines import DiffJob
from driftline.tables.heading import rules_in_words
from driftline.tables.local import open_sides
from driftline.tables.options import DiffOptions

_MOST_COLUMNS = 40
_KEY_ROWS = 10_000  # of each side, by which key candidates are told


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


def _shown(given: object) -> str:
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
            heads = [source.sample(side, _KEY_ROWS) for source, side in zip(sides, "AB", strict=True)]
    except (InputError, StorageError):
        return []  # a hint is not worth an error
    return [name for name in heads[0] if all(_identifies(head.get(name)) for head in heads)]


def _identifies(cells: list[str] | None) -> bool:
    return cells is not None and len(set(cells)) == len(cells) and all(cells)


def remedy(error: DriftlineError, options: DiffOptions) -> str | None:
    """What to type, or None where no option helps or the right one was given already.

    >>> from driftline.errors import TableError
    >>> from driftline.tables.options import check_options
    >>> wrong = TableError("Missing key value in A at row 3", code="missing_key_value")
    >>> remedy(wrong, check_options(key="id"))
    '--empty-key allow takes rows without a key'
    >>> remedy(wrong, check_options(key="id", empty_key="allow"))
    """
    if error.code == "csv_parse_error":
        return 'no option takes it: inside a quoted cell a quote is written twice (""), and the last one ends the cell'
    if error.code == "row_width_mismatch" and options.ragged == "error":
        blank = "" if options.skip_blank_lines else "; --skip-blank-lines leaves blank lines out"
        return f"--ragged pad fills short rows, --ragged skip leaves rows of another width out{blank}"
    if error.code == "duplicate_column_name" and options.duplicate_columns == "error" and not options.no_header:
        return "--duplicate-columns rename tells them apart, --no-header takes files without a header line"
    if error.code == "missing_key_value" and options.empty_key == "error":
        return "--empty-key allow takes rows without a key"
    if error.code == "duplicate_key" and options.duplicates == "error":
        return (
            "--duplicates match pairs the rows of a key, --duplicates first or last keeps one; or name more key columns"
        )
    return None
