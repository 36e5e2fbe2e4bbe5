"""Everything that runs around a gateway at once, and is under way when its servers are killed.

Writers push, listeners read the feed, one store works offline and syncs now and then, another one follows.
Flushes and compactions are as frequent as the servers let them be.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import polars

from driftline.client import Follower, Store
from driftline.deltas import TableSchema
from driftline.errors import GatewayError
from driftline.lake import Lake, compact, register, verify
from driftline.lake._read.state import all_deltas, state_rows
from support.gateways import GATEWAY, Client, Server, delta, token
from support.processes import PATIENCE, wait_until

TABLES = ("todos", "free")
ROWS = 30
# Servers with this much to do are never without a flush and a compaction under way.
BUSY = (
    *("--rate-limit", "0", "--per-address", "0"),
    *("--flush-seconds", "0.2", "--compact-seconds", "0.2", "--compact-deltas", "50"),
)
SCHEMA = {"table": "todos", "columns": [{"name": "n", "type": "number"}, {"name": "who", "type": "string"}]}

Wire = dict[str, Any]
Rows = dict[str, dict[str, Any]]


class Part(threading.Thread):
    """Something that goes on until it is told to end; what it dies of is kept."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(name=name, daemon=True)
        self.client_id = name
        self.url = url
        self.dice = random.Random(name)
        self.ended = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ended.is_set():
                self.step()
        except Exception as error:  # noqa: BLE001 - told by whoever ends it
            self.failure = error

    def step(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.ended.set()
        self.join(PATIENCE)
        assert not self.is_alive(), f"{self.name} does not end"
        assert self.failure is None, f"{self.name}: {self.failure!r}"


class Writer(Part):
    """Pushes batches; one that got no answer is pushed again."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(name, url)
        self.acknowledged: list[Wire] = []

    def step(self) -> None:
        batch = [self._change() for _ in range(20)]
        while not self._is_pushed(batch) and not self.ended.is_set():
            time.sleep(0.02)
        time.sleep(0.05)  # kills are to find everything under way, not everything waiting for the machine

    def _change(self) -> Wire:
        row, table = str(self.dice.randrange(ROWS)), self.dice.choice(TABLES)
        if self.dice.random() < 0.2:
            return delta(self.client_id, row, "DELETE", table=table)
        return delta(self.client_id, row, table=table, n=self.dice.randrange(1000), who=self.client_id)

    def _is_pushed(self, batch: list[Wire]) -> bool:
        client = Client(self.url, self.client_id)
        try:
            with client.http:
                answer = client.push(*batch)
        except httpx.HTTPError:
            return False
        # A server may be busy, or its database gone with another one; it never refuses these for good.
        assert answer.status_code in (200, 503), answer.text
        self.acknowledged += batch if answer.status_code == 200 else []
        return answer.status_code == 200


class Listener(Part):
    """Reads the feed and goes on behind the last whole event, wherever the line broke."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(name, url)
        self.heard: list[str] = []
        self.last = ""

    def step(self) -> None:
        position = {"Last-Event-ID": self.last} if self.last else {}
        query = {} if self.last else {"since": "0"}
        headers = {"Authorization": f"Bearer {token(self.client_id)}", **position}
        address = f"{self.url}/sync/{GATEWAY}/feed"
        with suppress(httpx.HTTPError), httpx.stream("GET", address, params=query, headers=headers) as answer:
            if answer.status_code != 503:
                assert answer.status_code == 200, answer.read()
                self._read(answer.iter_lines())
        time.sleep(0.02)

    def _read(self, lines: Iterable[str]) -> None:
        fields: dict[str, str] = {}
        for line in lines:
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
                continue
            assert fields.get("event") != "refetch", fields
            if fields.get("event") == "deltas":
                self.heard += [each["deltaId"] for each in json.loads(fields["data"])["deltas"]]
            self.last = fields.get("id", self.last)
            fields = {}
            if self.ended.is_set():
                return


class Application(Part):
    """A store that is written to whether the gateway can be reached or not."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        super().__init__(name, url)
        self.path = folder / f"{name}.db"
        self.store = self.opened()

    def opened(self) -> Store:
        return Store(self.path, self.client_id, url=self.url, gateway=GATEWAY, token=lambda: token(self.client_id))

    def step(self) -> None:
        table, row = self.dice.choice(TABLES), str(self.dice.randrange(ROWS))
        if self.dice.random() < 0.2:
            self.store.delete(table, row)
        else:
            self.store.put(table, row, {"n": self.dice.randrange(1000), "who": self.client_id})
        time.sleep(0.01)


class Offline(Application):
    """Syncs now and then; at times the application ends and is started again."""

    def step(self) -> None:
        super().step()
        chance = self.dice.random()
        if chance < 0.05:
            with suppress(GatewayError):
                self.store.sync()
        elif chance < 0.06:
            self.store.close()
            self.store = self.opened()


class Following(Application):
    """Follows the gateway all the time."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        super().__init__(name, url, folder)
        self.follower: Follower = self.store.follow()
        self.reader = threading.Thread(target=self._follow, daemon=True)
        self.reader.start()

    def _follow(self) -> None:
        try:
            for _ in self.follower:
                pass
        except Exception as error:  # noqa: BLE001 - told by whoever ends it
            self.failure = error


class World:
    """Servers of one gateway, everything that talks to them, and the judgement at the end."""

    def __init__(self, folder: Path, servers: int, *options: str) -> None:
        self.folder = folder
        self.lake = Lake(str(folder / "lake"))
        # A schema at the gateway would refuse `free`; as only the lake knows it, both kinds of flush are under fire.
        register(self.lake, TableSchema.from_wire(SCHEMA))
        self.commands = [
            (folder / str(number), *BUSY, "--lake", str(folder / "lake"), "--port", str(free_port()), *options)
            for number in range(servers)
        ]
        self.lines: list[dict[str, Any]] = []
        self.servers = [Server(*command) for command in self.commands]
        first, last = self.servers[0].url, self.servers[-1].url
        self.writers = [Writer("alice", first), Writer("bob", last)]
        self.listeners = [Listener("ear-1", first), Listener("ear-2", last)]
        self.applications = [Offline("phone", last, folder), Following("desk", first, folder)]
        self.parts: list[Part] = [*self.writers, *self.listeners, *self.applications]
        for part in self.parts:
            part.start()

    def kill_one(self, dice: random.Random) -> None:
        """Kill a server without a word, and start it again a little later."""
        time.sleep(dice.uniform(0.05, 0.8))
        number = dice.randrange(len(self.servers))
        self.servers[number].kill()
        self.lines += self.servers[number].lines
        time.sleep(dice.uniform(0, 0.3))
        self.servers[number] = Server(*self.commands[number])

    def wait_for_compactions(self, count: int) -> None:
        """Kills may have come before every compaction's end: some must have come to theirs while all goes on."""
        wait_until(lambda: sum(each["event"] == "compacted" for each in self.all_lines()) >= count, "compactions")

    def all_lines(self) -> list[dict[str, Any]]:
        return [*self.lines, *(line for server in self.servers for line in list(server.lines))]

    def put_down(self) -> None:
        for part in self.parts:
            part.ended.set()
        for server in self.servers:
            if server.process.poll() is None:
                server.kill()

    def settle(self) -> list[Wire]:
        """End the writing, let everybody catch up, stop the servers; what the log holds."""
        for part in (*self.writers, *self.applications):
            part.end()
        phone, desk = self.applications
        phone.store.sync()
        wait_until(lambda: desk.store.pending == 0, "the follower's writes are sent")
        log, _ = self.servers[0].client("judge", role="admin").pull_all(limit=10_000)
        phone.store.sync()
        wait_until(lambda: all(len(each.heard) >= len(log) for each in self.listeners), "the feed is read")
        wait_until(lambda: desk.store.rows("todos") == replayed(log, "todos"), "the follower has caught up")
        fresh = Store(self.folder / "new.db", "new", url=self.servers[-1].url, gateway=GATEWAY, token=token("new"))
        assert fresh.sync().from_snapshot
        self.stores = [phone.store, desk.store, fresh]
        self.flush()
        self.end()
        return log

    def flush(self) -> None:
        answer = self.servers[-1].client(role="admin").admin("flush")
        assert answer.status_code == 200, answer.text

    def end(self) -> None:
        assert isinstance(self.applications[1], Following)
        self.applications[1].follower.stop()
        for part in self.listeners:
            part.ended.set()
        for server in self.servers:
            assert server.stop(30) == 0
            self.lines += server.lines
        for part in self.listeners:
            part.end()
        self.applications[1].reader.join(PATIENCE)
        assert self.applications[1].failure is None

    def judge(self, log: list[Wire]) -> None:
        """Nothing lost, nothing doubled, and one state everywhere."""
        ids = [each["deltaId"] for each in log]
        assert max(Counter(ids).values()) == 1
        acknowledged = [each["deltaId"] for writer in self.writers for each in writer.acknowledged]
        assert len(acknowledged) > 200
        assert set(acknowledged) <= set(ids)
        assert {each["clientId"] for each in log} >= {"alice", "bob", "phone", "desk"}
        for listener in self.listeners:
            assert listener.heard == ids
        for store in self.stores:
            assert (store.pending, store.rejected()) == (0, [])
            assert {table: store.rows(table) for table in TABLES} == {each: replayed(log, each) for each in TABLES}
        self.judge_lake(log)

    def judge_lake(self, log: list[Wire]) -> None:
        held = [each.delta_id for table in TABLES for each in all_deltas(self.lake, table)]
        assert Counter(held) == Counter(each["deltaId"] for each in log)
        compact(self.lake, "todos")
        verify(self.lake, "todos")
        expected = replayed(log, "todos")
        assert dict(state_rows(self.lake, "todos")) == expected
        rows = polars.read_delta(self.lake.part("todos", "state")).sort("_row_id").to_dicts()
        plain = {row["_row_id"]: {name: row[name] for name in ("n", "who")} for row in rows}
        assert plain == {row: {"n": None, "who": None, **columns} for row, columns in expected.items()}


def replayed(log: Iterable[Wire], table: str) -> Rows:
    """The rows of a table by the bare rule (deltas and lake §2)."""

    def order(each: Wire) -> tuple[int, bytes, str, bool]:
        return int(each["hlc"]), each["clientId"].encode("utf-16-be"), each["deltaId"], each["op"] == "DELETE"

    rows: Rows = {}
    for each in sorted((each for each in log if each["table"] == table), key=order):
        if each["op"] == "DELETE":
            rows.pop(each["rowId"], None)
        else:
            rows.setdefault(each["rowId"], {}).update({entry["column"]: entry["value"] for entry in each["columns"]})
    return dict(sorted(rows.items()))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
