"""The stages of a table: compare each pair of snapshots, load the lake, compact, write states and changesets."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from driftline.deltas.clock import COUNTER_BITS, physical_ms
from driftline.errors import PipelineError
from driftline.files import read_lines
from driftline.lake import Lake, compact
from driftline.lake.ingesting import Scheduler, ingest_locally
from driftline.pipeline.declaration import Pipeline, StateTarget, TableFlow
from driftline.pipeline.headers import header_of, is_text
from driftline.pipeline.load_chain import Load, LoadChain
from driftline.pipeline.loading import LoadJob, holds, is_loaded, load_snapshot, refuse_unknown_content, typed_events
from driftline.pipeline.moments import moment_of
from driftline.pipeline.snapshots import Snapshot, fill, find_snapshots, start_of_day
from driftline.pipeline.stages import Outcome, Stage
from driftline.pipeline.workbench import Workbench
from driftline.tables.engines import DiffJob, find_engine
from driftline.tables.options import DiffOptions, check_options
from driftline.tables.stats import Stats

_SPACING_MS = 60_000  # between snapshots without a date that are loaded in one run


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A table with the snapshots that were found for it."""

    pipeline: Pipeline
    flow: TableFlow
    snapshots: tuple[Snapshot, ...]
    state: Path

    def pairs(self) -> list[tuple[Snapshot, Snapshot]]:
        """Each snapshot with the one before it."""
        return list(zip(self.snapshots, self.snapshots[1:], strict=False))

    def name(self, label: str, step: str) -> str:
        """The name of a stage."""
        return f"{self.flow.name}/{label}/{step}"

    def target(self, path: str, before: Snapshot, after: Snapshot) -> Path:
        """Where a target of one comparison lies."""
        return self.pipeline.place(fill(path, table=self.flow.name, before=before.label, after=after.label))

    def chain(self) -> LoadChain:
        """What the lake holds of this table."""
        return LoadChain(self.state / "loads" / self.flow.name)

    def lake(self) -> Lake:
        """The lake of the pipeline."""
        assert self.pipeline.lake is not None
        path = self.pipeline.lake.path
        return Lake(path if "://" in path else str(self.pipeline.place(path)))


def diff_stages(plan: TablePlan) -> Iterator[Stage]:
    """Events for each pair of snapshots."""
    flow = plan.flow
    for before, after in plan.pairs():
        outputs = {"events": plan.state / "events" / flow.name / f"{after.label}.jsonl"}
        if flow.events is not None:
            role = "events" if flow.events_format == "jsonl" else "formatted"
            outputs[role] = plan.target(flow.events, before, after)
        yield Stage(
            plan.name(after.label, "diff"),
            partial(_diff, plan, before, after),
            sources=(before.path, after.path),
            outputs=outputs,
            options={
                "rules": flow.rules(),
                "format": flow.events_format,
                "tables": [before.table, after.table],
                "before": before.label,
            },
            gate=flow.fail_if,
        )


def load_stages(plan: TablePlan) -> Iterator[Stage]:
    """Each snapshot into the lake, one after the other."""
    if not plan.flow.deltas:
        return
    needs: tuple[str, ...] = ()
    for place, snapshot in enumerate(plan.snapshots):
        before = plan.snapshots[place - 1] if place else None
        if before is not None:
            needs = (*needs, plan.name(snapshot.label, "diff"))
        name = plan.name(snapshot.label, "deltas")
        yield Stage(
            name,
            partial(_load, plan, before, snapshot),
            needs=needs,
            sources=(snapshot.path,) if before is None else (before.path, snapshot.path),
            options={"lake": _lake_options(plan), "columns": dict(plan.flow.columns), "key": list(plan.flow.key)},
            still_true=partial(_is_still_loaded, plan),
        )
        needs = (name,)


def compact_stages(plan: TablePlan) -> Iterator[Stage]:
    """Fold what was loaded."""
    if plan.flow.compact:
        yield Stage(
            plan.name("lake", "compact"),
            partial(_compact, plan),
            needs=(plan.name(plan.snapshots[-1].label, "deltas"),),
            options={"lake": _lake_options(plan)},
            still_true=partial(_is_still_compacted, plan),
        )


def state_stages(plan: TablePlan) -> Iterator[Stage]:
    """The state of the table at the declared moments."""
    last = plan.name("lake", "compact") if plan.flow.compact else plan.name(plan.snapshots[-1].label, "deltas")
    for number, target in enumerate(plan.flow.states, start=1):
        yield Stage(
            plan.name("lake", f"state-{number}"),
            partial(_state, plan, target),
            needs=(last,),
            outputs={"state": plan.pipeline.place(target.path.replace("{table}", plan.flow.name))},
            options={"format": target.format, "as_of": target.as_of},
        )


