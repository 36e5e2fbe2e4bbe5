"""Rules on whole columns against the same rules on one cell: the quick ways give the forms that `cells` rules."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

import numpy as np
import polars as pl
from hypothesis import example, given, settings, strategies as st

from driftline.tables._rule_columns import differing, form_column, tolerant_column
from driftline.tables._rules import KINDS, NUMBER, STEPS, CellRule, Tolerance, number_of, seconds_of

number_like = st.text("0123456789+-.eE_ xinfa", max_size=12) | st.floats().map(repr) | st.integers().map(str)
padded = st.builds(
    lambda sign, before, digits, after: f"{sign}{before}{digits}{after}",
    st.sampled_from(["", "-", "+"]),
    st.sampled_from(["", "0", "000", "0.000", "1" * 40]),
    st.integers(0, 10**20).map(str),
    st.sampled_from(["", ".", ".0", ".50", "e3", "E-5", "e9999999999", "e-9999999999", "0" * 310]),
)
text = st.text(st.sampled_from("aB \t\n\x0b\x1c\x85\xa0ßéİ0-/nN"), max_size=6)
cells = st.lists(st.one_of(number_like, padded, text), max_size=12)
steps = st.lists(st.sampled_from(list(STEPS)), unique=True).map(
    lambda chosen: tuple(step for name, step in STEPS.items() if name in chosen)
)
null_words = st.lists(st.sampled_from(["", "-999", "1E5", "n/a", "NA", " 0"]), max_size=2).map(tuple)


day = st.dates().map(str) | st.sampled_from(["0000-01-01", "2023-02-29", "2024-02-29", "2024-13-01", "9999-12-31"])
clock = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["T", " ", "t", ""]),
    st.times().map(lambda time: time.strftime("%H:%M:%S")) | st.sampled_from(["24:00:00", "23:59:60", "10:30", ""]),
    st.sampled_from(["", ".5", ".000", ".123456789", ".1234567890", "."]),
    st.sampled_from(["", "Z", "z", "+02:00", "-0130", "+99:00", " "]),
)
TIMES = [kind for kind in KINDS.values() if kind.measure == "time"]
OTHERS = [None, *(kind for kind in KINDS.values() if kind.measure != "time")]
AS_NUMBER = CellRule(kind=KINDS["number"])
times = st.builds("{}{}".format, day, st.just("") | clock) | text


@settings(max_examples=200, deadline=None)
@given(
    column=st.lists(times, max_size=8),
    rule=st.builds(CellRule, steps=steps, null_words=st.just(()) | st.tuples(day), kind=st.sampled_from(TIMES)),
    typed=st.booleans(),
)
@example(
    column=["2024-05-17", "2024-05-17T08:30:00.25Z", "0001-01-01 00:00:00"],
    rule=CellRule(kind=KINDS["datetime"]),
    typed=False,
)
def test_columns_of_times_have_the_forms_of_their_cells(column: list[str], rule: CellRule, typed: bool) -> None:
    if typed:
        column = [json.dumps(cell, ensure_ascii=False) for cell in column]
    form = rule.form_of_json if typed else rule.form
    found = form_column(pl.Series("c", column, dtype=pl.String), rule, typed=typed)
    assert found.to_list() == [form(cell) for cell in column]
    tolerant = replace(rule, tolerance=Tolerance(nanoseconds=1))
    left, measured = tolerant_column(pl.Series("c", column, dtype=pl.String), tolerant, typed=typed)
    is_time = [form(cell)[0] in "456" for cell in column]
    assert left.to_list() == [
        form(cell)[0] if timed else form(cell) for cell, timed in zip(column, is_time, strict=True)
    ]
    expected = [seconds_of(form(cell)) if timed else (0, 0) for cell, timed in zip(column, is_time, strict=True)]
    assert list(zip(*(part.view(np.int64).tolist() for part in measured), strict=True)) == expected


@settings(max_examples=150, deadline=None)
@given(
    column=cells,
    rule=st.builds(CellRule, steps=steps, null_words=null_words, kind=st.sampled_from(OTHERS)),
    typed=st.booleans(),
)
@example(column=["1e-9999999999", "1e400", "-0", "1E5", " 7 "], rule=AS_NUMBER, typed=False)
@example(column=["-999", "1e5"], rule=replace(AS_NUMBER, steps=(STEPS["case"],), null_words=("1E5",)), typed=False)
def test_columns_have_the_forms_of_their_cells(column: list[str], rule: CellRule, typed: bool) -> None:
    if typed:
        column = [cell if is_number(cell) else json.dumps(cell, ensure_ascii=False) for cell in column]
    form = rule.form_of_json if typed else rule.form
    found = form_column(pl.Series("c", column, dtype=pl.String), rule, typed=typed)
    assert found.to_list() == [form(cell) for cell in column]


def is_number(cell: str) -> bool:
    try:
        return isinstance(json.loads(cell), (int, float))
    except ValueError:
        return False


@settings(max_examples=150, deadline=None)
@given(column=cells, null_words=null_words)
@example(column=["1e-9999999999", "1e400", "-0", "nan", "inf", "0", "1E5"], null_words=("1E5",))
def test_tolerant_numbers_are_measured_as_by_their_forms(column: list[str], null_words: tuple[str, ...]) -> None:
    rule = replace(AS_NUMBER, null_words=null_words, tolerance=Tolerance(absolute=0.5))
    left, (measured,) = tolerant_column(pl.Series("c", column, dtype=pl.String), rule, typed=False)
    forms = [rule.form(cell) for cell in column]
    numbers = [number_of(form) if form[0] == NUMBER else float("inf") for form in forms]
    assert left.to_list() == [
        NUMBER if np.isfinite(number) else form for form, number in zip(forms, numbers, strict=True)
    ]
    assert measured.view(np.float64).tolist() == [number if np.isfinite(number) else 0.0 for number in numbers]


near_times = st.datetimes(datetime(2024, 1, 1), datetime(2024, 1, 2)).map(str) | text
tolerant_rules = st.one_of(
    st.builds(Tolerance, absolute=st.sampled_from([0.0, 0.5, 1e300])),
    st.builds(Tolerance, relative=st.sampled_from([0.0, 0.01])),
).map(lambda tolerance: replace(AS_NUMBER, null_words=("n/a",), tolerance=tolerance))
time_rule = CellRule(kind=KINDS["datetime"], tolerance=Tolerance(nanoseconds=3_600_000_000_000))


@settings(max_examples=150, deadline=None)
@given(
    case=st.tuples(st.lists(st.tuples(number_like | padded, number_like | padded), max_size=8), tolerant_rules)
    | st.tuples(st.lists(st.tuples(near_times, near_times), max_size=8), st.just(time_rule))
)
@example(
    case=(
        [("0", "-0.0"), ("inf", "inf"), ("n/a", "x"), ("1e400", "1e401"), ("1", "1.004")],
        replace(AS_NUMBER, tolerance=Tolerance(relative=0.01)),
    )
)
def test_tolerant_columns_differ_where_their_cells_do(case: tuple[list[tuple[str, str]], CellRule]) -> None:
    pairs, rule = case
    before, after = (pl.Series([pair[side] for pair in pairs], dtype=pl.String) for side in (0, 1))
    expected = [not rule.equal(rule.form(a), rule.form(b)) for a, b in pairs]
    assert differing(before, after, rule, typed=(False, False)).to_list() == expected
