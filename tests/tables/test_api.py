"""`driftline.diff` as users call it."""

from __future__ import annotations

import csv
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import driftline as dl
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.core import compression_of_bytes, decompressed
from driftline.errors import DriftlineError


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text("id,name\n1,Ann\n2,Bob\n")
    b.write_text("id,name\n1,Anna\n3,Cy\n")
    return a, b


def test_events_are_dicts_with_schema_first_and_stats_last(pair: tuple[Path, Path]) -> None:
    result = dl.diff(*pair, key=["id"])
    events = list(result)
    assert [event["type"] for event in events] == ["schema", "changed", "removed", "added", "stats"]
    assert events[1]["delta"] == {"name": {"from": "Ann", "to": "Anna"}}
    assert events[-1] == result.stats
    assert result.has_differences


def test_a_result_can_be_iterated_twice_and_at_the_same_time(pair: tuple[Path, Path]) -> None:
    result = dl.diff(*map(str, pair), key="id")
    assert [first == second for first, second in zip(result, result, strict=True)] == [True] * 5


def test_write_makes_the_same_bytes_as_the_lines(pair: tuple[Path, Path], tmp_path: Path) -> None:
    result = dl.diff(*pair, key=["id"])
    result.write(tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == b"".join(result.lines())
    result.write(tmp_path / "out.json", format="json")
    assert json.loads((tmp_path / "out.json").read_bytes()) == list(result)


def test_no_difference(pair: tuple[Path, Path]) -> None:
    result = dl.diff(pair[0], pair[0], key=None)
    assert not result.has_differences
    assert result.stats["rows_unchanged"] == 2


def test_errors_carry_code_side_and_row(pair: tuple[Path, Path]) -> None:
    pair[1].write_text("id,name\n1\n")
    with pytest.raises(DriftlineError) as caught:
        dl.diff(*pair, key=["id"])
    assert (caught.value.code, caught.value.side, caught.value.row) == ("row_width_mismatch", "B", 2)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"engine": "abacus"}, "invalid_engine"),
        ({"mode": "bag"}, "invalid_mode"),
        ({"header_mode": "x"}, "invalid_header_mode"),
        ({"mode": "keyed"}, "missing_key_column"),
        ({"key": "id", "ignore_row_order": True}, "invalid_option_combination"),
        ({"delimiter": '"'}, "invalid_delimiter"),
        ({"delimiter": "ab"}, "invalid_delimiter"),
    ],
)
def test_bad_options(pair: tuple[Path, Path], options: dict, code: str) -> None:
    with pytest.raises(DriftlineError) as caught:
        dl.diff(*pair, **options)
    assert caught.value.code == code


def test_a_result_is_true_if_there_are_differences(pair: tuple[Path, Path]) -> None:
    same, other = dl.diff(pair[0], pair[0]), dl.diff(*pair, key="id")
    assert (bool(same), len(same)) == (False, 0)
    assert (bool(other), len(other)) == (True, 3)


def test_the_ending_chooses_the_format(pair: tuple[Path, Path], tmp_path: Path) -> None:
    result = dl.diff(*pair, key="id")
    for name, start in {"o.html": "<!doctype html>", "o.csv": "_change,", "o.md": "| change", "o.json": "["}.items():
        result.write(tmp_path / name)
        assert (tmp_path / name).read_text().lower().startswith(start)
    result.write(tmp_path / "o.html", format="jsonl")
    assert (tmp_path / "o.html").read_bytes() == b"".join(result.lines())
    with pytest.raises(DriftlineError, match="one of the inputs"):
        result.write(pair[0])


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("out.csv.gz", b"_change,"), ("out.jsonl.gz", b'{"type":"schema"'), ("out.tsv", b"_change\t"),
        ("out.tsv.zst", b"_change\t"), ("out.json.xz", b"["), ("out.md.bz2", b"|"),
    ],
)  # fmt: skip
def test_the_ending_is_honoured(pair: tuple[Path, Path], tmp_path: Path, name: str, start: bytes) -> None:
    dl.diff(*pair, key="id").write(tmp_path / name)
    assert run(driftline, ["diff", *map(str, pair), "--key", "id", "-o", str(tmp_path / f"command-{name}")]) == 1
    for path in (tmp_path / name, tmp_path / f"command-{name}"):
        with path.open("rb") as raw, decompressed(raw, compression_of_bytes(path.read_bytes()[:10]), name) as file:
            assert file.read().startswith(start)
    if name.endswith("jsonl.gz"):
        assert (tmp_path / name).read_bytes() == (tmp_path / f"command-{name}").read_bytes()


@pytest.mark.parametrize("name", ["out.xlsx", "out.db", "out.parquet.gz", "out.gz", "out.arrow"])
def test_endings_of_other_files_are_refused(pair: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    with pytest.raises(dl.OptionError, match=name):
        dl.diff(*pair, key="id").write(tmp_path / name)
    assert run(driftline, ["diff", *map(str, pair), "--key", "id", "-o", str(tmp_path / name)]) == 2
    assert not (tmp_path / name).exists()


def test_a_closed_result_keeps_its_counts(pair: tuple[Path, Path]) -> None:
    with dl.diff(*pair, key="id") as result:
        assert len(list(result)) == 5
    assert len(result) == 3
    with pytest.raises(ValueError, match="closed"):
        list(result)


def test_threads_iterate_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(20_000)))
    (tmp_path / "b.csv").write_text("id\n")
    result = dl.diff(tmp_path / "a.csv", tmp_path / "b.csv")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: b"".join(result.lines()), range(8)))
    assert len(set(found)) == 1
    assert found[0].count(b"\n") == 20_002


def test_a_diff_leaves_the_process_as_it_was(pair: tuple[Path, Path]) -> None:
    before = sys.getswitchinterval(), csv.field_size_limit()
    dl.diff(*pair, key="id", engine="vectorized")
    assert (sys.getswitchinterval(), csv.field_size_limit()) == before
