"""Kills after every durable step between a log and a lake: a step takes effect, then the process is gone."""

from __future__ import annotations

import json
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from deltalake.table import TableAlterer

import driftline.lake._store.envelopes as envelopes
from driftline.deltas import TableSchema
from driftline.gateway._lake.flush import Flusher, LakeTie
from driftline.gateway._log.sqlite import SqliteLog
from driftline.gateway._sync.push import parse_push
from driftline.lake import Lake
from driftline.lake._flush_target import FlushTarget
from driftline.lake._read.state import all_deltas
from driftline.lake._store.delta import DeltaStore, _StoredDelta
from support.gateways import GATEWAY, delta

# Everything that leaves something behind for the next process: (where it is called from, its name).
DURABLE: tuple[tuple[Any, str], ...] = (
    (_StoredDelta, "append"),
    (DeltaStore, "create"),
    (envelopes, "_create"),
    (TableAlterer, "add_columns"),
    (TableAlterer, "set_table_properties"),
    (SqliteLog, "advance"),
    (SqliteLog, "renew_identity"),
    (SqliteLog, "change_document"),
)
SCHEMAS = [TableSchema("todos", [{"name": name, "type": "number"} for name in names]) for names in ("a", "ab", "abc")]


class Killed(BaseException):
    """The process is gone."""


class Steps:
    """Counts durable steps; after some of them it kills."""

    def __init__(self, *kills: int) -> None:
        self.kills = set(kills)
        self.taken: list[str] = []

    def take(self, name: str) -> None:
        self.taken.append(name)
        if len(self.taken) in self.kills:
            raise Killed(name)


@contextmanager
def counted(steps: Steps) -> Iterator[None]:
    """Every durable step is counted, and followed by a kill where one is wanted."""
    with mock.patch.multiple("driftline.lake._store.tables", MAX_TRIES=3):
        patches = [
            mock.patch.object(owner, name, _counting(getattr(owner, name), name, steps)) for owner, name in DURABLE
        ]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()


def _counting(real: Callable[..., Any], name: str, steps: Steps) -> Callable[..., Any]:
    def step(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        steps.take(name)
        return result

    return step


class World:
    """A log and a lake; what was pushed; a backup of the log."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pushed: list[dict[str, Any]] = []
        self.lost: set[str] = set()  # in no backup and not in the lake when the log was set back

    @property
    def lake(self) -> Lake:
        return Lake(str(self.root / "lake"))

    def push(self, *deltas: dict[str, Any]) -> None:
        with self.log() as log:
            body = json.dumps({"clientId": "alice", "deltas": deltas}).encode()
            log.append([parse_push(body).entries])
        self.pushed += deltas

    def flush(self) -> None:
        """A process that starts, flushes and ends."""
        with self.log() as log:
            Flusher(LakeTie(log, FlushTarget(self.lake.root), GATEWAY, secrets.token_hex(4))).flush()

    def register(self, schema: TableSchema) -> None:
        FlushTarget(self.lake.root).register(schema)

    def back_up(self) -> None:
        shutil.copy(self.root / "log.sqlite", self.root / "backup.sqlite")

    def restore(self) -> None:
        before = self.ids_in_log() | set(self.ids_in_lake())
        shutil.copy(self.root / "backup.sqlite", self.root / "log.sqlite")
        self.lost |= before - self.ids_in_log() - set(self.ids_in_lake())

    def ids_in_log(self) -> set[str]:
        with self.log() as log:
            return {json.loads(record.body)["deltaId"] for record in log.read(0, 1 << 30)}

    def ids_in_lake(self) -> Counter[str]:
        return Counter(each.delta_id for each in all_deltas(self.lake, "todos"))

    def problems(self) -> list[str]:
        """What is lost or doubled once everything is flushed."""
        found, wanted = self.ids_in_lake(), {each["deltaId"] for each in self.pushed} - self.lost
        doubled = [f"doubled {each}" for each, count in found.items() if count > 1]
        return doubled + [f"lost {each}" for each in wanted - set(found)]

    @contextmanager
    def log(self) -> Iterator[SqliteLog]:
        log = SqliteLog(self.root / "log.sqlite")
        try:
            yield log
        finally:
            log.close()


def until_done(work: Callable[[], None]) -> None:
    """What operators do: start it again."""
    while True:
        try:
            return work()
        except Killed:
            continue


def misfitting(number: int) -> list[dict[str, Any]]:
    """Deltas that the first, second and third schema take."""
    return [
        delta(row=f"{number}a", a=number),
        delta(row=f"{number}b", a=number, b=number),
        delta(row=f"{number}c", c=number),
    ]
