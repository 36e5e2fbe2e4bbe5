"""Why real files could not be compared: for every cause a small pair, the option that takes it, and who names it.

Each case is two files as people publish them (a register, a price list, a sensor log), the options that somebody would
type first, what the error line then names, and what comes of following it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline


@dataclass(frozen=True)
class Case:
    a: bytes
    b: bytes
    first: list[str]  # what is typed first
    named: str  # a part of the error line; empty where the first try is no error
    then: list[str]  # what is typed next
    counts: tuple[int, int, int]  # added, removed, changed
    explained: str = field(default="rules: ")


STATIONS = "station,name,height\n1001,Oslo,94\n1002,Bergen,12\n"
CASES = {
    "columns added and removed": Case(
        STATIONS.encode(),
        b"station,name,owner\n1001,Oslo,MET\n1003,Lom,MET\n",
        ["--key", "station"],
        "--header-mode common",
        ["--header-mode", "common"],
        (1, 1, 0),
        "only in B: owner",
    ),
    "a column renamed": Case(
        STATIONS.encode(),
        b"station,title,height\n1001,Oslo,94\n1002,Bergen,13\n",
        ["--key", "station"],
        "--rename name=title",
        ["--rename", "name=title"],
        (0, 0, 1),
        "rename name → title",
    ),
    "no header line": Case(
        b"1001,Oslo,94\n1002,Bergen,12\n",
        b"1001,Oslo,95\n1002,Bergen,12\n",
        [],
        "--no-header",
        ["--no-header", "--key", "c1"],
        (0, 0, 1),
        "no header",
    ),
    "names that are empty": Case(
        b",name,\n1,Oslo,x\n2,Bergen,y\n",
        b",name,\n1,Oslo,z\n2,Bergen,y\n",
        ["--key", "name"],
        "--duplicate-columns rename",
        ["--duplicate-columns", "rename"],
        (0, 0, 1),
        "duplicate columns rename",
    ),
    "no header line, and cells that repeat": Case(
        b"7,0,0\n8,1,0\n",
        b"7,0,0\n8,1,1\n",
        [],
        "--no-header",
        ["--no-header", "--key", "c1"],
        (0, 0, 1),
        "no header",
    ),
    "short rows": Case(
        b"id,name,note\n1,Oslo,x\n2,Bergen\n",
        b"id,name,note\n1,Oslo,y\n2,Bergen,\n",
        ["--key", "id"],
        "--ragged pad",
        ["--ragged", "pad"],
        (0, 0, 1),
        "ragged rows pad",
    ),
    "a note below the data": Case(
        b"id,price\n1,5\n2,6\nSource: price office\n",
        b"id,price\n1,5\n2,7\nSource: price office\n",
        ["--key", "id"],
        "--ragged skip",
        ["--ragged", "skip"],
        (0, 0, 1),
        "ragged rows skip",
    ),
    "blank lines": Case(
        b"id,price\n\n1,5\n\n2,6\n",
        b"id,price\n1,5\n2,7\n",
        ["--key", "id"],
        "--skip-blank-lines",
        ["--skip-blank-lines"],
        (0, 0, 1),
        "skip blank lines",
    ),
    "semicolons": Case(
        b"id;price\n1;5,00\n2;6,00\n",
        b"id;price\n1;5,00\n2;7,00\n",
        ["--key", "id"],
        '--delimiter ";"',
        ["--delimiter", ";"],
        (0, 0, 1),
        "delimiter ';'",
    ),
    "tabs in a file called csv": Case(
        b"id\tprice\n1\t5\n",
        b"id\tprice\n1\t6\n",
        ["--key", "id"],
        '--delimiter "tab"',
        ["--delimiter", "auto"],
        (0, 0, 1),
        "delimiter 'auto'",
    ),
    "Latin-1": Case(
        "id,name\n1,Tromsø\n2,Bodø\n".encode("latin-1"),
        "id,name\n1,Tromsø\n2,Bodo\n".encode(),
        ["--key", "id"],
        "--encoding",
        ["--encoding-a", "latin-1"],
        (0, 0, 1),
        "encoding iso8859-1 (A), utf-8 (B)",
    ),
    "empty keys": Case(
        b"code,name\nN1,Oslo\n,unknown\n",
        b"code,name\nN1,Oslo\n,Unknown\n",
        ["--key", "code"],
        "--empty-key allow",
        ["--empty-key", "allow"],
        (0, 0, 1),
        "empty keys allow",
    ),
    "keys that repeat": Case(
        b"code,year,value\nN1,2020,5\nN1,2021,6\n",
        b"code,year,value\nN1,2021,6\nN1,2020,7\n",
        ["--key", "code"],
        "--duplicates match",
        ["--duplicates", "match"],
        (0, 0, 1),
        "duplicates match",
    ),
    "the same numbers written otherwise": Case(
        b"id,value\n1,5.0\n2,1e3\n3,0.3\n",
        b"id,value\n1,5\n2,1000\n3,0.30000000000000004\n",
        ["--key", "id"],
        "",
        ["--tolerance", "value=1e-6"],
        (0, 0, 0),
        "tolerance value 1e-06",
    ),
}


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Case, list[str]]:
    case = CASES[request.param]
    (tmp_path / "a.csv").write_bytes(case.a)
    (tmp_path / "b.csv").write_bytes(case.b)
    return case, [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]


@pytest.mark.parametrize("pair", CASES, indirect=True)
def test_the_error_names_the_option_that_takes_the_file(
    pair: tuple[Case, list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    case, files = pair
    code = run(driftline, ["diff", *files, *case.first])
    said = capfd.readouterr().err
    assert (code, case.named in said) == (2 if case.named else 1, True), said
    assert len(said.splitlines()) == (1 if case.named else 0)

    keys = case.first if "--key" not in case.then else []
    code = run(driftline, ["diff", *files, *keys, *case.then])
    stats = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert tuple(stats[f"rows_{kind}"] for kind in ("added", "removed", "changed")) == case.counts
    assert code == (1 if any(case.counts) else 0)

    assert run(driftline, ["diff", *files, *keys, *case.then, "--explain"]) == 0
    assert case.explained in capfd.readouterr().out


def test_quotes_that_no_reader_takes_are_told_with_their_row(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """There is no right reading of them, so no option takes them; the row is what somebody needs to mend the file."""
    file = tmp_path / "a.csv"
    file.write_text('id,text\n1,fine\n2,"he said "no" twice"\n')
    assert run(driftline, ["diff", str(file), str(file)]) == 2
    said = capfd.readouterr().err
    assert "CSV parse error in A at row 3: text after a closing quote" in said
    assert "a quote is written twice" in said
