"""The stages of the lake: load each snapshot, check it against change events, compact, write states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from driftline import lake
from driftline.core import JsonObject, Location, Part, PartWriter, open_to_read, parse_threshold, size_of
from driftline.deltas import COUNTER_BITS, physical_ms
from driftline.errors import LakeError
from driftline.pipeline._declare.declaration import StateTarget
from driftline.pipeline._declare.snapshots import Shape, Snapshot, TableStages, parse_period, reshaped
from driftline.pipeline._stages.diffs import compare, scratch_folder
from driftline.pipeline._stages.stage import Outcome, Stage, StageContext
from driftline.sources import declared_numbers, has_text_cells, header_of, write_empty_like

_STATE_FILE = "rows.parquet"  # of a state that is a Delta table
_NONE = (parse_threshold("different > 0"),)


def load_stages(plan: TableStages) -> Iterator[Stage]:
    """Each snapshot into the lake, one after the other (deltas-and-lake §12)."""
    if not plan.flow.deltas or plan.flow.changes is not None:
        return
    needs: tuple[str, ...] = ()
    before: Snapshot | None = None
    for snapshot in plan.snapshots:
        if before is not None:
            needs = (*needs, plan.name(snapshot.label, "diff"))
        name = plan.name(snapshot.label, "deltas")
        is_last = snapshot is plan.snapshots[-1]
        both = [each for each in (before, snapshot) if each]
        yield Stage(
            name,
            partial(_load, _Load(plan, before, snapshot, is_last)),
            needs=needs,
            sources=tuple(each.source for each in both),
            options={
                "lake": plan.lake_options(),
                "columns": dict(plan.flow.columns),
                "rules": plan.flow.rules(),
                "last": is_last,
            },
            extra_inputs=partial(plan.shape_inputs, *both),
            is_fresh=partial(_is_loaded, plan),
            after=tuple(plan.name(other.label, "diff") for other in plan.snapshots[1:2]) if before is None else (),
        )
        needs, before = (name,), snapshot


@dataclass(frozen=True, slots=True)
class _Load:
    """One snapshot of a plan on its way into the lake."""

    plan: TableStages
    before: Snapshot | None
    snapshot: Snapshot
    is_last: bool

    @property
    def shape(self) -> Shape | None:
        """The columns of the snapshot, where they may change."""
        return self.plan.shape(self.snapshot)


def _load(load: _Load, context: StageContext) -> Outcome:
    plan = load.plan
    with scratch_folder(context) as scratch:
        job = _job(load, context)
        events = _Events(load, context, scratch)
        if context.full_refresh and load.before is None:
            lake.reload(job, events.whole())
        ledger = lake.load_history(job.lake, job.table)
        lake.check_unclaimed(job, ledger)
        window, notes = _put_in_or_refresh(load, job, ledger, events, context)
        later = lake.plan_loads(job, context.fingerprint_of(load.snapshot.source), events) if load.is_last else None
    if load.is_last and load.shape is not None:
        lake.resolve_columns(job, load.shape.columns)
    deltas = (window.deltas if window != ledger.find(window.label) else 0) + (later.deltas if later else 0)
    # Later snapshots may be gone by now: then the newest window of the lake has the content of this one.
    newest = (lake.load_history(job.lake, job.table).newest if load.is_last else None) or window
    facts = {"label": newest.label, "content": newest.content, "last": load.is_last, "table": plan.flow.name}
    return Outcome({"deltas": deltas}, facts, notes)


def _put_in_or_refresh(
    load: _Load, job: lake.LoadJob, ledger: lake.LoadHistory, events: _Events, context: StageContext
) -> tuple[lake.Window, list[str]]:
    """A changed type begins a new generation where that is declared; only the first snapshot can, the rest follow."""
    try:
        return _put_in(load, job, ledger, events, context), []
    except LakeError as error:
        policy = load.plan.flow.schema_policy.on_type_change
        if error.code not in ("type_changed", "inexact_number") or policy != "refresh" or load.before is not None:
            raise
        number = lake.reload(job, events.whole())
        note = f"generation {number} begins: {error.message.partition(': run it once')[0]}"
    return _put_in(load, job, lake.load_history(job.lake, job.table), events, context), [note]


def _put_in(
    load: _Load, job: lake.LoadJob, ledger: lake.LoadHistory, events: _Events, context: StageContext
) -> lake.Window:
    fingerprint = context.fingerprint_of(load.snapshot.source)
    before = context.fingerprint_of(load.before.source) if load.before else None
    old = load.plan.shape(load.before) if load.before else None
    # The difference from the snapshot before says everything if both have the same columns themselves.
    is_alike = (
        old is None or load.shape is None or (old.columns, old.missing) == (load.shape.columns, load.shape.missing)
    )
    base = before if is_alike and load.plan.is_exact else None
    if load.plan.flow.snapshots is not None:
        requested = lake.WantedSnapshot(load.snapshot.label, fingerprint, partial(_start, load.snapshot), base)
        return lake.load_snapshot(job, requested, events)
    known = _window_of_pair(ledger, job.content(fingerprint), job.content(before) if before else None)
    if known is not None and load.before is None:
        return known
    label = known.label if known else f"{load.snapshot.label}@{ledger.number}"
    return lake.load_snapshot(job, lake.WantedSnapshot(label, fingerprint, _now, base), events)


def _window_of_pair(ledger: lake.LoadHistory, content: str, before: str | None) -> lake.Window | None:
    """Where one of two replaced files belongs: pairs have no names, they are known by what the lake went through.

    `before` is in place if it is the newest, or if the newest came from it and is about to be corrected.
    """
    newest = ledger.newest
    if newest is None:
        return None
    previous = ledger.before(newest.start)
    came_from = previous.content if previous and newest.label.startswith("after@") else None
    if before is not None:
        return newest if newest.content == content or came_from == before else None
    return newest if content in (newest.content, came_from) else None


def _start(snapshot: Snapshot, ledger: lake.LoadHistory) -> int:
    """Where the time of a snapshot begins: its day, or for a number the time of its first load, in their order."""
    if snapshot.period is not None:
        return snapshot.period.start
    later = [window for window in ledger.windows if _number(window.label) > _number(snapshot.label)]
    if not later:
        return _now(ledger)
    before = ledger.before(later[0].start)
    return before.last + 1 if before else later[0].start - (1 << COUNTER_BITS)


def _number(label: str) -> int:
    return int(label) if label.isdecimal() else -1


def _now(ledger: lake.LoadHistory) -> int:
    return max(physical_ms() << COUNTER_BITS, ledger.newest.last + (1 << COUNTER_BITS) if ledger.newest else 0)


def load_job(plan: TableStages, context: StageContext, rules: JsonObject, *, is_text: bool) -> lake.LoadJob:
    """What loads into the lake table of a plan have in common."""
    flow, pipeline, schedulers = plan.flow, plan.pipeline, lake.Schedulers()
    assert pipeline.lake is not None
    if context.engine.is_spark:
        from driftline.spark import load_schedulers

        schedulers = load_schedulers(context.engine.session())
    whose = (flow.name, pipeline.name, pipeline.lake.client_id, flow.key, flow.columns)
    return lake.LoadJob(plan.lake(), *whose, rules, is_text, schedulers, context.tracker)


def _job(load: _Load, context: StageContext) -> lake.LoadJob:
    """The rules of the comparison, and the shape where the snapshot is not loaded as it is."""
    plan, reading, shape = load.plan, load.plan.diff_options().reading("B"), load.shape
    is_other = shape and (shape.missing or shape.ignored)
    own = {"shape": list(shape.columns), "missing": list(shape.missing)} if shape and is_other else {}
    is_text = has_text_cells(plan.given(load.snapshot), reading)
    job = load_job(plan, context, {**plan.flow.rules(), **own}, is_text=is_text)
    numbers = declared_numbers(load.snapshot.given, reading)
    return replace(job, nulls=shape.missing if shape else (), source_types=numbers)


class _Events:
    """The events of one snapshot: its difference from the one before it is there, the whole is made on demand."""

    def __init__(self, load: _Load, context: StageContext, scratch: Location) -> None:
        self._load, self._context, self._scratch = load, context, scratch
        self._whole: Location | None = None

    def difference(self) -> Location | None:
        """What the diff stage wrote."""
        return self._context.made(self._context.stage.needs[-1], "events") if self._load.before else None

    def whole(self) -> Location:
        """Everything was added to an empty table."""
        if self._whole is None:
            plan = self._load.plan
            given, reading = plan.given(self._load.snapshot), plan.diff_options().reading("B")
            if self._load.shape is not None:
                given = reshaped(given, reading, self._load.shape, self._scratch, "whole")
            nothing = str(write_empty_like(given, reading, self._scratch))
            events = PartWriter(self._scratch / "whole")
            compare(plan, nothing, given, self._context, events.write, events, plan.whole_options())
            events.commit()
            self._whole = events.folder
        return self._whole


def _is_loaded(plan: TableStages, context: StageContext, facts: Mapping[str, Any]) -> bool:
    ledger = plan.ledger()
    if not ledger.holds(facts["label"], facts["content"]) or ledger.others:
        return False
    assert ledger.newest is not None
    shape = plan.shape(plan.snapshots[-1])
    is_current = shape is None or _columns(plan) == shape.columns
    return not facts["last"] or (ledger.newest.label == facts["label"] and is_current)


def _columns(plan: TableStages) -> tuple[str, ...]:
    """The columns that the table has in the lake now."""
    schema = lake.registered(plan.lake(), plan.flow.name)
    return () if schema is None else schema.names


# Snapshots beside change events: each is compared once with the state that the events led to (pipeline §8).
def check_stages(plan: TableStages) -> Iterator[Stage]:
    """A comparison with the lake for every snapshot, after the events that were there when it was first seen."""
    changes = plan.flow.changes
    assert changes is not None
    for snapshot in plan.snapshots:
        yield Stage(
            plan.name(snapshot.label, "check"),
            partial(_check, plan, snapshot),
            sources=(snapshot.source,),
            outputs={"events": plan.state / "events" / plan.flow.name / f"check-{snapshot.label}.jsonl"},
            options={"rules": plan.flow.rules(), "table": snapshot.table},
            gate=_NONE if changes.on_difference == "fail" else (),
            warn=_NONE if changes.on_difference == "warn" else (),
            # The events go on after the snapshot: that they do must not make an old check look stale.
            waits_for=(plan.last_load,),
        )


def _check(plan: TableStages, snapshot: Snapshot, context: StageContext) -> Outcome:
    """The events lead from the snapshot to the lake's state, under the rules of the table."""
    reading = plan.diff_options().reading("B")
    with scratch_folder(context) as scratch:
        state = scratch / "state.parquet"
        lake.materialize(plan.lake(), plan.flow.name, state, format="parquet", **fold_options(context))
        columns = header_of(snapshot.given, reading)
        state_columns = header_of(str(state), reading)
        shape = Shape(columns, tuple(name for name in columns if name not in state_columns))
        there = reshaped(str(state), reading, shape, scratch, "lake")
        with context.outputs.writing("events") as out:
            stats = compare(plan, plan.given(snapshot), there, context, out.write)
    count = stats.added + stats.removed + stats.changed
    words = f"agrees with the lake, {count:,} differences" if not count else f"and the lake differ in {count:,} rows"
    return Outcome(stats.counts, notes=[f"the snapshot {words}"])


