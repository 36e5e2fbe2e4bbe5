"""A store of tables whose logs are in memory: it passes the contract of the lake's store, and a lake runs on it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

from driftline.deltas import physical_ms
from driftline.lake import Lake
from driftline.lake._store.parquet import DataFile, write_file
from driftline.lake._store.tables import Commit, CommitEntry, Version

FIRST = 100  # versions need not start at 0 ...
STEP = 7  # ... nor follow each other closely


@dataclass(frozen=True)
class State:
    """A table after a commit."""

    schema: pa.Schema
    files: dict[str, DataFile]
    properties: dict[str, str] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    entry: CommitEntry | None = None


class MemoryStore:
    """Logs of tables by their paths; data files are below the root of `lake`."""

    def __init__(self, root: str) -> None:
        self.lake = Lake(root)
        self.files = self.lake.files()
        self.logs: dict[str, dict[Version, State]] = defaultdict(dict)

    def open(self, path: str, version: Version | None = None) -> MemoryTable | None:
        log = self.logs[path]
        if not log or (version is not None and version not in log):
            return None
        return MemoryTable(self, path, max(log) if version is None else version)

    def create(self, path: str, name: str, schema: pa.Schema, commit: Commit) -> bool:
        if self.logs[path]:
            return False
        self.commit(path, State(schema, {}), commit)
        return True

    def commits(self, path: str, newest: Version) -> Iterator[CommitEntry | None]:
        for version in sorted(self.logs[path], reverse=True):
            if version <= newest:
                yield self.logs[path][version].entry
        if FIRST not in self.logs[path]:
            yield None

    def cut_log(self, path: str, keep: Version | None, milliseconds: float, commits: int | None = None) -> int:
        log = self.logs[path]
        last = max(log) if keep is None else keep
        gone = [each for each in log if each < last and (entry := log[each].entry) and entry.timestamp < milliseconds]
        for each in gone:
            del log[each]
        return len(gone)

    def commit(self, path: str, before: State, commit: Commit, operation: str = "write") -> Version:
        log = self.logs[path]
        version = max(log) + STEP if log else FIRST
        kept = (
            {}
            if commit.overwrite
            else {name: file for name, file in before.files.items() if name not in commit.removes}
        )
        added = {file.path: replace(file, committed_ms=physical_ms()) for file in commit.adds}
        details: dict[str, Any] = dict(commit.metadata)
        entry = CommitEntry(
            version,
            int(time.time() * 1000),
            str(details.get("operation", operation)).lower(),
            details,
            dict(commit.transactions),
            list(added),
            list(added) if commit.data_change else [],
            len(before.files) - len(kept),
        )
        transactions = {**before.transactions, **commit.transactions}
        log[version] = replace(before, files={**kept, **added}, transactions=transactions, entry=entry)
        return version


class MemoryTable:
    """A table at one version."""

    def __init__(self, store: MemoryStore, path: str, version: Version) -> None:
        self._store, self._path, self._version = store, path, version

    @property
    def _log(self) -> dict[Version, State]:
        return self._store.logs[self._path]

    @property
    def _state(self) -> State:
        return self._log[self._version]

    def version(self) -> Version:
        return self._version

    def schema(self) -> pa.Schema:
        return self._state.schema

    def files(self) -> list[DataFile]:
        return list(self._state.files.values())

    def property(self, name: str) -> str | None:
        return self._state.properties.get(name)

    def transaction(self, application: str) -> int | None:
        return self._state.transactions.get(application)

    def append(self, commit: Commit, schema: pa.Schema | None = None) -> bool:
        newest = self._log[max(self._log)]
        others = [state.entry for version, state in self._log.items() if version > self._version and state.entry]
        if any(set(entry.transactions) & set(commit.transactions) for entry in others):
            return False
        removes = set(self._state.files) if commit.overwrite else set(commit.removes)
        if others and (commit.overwrite or not removes <= set(newest.files) or newest.schema != self._state.schema):
            return False
        self._store.commit(self._path, replace(newest, schema=schema or newest.schema), commit)
        return True

    def add_columns(self, columns: Sequence[pa.Field], details: dict[str, Any]) -> bool:
        return self._alter(details, schema=pa.schema([*self._state.schema, *columns]))

    def set_properties(self, values: Mapping[str, str], details: dict[str, Any]) -> bool:
        return self._alter(details, properties={**self._state.properties, **values})

    def _alter(self, details: dict[str, Any], **changed: Any) -> bool:
        if self._version != max(self._log):
            return False
        self._store.commit(self._path, replace(self._state, **changed), Commit(metadata=details))
        return True

    def merge(self, rows: pa.RecordBatchReader, commit: Commit) -> bool:
        file = write_file(self._store.lake, self._path, f"merged-{time.monotonic_ns()}.parquet", rows.read_all())
        return self.append(replace(commit, adds=[file], removes=list(self._state.files)))

    def versions_since(self, milliseconds: float) -> list[Version]:
        return [
            version for version, state in self._log.items() if state.entry and state.entry.timestamp >= milliseconds
        ]

    def vacuum(self, keep: Sequence[Version], hours: int, dry_run: bool) -> list[str]:
        kept = {name for version in keep or [self._version] for name in self._log[version].files}
        found = self._store.files.get_file_info(pa_fs.FileSelector(self._path, recursive=True))
        oldest = time.time() - hours * 3600
        old = [info for info in found if info.type == pa_fs.FileType.File and info.mtime.timestamp() <= oldest]
        gone = [info.path for info in old if info.path.removeprefix(f"{self._path}/") not in kept]
        for path in () if dry_run else gone:
            self._store.files.delete_file(path)
        return [path.removeprefix(f"{self._path}/") for path in gone]
