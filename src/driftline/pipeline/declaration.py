"""What a pipeline file declares, as frozen records; paths are as written, relative to the file's directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driftline.core._json import JsonObject
from driftline.core._objects import ObjectPath, Place, is_url
from driftline.core._thresholds import Threshold
from driftline.deltas._schema import ColumnType
from driftline.pipeline.shapes import SchemaPolicy


@dataclass(frozen=True, slots=True)
class StateTarget:
    """A table's state at a moment (now where none is named), written to a file."""

    path: str
    format: str = "jsonl"
    as_of: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """Files of change events: where they lie, and how their messages are read (pipeline §8)."""

    address: str
    table: str | None = None  # its name in the source, also with the schema or database before it
    source: str | None = None
    partitioned: bool = False
    on_truncate: str = "fail"
    on_difference: str = "fail"


@dataclass(frozen=True, slots=True)
class TableFlow:
    """One table: its snapshots, its key and rules, and what is made of its changes."""

    name: str
    key: tuple[str, ...]
    snapshots: str | None = None
    before: str | None = None
    after: str | None = None
    since: str | None = None
    changes: ChangeSource | None = None
    mode: str | None = None
    header_mode: str = "strict"
    ignore_row_order: bool = False
    delimiter: str | None = None
    columns: Mapping[str, ColumnType] = field(default_factory=dict)
    schema_policy: SchemaPolicy = field(default_factory=SchemaPolicy)
    fail_if: tuple[Threshold, ...] = ()
    warn_if: tuple[Threshold, ...] = ()
    events: str | None = None
    events_format: str = "jsonl"
    deltas: bool = False
    compact: bool = False
    changeset: str | None = None
    patchset: str | None = None
    states: tuple[StateTarget, ...] = ()
    more_rules: Mapping[str, Any] = field(default_factory=dict)  # the other options of a table diff

    def rules(self) -> JsonObject:
        """The rules of its diff, as the table diff takes them."""
        return {
            "mode": self.mode,
            "key_columns": list(self.key),
            "header_mode": self.header_mode,
            "ignore_row_order": self.ignore_row_order,
            "delimiter": self.delimiter,
            **self.more_rules,
        }


@dataclass(frozen=True, slots=True)
class PayloadFlow:
    """Pairs of old and new payloads, the schema with their rules, and the reports."""

    name: str
    schema: str
    report: str
    pairs: str | None = None
    old: str | None = None
    new: str | None = None
    id_name: str = "id"
    root: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    fail_if: tuple[Threshold, ...] = ()
    warn_if: tuple[Threshold, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexFlow:
    """Two versions of a code base, as builds of an index or as git revisions, and where their difference goes."""

    name: str
    cache_root: str
    before: str
    after: str
    modes: tuple[str, ...] = ("code",)
    events: str | None = None
    registry: bool = False
    allow_mismatch: bool = False
    fail_if: tuple[Threshold, ...] = ()
    warn_if: tuple[Threshold, ...] = ()
    repo: str | None = None


@dataclass(frozen=True, slots=True)
class LakeTarget:
    """The lake that deltas go into, and the client id they carry."""

    path: str
    client_id: str


@dataclass(frozen=True, slots=True)
class FinishHook:
    """What is told when a run ends, and how often and how long it is tried."""

    command: tuple[str, ...] = ()
    webhook: str | None = None
    when: str = "always"
    format: str = "figures"
    template: str | None = None
    timeout: float = 60.0
    retries: int = 0
    wait: float = 1.0


@dataclass(frozen=True, slots=True)
class MetricsTarget:
    """Where the figures of the last run are written."""

    json: str | None = None
    prometheus: str | None = None


@dataclass(frozen=True, slots=True)
class LineageTarget:
    """Where OpenLineage events are added, the namespace of the jobs in them, and when a new file is begun."""

    openlineage: str | None = None
    namespace: str = "driftline"
    max_mb: int = 64


@dataclass(frozen=True, slots=True)
class HistoryPolicy:
    """How many runs are remembered, and for how long."""

    runs: int = 100
    days: int | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline file."""

    name: str
    file: Path
    state: str
    engine: str = "auto"
    master: str | None = None
    parallel: int = 2
    memory: int | None = None
    lake: LakeTarget | None = None
    tables: tuple[TableFlow, ...] = ()
    payloads: tuple[PayloadFlow, ...] = ()
    indexes: tuple[IndexFlow, ...] = ()
    hooks: tuple[FinishHook, ...] = ()
    lineage: LineageTarget = field(default_factory=LineageTarget)
    metrics: MetricsTarget = field(default_factory=MetricsTarget)
    history: HistoryPolicy = field(default_factory=HistoryPolicy)
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """What relative paths start from."""
        return self.file.parent

    def place(self, path: str) -> Place:
        """A declared path as a path of this machine, or an address in a store."""
        return ObjectPath(path) if is_url(path) else self.directory / path.removeprefix("file://")

    def shown(self, path: Place) -> str:
        """A path as records and messages show it: relative to the pipeline file; an address as it is."""
        if isinstance(path, ObjectPath):
            return path.url
        try:
            return path.resolve().relative_to(self.directory.resolve()).as_posix()
        except ValueError:
            import os

            return Path(os.path.relpath(path.resolve(), self.directory.resolve())).as_posix()