# Compaction, and the state of a table at declared times.
def compact_stages(plan: TableStages) -> Iterator[Stage]:
    """Fold what was loaded."""
    if plan.flow.compact:
        yield Stage(
            plan.name("lake", "compact"),
            partial(_compact, plan),
            needs=(plan.last_load,),
            options={"lake": plan.lake_options()},
            history=lambda: plan.ledger().digest(),
            is_fresh=lambda context, facts: _compacted_version(plan) >= int(facts.get("compacted", 0)),
        )


def state_stages(plan: TableStages) -> Iterator[Stage]:
    """The state of the table at the declared points in time."""
    last = plan.name("lake", "compact") if plan.flow.compact else plan.last_load
    for number, target in enumerate(plan.flow.states, start=1):
        yield Stage(
            plan.name("lake", f"state-{number}"),
            partial(_state, plan, target),
            needs=(last,),
            outputs={"state": plan.pipeline.place(target.path.replace("{table}", plan.flow.name))},
            options={"format": target.format, "as_of": target.as_of},
            history=partial(_history_until, plan, target.as_of),
        )


def _history_until(plan: TableStages, as_of: str | None) -> str:
    """The loads of the lake up to a point in time: later loads leave the state as of it alone."""
    ledger = plan.ledger()
    columns = ",".join(_columns(plan)) if plan.flow.schema_policy.is_active else ""
    return ledger.digest(timestamp_of(as_of, ledger)) + columns


