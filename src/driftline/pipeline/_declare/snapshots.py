"""Snapshots of a table: a path pattern with `{date}` or `{n}`, the versions of a Delta table, or two that are named.

Their shapes where columns may come and go, and the names and locations that the stages of a table share.

>>> fill("out/{table}-{to}.jsonl", table="orders", before="2026-03-01", after="2026-03-02")
'out/orders-2026-03-02.jsonl'
"""

from __future__ import annotations

import csv
import glob
import itertools
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from driftline.core import (
    AGE,
    JsonObject,
    Location,
    ObjectPath,
    Workspace,
    entries_below,
    is_url,
    list_objects,
    text_into,
)
from driftline.deltas import MAX_HLC, make_hlc
from driftline.errors import PipelineError
from driftline.lake import Lake, LoadHistory, load_history, registered
from driftline.pipeline._declare.declaration import LABEL_MARKS, VERSIONS, Pipeline, SchemaPolicy, TableFlow
from driftline.pipeline._declare.toml import line_of
from driftline.sources import ReadOptions, Source, header_of, open_source
from driftline.tables import TableOptions, check_options

_DATE = r"(\d{4}-\d{2}-\d{2}|\d{8})"
_NUMBER = r"(\d+)"
_COMMIT = re.compile(r"(\d{20})\.json")
_TABLE_MARK = "::"
CHANGES = "changes"  # the label of stages that follow change events
_OF_WHOLE_SNAPSHOTS = frozenset(
    {
        *("mode", "key_columns", "ignore_row_order", "delimiter", "encoding"),
        *("duplicate_columns", "ragged", "skip_blank_lines", "duplicates"),
    }
)
_SPLIT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table: its label and its location.

    `table` is set for a table of a SQLite file, `commit` for a version of a Delta table: the file of its log.
    """

    label: str
    path: Location
    table: str | None = None
    is_folder: bool = False  # in a store: all objects below the name
    commit: Location | None = None

    @property
    def source(self) -> Location:
        """What its fingerprint is taken from: its files, or the commit that made a version."""
        return self.path if self.commit is None else self.commit

    @property
    def given(self) -> str:
        """The input of the table diff."""
        if self.commit is not None:
            return f"delta:{self.path}@{self.label}"
        if self.is_folder:
            return f"{self.path}/"
        return f"{self.path}{_TABLE_MARK}{self.table}" if self.table else str(self.path)

    @property
    def day(self) -> date | None:
        """The day that a dated snapshot belongs to."""
        return parse_day(self.label)


def find_snapshots(pipeline: Pipeline, flow: TableFlow) -> list[Snapshot]:
    """The snapshots of a table, oldest first; fewer than two, or two of one day, are a mistake."""
    if flow.changes is not None and flow.snapshots is None:
        return []
    if flow.snapshots is None:
        assert flow.before is not None
        assert flow.after is not None
        return [_named(pipeline, "before", flow.before), _named(pipeline, "after", flow.after)]
    found = [snapshot for snapshot in _matching(pipeline, flow.snapshots) if _is_wanted(snapshot, flow.since)]
    found.sort(key=_order)
    if len(found) < 2 and not (found and flow.deltas) and flow.changes is None:
        raise _mistake(pipeline, flow, f"{len(found)} snapshots match {flow.snapshots}: a comparison needs two")
    for earlier, later in itertools.pairwise(found):
        if _order(earlier) == _order(later):
            names = f"{earlier.path.name} and {later.path.name}"
            raise _mistake(pipeline, flow, f"two snapshots have the same label: {names}")
    return found


def fill(path: str, *, table: str, before: str, after: str) -> str:
    """A target's path for one comparison."""
    return path.replace("{table}", table).replace("{from}", before).replace("{to}", after)


def start_of_day(day: date) -> int:
    """The first timestamp of a UTC day's loads: a millisecond late, because midnight still ends the day before."""
    return make_hlc(_midnight_ms(day) + 1)


def end_of_day(day: date) -> int:
    """The last timestamp of a UTC day."""
    return make_hlc(_midnight_ms(day + timedelta(days=1))) - 1 if day < date.max else MAX_HLC


def age_of(snapshot: Snapshot, now: float | None = None) -> dict[str, int]:
    """How many seconds ago the day of a snapshot ended, or its newest file was modified (pipeline §5)."""
    now = time.time() if now is None else now
    if snapshot.day is not None:
        then = _midnight_ms(snapshot.day + timedelta(days=1)) / 1000 if snapshot.day < date.max else now
    else:
        then = _newest(snapshot)
    return {AGE: max(0, round(now - then))}


