"""The kind of change of many cells at once, with the same results as `ColumnProfile.add` on each pair.

Most cells are judged by the column forms of the rules; the few that may be lists are judged one by one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from driftline.tables import _profile
from driftline.tables._columns import Comparison
from driftline.tables._kernels.match import RowHashes, column_name
from driftline.tables._profile import ColumnProfile, Profile, RowRuns, Run, Span, Typed
from driftline.tables._rule_columns import form_column, measures, tolerant_column
from driftline.tables._rules import INSTANT, LOCAL, NUMBER, CellRule, Tolerance

_KINDS = list(_profile.KIND_WORDS)
_MEASURED = CellRule(kind=_profile.NUMBERS.kind, tolerance=Tolerance(absolute=0.0))
_TIMED = CellRule(kind=_profile.TIMES.kind, tolerance=Tolerance(nanoseconds=0))
# What may be a number or a time: other cells need no form, which would be made one by one.
_NUMBER = r'^"?\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]*)?\s*"?$'
_TIME = r'^"?\s*[0-9]{4}-[0-9]{2}-[0-9]{2}'
_BLANK = r"[\s\\]"  # in JSON text a blank may be an escape
_PLAIN = r"^[+-]?[0-9]*\.?[0-9]*$"
_UNDECIDED = np.uint8(255)

Codes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def profile_changes(
    before: pl.DataFrame, after: pl.DataFrame, differs: Sequence[pl.Series], compared: Comparison
) -> Profile:
    """The profile of the columns of some changed rows, which are in the order of the output."""
    found = Profile()
    typed = compared.typed_a, compared.typed_b
    for column, mask in zip(compared.columns, differs, strict=True):
        if mask.any():
            old, new = before[column_name(column.a)].filter(mask), after[column_name(column.b)].filter(mask)
            found.columns[column.a] = profile_column(old, new, typed)
    return found


def profile_column(before: pl.Series, after: pl.Series, typed: Typed) -> ColumnProfile:
    """The profile of pairs of cells; each pair is judged once, however often it occurs."""
    frame = pl.DataFrame({"a": before, "b": after}).with_row_index("at")
    pairs = frame.group_by("a", "b").agg(pl.len().alias("count"), pl.col("at").min()).sort("at")
    before, after, counts = pairs["a"], pairs["b"], pairs["count"].to_numpy().astype(np.int64)
    profile = ColumnProfile(typed=typed)
    codes = np.full(len(before), _UNDECIDED)
    plain = (before.str.contains(_PLAIN) & after.str.contains(_PLAIN)).to_numpy()
    rest = _open_and_matching(before, after, np.where(plain, np.uint8(0), _UNDECIDED), _NUMBER)
    numbers = np.sort(np.concatenate([np.flatnonzero(plain), rest]))  # pairs that may be; most are plain
    kinds = _numbers(before.gather(numbers), after.gather(numbers), counts[numbers], typed, profile)
    _spellings(before, after, typed, codes, np.flatnonzero(~plain))
    written = _written(before, after, counts, profile)
    for at, code in written:
        codes[at] = code if codes[at] == _UNDECIDED and code == _code("null_word") else codes[at]
    for kind, cells, side in (("filled", before, 0), ("emptied", after, 1)):
        empty = cells.is_in(["null", '""'] if typed[side] else [""]).to_numpy()
        codes[empty & (codes == _UNDECIDED)] = _code(kind)
    open_numbers = (codes[numbers] == _UNDECIDED) & (kinds != _UNDECIDED)
    codes[numbers[open_numbers]] = kinds[open_numbers]
    _times(before, after, typed, codes, profile)
    for at, code in written:
        codes[at] = code if codes[at] == _UNDECIDED else codes[at]
    _lists(before, after, typed, codes)
    codes[codes == _UNDECIDED] = _code("other")
    for code, at in zip(*np.unique(codes, return_index=True), strict=True):
        profile.kinds[_KINDS[code]] = int(counts[codes == code].sum())
        profile.examples[_KINDS[code]] = (before[int(at)], after[int(at)])
    _count_pairs(pairs, profile)
    return profile


def runs_of(kinds: Codes, names: Sequence[str], lines: pl.Series) -> RowRuns:
    """The runs of equal kinds in lines of events; their places are read from the lines at the ends of runs."""
    found = RowRuns()
    if not len(kinds):
        return found
    starts = np.concatenate([[0], np.flatnonzero(np.diff(kinds)) + 1])
    ends = np.concatenate([starts[1:], [len(kinds)]])

    def run(number: int) -> Run:
        first, last = int(starts[number]), int(ends[number])
        places = [_profile.place_of(json.loads(lines[at])) for at in (first, last - 1)]
        return Run(names[kinds[first]], last - first, *places)

    lengths = ends - starts
    for kind, name in enumerate(names):
        of_kind = np.flatnonzero(kinds[starts] == kind)
        if len(of_kind):
            found.count[name] = len(of_kind)
            found.longest[name] = run(int(of_kind[lengths[of_kind].argmax()]))
    found.first, found.last = run(0), run(len(starts) - 1)
    return found


def repeats_of(a: RowHashes, b: RowHashes) -> Profile:
    """The duplicates of one bucket, without the cells of their keys."""
    counted = [
        pl.DataFrame({name: np.ascontiguousarray(hashes[name]) for name in ("key", "key_2", "place")})
        .group_by("key", "key_2")
        .agg(pl.len().cast(pl.Int64).alias("rows"), pl.col("place").min())
        for hashes in (a, b)
    ]
    repeated = pl.concat([one.filter(pl.col("rows") > 1).select("key", "key_2") for one in counted]).unique()
    sides = [one.join(repeated, ["key", "key_2"], "semi") for one in counted]
    both = sides[0].join(sides[1], ["key", "key_2"], "full", suffix="_b")
    both = both.with_columns(pl.col("rows", "rows_b").fill_null(0))
    more = pl.max_horizontal("rows_b", 1) - pl.max_horizontal("rows", 1)
    found = Profile()
    for kind, at, surplus in zip(_profile.REPEATS, ("place_b", "place"), (more, -more), strict=True):
        of_kind = both.with_columns(surplus.alias("more")).filter(pl.col("more") > 0)
        most = of_kind.sort("more", at, descending=[True, False]).head(_profile.MOST_REPEATS)
        for row in most.iter_rows(named=True):
            found.add_key({}, row[at], (row["rows"], row["rows_b"]))
        found.repeats[kind].keys, found.repeats[kind].rows = of_kind.height, int(of_kind["more"].sum())
    return found


def _code(kind: str) -> np.uint8:
    return np.uint8(_KINDS.index(kind))


def _open_and_matching(before: pl.Series, after: pl.Series, codes: Codes, pattern: str) -> Index:
    """The pairs that are not decided yet and of which both cells match."""
    at = np.flatnonzero(codes == _UNDECIDED)
    both = before.gather(at).str.contains(pattern) & after.gather(at).str.contains(pattern)
    return np.asarray(at[both.to_numpy()], np.int64)


def _numbers(before: pl.Series, after: pl.Series, counts: Index, typed: Typed, profile: ColumnProfile) -> Codes:
    """The kinds of pairs that are numbers, whose distances are counted; undecided where one of them is none."""
    kinds = np.full(len(before), _UNDECIDED)
    if not len(before):
        return kinds
    left_a, (old,) = tolerant_column(before, _MEASURED, typed=typed[0])
    left_b, (new,) = tolerant_column(after, _MEASURED, typed=typed[1])
    are_numbers = ((left_a == NUMBER) & (left_b == NUMBER)).to_numpy()
    a, b = old.view(np.float64), new.view(np.float64)
    with np.errstate(all="ignore"):
        kinds[are_numbers] = _code("number")
        places = _decimals(before), _decimals(after)
        at = np.flatnonzero(are_numbers & (places[0] != places[1]))
        shorter = np.minimum(places[0][at], places[1][at])
        at = at[(shorter >= 0) & (np.abs(a[at] - b[at]) <= _profile.HALF * 10.0**-shorter)]
        kinds[at] = _code("rounding")
        kinds[are_numbers & (a == -b)] = _code("sign")
        same = np.flatnonzero(are_numbers & (a == b))  # perhaps the same number: their exact forms decide
        if len(same):
            sides = zip((before, after), typed, strict=True)
            forms = [form_column(cells.gather(same), _profile.NUMBERS, typed=is_typed) for cells, is_typed in sides]
            same = same[(forms[0] == forms[1]).to_numpy()]
            kinds[same] = _code("number_format")
        profile.same_number = int(counts[same].sum())
        _note_numbers(a[are_numbers], b[are_numbers], counts[are_numbers], profile)
    return kinds


def _decimals(cells: pl.Series) -> Floats:
    """How many digits are behind the point of each number; -1 where there is an exponent."""
    cell = pl.col("cell")
    behind = cell.str.len_bytes().cast(pl.Float64) - cell.str.find(".", literal=True).cast(pl.Float64) - 1
    frame = pl.DataFrame({"cell": cells})
    found = frame.select(pl.when(cell.str.contains(_PLAIN)).then(behind.fill_null(0))).to_series()
    at = found.is_null().arg_true()
    if len(at):
        digits = cell.str.extract(_profile.FRACTION, 1).str.len_bytes().fill_null(0).cast(pl.Float64)
        odd = frame[at].select(pl.when(cell.str.contains(_profile.EXPONENT)).then(-1.0).otherwise(digits)).to_series()
        found = found.scatter(at, odd)
    return found.to_numpy()


def _note_numbers(a: Floats, b: Floats, counts: Index, profile: ColumnProfile) -> None:
    if not len(a):
        return
    moved = b - a
    bins = np.searchsorted(_profile.SIZES, np.abs(moved))
    profile.sizes = [int(count) for count in np.bincount(bins, weights=counts, minlength=len(_profile.SIZES) + 1)]
    profile.largest = float(max(np.abs(a).max(), np.abs(b).max()))
    really = moved != 0
    if really.any():
        profile.offset = _span(moved[really])
        old, new = a[really], b[really]
        profile.factor = _span(new / old) if old.all() else Span(float("-inf"), float("inf"))


def _span(values: Floats) -> Span:
    return Span(float(values.min()), float(values.max()))


def _spellings(before: pl.Series, after: pl.Series, typed: Typed, codes: Codes, at: Index) -> None:
    """Of some pairs those that differ in case or blanks alone: all of them are equal under the last rule."""
    at = at[_perhaps_respelled(before.gather(at), after.gather(at))]
    at = at[_equal_under(_profile.SPELLINGS["case_blanks"], before.gather(at), after.gather(at), typed)]
    for kind in reversed(_profile.SPELLINGS):
        codes[at[_equal_under(_profile.SPELLINGS[kind], before.gather(at), after.gather(at), typed)]] = _code(kind)


def _perhaps_respelled(before: pl.Series, after: pl.Series) -> Mask:
    """All pairs but ASCII texts of different lengths without blanks."""
    a, b = pl.col("a"), pl.col("b")
    ascii_only = (a.str.len_bytes() == a.str.len_chars()) & (b.str.len_bytes() == b.str.len_chars())
    blank = a.str.contains(_BLANK) | b.str.contains(_BLANK)
    other = ascii_only & (a.str.len_bytes() != b.str.len_bytes()) & ~blank
    return pl.DataFrame({"a": before, "b": after}).select(~other).to_series().to_numpy()


def _equal_under(rule: CellRule, before: pl.Series, after: pl.Series, typed: Typed) -> Mask:
    equal = form_column(before, rule, typed=typed[0]) == form_column(after, rule, typed=typed[1])
    return equal.to_numpy()


def _times(before: pl.Series, after: pl.Series, typed: Typed, codes: Codes, profile: ColumnProfile) -> None:
    at = _open_and_matching(before, after, codes, _TIME)
    if not len(at):
        return
    a = form_column(before.gather(at), _profile.TIMES, typed=typed[0])
    b = form_column(after.gather(at), _profile.TIMES, typed=typed[1])
    are_times = ((a.str.head(1) == b.str.head(1)) & a.str.head(1).is_in([LOCAL, INSTANT])).to_numpy()
    same = (a == b).to_numpy()
    codes[at[are_times & same]] = _code("date_format")
    shifted = are_times & ~same
    if not shifted.any():
        return
    codes[at[shifted]] = _code("date")
    old, new = (measures(forms.filter(pl.Series(shifted)), _TIMED) for forms in (a, b))
    seconds, parts = (new[n].view(np.int64) - old[n].view(np.int64) for n in (0, 1))
    profile.shift = _span(seconds.astype(np.float64) + parts / 1e9)


def _written(before: pl.Series, after: pl.Series, counts: Index, profile: ColumnProfile) -> list[tuple[int, np.uint8]]:
    """The pairs of words that often mean null, and those that are one date in two forms, with their kinds."""
    words = _profile.NULL_WORDS
    known = [["null", *map(json.dumps, words)] if typed else words for typed in profile.typed]
    are_dates = before.str.contains(_profile.LIKE_DATES) & after.str.contains(_profile.LIKE_DATES)
    perhaps = (are_dates | (before.is_in(known[0]) & after.is_in(known[1]))).arg_true()
    kinds = ((at, profile.note_words(before[at], after[at], int(counts[at]))) for at in perhaps)
    return [(at, _code(kind)) for at, kind in kinds if kind is not None]


def _lists(before: pl.Series, after: pl.Series, typed: Typed, codes: Codes) -> None:
    """Lists in another order: lists of JSON, or texts with marks, which then are as long but for blanks."""
    at = _open_and_matching(before, after, codes, f"[{_profile.LIST_MARKS}]")
    a, b = before.gather(at), after.gather(at)
    long_a, long_b = (cells.str.replace_all(r"\s", "").str.len_bytes() for cells in (a, b))
    perhaps = (long_a == long_b) | a.str.contains(r'^"?\[')
    for number in perhaps.arg_true():
        if _profile.is_reordered(a[number], b[number], typed):
            codes[at[number]] = _code("reordered")


def _count_pairs(pairs: pl.DataFrame, profile: ColumnProfile) -> None:
    short = pairs.filter(pl.col("a").str.len_chars() + pl.col("b").str.len_chars() <= _profile.LONGEST_PAIR)
    if short.height > _profile.MOST_PAIRS:
        counts = short["count"].to_numpy().astype(np.int64)
        least = np.partition(counts, -_profile.MOST_PAIRS)[-_profile.MOST_PAIRS]
        more = np.flatnonzero(counts > least)
        short = short[np.concatenate([more, np.flatnonzero(counts == least)[: _profile.MOST_PAIRS - len(more)]])]
    profile.left_out = short.height < pairs.height
    profile.pairs = {(a, b): count for a, b, count in short.select("a", "b", "count").iter_rows()}