def _compact(plan: TableStages, context: StageContext) -> Outcome:
    done = lake.compact(plan.lake(), plan.flow.name, **fold_options(context))
    counts = {"deltas": done.deltas_folded, "files": done.files_written}
    return Outcome(counts, {"compacted": _compacted_version(plan)})


def _compacted_version(plan: TableStages) -> int:
    """Up to which version the deltas of a table are folded; -1 where there was nothing to fold yet."""
    snapshot = lake.newest_snapshot(plan.lake(), plan.flow.name)
    return -1 if snapshot is None else snapshot.deltas_version


def _state(plan: TableStages, target: StateTarget, context: StageContext) -> Outcome:
    timestamp = timestamp_of(target.as_of, plan.ledger())
    place = context.outputs.path("state")
    is_table = target.format == "delta"
    file = place / _STATE_FILE if is_table else place
    if is_table:
        place.mkdir(parents=True, exist_ok=True)
    options = {"format": "parquet" if is_table else target.format, "as_of": timestamp, **fold_options(context)}
    rows = lake.materialize(plan.lake(), plan.flow.name, file, **options)
    if is_table:
        import pyarrow.parquet as pq

        from driftline.sinks import commit_delta

        with open_to_read(file) as source:
            columns = pq.read_schema(source)
        commit_delta(place, [Part(_STATE_FILE, size_of(file), "")], [rows], columns=columns)
    return Outcome({"rows": rows})


def fold_options(context: StageContext) -> dict[str, Any]:
    """The engine of this run's folds, and their tracker."""
    if not context.engine.is_spark:
        return {"tracker": context.tracker}
    from driftline.spark import lake_engine

    return {"engine": lake_engine(context.engine.session()), "tracker": context.tracker}


def timestamp_of(text: str | None, ledger: lake.LoadHistory) -> int | None:
    """The last timestamp that belongs to the point in time; None is now."""
    if text is None:
        return None
    period = parse_period(text)
    if period is not None and not text.isdecimal():
        return period.end
    window = ledger.find(text)
    if window is not None:
        return ledger.end_of(window)
    return lake.parse_timestamp(text)
