"""The lake's work in processes of their own: encoding Parquet, folding and JSON never hold up an answer.

One process flushes, registers and renews what the gateway knows of the lake; killed in the middle, it leaves a range
that the next one finishes. Two others fold and serve snapshots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from driftline.deltas import TableSchema
from driftline.deltas._deltas import physical_ms
from driftline.errors import GatewayError
from driftline.gateway.claiming import LakeTie
from driftline.gateway.compaction import CompactionSettings, due_tables
from driftline.gateway.configuration import copy_facts, note_registered
from driftline.gateway.flush import Flusher, FlushReport
from driftline.gateway.importing import import_foreign
from driftline.gateway.log import DeltaLog
from driftline.gateway.piped import PipedProcess
from driftline.gateway.snapshot import Request, Snapshots
from driftline.gateway.sqlite_log import SqliteLog
from driftline.lake._flush_target import LakeStore

LOG_FILE = "log.sqlite"
REFRESHED = "refreshed"  # document: when the copy of the lake's facts was renewed, in milliseconds
SNAPSHOTS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class LakeWork:
    """What the processes work on; `run` names the start of the server, see `LakeTie`."""

    data: Path
    lake: str
    gateway: str
    run: str
    adopt: bool = False
    compaction: CompactionSettings | None = None  # None: tables are compacted by hand only
    log: str | None = None  # the address of a database; None: a file in the data directory

    def open_log(self) -> DeltaLog:
        """The gateway's log."""
        if self.log is None:
            return SqliteLog(self.data / LOG_FILE)
        from driftline.gateway.postgres_log import PostgresLog

        return PostgresLog(self.log, self.gateway)


@dataclass(frozen=True, slots=True)
class Refreshed:
    """How many deltas were taken in, and the tables that should be compacted."""

    imported: int = 0
    due: tuple[str, ...] = ()


class LakeProcess:
    """The lake behind a pipe, one conversation at a time."""

    def __init__(self, work: LakeWork) -> None:
        self._process = PipedProcess("lake", _lake_desk, work)

    def start(self) -> FlushReport:
        """See how log and lake stand to each other, and learn the lake's schemas and horizons."""
        return _report(self._process.ask("start"))

    def flush(self, *, wait: bool = True, seconds: float | None = None) -> FlushReport:
        """Flush everything that has arrived by now; without `wait` nothing happens while another server flushes."""
        return _report(self._process.ask("flush", wait, seconds=seconds))

    def register(self, schema: TableSchema) -> None:
        """Give the lake a table's schema, then the copy."""
        self._process.ask("register", schema)

    def refresh(self) -> Refreshed:
        """Renew the copy of schemas and horizons and take in what others brought."""
        refreshed = self._process.ask("refresh")
        assert isinstance(refreshed, Refreshed)
        return refreshed

    def close(self) -> None:
        """End the process."""
        self._process.close()


class SnapshotProcesses:
    """Where snapshots are folded and cut into pages: so many at once, whoever comes beyond that comes again."""

    def __init__(self, work: LakeWork) -> None:
        self._processes = [PipedProcess("snapshot", _snapshot_desk, work) for _ in range(SNAPSHOTS_AT_ONCE)]

    def page(self, request: Request) -> bytes:
        """One page of a snapshot."""
        for process in self._processes:
            was_free, page = process.try_ask("page", request)
            if was_free:
                return bytes(page)
        problem = f"{SNAPSHOTS_AT_ONCE} snapshots are being read already"
        raise GatewayError(problem, code="BACKPRESSURE_ERROR", reason="snapshots", retry_after=1)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.close()


def _report(answer: object) -> FlushReport:
    assert isinstance(answer, FlushReport)
    return answer


def _lake_desk(work: LakeWork) -> tuple[_LakeDesk, Callable[[], None]]:
    log = work.open_log()
    tie = LakeTie(log, LakeStore(work.lake), work.gateway, work.run, work.adopt)
    return _LakeDesk(tie, work.compaction), log.close


def _snapshot_desk(work: LakeWork) -> tuple[Snapshots, Callable[[], None]]:
    log = work.open_log()
    return Snapshots(log, LakeStore(work.lake), work.data / "snapshots"), log.close


class _LakeDesk:
    """Answers the questions of `LakeProcess`, each by the method of its name."""

    def __init__(self, tie: LakeTie, compaction: CompactionSettings | None) -> None:
        self._tie = tie
        self._compaction = compaction
        self._flusher = Flusher(tie)

    def start(self) -> FlushReport:
        report = self._flusher.look()
        copy_facts(self._tie.log, self._tie.store.facts())
        return report

    def flush(self, wait: bool) -> FlushReport:
        report = self._flusher.flush(wait=wait)
        report.due = due_tables(self._tie.store.lake, self._compaction) if report.deltas else []
        return report

    def register(self, schema: TableSchema) -> None:
        self._tie.store.register(schema)
        note_registered(self._tie.log, schema)

    def refresh(self) -> Refreshed:
        log = self._tie.log
        with log.flush_lock(wait=False) as alone:
            if not alone:
                return Refreshed()
            log.change_document(REFRESHED, lambda _: str(physical_ms()).encode())
            copy_facts(log, self._tie.store.facts())
            imported = import_foreign(log, self._tie.store)
            return Refreshed(imported, tuple(due_tables(self._tie.store.lake, self._compaction)))
