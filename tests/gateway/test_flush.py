"""Flush to the lake: by size, by age and on demand, exactly once whatever fails on the way."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import driftline.lake._store.flush as lake_flushing
from driftline.deltas import RowDelta, TableSchema
from driftline.errors import LakeError
from driftline.gateway._lake.flush import Flusher, LakeTie, import_foreign
from driftline.gateway._log.sqlite import SqliteLog
from driftline.gateway._sync.push import parse_push, stored_delta
from driftline.lake import Lake
from driftline.lake._flush_target import FlushTarget
from driftline.lake._store.delta import _StoredDelta
from driftline.lake._store.envelopes import envelope_paths, read_envelope
from driftline.lake._store.tables import load
from support.gateways import GATEWAY, SECRET, SOURCE, Server, delta, running
from support.processes import run_process, wait_until

SCHEMA = TableSchema(table="todos", columns=[{"name": "n", "type": "number"}])


class Setting:
    """A log, a lake and the flusher between them."""

    def __init__(self, path: Path) -> None:
        self.log = SqliteLog(path / "log.sqlite")
        self.lake = Lake(str(path / "lake"))
        self.store = FlushTarget(str(path / "lake"))
        self.flusher = self.restarted()

    def restarted(self) -> Flusher:
        """The flusher of a process that starts."""
        return Flusher(LakeTie(self.log, self.store, GATEWAY, secrets.token_hex(4)))

    def push(self, *deltas: dict[str, Any]) -> None:
        body = json.dumps({"clientId": "alice", "deltas": deltas}).encode()
        self.log.append([parse_push(body).entries])

    def parquet(self) -> list[str]:
        return polars.read_delta(self.lake.part("todos", "deltas"))["_row_id"].to_list()

    def enveloped(self, table: str = "todos") -> list[str]:
        names = envelope_paths(self.lake, table)
        return [each.row_id for name in names for each in read_envelope(self.lake, table, name).deltas]


@pytest.fixture
def setting(tmp_path: Path) -> Any:
    made = Setting(tmp_path)
    yield made
    made.log.close()


def rows(first: int, count: int, **columns: Any) -> list[dict[str, Any]]:
    return [delta(row=str(number), **(columns or {"n": number})) for number in range(first, first + count)]


def test_tables_with_a_schema_become_parquet_and_others_envelopes(setting: Setting) -> None:
    setting.store.register(SCHEMA)
    setting.push(*rows(0, 3), delta(table="free", row="f", anything=[1]))
    report = setting.flusher.flush()
    assert report.tables == {"todos": 3, "free": 1}
    assert sorted(setting.parquet()) == ["0", "1", "2"]
    assert setting.enveloped("free") == ["f"]
    assert setting.flusher.flush().deltas == 0
    assert [stored_delta(record.body).row_id for record in setting.log.read(0, 10)] == ["0", "1", "2", "f"]


@pytest.mark.parametrize("stage", ["before files", "between file and commit", "after commit", "between tables"])
def test_a_failure_at_any_stage_neither_loses_nor_doubles(
    setting: Setting, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting.store.register(SCHEMA)
    setting.push(*rows(0, 5), delta(table="free", row="f"))
    break_once(setting, stage, monkeypatch)
    with pytest.raises(LakeError, match="power"):
        setting.flusher.flush()
    monkeypatch.undo()
    setting.push(*rows(5, 5))  # what arrives in between is of the next range
    setting.restarted().flush()
    assert sorted(setting.parquet(), key=int) == [str(number) for number in range(10)]
    assert setting.enveloped("free") == ["f"]


def break_once(setting: Setting, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise LakeError("the power went")

    if stage == "before files":
        monkeypatch.setattr(lake_flushing, "write_file", fail)
    elif stage == "between file and commit":
        monkeypatch.setattr(_StoredDelta, "append", fail)
    elif stage == "after commit":
        advance = setting.log.advance
        monkeypatch.setattr(setting.log, "advance", lambda **least: fail() if "flushed" in least else advance(**least))
    else:
        monkeypatch.setattr(setting.store, "append", _only_first(setting.store.append, fail))


def _only_first(real: Any, fail: Any) -> Any:
    calls: list[str] = []

    def append(table: str, deltas: Sequence[RowDelta], log_range: Any) -> Any:
        if calls:
            fail()
        calls.append(table)
        return real(table, deltas, log_range)

    return append


def test_deltas_from_before_the_schema_wait_in_an_envelope(setting: Setting) -> None:
    setting.push(*rows(0, 2, other="text"), *rows(2, 2))
    setting.store.register(SCHEMA)
    setting.push(*rows(4, 2))
    setting.flusher.flush()
    assert sorted(setting.parquet()) == ["2", "3", "4", "5"]
    assert setting.enveloped() == ["0", "1"]
    with setting.log.writing() as session:  # as if the process had died before noting it
        session.set(flushed=0)
    setting.flusher.flush()
    assert sorted(setting.parquet()) == ["2", "3", "4", "5"]
    assert setting.enveloped() == ["0", "1"]


def test_large_tails_go_in_several_ranges(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.gateway._lake.flush.MAX_RANGE", 7)
    setting.store.register(SCHEMA)
    setting.push(*rows(0, 25))
    assert setting.flusher.flush().deltas == 25
    assert sorted(setting.parquet(), key=int) == [str(number) for number in range(25)]
    assert setting.log.head().flushed == 25


@pytest.mark.parametrize("option", [("--flush-seconds", "0.1"), ("--flush-mb", "0.001")])
def test_the_server_flushes_by_age_and_by_size(tmp_path: Path, option: tuple[str, str]) -> None:
    with running(tmp_path, *option) as server:
        client = server.client()
        client.push(*rows(0, 20))
        wait_until(lambda: "driftline_log_flushed_sequence 20\n" in client.http.get("/metrics").text)
        assert envelope_paths(Lake(str(tmp_path / "lake")), "todos")
        assert len(client.pull_all()[0]) == 20  # flushed deltas are still served
        assert client.push(*rows(0, 1)).json()["accepted"] == 1


def test_a_lake_in_trouble_does_not_stop_pushes(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file where a directory should be")
    with running(tmp_path, "--flush-seconds", "0.1") as server:
        client = server.client()
        assert client.push(*rows(0, 3)).status_code == 200
        answer = server.client(role="admin").admin("flush")
        assert (answer.status_code, answer.json()["code"]) == (503, "BACKPRESSURE_ERROR")
        assert client.push(*rows(3, 3)).status_code == 200
        assert len(client.pull_all()[0]) == 6


@pytest.mark.parametrize(("options", "is_compacted"), [(("--compact-deltas", "5"), True), (("--no-compact",), False)])
def test_the_server_compacts_what_has_gathered(tmp_path: Path, options: tuple[str, ...], is_compacted: bool) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with running(tmp_path, "--flush-seconds", "3600", *options) as server:
        client, admin = server.client(), server.client(role="admin")
        assert admin.admin("schema", SCHEMA.to_wire()).status_code == 200
        client.push(*rows(0, 6))
        assert admin.admin("flush").status_code == 200
        if not is_compacted:
            server.stop()
            assert load(lake, "todos", "state") is None
            return
        wait_until(lambda: "driftline_compactions_total 1\n" in client.http.get("/metrics").text)
        assert polars.read_delta(lake.part("todos", "state"))["n"].sort().to_list() == [0, 1, 2, 3, 4, 5]
        assert server.stop() == 0


def test_the_server_keeps_a_change_data_feed_on_request_and_warns_when_it_begins(tmp_path: Path) -> None:
    state = Lake(str(tmp_path / "lake")).part("todos", "state")
    quick = ("--flush-seconds", "3600", "--compact-deltas", "1")
    begins = "tables/todos/state: the change data feed is on after version 0"

    def write(server: Server, *deltas: dict[str, Any]) -> None:
        admin = server.client(role="admin")
        assert admin.admin("schema", SCHEMA.to_wire()).status_code == 200
        assert server.client().push(*deltas).status_code == 200
        assert admin.admin("flush").status_code == 200
        wait_until(lambda: any(line["event"] == "compacted" for line in server.lines))
        assert server.stop() == 0

    def warnings(server: Server) -> list[str]:
        return [line["event"] for line in server.lines if line["level"] == "warning"]

    with running(tmp_path, *quick) as server:
        write(server, *rows(0, 3))
        assert warnings(server) == []
    with running(tmp_path, *quick, "--state-feed") as server:
        write(server, delta(row="1", n=100))
        assert warnings(server) == [begins]
    with running(tmp_path, *quick) as server:  # the table remembers it
        write(server, delta(row="2", op="DELETE"))
        assert warnings(server) == []
    feed = pa.table(DeltaTable(state).load_cdf(starting_version=1)).to_pylist()
    found = [(row["_change_type"], row["_row_id"], row["n"]) for row in feed]
    assert sorted(found) == [
        ("delete", "2", 2.0),
        ("update_postimage", "1", 100.0),
        ("update_preimage", "1", 1.0),
    ]


def test_a_change_data_feed_needs_compaction(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "driftline", "serve", "--gateway", GATEWAY, "--data", str(tmp_path / "data")]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "DRIFTLINE_JWT_SECRET": SECRET}
    for option in ("--state-feed", "--no-state-feed"):
        refused = run_process([*command, "--no-compact", option], env=environment, capture_output=True, text=True)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "with --no-compact the state is made by `lake compact`: give --state-feed there" in refused.stderr
        assert not (tmp_path / "data").exists()


def test_a_range_that_the_lake_knew_whole_is_no_lake_set_back(setting: Setting) -> None:
    setting.push(*rows(0, 2))
    setting.flusher.flush()
    setting.log.renew_identity()
    setting.log.flush_again(0)
    setting.restarted().flush()  # everything is known, and without a schema nothing is written
    assert setting.restarted().look().notices == []
    assert setting.log.head().flushed == 2


@pytest.mark.parametrize("has_schema", [True, False], ids=["Parquet", "envelopes"])
def test_what_a_copy_of_the_log_flushed_is_imported_after_the_log_took_a_new_id(
    setting: Setting, tmp_path: Path, has_schema: bool
) -> None:
    """Under the id that both have, files of the copy look like the log's own: they are not taken as inspected."""
    if has_schema:
        setting.store.register(SCHEMA)
    setting.push(*rows(0, 3))
    setting.flusher.flush()
    setting.log.close()
    (tmp_path / "copy").mkdir()
    for path in tmp_path.glob("log.sqlite*"):
        shutil.copy(path, tmp_path / "copy")
    copy, original = Setting(tmp_path / "copy"), Setting(tmp_path)
    copy.store = FlushTarget(str(tmp_path / "lake"))
    original.push(*rows(10, 2))
    original.flusher.flush()
    assert import_foreign(copy.log, copy.store) == (0, [], False)
    copy.push(*rows(20, 1))
    copy.restarted().flush()
    assert import_foreign(copy.log, copy.store) == (2, [], True)
    assert {stored_delta(each.body).row_id for each in copy.log.read(0, 99)} == {"0", "1", "2", "10", "11", "20"}
    for each in (copy, original):
        each.log.close()
