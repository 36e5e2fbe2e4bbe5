"""Equality of cells for complete columns, with the same results as `_rules`.

Where a step or a kind has a column form (plain decimals, ISO times, text of ASCII letters), it gives the forms of most
cells; every other cell, and every column under a rule without a column form, is given to the functions of `_rules`,
once for every value that occurs. Tests hold both ways to the same forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftline.tables import _rules as of_cells
from driftline.tables._rules import DATE, INSTANT, LOCAL, NULL, NUMBER, TEXT, CellRule, Tolerance, number_of

Numbers = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_TIMES = (DATE, LOCAL, INSTANT)
_DAY = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
_CLOCK = r"(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?Z?)?"
_DAY_SECONDS = 86400
_DAYS_BEFORE_1970 = date(1970, 1, 1).toordinal()
_BILLION = 10**9
_LONGEST_QUICK_NUMBER = 300  # characters; so short, an exponent that gives a finite number has few digits
_PLAIN_DECIMAL = r"^[+-]?[0-9]{1,200}(?:\.[0-9]{0,200})?$"


def form_column(cells: pl.Series, rule: CellRule, *, typed: bool) -> pl.Series:
    """The forms of a column's cells."""
    if rule.is_exact:
        return cells
    of_cell = rule.form_of_json if typed else rule.form
    quick = _quick_forms(cells, rule, typed=typed)
    if quick is None:
        return _mapped(cells, of_cell, pl.String)
    at = quick.is_null().arg_true()
    filled = quick.scatter(at, _mapped(cells.gather(at), of_cell, pl.String)) if len(at) else quick
    return filled.alias(cells.name)


def _quick_forms(cells: pl.Series, rule: CellRule, *, typed: bool) -> pl.Series | None:
    """What the column forms of a rule give, null for the cells that they leave out; None if one of them is missing."""
    if rule.is_text:
        has_columns = all(step.name in STEP_COLUMNS for step in rule.steps)
        return _text_forms(cells, rule) if has_columns and not rule.mixed and not typed else None
    column = None if rule.kind is None else COLUMN_FORMS.get(rule.kind.cell)
    return None if column is None or rule.pattern or not _keeps_values(rule) else column(cells, rule, typed)


def _keeps_values(rule: CellRule) -> bool:
    """Whether no step changes the text of a value that the column form of the rule's kind takes."""
    return rule.kind is not None and all(rule.kind.name in step.keeps for step in rule.steps)


def tolerant_column(cells: pl.Series, rule: CellRule, *, typed: bool) -> tuple[pl.Series, list[Numbers]]:
    """What is left to be equal of a column with a tolerance (see `hashed_form`), and its measures.

    The same as by way of the forms; most numbers need no form.
    """
    assert rule.tolerance is not None, "there is a tolerance"
    if rule.tolerance.nanoseconds is not None or rule.kind != of_cells.KINDS["number"] or not _keeps_values(rule):
        forms = form_column(cells, rule, typed=typed)
        return hashed_form(forms, rule), measures(forms, rule)
    numbers = _quick_numbers(cells, rule)
    at = numbers.is_null().arg_true()
    left = pl.repeat(NUMBER, len(cells), dtype=pl.String, eager=True)
    if len(at):
        forms = form_column(cells.gather(at), rule, typed=typed)
        left = left.scatter(at, hashed_form(forms, rule))
        numbers = numbers.scatter(at, pl.Series(measures(forms, rule)[0].view(np.float64)))
    return left, [np.ascontiguousarray(numbers.to_numpy()).view(np.uint64)]


def differing(
    before: pl.Series, after: pl.Series, rule: CellRule, rule_b: CellRule | None = None, *, typed: tuple[bool, bool]
) -> pl.Series:
    """A mask of the rows in which two columns differ; `rule_b` is the rule of B's cells, where that is another."""
    other = rule_b or rule
    if rule.tolerance is not None:
        left_a, measures_a = tolerant_column(before, rule, typed=typed[0])
        left_b, measures_b = tolerant_column(after, other, typed=typed[1])
        return (left_a != left_b) | ~pl.Series(within(measures_a, measures_b, rule.tolerance), dtype=pl.Boolean)
    return forms_differ(form_column(before, rule, typed=typed[0]), form_column(after, other, typed=typed[1]), rule)


