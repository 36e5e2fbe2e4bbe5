"""Cell equality for whole columns: the functions of `cells`, each asked once for every value that occurs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftline.tables.cells import NUMBER, CellRule, Tolerance, number_of, seconds_of

Numbers = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_TIMES = ("4", "5", "6")
_BILLION = 10**9


def form_column(cells: pl.Series, rule: CellRule, *, typed: bool) -> pl.Series:
    """The forms of a column's cells."""
    if rule.is_exact:
        return cells
    return _mapped(cells, rule.form_of_json if typed else rule.form, pl.String)


def differing(before: pl.Series, after: pl.Series, rule: CellRule, *, typed: tuple[bool, bool]) -> pl.Series:
    """A mask of the rows in which two columns differ."""
    a, b = form_column(before, rule, typed=typed[0]), form_column(after, rule, typed=typed[1])
    differs = a != b
    if rule.tolerance is None or not differs.any():
        return differs
    # Cells that are no numbers (or times) have the same measure, but then their kinds or texts differ.
    near = within(measures(a, rule), measures(b, rule), rule.tolerance)
    return differs & ~(pl.Series(near) & (hashed_form(a, rule) == hashed_form(b, rule)))


def measures(forms: pl.Series, rule: CellRule) -> list[Numbers]:
    """What a tolerance looks at, as 64-bit numbers: a double, or seconds and nanoseconds; zero where there is none."""
    tolerance = rule.tolerance
    if tolerance is None:
        return []
    if tolerance.nanoseconds is None:
        return [_measure(forms, _finite, np.float64)]
    return [
        _measure(forms, lambda form: _seconds(form)[0], np.int64),
        _measure(forms, lambda form: _seconds(form)[1], np.int64),
    ]


def measure_count(rule: CellRule) -> int:
    """How many numbers `measures` gives for each cell."""
    if rule.tolerance is None:
        return 0
    return 1 if rule.tolerance.nanoseconds is None else 2


def hashed_form(forms: pl.Series, rule: CellRule) -> pl.Series:
    """Forms in which everything that a tolerance measures is the same: what is left must be equal."""
    if rule.tolerance is None:
        return forms
    is_measured = _is_finite if rule.tolerance.nanoseconds is None else _is_time
    return _mapped(forms, lambda form: form[0] if is_measured(form) else form, pl.String)


def within(a: Sequence[Numbers], b: Sequence[Numbers], tolerance: Tolerance) -> Mask:
    """Which rows are near enough, by their measures."""
    if tolerance.nanoseconds is None:
        return _near_numbers(a[0].view(np.float64), b[0].view(np.float64), tolerance)
    seconds = a[0].view(np.int64) - b[0].view(np.int64)
    nanoseconds = a[1].view(np.int64) - b[1].view(np.int64)
    # Both parts get the same sign, so that they can be looked at one after the other.
    borrowed = np.where((seconds > 0) & (nanoseconds < 0), 1, np.where((seconds < 0) & (nanoseconds > 0), -1, 0))
    seconds, nanoseconds = np.abs(seconds - borrowed), np.abs(nanoseconds + borrowed * _BILLION)
    most, rest = divmod(tolerance.nanoseconds, _BILLION)
    most = min(most, np.iinfo(np.int64).max)
    near: Mask = (seconds < most) | ((seconds == most) & (nanoseconds <= rest))
    return near


def _near_numbers(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], tolerance: Tolerance) -> Mask:
    with np.errstate(over="ignore"):
        distance = np.abs(a - b)
        near = np.zeros(len(a), np.bool_)
        if tolerance.absolute is not None:
            near |= distance <= tolerance.absolute
        if tolerance.relative is not None:
            near |= (distance <= np.abs(tolerance.relative * a)) | (distance <= np.abs(tolerance.relative * b))
    return near


def _finite(form: str) -> float:
    return number_of(form) if _is_finite(form) else 0.0


def _is_finite(form: str) -> bool:
    return form[0] == NUMBER and abs(number_of(form)) != float("inf")


def _is_time(form: str) -> bool:
    return form[0] in _TIMES


def _seconds(form: str) -> tuple[int, int]:
    return seconds_of(form) if _is_time(form) else (0, 0)


def _measure(forms: pl.Series, of_form: Callable[[str], Any], kind: Any) -> Numbers:
    dtype = pl.Float64 if kind is np.float64 else pl.Int64
    return np.ascontiguousarray(_mapped(forms, of_form, dtype).to_numpy(), kind).view(np.uint64)


def _mapped(cells: pl.Series, function: Callable[[str], Any], dtype: Any) -> pl.Series:
    """A function of every cell, called once for each value."""
    values = cells.unique()
    if len(values) * 2 > len(cells):
        return pl.Series(cells.name, [function(cell) for cell in cells], dtype=dtype)
    results = pl.Series([function(value) for value in values], dtype=dtype)
    return cells.replace_strict(values, results, return_dtype=dtype)
