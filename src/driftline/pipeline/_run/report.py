"""A run as the one record that is rendered (stages with their positions in a graph, limits, trends; pipeline §7).

`pipeline run` and `status` on a terminal, the page of `pipeline report` and the console render the same record.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from driftline.core import JsonObject
from driftline.errors import PipelineError
from driftline.pipeline._declare.declaration import Pipeline, state_directory
from driftline.pipeline._run.records import EXIT_CODES, JudgedLimit, RecordStore
from driftline.sinks import page_bytes

TREND_RUNS = 30
NEWEST_LABELS = 6  # of a table, in the graph
SCREEN_ROWS = 20  # with more stages, those that were done before are counted and not listed
DAMAGED = "damaged"  # the result of a run whose record cannot be read

_CHANGES = ("added", "removed", "changed")
_QUIET = ("kept", "skipped")
_CARDS = ("done", "kept", "gated", "failed", "blocked", "skipped", "cancelled")
_ALWAYS = ("done", "kept")
_EVENT_ROLES = ("formatted", "events")

Run = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReportStage:
    """One stage of a run; `column` and `row` are its place in the graph, -1 where it is folded away.

    `words` are the counts as text, `events` is a file to open.
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
class PastRun:
    """One of the last runs: its result, its stages by result, and the counts of the comparisons it did, by table."""

    run_id: str
    started_at: str
    result: str
    seconds: float
    changes: Mapping[str, Mapping[str, int]]
    stages: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run as terminal and pages show it; `runs` are the last ones up to this, oldest first."""

    pipeline: str
    file: str
    run_id: str
    started_at: str
    seconds: float
    engine: str
    result: str
    stages: tuple[ReportStage, ...]
    limits: tuple[JudgedLimit, ...]
    runs: tuple[PastRun, ...]
    versions: Mapping[str, str]

    @property
    def shown_stages(self) -> list[ReportStage]:
        """The stages that have a place in the graph."""
        return [stage for stage in self.stages if stage.column >= 0]

    @property
    def graph(self) -> JsonObject:
        """The stages as a drawing: boxes and arrows with their coordinates."""
        return _graph(self.shown_stages)

    @property
    def charts(self) -> list[JsonObject]:
        """The last runs as bars: how long they took, then what changed in each table."""
        starts = [run.started_at[:16].replace("T", " ") for run in self.runs]
        times = [{run.result: run.seconds} for run in self.runs]
        found = [("seconds", times, f"{self.seconds:.1f} s")]
        for flow in dict.fromkeys(name for run in self.runs for name in run.changes):
            stacks = [{kind: float(run.changes.get(flow, {}).get(kind, 0)) for kind in _STACKED} for run in self.runs]
            found.append((flow, stacks, f"{sum(stacks[-1].values()):,.0f} changes"))
        return [
            {"title": title, "latest": last, "bars": [*zip(starts, bars, strict=True)]} for title, bars, last in found
        ]

    @property
    def started(self) -> str:
        """The time of its start, as people read it."""
        return self.started_at.replace("T", " ").partition(".")[0] + " UTC"

    @property
    def exit_code(self) -> int:
        """The exit code of `pipeline run`."""
        return EXIT_CODES.get(self.result, EXIT_CODES["failed"])

    @property
    def totals(self) -> Counter[str]:
        """The number of stages by result."""
        return Counter(stage.result for stage in self.stages)

    @property
    def cards(self) -> list[tuple[str, int]]:
        """The results that a page counts, with their numbers of stages."""
        totals = self.totals
        return [(result, totals[result]) for result in _CARDS if totals[result] or result in _ALWAYS]

    @property
    def summary(self) -> str:
        """How many stages were done before, as an addition to the result."""
        kept = self.totals["kept"]
        if kept == len(self.stages):
            return ", nothing to do"
        return f", {kept} of {len(self.stages)} stages were done before" if kept else ""

    @property
    def active_stages(self) -> list[ReportStage]:
        """The stages, without those in which nothing happened where a screen would be full of them."""
        is_long = len(self.stages) > SCREEN_ROWS
        return [stage for stage in self.stages if not is_long or stage.result not in _QUIET]

    @property
    def failed_stages(self) -> list[ReportStage]:
        return [stage for stage in self.stages if stage.result == "failed"]

    @property
    def sorted_limits(self) -> list[JudgedLimit]:
        """The limits, exceeded ones first."""
        return sorted(self.limits, key=lambda limit: not limit.exceeded)

    def exceeded(self, *levels: str) -> list[JudgedLimit]:
        """The limits of some levels that were exceeded."""
        return [limit for limit in self.limits if limit.exceeded and limit.level in levels]

    @property
    def advice(self) -> list[str]:
        """What to do next, where not everything is done."""
        found = []
        again = f"driftline pipeline run {self.file}"
        if self.result == "failed":
            found.append(
                f"the other results are in place; mend the cause and run again: {again} (only what is missing is done)"
            )
        if self.result == "cancelled":
            done = self.totals["done"] + self.totals["kept"]
            found.append(f"stopped: {done} of {len(self.stages)} stages are done and stay done; go on with: {again}")
        if self.totals["gated"]:
            found.append("held back: look at the events, then correct the data or run again with --ignore-thresholds")
        return found

    def locations(self, pipeline: Pipeline) -> list[str]:
        """The folders that contain the outputs, without the state directory, and the lake."""
        folders = {output.partition("/")[0] for stage in self.stages for output in stage.outputs}
        lake = [f"{pipeline.lake.path} (the lake)"] if pipeline.lake is not None else []
        return [*sorted(folders - {pipeline.state.partition("/")[0]}), *lake]

    def to_dict(self) -> JsonObject:
        """The report as plain data."""
        plain = asdict(self)
        for run in plain["runs"]:
            del run["stages"]
        return plain


def run_report(pipeline: Pipeline, run_id: str | None = None) -> RunReport:
    """The report of a run whose record is stored: the newest, or the one that is named.

    >>> from driftline import pipeline as pl
    >>> run_report(pl.load("nightly.toml")).result  # doctest: +SKIP
    'done'
    """
    store = RecordStore(state_directory(pipeline))
    run = store.last_run() if run_id is None else dict(store.runs()).get(run_id)
    if run is None and run_id is None:
        raise PipelineError(f"{pipeline.name} has not run yet", code="no_runs")
    if run is None:
        hint = f"`driftline pipeline history {pipeline.file.name}` lists them"
        raise PipelineError(f"{pipeline.name} remembers no run {run_id!r}: {hint}", code="unknown_run")
    return report_of(pipeline, run, [past for past in run_history(pipeline) if past.run_id <= run["run_id"]])


def run_history(pipeline: Pipeline) -> list[PastRun]:
    """Every run whose record is stored, newest first; one whose record cannot be read has the result `damaged`."""
    runs = RecordStore(state_directory(pipeline)).runs()
    return [PastRun(name, name, DAMAGED, 0.0, {}, {}) if run is None else _past(run) for name, run in runs]


def report_of(pipeline: Pipeline, run: Run, past: Sequence[PastRun] = ()) -> RunReport:
    """The report of a run from its record as plain data; `past` are the runs up to it, newest first."""
    own = ("pipeline", "run_id", "started_at", "seconds", "engine", "result", "versions")
    readable = [run for run in past if run.result != DAMAGED]
    places = _places(_unfolded(run["stages"]))
    return RunReport(
        **{name: run[name] for name in own},
        file=pipeline.file.name,
        stages=tuple(_stage(stage, *places.get(stage["stage"], (-1, -1))) for stage in run["stages"]),
        limits=tuple(JudgedLimit(**limit) for limit in run.get("limits", ())),
        runs=tuple(reversed(readable[:TREND_RUNS])),
    )


def counts_text(counts: Mapping[str, int]) -> str:
    """The counts of a stage as text.

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