def forms_differ(a: pl.Series, b: pl.Series, rule: CellRule) -> pl.Series:
    """A mask of the rows in which two columns of forms differ."""
    differs = a != b
    if rule.tolerance is None or not differs.any():
        return differs
    # Cells that are no numbers (or times) have the same measure, but then their kinds or texts differ.
    near = within(measures(a, rule), measures(b, rule), rule.tolerance)
    return differs & ~(pl.Series(near) & (hashed_form(a, rule) == hashed_form(b, rule)))


def measures(forms: pl.Series, rule: CellRule) -> list[Numbers]:
    """What a tolerance compares, as 64-bit numbers: a double, or seconds and nanoseconds; zero where there is none."""
    if rule.tolerance is None:
        return []
    if rule.tolerance.nanoseconds is not None:
        return _time_measures(forms)
    numbers = _mapped(forms, lambda form: number_of(form) if _is_finite(form) else 0.0, pl.Float64)
    return [np.ascontiguousarray(numbers.to_numpy(), np.float64).view(np.uint64)]


def measure_count(rule: CellRule) -> int:
    """How many numbers `measures` gives for each cell."""
    if rule.tolerance is None:
        return 0
    return 1 if rule.tolerance.nanoseconds is None else 2


def hashed_form(forms: pl.Series, rule: CellRule) -> pl.Series:
    """Forms in which everything that a tolerance measures is the same: what is left must be equal."""
    if rule.tolerance is None:
        return forms
    if rule.tolerance.nanoseconds is not None:
        form = pl.col("form")
        left = pl.when(form.str.head(1).is_in(_TIMES)).then(form.str.head(1)).otherwise(form)
        return pl.DataFrame({"form": forms}).select(left).to_series()
    return _mapped(forms, lambda form: form[0] if _is_finite(form) else form, pl.String)


def within(a: Sequence[Numbers], b: Sequence[Numbers], tolerance: Tolerance) -> Mask:
    """Which rows are within the tolerance, by their measures."""
    if tolerance.nanoseconds is None:
        old, new = a[0].view(np.float64), b[0].view(np.float64)
        near: Mask = np.zeros(len(old), np.bool_)
        with np.errstate(over="ignore"):
            distance = np.abs(old - new)
            if tolerance.absolute is not None:
                near |= distance <= tolerance.absolute
            if tolerance.relative is not None:
                near |= (distance <= np.abs(tolerance.relative * old)) | (distance <= np.abs(tolerance.relative * new))
        return near
    seconds = a[0].view(np.int64) - b[0].view(np.int64)
    nanoseconds = a[1].view(np.int64) - b[1].view(np.int64)
    # Both parts get the same sign, so that they can be compared one after the other.
    borrowed = np.where((seconds > 0) & (nanoseconds < 0), 1, np.where((seconds < 0) & (nanoseconds > 0), -1, 0))
    seconds, nanoseconds = np.abs(seconds - borrowed), np.abs(nanoseconds + borrowed * _BILLION)
    most, rest = divmod(tolerance.nanoseconds, _BILLION)
    most = min(most, np.iinfo(np.int64).max)
    within_most: Mask = (seconds < most) | ((seconds == most) & (nanoseconds <= rest))
    return within_most


