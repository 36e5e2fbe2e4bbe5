"""Columns by number, in any case, and by the header of the other side: judged by the same tables with names in full."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import driftline as dl
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import DriftlineError
from driftline.tables import TableDiffJob, check_options, find_engine

OLD = "Id,Name,City\n1,Ann,Rome\n2,Bob,Oslo\n3,Cy,Lima\n"
NEW = "Id,Name,City\n1,Ann,Roma\n3,Cy,Lima\n4,Di,Bern\n"
ENGINES = ("local", "vectorized")


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def output(a, b, engine: str = "local", **rules) -> bytes:
    written: list[bytes] = []
    find_engine(engine)(TableDiffJob(a, b, check_options(**rules)), lambda data: written.append(bytes(data)))
    return b"".join(written)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("numbers", "names"), [([1], ["Id"]), ([3, 1], ["City", "Id"])])
def test_keys_by_number(write, engine: str, numbers: list[int], names: list[str]) -> None:
    a, b = write("a.csv", OLD), write("b.csv", NEW)
    assert output(a, b, engine, key_numbers=numbers) == output(a, b, key=names)


def test_keys_by_number_of_typed_tables_and_results(write, capfd: pytest.CaptureFixture[str]) -> None:
    a, b = (pl.read_csv(write(name, text)) for name, text in (("a.csv", OLD), ("b.csv", NEW)))
    result, named = dl.diff(a, b, key_numbers=1), dl.diff(a, b, key="Id")
    assert list(result.lines()) == list(named.lines())
    assert result.changed.equals(named.changed)
    assert result.describe() == named.describe()
    a, b = str(write("a.csv", OLD)), str(write("b.csv", NEW))
    assert run(driftline, ["diff", a, b, "--key-number", "1", "--format", "terminal"]) == 1
    assert "key Id" in capfd.readouterr().out
    assert run(driftline, ["diff", a, b, "--key-number", "7"]) == 2
    assert 'Missing key column 7 in A: it has 3 (columns: "Id", "Name", "City")' in capfd.readouterr().err
    assert run(driftline, ["diff", a, b, "--key-number", "0"]) == 2
    assert "Missing key column 0 in A: it has 3" in capfd.readouterr().err
    assert run(driftline, ["diff", a, b, "--key-number", "1", "--ignore", "Id"]) == 2
    assert "ignore names the key column" in capfd.readouterr().err


@pytest.mark.parametrize("engine", ENGINES)
def test_a_header_on_one_side(write, engine: str) -> None:
    a, b = write("a.csv", OLD), write("b.csv", NEW)
    bare_a, bare_b = write("bare_a.csv", OLD.partition("\n")[2]), write("bare_b.csv", NEW.partition("\n")[2])
    expected = output(a, b, key="Id")
    assert output(a, bare_b, engine, key="Id", no_header_b=True) == expected
    assert output(bare_a, b, engine, key="Id", no_header_a=True) == expected
    assert output(bare_a, b, engine, key="Id", no_header=True, no_header_b=False) == expected
    typed = write("b.parquet", "")
    pl.read_csv(b, infer_schema=False).write_parquet(typed)
    assert dl.diff(bare_a, typed, key="Id", no_header_a=True).counts == dl.diff(a, b, key="Id").counts


def test_a_header_of_another_width_is_refused(write) -> None:
    a, b = write("a.csv", OLD), write("b.csv", "1,Ann\n")
    with pytest.raises(DriftlineError, match="B has no header and 2 columns, the header of A has 3") as raised:
        dl.diff(a, b, key="Id", no_header_b=True)
    assert raised.value.code == "header_mismatch"


@pytest.mark.parametrize("engine", ENGINES)
def test_names_in_any_case(write, engine: str) -> None:
    a, by_hand = write("a.csv", OLD), write("hand.csv", NEW)
    b = write("b.csv", NEW.replace("Id,Name,City", "ID,Name,city"))
    found = output(a, b, engine, key="iD", ignore_column_case=True)
    assert found == output(a, b, key="Id", rename={"Id": "ID", "City": "city"})
    renamed = found.decode().replace('"ID"', '"Id"').replace('"city"', '"City"')
    renamed = renamed.replace(',"renamed":{"Id":"Id","City":"City"}', "")
    assert renamed.encode() == output(a, by_hand, key="Id")
    frames = pl.read_csv(a), pl.read_csv(b)
    assert dl.diff(*frames, key="ID", ignore_column_case=True).counts == dl.diff(a, by_hand, key="Id").counts


def test_names_that_differ_in_case_alone_are_told_apart(write) -> None:
    a, b = write("a.csv", "k,ID,id\n1,2,3\n"), write("b.csv", "k,ID,id\n1,2,4\n")
    assert output(a, b, key="k", ignore_column_case=True) == output(a, b, key="k")
    b = write("b.csv", "k,Id\n1,2\n")
    schema = next(iter(dl.diff(a, b, key="k", ignore_column_case=True, header_mode="common")))
    assert (schema["columns_removed"], schema["columns_added"]) == (["ID", "id"], ["Id"])  # it may be either


def test_merge_takes_keys_by_number(write) -> None:
    base, ours, theirs = write("o.csv", OLD), write("a.csv", OLD.replace("Ann", "Anna")), write("b.csv", NEW)
    out = write("out.csv", "")
    assert dl.merge(base, ours, theirs, out, key_numbers=[1]).conflicts == []
    assert out.read_text() == NEW.replace("Ann", "Anna")
    with pytest.raises(DriftlineError, match="for all versions alike"):
        dl.merge(base, ours, theirs, out, key="Id", no_header_b=True)