def _unfolded(stages: Sequence[Run]) -> list[Run]:
    """Without the stages of old snapshots in which nothing happened: a graph of a hundred days shows nothing."""
    labels: dict[str, dict[str, None]] = {}  # of each flow, in order
    for stage in stages:
        flow, label, *_ = stage["stage"].split("/")
        labels.setdefault(flow, {})[label] = None
    recent = {(flow, label) for flow, own in labels.items() for label in list(own)[-NEWEST_LABELS:]}
    return [each for each in stages if each["result"] not in _QUIET or tuple(each["stage"].split("/")[:2]) in recent]


def _stage(stage: Run, column: int, row: int) -> ReportStage:
    flow, label, *_ = stage["stage"].split("/")
    outputs = {output["role"]: output["path"] for output in reversed(stage["outputs"])}
    return ReportStage(
        **{name: stage[name] for name in ("result", "seconds", "problem", "why")},
        name=stage["stage"],
        flow=flow,
        label=label,
        step=stage["stage"].rpartition("/")[2],
        counts=stage["counts"] or {},
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
    """A run with what its comparisons of each table counted, those that were done in it."""
    found: dict[str, dict[str, int]] = {}
    for stage in run["stages"]:
        if stage["result"] == "done" and stage["counts"] and "added" in stage["counts"]:
            sums = found.setdefault(stage["stage"].partition("/")[0], dict.fromkeys(_CHANGES, 0))
            for name in _CHANGES:
                sums[name] += stage["counts"][name]
    results = Counter(stage["result"] for stage in run["stages"])
    return PastRun(run["run_id"], run["started_at"], run["result"], run["seconds"], found, results)


# One self-contained page: the graph as SVG, limits, trends, stages with links.
_BOX_HEIGHT, _LEAST_WIDTH, _INSET = 58, 150, 13
_GAP_X, _GAP_Y, _MARGIN = 42, 16, 12
_BOLD, _MOST_CHARACTERS = 1.12, 60
_STACKED = ("changed", "added", "removed")


def report_page(pipeline: Pipeline, report: RunReport, target: Path) -> Iterator[bytes]:
    """The page in chunks; links to events are relative to `target`."""
    return page_bytes("run.html", report=report, link=lambda path: _link(pipeline, path, target))


def _graph(stages: list[ReportStage]) -> JsonObject:
    """Lay the stages out by their columns and rows; a column is as wide as the words of its boxes."""
    lines = {stage.name: _lines(stage) for stage in stages}
    widths: dict[int, int] = {}
    for stage in stages:
        widths[stage.column] = max(widths.get(stage.column, _LEAST_WIDTH), _box_width(*lines[stage.name]))
    boxes: dict[str, JsonObject] = {
        stage.name: {
            "stage": stage,
            "x": _MARGIN + sum(widths.get(before, _LEAST_WIDTH) + _GAP_X for before in range(stage.column)),
            "y": _MARGIN + stage.row * (_BOX_HEIGHT + _GAP_Y),
            "width": widths[stage.column],
            "lines": lines[stage.name],
        }
        for stage in stages
    }
    return {
        "width": max((box["x"] + box["width"] for box in boxes.values()), default=0) + _MARGIN,
        "height": max((box["y"] for box in boxes.values()), default=0) + _BOX_HEIGHT + _MARGIN,
        "boxes": list(boxes.values()),
        "arrows": [(boxes[need], boxes[each.name]) for each in stages for need in each.needs if need in boxes],
    }


def _lines(stage: ReportStage) -> list[str]:
    """The three lines of a box."""
    took = f" {stage.seconds:.1f} s" if stage.result == "done" else ""
    happened = f"{stage.result}{took}" + (f" · {stage.words}" if stage.words else "")
    lines = (stage.flow, f"{stage.label} {stage.step}", happened)
    return [text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…" for text in lines]


def _box_width(name: str, step: str, last: str) -> int:
    """About how wide the lines of a box are; rather too wide than too narrow."""
    widths = [size * sum(map(_share, text)) for size, text in ((12 * _BOLD, name), (12, step), (11, last))]
    return round(max(widths)) + 2 * _INSET


def _share(character: str) -> float:
    """The width of a character as a share of the font's size, in the widest of the fonts that pages commonly get."""
    if character in " .,:;|!'ijl·":
        return 0.36
    if character in "frt()[]/-":
        return 0.5
    if character in "mwMWQO@%+~→…" or ord(character) >= 0x1100:
        return 1.0
    return 0.78 if character.isupper() else 0.65


def _link(pipeline: Pipeline, path: str, target: Path) -> str | None:
    """The path of a file relative to the page; an object in a store has no link."""
    if "://" in path:
        return None
    place = os.path.relpath(pipeline.directory / path, target.absolute().parent)
    return quote(Path(place).as_posix())
