"""Snapshots of a table: a path pattern with `{date}` or `{n}`, the versions of a Delta table, or two that are named.

Their shapes where columns may come and go, and the names and locations that the stages of a table share.

>>> fill("out/{table}-{to}.jsonl", table="orders", before="2026-03-01", after="2026-03-02")
'out/orders-2026-03-02.jsonl'
"""

from __future__ import annotations

import csv
import glob
import itertools
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, time as clock, timedelta
from pathlib import Path
from typing import NamedTuple

from driftline import core
from driftline.deltas import MAX_HLC, make_hlc
from driftline.errors import PipelineError
from driftline.lake import Lake, LoadHistory, load_history, registered
from driftline.pipeline._declare.declaration import VERSIONS, Pipeline, Place, SchemaPolicy, TableAddress, TableFlow
from driftline.pipeline._declare.tables import TableReader
from driftline.pipeline._declare.toml import line_of
from driftline.sources import ReadOptions, Source, header_of, json_lines, open_source, parse_address, tables_beside
from driftline.tables import TableOptions, check_options

_MARK = re.compile(r"(\{date\}|\{hour\}|\{n\})")
_FORMS = {"{date}": r"(?P<date>\d{4}-\d{2}-\d{2}|\d{8})", "{hour}": r"(?P<hour>\d{2})", "{n}": r"(?P<n>\d+)"}
_OF_CATALOGS = re.compile(r"(iceberg|spark):(?!//)")
_COMMIT = re.compile(r"(\d{20})\.json")
_TABLE_MARK = "::"
CHANGES = "changes"  # the label of stages that follow change events
_OF_WHOLE_SNAPSHOTS = frozenset(
    {
        *("mode", "key_columns", "ignore_row_order", "delimiter", "encoding"),
        *("duplicate_columns", "ragged", "skip_blank_lines", "duplicates"),
    }
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table: its label and its location.

    `table` is set for a table of a SQLite file, `commit` for a version of a Delta table: the file of its log.
    """

    label: str
    path: Place
    table: str | None = None
    is_folder: bool = False  # in a store: all objects below the name
    commit: core.Location | None = None

    @property
    def source(self) -> Place:
        """What its fingerprint is taken from: its files, the commit that made a version, or the table itself."""
        return self.path if self.commit is None else self.commit

    @property
    def given(self) -> str:
        """The input of the table diff."""
        if isinstance(self.path, TableAddress):
            return self.path
        if self.commit is not None:
            return f"delta:{self.path}@{self.label}"
        if self.is_folder:
            return f"{self.path}/"
        return f"{self.path}{_TABLE_MARK}{self.table}" if self.table else str(self.path)

    @property
    def period(self) -> Period | None:
        """The day or hour that a dated snapshot belongs to."""
        return parse_period(self.label)


class Period(NamedTuple):
    """A day or an hour (UTC), as the label of a snapshot writes it."""

    label: str
    first: datetime
    length: timedelta

    @property
    def start(self) -> int:
        """The first timestamp of its loads: a millisecond late, because midnight still ends the day before."""
        return make_hlc(_ms(self.first) + 1)

    @property
    def end(self) -> int:
        """Its last timestamp."""
        return MAX_HLC if self._is_last else make_hlc(_ms(self.first + self.length)) - 1

    def age(self, now: float) -> float:
        """How many seconds ago it ended."""
        return 0 if self._is_last else now - _ms(self.first + self.length) / 1000

    @property
    def _is_last(self) -> bool:
        return self.first > datetime.max.replace(tzinfo=UTC) - self.length


def parse_period(text: str) -> Period | None:
    """The day of `2026-03-02` or `20260302`, or the hour of `2026-03-02T05`; else None."""
    day, mark, hour = text.partition("T")
    if len(day) not in (8, 10) or (mark and len(hour) != 2):
        return None
    try:
        first = datetime.combine(date.fromisoformat(day), clock(int(hour) if mark else 0), UTC)
    except ValueError:
        return None
    length = timedelta(hours=1) if mark else timedelta(days=1)
    return Period(f"{first.date().isoformat()}{mark}{hour}", first, length)


def find_snapshots(pipeline: Pipeline, flow: TableFlow) -> list[Snapshot]:
    """The snapshots of a table, oldest first; fewer than two, or two of one day, are a mistake."""
    if flow.changes is not None and flow.snapshots is None:
        return []
    if flow.snapshots is None:
        assert flow.before is not None
        assert flow.after is not None
        return [_named(pipeline, *named) for named in (("before", flow.before), ("after", flow.after))]
    matching = _matching(pipeline, flow.snapshots)
    found = sorted((snapshot for snapshot in matching if _is_selected(snapshot, flow.since)), key=_order)
    if len(found) < 2 and not (found and flow.deltas) and flow.changes is None:
        raise _mistake(pipeline, flow, f"{len(found)} snapshots match {flow.snapshots}: a comparison needs two")
    for earlier, later in itertools.pairwise(found):
        if _order(earlier) == _order(later):
            names = " and ".join(os.path.basename(each.given) for each in (earlier, later))
            raise _mistake(pipeline, flow, f"two snapshots have the same label: {names}")
    return found


def fill(path: str, *, table: str, before: str, after: str) -> str:
    """A target's path for one comparison."""
    return path.replace("{table}", table).replace("{from}", before).replace("{to}", after)


def age_of(snapshot: Snapshot) -> dict[str, int]:
    """How many seconds ago the day or hour of a snapshot ended, or its newest file was modified (pipeline §5)."""
    now, path = time.time(), snapshot.source
    if snapshot.period is not None:
        age = snapshot.period.age(now)
    elif isinstance(path, TableAddress):
        return {}  # it is not known
    elif isinstance(path, core.ObjectPath):
        age = now - (newest_file(snapshot.given if snapshot.commit is None else str(path)) or 0.0)
    else:
        age = now - (newest_file([path, *path.rglob("*")]) or 0.0)
    return {core.AGE: max(0, round(age))}


def newest_file(given: str | Sequence[core.StrPath]) -> float | None:
    """When the newest of some files was written, or of the objects below an address."""
    if isinstance(given, str):
        return max((when.timestamp() for _, when in core.entries_below(given)), default=None)
    return max((os.stat(path).st_mtime for path in given), default=None)


def _ms(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)


def _matching(pipeline: Pipeline, pattern: str) -> Iterator[Snapshot]:
    if pattern.endswith(VERSIONS):
        yield from _versions(pipeline, pattern.removesuffix(VERSIONS).removeprefix("delta:"))
        return
    text = pipeline.address(pattern)
    form = re.compile("".join(_FORMS.get(part) or re.escape(part) for part in _MARK.split(text)))
    for name in _names(text):
        match = form.fullmatch(name)
        found = match.groupdict() if match else {}
        hour = f"T{found['hour']}" if "hour" in found else ""
        period = parse_period(found["date"] + hour) if "date" in found else None
        label = period.label if period else found.get("n")
        if label is not None:
            yield _named(pipeline, label, name)


def _versions(pipeline: Pipeline, location: str) -> list[Snapshot]:
    """The versions of a Delta table whose commits its log still has: a commit never changes, so it stands for them."""
    table = pipeline.place(location.rstrip("/"))
    log = table / "_delta_log"
    commits = log.below() if isinstance(log, core.ObjectPath) else log.glob("*.json")
    found = [(commit, _COMMIT.fullmatch(commit.name)) for commit in commits]
    return [Snapshot(str(int(match[1])), table, commit=commit) for commit, match in found if match]


def _names(text: str) -> set[str]:
    """The addresses that may fit a pattern; in a store one that ends with / means folders."""
    path, mark, table = text.partition(_TABLE_MARK)
    if _OF_CATALOGS.match(text) or _MARK.search(table):
        return set(tables_beside(text))
    prefix = "delta:" if path.startswith("delta:") else ""
    path = path.removeprefix(prefix)
    if not core.is_url(path):
        return {f"{prefix}{name}{mark}{table}" for name in glob.glob(_MARK.sub("*", glob.escape(path)))}
    urls = core.list_objects(_MARK.split(path)[0].rpartition("/")[0] + "/")
    if path.endswith("/") or prefix:
        depth = path.rstrip("/").count("/") + 1
        end = "/" if path.endswith("/") else ""
        urls = ["/".join(url.split("/")[:depth]) + end for url in urls]
    return {f"{prefix}{url}{mark}{table}" for url in urls}


def label_order(label: str) -> tuple[int, str] | None:
    """Where a snapshot of this label stands among others; None for what is no snapshot's label."""
    period = parse_period(label)
    if period is not None:
        return 0, period.label
    return (int(label), "") if label.isdecimal() else None


def _order(snapshot: Snapshot) -> tuple[int, str]:
    return (int(snapshot.label), "") if snapshot.label.isdecimal() else (0, snapshot.label)


def _is_selected(snapshot: Snapshot, since: str | None) -> bool:
    if since is None:
        return True
    period = parse_period(since) if snapshot.period else None
    return _order(snapshot) >= _order(Snapshot(period.label if period else since, snapshot.path))


def _named(pipeline: Pipeline, label: str, given: str) -> Snapshot:
    address = parse_address(pipeline.address(given))
    if address.kind:
        return Snapshot(label, TableAddress(address.text))
    is_folder = core.is_url(address.path) and address.path.endswith("/")
    return Snapshot(label, pipeline.place(address.path), address.table, is_folder)


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
    """The schema of every snapshot in its turn; the columns of the first one, or of the lake, are arguments.

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


def reshaped(given: str, options: ReadOptions, shape: Shape, folder: core.Location, name: str) -> str:
    """The snapshot in its shape: itself, or a copy in `folder`; a column that it lacks is empty or null."""
    with core.Workspace() as workspace:
        source = open_source(given, workspace, options)
        if source.header("B") == shape.columns:
            return given
        if source.typed:
            target = folder / f"{name}.jsonl"
            with core.text_into(target, "utf-8") as out:
                out.writelines(json_lines(source, workspace, shape.columns))
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


def _write_csv(source: Source, shape: Shape, options: ReadOptions, target: core.Location) -> None:
    records = source.records("B")
    assert records is not None, "text has a strict reader"
    header = next(records)
    places = [header.index(name) if name in header else None for name in shape.columns]
    with core.text_into(target, options.encoding) as out:
        writer = csv.writer(out, delimiter=options.delimiter_of(target.name), lineterminator="\n")
        writer.writerow(shape.columns)
        for record in records:
            if len(record) != len(header):
                raise PipelineError(f"a row has {len(record)} cells, the header {len(header)}", code="ragged_row")
            writer.writerow("" if place is None else record[place] for place in places)


# What the stages of a table share.
@dataclass(frozen=True, slots=True)
class TableStages:
    """A table with the snapshots that were found for it."""

    pipeline: Pipeline
    flow: TableFlow
    snapshots: tuple[Snapshot, ...]
    state: core.Location
    tables: TableReader
    _shapes: dict[str, Shape] = field(default_factory=dict, compare=False, repr=False)

    def pairs(self) -> list[tuple[Snapshot, Snapshot]]:
        """Each snapshot with the one before it."""
        return list(itertools.pairwise(self.snapshots))

    def given(self, snapshot: Snapshot) -> str:
        """The input of the table diff; for a table that may change meanwhile its copy."""
        return self.tables.given(snapshot.given)

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
        return str(self.pipeline.place(self.flow.changes.address))

    def target(self, path: str, before: Snapshot, after: Snapshot) -> core.Location:
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

    def shape_inputs(self, *snapshots: Snapshot) -> core.JsonObject:
        """The shapes that a stage rests on, for its key."""
        shapes = [(snapshot.label, self.shape(snapshot)) for snapshot in snapshots]
        return {f"columns of {label}": [*shape.columns, *shape.notes()] for label, shape in shapes if shape}

    def lake(self) -> Lake:
        """The lake of the pipeline."""
        assert self.pipeline.lake is not None
        path = self.pipeline.lake.path
        return Lake(path if "://" in path else str(self.pipeline.place(path)))

    def lake_options(self) -> core.JsonObject:
        """What is declared about the lake, for the keys of stages."""
        assert self.pipeline.lake is not None
        return asdict(self.pipeline.lake)

    def whole_options(self) -> TableOptions:
        """How a snapshot is read as a whole: its key and what its reader must know, no rule about equal cells."""
        return check_options(**{name: rule for name, rule in self.flow.rules().items() if name in _OF_WHOLE_SNAPSHOTS})

    @property
    def is_exact(self) -> bool:
        """Whether events contain every difference of two snapshots; else a load compares the snapshot with the lake."""
        options = self.flow.options
        return options.get("header_mode") != "common" and options.keys() - {"header_mode"} <= _OF_WHOLE_SNAPSHOTS

    def diff_options(self) -> TableOptions:
        """The rules of its comparisons, checked."""
        return check_options(**self.flow.rules())
