"""What a pipeline file declares, as frozen records; schema changes between snapshots; the template of a file.

Paths are as written, relative to the file's directory.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driftline.core import JsonObject, Location, ObjectPath, Threshold, Workspace, is_url, text_into
from driftline.deltas import ColumnType
from driftline.errors import PipelineError
from driftline.sinks import plain_formats
from driftline.sources import ReadOptions, Source, open_source

NEW_COLUMN = ("fail", "ignore", "add")
MISSING_COLUMN = ("fail", "null")
TYPE_CHANGE = ("fail", "refresh")
TARGETS = ("events", "deltas", "changeset", "patchset")  # of a table: files, and the lake for deltas
_SPLIT_BYTES = 8 << 20
_NULL = "null"


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """What happens when columns are added, removed, or change their declared type."""

    on_new_column: str = "fail"
    on_missing_column: str = "fail"
    on_type_change: str = "fail"

    @property
    def is_active(self) -> bool:
        """Whether snapshots may have other columns than the ones before them."""
        return self.on_new_column != "fail" or self.on_missing_column != "fail"


@dataclass(frozen=True, slots=True)
class StateTarget:
    """A table's state at a moment (now where none is named), written to a file."""

    path: str
    format: str = "jsonl"
    as_of: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """Files of change events: their location, and how their messages are read (pipeline §8)."""

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
    options: Mapping[str, Any] = field(default_factory=dict)  # those of the table diff that the file gives

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of its declared targets."""
        return tuple(name for name in TARGETS if getattr(self, name))

    @property
    def files(self) -> dict[str, str]:
        """The paths of the declared targets that are files, by the names of the targets."""
        return {name: getattr(self, name) for name in self.targets if name != "deltas"}

    def rules(self) -> JsonObject:
        """The rules of its diff, as the table diff takes them."""
        # Records of stages have these five in this order, given or not.
        usual = {"mode": None, "key_columns": list(self.key), "header_mode": "strict"}
        return {**usual, "ignore_row_order": False, "delimiter": None, **self.options}


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
    """A command or webhook that is called when a run ends, and how often and how long it is tried."""

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

    def place(self, path: str) -> Location:
        """A declared path as a path of this machine, or an address in a store."""
        return ObjectPath(path) if is_url(path) else self.directory / path.removeprefix("file://")

    def shown(self, path: Location) -> str:
        """A path as records and messages show it: relative to the pipeline file; an address as it is."""
        if isinstance(path, ObjectPath):
            return path.url
        try:
            return path.resolve().relative_to(self.directory.resolve()).as_posix()
        except ValueError:
            import os

            return Path(os.path.relpath(path.resolve(), self.directory.resolve())).as_posix()


# Schema changes between snapshots (pipeline §2). Every snapshot has a shape, the columns that it has for the pipeline:
# those of the snapshots before it, with new ones added or ignored and missing ones filled, as declared. A snapshot with
# other columns of its own is rewritten into its shape before it is compared or loaded.
@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a snapshot for the pipeline; `missing` are filled, `ignored` left out, `added` new in it."""

    columns: tuple[str, ...]
    missing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether the snapshot has these columns itself."""
        return not self.missing and not self.ignored

    def notes(self) -> list[str]:
        """What happened, in words for the record of a run."""
        words = (("was added", self.added), ("was ignored", self.ignored), ("is missing and null", self.missing))
        return [f"column {name!r} {what}" for what, names in words for name in names]

    def widened(self, columns: Sequence[str]) -> Shape:
        """The same snapshot with the columns of the next one, for their comparison."""
        own = set(self.columns) - set(self.missing)
        return Shape(tuple(columns), tuple(name for name in columns if name not in own), self.ignored)


def shapes_of(
    labels: Sequence[str], headers: Sequence[Sequence[str]], policy: SchemaPolicy, known: Sequence[str] = ()
) -> list[Shape]:
    """The shape of every snapshot in its turn; the first one's columns, or those that the lake knows, are given.

    >>> [shape.columns for shape in shapes_of("12", [["a"], ["a", "b"]], SchemaPolicy("add"))]
    [('a',), ('a', 'b')]
    """
    columns = tuple(headers[0])
    if known and policy.on_new_column == "ignore":  # what was ignored when it was new stays so when it is old
        columns = tuple(name for name in columns if name in known)
    found = []
    for label, header in zip(labels, headers, strict=True):
        new = tuple(name for name in header if name not in columns)
        missing = tuple(name for name in columns if name not in header)
        _refuse(label, "has a new column", new, policy.on_new_column, "on_new_column", "add or ignore")
        _refuse(label, "lacks the column", missing, policy.on_missing_column, "on_missing_column", "null")
        ignored = new if policy.on_new_column == "ignore" else ()
        added = () if ignored else new
        columns = (*columns, *added)
        found.append(Shape(columns, missing, ignored, added))
    return found


def reshaped(given: str, options: ReadOptions, shape: Shape, folder: Location, name: str) -> str:
    """The snapshot in its shape: itself, or a copy in `folder`; a column that it lacks is empty or null."""
    with Workspace() as workspace:
        source = open_source(given, workspace, options)
        if source.header("B") == shape.columns:
            return given
        target = folder / f"{name}{'.jsonl' if source.typed else Path(_uncompressed(given)).suffix or '.csv'}"
        if source.typed:
            _write_json(source, shape, workspace, target)
        else:
            _write_csv(source, shape, options, target)
    return str(target)


def _refuse(label: str, what: str, names: tuple[str, ...], policy: str, option: str, choices: str) -> None:
    if names and policy == "fail":
        listed = ", ".join(map(repr, names))
        raise PipelineError(
            f"snapshot {label} {what} {listed}: declare {option} = {choices}, or mend the source",
            code="header_mismatch",
        )


def _write_csv(source: Source, shape: Shape, options: ReadOptions, target: Location) -> None:
    records = source.records("B")
    assert records is not None, "text has a strict reader"
    header = next(records)
    places = [header.index(name) if name in header else None for name in shape.columns]
    with text_into(target, options.encoding) as out:
        writer = csv.writer(out, delimiter=options.delimiter_of(target.name), lineterminator="\n")
        writer.writerow(shape.columns)
        for record in records:
            if len(record) != len(header):
                raise PipelineError(f"a row has {len(record)} cells, the header {len(header)}", code="ragged_row")
            writer.writerow("" if place is None else record[place] for place in places)


def _write_json(source: Source, shape: Shape, workspace: Workspace, target: Location) -> None:
    """Cells of typed sources are JSON text already, so that no value passes through another type."""
    names = [json.dumps(name, ensure_ascii=False) for name in shape.columns]
    with text_into(target, "utf-8") as out:
        for cells in _typed_rows(source, shape, workspace):
            out.write("{" + ",".join(f"{name}:{cell}" for name, cell in zip(names, cells, strict=True)) + "}\n")


def _typed_rows(source: Source, shape: Shape, workspace: Workspace) -> Iterator[tuple[str, ...]]:
    side = source.lay_out("B", _SPLIT_BYTES, workspace)
    assert side is not None, "only text has to be made sound first"
    for split in side.splits:
        table = split.read().table
        assert table is not None, "typed rows are always sound"
        columns = [
            table.column(name).to_pylist() if name in table.column_names else [_NULL] * table.num_rows
            for name in shape.columns
        ]
        yield from zip(*columns, strict=True)


def _uncompressed(given: str) -> str:
    for ending in (".gz", ".zst", ".zstd"):
        given = given.removesuffix(ending)
    return given


# The commented template that `driftline pipeline init` writes.
TEMPLATE = """\
# A driftline pipeline: what flows where. Paths are relative to this file.
# Try:  driftline pipeline plan {name}     driftline pipeline run {name}

