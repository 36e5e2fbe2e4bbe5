"""The kind of change: a plain reference, every local engine, and what a suggested rule really leaves."""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st

import driftline as dl
from driftline.tables import Profile
from driftline.tables._kernels.profiles import profile_column
from driftline.tables._profile import KIND_WORDS, ColumnProfile, RowRuns, Run

NUMBERS = [
    "0",
    "1",
    "-1",
    "1.0",
    "1.5",
    "1.50",
    "2",
    "1.499",
    "-1.5",
    "1e3",
    "1000",
    "1E3",
    "05",
    "5",
    "0.001",
    " 5",
    ".5",
]
DATES = [
    "2024-01-31",
    "2024-02-01",
    "2024-02-30",
    "2024-01-31T00:00:00",
    "2024-01-31 10:00:00Z",
    "2024-01-31T12:00:00.5Z",
]
TEXTS = [
    "",
    " ",
    "Ann",
    "ANN",
    "ann ",
    "Ann ",
    "A nn",
    "Ann  Lee",
    "ann lee",
    "a,b",
    "b,a",
    "b, a",
    "a;b",
    "b|a",
    "[1,2]",
    "[2, 1]",
    "[2,",
    "x",
    "Ä",
    "ä",
]
NULLS = ["NA", "N/A", "null", "-"]
WRITTEN = ["31.01.2024", "01/31/2024", "31/01/2024", "01.02.2024", "20240131", "1/2/2024", "2/1/2024", "2024/2/1"]
CELLS = [*NUMBERS, *DATES, *TEXTS, *NULLS, *WRITTEN]


def reference(before: str, after: str) -> str:
    """The kind of one change, decided with Python's own numbers, dates and lists."""
    if before.casefold() == after.casefold():
        return "case"
    old, new = " ".join(before.split()), " ".join(after.split())
    if old == new:
        return "blanks"
    if old.casefold() == new.casefold():
        return "case_blanks"
    if before == "" or after == "" or {before, after} <= set(NULLS):
        return "null_word" if {before, after} <= {"", *NULLS} else "filled" if before == "" else "emptied"
    numbers = [_decimal(cell) for cell in (before, after)]
    if numbers[0] is not None and numbers[1] is not None:
        return _number_kind(numbers[0], numbers[1], before, after)
    moments = [_moment(cell) for cell in (before, after)]
    if moments[0] is not None and moments[1] is not None and moments[0][0] == moments[1][0]:
        return "date_format" if moments[0] == moments[1] else "date"
    if _same_day(before, after):
        return "date_format"
    lists = [_list(cell) for cell in (before, after)]
    return "reordered" if lists[0] is not None and lists[0] == lists[1] else "other"


def _same_day(before: str, after: str) -> bool:
    """Whether two cells are one day in two forms, which are not day and month in another order alone."""
    forms = ["%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y"]
    swapped = [("%d/%m/%Y", "%m/%d/%Y"), ("%m/%d/%Y", "%d/%m/%Y")]
    days: list[dict[str, date]] = [{}, {}]
    for found, cell in zip(days, (before, after), strict=True):
        for form in forms:
            if form in ("%Y-%m-%d", "%Y%m%d") and not re.fullmatch(r"\d{4}-\d\d-\d\d|\d{8}", cell.strip()):
                continue
            with contextlib.suppress(ValueError):
                found[form] = datetime.strptime(cell.strip(), form).date()
    return any(days[0][x] == days[1][y] and (x, y) not in swapped for x in days[0] for y in days[1])


def _decimal(cell: str) -> Decimal | None:
    text = cell.strip()
    return Decimal(text) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) else None


def _number_kind(old: Decimal, new: Decimal, before: str, after: str) -> str:
    if old == new:
        return "number_format"
    if old == -new:
        return "sign"
    if "e" in (before + after).lower():
        return "number"
    places = [len(cell.strip().partition(".")[2]) for cell in (before, after)]
    near = abs(old - new) <= Decimal("0.5").scaleb(-min(places))
    return "rounding" if places[0] != places[1] and near else "number"


def _moment(cell: str) -> tuple[bool, Decimal] | None:
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d):(\d\d):(\d\d(?:\.\d+)?)(Z?))?", cell.strip())
    if match is None:
        return None
    try:
        days = date.fromisoformat(match[1]).toordinal()
    except ValueError:
        return None
    clock = Decimal(match[2] or 0) * 3600 + Decimal(match[3] or 0) * 60 + Decimal(match[4] or 0)
    return bool(match[5]), days * 86400 + clock


def _list(cell: str) -> tuple[str, list[str]] | None:
    if cell.startswith("["):
        try:
            return "[", sorted(map(json.dumps, json.loads(cell)))
        except ValueError:
            pass
    for mark in ",;|":
        if mark in cell:
            return mark, sorted(item.strip() for item in cell.split(mark))
    return None