def changeset_stages(plan: TablePlan) -> Iterator[Stage]:
    """Changesets and patchsets for each pair of snapshots."""
    flow = plan.flow
    targets: tuple[tuple[Literal["changeset", "patchset"], str | None], ...] = (
        ("changeset", flow.changeset),
        ("patchset", flow.patchset),
    )
    for kind, path in targets:
        for before, after in plan.pairs() if path else []:
            assert path is not None
            diff = plan.name(after.label, "diff")
            yield Stage(
                plan.name(after.label, kind),
                partial(_changeset, plan, kind, diff),
                needs=(diff,),
                outputs={kind: plan.target(path, before, after)},
                options={"columns": dict(flow.columns), "key": list(flow.key)},
            )


# The stages of a table, in the order in which the data goes.
STAGES_OF_A_TABLE: tuple[Callable[[TablePlan], Iterator[Stage]], ...] = (
    diff_stages,
    load_stages,
    compact_stages,
    state_stages,
    changeset_stages,
)


def table_stages(pipeline: Pipeline, state: Path, flow: TableFlow) -> list[Stage]:
    """Every stage of a table."""
    plan = TablePlan(pipeline, flow, tuple(find_snapshots(pipeline, flow)), state)
    return [stage for make in STAGES_OF_A_TABLE for stage in make(plan)]


def _options(flow: TableFlow) -> DiffOptions:
    return check_options(**flow.rules())


def _run_diff(bench: Workbench, job: DiffJob, target: Path) -> Stats:
    engine = find_engine(bench.engine.choose(job))
    with open(target, "wb", buffering=1 << 20) as out:
        return engine(job, out.write)


def _diff(plan: TablePlan, before: Snapshot, after: Snapshot, bench: Workbench) -> Outcome:
    events = bench.outputs.path("events")
    memory = bench.engine.memory
    job = DiffJob(before.given, after.given, _options(plan.flow), memory, bench.engine.master, bench.tracker)
    stats = _run_diff(bench, job, events)
    if "formatted" in bench.stage.outputs:
        from driftline.sinks.formats import write_events

        with open(events, "rb") as lines, open(bench.outputs.path("formatted"), "wb") as out:
            write_events(lines, out, plan.flow.events_format)
    return Outcome(
        {
            "added": stats.added,
            "removed": stats.removed,
            "changed": stats.changed,
            "unchanged": stats.unchanged,
            "different": stats.added + stats.removed + stats.changed,
            "total": stats.compared + stats.removed,
        }
    )


def _load(plan: TablePlan, before: Snapshot | None, snapshot: Snapshot, bench: Workbench) -> Outcome:
    chain, lake = plan.chain(), plan.lake()
    assert plan.pipeline.lake is not None
    if before is None and chain.last is not None and not holds(lake, plan.flow.name, chain.last):
        chain.clear()  # another lake, or none any more
    if before is None and not chain.loads:
        refuse_unknown_content(lake, plan.flow.name)
    wanted = _wanted(plan, chain, before, snapshot, bench)
    if not is_loaded(chain, wanted):
        _refuse_what_cannot_be_mended(plan, chain, wanted)
        with _scratch(bench) as scratch:
            events = scratch / "first.jsonl" if before is None else bench.made(bench.stage.needs[-1], "events")
            if before is None:
                _whole_snapshot(plan, snapshot, bench, scratch, events)
            job = LoadJob(
                lake,
                plan.flow.name,
                plan.pipeline.name,
                plan.pipeline.lake.client_id,
                plan.flow.key,
                plan.flow.columns,
                events,
                is_text(snapshot),
                _ingest_scheduler(bench),
            )
            load_snapshot(job, chain, wanted, bench.tracker)
    load = chain.find(wanted.label)
    assert load is not None
    facts = {"label": load.label, "revision": load.revision, "snapshot": load.snapshot}
    return Outcome({"deltas": load.deltas}, facts)


def _wanted(plan: TablePlan, chain: LoadChain, before: Snapshot | None, snapshot: Snapshot, bench: Workbench) -> Load:
    """The load that a snapshot asks for; snapshots without a label of their own are known by their content."""
    content = bench.print_of(snapshot.path)
    is_pair = plan.flow.snapshots is None
    if before is None:
        known = chain.find_content(content) if is_pair else None
        label = known.label if known else (f"content-{content[-12:]}" if is_pair else snapshot.label)
        return Load(label, content, None, 0, "", _start(chain, snapshot), 0)
    previous_content = bench.print_of(before.path)
    label = f"after-{previous_content[-12:]}" if is_pair else snapshot.label
    previous = chain.find_content(previous_content) if is_pair else chain.find(before.label)
    if previous is None:
        raise PipelineError(f"{plan.flow.name}: {before.label} is not in the lake yet", code="missing_load")
    events = next(record for name, record in bench.needed.items() if name.endswith("/diff"))
    return Load(label, content, previous.label, previous.revision, events.digest, _start(chain, snapshot), 0)


def _start(chain: LoadChain, snapshot: Snapshot) -> int:
    if snapshot.day is not None:
        return start_of_day(snapshot.day)
    after_last = chain.last.start + (_SPACING_MS << COUNTER_BITS) if chain.last else 0
    return max(physical_ms() << COUNTER_BITS, after_last)