def _newest(snapshot: Snapshot) -> float:
    """When the newest file of a snapshot was written."""
    path = snapshot.source
    if isinstance(path, ObjectPath):
        below = snapshot.given if snapshot.commit is None else str(path)
        return max((written.timestamp() for _, written in entries_below(below)), default=0.0)
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return max(file.stat().st_mtime for file in files)


def _midnight_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)


def _matching(pipeline: Pipeline, pattern: str) -> list[Snapshot]:
    if pattern.endswith(VERSIONS):
        return _versions(pipeline, pattern.removesuffix(VERSIONS).removeprefix("delta:"))
    mark = next(mark for mark in LABEL_MARKS if mark in pattern)
    address, _, table = pattern.partition(_TABLE_MARK)
    start, _, end = (address if is_url(address) else str(pipeline.place(address))).partition(mark)
    label = re.compile(re.escape(start) + (_DATE if mark == "{date}" else _NUMBER) + re.escape(end))
    found = []
    for path in _names(address, start, end):
        match = label.fullmatch(path)
        if match and (mark != "{date}" or parse_day(match.group(1)) is not None):
            is_folder = is_url(path) and path.endswith("/")
            found.append(Snapshot(_label(match.group(1), mark), pipeline.place(path), table or None, is_folder))
    return found


def _versions(pipeline: Pipeline, location: str) -> list[Snapshot]:
    """The versions of a Delta table whose commits its log still has: a commit never changes, so it stands for them."""
    table = pipeline.place(location.rstrip("/"))
    log = table / "_delta_log"
    commits = log.below() if isinstance(log, ObjectPath) else log.glob("*.json")
    found = [(commit, _COMMIT.fullmatch(commit.name)) for commit in commits]
    return [Snapshot(str(int(match[1])), table, commit=commit) for commit, match in found if match]


def _names(location: str, start: str, end: str) -> set[str]:
    """What has a name between `start` and `end`; in a store a pattern that ends with / means folders."""
    if not is_url(location):
        return set(glob.glob(f"{glob.escape(start)}*{glob.escape(end)}"))
    urls = list_objects(start.rpartition("/")[0] + "/")
    if not end.endswith("/"):
        return set(urls)
    depth = (start + end).count("/")
    return {"/".join(url.split("/")[:depth]) + "/" for url in urls}


def _label(text: str, mark: str) -> str:
    day = parse_day(text)
    return day.isoformat() if mark == "{date}" and day is not None else text


def parse_day(text: str) -> date | None:
    """The day of `2026-03-02` or `20260302`, else None."""
    try:
        return date.fromisoformat(text) if len(text) in (8, 10) else None
    except ValueError:
        return None


def label_order(label: str) -> tuple[int, str] | None:
    """Where a snapshot of this label stands among others; None for what is no snapshot's label."""
    day = parse_day(label)
    if day is not None:
        return 0, day.isoformat()
    return (int(label), "") if label.isdecimal() else None


def _order(snapshot: Snapshot) -> tuple[int, str]:
    return (int(snapshot.label), "") if snapshot.label.isdecimal() else (0, snapshot.label)


def _is_wanted(snapshot: Snapshot, since: str | None) -> bool:
    if since is None:
        return True
    first = Snapshot(_label(since, "{date}") if parse_day(since) and snapshot.day else since, snapshot.path)
    return _order(snapshot) >= _order(first)


def _named(pipeline: Pipeline, label: str, given: str) -> Snapshot:
    if is_url(given) and given.endswith("/"):
        return Snapshot(label, pipeline.place(given), is_folder=True)
    location, mark, table = given.rpartition(_TABLE_MARK)
    if mark and (is_url(given) or not os.path.exists(pipeline.directory / given)):
        return Snapshot(label, pipeline.place(location), table)
    return Snapshot(label, pipeline.place(given))


