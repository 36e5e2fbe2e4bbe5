"""What a run did, as data for a page: stages with their places in a graph, limits, trends (pipeline §7).

The page of `pipeline report` and the console show the same record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from driftline.core._json import JsonObject
from driftline.errors import PipelineError
from driftline.pipeline.declaration import Pipeline
from driftline.pipeline.graph import state_directory
from driftline.pipeline.records import RecordStore

TREND_RUNS = 30
NEWEST_LABELS = 6  # of a table, in the graph

_CHANGES = ("added", "removed", "changed")
_EVENT_ROLES = ("formatted", "events")

Run = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReportStage:
    """One stage of a run; `column` and `row` are its place in the graph, -1 where it is folded away.

    `words` are the counts as people say them, `events` is a file to look at.
    """

    name: str
    flow: str
    label: str
    step: str
    result: str
    seconds: float
    counts: Mapping[str, int]
    problem: str | None
    why: str | None
    notes: tuple[str, ...]
    needs: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    events: str | None
    words: str
    column: int
    row: int


@dataclass(frozen=True, slots=True)
class ReportLimit:
    """A limit with what was measured."""

    stage: str
    level: str
    text: str
    words: str
    exceeded: bool


@dataclass(frozen=True, slots=True)
class PastRun:
    """One of the last runs: how it ended, how long it took, and what each table's comparisons that it did counted."""

    run_id: str
    started_at: str
    result: str
    seconds: float
    changes: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run as pages show it; `runs` are the last ones up to this, oldest first."""

    pipeline: str
    file: str
    run_id: str
    started_at: str
    seconds: float
    engine: str
    result: str
    stages: tuple[ReportStage, ...]
    limits: tuple[ReportLimit, ...]
    runs: tuple[PastRun, ...]
    versions: Mapping[str, str]

    @property
    def shown_stages(self) -> list[ReportStage]:
        """The stages that have a place in the graph."""
        return [stage for stage in self.stages if stage.column >= 0]

    def total(self, result: str) -> int:
        """How many stages ended so."""
        return sum(stage.result == result for stage in self.stages)

    def to_dict(self) -> JsonObject:
        """The report as plain data."""
        return asdict(self)


def run_report(pipeline: Pipeline, run_id: str | None = None) -> RunReport:
    """The report of a run that is remembered: the newest, or the one that is named.

    >>> from driftline import pipeline as pl
    >>> run_report(pl.load("nightly.toml")).result  # doctest: +SKIP
    'done'
    """
    store = RecordStore(state_directory(pipeline))
    run = _find(store, pipeline, run_id)
    earlier = [record for _, record in store.runs() if record is not None and record["run_id"] <= run["run_id"]]
    return RunReport(
        pipeline=run["pipeline"],
        file=pipeline.file.name,
        run_id=run["run_id"],
        started_at=run["started_at"],
        seconds=run["seconds"],
        engine=run["engine"],
        result=run["result"],
        stages=_stages(run["stages"]),
        limits=tuple(ReportLimit(**limit) for limit in run.get("limits", ())),
        runs=tuple(_past(record) for record in reversed(earlier[:TREND_RUNS])),
        versions=run["versions"],
    )


def counts_text(counts: Mapping[str, int]) -> str:
    """The counts of a stage as people say them.

    >>> counts_text({"added": 5, "removed": 0, "changed": 9, "unchanged": 1000, "different": 14, "total": 1009})
    '9 changed, 5 added of 1,009'
    >>> counts_text({"deltas": 1200, "files": 1})
    '1,200 deltas, 1 file'
    """
    names = ("changed", "added", "removed") if "added" in counts else tuple(name for name in counts if name != "total")
    shown = [
        f"{counts[name]:,} {name.removesuffix('s') if counts[name] == 1 else name}" for name in names if counts[name]
    ]
    words = ", ".join(shown) or ("nothing" if counts else "")
    return f"{words} of {counts['total']:,}" if counts.get("total") else words


def _find(store: RecordStore, pipeline: Pipeline, run_id: str | None) -> Run:
    if run_id is None:
        newest = store.last_run()
        if newest is None:
            raise PipelineError(f"{pipeline.name} has not run yet", code="no_runs")
        return newest
    for name, record in store.runs():
        if name == run_id and record is not None:
            return record
    raise PipelineError(
        f"{pipeline.name} remembers no run {run_id!r}: `driftline pipeline history {pipeline.file.name}` lists them",
        code="unknown_run",
    )


def _stages(stages: Sequence[Run]) -> tuple[ReportStage, ...]:
    places = _places(_unfolded(stages))
    return tuple(_stage(stage, *places.get(stage["stage"], (-1, -1))) for stage in stages)


def _unfolded(stages: Sequence[Run]) -> list[Run]:
    """Without the stages of old snapshots in which nothing happened: a graph of a hundred days shows nothing."""
    labels: dict[str, list[str]] = {}
    for stage in stages:
        flow, label, *_ = stage["stage"].split("/")
        if label not in labels.setdefault(flow, []):
            labels[flow].append(label)
    recent = {(flow, label) for flow, own in labels.items() for label in own[-NEWEST_LABELS:]}
    return [
        stage
        for stage in stages
        if stage["result"] not in ("kept", "skipped") or tuple(stage["stage"].split("/")[:2]) in recent
    ]


def _stage(stage: Run, column: int, row: int) -> ReportStage:
    flow, label, *_ = stage["stage"].split("/")
    outputs = {output["role"]: output["path"] for output in reversed(stage["outputs"])}
    return ReportStage(
        name=stage["stage"],
        flow=flow,
        label=label,
        step=stage["stage"].rpartition("/")[2],
        result=stage["result"],
        seconds=stage["seconds"],
        counts=stage["counts"] or {},
        problem=stage["problem"],
        why=stage["why"],
        notes=tuple(stage["notes"]),
        needs=tuple(stage.get("needs", ())),
        inputs=tuple(entry["path"] for entry in stage["inputs"]),
        outputs=tuple(outputs.values()),
        events=next((outputs[role] for role in _EVENT_ROLES if role in outputs), None),
        words=counts_text(stage["counts"] or {}),
        column=column,
        row=row,
    )


def _places(stages: Sequence[Run]) -> dict[str, tuple[int, int]]:
    """Columns by how many stages lie before one, rows by flow: every arrow goes right, and no two boxes meet."""
    columns: dict[str, int] = {}
    for stage in stages:  # a stage stands after what it needs
        columns[stage["stage"]] = max(
            (columns[need] + 1 for need in stage.get("needs", ()) if need in columns), default=0
        )
    places: dict[str, tuple[int, int]] = {}
    behind = _behind(stages)
    top = 0
    for flow in dict.fromkeys(stage["stage"].partition("/")[0] for stage in stages):
        own = [stage["stage"] for stage in stages if stage["stage"].partition("/")[0] == flow]
        filled: dict[int, int] = {}
        for name in sorted(own, key=lambda name: -behind[name]):  # long ways straight on, what ends soon below them
            row = filled.get(columns[name], 0)
            filled[columns[name]] = row + 1
            places[name] = columns[name], top + row
        top += max(filled.values())
    return places


def _behind(stages: Sequence[Run]) -> dict[str, int]:
    """How many stages follow one, on the longest way."""
    found = dict.fromkeys((stage["stage"] for stage in stages), 0)
    for stage in reversed(stages):
        for need in stage.get("needs", ()):
            if need in found:
                found[need] = max(found[need], found[stage["stage"]] + 1)
    return found


def _past(run: Run) -> PastRun:
    return PastRun(run["run_id"], run["started_at"], run["result"], run["seconds"], _changes(run["stages"]))


def _changes(stages: Iterable[Run]) -> dict[str, dict[str, int]]:
    """What the comparisons of each table counted, those that were done in this run."""
    found: dict[str, dict[str, int]] = {}
    for stage in stages:
        if stage["result"] == "done" and stage["counts"] and "added" in stage["counts"]:
            sums = found.setdefault(stage["stage"].partition("/")[0], dict.fromkeys(_CHANGES, 0))
            for name in _CHANGES:
                sums[name] += stage["counts"][name]
    return found
