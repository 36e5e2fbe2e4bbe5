"""What makes a load the same load: whatever happens to snapshots, the lake ends where a fresh one would."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from driftline.lake import Lake, materialize, vacuum, verify
from driftline.lake._store.schemas import last_versions
from support.processes import run_process
from support.shop import SOURCE, lake_rows, results, run

pytestmark = pytest.mark.histories

SCRIPT = Path(__file__).parents[1] / "support" / "pipeline_histories.py"


def play(folder: Path, *arguments: str) -> dict[str, int]:
    """Random histories in a process of their own, which forks."""
    done = run_process(
        [sys.executable, SCRIPT, folder, *arguments],
        env={"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_random_histories_end_as_a_fresh_lake_would(tmp_path: Path) -> None:
    told = play(tmp_path, "1", "6")
    assert told["histories"] == 6
    assert told["kills"] > 3


@pytest.mark.faults
@pytest.mark.spark
def test_a_random_history_on_spark(tmp_path: Path) -> None:
    assert play(tmp_path, "115", "1", "local[2]")["histories"] == 1


def test_a_corrected_snapshot_is_in_the_declared_states_and_later_ones_leave_them_alone(tmp_path: Path) -> None:
    declared = 'key = "id"'
    states = '[[tables.t.state]]\npath = "day2.csv"\nformat = "csv"\nas_of = "2026-03-02"\n'
    days = {"d1": "id,v 1,a", "d2": "id,v 1,a 2,b", "d3": "id,v 1,a 2,b"}

    def again(**days: str) -> dict[str, str]:
        file = write(tmp_path, declared, **days)
        file.write_text(file.read_text() + states)
        return results(run(file))

    again(**days)
    assert set(again(**days).values()) == {"kept"}
    again(**{**days, "d2": "id,v 1,CORRECTED 2,b"})
    assert (tmp_path / "day2.csv").read_text().splitlines()[1] == "1,1,CORRECTED"
    fates = again(**{**days, "d2": "id,v 1,CORRECTED 2,b", "d4": "id,v 1,z"})
    assert fates["t/2026-03-04/deltas"] == fates["t/lake/compact"] == "done"
    assert fates["t/lake/state-1"] == "kept"
    fates = again(**{**days, "d2": "id,v 1,CORRECTED 2,b", "d4": "id,v 1,z", "d5": "id,v 1,z"})
    assert fates["t/2026-03-05/deltas"] == "done"
    assert fates["t/lake/compact"] == fates["t/lake/state-1"] == "kept"


def test_an_empty_table_is_compacted_once(tmp_path: Path) -> None:
    file = write(tmp_path, d1="id,v", d2="id,v")
    assert results(run(file))["t/lake/compact"] == "done"
    assert set(results(run(file)).values()) == {"kept"}


def write(folder: Path, declared: str = 'key = "id"', **days: str) -> Path:
    """A pipeline over the given days, `d1="id,name 1,old"`; other days go."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    for path in data.iterdir():
        path.unlink()
    for day, rows in days.items():
        (data / f"t-2026-03-0{day[1]}.csv").write_text("\n".join(rows.split()) + "\n")
    file = folder / "p.toml"
    file.write_text(
        '[pipeline]\nname = "p"\n[lake]\npath = "lake"\n[tables.t]\nsnapshots = "data/t-{date}.csv"\n'
        f"{declared}\ndeltas = true\ncompact = true\n"
    )
    return file


def names(folder: Path, day: str | None = None) -> dict[str, str]:
    return {row_id: row["name"] for row_id, row in lake_rows(folder, "t", day).items()}


def test_a_deleted_middle_snapshot_leaves_the_days_behind_it_as_they_are(tmp_path: Path) -> None:
    one, two = "id,name 1,old 2,b", "id,name 1,new 2,b 3,guest"
    assert run(write(tmp_path, d1=one, d2=two, d3=one)).exit_code == 0
    assert run(write(tmp_path, d1=one, d3=one)).exit_code == 0
    assert names(tmp_path) == names(tmp_path, "2026-03-03") == {"1": "old", "2": "b"}
    assert names(tmp_path, "2026-03-02") == {"1": "new", "2": "b", "3": "guest"}
    assert verify(Lake(tmp_path / "lake"), "t").is_proved


def test_a_late_and_a_withdrawn_snapshot(tmp_path: Path) -> None:
    run(write(tmp_path, d1="id,name 1,a", d3="id,name 1,c"))
    run(write(tmp_path, d1="id,name 1,a", d2="id,name 1,b 2,x", d3="id,name 1,c"))
    assert names(tmp_path, "2026-03-02") == {"1": "b", "2": "x"}
    assert names(tmp_path) == {"1": "c"}
    run(write(tmp_path, d1="id,name 1,a", d2="id,name 1,b 2,x"))
    assert names(tmp_path) == {"1": "b", "2": "x"}, "the newest snapshot was taken back"
    last = run(write(tmp_path, d1="id,name 1,a", d2="id,name 1,b 2,x"))
    assert set(results(last).values()) == {"kept"}