changes = st.lists(
    st.tuples(st.sampled_from(CELLS), st.sampled_from(CELLS)).filter(lambda pair: pair[0] != pair[1]), max_size=40
)


@given(changes)
def test_kinds_are_those_of_a_plain_reference(pairs: list[tuple[str, str]]) -> None:
    plain = ColumnProfile()
    for before, after in pairs:
        plain.add(before, after)
    assert plain.kinds == Counter(reference(before, after) for before, after in pairs)
    distances = [abs(float(a) - float(b)) for a, b in pairs if _decimal(a) is not None and _decimal(b) is not None]
    assert plain.within(0.5) == sum(distance <= 0.5 for distance in distances)
    assert sorted(plain.pairs.items()) == sorted(Counter(pairs).items())
    assert not plain.left_out


@given(changes, st.booleans(), st.integers(0, 40))
def test_columns_of_cells_have_the_profile_of_their_pairs(pairs: list[tuple[str, str]], typed: bool, cut: int) -> None:
    cells = [tuple(json.dumps(cell, ensure_ascii=False) if typed else cell for cell in pair) for pair in pairs]
    plain = ColumnProfile(typed=(typed, typed))
    for before, after in cells:
        plain.add(before, after)
    whole = ColumnProfile(typed=(typed, typed))
    for part in (cells[:cut], cells[cut:]):
        whole.join(_vectorized(part, typed))
    assert _facts(whole) == _facts(plain)


def _vectorized(cells: Sequence[tuple[str, ...]], typed: bool) -> ColumnProfile:
    before, after = (pl.Series([pair[at] for pair in cells], dtype=pl.String) for at in (0, 1))
    return profile_column(before, after, (typed, typed))


def _facts(profile: ColumnProfile) -> dict[str, Any]:
    return {**vars(profile), "kinds": dict(+profile.kinds), "pairs": sorted(profile.pairs.items())}


kinds = st.lists(st.sampled_from(["added", "removed", "changed"]), max_size=30)


@given(kinds, st.integers(0, 30))
def test_runs_of_rows_are_joined_over_the_borders_of_parts(sequence: list[str], cut: int) -> None:
    whole, left, right = RowRuns(), RowRuns(), RowRuns()
    for number, kind in enumerate(sequence):
        run = Run(kind, 1, str(number), str(number))
        whole.add(run)
        (left if number < cut else right).add(run)
    left.join(right)
    assert (dict(+left.count), left.longest, left.last) == (dict(+whole.count), whole.longest, whole.last)
    expected = [len(match[0]) for match in re.finditer(r"a+", "".join(kind[0] for kind in sequence))]
    assert whole.count["added"] == len(expected)
    assert expected == [] or whole.longest["added"].rows == max(expected)


ROWS = st.lists(
    st.tuples(st.sampled_from(CELLS), st.sampled_from(CELLS), st.sampled_from(["both", "a", "b"])), max_size=40
)


@given(ROWS)
def test_every_local_engine_finds_the_same_profile(rows: list[tuple[str, str, str]]) -> None:
    a = [{"id": f"{n:03}", "v": before} for n, (before, _, side) in enumerate(rows) if side != "b"]
    b = [{"id": f"{n:03}", "v": after} for n, (_, after, side) in enumerate(rows) if side != "a"]
    profiles = [_profile(a, b, engine).to_dict() for engine in ("local", "vectorized")]
    assert profiles[0] == profiles[1]
    expected = Counter(reference(x, y) for x, y, side in rows if side == "both" and x != y)
    assert profiles[0]["columns"].get("v", {"kinds": {}})["kinds"] == expected


def _profile(a: list[dict[str, str]], b: list[dict[str, str]], engine: str, **rules: Any) -> Profile:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("a.csv", "b.csv")]
        for path, table in zip(paths, (a, b), strict=True):
            quoted = ((row["id"], '"' + row["v"].replace('"', '""') + '"') for row in table)
            path.write_text("id,v\n" + "".join(f"{key},{value}\n" for key, value in quoted), encoding="utf-8")
        with dl.diff(*paths, key="id", engine=engine, **rules) as result:
            assert rules or sum(column.changes for column in result.profile().columns.values()) == sum(
                result.column_stats.values()
            )
            return result.profile()


@given(st.lists(st.tuples(st.sampled_from(CELLS), st.sampled_from(CELLS)), min_size=10, max_size=40))
def test_a_suggested_rule_leaves_as_many_changes_as_it_says(rows: list[tuple[str, str]]) -> None:
    a, b = ([{"id": f"{n:03}", "v": pair[at]} for n, pair in enumerate(rows)] for at in (0, 1))
    for one in _profile(a, b, "local").suggestions():
        rule: dict[str, list[str]] = {}
        for option, value in one.rules:
            rule.setdefault(option.replace("-", "_"), []).append(value)
        left = _profile(a, b, "local", **rule)
        assert sum(column.changes for column in left.columns.values()) == one.leaves, one.flag


