"""The kernels against the plain implementation: the same bytes or the same error, however the work is cut."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from driftline.errors import DriftlineError
from driftline.sources._csv.parse import record_texts
from driftline.sources._csv.strict import TextTable, read_records
from driftline.tables._engines import LocalPlan, TableDiffJob, run_vectorized
from driftline.tables._events import event_line
from driftline.tables._kernels import stages
from driftline.tables._options import TableOptions, check_options
from driftline.tables._reference import diff_tables

CELLS = ["", "a", "b", "é", '"', 'x"y', "a,b", "l\nm", "c\r\nd", "\x00", "\x01", "\\", "\U0001f600", " "]
NAMES = ["id", "v", "", "^x$", "*", "kinds", "from", 'q"', "é\n"]

cell = st.sampled_from(CELLS)
key_cell = st.sampled_from(["1", "2", "10", "9", "a", "é", "\x00", "a\x00", "a,b", 'k"', "\U0001f600", "\ufb33"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[bytes, bytes, TableOptions]:
    """Two tables that share most rows, and how to compare them."""
    width = draw(st.integers(1, 4))
    names = draw(st.permutations(NAMES))[:width]
    keyed = draw(st.booleans())
    keys = draw(st.permutations(names))[: draw(st.integers(1, min(2, width)))] if keyed else []
    row = st.tuples(*(key_cell if name in keys else cell for name in names))
    rows_a = draw(st.lists(row, max_size=12))
    rows_b = [changed for one in rows_a for changed in draw(_fate(one, row))]
    rows_b += draw(st.lists(row, max_size=3))
    if keyed and draw(st.integers(0, 5)):
        rows_a, rows_b = _unique(rows_a, names, keys), _unique(rows_b, names, keys)
    order = draw(st.permutations(range(width))) if (is_sorted := draw(st.booleans())) else range(width)
    rows_b = draw(st.permutations(rows_b))
    options = check_options(
        key_columns=keys,
        header_mode="sorted" if is_sorted else "strict",
        emit_unchanged=draw(st.booleans()),
        ignore_row_order=not keyed and draw(st.booleans()),
    )
    b = [[one[index] for index in order] for one in [names, *rows_b]]
    return _csv([names, *rows_a], draw), _csv(b, draw), options


def _fate(row: tuple[str, ...], other: st.SearchStrategy) -> st.SearchStrategy:
    return st.sampled_from([[row], [row], [row], []]) | other.map(lambda new: [(*row[:1], *new[1:])])


def _unique(rows: list, names: list[str], keys: list[str]) -> list:
    return list({tuple(row[names.index(key)] for key in keys): row for row in rows}.values())


def _csv(rows: list, draw: st.DrawFn) -> bytes:
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    if draw(st.integers(0, 15)) == 0:
        rows = [*rows, ["ragged"] * 7]
    quote = draw(st.sampled_from([_quoted, _quoted, _left_bare, _always_quoted, _sometimes_quoted]))
    lines = [",".join(map(quote, row)) for row in rows]
    return (end.join(lines) + draw(st.sampled_from([end, ""]))).encode()


def _quoted(text: str) -> str:
    return _always_quoted(text) if any(c in '",\r\n' for c in text) or not text else text


def _left_bare(text: str) -> str:
    return _quoted(text) if text else text


def _always_quoted(text: str) -> str:
    return f'"{text.replace(chr(34), chr(34) * 2)}"'


def _sometimes_quoted(text: str) -> str:
    """Equal cells of both sides are written in different ways; the other side has most cells bare."""
    return _always_quoted(text) if len(text) % 2 else _left_bare(text)


def plainly(a: bytes, b: bytes, options: TableOptions) -> bytes | str:
    try:
        tables = (TextTable.of(read_records(data, side=side)) for side, data in (("A", a), ("B", b)))
        events, _ = diff_tables(*tables, options)
    except DriftlineError as error:
        return f"{error.code}: {error.message}"
    return b"".join(map(event_line, events))


def with_kernels(a: bytes, b: bytes, options: TableOptions, plan: LocalPlan) -> bytes | str:
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "a.csv", Path(folder) / "b.csv"
        paths[0].write_bytes(a)
        paths[1].write_bytes(b)
        written: list[bytes] = []
        try:
            run_vectorized(TableDiffJob(*paths, options), lambda data: written.append(bytes(data)), plan)
        except DriftlineError as error:
            assert not written
            return f"{error.code}: {error.message}"
    return b"".join(written)


PLANS = st.builds(
    LocalPlan,
    threads=st.just(2),
    split_bytes=st.integers(1, 60),
    bucket_rows=st.integers(1, 6),
    range_bytes=st.integers(1, 200),
    hash_bytes=st.sampled_from([0, 100, 1 << 20]),
    chunk_bytes=st.sampled_from([0, 100, 1 << 20]),
)


@settings(max_examples=200, deadline=None)
@given(case=tables(), plan=PLANS)
def test_same_bytes_or_same_error(case: tuple[bytes, bytes, TableOptions], plan: LocalPlan) -> None:
    a, b, options = case
    assert with_kernels(a, b, options, plan) == plainly(a, b, options)


@pytest.mark.parametrize("rows", [0, 1, 5000])
@pytest.mark.parametrize(
    "options", [{"key_columns": ["id"]}, {}, {"ignore_row_order": True}, {"key_columns": ["w", "id"]}]
)
def test_many_rows(rows: int, options: dict) -> None:
    a = "id,v,w\n" + "".join(f"{n},{n % 7},{n % 3}\n" for n in range(rows))
    b = "id,v,w\n" + "".join(f"{n},{n % 7 + (n % 50 == 0)},{n % 3}\n" for n in range(rows + 9, 4, -1))
    checked = check_options(**options, emit_unchanged=rows == 1)
    plan = LocalPlan(threads=2, split_bytes=7000, bucket_rows=700, range_bytes=20_000, hash_bytes=5000, chunk_bytes=1)
    assert with_kernels(a.encode(), b.encode(), checked, plan) == plainly(a.encode(), b.encode(), checked)


def _spelled(rows: int, otherwise: int, end: str) -> bytes:
    """A table in which, behind its start, every so many records is written with quotes that it does not need."""
    lines = ["id,v,w"]
    for n in range(rows):
        cells = [str(n), f"a,{n % 7}", ""]
        lines.append(",".join(map(_always_quoted if n > 1000 and n % otherwise == 3 else _left_bare, cells)))
    return (end.join(lines) + end).encode()


@pytest.mark.parametrize("options", [{"key_columns": ["id"]}, {}, {"key_columns": ["id"], "duplicates": "last"}])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_records_that_are_written_otherwise_are_no_change(
    options: dict, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are compared by the text of their records first: what differs there is looked at by cells."""
    seen: list[int] = []
    monkeypatch.setattr(stages, "record_texts", lambda data, n: seen.append(n) or record_texts(data, n))
    a, b = _spelled(3000, 3001, "\n"), _spelled(3000, 40, end).replace(b'7,"a,0",', b'7,"a,1",x', 3)
    checked = check_options(**options, column_stats=True)
    plan = LocalPlan(threads=2, split_bytes=7000, bucket_rows=700, range_bytes=20_000, chunk_bytes=1)
    assert with_kernels(a, b, checked, plan) == plainly(a, b, checked)
    assert seen, "texts of records were compared"


@pytest.mark.parametrize("options", [{"key_columns": ["id"]}, {}])
@pytest.mark.parametrize("changed", [False, True])
def test_texts_that_mostly_differ_are_looked_at_by_cells(
    options: dict, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's start is written as the other one's; the rest is quoted otherwise, or holds other cells."""
    seen: list[int] = []
    monkeypatch.setattr(stages, "record_texts", lambda data, n: seen.append(n) or record_texts(data, n))
    bare = _spelled(3000, 3001, "\n").splitlines()
    otherwise = b'%d,"a,%d",new' if changed else b'"%d","a,%d",""'
    a, b = b"\n".join(bare), b"\n".join([*bare[:900], *(otherwise % (n, n % 7) for n in range(899, 3000))])
    checked = check_options(**options)
    plan = LocalPlan(threads=2, split_bytes=7000, bucket_rows=700)
    assert with_kernels(a, b, checked, plan) == plainly(a, b, checked)
    assert seen, "texts of records were compared"
