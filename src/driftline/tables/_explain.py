"""A diff described as text: the title of a result, `--explain`, columns that could be the key, and hints on errors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from driftline.core import Workspace
from driftline.errors import DriftlineError, InputError, StorageError
from driftline.sinks import Title
from driftline.sources import CsvSource, Source, is_stream, open_source
from driftline.tables._columns import Column, Comparison, Sides, resolve_columns
from driftline.tables._engines import TableDiffJob, TableInput, open_sides
from driftline.tables._events import Stats
from driftline.tables._options import DEFAULTS, TableOptions
from driftline.tables._rules.cells import Kind, Step, TimePattern, Tolerance

_MOST_COLUMNS = 40
_KEY_ROWS = 10_000  # of each side, by which key candidates are found
_UNITS = (("d", 86400 * 10**9), ("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6), ("us", 10**3))


def heading_of(job: TableDiffJob, engine: str = "", seconds: float | None = None, notes: Sequence[str] = ()) -> Title:
    """The title of a result: the inputs, the key and rules, and the current time."""
    about = [identity(job.options), *([f"{engine}, {seconds:.1f} s"] if seconds is not None else [])]
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return Title(
        f"{_name(job.a)} → {_name(job.b)}", " · ".join(about), " · ".join([*rules_in_words(job.options), *notes]), when
    )


def report_settings(options: TableOptions, stats: Stats, heading: Title) -> dict[str, Any]:
    """What formats for people need beside the events."""
    return {
        "positional": options.has_row_numbers,
        "changed_only": options.changed_columns_only,
        "heading": heading,
        "judged": frozenset(stats.columns),
        "changes": stats.columns,
        "profile": None if stats.profile is None else stats.profile.to_dict(),
    }


def identity(options: TableOptions) -> str:
    """How rows are matched."""
    if options.key_columns:
        return f"key {', '.join(options.key_columns)}"
    return "rows in any order" if options.ignore_row_order else "by position"


def rules_in_words(options: TableOptions) -> Iterator[str]:
    """The options that are set and decide what counts as a difference, in the order of their list.

    >>> from driftline.tables._options import check_options
    >>> list(rules_in_words(check_options(ignore="*_at", tolerance={"price": "0.01,1%"}, no_header=True)))
    ['no header', 'ignore *_at', 'tolerance price 0.01,1%']
    """
    for name, in_words in _WORDS.items():
        value = getattr(options, name)
        if value != DEFAULTS[name]:
            yield in_words(value)


def _name(given: TableInput) -> str:
    if not isinstance(given, (str, os.PathLike)):
        return type(given).__name__
    path = os.fspath(given)
    return os.path.basename(path) or path


def _said(words: str) -> Callable[[object], str]:
    return lambda value: words if value is True else f"{words} {value}"


def _listed(words: str) -> Callable[[tuple[str, ...]], str]:
    return lambda names: f"{words} {', '.join(name if name else '(empty)' for name in names)}"


def _by_column(words: str, shown: Callable[[Any], str]) -> Callable[[tuple[tuple[str, Any], ...]], str]:
    return lambda pairs: f"{words} {', '.join(f'{name} {shown(value)}' for name, value in pairs)}"


def _by_side(words: str) -> Callable[[tuple[object, object]], str]:
    def shown(sides: tuple[object, object]) -> str:
        a, b = (repr(side) if words == "delimiter" else str(side) for side in sides)
        return f"{words} {a}" if a == b else f"{words} {a} (A), {b} (B)"

    return shown


def _steps(steps: tuple[Step, ...]) -> str:
    return "+".join(step.name for step in steps)


def _type(declared: tuple[Kind, TimePattern | None]) -> str:
    kind, pattern = declared
    return kind.name if pattern is None else f"{kind.name}:{pattern.text}"


def _tolerance(limit: Tolerance) -> str:
    if limit.nanoseconds is not None:
        nanoseconds = limit.nanoseconds
        unit, size = next((one for one in _UNITS if nanoseconds % one[1] == 0), ("ns", 1))
        return f"{nanoseconds // size}{unit}"
    parts = [f"{limit.absolute:g}" if limit.absolute is not None else None]
    parts.append(f"{limit.relative * 100:g}%" if limit.relative is not None else None)
    return ",".join(part for part in parts if part is not None)


_WORDS: dict[str, Callable[[Any], str]] = {
    "header_mode": lambda mode: "columns in any order" if mode == "sorted" else "common columns",
    "encoding": _by_side("encoding"),
    "delimiter": _by_side("delimiter"),
    "no_header": _said("no header"),
    "duplicate_columns": _said("duplicate columns"),
    "ragged": _said("ragged rows"),
    "skip_blank_lines": _said("skip blank lines"),
    "skip_lines": _by_side("skip lines"),
    "comment": _said("comment lines"),
    "rename": _by_column("rename", lambda new: f"→ {new}"),
    "ignore": _listed("ignore"),
    "only": _listed("only"),
    "normalize": _by_column("normalize", _steps),
    "null": _listed("null"),
    "types": _by_column("as", _type),
    "tolerance": _by_column("tolerance", _tolerance),
    "empty_key": _said("empty keys"),
    "duplicates": _said("duplicates"),
}


def explain_plan(job: TableDiffJob, engine: str) -> Iterator[str]:
    """Lines about files, columns, rules, key and engine; raises what would be wrong with the headers."""
    with Workspace() as workspace:
        a, b = open_sides(job, workspace)
        yield f"A: {_shown(job.a)}, {_described(a)}"
        yield f"B: {_shown(job.b)}, {_described(b)}"
        sides = Sides(a.typed, b.typed, _kinds(a), _kinds(b), declared=True)
        compared = resolve_columns(a.header("A"), b.header("B"), job.options, sides)
    yield from _columns(compared)
    yield from _identity(job)
    yield from (f"types: {note}" for note in compared.notes)
    yield f"rules: {' · '.join(rules_in_words(job.options)) or 'none, cells are compared as they are'}"
    yield f"engine: {engine}"


def _kinds(source: Source) -> dict[str, str]:
    from driftline.sources import column_kinds  # brings Polars, which a small diff does without

    declared = source.types()
    return {} if declared is None else column_kinds(declared)


def _shown(given: object) -> str:
    return os.fspath(given) if isinstance(given, (str, os.PathLike)) else type(given).__name__


def _described(source: Source) -> str:
    files = f"{len(source.files)} files, " if len(source.files) > 1 else ""
    size = "size not known" if source.size is None else f"{source.size:,} bytes"
    about = f"{source.format}, {files}{size}"
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
    words = [step.name for step in rule.steps]
    words += [rule.kind.name] if rule.kind else []
    words += ["tolerance"] if rule.tolerance else []
    name = column.a if column.a == column.b else f"{column.a} → {column.b}"
    return f"{name} ({', '.join(words)})" if words else name


def _identity(job: TableDiffJob) -> Iterator[str]:
    if job.options.key_columns:
        yield f"key: {', '.join(job.options.key_columns)}"
        return
    how = "rows in any order" if job.options.ignore_row_order else "rows by position"
    candidates = key_candidates(job)
    hint = f"; columns that could be the key: {', '.join(candidates)}" if candidates else ""
    yield f"key: none, {how}{hint}"


def key_candidates(job: TableDiffJob) -> list[str]:
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


def remedy(error: DriftlineError, job: TableDiffJob, given: Mapping[str, Any], *, in_python: bool) -> str | None:
    """What helps against an error: options for such errors, and those that were found to read this very pair."""
    from driftline.tables._auto import as_arguments, as_flags, fixes

    found = fixes(error, job, given) if error.code in _READING_ERRORS else None
    words = [None if in_python else hint_for(error, job.options)]
    if found:
        words.append(f"this pair is read with {as_arguments(found) if in_python else ' '.join(as_flags(found))}")
    return "; ".join(filter(None, words)) or None


_READING_ERRORS = (
    "invalid_encoding", "csv_parse_error", "row_width_mismatch", "header_mismatch", "missing_key_column", "empty_file",
    "duplicate_column_name", "duplicate_key", "missing_key_value",
)  # fmt: skip


def hint_for(error: DriftlineError, options: TableOptions) -> str | None:
    """The option that helps, or None where none does or it is set already.

    >>> from driftline.errors import TableError
    >>> from driftline.tables._options import check_options
    >>> wrong = TableError("Missing key value in A at row 3", code="missing_key_value")
    >>> hint_for(wrong, check_options(key="id"))
    '--empty-key allow takes rows without a key'
    >>> hint_for(wrong, check_options(key="id", empty_key="allow"))
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
