"""Deltas that reached the lake another way (another log, `lake extract`, `lake flush`) are taken into the log.

Clients pull from the log, so what is only in the lake would never reach them. Every commit is looked at once; its files
stand in a list until they are read, which a kill only makes longer: a delta that the log knows is not taken twice.
Imported records are marked and never flushed back (deltas-and-lake §6).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from driftline.gateway.log import DeltaLog
from driftline.gateway.push import entry_of
from driftline.lake._flush_target import LakeStore

IMPORTED = "imported"  # document: by table, what was looked at and what is still to be read

_AT_ONCE = 2000  # deltas in one transaction, so that pushes get their turn
_A_ROUND = 50_000  # deltas in one round, so that flushes get theirs


@dataclass(slots=True)
class Progress:
    """How far the import of a table has come."""

    version: int = -1  # of the deltas table
    files: list[str] = field(default_factory=list)  # paths to read, relative to the lake
    envelopes: list[str] = field(default_factory=list)  # names that were looked at


def import_foreign(log: DeltaLog, store: LakeStore) -> int:
    """Take in what is new in the lake and not of this log; how many deltas were new."""
    taken = 0
    read = 0
    for table in store.tables():
        progress = Progress(**json.loads(log.document(IMPORTED) or b"{}").get(table, {}))
        found = store.foreign_files(table, progress.version, set(progress.envelopes), log.identity().log_id)
        progress.version, progress.envelopes = found.version, found.envelopes
        progress.files += [path for path in found.files if path not in progress.files]
        if found.archived_below is not None:
            log.forget_below(found.archived_below)
        _note(log, table, progress)
        while progress.files and read < _A_ROUND:
            fresh, seen = _import_file(log, store, table, progress.files[0])
            taken, read = taken + fresh, read + seen
            progress.files.pop(0)
            _note(log, table, progress)
    return taken


def _import_file(log: DeltaLog, store: LakeStore, table: str, path: str) -> tuple[int, int]:
    """Take in one file; how many deltas were new, and how many there were."""
    batch: list[Any] = []
    fresh = seen = 0
    for delta in store.deltas_in(table, path):
        batch.append(entry_of(delta))
        seen += 1
        if len(batch) == _AT_ONCE:
            fresh += log.import_foreign(batch)
            batch.clear()
    return fresh + log.import_foreign(batch), seen


def _note(log: DeltaLog, table: str, progress: Progress) -> None:
    plain = {"version": progress.version, "files": progress.files, "envelopes": progress.envelopes}

    def change(before: bytes | None) -> bytes:
        return json.dumps({**json.loads(before or b"{}"), table: plain}).encode()

    log.change_document(IMPORTED, change)