@pytest.mark.parametrize("name", ["a=b", "a,b", "it's", 'q"q', "-v", " v", "*", "$HOME", "a:b"])
def test_the_option_of_a_suggested_rule_can_be_given_as_it_is_shown(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    import csv
    import shlex

    from driftline.cli._outcome import run
    from driftline.cli.main import driftline

    days = [f"2024-01-{day:02}" for day in range(1, 13)]
    cells = [(day, day[8:] + "." + day[5:7] + ".2024") for day in days]
    for at, side in enumerate(("a", "b")):
        with (tmp_path / f"{side}.csv").open("w", newline="", encoding="utf-8") as out:
            rows = [(f"k{number}", pair[at], 100 + number * 5e-4 * at) for number, pair in enumerate(cells)]
            csv.writer(out).writerows([["id", name, f"{name}="], *rows])
    sides = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--key", "id"]
    with dl.diff(*sides[:2], key="id") as result:
        found = result.profile().suggestions()
    assert {one.column for one in found} == {name, f"{name}="}
    for one in found:
        assert run(driftline, ["diff", *sides, *shlex.split(one.flag), "--column-stats"]) == 1, one.flag
        events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        left = [event for event in events if event["type"] == "changed" and one.column in event["changed"]]
        assert len(left) == one.leaves, one.flag


def moved_airports() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Coordinates of which 4,592 were written with more digits and 665 moved, among 5,257 that changed."""
    chance = random.Random(5)
    a, b = [], []
    for number in range(9_000):
        latitude = round(chance.uniform(-80, 80), 6)
        moved = 0.0
        if number < 4_592:
            moved = 10 ** chance.uniform(-6, -3.01)
        elif number < 5_257:
            moved = chance.uniform(0.01, 3)
        a.append({"id": f"{number:05}", "v": f"{latitude:.6f}"})
        b.append({"id": f"{number:05}", "v": f"{latitude + moved:.9f}" if moved else f"{latitude:.6f}"})
    return a, b


@pytest.mark.parametrize("engine", ["local", "vectorized"])
def test_coordinates_that_were_measured_again_suggest_a_tolerance(engine: str) -> None:
    profile = _profile(*moved_airports(), engine)
    sentence = profile.suggestions()[0].sentence
    assert sentence.startswith("4,592 of 5,257 changes of v are below 0.001: --tolerance v=0.001 would leave 665")


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("1", "6"), ("2", "7")], ["another number, always +5"]),
        ([("10", "11"), ("20", "22")], ["another number, always × 1.1"]),
        ([("2024-02-28", "2024-02-29"), ("2024-02-29", "2024-03-01")], ["date shifted by +1 day"]),
        ([("1.234", "1.23"), ("5.5", "6")], ["rounding, 99 % within 0.5"]),
        ([("free", "pro")] * 3 + [("", "x")], ["3 another value", "1 empty → value", "free → pro 3×"]),
        ([("3", "-3")], ["sign"]),
    ],
)
def test_what_all_changes_of_a_column_share_is_said(pairs: list[tuple[str, str]], words: list[str]) -> None:
    profile = ColumnProfile()
    for before, after in pairs:
        profile.add(before, after)
    assert profile.words() == words


def test_too_many_pairs_are_counted_as_lower_bounds() -> None:
    pairs = [(str(number), "x") for number in range(5_000)] + [("often", "x")] * 2_000
    profile = _vectorized(pairs, typed=False)
    assert profile.left_out
    assert profile.frequent(1) == [("often", "x", 2_000)]
    assert "often → x at least 2,000×" in profile.words()
    assert len(profile.pairs) <= 1024
    assert math.isfinite(profile.largest)


@pytest.mark.parametrize("distinct", [400, 512, 513, 600, 1_000, 1_025, 3_000])
def test_many_pairs_are_told_alike_by_every_engine(distinct: int) -> None:
    chance = random.Random(distinct)
    values = [*(f"k{number}" for number in range(distinct)), *(f"k{chance.randrange(distinct)}" for _ in range(300))]
    values += ["often"] * 900 + ["x" * 120 if distinct == 400 else "once"]
    chance.shuffle(values)
    a, b = ([{"id": f"{n:05}", "v": mark + value} for n, value in enumerate(values)] for mark in ("", "+"))
    profiles = [_profile(a, b, engine).to_dict() for engine in ("local", "vectorized")]
    assert profiles[0] == profiles[1]
    column = profiles[0]["columns"]["v"]
    assert column["frequent_is_approximate"] == (distinct == 400 or distinct + 2 > 512)
    assert column["frequent"][0] == {"from": "often", "to": "+often", "count": 900}


def test_a_block_of_added_rows_is_named() -> None:
    a = [{"id": f"{number:03}", "v": "x"} for number in range(10)]
    b = [*a, *({"id": f"{number:03}", "v": "x"} for number in range(100, 150))]
    profile = _profile(a, b, "local")
    assert profile.words() == ["50 of the added rows are one block: 100 … 149"]


REPEATED = st.lists(st.tuples(st.sampled_from("aAbcdefghijklmn"), st.sampled_from("xy")), max_size=40)
SHOWN = ("terminal", "summary", "markdown", "html")  # the formats for people; the console shows `to_dict`


def duplicates_of(a: list[tuple[str, str]], b: list[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """The duplicates that came and went, by plain counting: keys in any case are one."""
    rows = [Counter(key.casefold() for key, _ in side) for side in (a, b)]
    found: dict[str, dict[str, Any]] = {}
    for kind, side, sign in (("came", b, 1), ("went", a, -1)):
        first = {key: side[at][0] for at in reversed(range(len(side))) for key in [side[at][0].casefold()]}
        order = list(dict.fromkeys(key.casefold() for key, _ in side))
        more = {key: sign * (max(rows[1][key], 1) - max(rows[0][key], 1)) for key in order}
        most = sorted((key for key in order if more[key] > 0), key=lambda key: (-more[key], order.index(key)))
        if most:
            named = [{"key": {"id": first[key]}, "rows_a": rows[0][key], "rows_b": rows[1][key]} for key in most]
            found[kind] = {"keys": len(most), "rows": sum(more[key] for key in most), "most": named[:10]}
    return found


@given(REPEATED, REPEATED, st.sampled_from(["match", "first", "last"]))
def test_duplicates_that_came_and_went_are_those_of_a_plain_count(
    a: list[tuple[str, str]], b: list[tuple[str, str]], policy: str
) -> None:
    expected = duplicates_of(a, b)
    sides = [[{"id": key, "v": value} for key, value in side] for side in (a, b)]
    for engine in ("local", "vectorized"):
        profile = _profile(*sides, engine, duplicates=policy, normalize="id=case")
        assert profile.to_dict()["duplicates"] == expected
    frames = [pl.DataFrame(side, schema={"id": pl.String, "v": pl.String}) for side in sides]
    with dl.diff(*frames, key="id", duplicates=policy, normalize="id=case") as result:
        assert result.profile().to_dict()["duplicates"] == expected
        sentences = [words for words in result.profile().words() if "duplicate" in words]
        assert [words.split()[2].rstrip(",") for words in sentences] == list(expected)
        for format_name in SHOWN if sentences else ():
            shown = _written(result, format_name)
            assert all(_squeezed(words) in shown for words in sentences), format_name


def _written(result: dl.TableDiff, format_name: str) -> str:
    import html
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        result.write(Path(folder, "out"), format_name)
        return _squeezed(html.unescape(Path(folder, "out").read_text(encoding="utf-8")))


def _squeezed(text: str) -> str:
    """Without what a format may do to a sentence: breaks of lines, and escapes of Markdown."""
    return re.sub(r"[\s\\]", "", text)


def test_repeated_keys_are_counted_exactly_and_named_up_to_a_bound() -> None:
    a = [{"id": f"{number:04}", "v": "x"} for number in range(3_000)]
    b = [*a, *a[:2_000], *a[:500]]
    for engine in ("local", "vectorized"):
        profile = _profile(a, b, engine, duplicates="match")
        came = profile.to_dict()["duplicates"]["came"]
        assert (came["keys"], came["rows"], len(came["most"])) == (2_000, 2_500, 10)
        assert profile.words()[-1] == (
            "2,500 duplicates came, in 2,000 keys: 0000 (1 → 3 rows), 0001 (1 → 3 rows), 0002 (1 → 3 rows), …"
        )


EVERY_KIND = {
    "case": ("Ann", "ANN"),
    "blanks": ("Ann", "Ann "),
    "case_blanks": ("Ann", "ann "),
    "null_word": ("NA", "null"),
    "filled": ("", "x"),
    "emptied": ("x", ""),
    "number_format": ("1.5", "1.50"),
    "sign": ("1.5", "-1.5"),
    "rounding": ("1.5", "2"),
    "number": ("1", "1000"),
    "date_format": ("2024-01-31", "31.01.2024"),
    "date": ("2024-01-31", "2024-02-01"),
    "reordered": ("a,b", "b,a"),
    "other": ("Ann", "x"),
}


def test_the_properties_draw_every_kind() -> None:
    assert list(EVERY_KIND) == list(KIND_WORDS)
    assert {pair: reference(*pair) for pair in EVERY_KIND.values()} == {pair: kind for kind, pair in EVERY_KIND.items()}
    assert {cell for pair in EVERY_KIND.values() for cell in pair} <= set(CELLS)