[pipeline]
name = "nightly"
# state = ".driftline/nightly"   # records of runs, and what is needed to go on after a kill
# engine = "auto"                # auto, local or spark
# master = "local[2]"            # a Spark master or sc:// address; implies spark
# parallel = 2                   # stages side by side
# memory = "2GB"                 # for each table comparison on this machine

[lake]                           # needed for `deltas`
path = "lake"
# client_id = "nightly"          # who the deltas are from

[tables.customers]
snapshots = "data/customers-{{date}}.csv"   # every new day is compared with the day before; {{n}} for numbers
# before = "old.csv"             # ... or two files
# after = "new.csv"
key = ["id"]
# header_mode = "strict"         # strict or sorted
# delimiter = ";"
# since = "2026-01-01"           # leave older snapshots alone
# columns = {{ balance = "number", active = "boolean" }}   # types in the lake and in SQLite; the rest is text
# on_new_column = "add"          # a column that was not there before: fail, ignore or add
# on_missing_column = "null"     # one that is gone: fail, or null from then on
# on_type_change = "refresh"     # another declared type: fail, or a new generation of the lake table
fail_if = ["changed > 5%", "removed > 1000"]   # then the run ends with 1 and nothing of this table goes on
events = "out/customers-{{to}}.jsonl"
# warn_if = ["added > 3 x usual", "changed(balance) > 1%", "age > 26h"]   # told, and nothing else
# events_format = "jsonl"        # {formats}
deltas = true                    # into the lake
compact = true
# patchset = "out/customers-{{to}}.patchset"     # for SQLite
# changeset = "out/customers-{{to}}.changeset"