def test_a_changed_key_leaves_no_row_under_its_old_id(tmp_path: Path) -> None:
    days = {"d1": "id,name 1,a 2,b", "d2": "id,name 1,a 2,c"}
    run(write(tmp_path, **days))
    assert run(write(tmp_path, 'key = ["id", "name"]', **days)).exit_code == 0
    assert sorted(names(tmp_path)) == ['["1","a"]', '["2","c"]']


def test_a_changed_type_stops_until_a_full_refresh(tmp_path: Path) -> None:
    days = {"d1": "id,name 1,1 2,2", "d2": "id,name 1,1 2,3"}
    run(write(tmp_path, **days))
    typed = 'key = "id"\ncolumns = { name = "number" }'
    stopped = run(write(tmp_path, typed, **days))
    assert stopped.exit_code == 2
    assert "type_changed: table t: column 'name' is a string in the lake and a number now" in stopped.stages[1].problem
    assert "--full-refresh" in stopped.stages[1].problem
    assert names(tmp_path) == {"1": "1", "2": "3"}, "nothing was touched"
    assert run(write(tmp_path, typed, **days), full_refresh=True).exit_code == 0
    assert names(tmp_path) == {"1": 1, "2": 3}
    assert names(tmp_path, "2026-03-01") == {"1": 1, "2": 2}
    lake = Lake(tmp_path / "lake")
    assert verify(lake, "t").is_proved
    vacuum(lake, "t", hours=0)
    assert sorted(last_versions(lake, "t")) == [1, 2]
    materialize(lake, "t", tmp_path / "old.csv", format="csv", generation=1)
    assert (tmp_path / "old.csv").read_text() == "_row_id,id,name\n1,1,1\n2,2,3\n"


def test_a_table_that_somebody_else_fills_is_left_alone(tmp_path: Path) -> None:
    from driftline.lake._load.load import extract_snapshots

    (tmp_path / "a.csv").write_text("id,name\n1,mine\n")
    (tmp_path / "empty.csv").write_text("id,name\n")
    given = {"key": ["id"], "table": "t", "client_id": "me"}
    extract_snapshots(Lake(tmp_path / "lake"), tmp_path / "empty.csv", tmp_path / "a.csv", **given)
    record = run(write(tmp_path, d1="id,name 1,x", d2="id,name 1,y"))
    assert record.exit_code == 2
    assert "unknown_lake: the lake's table t holds deltas that p did not load (by extract)" in record.stages[1].problem
    assert names(tmp_path) == {"1": "mine"}


def test_the_state_directory_may_be_lost_and_the_lake_restored(tmp_path: Path) -> None:
    import shutil

    file = write(tmp_path, d1="id,name 1,a 2,b", d2="id,name 1,a 2,c")
    run(file)
    shutil.copytree(tmp_path / "lake", tmp_path / "backup")
    shutil.rmtree(tmp_path / ".driftline")
    record = run(file)
    assert [stage.counts["deltas"] for stage in record.stages if stage.stage.endswith("/deltas")] == [0, 0]
    run(write(tmp_path, d1="id,name 1,a 2,b", d2="id,name 1,a 2,c", d3="id,name 2,d"))
    shutil.rmtree(tmp_path / "lake")
    (tmp_path / "backup").rename(tmp_path / "lake")
    run(tmp_path / "p.toml")
    assert names(tmp_path) == {"2": "d"}


def test_midnight_still_belongs_to_the_day_before(tmp_path: Path) -> None:
    from driftline.lake._read.state import state_rows
    from driftline.lake._store.lake import parse_timestamp

    run(write(tmp_path, d1="id,name 1,a", d2="id,name 1,b"))
    rows = dict(state_rows(Lake(tmp_path / "lake"), "t", as_of=parse_timestamp("2026-03-02T00:00:00Z")))
    assert rows["1"]["name"] == "a"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"id":"1","x":"a"}\n\n{"id":"2","x":"b"}\n', '{"id":"1","x":"a"}\n'),
        ('{"id":"1"}\n{"id":"2","x":"b"}\n', '{"x":"c","id":"3"}\n'),
    ],
)
def test_json_lines_load_as_they_diff(tmp_path: Path, first: str, second: str) -> None:
    file = write(tmp_path, d1="id 1", d2="id 1")
    for path in (tmp_path / "data").iterdir():
        path.unlink()
    (tmp_path / "data/t-2026-03-01.jsonl").write_text(first)
    (tmp_path / "data/t-2026-03-02.jsonl").write_text(second)
    file.write_text(
        file.read_text().replace(".csv", ".jsonl").replace('key = "id"', 'key = "id"\nheader_mode = "sorted"')
    )
    record = run(file)
    assert record.exit_code == 0, [stage.problem for stage in record.stages]
    assert lake_rows(tmp_path, "t") == {row["id"]: row for row in map(json.loads, second.splitlines())}
