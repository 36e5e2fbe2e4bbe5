"""`driftline patch` and `driftline merge`: what a diff says, applied, and two successors of a table made one."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import driftline as dl
from driftline.cli._outcome import run
from driftline.cli.main import driftline

CELLS = ["", "a", "b", "é", 'q"', "x,y", "l\nm", "c\r\nd", "\ufeff", " "]
WAYS: dict[str, dict] = {
    "keyed": {"key": "id"},
    "positional": {},
    "multiset": {"ignore_row_order": True},
    "match": {"key": "id", "duplicates": "match"},
}
cell = st.sampled_from(CELLS)
rows = st.lists(st.tuples(st.sampled_from("123456"), cell, cell), max_size=6)


def write_csv(path: Path, records: list, end: str = "\n") -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    path.write_bytes("".join(",".join(map(quoted, record)) + end for record in records).encode())


def read_csv(path: Path, encoding: str = "utf-8") -> list[list[str]]:
    return list(csv.reader(io.StringIO(path.read_bytes().decode(encoding), newline=""), strict=True))


def cli(*arguments: object) -> int:
    return run(driftline, [str(one) for one in arguments])


@settings(max_examples=60, deadline=None)
@given(
    a=rows,
    b=rows,
    how=st.sampled_from(["keyed", "positional", "multiset", "match"]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_a_patch_makes_b_of_a(a: list, b: list, how: str, end: str) -> None:
    if how == "keyed":
        a, b = list({row[0]: row for row in a}.values()), list({row[0]: row for row in b}.values())
    rules = WAYS[how]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_csv(folder / "a.csv", [("id", "v", "w"), *a], end)
        write_csv(folder / "b.csv", [("id", "v", "w"), *b])
        dl.diff(folder / "a.csv", folder / "b.csv", **rules).write(folder / "events.jsonl")
        assert cli("patch", folder / "a.csv", folder / "events.jsonl", "-o", folder / "out.csv") == 0
        patched = read_csv(folder / "out.csv")
        wanted = read_csv(folder / "b.csv")
        assert patched[0] == wanted[0]
        if how == "positional":
            assert patched == wanted
        assert sorted(patched[1:]) == sorted(wanted[1:])
        if a:
            assert (folder / "out.csv").read_bytes().startswith(f"id,v,w{end}".encode())


def test_a_patch_keeps_encoding_delimiter_and_quotes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("k;v\r\n1;é\r\n2;\r\n".encode("utf-16"))
    (tmp_path / "b.csv").write_bytes("k;v\r\n1;é;\r\n2;\r\n".replace("é;", '"é;"').encode())
    rules = {"key": "k", "delimiter": ";", "encoding_a": "utf-16"}
    dl.diff(tmp_path / "a.csv", tmp_path / "b.csv", **rules).write(tmp_path / "e.jsonl")
    arguments = ["patch", tmp_path / "a.csv", tmp_path / "e.jsonl", "--encoding", "utf-16", "--delimiter", "auto"]
    assert cli(*arguments, "-o", tmp_path / "out.csv") == 0
    assert (tmp_path / "out.csv").read_bytes().decode("utf-16-le") == 'k;v\r\n1;"é;"\r\n2;\r\n'
    (tmp_path / "one.csv").write_text("v\na\n\n")
    (tmp_path / "two.csv").write_text("v\n\n\n")
    dl.diff(tmp_path / "one.csv", tmp_path / "two.csv").write(tmp_path / "e.jsonl")
    assert cli("patch", tmp_path / "one.csv", tmp_path / "e.jsonl", "-o", tmp_path / "out.csv") == 0
    assert (tmp_path / "out.csv").read_text() == 'v\n""\n""\n'


def replaced(old: str, new: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [line.replace(old, new) for line in lines]


@pytest.mark.parametrize(
    ("spoil", "code", "exit_code"),
    [
        (lambda lines: lines[:-1], "patch_incomplete", 2),
        (lambda lines: lines[1:], "patch_incomplete", 2),
        (lambda lines: [*lines[:1], *lines[2:]], "patch_incomplete", 2),
        (replaced('"Ann"', '"Eve"'), "patch_conflict", 1),
        (replaced('"columns_b":["id","v"]', '"columns_b":["id","v","x"]'), "patch_incomplete", 2),
        (replaced('"columns_a":["id","v"]', '"columns_a":["id","x"]'), "header_mismatch", 2),
        (lambda lines: ["nonsense", *lines], "invalid_jsonl", 2),
    ],
)  # fmt: skip
def test_a_patch_that_does_not_fit_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil, code: str, exit_code: int
) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,Ann\n2,Bob\n")
    (tmp_path / "b.csv").write_text("id,v\n1,Anna\n3,Cy\n")
    lines = [line.decode().strip() for line in dl.diff(tmp_path / "a.csv", tmp_path / "b.csv", key="id").lines()]
    (tmp_path / "e.jsonl").write_text("\n".join(spoil(lines)) + "\n")
    assert cli("patch", tmp_path / "a.csv", tmp_path / "e.jsonl", "-o", tmp_path / "out.csv") == exit_code
    assert capsys.readouterr().err.startswith(f"error[{code}]")
    assert not (tmp_path / "out.csv").exists()


BASE = "id,v,w\n1,a,x\n2,b,x\n3,c,x\n"


def merged(folder: Path, base: str, ours: str, theirs: str, *options: str) -> tuple[int, str | None, list[dict]]:
    for name, text in {"base": base, "ours": ours, "theirs": theirs}.items():
        (folder / f"{name}.csv").write_text(text)
    (folder / "out.csv").unlink(missing_ok=True)
    command = ["merge", *(str(folder / f"{name}.csv") for name in ("base", "ours", "theirs"))]
    stdout = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.stdout", stdout)
        code = run(driftline, [*command, "--key", "id", *options, "-o", str(folder / "out.csv")])
    written = (folder / "out.csv").read_text() if (folder / "out.csv").exists() else None
    return code, written, [json.loads(line) for line in stdout.buffer.getvalue().splitlines()]


def test_changes_of_different_cells_meet(tmp_path: Path) -> None:
    ours = "id,v,w\n3,c,x\n1,A,x\n2,b,x\n4,d,x\n"
    theirs = "id,v,w\n1,a,X\n3,c,x\n5,e,x\n"
    assert merged(tmp_path, BASE, ours, theirs) == (0, "id,v,w\n3,c,x\n1,A,X\n4,d,x\n5,e,x\n", [])
    assert merged(tmp_path, BASE, ours, ours)[1] == ours


def test_conflicts_are_listed_and_nothing_is_written(tmp_path: Path) -> None:
    ours, theirs = "id,v,w\n1,A,x\n2,B,x\n9,o,x\n", "id,v,w\n1,Z,x\n3,C,x\n9,t,x\n"
    code, written, events = merged(tmp_path, BASE, ours, theirs)
    assert (code, written) == (1, None)
    assert events == [
        conflict("1", "v", "a", "A", "Z"),
        conflict("2", None, row("2", "b"), row("2", "B"), None),
        conflict("3", None, row("3", "c"), None, row("3", "C")),
        conflict("9", None, None, row("9", "o"), row("9", "t")),
    ]
    assert merged(tmp_path, BASE, ours, theirs, "--prefer", "ours") == (0, "id,v,w\n1,A,x\n2,B,x\n9,o,x\n", events)
    assert merged(tmp_path, BASE, ours, theirs, "--prefer", "theirs") == (0, "id,v,w\n1,Z,x\n9,t,x\n3,C,x\n", events)


def conflict(key: str, column: str | None, base: object, ours: object, theirs: object) -> dict:
    values = {"base": base, "ours": ours, "theirs": theirs}
    return {"type": "conflict", "key": {"id": key}, "column": column, **values}


def row(key: str, value: str) -> dict[str, str]:
    return {"id": key, "v": value, "w": "x"}


def test_columns_come_and_go(tmp_path: Path) -> None:
    ours, theirs = "id,v,w,mine\n1,a,x,m\n2,b,x,m\n3,c,x,m\n4,d,x,m\n", "new,id,v\nn,1,a\nn,2,B\nn,3,c\n"
    code, written, events = merged(tmp_path, BASE, ours, theirs)
    assert (code, written, events) == (0, "id,v,mine,new\n1,a,m,n\n2,B,m,n\n3,c,m,n\n4,d,m,\n", [])
    code, written, events = merged(tmp_path, BASE, ours.replace("2,b,x", "2,b,Y"), theirs)
    assert (code, written) == (1, None)
    assert events == [conflict("2", "w", "x", "Y", None)]
    code, written, events = merged(tmp_path, BASE, ours.replace("2,b,x", "2,b,Y"), theirs, "--prefer", "ours")
    assert (code, written) == (0, "id,v,mine,new\n1,a,m,n\n2,B,m,n\n3,c,m,n\n4,d,m,\n")


def test_rules_say_what_is_a_change(tmp_path: Path) -> None:
    ours, theirs = "id,v,w\n1,A,x\n2,b,x\n3,c,x\n", "id,v,w\n1,z,x\n2,b,q\n3,c,x\n"
    assert merged(tmp_path, BASE, ours, theirs, "--normalize", "v=case")[:2] == (0, "id,v,w\n1,z,x\n2,b,q\n3,c,x\n")
    assert merged(tmp_path, BASE, ours, theirs, "--ignore", "v")[:2] == (0, "id,v,w\n1,A,x\n2,b,q\n3,c,x\n")
    for option in (["--duplicates", "first"], ["--rename", "v=w"]):
        assert merged(tmp_path, BASE, ours, theirs, *option)[:2] == (2, None)


def test_an_ignored_column_takes_the_ordinary_choice(tmp_path: Path) -> None:
    base, theirs = "id,v,t\n1,a,1\n2,b,1\n", "id,v,t\n1,a,2\n2,b,1\n"
    assert merged(tmp_path, base, base, theirs, "--ignore", "t")[:2] == (0, theirs)
    assert merged(tmp_path, base, theirs, base, "--ignore", "t")[:2] == (0, theirs)
    code, written, events = merged(tmp_path, base, "id,v,t\n2,b,1\n", theirs, "--ignore", "t")
    assert (code, written, [event["key"] for event in events]) == (1, None, [{"id": "1"}])


def test_a_value_in_a_new_column_is_a_change(tmp_path: Path) -> None:
    base, ours, theirs = "id,v\n1,a\n2,b\n", "id,v\n2,b\n", "id,v,new\n1,a,{}\n2,b,\n"
    assert merged(tmp_path, base, ours, theirs.format("x"))[0] == 1
    assert merged(tmp_path, base, ours, theirs.format(""))[:2] == (0, "id,v,new\n2,b,\n")


def test_a_removed_column_in_conflict_is_shown(tmp_path: Path) -> None:
    base, theirs = "id,v,w\n1,a,x\n2,b,x\n", "id,v\n1,a\n2,B\n"
    code, written, _ = merged(tmp_path, base, "id,v,w\n1,a,Y\n2,b,x\n", theirs, "--conflicts", "markers")
    assert (code, written) == (1, "id,v,w\n<<<<<<< ours\n1,a,Y\n=======\n1,a,\n>>>>>>> theirs\n2,B,x\n")


def versions_in(text: str) -> dict[str, list[dict | None]]:
    """The rows of a file with markers: one version a key, or both (None: the row is not there)."""
    header, *lines = text.splitlines()
    names, found, pair, at = header.split(","), {}, [], None
    for line in lines:
        if line.startswith("<<<<<<<"):
            pair, at = [None, None], 0
        elif line == "=======":
            at = 1
        elif line.startswith(">>>>>>>"):
            at = None
            found[next(row for row in pair if row is not None)["id"]] = pair
        else:
            row = dict(zip(names, line.split(","), strict=True))
            if at is None:
                found[row["id"]] = [row]
            else:
                pair[at] = row
    return found


tables = st.dictionaries(st.sampled_from("12345"), st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")))


@settings(max_examples=150, deadline=None)
@given(base=tables, ours=tables, theirs=tables)
def test_no_change_of_either_side_is_missing_in_a_marked_file(base: dict, ours: dict, theirs: dict) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, table in (("base", base), ("ours", ours), ("theirs", theirs)):
            text = "".join(f"{key},{v},{w}\n" for key, (v, w) in table.items())
            (folder / side).write_text("id,v,w\n" + text)
        files = [folder / side for side in ("base", "ours", "theirs")]
        dl.merge(*files, folder / "out", key="id", conflicts="markers")
        found = versions_in((folder / "out").read_text())
        dl.merge(files[0], folder / "out", files[2], folder / "again", key="id", prefer="theirs")
        assert "<<<" not in (folder / "again").read_text()
    for key in {*base, *ours, *theirs}:
        versions = [None if row is None else (row["v"], row["w"]) for row in found.get(key, [None])]
        for side in (ours, theirs):
            other = theirs if side is ours else ours
            if side.get(key) == base.get(key):
                assert versions == [other.get(key)]
            elif other.get(key) not in (base.get(key), side.get(key)):
                assert all(any(cells is not None and cell in cells for cells in versions)
                           for cell in set(side.get(key) or ()) - set(base.get(key) or ()))  # fmt: skip


def test_json_lines_are_merged_in_their_own_style(tmp_path: Path) -> None:
    lines = {
        "base": '{"id": 1, "v": 1.5, "w": "x"}\n{"id": 2, "v": 12345678901234567.89, "w": "é"}\n',
        "ours": '{"id": 1, "v": 2.5, "w": "x"}\n{"id": 2, "v": 12345678901234567.89, "w": "é"}\n',
        "theirs": '{"id": 1, "v": 1.5, "w": ["y"]}\n{"id": 2, "v": 12345678901234567.89, "w": "é", "n": null}\n',
    }
    for name, text in lines.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    files = [tmp_path / f"{name}.jsonl" for name in lines]
    assert dl.merge(*files, tmp_path / "out.jsonl", key="id").conflicts == []
    second = '{"id": 2, "v": 12345678901234567.89, "w": "é", "n": null}\n'
    assert (tmp_path / "out.jsonl").read_text() == '{"id": 1, "v": 2.5, "w": ["y"]}\n' + second
    files[2].write_text(lines["theirs"].replace("1.5", "3.5"))
    assert len(dl.merge(*files, tmp_path / "out.jsonl", key="id", conflicts="markers").conflicts) == 1
    marked = (tmp_path / "out.jsonl").read_text().splitlines()
    assert marked[:2] == ["<<<<<<< ours", '{"id": 1, "v": 2.5, "w": ["y"]}']
    dl.merge(files[0], tmp_path / "out.jsonl", files[2], tmp_path / "end.jsonl", key="id", prefer="ours")
    assert (tmp_path / "end.jsonl").read_text() == '{"id": 1, "v": 2.5, "w": ["y"]}\n' + second


def test_a_member_of_a_document_is_not_merged(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"rows": [{"id": 1}]}')
    with pytest.raises(dl.DriftlineError, match="a merge takes no duplicates, renamed columns and members"):
        dl.merge(*[tmp_path / "t.json"] * 3, tmp_path / "out.json", key="id", inside="rows")
    assert not (tmp_path / "out.json").exists()


def test_a_merge_is_packed_as_its_ending_says(tmp_path: Path) -> None:
    for name, text in {"base": BASE, "ours": BASE, "theirs": BASE.replace("c", "C")}.items():
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt") as out:
            out.write(text)
    files = [tmp_path / f"{name}.csv.gz" for name in ("base", "ours", "theirs")]
    assert cli("merge", *files, "-k", "id", "-o", files[1]) == 0
    assert gzip.decompress(files[1].read_bytes()).decode() == BASE.replace("c", "C")


def test_ours_may_be_replaced(tmp_path: Path) -> None:
    for name, text in {"base": BASE, "ours": BASE, "theirs": BASE.replace("c", "C")}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    paths = [tmp_path / f"{name}.csv" for name in ("base", "ours", "theirs")]
    assert cli("merge", *paths, "-k", "id", "-o", paths[1]) == 0
    assert paths[1].read_text() == BASE.replace("c", "C")
    assert cli("merge", *paths, "-k", "id", "-o", paths[2]) == 2


@settings(max_examples=40, deadline=None)
@given(base=rows, ours=rows)
def test_a_merge_with_an_unchanged_side_is_the_other(base: list, ours: list) -> None:
    base, ours = ([list(r) for r in {row[0]: row for row in one}.values()] for one in (base, ours))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_csv(folder / "base.csv", [["id", "v", "w"], *base])
        write_csv(folder / "ours.csv", [["id", "v", "w"], *ours])
        for mine, other in (("ours", "base"), ("base", "ours"), ("ours", "ours")):
            paths = [folder / "base.csv", folder / f"{mine}.csv", folder / f"{other}.csv"]
            assert cli("merge", *paths, "-k", "id", "-o", folder / "out.csv") == 0
            assert sorted(read_csv(folder / "out.csv")[1:]) == sorted(ours)
