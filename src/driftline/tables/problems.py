"""Row errors: how each is worded, and which one is named when there are several.

Work runs in parallel, so problems are collected and the ruled order picks one: for A, then for B: any width
error, any missing key value, any duplicate key; within one kind the first offending row of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from driftline.errors import TableError

Side = Literal["A", "B"]
ProblemKind = Literal["row_width_mismatch", "missing_key_value", "duplicate_key"]

_KIND_ORDER: tuple[ProblemKind, ...] = ("row_width_mismatch", "missing_key_value", "duplicate_key")


@dataclass(frozen=True, slots=True)
class Problem:
    """One offending row: what is wrong, on which side and in which record, and the words' ingredients."""

    kind: ProblemKind
    side: Side
    row: int
    detail: tuple[Any, ...] = ()

    def to_error(self) -> TableError:
        """The error a user sees."""
        return TableError(_WORDING[self.kind](self), code=self.kind, side=self.side, row=self.row)


def width_problem(side: Side, row: int, expected: int, got: int) -> Problem:
    """A record with too few or too many fields."""
    return Problem("row_width_mismatch", side, row, (expected, got))


def missing_key_problem(side: Side, row: int, column: str) -> Problem:
    """An empty cell in a key column."""
    return Problem("missing_key_value", side, row, (column,))


def duplicate_key_problem(side: Side, row: int, first_row: int, key: Mapping[str, object]) -> Problem:
    """A key that `first_row` already had."""
    return Problem("duplicate_key", side, row, (first_row, tuple(key.items())))


def first_problem(problems: Iterable[Problem]) -> Problem | None:
    """Error choice: the problem to report, by side, then kind, then row."""
    return min(problems, key=lambda p: (p.side, _KIND_ORDER.index(p.kind), p.row), default=None)


def raise_first(problems: Iterable[Problem]) -> None:
    """Raise the error of the problem to report, if there is one."""
    problem = first_problem(problems)
    if problem is not None:
        raise problem.to_error()


def _word_width(problem: Problem) -> str:
    expected, got = problem.detail
    return f"Row width mismatch in {problem.side} at row {problem.row}: expected {expected}, got {got}"


def _word_missing(problem: Problem) -> str:
    column = json.dumps(problem.detail[0], ensure_ascii=False)
    return f"Missing key value in {problem.side} at row {problem.row}: column {column}"


def _word_duplicate(problem: Problem) -> str:
    first_row, key = problem.detail
    text = json.dumps(dict(key), ensure_ascii=False, separators=(",", ":"))
    return f"Duplicate key in {problem.side}: {text} (rows {first_row} and {problem.row})"


_WORDING = {
    "row_width_mismatch": _word_width,
    "missing_key_value": _word_missing,
    "duplicate_key": _word_duplicate,
}
