"""The guide's recipes for backup and restore, taken from the guide and run while a gateway is written to."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from driftline.client import Store
from driftline.deltas import TableSchema
from driftline.lake import Lake, compact, register, verify
from driftline.lake._read.state import all_deltas
from support.crash_world import replayed
from support.gateways import GATEWAY, Server, delta, running, token
from support.postgres import running_postgres
from support.processes import PATIENCE, run_process

pytestmark = pytest.mark.kills

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "gateway.md"
SCHEMA = {"table": "todos", "columns": [{"name": "n", "type": "number"}]}
BUSY = ("--rate-limit", "0", "--flush-seconds", "0.2", "--compact-seconds", "0.3")


def recipe(name: str) -> str:
    found = re.search(rf"```sh {name}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, name
    return found.group(1)


def follow_recipe(name: str, folder: Path, **variables: str) -> None:
    command = ["sh", "-e", "-c", recipe(name)]
    done = run_process(
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


class Writer(threading.Thread):
    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.acknowledged: list[dict[str, object]] = []
        self.ended = threading.Event()

    def run(self) -> None:
        client = self.server.client("w")
        while not self.ended.wait(0.02):
            batch = [delta("w", str(len(self.acknowledged) % 40), n=len(self.acknowledged))]
            assert client.push(*batch).status_code == 200
            self.acknowledged += batch


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_a_backup_that_was_made_under_way_is_restored(store: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        variables, options, restored_options = {}, BUSY, BUSY
        if store == "postgresql":
            pytest.importorskip("psycopg", reason="needs psycopg, of the extra postgresql")
            old, new = (stack.enter_context(running_postgres()) for _ in range(2))
            variables = {"DATABASE": old.address, "NEW_DATABASE": new.address}
            options, restored_options = (*BUSY, "--log", old.address), (*BUSY, "--log", new.address)
        register(Lake(str(tmp_path / "gateway" / "lake")), TableSchema.from_wire(SCHEMA))
        with running(tmp_path / "gateway", *options) as server:
            writer = Writer(server)
            writer.start()
            wait_for_lake(tmp_path / "gateway" / "lake")
            before = list(writer.acknowledged)
            follow_recipe(f"backup-{store}", tmp_path, **variables)
            with contextlib.closing(opened(tmp_path, server)) as client:
                client.put("todos", "mine", {"n": 1})
                client.sync()
            writer.ended.set()
            writer.join()
            server.kill()
        follow_recipe(f"restore-{store}", tmp_path, **variables)
        judge(tmp_path, before, restored_options)


def judge(folder: Path, before: list[dict[str, object]], options: tuple[str, ...]) -> None:
    """What was acknowledged before the backup is there once, and old clients go on with the rest."""
    with running(folder / "restored", *options) as server:
        again = opened(folder, server)
        again.put("todos", "later", {"n": 2})
        assert again.sync().from_snapshot  # its cursor is of a log that went on further
        admin = server.client("judge", role="admin")
        assert admin.admin("flush").status_code == 200
        log = admin.pull_all(limit=10_000)[0]
        assert Counter(each["deltaId"] for each in log).most_common(1)[0][1] == 1
        assert {each["deltaId"] for each in before} <= {each["deltaId"] for each in log}
        again.sync()
        assert again.rows("todos") == replayed(log, "todos")
        assert "later" in again.rows("todos")
        again.close()
        assert server.stop() == 0
    lake = Lake(str(folder / "restored" / "lake"))
    assert Counter(each.delta_id for each in all_deltas(lake, "todos")) == Counter(each["deltaId"] for each in log)
    compact(lake, "todos")
    assert verify(lake, "todos").is_proved


def opened(folder: Path, server: Server) -> Store:
    return Store(folder / "client.db", "me", url=server.url, gateway=GATEWAY, token=token("me"))


def wait_for_lake(lake: Path) -> None:
    """Until something is in the lake and something is folded."""
    deadline = time.monotonic() + PATIENCE
    while not list(lake.glob("tables/todos/state/_delta_log/*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
