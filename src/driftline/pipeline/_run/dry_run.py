"""What a run would do, and why: for every stage run or keep, the reason, how much, how long (pipeline §3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from driftline.core import JsonObject, Tracker, no_progress
from driftline.errors import DriftlineError
from driftline.pipeline._declare.declaration import Pipeline
from driftline.pipeline._run.records import StageRun
from driftline.pipeline._run.run import PipelineRun, Selection
from driftline.pipeline._stages.graph import stage_graph
from driftline.pipeline._stages.stage import RunEngine, Stage


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """One stage of a plan; `seconds` is what it took before, or what stages of its kind did."""

    stage: str
    plan: str
    why: str
    needs: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    bytes: int
    seconds: float | None
    delivers: tuple[str, ...] = ()  # what it writes outside of the state directory

    def to_dict(self) -> JsonObject:
        """The stage as plain data."""
        return {
            "stage": self.stage,
            "plan": self.plan,
            "why": self.why,
            "needs": list(self.needs),
            "reads": list(self.reads),
            "writes": list(self.writes),
            "bytes": self.bytes,
            "expectedSeconds": self.seconds,
        }


def dry_run(
    pipeline: Pipeline,
    selection: Selection | None = None,
    *,
    full_refresh: bool = False,
    tracker: Tracker | None = None,
) -> list[PlannedStage]:
    """The plan of a run that would start now; sources that changed are read, and nothing is written."""
    stages = stage_graph(pipeline)
    selection = selection or Selection()
    selection.check(stages, full_refresh=full_refresh)
    engine = RunEngine("auto", None, memory=pipeline.memory, parallel=pipeline.parallel)
    run = PipelineRun(
        pipeline, stages, engine, tracker or no_progress(), selection=selection, full_refresh=full_refresh
    )
    known = {stage.name: record for stage in stages if (record := run.store.stage(stage.name)) is not None}
    usual = _usual_seconds({name: record.seconds for name, record in known.items()})
    return [_planned(pipeline, run, stage, usual) for stage in stages]


def _planned(pipeline: Pipeline, run: PipelineRun, stage: Stage, usual: Mapping[str, float]) -> PlannedStage:
    plan, why = _verdict(run, stage)
    return PlannedStage(
        stage.name,
        plan,
        why,
        stage.needs,
        tuple(pipeline.shown(path) for path in stage.sources),
        tuple(pipeline.shown(path) for path in stage.outputs.values()),
        run.bytes_of(stage),
        usual.get(stage.name, usual.get(stage.step)) if plan == "run" else None,
        tuple(pipeline.shown(path) for path in stage.outputs.values() if run.state not in tuple(path.parents)),
    )


def _verdict(run: PipelineRun, stage: Stage) -> tuple[str, str]:
    """Run, keep or skip; a stage behind one that runs is planned to run, though it may find nothing new."""
    ahead = [need for need in stage.needs if run.runs[need].result != "kept"]
    if ahead:
        result, why = run.runs[ahead[0]].result, f"{ahead[0]} comes before it"
        plan = "skip" if result == "skipped" or not run.selection.takes(stage) else "run"
        run.runs[stage.name] = StageRun(stage.name, "skipped" if plan == "skip" else "done")
        return plan, why
    try:
        verdict = run.look(stage)
    except DriftlineError as error:  # what a run would fail with is worth knowing before it
        run.runs[stage.name] = StageRun(stage.name, "done")
        return "fail", f"{error.code}: {error.message}"
    if verdict.why is None:
        run.runs[stage.name] = StageRun(stage.name, "kept", record=verdict.known)
        return "keep", "nothing changed"
    chosen = run.selection.takes(stage)
    run.runs[stage.name] = StageRun(stage.name, "done" if chosen else "skipped")
    return ("run", verdict.why) if chosen else ("skip", f"not selected ({verdict.why})")


def _usual_seconds(known: Mapping[str, float]) -> dict[str, float]:
    """Seconds by name of stage, and by kind of step for stages that were never done."""
    kinds: dict[str, list[float]] = {}
    for name, seconds in known.items():
        kinds.setdefault(name.rpartition("/")[2], []).append(seconds)
    return {**{kind: round(median(times), 3) for kind, times in kinds.items()}, **known}


def plan_lines(plan: list[PlannedStage]) -> Iterator[str]:
    """The plan as text: one line a stage, and the sum."""
    width = max((len(stage.stage) for stage in plan), default=0)
    for stage in plan:
        target = ", ".join(stage.delivers) or ("the lake" if stage.stage.endswith("/deltas") else "")
        words = f"{stage.plan:<4}  {stage.stage:<{width}}  {stage.why}" + (f" -> {target}" if target else "")
        yield words.rstrip()
    to_run = [stage for stage in plan if stage.plan == "run"]
    seconds = sum(stage.seconds or 0 for stage in to_run)
    size = sum(stage.bytes for stage in to_run) / 1e6
    about = f", about {seconds:,.1f} s by earlier runs" if seconds else ""
    yield f"{len(to_run)} of {len(plan)} stages would run, reading {size:,.1f} MB{about}"