def _mistake(pipeline: Pipeline, flow: TableFlow, problem: str) -> PipelineError:
    line = line_of(pipeline.text, ("tables", flow.name))
    message = f"{pipeline.file.name}:{line}: [tables.{flow.name}] {problem}"
    return PipelineError(message, code="no_snapshots", line=line, path=pipeline.file.name)


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
        if source.typed:
            target = folder / f"{name}.jsonl"
            _write_json(source, shape, workspace, target)
        else:
            plain = re.sub(r"\.(gz|zstd?)$", "", given)
            target = folder / f"{name}{Path(plain).suffix or '.csv'}"
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
    side = source.lay_out("B", _SPLIT_BYTES, workspace)
    assert side is not None, "only text has to be made sound first"
    with text_into(target, "utf-8") as out:
        for split in side.splits:
            table = split.read().table
            assert table is not None, "typed rows are always sound"
            nulls = ["null"] * table.num_rows
            there = table.column_names
            columns = [table.column(name).to_pylist() if name in there else nulls for name in shape.columns]
            for cells in zip(*columns, strict=True):
                out.write("{" + ",".join(f"{name}:{cell}" for name, cell in zip(names, cells, strict=True)) + "}\n")


# What the stages of a table share.
@dataclass(frozen=True, slots=True)
class TableStages:
    """A table with the snapshots that were found for it."""

    pipeline: Pipeline
    flow: TableFlow
    snapshots: tuple[Snapshot, ...]
    state: Location
    _shapes: dict[str, Shape] = field(default_factory=dict, compare=False, repr=False)

    def pairs(self) -> list[tuple[Snapshot, Snapshot]]:
        """Each snapshot with the one before it."""
        return list(zip(self.snapshots, self.snapshots[1:], strict=False))

    def name(self, label: str, step: str) -> str:
        """The name of a stage."""
        return f"{self.flow.name}/{label}/{step}"

    @property
    def last_load(self) -> str:
        """The stage after which the lake holds all that there is."""
        return self.name(CHANGES if self.flow.changes else self.snapshots[-1].label, "deltas")

    def changes_address(self) -> str:
        """Where the files of change events lie."""
        assert self.flow.changes is not None
        given = self.flow.changes.address
        return given if "://" in given else str(self.pipeline.place(given))

    def target(self, path: str, before: Snapshot, after: Snapshot) -> Location:
        """The location of a target of one comparison."""
        return self.pipeline.place(fill(path, table=self.flow.name, before=before.label, after=after.label))

    def ledger(self) -> LoadHistory:
        """What the lake holds of this table."""
        return load_history(self.lake(), self.flow.name)

    def shape(self, snapshot: Snapshot) -> Shape | None:
        """The columns that a snapshot has for this pipeline; None where all must have the same ones."""
        policy = self.flow.schema_policy
        if not policy.is_active:
            return None
        if not self._shapes:
            reading = self.diff_options().reading("B")
            labels = [each.label for each in self.snapshots]
            headers = [header_of(each.given, reading) for each in self.snapshots]
            known = registered(self.lake(), self.flow.name) if self.flow.deltas else None
            shapes = shapes_of(labels, headers, policy, known.names if known else ())
            self._shapes.update(zip(labels, shapes, strict=True))
        return self._shapes[snapshot.label]

    def shape_inputs(self, *snapshots: Snapshot) -> JsonObject:
        """The shapes that a stage rests on, for its key."""
        shapes = [(snapshot.label, self.shape(snapshot)) for snapshot in snapshots]
        return {f"columns of {label}": [*shape.columns, *shape.notes()] for label, shape in shapes if shape}

    def lake(self) -> Lake:
        """The lake of the pipeline."""
        assert self.pipeline.lake is not None
        path = self.pipeline.lake.path
        return Lake(path if "://" in path else str(self.pipeline.place(path)))

    def lake_options(self) -> JsonObject:
        """What is declared about the lake, for the keys of stages."""
        assert self.pipeline.lake is not None
        return {"path": self.pipeline.lake.path, "client_id": self.pipeline.lake.client_id}

    def whole_options(self) -> TableOptions:
        """How a snapshot is read as a whole: its key and what its reader must know, no rule about equal cells."""
        given = self.flow.rules()
        return check_options(**{name: value for name, value in given.items() if name in _OF_WHOLE_SNAPSHOTS})

    @property
    def is_exact(self) -> bool:
        """Whether events contain every difference of two snapshots; else a load compares the snapshot with the lake."""
        options = self.flow.options
        return options.get("header_mode") != "common" and options.keys() - {"header_mode"} <= _OF_WHOLE_SNAPSHOTS

    def diff_options(self) -> TableOptions:
        """The rules of its comparisons, checked."""
        return check_options(**self.flow.rules())
