"""Formats of the event stream, and the limit on events."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import driftline as dl
from driftline.errors import DriftlineError, OptionError
from driftline.sinks import _formats as formats
from driftline.sinks._formats import FORMATS, FirstEvents, limit_events, write_events


@pytest.fixture
def result(tmp_path: Path) -> dl.tables.api.TableDiff:
    (tmp_path / "a.csv").write_text('id,name,note\n1,Ann,"x|y"\n2,Bob,\n3,Cy,"l1\nl2"\n4,Di,\n')
    (tmp_path / "b.csv").write_text('id,name,note\n1,Anna,"x|z"\n3,Cy,"l1\nl3"\n4,Di,\n5,Eve,e\n6,Flo,\n')
    return dl.diff(tmp_path / "a.csv", tmp_path / "b.csv", key="id")


def written(result: dl.tables.api.TableDiff, name: str, **settings: object) -> str:
    return written_bytes(result, name, **settings).decode()


def written_bytes(result: dl.tables.api.TableDiff, name: str, **settings: object) -> bytes:
    out = io.BytesIO()
    write_events(result.lines(), out, name, **settings)
    return out.getvalue()


def test_json_is_one_array(result: dl.tables.api.TableDiff) -> None:
    assert json.loads(written(result, "json")) == list(result)
    out = io.BytesIO()
    write_events([], out, "json")
    assert json.loads(out.getvalue()) == []


def test_csv_has_a_row_for_each_row_version(result: dl.tables.api.TableDiff) -> None:
    rows = list(csv.reader(io.StringIO(written(result, "csv"), newline="")))
    assert rows[0] == ["_change", "id", "name", "note"]
    assert [row[:2] for row in rows[1:]] == [
        ["before", "1"],
        ["after", "1"],
        ["removed", "2"],
        ["before", "3"],
        ["after", "3"],
        ["added", "5"],
        ["added", "6"],
    ]
    assert rows[4][3] == "l1\nl2"


def test_csv_of_a_positional_diff_names_the_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("v\na\n")
    (tmp_path / "b.csv").write_text("v\nb\nc\n")
    text = written(dl.diff(tmp_path / "a.csv", tmp_path / "b.csv"), "csv")
    assert text == "_change,_row,v\nbefore,2,a\nafter,2,b\nadded,3,c\n"


def test_markdown_keeps_its_table_whole(result: dl.tables.api.TableDiff) -> None:
    lines = written(result, "markdown").splitlines()
    assert lines[2:4] == [
        "| changed | id=1 | name | Ann | Anna |",
        "| changed | id=1 | note | x\\|y | x\\|z |",
    ]
    assert "| changed | id=3 | note | l1<br>l2 | l1<br>l3 |" in lines
    assert "| added | 2 |" in lines


def test_summary_counts_rows_and_columns(result: dl.tables.api.TableDiff) -> None:
    text = written(result, "summary")
    assert "│ added         │     2 │" in text
    assert "1: 'Ann' → 'Anna'" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_a_diff_without_differences(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.csv").write_text("v\n")
    same = dl.diff(tmp_path / "a.csv", tmp_path / "a.csv")
    if FORMATS[name].writer.startswith("driftline.sinks."):
        assert written_bytes(same, name)


def test_an_unknown_format_is_named(result: dl.tables.api.TableDiff) -> None:
    with pytest.raises(DriftlineError, match='Unsupported format: "xml"'):
        written(result, "xml")


def test_the_limit_counts_each_kind_and_keeps_order_and_stats(result: dl.tables.api.TableDiff) -> None:
    limited = [json.loads(line) for line in limit_events(result.lines(), 1)]
    assert [event["type"] for event in limited] == ["schema", "changed", "removed", "added", "stats"]
    assert limited[-1] == {**result.stats, "truncated": True}
    assert list(limit_events(result.lines(), 2)) == list(result.lines())
    assert [json.loads(line)["type"] for line in limit_events(result.lines(), 0)] == ["schema", "stats"]
    assert "limited" in written(result, "markdown", limit=1)
    assert "limited" in written(result, "summary", limit=1)


def positional(tmp_path: Path, a: str, b: str) -> str:
    (tmp_path / "a.csv").write_text(a)
    (tmp_path / "b.csv").write_text(b)
    dl.diff(tmp_path / "a.csv", tmp_path / "b.csv").write(tmp_path / "out.csv")
    return (tmp_path / "out.csv").read_text()


def test_the_csv_header_does_not_depend_on_what_differs(tmp_path: Path) -> None:
    assert positional(tmp_path, "v\na\n", "v\na\n") == "_change,_row,v\n"
    assert positional(tmp_path, "_change,_row,__row\na,b,c\n", "_change,_row,__row\na,b,d\n") == (
        "__change,___row,_change,_row,__row\nbefore,2,a,b,c\nafter,2,a,b,d\n"
    )


def test_markdown_shows_html_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("v\n<b>&\n")
    (tmp_path / "b.csv").write_text("v\n<script>\n")
    text = written(dl.diff(tmp_path / "a.csv", tmp_path / "b.csv"), "markdown")
    assert "| changed | 2 | v | &lt;b&gt;&amp; | &lt;script&gt; |" in text


@pytest.mark.parametrize("width", [51, 52, 5000])
def test_wide_rows_say_what_is_left_out(tmp_path: Path, width: int) -> None:
    names = [f"c{n}" for n in range(width)]
    rows = {name: [",".join([key, *[value] * (width - 1)]) for key, value in cells] for name, cells in WIDE.items()}
    for name, lines in rows.items():
        (tmp_path / name).write_text("\n".join([",".join(names), *lines]) + "\n")
    text = written(dl.diff(tmp_path / "a.csv", tmp_path / "b.csv", key="c0"), "html")
    left_out = {51: 0, 52: 0, 5000: 4949}[width]
    assert text.count(f"… and {left_out} more columns") == (3 if left_out else 0)
    assert text.count("<td") <= 3 * 53
    assert len(text) < 1_000_000


WIDE = {"a.csv": [("1", "x"), ("2", "x")], "b.csv": [("1", "y"), ("3", "x")]}


def test_markdown_and_summary_say_the_kind_of_change(tmp_path: Path) -> None:
    rows = [{"id": n, "city": f"Rome {n}"} for n in range(20)]
    with dl.diff(rows, [{**row, "city": row["city"].upper()} for row in rows], key="id") as result:
        result.write(tmp_path / "changes.md")
        result.write(tmp_path / "changes.txt", "summary")
    sentence = "20 of 20 changes of city are case only: --normalize city=case would leave 0"
    markdown = (tmp_path / "changes.md").read_text()
    assert "| city | 20 | case only |" in markdown
    assert f"\n- {sentence}" in markdown
    summary = " ".join((tmp_path / "changes.txt").read_text().split())
    assert sentence in summary
    assert "case only" in summary


@given(st.lists(st.sampled_from(["added", "removed", "changed"]), max_size=30), st.integers(1, 60), st.integers(0, 3))
def test_the_first_events_are_those_that_a_reader_of_all_would_keep(kinds: list[str], size: int, most: int) -> None:
    lines = [b'{"type":"schema"}\n', *(b'{"type":"%s","n":%d}\n' % (kind.encode(), n) for n, kind in enumerate(kinds))]
    stream = b"".join([*lines, b'{"type":"stats"}\n'])
    first = FirstEvents(dict.fromkeys(("added", "removed", "changed"), most))
    for start in range(0, len(stream), size):
        first.write(stream[start : start + size])
    seen: Counter[str] = Counter()
    kept = []
    for line, kind in zip(lines[1:], kinds, strict=True):
        seen[kind] += 1
        kept += [line] if seen[kind] <= most else []
    assert first.lines() == [lines[0], *kept, b'{"type":"stats"}\n']


def test_one_file_adds_a_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named by its suffix, in errors, in pipelines and in the console, and nothing else lists it."""
    from driftline.pipeline import template_for
    from driftline.web._console.diff import _downloads

    (tmp_path / "ids.py").write_text(
        "def write(lines, out, **settings):\n    out.writelines(line for line in lines if b'added' in line[:16])\n"
    )
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    target = tmp_path / "changes.ids"
    dl.diff([{"id": 1}], [{"id": 1}, {"id": 2}], key="id").write(target)
    assert target.read_text().count("\n") == 1
    with pytest.raises(OptionError, match="patchset, ids"):
        formats.find_format("nonsense")
    assert "# jsonl, json, csv, markdown, parquet, delta or ids\n" in template_for("p.toml")
    assert _downloads()["ids"].suffixes == (".ids",)
