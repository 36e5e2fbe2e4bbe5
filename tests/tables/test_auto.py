"""What `--auto` chooses, and what errors name: options that were tried on this very pair."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import driftline as dl
from driftline.cli._outcome import run
from driftline.cli.main import driftline

PAIRS: dict[str, tuple[bytes, bytes, dict]] = {
    "semicolons": (b"id;v\n1;a\n2;b\n", b"id;v\n1;a\n2;c\n", {"delimiter": ";", "key_columns": ["id"]}),
    "carets": (b"id^v\n1^a\n2^b\n", b"id^v\n1^a\n2^c\n", {"delimiter": "^", "key_columns": ["id"]}),
    "one side tabs": (b"id\tv\n1\ta\n2\tb\n", b"id,v\n1,a\n2,c\n", {"delimiter_a": "\t", "key_columns": ["id"]}),
    "windows": (b"id,v\n1,\xe9\n2,b\n", b"id,v\n1,\xe9\n2,c\n", {"encoding": "cp1252", "key_columns": ["id"]}),
    "utf-16": (
        "id,v\n1,a\n2,b\n".encode("utf-16"), b"id,v\n1,a\n2,c\n", {"encoding_a": "utf-16", "key_columns": ["id"]}
    ),
    "comments": (b"# x\n# y, z\nid,v\n1,a\n2,b\n", b"id,v\n1,a\n2,c\n", {"comment": "#", "key_columns": ["id"]}),
    "a title": (
        b"Report\n\nid,v\n1,a\n2,b\n", b"Report,\nid,v\n1,a\n2,c\n",
        {"skip_lines_a": 2, "skip_lines_b": 1, "key_columns": ["id"]},
    ),
    "no header": (b"7,a\n8,b\n", b"7,a\n8,c\n", {"no_header": True, "key_columns": ["c1"]}),
    "a header in A": (b"id,v\n7,a\n8,b\n", b"7,a\n8,c\n", {"no_header_b": True, "key_columns": ["id"]}),
    "a header in B": (b"7,a\n8,b\n", b"id,v\n7,a\n8,c\n", {"no_header_a": True, "key_columns": ["id"]}),
    "many comments": (
        b"# x\n" * 30 + b"id\tv\n1\ta\n# y\n2\tb\n", b"id\tv\n1\ta\n2\tc\n",
        {"delimiter": "\t", "comment": "#", "key_columns": ["id"]},
    ),
    "short rows": (
        b"id,v,w\n1,a,x\n2,b\n3,c,z\n", b"id,v,w\n1,a,x\n2,c\n3,c,z\n",
        {"ragged": "pad", "key_columns": ["id"]},
    ),
    "blank lines": (
        b"id,v\n\n1,a\n2,b\n", b"id,v\n1,a\n2,c\n\n", {"skip_blank_lines": True, "key_columns": ["id"]}
    ),
    "a name twice": (
        b"id,v,v\n1,a,a\n2,b,b\n", b"id,v,v\n1,a,a\n2,b,c\n",
        {"duplicate_columns": "rename", "key_columns": ["id"]},
    ),
    "a new column": (
        b"id,v\n1,a\n2,b\n", b"id,v,w\n1,a,x\n2,c,x\n", {"header_mode": "common", "key_columns": ["id"]}
    ),
    "columns in another order": (
        b"id,v\n1,a\n2,b\n", b"v,id\na,1\nc,2\n", {"header_mode": "sorted", "key_columns": ["id"]}
    ),
    "two columns": (
        b"day,city,n\n1,x,5\n1,y,5\n2,x,5\n", b"day,city,n\n1,x,5\n1,y,6\n2,x,5\n", {"key_columns": ["day", "city"]}
    ),
}  # fmt: skip


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[str], dict]:
    old, new, options = PAIRS[request.param]
    (tmp_path / "a.csv").write_bytes(old)
    (tmp_path / "b.csv").write_bytes(new)
    return [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], options


def test_auto_chooses_the_reading_and_the_key(pair: tuple[list[str], dict]) -> None:
    files, options = pair
    result = dl.diff(*files, auto=True)
    assert result.chosen == options
    assert result.counts == {"added": 0, "removed": 0, "changed": 1, "unchanged": result.counts["unchanged"]}
    assert list(dl.diff(*files, **options).lines()) == list(result.lines())


def test_what_auto_says_gives_the_same_bytes(
    pair: tuple[list[str], dict], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files, _ = pair
    assert run(driftline, ["diff", *files, "--auto", "-o", str(tmp_path / "auto.jsonl")]) == 1
    said = [line.removeprefix("auto: ") for line in capfd.readouterr().err.splitlines() if line.startswith("auto: ")]
    given = [word for line in said for word in shlex.split(line)]
    assert run(driftline, ["diff", *files, *given, "-o", str(tmp_path / "given.jsonl")]) == 1
    assert (tmp_path / "auto.jsonl").read_bytes() == (tmp_path / "given.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *[pair[:2] for name, pair in PAIRS.items() if name != "two columns"],
        (b"id,v\n1,a\n2\n", b"v,id\na,1\n"),
        (b"id,v\n1,a\n1,b\n", b"id,v,w\n1,a,x\n"),
        (b"id,v,v\n,a,b\n", b"id,v,v\n1,a,c\n"),
    ],
)  # fmt: skip
def test_errors_end_with_options_that_read_this_pair(
    old: bytes, new: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_bytes(old)
    (tmp_path / "b.csv").write_bytes(new)
    command = ["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert run(driftline, [*command, "--key", "id"]) == 2
    words = capfd.readouterr().err.strip().rpartition("this pair is read with ")[2]
    key = [] if "--key" in words else ["--key", "id"]
    assert run(driftline, [*command, *key, *shlex.split(words)]) in (0, 1)
    with pytest.raises(dl.DriftlineError) as raised:
        dl.diff(*command[1:], key="id")
    (note,) = raised.value.__notes__
    arguments = eval(f"dict({note.rpartition('this pair is read with ')[2]})")
    dl.diff(*command[1:], **{"key": "id", **arguments})


def test_strict_reading_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,a;b\n2,c;d\n")
    (tmp_path / "b.csv").write_text("id,v\n1,a;b\n2,c;e\n")
    result = dl.diff(tmp_path / "a.csv", tmp_path / "b.csv", key="id", auto=True)
    assert (result.chosen, result.counts["changed"]) == ({}, 1)


def test_the_key_of_typed_sources(tmp_path: Path) -> None:
    old = [{"name": "a", "day": 1, "n": 1}, {"name": "a", "day": 2, "n": 1}, {"name": "b", "day": 1, "n": 1}]
    new = [{**row, "n": 2} if row["name"] == "b" else row for row in old]
    assert dl.diff(old, new, auto=True).chosen == {"key_columns": ["name", "day"]}
    assert dl.diff(old, new, auto=True).counts["changed"] == 1


def rows_of_codes(count: int, **changed: object) -> list[dict]:
    """Rows whose `code` is there twice at each tenth one, and that no other column identifies."""
    rows = [{"code": f"c{n - (n % 20 == 19)}", "city": f"x{n % 7}", "n": n % 3} for n in range(count)]
    return [{**row, **changed} if at == 5 else row for at, row in enumerate(rows)]


def test_a_key_that_is_nearly_unique_pairs_the_rows_of_one_key() -> None:
    old, new = rows_of_codes(100), rows_of_codes(100, n=9)
    result = dl.diff(old, [*new[:50], {"code": "new", "city": "y", "n": 1}, *new[50:]], auto=True)
    assert result.chosen == {"key_columns": ["code", "city"]}
    for row in (*old, *new):
        row["city"] = "x"
    result = dl.diff(old, [*new[:50], {"code": "new", "city": "y", "n": 1}, *new[50:]], auto=True)
    assert result.chosen == {"key_columns": ["code", "n"]}
    for row in (*old, *new):
        row["n"] = row["n"] if row["n"] == 9 else 1
    result = dl.diff(old, [*new[:50], {"code": "new", "city": "y", "n": 1}, *new[50:]], auto=True)
    assert result.chosen == {"key_columns": ["code"], "duplicates": "match"}
    assert result.counts == {"added": 1, "removed": 0, "changed": 1, "unchanged": 99}
    few = [{"kind": f"k{n % 5}"} for n in range(50)]  # nothing that identifies rows
    assert dl.diff(few, few, auto=True).chosen == {}


def test_a_key_is_unique_in_all_rows_of_a_file_that_is_not_large(tmp_path: Path) -> None:
    for name, last in (("a.csv", 1), ("b.csv", 2)):
        rows = "".join(f"n{n},{n // 2}\n" for n in range(30_000))
        (tmp_path / name).write_text(f"name,v\n{rows}n7,{last}\n")
    result = dl.diff(tmp_path / "a.csv", tmp_path / "b.csv", auto=True)
    assert result.chosen == {"key_columns": ["name", "v"]}
    assert result.counts == {"added": 1, "removed": 1, "changed": 0, "unchanged": 30_000}


def test_first_lines_that_are_rows_of_the_other_side_are_no_headers(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("sun\tzon\nsea\tzee\nsky\tlucht\n")
    (tmp_path / "b.txt").write_text("sea\tmeer\nair\tlucht\nsun\tzon\nsky\tlucht\n")
    files = (tmp_path / "a.txt", tmp_path / "b.txt")
    assert "no_header" not in dl.diff(*files, auto=True, header_mode="common", rename={"sun": "sea"}).chosen
    (tmp_path / "b.txt").write_text("sea\tzee\nair\tlucht\nsun\tzon\nsky\themel\n")
    result = dl.diff(*files, auto=True)
    assert result.chosen == {"delimiter": "\t", "no_header": True, "key_columns": ["c1"]}
    assert result.counts == {"added": 1, "removed": 0, "changed": 1, "unchanged": 2}


def test_columns_of_one_side_only_that_are_no_renames_are_left_to_the_schema(tmp_path: Path) -> None:
    old = [{"id": n, "v": "x", "weight": n * 7} for n in range(10)]
    new = [{"id": n, "v": "x", "colour": f"c{n}"} for n in range(10)]
    result = dl.diff(old, new, auto=True)
    assert result.chosen == {"header_mode": "common", "key_columns": ["id"]}
    schema = next(iter(result))
    assert (schema["columns_added"], schema["columns_removed"]) == (["colour"], ["weight"])


DOCUMENTS = {
    "records": (lambda rows: {"version": 1, "tags": [{"t": 1}], "records": rows}, "id"),
    "*": (lambda rows: {f"k{row['id']}": {"v": row["v"]} for row in rows}, "member"),
}


@pytest.mark.parametrize("inside", DOCUMENTS)
def test_the_rows_of_a_json_document_are_found(inside: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wrap, key = DOCUMENTS[inside]
    for name, value in (("a.json", "x"), ("b.json", "y")):
        (tmp_path / name).write_text(
            json.dumps(wrap([{"id": n, "v": value if n == 3 else "z"} for n in range(9)]), indent=1)
        )
    a, b = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    result = dl.diff(a, b, auto=True)
    assert result.chosen == {"inside": inside, "key_columns": [key]}
    assert result.counts == {"added": 0, "removed": 0, "changed": 1, "unchanged": 8}
    assert list(result.lines()) == list(dl.diff(f"{a}::{inside}", f"{b}::{inside}", key=key).lines())
    assert run(driftline, ["diff", a, b, "--auto", "-o", str(tmp_path / "auto.jsonl")]) == 1
    assert capfd.readouterr().err.startswith(f"auto: --inside {shlex.quote(inside)}\nauto: --key {key}\n")
    assert (tmp_path / "auto.jsonl").read_bytes() == b"".join(result.lines())
    assert run(driftline, ["diff", a, b]) == 2
    assert capfd.readouterr().err.rstrip().endswith(f"this pair is read with --inside {shlex.quote(inside)}")


def test_rules_are_taken_only_when_asked(tmp_path: Path) -> None:
    old = [{"id": n, "city": "Rome", "v": 1} for n in range(20)]
    new = [{"id": n, "city": "ROME", "v": 1 + (n == 3)} for n in range(20)]
    assert dl.diff(old, new, auto=True).counts["changed"] == 20
    result = dl.diff(old, new, auto="rules")
    assert result.chosen == {"key_columns": ["id"], "normalize": {"city": "case"}}
    assert result.counts["changed"] == 1


CITIES = ("Rome", "Oslo", "Lima", "Bern", "NA")
LOOSE: dict[str, tuple[str, str, dict, str]] = {  # old, new, what is taken, what is proposed with its count
    "null words": (
        "id,city\n" + "".join(f"{n},{CITIES[n % 5]}\n" for n in range(20)),
        "id,city\n" + "".join(f"{n},{CITIES[n % 5].replace('NA', '')}\n" for n in range(20)),
        {"key_columns": ["id"], "null": ["", "NA"]},
        "4 of 4 changes of city are nothing written otherwise: --null '' --null NA would leave 0",
    ),
    "date forms": (
        "id,day\n" + "".join(f"{n},2024-01-{n:02}\n" for n in range(10, 30)),
        "id,day\n" + "".join(f"{n},{n:02}.01.2024\n" for n in range(10, 30)),
        {"key_columns": ["id"], "types_a": {"day": "date"}, "types_b": {"day": "date:%d.%m.%Y"}},
        "20 of 20 changes of day are dates written otherwise: --as-a day=date --as-b day=date:%d.%m.%Y would leave 0",
    ),
    "a renamed column": (
        "id,price,n\n" + "".join(f"{n},{n * 3},x\n" for n in range(20)),
        "id,cost,n\n" + "".join(f"{n},{n * 3},x\n" for n in range(20)),
        {"key_columns": ["id"], "rename": {"price": "cost"}},
        "--rename price=cost: 20 of 20 rows are alike",
    ),
}


@pytest.mark.parametrize("name", LOOSE)
def test_what_loosens_equality_is_proposed_and_taken_when_asked(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    old, new, taken, proposed = LOOSE[name]
    (tmp_path / "a.csv").write_text(old)
    (tmp_path / "b.csv").write_text(new)
    command = ["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    is_rename = "rename" in taken
    assert run(driftline, [*command, "--auto", "-o", str(tmp_path / "plain.jsonl")]) == (2 if is_rename else 1)
    said = capfd.readouterr().err
    assert f"proposed: {proposed}" in said
    if is_rename:
        assert said.endswith("this pair is read with --rename price=cost\n")
        assert "price in A and cost in B: 20 of 20 rows are alike" in said
    assert run(driftline, [*command, "--auto=rules", "-o", str(tmp_path / "auto.jsonl")]) == 0
    lines = [line.removeprefix("auto: ") for line in capfd.readouterr().err.splitlines() if line.startswith("auto: ")]
    flags = [word for line in lines for word in shlex.split(line)]
    assert run(driftline, [*command, *flags, "-o", str(tmp_path / "given.jsonl")]) == 0
    assert (tmp_path / "auto.jsonl").read_bytes() == (tmp_path / "given.jsonl").read_bytes()
    result = dl.diff(*command[1:], auto="rules")
    assert result.chosen == taken
    assert not result
    assert dl.diff(*command[1:], **taken).counts == result.counts


def test_columns_without_proof_are_not_renamed(tmp_path: Path) -> None:
    old = [{"id": n, "a": n, "b": n, "one": 1} for n in range(10)]
    new = [{"id": n, "c": n, "d": 5, "two": 1} for n in range(10)]  # c may be a or b, and one value proves nothing
    rules = {"key": "id", "header_mode": "common"}
    assert "rename" not in dl.diff(old, new, auto="rules", **rules).chosen
    with pytest.raises(dl.DriftlineError) as raised:
        dl.diff(old, new, key="id", auto="rules")
    assert raised.value.code == "header_mismatch"


def test_columns_that_are_both_mostly_empty_are_not_renamed() -> None:
    old = [{"id": n, "a": n, "price": n if n % 20 == 0 else None} for n in range(200)]
    new = [{"id": n, "a": n, "limit": n if n % 20 == 10 else None} for n in range(200)]  # 180 of 200 are null in both
    assert "rename" not in dl.diff(old, new, key="id", auto="rules").chosen
    moved = [{"id": n, "a": n, "cost": n if n % 20 == 0 else None} for n in range(200)]
    assert dl.diff(old, moved, key="id", auto="rules").chosen["rename"] == {"price": "cost"}


def test_a_nearly_unique_key_leaves_the_way_out_of_renamed_columns(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{n},{n % 7},{n * 3}\n" for n in (0, *range(30))]  # the first row stands twice
    (tmp_path / "a.csv").write_text("at,kind,stage one\n" + "".join(rows))
    (tmp_path / "b.csv").write_text("at,kind,stage_one\n" + "".join(rows))
    command = ["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--auto", "-o", str(tmp_path / "out.jsonl")]
    assert run(driftline, command) == 2
    said = capfd.readouterr().err
    assert "auto: --duplicates match" in said
    way = said.strip().rpartition("this pair is read with ")[2]
    assert way == "--rename 'stage one=stage_one'"
    assert run(driftline, [*command, *shlex.split(way)]) == 0


def test_rules_that_were_given_stay(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,city,v\n" + "".join(f"{n},Rome,X\n" for n in range(20)))
    (tmp_path / "b.csv").write_text("id,city,v\n" + "".join(f"{n},ROME,x\n" for n in range(20)))
    command = ["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--key", "id", "--normalize", "city=case"]
    assert run(driftline, [*command, "--auto=rules", "-o", str(tmp_path / "out.jsonl")]) == 0


def test_what_is_read_once_is_not_looked_at(tmp_path: Path) -> None:
    """A key is chosen by the first rows, which a cursor or a stream would not give again."""
    connection = sqlite3.connect(":memory:")
    cursors = [connection.execute(f"SELECT 1 AS id, {value} AS v UNION SELECT 2, 5") for value in (3, 4)]
    result = dl.diff(*cursors, auto=True)
    assert (result.chosen, result.counts["changed"], result.counts["unchanged"]) == ({}, 1, 1)
    (tmp_path / "a.csv").write_text("id,v\n1,x\n2,y\n")
    command = [sys.executable, "-m", "driftline", "diff", str(tmp_path / "a.csv"), "-", "--auto"]
    done = subprocess.run(command, input=b"id,v\n1,x\n2,z\n", capture_output=True, check=False)
    assert (done.returncode, json.loads(done.stdout.splitlines()[-1])["rows_changed"]) == (1, 1), done.stderr


def test_letters_that_only_python_takes_for_line_ends_change_no_reading(tmp_path: Path) -> None:
    for name, text in {"a.csv": 'id,v\n1,x\u2028y\n2,"p\n\nq"\n', "b.csv": "id,v\n1,x\u2028y\n2,z\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert dl.diff(tmp_path / "a.csv", tmp_path / "b.csv", auto=True).chosen == {"key_columns": ["id"]}


def test_a_key_is_found_under_new_names_and_never_in_empty_texts(tmp_path: Path) -> None:
    for name, text in {"a.csv": "word,sound\nx,1\ny,1\n", "b.csv": "w,s\nx,1\ny,2\n"}.items():
        (tmp_path / name).write_text(text)
    renamed = dl.diff(tmp_path / "a.csv", tmp_path / "b.csv", auto=True, rename={"word": "w", "sound": "s"})
    assert (renamed.chosen, renamed.counts["changed"]) == ({"key_columns": ["word"]}, 1)
    rows = [{"code": "", "n": 1}, {"code": "b", "n": 2}]
    assert dl.diff(rows, rows, auto=True).chosen == {"key_columns": ["n"]}


def test_errors_speak_the_language_of_their_caller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {"a": "id;v\n1;a\n", "b": "v,id\na,1\n", "c": "id,v\n1,a\n1,b\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for sides, in_python, as_flags in (
        ("aa", ['give delimiter=";"', "delimiter=';'"], ['give --delimiter ";"', "--delimiter ';'"]),
        ("bc", ['header_mode="sorted" takes that'], ["--header-mode sorted takes that"]),
        ("cc", ['duplicates="match" pairs the rows of a key'], ["--duplicates match pairs the rows of a key"]),
    ):
        files = [str(tmp_path / side) for side in sides]
        with pytest.raises(dl.DriftlineError) as raised:
            dl.diff(*files, key="id")
        words = "; ".join([str(raised.value), *raised.value.__notes__])
        assert all(one in words for one in in_python)
        assert "--" not in words
        assert run(driftline, ["diff", *files, "--key", "id"]) == 2
        shown = capsys.readouterr().err
        assert all(one in shown for one in as_flags)