[[tables.customers.state]]       # the table at a moment, from the lake
path = "out/customers-now.csv"
format = "csv"                   # jsonl, csv, parquet or sqlite
# as_of = "2026-03-02"           # a day, a time or an hlc; now where it is missing

# [tables.stock]                 # a table that follows change events of a database
# changes = "cdc/stock"          # a folder or s3://bucket/prefix/ of JSON lines: Debezium, wal2json, Maxwell
# changes_table = "public.stock" # its name there; that of the section where it is missing
# partitioned = true             # events of one key are always in files of one partition
# snapshots = "data/stock-{{date}}.csv"   # optional: each is compared once with what the events led to
# key = "sku"
# deltas = true

# [payloads.orders_api]          # old and new responses of an API
# pairs = "api/pairs.jsonl"      # {{"id": ..., "old": ..., "new": ...}} a line; or old = and new = (joined by id)
# schema = "api/schema.yaml"     # with x-migration-* rules
# report = "out/api-report"      # a folder: a report per pair, totals, coverage of rules
# fail_if = ["different > 0"]

# [indexes.code]                 # two builds of a code index
# cache_root = "index-cache"
# from = "tag:v1"                # or "git:v1" and "git:HEAD" with repo = "."
# to = "latest"
# events = "out/index-changes.jsonl"
# registry = true

[metrics]
json = "out/metrics.json"
# prometheus = "out/driftline.prom"

# [lineage]
# openlineage = "out/lineage.jsonl"   # OpenLineage events, added by every run

# [history]
# runs = 100                     # so many are remembered
# days = 400                     # and none that is older

# [[hooks]]                      # any number of them
# command = ["sh", "-c", "echo $DRIFTLINE_PIPELINE: $DRIFTLINE_RESULT >> runs.log"]
# webhook = "https://example.org/hook"
# format = "slack"               # slack, discord, teams; or template = "message.json"
# when = "failure"               # always, success or failure
# retries = 3
# timeout = 60                   # seconds
"""


def template_for(name: str) -> str:
    """The template, with the file's name in its hints."""
    *formats, last = plain_formats()
    return TEMPLATE.format(name=name, formats=f"{', '.join(formats)} or {last}")
