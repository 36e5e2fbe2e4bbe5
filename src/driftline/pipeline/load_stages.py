"""The stages that load: each snapshot into the lake, one after the other."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from driftline.deltas.clock import COUNTER_BITS, physical_ms
from driftline.errors import PipelineError
from driftline.lake.ingesting import Scheduler, ingest_locally
from driftline.pipeline.declaration import TableFlow
from driftline.pipeline.diff_stages import compare
from driftline.pipeline.load_chain import Load, LoadChain
from driftline.pipeline.loading import LoadJob, holds, is_loaded, load_snapshot, refuse_unknown_content
from driftline.pipeline.snapshots import Snapshot, start_of_day
from driftline.pipeline.stages import Outcome, Stage
from driftline.pipeline.table_plan import TablePlan
from driftline.pipeline.workbench import Workbench
from driftline.sources.inputs import open_source
from driftline.sources.workspace import Workspace

_SPACING_MS = 60_000  # between snapshots without a date that are loaded in one run


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
            options={"lake": plan.lake_options(), "columns": dict(plan.flow.columns), "key": list(plan.flow.key)},
            still_true=partial(_is_still_loaded, plan),
            after=tuple(plan.name(other.label, "diff") for other in plan.snapshots[1:2]) if before is None else (),
        )
        needs = (name,)


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
                not _is_typed(plan, snapshot),
                _ingest_scheduler(bench),
                scratch,
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
    nothing = scratch / ("nothing.parquet" if _is_typed(plan, snapshot) else "nothing.csv")
    _write_empty(_header(plan, snapshot), plan.flow, nothing)
    compare(plan, str(nothing), snapshot.given, bench, events)


def _is_typed(plan: TablePlan, snapshot: Snapshot) -> bool:
    with Workspace() as workspace:
        return open_source(snapshot.given, workspace, plan.diff_options().reading).typed


def _header(plan: TablePlan, snapshot: Snapshot) -> tuple[str, ...]:
    with Workspace() as workspace:
        return open_source(snapshot.given, workspace, plan.diff_options().reading).header("B")


def _write_empty(names: Sequence[str], flow: TableFlow, target: Path) -> None:
    if target.suffix == ".csv":
        with open(target, "w", encoding="utf-8", newline="") as out:
            csv.writer(out, delimiter=flow.delimiter or ",", lineterminator="\n").writerow(names)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: pa.array([], pa.string()) for name in names}), target)


@contextmanager
def _scratch(bench: Workbench) -> Iterator[Path]:
    place = bench.state / "work"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


def _is_still_loaded(plan: TablePlan, bench: Workbench, facts: Mapping[str, Any]) -> bool:
    load = plan.chain().find(facts["label"])
    if load is None or not load.finished or (load.revision, load.snapshot) != (facts["revision"], facts["snapshot"]):
        return False
    return holds(plan.lake(), plan.flow.name, load)


def _ingest_scheduler(bench: Workbench) -> Scheduler:
    if not bench.engine.is_spark:
        return ingest_locally
    from driftline.spark.lake_ingest import ingest_on_spark

    return partial(ingest_on_spark, bench.engine.session())
