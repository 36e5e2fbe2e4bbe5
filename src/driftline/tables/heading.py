"""What was compared, by which key and rules, and when: the words above every view of a result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from driftline.sinks._formats import Heading
from driftline.tables.cells import Kind, Step, TimePattern, Tolerance
from driftline.tables.engines import DiffJob, TableInput
from driftline.tables.options import DEFAULTS, DiffOptions

_UNITS = (("d", 86400 * 10**9), ("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6), ("us", 10**3))


def heading_of(job: DiffJob, engine: str = "", seconds: float | None = None) -> Heading:
    """The heading of a result that is ready now."""
    about = [identity(job.options), *([f"{engine}, {seconds:.1f} s"] if seconds is not None else [])]
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return Heading(f"{_name(job.a)} → {_name(job.b)}", " · ".join(about), " · ".join(rules_in_words(job.options)), when)


def identity(options: DiffOptions) -> str:
    """By what rows meet."""
    if options.key_columns:
        return f"key {', '.join(options.key_columns)}"
    return "rows in any order" if options.ignore_row_order else "by position"


def rules_in_words(options: DiffOptions) -> Iterator[str]:
    """The options that were chosen and decide what counts as a difference, in the order of their list.

    >>> from driftline.tables.options import check_options
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
    return "+".join(steps)


def _type(declared: tuple[Kind, TimePattern | None]) -> str:
    kind, pattern = declared
    return kind if pattern is None else f"{kind}:{pattern.text}"


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
