"""What ties a log to a lake, with real gateways: logs and lakes that were restored, replaced, copied or made by 0.1."""

from __future__ import annotations

import json
import shutil
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driftline.deltas import TableSchema
from driftline.deltas._deltas import make_hlc, physical_ms
from driftline.lake import Lake, compact, register, set_horizon, verify
from driftline.lake._flush_target import FlushTarget
from driftline.lake._read.state import all_deltas, state_rows
from driftline.lake._store.flush import count_set_aside, count_waiting
from support.gateways import GATEWAY, SECRET, SOURCE, Server, delta, running
from support.processes import run_process

pytestmark = pytest.mark.servers

SCHEMA = {"table": "todos", "columns": [{"name": "n", "type": "number"}]}
QUIET = ("--rate-limit", "0", "--flush-seconds", "3600")


class Place:
    """A data directory and a lake beside it, and the servers that run on them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lake = Lake(str(root / "lake"))
        self.options = (*QUIET, "--lake", str(root / "lake"))

    def serve(self, name: str = "data", *options: str) -> Any:
        return running(self.root / name, *self.options, *options)

    def copy(self, source: str, target: str) -> None:
        shutil.rmtree(self.root / target, ignore_errors=True)
        shutil.copytree(self.root / source, self.root / target)

    def ids(self, table: str = "todos") -> Counter[str]:
        return Counter(each.delta_id for each in all_deltas(self.lake, table))

    def refused_start(self, name: str) -> str:
        """What a server says that does not start."""
        command = [sys.executable, "-m", "driftline", "serve", "--gateway", GATEWAY, "--port", "0"]
        environment = {"PYTHONPATH": str(SOURCE), "DRIFTLINE_JWT_SECRET": SECRET, "PATH": "/usr/bin:/bin"}
        ended = run_process(
            [*command, "--data", str(self.root / name), *self.options],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 2, ended.stderr
        return ended.stderr


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    register(made.lake, TableSchema.from_wire(SCHEMA))
    return made


def rows(first: int, count: int, table: str = "todos") -> list[dict[str, Any]]:
    return [delta(row=str(number), n=number, table=table) for number in range(first, first + count)]


def push(server: Server, deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As an operator, whom rules of an earlier version do not stop; rows are merged for them first."""
    client = server.client(role="admin")
    while (answer := client.push(*deltas)).status_code == 503 and answer.json()["reason"] == "rules":
        time.sleep(0.1)
    assert answer.status_code == 200, answer.text
    return deltas


def flush(server: Server) -> dict[str, Any]:
    answer = server.client(role="admin").admin("flush")
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    return report


def log_of(server: Server) -> dict[str, Any]:
    told: dict[str, Any] = server.client(role="admin").admin("metrics", method="GET").json()
    return told


def once(*batches: list[dict[str, Any]]) -> Counter[str]:
    return Counter({each["deltaId"]: 1 for batch in batches for each in batch})


def test_an_empty_log_in_the_place_of_another_is_refused_until_the_lake_is_adopted(place: Place) -> None:
    with place.serve() as server:
        first = push(server, rows(0, 10))
        assert flush(server)["flushed"] == 10
    assert "error[other_log]" in place.refused_start("other")
    assert "--adopt-lake" in place.refused_start("other")
    with place.serve("other", "--adopt-lake") as server:
        second = push(server, [*rows(10, 5), *first[:3]])  # an empty log knows nothing of the three
        report = flush(server)
        assert (report["flushed"], report["known"]) == (5, 3)
        assert len(server.client().pull_all()[0]) == 15  # what only the lake had has been taken in
    assert place.ids() == once(first, second)
    with place.serve("other") as server:  # from now on it is this log's lake
        assert log_of(server)["log"]["was"] == []
    claim = FlushTarget(place.lake.root).claim(GATEWAY)
    assert claim is not None
    assert len(claim) == 2


def test_a_restored_log_takes_a_new_id_and_loses_and_doubles_nothing(place: Place) -> None:
    with place.serve() as server:
        first = push(server, rows(0, 10))
        flush(server)
        cursor = server.client().pull_all()[1]
        before = log_of(server)["log"]["id"]
        server.stop()
    place.copy("data", "backup")
    with place.serve() as server:
        second = push(server, rows(10, 10))
        flush(server)
        server.stop()
    place.copy("backup", "data")
    with place.serve() as server:
        third = push(server, [*rows(20, 5), *second[:4]])  # clients that got no answer push again
        report = flush(server)
        assert (report["flushed"], report["known"]) == (5, 4)
        told = log_of(server)
        assert told["log"]["was"] == [before]
        assert told["lake"]["setBack"] == 1
        assert any("the lake holds sequence 20, the log ends at 10" in str(line) for line in server.lines)
        assert server.client().pull(cursor=cursor).status_code == 410
        pulled, _ = server.client().pull_all()
        assert Counter(each["deltaId"] for each in pulled) == once(first, second, third)
        assert "driftline_set_back_total 1\n" in server.client().http.get("/metrics").text
    assert place.ids() == once(first, second, third)