def _refuse_what_cannot_be_mended(plan: TablePlan, chain: LoadChain, wanted: Load) -> None:
    labels = [load.label for load in chain.loads]
    if wanted.label not in labels:
        if chain.last is not None and wanted.start <= chain.last.start:
            raise PipelineError(
                f"{plan.flow.name}: the lake has gone on to {chain.last.label}, so {wanted.label} cannot be loaded "
                "before it: take the snapshot away, set 'since', or fill a new lake",
                code="late_snapshot",
            )
        return
    later = labels[labels.index(wanted.label) + 1 :]
    planned = {snapshot.label for snapshot in plan.snapshots}
    if (plan.flow.snapshots is not None and not set(later) <= planned) or (plan.flow.snapshots is None and later):
        raise PipelineError(
            f"{plan.flow.name}: {wanted.label} changed after it was loaded, and {later[-1]}, which rests on it, is no "
            "longer there to be compared: put it back, or fill a new lake",
            code="late_snapshot",
        )


def _whole_snapshot(plan: TablePlan, snapshot: Snapshot, bench: Workbench, scratch: Path, events: Path) -> None:
    """The first snapshot as events: everything was added to an empty table."""
    nothing = scratch / ("nothing.csv" if is_text(snapshot) else "nothing.parquet")
    _write_empty(snapshot, plan.flow, nothing)
    job = DiffJob(
        str(nothing), snapshot.given, _options(plan.flow), bench.engine.memory, bench.engine.master, bench.tracker
    )
    _run_diff(bench, job, events)


def _write_empty(snapshot: Snapshot, flow: TableFlow, target: Path) -> None:
    names = header_of(snapshot, flow.delimiter)
    if target.suffix == ".csv":
        with open(target, "w", encoding="utf-8", newline="") as out:
            csv.writer(out, delimiter=flow.delimiter or ",", lineterminator="\n").writerow(names)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: pa.array([], pa.string()) for name in names}), target)


def _scratch(bench: Workbench) -> Any:
    import tempfile
    from contextlib import contextmanager

    @contextmanager
    def opened() -> Iterator[Path]:
        place = bench.state / "work"
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place) as folder:
            yield Path(folder)

    return opened()


def _is_still_loaded(plan: TablePlan, bench: Workbench, facts: Mapping[str, Any]) -> bool:
    load = plan.chain().find(facts["label"])
    if load is None or not load.finished or (load.revision, load.snapshot) != (facts["revision"], facts["snapshot"]):
        return False
    return holds(plan.lake(), plan.flow.name, load)


def _compact(plan: TablePlan, bench: Workbench) -> Outcome:
    engine = {"engine": _fold_engine(bench)} if bench.engine.is_spark else {}
    done = compact(plan.lake(), plan.flow.name, tracker=bench.tracker, **engine)
    return Outcome({"deltas": done.deltas_folded, "files": done.files_written}, {"deltas_version": done.deltas_version})


def _is_still_compacted(plan: TablePlan, bench: Workbench, facts: Mapping[str, Any]) -> bool:
    from driftline.lake.snapshots import newest_snapshot

    snapshot = newest_snapshot(plan.lake(), plan.flow.name)
    return snapshot is not None and snapshot.deltas_version >= facts["deltas_version"]


def _ingest_scheduler(bench: Workbench) -> Scheduler:
    if not bench.engine.is_spark:
        return ingest_locally
    from driftline.spark.lake_ingest import ingest_on_spark

    return partial(ingest_on_spark, bench.engine.session())


def _fold_engine(bench: Workbench) -> Any:
    from driftline.spark.lake_folds import fold_engine

    return fold_engine(bench.engine.session())


def _state(plan: TablePlan, target: StateTarget, bench: Workbench) -> Outcome:
    from driftline.lake import materialize

    engine = {"engine": _fold_engine(bench)} if bench.engine.is_spark else {}
    rows = materialize(
        plan.lake(),
        plan.flow.name,
        bench.outputs.path("state"),
        format=target.format,
        as_of=moment_of(target.as_of, plan.chain()),
        tracker=bench.tracker,
        **engine,
    )
    return Outcome({"rows": rows})


def _changeset(plan: TablePlan, kind: Literal["changeset", "patchset"], diff: str, bench: Workbench) -> Outcome:
    from driftline.pipeline.changeset_files import write_changeset

    lines = read_lines(bench.made(diff, "events"))
    header = json.loads(next(lines))["columns_b"]
    events = typed_events(map(json.loads, lines), plan.flow.columns)
    with open(bench.outputs.path(kind), "wb") as out:
        changes = write_changeset(out, kind, plan.flow, header, events)
    return Outcome({"changes": changes})


def _lake_options(plan: TablePlan) -> dict[str, Any]:
    assert plan.pipeline.lake is not None
    return {"path": plan.pipeline.lake.path, "client_id": plan.pipeline.lake.client_id}