def _quick_numbers(cells: pl.Series, rule: CellRule) -> pl.Series:
    """The nearest doubles of cells that are numbers beyond doubt; null for all others, and for zero.

    What Polars reads as a finite number other than zero is a number of the rules too. Zero may be an exponent of too
    many digits, and a null word may look like a number.
    """
    number, cell = pl.col("number"), pl.col("cell")
    is_sure = number.is_finite() & (number != 0) & (cell.str.len_bytes() <= _LONGEST_QUICK_NUMBER)
    if rule.null_words:
        is_sure &= ~_written_as_null(cell, rule)
    read = pl.DataFrame({"cell": cells, "number": cells.cast(pl.Float64, strict=False)})
    return read.select(pl.when(is_sure).then(number)).to_series()


def _decimal_forms(cells: pl.Series, rule: CellRule, typed: bool) -> pl.Series:
    """The forms of plain decimals such as `-12.50`: `_rules` finds the same on one text; null for all other cells."""
    cell = pl.col("cell")
    body = cell.str.strip_chars_start("+-").str.splitn(".", 2)
    whole = body.struct.field("field_0").str.strip_chars_start("0").alias("whole")
    fraction = body.struct.field("field_1").fill_null("").alias("fraction")
    is_plain = cell.str.contains(_PLAIN_DECIMAL)
    if rule.null_words:
        is_plain &= ~_written_as_null(cell, rule)
    parts = pl.DataFrame({"cell": cells}).select(cell, is_plain.alias("plain"), whole, fraction)
    digits = (pl.col("whole") + pl.col("fraction")).str.strip_chars_start("0")
    # The place of the leading digit: of what is before the point, or, where that is nothing, behind it.
    place = digits.str.len_bytes().cast(pl.Int64) - pl.col("fraction").str.len_bytes().cast(pl.Int64)
    shown = digits.str.strip_chars_end("0")
    parts = parts.select("cell", "plain", shown.alias("digits"), place.alias("place"))
    digits, place = pl.col("digits"), pl.col("place")
    above = (of_cells.EXPONENT_SHIFT + place).cast(pl.String).str.zfill(of_cells.EXPONENT_DIGITS)
    below = (of_cells.EXPONENT_SHIFT - place).cast(pl.String).str.zfill(of_cells.EXPONENT_DIGITS)
    turned = digits.str.replace_many(list("0123456789"), list("9876543210"))
    form = (
        pl.when(digits == "")
        .then(pl.lit(NUMBER + "1"))
        .when(cell.str.starts_with("-"))
        .then(pl.concat_str(pl.lit(NUMBER + "0"), below, turned, pl.lit("~")))
        .otherwise(pl.concat_str(pl.lit(NUMBER + "2"), above, digits))
    )
    return parts.select(pl.when("plain").then(form)).to_series()


def _time_forms(cells: pl.Series, rule: CellRule, typed: bool, *, with_clock: bool = True) -> pl.Series:
    """The forms of dates and times such as `2024-05-17T08:30:00.25Z`; null for all other cells."""
    cell, quote = pl.col("cell"), '"' if typed else ""
    text = cell.str.slice(1, cell.str.len_bytes().cast(pl.Int64) - 2) if typed else cell
    clock = _CLOCK if with_clock else ""
    is_plain = cell.str.contains(f"^{quote}{_DAY}{clock}{quote}$")
    if rule.null_words:
        is_plain &= ~text.is_in(sorted(rule.nulls))
    # A day that is none, such as the 30th of February, has no point in time, and `_rules` says what it is.
    moment = (text.str.head(10) + pl.lit(" ") + text.str.slice(11, 8).replace("", "00:00:00")).str.to_datetime(
        "%Y-%m-%d %H:%M:%S", time_unit="us", strict=False
    )
    days = (moment.dt.epoch("d").cast(pl.Int64) + _DAYS_BEFORE_1970).cast(pl.String).str.zfill(7)
    seconds = (
        (moment.dt.epoch("s") + (_DAYS_BEFORE_1970 * _DAY_SECONDS + of_cells.SECOND_SHIFT))
        .cast(pl.String)
        .str.zfill(13)
    )
    fraction = text.str.slice(20).str.strip_chars_end("Z").str.pad_end(9, "0")
    kind = pl.when(text.str.ends_with("Z")).then(pl.lit(INSTANT)).otherwise(pl.lit(LOCAL))
    form = kind + seconds + fraction if with_clock else pl.lit(DATE) + days
    return pl.DataFrame({"cell": cells}).select(pl.when(is_plain).then(form)).to_series()


