"""Columns that come, go or change their type: what is declared happens, in events, lake, states and changesets."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import apsw
import pytest

from driftline import changesets
from driftline.deltas import TableSchema
from driftline.errors import PipelineError
from driftline.lake import Lake, register, verify
from driftline.lake._store.schemas import registered
from support.shop import lake_rows, run

pytestmark = pytest.mark.histories

DAYS = {
    "2026-03-01": "id,name\n1,a\n2,b\n",
    "2026-03-02": "id,name,city\n1,a,Oslo\n2,b,\n",
    "2026-03-03": "id,name,city\n1,x,Oslo\n2,b,\n3,c,Rome\n",
}


def make(folder: Path, policy: str, days: dict[str, str] = DAYS, ending: str = "csv") -> Path:
    (folder / "data").mkdir(exist_ok=True)
    for path in (folder / "data").iterdir():
        path.unlink()
    for day, text in days.items():
        (folder / f"data/t-{day}.{ending}").write_text(text)
    file = folder / "p.toml"
    file.write_text(
        f'[pipeline]\nname = "p"\n[lake]\npath = "lake"\n[tables.t]\nsnapshots = "data/t-{{date}}.{ending}"\n'
        f'key = "id"\n{policy}\nevents = "out/t-{{to}}.jsonl"\nchangeset = "out/t-{{to}}.changeset"\n'
        "deltas = true\ncompact = true\n"
        '[[tables.t.state]]\npath = "out/now.csv"\nformat = "csv"\n'
    )
    return file


def rows(text: str) -> dict[str, dict]:
    return {row["id"]: row for row in csv.DictReader(text.splitlines())}


def problems(record) -> list[str]:
    return [stage.problem for stage in record.stages if stage.problem]


def test_without_a_policy_the_words_say_what_changed_and_what_to_declare(tmp_path: Path) -> None:
    record = run(make(tmp_path, ""))
    assert record.exit_code == 2
    assert problems(record)[0] == (
        "header_mismatch: snapshot 2026-03-02 has a new column 'city': declare on_new_column = add or ignore, "
        "or mend the source"
    )


def test_a_new_column_is_added_everywhere(tmp_path: Path) -> None:
    file = make(tmp_path, 'on_new_column = "add"')
    record = run(file)
    assert record.exit_code == 0, problems(record)
    assert lake_rows(tmp_path, "t") == rows(DAYS["2026-03-03"])
    assert lake_rows(tmp_path, "t", "2026-03-02") == rows(DAYS["2026-03-02"])
    assert lake_rows(tmp_path, "t", "2026-03-01") == rows(DAYS["2026-03-01"])
    assert registered(Lake(tmp_path / "lake"), "t").names == ("id", "name", "city")
    assert verify(Lake(tmp_path / "lake"), "t").is_proved
    events = [json.loads(line) for line in (tmp_path / "out/t-2026-03-02.jsonl").read_text().splitlines()]
    assert events[0]["columns_b"] == ["id", "name", "city"]
    assert [event["delta"] for event in events[1:-1]] == [{"city": {"from": "", "to": "Oslo"}}]
    assert (tmp_path / "out/now.csv").read_text().splitlines()[1] == "1,1,x,Oslo"
    notes = {stage.stage: stage.notes for stage in record.stages if stage.notes}
    assert notes == {"t/2026-03-02/diff": ("column 'city' was added",)}
    database = apsw.Connection(":memory:")
    database.execute("CREATE TABLE t(id TEXT PRIMARY KEY, name TEXT, city TEXT)")
    database.executemany("INSERT INTO t VALUES (?, ?, '')", [("1", "a"), ("2", "b")])
    for day in ("2026-03-02", "2026-03-03"):
        changesets.apply((tmp_path / f"out/t-{day}.changeset").read_bytes(), database)
    held = {row[0]: dict(zip(("id", "name", "city"), row, strict=True)) for row in database.execute("SELECT * FROM t")}
    assert held == rows(DAYS["2026-03-03"])
    assert {stage.result for stage in run(file).stages} == {"kept"}


def test_a_new_column_is_ignored_and_stays_so(tmp_path: Path) -> None:
    run(make(tmp_path, 'on_new_column = "ignore"'))
    expected = {key: {"id": key, "name": row["name"]} for key, row in rows(DAYS["2026-03-03"]).items()}
    assert lake_rows(tmp_path, "t") == expected
    later = {"2026-03-03": DAYS["2026-03-03"], "2026-03-04": DAYS["2026-03-03"] + "4,d,Bern\n"}
    record = run(make(tmp_path, 'on_new_column = "ignore"', later))
    assert record.exit_code == 0, problems(record)
    assert lake_rows(tmp_path, "t") == expected | {"4": {"id": "4", "name": "d"}}


def test_a_column_of_a_snapshot_that_is_gone_is_null_in_the_next_one(tmp_path: Path) -> None:
    policy = 'on_new_column = "add"\non_missing_column = "null"'
    first = "id,name,city\n1,a,\n2,b,Oslo\n3,c,Rome\n"
    second, third = "id,name\n1,a\n2,x\n4,d\n", "id,name,city\n1,a,\n2,x,Oslo\n"
    for days in ({"2026-03-01": first}, {"2026-03-02": second}, {"2026-03-02": second, "2026-03-03": third}):
        record = run(make(tmp_path, policy, days))
        assert record.exit_code == 0, problems(record)
    assert lake_rows(tmp_path, "t", "2026-03-01") == rows(first)
    held = {
        key: {name: cell for name, cell in row.items() if cell is not None}
        for key, row in lake_rows(tmp_path, "t", "2026-03-02").items()
    }
    assert held == rows(second)
    assert lake_rows(tmp_path, "t") == rows(third)


def test_a_missing_column_is_null_until_it_comes_back(tmp_path: Path) -> None:
    days = {
        "2026-03-01": "id,name,city\n1,a,Oslo\n",
        "2026-03-02": "id,name\n1,b\n2,c\n",
        "2026-03-03": "name,id,city\nb,1,Rome\nc,2,\n",
    }
    record = run(make(tmp_path, 'on_missing_column = "null"', days))
    assert record.exit_code == 0, problems(record)
    assert lake_rows(tmp_path, "t", "2026-03-02") == {
        "1": {"id": "1", "name": "b", "city": None},
        "2": {"id": "2", "name": "c", "city": None},
    }
    assert lake_rows(tmp_path, "t") == {
        "1": {"id": "1", "name": "b", "city": "Rome"},
        "2": {"id": "2", "name": "c", "city": ""},
    }


def test_typed_rows_keep_their_values(tmp_path: Path) -> None:
    days = {
        "2026-03-01": '{"id":1,"x":1.50,"l":[1]}\n',
        "2026-03-02": '{"id":1,"x":1.50,"l":[1],"new":{"a":true}}\n{"id":2,"x":9007199254740991,"l":null,"new":null}\n',
    }
    record = run(make(tmp_path, 'on_new_column = "add"', days, "jsonl"))
    assert problems(record) == []
    found = lake_rows(tmp_path, "t")
    assert found["1"] == {"id": 1, "x": 1.5, "l": [1], "new": {"a": True}}
    assert found["2"]["new"] is None


def test_a_changed_type_begins_a_new_generation_where_that_is_declared(tmp_path: Path) -> None:
    days = {"2026-03-01": "id,name\n1,1\n", "2026-03-02": "id,name\n1,2\n"}
    run(make(tmp_path, "", days))
    typed = 'columns = { name = "number" }\n'
    assert run(make(tmp_path, typed, days)).exit_code == 2
    record = run(make(tmp_path, typed + 'on_type_change = "refresh"', days))
    assert record.exit_code == 0, problems(record)
    assert lake_rows(tmp_path, "t")["1"]["name"] == 2
    assert lake_rows(tmp_path, "t", "2026-03-01")["1"]["name"] == 1
    assert [note for stage in record.stages for note in stage.notes] == [
        "generation 2 begins: table t: column 'name' is a string in the lake and a number now"
    ]


def test_words_of_policies(tmp_path: Path) -> None:
    with pytest.raises(Exception, match='did you mean "ignore"'):
        run(make(tmp_path, 'on_new_column = "ignor"'))


def test_the_lake_holds_the_snapshot_whatever_counts_as_equal(tmp_path: Path) -> None:
    days = {"2026-03-01": "id,price\n1,1.00\n2,5\n", "2026-03-02": "id,price\n1,1.01\n2,6\n"}
    record = run(make(tmp_path, 'tolerance = ["price=0.5"]\ncolumn_stats = true', days))
    assert record.exit_code == 0, problems(record)
    assert record.stages[0].counts["changed"] == 1
    assert lake_rows(tmp_path, "t") == rows(days["2026-03-02"])


@pytest.mark.parametrize("rule", ["no_header = true", 'rename = ["name=title"]'])
def test_rules_that_a_lake_cannot_follow_are_refused(tmp_path: Path, rule: str) -> None:
    with pytest.raises(PipelineError, match="does not go with 'deltas'"):
        run(make(tmp_path, rule))


def test_a_corrected_first_day_leaves_the_lake_the_columns_of_the_last(tmp_path: Path) -> None:
    policy = 'on_new_column = "add"\non_missing_column = "null"'
    now = tmp_path / "out/now.csv"
    run(make(tmp_path, policy))
    expected = now.read_text()
    assert expected.splitlines()[:2] == ["_row_id,id,name,city", "1,1,x,Oslo"]
    corrected = {**DAYS, "2026-03-01": "id,name\n1,CORRECTED\n2,b\n"}
    assert run(make(tmp_path, policy, corrected)).result == "done"
    assert now.read_text() == expected
    assert lake_rows(tmp_path, "t", "2026-03-01")["1"]["name"] == "CORRECTED"
    withdrawn = {day: text for day, text in corrected.items() if day != "2026-03-01"}
    narrow = {**withdrawn, "2026-03-02": "id,name\n1,a\n2,b\n"}
    assert run(make(tmp_path, policy, narrow)).result == "done"
    assert now.read_text() == expected, "the first snapshot of now lacks a column that the last one has"
    assert {stage.result for stage in run(make(tmp_path, policy, narrow)).stages} == {"kept"}


def test_a_lake_that_lost_columns_gets_them_back(tmp_path: Path) -> None:
    policy = 'on_new_column = "add"\non_missing_column = "null"'
    run(make(tmp_path, policy))
    expected = (tmp_path / "out/now.csv").read_text()
    lake = Lake(tmp_path / "lake")
    schema = registered(lake, "t")
    assert schema is not None
    register(lake, TableSchema("t", schema.columns[:2], ["id"]))  # as a killed run may leave it
    assert run(make(tmp_path, policy)).result == "done"
    assert (tmp_path / "out/now.csv").read_text() == expected
    assert registered(lake, "t") == schema
