"""Numbers keep their digits from the source to every output, or are refused by name: one pipeline over all vectors."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.changesets import CdcTable, convert
from driftline.deltas import ColumnSchema, RowDelta, TableSchema, from_events
from driftline.errors import DriftlineError
from driftline.lake import Lake, registered, verify
from driftline.lake._read.state import all_deltas
from driftline.pipeline import load, run_pipeline

pytestmark = pytest.mark.histories

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/exact-numbers.json").read_bytes())
LOADED = [case for case in VECTORS if case["id"][0] in "IDN" and case["from"] not in ("wire", "debezium")]
KEYS = [case for case in VECTORS if case["id"].startswith("K")]
DECLARED = {"I7", "I9", "I10", "I11", "I12", "D4", "D5", "D6", "N1", "N2", "N5"}  # elsewhere the source says it
ARROW = {"float64": pa.float64(), "int64": pa.int64(), "uint64": pa.uint64()}


def named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in cases]


def key_of(case: dict[str, Any]) -> list[str]:
    return ["v"] if case.get("key") or case.get("rowId") else ["k"]


def arrow_value(case: dict[str, Any]) -> pa.Array:
    word = case["from"].removeprefix("arrow:")
    if word.startswith("decimal128"):
        return pa.array([Decimal(case["value"])], pa.decimal128(*map(int, word[11:-1].split(","))))
    plain = float(case["value"]) if word == "float64" else int(case["value"])
    return pa.array([plain], ARROW[word])


def write_source(folder: Path, case: dict[str, Any]) -> str:
    name = f"{case['id']}-2026-03-01"
    if case["from"] == "jsonl":
        (folder / f"{name}.jsonl").write_text(f'{{"k":"r","v":{case["value"]}}}\n')
        return "jsonl"
    if case["from"] == "csv":
        (folder / f"{name}.csv").write_text(f"k,v\nr,{case['value']}\n")
        return "csv"
    pq.write_table(pa.table({"k": ["r"], "v": arrow_value(case)}), folder / f"{name}.parquet")
    return "parquet"


@pytest.fixture(scope="module")
def done(tmp_path_factory: Any) -> tuple[Path, dict[str, str]]:
    """A run over a table for each vector, and the problem of each table that has one."""
    folder = tmp_path_factory.mktemp("exact")
    text = '[pipeline]\nname = "p"\n[lake]\npath = "lake"\n'
    for case in LOADED:
        ending = write_source(folder, case)
        text += f'[tables.{case["id"]}]\nsnapshots = "{case["id"]}-{{date}}.{ending}"\nkey = {key_of(case)}\n'
        text += "deltas = true\ncompact = true\n"
        text += f'columns = {{ v = "{case["type"]}" }}\n' if case["id"] in DECLARED else ""
        for form in ("parquet", "sqlite", "csv", "jsonl"):
            text += f'[[tables.{case["id"]}.state]]\npath = "{case["id"]}.out.{form}"\nformat = "{form}"\n'
    for case in KEYS:
        kinds = {"integer": pa.int64(), "string": pa.string(), "decimal(2)": pa.decimal128(12, 2)}
        parts = {
            f"k{n}": pa.array(
                [Decimal(each) if kind.startswith("d") else int(each) if kind[0] == "i" else each], kinds[kind]
            )
            for n, (kind, each) in enumerate(zip(case["types"], case["key"], strict=True))
        }
        pq.write_table(pa.table({**parts, "v": ["x"]}), folder / f"{case['id']}-2026-03-01.parquet")
        text += (
            f'[tables.{case["id"]}]\nsnapshots = "{case["id"]}-{{date}}.parquet"\nkey = ["k0", "k1"]\ndeltas = true\n'
        )
    (folder / "p.toml").write_text(text)
    record = run_pipeline(load(folder / "p.toml"))
    problems: dict[str, str] = {}
    for stage in record.stages:
        if stage.problem:
            problems.setdefault(stage.stage.partition("/")[0], stage.problem)
    return folder, problems


def only_delta(folder: Path, table: str) -> RowDelta:
    [delta] = all_deltas(Lake(folder / "lake"), table)
    return delta


@pytest.mark.parametrize("case", named([case for case in LOADED if "refused" in case]))
def test_what_does_not_fit_is_refused_by_name(case: dict[str, Any], done: Any) -> None:
    _, problems = done
    code, _, words = problems[case["id"]].partition(": ")
    assert code == case["refused"]
    assert "'v'" in words


@pytest.mark.parametrize("case", named([case for case in LOADED if "refused" not in case]))
def test_digits_stay_from_the_source_to_every_output(case: dict[str, Any], done: Any) -> None:
    folder, problems = done
    table = case["id"]
    assert table not in problems, problems.get(table)
    schema = registered(Lake(folder / "lake"), table)
    assert schema is not None
    assert schema.by_name["v"] == ColumnSchema("v", case["type"])
    delta = only_delta(folder, table)
    assert {entry.column: entry.value for entry in delta.columns}["v"] == case["wire"]
    if case["rowId"] is not None:
        assert delta.row_id == case["rowId"]
    assert delta.has_own_id()
    assert verify(Lake(folder / "lake"), table, oracle=True).is_proved

    state = pq.read_table(folder / f"{table}.out.parquet")
    kind, value = case["lake"]
    assert str(state.schema.field("v").type) == kind.replace("decimal(", "decimal128(").replace(",", ", ")
    assert str(state["v"][0].as_py()) == value or format(state["v"][0].as_py(), "f") == value
    database = apsw.Connection(str(folder / f"{table}.out.sqlite"))
    declared = {name: kind for _, name, kind, *_ in database.execute(f'PRAGMA table_info("{table}")')}
    assert declared["v"] == case["sqlite"][0]
    [(found,)] = database.execute(f'SELECT CAST(v AS TEXT) FROM "{table}"')
    assert found == case["sqlite"][1]
    line = json.loads((folder / f"{table}.out.jsonl").read_text())
    assert line["v"] == case["wire"]
    assert (folder / f"{table}.out.csv").read_text().splitlines()[1].split(",")[-1] == str(case["wire"])


@pytest.mark.parametrize("case", named(KEYS))
def test_row_ids_of_several_columns(case: dict[str, Any], done: Any) -> None:
    folder, problems = done
    assert case["id"] not in problems
    assert only_delta(folder, case["id"]).row_id == case["rowId"]


@pytest.mark.parametrize("case", named([case for case in VECTORS if case.get("from") == "wire"]))
def test_spellings_on_the_wire(case: dict[str, Any]) -> None:
    value = json.loads(case["value"])
    assert ColumnSchema("v", case["type"]).accepts(value) == ("refused" not in case)


@pytest.mark.parametrize("case", named([case for case in VECTORS if case.get("from") == "debezium"]))
def test_change_events_refuse_what_is_no_number(case: dict[str, Any]) -> None:
    message = {"op": "c", "source": {"table": "t", "schema": "s"}, "before": None}
    line = json.dumps({"payload": {**message, "after": {"k": "r", "v": json.loads(case["value"])}}}).encode()
    with pytest.raises(DriftlineError) as caught:
        convert([(0, line)], CdcTable("t", ("k",), ("k", "v"), {"v": case["type"]}), lambda data: None)
    assert caught.value.code == case["refused"]


def test_change_events_have_the_row_ids_of_other_sources() -> None:
    columns = [
        {"name": "i", "type": "bigint", "value": 9007199254740993},
        {"name": "d", "type": "numeric", "value": "NUMBER"},
        {"name": "v", "type": "numeric(38,10)", "value": 1},
    ]
    text = json.dumps({"action": "I", "schema": "s", "table": "t", "columns": columns}).replace('"NUMBER"', "1.50")
    table = CdcTable("t", ("i", "d"), ("i", "d", "v"), {"i": "integer", "d": "decimal(2)", "v": "decimal(10)"})
    lines: list[bytes] = []
    convert([(0, text.encode())], table, lines.append)
    [delta] = from_events(map(json.loads, lines), table="t", client_id="c", start=1)
    assert delta.row_id == '["9007199254740993","1.5"]'
    assert {entry.column: entry.value for entry in delta.columns} == {"i": "9007199254740993", "d": "1.5", "v": "1"}


@pytest.mark.parametrize("case", named([case for case in VECTORS if case["id"].startswith("H")]))
def test_delta_ids(case: dict[str, Any]) -> None:
    wire = {"op": "INSERT", **case["delta"], "deltaId": case["deltaId"]}
    delta = RowDelta.from_wire(wire)
    assert delta.has_own_id()


def test_unknown_types_are_refused_by_name() -> None:
    for word in ("decimal(39)", "decimal(-1)", "decimal()", "int", "Integer"):
        with pytest.raises(DriftlineError, match="use one of"):
            TableSchema("t", [{"name": "v", "type": word}])