def _double_forms(cells: pl.Series, rule: CellRule, typed: bool) -> pl.Series:
    forms = pl.DataFrame({"cell": cells, "form": _decimal_forms(cells, rule, typed)})
    return forms.select(pl.when(pl.col("cell").str.len_bytes() < of_cells.EXACT_TEXT).then(pl.col("form"))).to_series()


STEP_COLUMNS: dict[str, Callable[[pl.Expr], pl.Expr]] = {  # the steps on ASCII text; `cell` does every other one
    "nfc": lambda text: text,
    "blanks": lambda text: text.str.replace_all(r"[\t\n\x0b\x0c\r ]+", " ").str.strip_chars(" "),
    "trim": lambda text: text.str.strip_chars(of_cells.SPACE),
    "case": lambda text: text.str.to_lowercase(),
}
# By the form of a cell. A column form gives null for every cell that it leaves to that.
COLUMN_FORMS: dict[Any, Callable[[pl.Series, CellRule, bool], pl.Series]] = {
    of_cells.number_form: _decimal_forms,
    of_cells.double_form: _double_forms,
    of_cells.date_form: partial(_time_forms, with_clock=False),
    of_cells.datetime_form: _time_forms,
}


def _time_measures(forms: pl.Series) -> list[Numbers]:
    """Seconds and nanoseconds of forms; both zero where a form is no time. See `seconds_of`."""
    form = pl.col("form")
    is_date, is_time = form.str.head(1) == DATE, form.str.head(1).is_in([LOCAL, INSTANT])
    days = form.str.slice(1).cast(pl.Int64, strict=False) * _DAY_SECONDS
    seconds = pl.when(is_date).then(days).when(is_time).then(form.str.slice(1, 13).cast(pl.Int64, strict=False))
    nanoseconds = pl.when(is_time).then(form.str.slice(14).cast(pl.Int64, strict=False))
    found = pl.DataFrame({"form": forms}).select(seconds.otherwise(0).alias("s"), nanoseconds.otherwise(0).alias("n"))
    return [np.ascontiguousarray(found[name].to_numpy()).view(np.uint64) for name in ("s", "n")]


def _text_forms(cells: pl.Series, rule: CellRule) -> pl.Series:
    """The forms of text that is ASCII, on which the steps are simple; null for all other cells."""
    text = cell = pl.col("cell")
    for step in rule.steps:
        text = STEP_COLUMNS[step.name](text)
    form = pl.concat_str(pl.lit(TEXT), text)
    if rule.null_words:
        form = pl.when(text.is_in(sorted(rule.nulls))).then(pl.lit(NULL)).otherwise(form)
    is_ascii = cell.str.len_bytes() == cell.str.len_chars()
    return pl.DataFrame({"cell": cells}).select(pl.when(is_ascii).then(form)).to_series()


def _written_as_null(cell: pl.Expr, rule: CellRule) -> pl.Expr:
    """Whether a cell that looks like a number may be a null word; steps that keep numbers change the case of an `E`."""
    return cell.str.to_lowercase().is_in([word.lower() for word in rule.nulls])


def _is_finite(form: str) -> bool:
    return form[0] == NUMBER and abs(number_of(form)) != float("inf")


def _mapped(cells: pl.Series, function: Callable[[str], str | float], dtype: type[pl.DataType]) -> pl.Series:
    """A function of every cell, called once for each value."""
    values = cells.unique()
    if len(values) * 2 > len(cells):
        return pl.Series(cells.name, [function(cell) for cell in cells], dtype=dtype)
    results = pl.Series([function(value) for value in values], dtype=dtype)
    return cells.replace_strict(values, results, return_dtype=dtype)