def test_of_two_copies_of_a_log_the_later_one_is_followed_and_the_other_closes(place: Place) -> None:
    with place.serve() as server:
        first = push(server, rows(0, 10))
        flush(server)
        server.stop()
    place.copy("data", "copy")
    with place.serve() as one, place.serve("copy") as other:
        second = push(one, rows(10, 5))
        flush(one)
        third = push(other, rows(20, 5))
        flush(other)  # the lake is ahead of this copy: it takes a new id, and the claim
        fourth = push(one, rows(30, 5))  # not seen yet, acknowledged, and not lost
        flush(one)
        refused = one.client().push(*rows(40, 1))
        assert (refused.status_code, refused.json()["code"]) == (503, "BACKPRESSURE_ERROR")
        assert one.client().http.get("/ready").status_code == 503
        assert other.client().http.get("/ready").status_code == 200
        fifth = push(other, rows(50, 2))
        flush(other)
        assert len(other.client().pull_all()[0]) == 27
    assert place.ids() == once(first, second, third, fourth, fifth)


def test_a_lake_that_was_set_back_gets_what_it_lost(place: Place) -> None:
    with place.serve() as server:
        first = push(server, rows(0, 5))
        flush(server)
        server.stop()
    place.copy("lake", "lake-backup")
    with place.serve() as server:
        second = push(server, rows(5, 5))
        flush(server)
        server.stop()
    place.copy("lake-backup", "lake")
    with place.serve() as server:
        assert flush(server)["flushed"] == 5
        assert any("lake set back" in str(line) for line in server.lines)
    assert place.ids() == once(first, second)


def test_a_lake_that_cannot_be_reached_at_the_start_is_looked_at_later(place: Place) -> None:
    with place.serve() as server:
        first = push(server, rows(0, 5))
        flush(server)
        server.stop()
    (place.root / "lake").rename(place.root / "away")
    (place.root / "lake").write_text("a file in its place")
    with place.serve("other") as server:
        push(server, rows(5, 2))
        (place.root / "lake").unlink()
        (place.root / "away").rename(place.root / "lake")
        assert server.client(role="admin").admin("flush").status_code == 503
        assert "belongs to another log" in server.client().push(*rows(7, 1)).json()["error"]
    assert place.ids() == once(first)


@pytest.fixture
def old_data(tmp_path: Path) -> Path:
    """A data directory as version 0.1 left it when it was killed: 8 of 11 deltas flushed, rules, an envelope."""
    with zipfile.ZipFile(Path(__file__).parent / "data" / "data-directory-0.1.zip") as archive:
        archive.extractall(tmp_path / "data")
    return tmp_path / "data"


def test_a_data_directory_of_the_first_version_goes_on(old_data: Path) -> None:
    with running(old_data, *QUIET) as server:
        client = server.client()
        assert len(client.pull_all()[0]) == 11  # rules are still set
        assert client.push(delta(row="x", wrong=1)).status_code == 422  # and so is the schema
        report = flush(server)
        assert report["tables"] == {"todos": 3}
        push(server, rows(100, 2))
        assert flush(server)["flushed"] == 2
    lake = Lake(str(old_data / "lake"))
    assert sorted(Counter(each.delta_id for each in all_deltas(lake, "todos")).values()) == [1] * 10
    assert dict(state_rows(lake, "todos"))["r2"] == {"n": 20}
    assert len(list(all_deltas(lake, "notes"))) == 3


def test_a_lake_of_the_first_version_is_not_taken_by_an_empty_log(old_data: Path, tmp_path: Path) -> None:
    place = Place(tmp_path)
    shutil.move(old_data / "lake", tmp_path / "lake")
    assert "error[other_log]" in place.refused_start("new")
    with place.serve("data") as server:
        assert flush(server)["flushed"] == 3


def test_a_restored_log_of_the_first_version_is_noticed(old_data: Path, tmp_path: Path) -> None:
    place = Place(tmp_path)
    shutil.move(old_data / "lake", tmp_path / "lake")
    import apsw

    with apsw.Connection(str(old_data / "log.sqlite")) as db:  # as a backup from before the last flush has it
        db.execute("DELETE FROM log WHERE seq > 5")
        db.execute("UPDATE counters SET value = 5 WHERE name = 'last'")
        db.execute("UPDATE counters SET value = 3 WHERE name IN ('flushed', 'flushing')")
        db.execute("DELETE FROM documents WHERE name = 'rules'")  # with them, pushes wait for the import
    db.close()
    with place.serve("data") as server:
        push(server, rows(0, 2))
        report = flush(server)
        assert (report["flushed"], report["known"]) == (2, 2)
        assert any("the lake holds sequence 8, the log ends at 5" in str(line) for line in server.lines)
    assert set(place.ids().values()) == {1}
    assert len(place.ids()) == 7


def test_rows_stay_when_a_schema_comes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.serve() as server:
        push(server, [*rows(0, 2), delta(row="odd", other="text")])
        flush(server)
        assert len(list(all_deltas(place.lake, "todos"))) == 3
        assert server.client(role="admin").admin("schema", SCHEMA).status_code == 200
        push(server, rows(3, 1))
        flush(server)
        assert [row for row, _ in state_rows(place.lake, "todos")] == ["0", "1", "3"]
        assert count_waiting(place.lake, "todos") == 1
        compact(place.lake, "todos")
        proof = verify(place.lake, "todos")
        assert (proof.is_proved, proof.rows_in_base, proof.waiting) == (True, 3, 1)
        wider = {**SCHEMA, "columns": [*SCHEMA["columns"], {"name": "other", "type": "string"}]}
        assert server.client(role="admin").admin("schema", wider).status_code == 200
        assert [row for row, _ in state_rows(place.lake, "todos")] == ["0", "1", "3", "odd"]
    assert count_waiting(place.lake, "todos") == 0
    assert set(place.ids().values()) == {1}


def test_a_column_added_in_the_lake_reaches_the_gateway(place: Place) -> None:
    with place.serve() as server:
        assert server.client().push(delta(row="1", added=True)).status_code == 422
        columns = [*SCHEMA["columns"], {"name": "added", "type": "boolean"}]
        register(place.lake, TableSchema.from_wire({**SCHEMA, "columns": columns}))
        flush(server)  # renews what the gateway knows of the lake; by itself it does so every 30 s
        assert server.client().push(delta(row="1", added=True)).status_code == 200
        # Only an admin's schemas make every other table an unknown one.
        assert server.client().push(delta(row="1", table="free", x=1)).status_code == 200
        assert server.client(role="admin").admin("schema", SCHEMA).status_code == 200
        assert server.client().push(delta(row="2", table="free", x=1)).status_code == 422


def test_below_a_horizon_known_deltas_are_acknowledged_and_late_ones_set_aside(place: Place) -> None:
    with place.serve() as server:
        early = push(server, rows(0, 3))
        flush(server)
        late = push(server, [delta(row="late", n=1)])  # taken before the gateway hears of the horizon
        set_horizon(place.lake, "todos", make_hlc(physical_ms()))
        report = flush(server)
        assert (report["flushed"], report["setAside"]) == (0, 1)
        assert "driftline_set_aside_deltas_total 1\n" in server.client().http.get("/metrics").text
        assert server.client().push(*early, *late).status_code == 200
        refused = server.client().push(delta(row="4", hlc=int(early[0]["hlc"]) - 1, n=1))
        assert (refused.status_code, refused.json()["code"]) == (409, "TOO_OLD")
    assert count_set_aside(place.lake, "todos") == 1
    assert "late" not in dict(state_rows(place.lake, "todos"))


def test_what_others_bring_to_the_lake_reaches_clients_and_is_not_flushed_back(place: Place, tmp_path: Path) -> None:
    from driftline.lake import flush as lake_flush
    from support.lakes import delta as made

    with place.serve() as server:
        push(server, rows(0, 2))
        flush(server)
        lake_flush(place.lake, "todos", [made("INSERT", "x", 5, n=7)], gateway_id="elsewhere", sequence=1)
        assert flush(server)["flushed"] == 0
        pulled = server.client().pull_all()[0]
        assert [each["rowId"] for each in pulled] == ["0", "1", "x"]
        assert flush(server) == {"flushed": 0, "tables": {}}
    assert set(place.ids().values()) == {1}


Cli = Callable[..., tuple[int, str]]


def test_what_was_pulled_can_be_flushed_into_the_gateways_own_lake(place: Place) -> None:
    with place.serve() as server:
        push(server, rows(0, 4))
        flush(server)
        push(server, rows(4, 2))  # in the log only
        lines = "\n".join(json.dumps(each) for each in server.client().pull_all()[0])
        command = [sys.executable, "-m", "driftline", "lake", "flush", "-", "--gateway", GATEWAY]
        ended = run_process(
            [*command, "--lake", place.lake.root],
            input=lines,
            env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        told = json.loads(ended.stdout)
        assert (told["deltas"], told["known"]) == (2, 4)
        assert flush(server)["known"] == 2
    assert set(place.ids().values()) == {1}
    assert len(place.ids()) == 6


def test_hlc_0_is_refused(place: Place) -> None:
    with place.serve() as server:
        answer = server.client().push(delta(hlc=0, n=1))
        assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
        assert "hlc" in answer.json()["error"]
        assert server.client().pull(since="0").status_code == 200
