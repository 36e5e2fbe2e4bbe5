"""Running a pipeline: ready stages side by side, each skipped if it is done and still true, else done and committed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property
from statistics import median
from typing import Any

from driftline.core import (
    AGE,
    Location,
    ObjectPath,
    Threshold,
    Tracker,
    explain_os_error,
    file_lock,
    io_errors,
    shared_location,
)
from driftline.errors import Cancelled, DriftlineError, LockedError, OptionError
from driftline.pipeline._declare.declaration import Pipeline
from driftline.pipeline._declare.snapshots import label_order
from driftline.pipeline._run.records import (
    JudgedLimit,
    RecordStore,
    RunRecord,
    StageRun,
    new_run_id,
    timestamp,
    versions,
)
from driftline.pipeline._stages.graph import stage_graph, state_directory
from driftline.pipeline._stages.outputs import (
    FileFingerprint,
    FingerprintCache,
    Outputs,
    files_below,
    is_recorded,
    missing_output,
    size_below,
    sweep,
    sweep_state,
)
from driftline.pipeline._stages.stage import Result, RunEngine, Stage, StageContext, StageRecord, changed_basis

USUAL_RUNS, LEAST_RUNS = 7, 3
_NOT_DONE = frozenset({"failed", "blocked", "cancelled"})
StageListener = Callable[[StageRun], None]


def run_pipeline(
    pipeline: Pipeline,
    *,
    engine: str | None = None,
    master: str | None = None,
    tracker: Tracker | None = None,
    wait_seconds: float = 0.0,
    ignore_thresholds: bool = False,
    thorough: bool = False,
    full_refresh: bool = False,
    selection: Selection | None = None,
    on_stage: StageListener = lambda done: None,
) -> RunRecord:
    """Run a pipeline to its end and keep the record; a run of the same pipeline that is under way is waited for."""
    started, clock = timestamp(), time.monotonic()
    with locked(pipeline, wait_seconds) as check_lock, _engine(pipeline, engine, master) as run_engine:
        run = PipelineRun(
            pipeline,
            stage_graph(pipeline),
            run_engine,
            tracker or Tracker(),
            ignore_thresholds=ignore_thresholds,
            thorough=thorough,
            full_refresh=full_refresh,
            selection=selection,
            on_stage=on_stage,
            check_lock=check_lock,
        )
        run.selection.check(run.stages, full_refresh=full_refresh)
        run.run()
        record = RunRecord(
            new_run_id(),
            pipeline.name,
            started,
            round(time.monotonic() - clock, 3),
            str(run_engine),
            _result(run, ignore_thresholds),
            tuple(replace(run.runs[stage.name], needs=stage.needs) for stage in run.stages),
            run.exceeded("fail"),
            versions(),
            run.exceeded("warn"),
            run.limits,
        )
        check_lock()
        run.store.keep_run(record, pipeline.history.runs, pipeline.history.days)
    return record


def failed_before_start(pipeline: Pipeline, error: DriftlineError) -> RunRecord:
    """The record of a run that could not start, for hooks and metrics; it is not stored."""
    result = "locked" if isinstance(error, LockedError) else "failed"
    words = f"{error.code}: {error.message}"
    return RunRecord(
        new_run_id(), pipeline.name, timestamp(), 0.0, pipeline.engine, result, (), (), versions(), problem=words
    )


@contextmanager
def locked(pipeline: Pipeline, wait_seconds: float) -> Iterator[Callable[[], None]]:
    """Hold the pipeline's lock: two runs of one pipeline never work at the same time.

    What is given raises once the lock is lost, which happens to leases in stores.
    """
    state = state_directory(pipeline)
    with io_errors(pipeline.shown(state)):
        state.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            check = stack.enter_context(file_lock(state / "lock", scope=pipeline.name, wait_seconds=wait_seconds))
        except LockedError as error:
            who = error.message.partition(": ")[0].partition(" is held ")[2]
            raise LockedError(
                f"pipeline {pipeline.name} is already running ({who}): --wait SECONDS waits for it"
            ) from error
        # All workers of a cluster see the state directory, so what they exchange lies there; a sweep empties it.
        work = state / "work"
        if not isinstance(work, ObjectPath):
            work.mkdir(exist_ok=True)
        stack.enter_context(shared_location(str(work)))
        yield check


@contextmanager
def _engine(pipeline: Pipeline, engine: str | None, master: str | None) -> Iterator[RunEngine]:
    run_engine = RunEngine(
        engine or pipeline.engine,
        master or pipeline.master,
        memory=pipeline.memory,
        parallel=pipeline.parallel,
    )
    try:
        yield run_engine
    finally:
        run_engine.close()


@dataclass(frozen=True, slots=True)
class Freshness:
    """What is known of a stage before it runs: its record, what it rests on, and why it has to run, if it has to."""

    known: StageRecord | None
    key: str
    basis: Mapping[str, Any]
    why: str | None


class PipelineRun:
    """One run under the pipeline's lock."""

    def __init__(
        self,
        pipeline: Pipeline,
        stages: list[Stage],
        engine: RunEngine,
        tracker: Tracker,
        *,
        ignore_thresholds: bool = False,
        thorough: bool = False,
        full_refresh: bool = False,
        selection: Selection | None = None,
        on_stage: StageListener = lambda done: None,
        check_lock: Callable[[], None] = lambda: None,
    ) -> None:
        self.pipeline = pipeline
        self.stages = stages
        self.engine = engine
        self.tracker = tracker
        self.state = state_directory(pipeline)
        self.store = RecordStore(self.state)
        self.fingerprints = FingerprintCache(pipeline, self.state)
        self.runs: dict[str, StageRun] = {}
        self._limits: dict[str, list[JudgedLimit]] = {}
        self._gating: set[str] = set()
        self._judge = Judge(self.store)
        self._ignore_thresholds = ignore_thresholds
        self._thorough = thorough
        self._full_refresh = full_refresh
        self.selection = selection or Selection()
        self._on_stage = on_stage
        self._check_lock = check_lock

    def run(self) -> None:
        """Every stage once; what fails takes down only what needs it."""
        self.engine.input_bytes = _bytes_of({path for stage in self.stages for path in stage.sources})
        sweep_state(self.state)
        sweep(self.pipeline, [place for stage in self.stages for place in stage.outputs.values()])
        waiting = largest_flows_first(self.stages)
        running: dict[Future[StageRun], Stage] = {}
        with ThreadPoolExecutor(self.engine.parallel, "stage") as pool:
            try:
                while waiting or running:
                    waiting = self._start_ready(waiting, running, pool)
                    done, _ = wait(running, return_when=FIRST_COMPLETED) if running else (set(), None)
                    for future in done:
                        self._note(running.pop(future), future.result())
            except (KeyboardInterrupt, Cancelled) as wish:
                self._stop(running, wish)
            except BaseException:
                self.tracker.cancel()
                raise
        self.fingerprints.save()

    def _stop(self, running: dict[Future[StageRun], Stage], wish: BaseException) -> None:
        """Cancel the running stages at their next check; what is done stays done, and the record says so."""
        self.tracker.cancel()
        self.engine.abandon(wish)
        for future, stage in running.items():
            self._note(stage, future.result())
        for stage in self.stages:
            if stage.name not in self.runs:
                self._note(stage, StageRun(stage.name, "cancelled", problem="the run was stopped"))

    def _start_ready(
        self, waiting: list[Stage], running: dict[Future[StageRun], Stage], pool: ThreadPoolExecutor
    ) -> list[Stage]:
        left = []
        for stage in waiting:
            if not all(other in self.runs for other in (*stage.needs, *stage.waits_for, *stage.after)):
                left.append(stage)
            elif (hindrance := self._hindrance(stage)) is not None:
                self._note(stage, hindrance)
            elif len(running) < self.engine.parallel:
                running[pool.submit(self._one, stage)] = stage
            else:
                left.append(stage)
        return left

    def _hindrance(self, stage: Stage) -> StageRun | None:
        """Why a stage cannot run: what it needs is not there."""
        needs = (*stage.needs, *stage.waits_for)
        results = {self.runs[need].result: need for need in needs}
        for result in ("cancelled", "failed", "blocked", "gated", "skipped"):
            if result in results:
                become: Result = "blocked" if result == "failed" else result
                if result == "skipped" and self.selection.takes(stage):
                    words = f"needs {results[result]}, which is not selected and not fresh"
                    return StageRun(stage.name, "blocked", problem=words)
                return StageRun(stage.name, become, problem=f"needs {results[result]}")
        if any(self._is_over(need) for need in needs):
            return StageRun(stage.name, "gated", problem="a threshold was exceeded")
        return None

    def _is_over(self, name: str) -> bool:
        return not self._ignore_thresholds and name in self._gating

    @property
    def limits(self) -> tuple[JudgedLimit, ...]:
        """Every limit that was judged, in the order of the stages."""
        return tuple(judged for stage in self.stages for judged in self._limits.get(stage.name, ()))

    def exceeded(self, level: str) -> tuple[str, ...]:
        """The limits of a level that were exceeded, in words."""
        over = [judged for judged in self.limits if judged.level == level and judged.exceeded]
        return tuple(f"{judged.stage}: {judged.words}" for judged in over)

    def _note(self, stage: Stage, run: StageRun) -> None:
        self.runs[stage.name] = run
        verdicts = self._judge.verdicts(stage, run)
        self._limits[stage.name] = [judged for _, judged in verdicts]
        if any(judged.exceeded and judged.level == "fail" and limit.count != AGE for limit, judged in verdicts):
            self._gating.add(stage.name)  # old data are no wrong data: an age holds nothing back
        self._on_stage(run)

    def _one(self, stage: Stage) -> StageRun:
        started_at = timestamp()
        return replace(self._tried(stage), started_at=started_at)

    def _tried(self, stage: Stage) -> StageRun:
        started = time.monotonic()
        try:
            self.tracker.check()
            return self._done_or_kept(stage)
        except Cancelled:
            return StageRun(stage.name, "cancelled", time.monotonic() - started)
        except Exception as error:  # noqa: BLE001 - whatever fails, the other stages go on
            if self.tracker.cancelled:  # an engine that was ended in the middle of its work
                return StageRun(stage.name, "cancelled", time.monotonic() - started)
            return StageRun(stage.name, "failed", time.monotonic() - started, problem=_words(error, stage))

    def _done_or_kept(self, stage: Stage) -> StageRun:
        started = time.monotonic()
        tracker = self.tracker.branch(stage.name)
        context = self._context(stage, tracker)
        verdict = self._look(stage, context)
        if verdict.why is None:
            assert verdict.known is not None
            return StageRun(stage.name, "kept", time.monotonic() - started, verdict.known.counts, record=verdict.known)
        if not self.selection.takes(stage):
            return StageRun(stage.name, "skipped", problem=f"not selected ({verdict.why})")
        self.store.forget_stage(stage.name)
        try:
            outcome = stage.action(context)
            for path in stage.sources:
                for file in files_below(path):
                    self.fingerprints.check(file)
            self._check_lock()
            outputs = context.outputs.commit()
        finally:
            context.outputs.discard()
        inputs = tuple(entry.to_record() for path in stage.sources for entry in context.sources[path])
        seconds = round(time.monotonic() - started, 3)
        record = StageRecord(
            stage.name,
            verdict.key,
            dict(outcome.counts),
            dict(outcome.facts),
            inputs,
            outputs,
            seconds,
            timestamp(),
            verdict.basis,
        )
        self._check_lock()
        self.store.keep_stage(record)
        return StageRun(
            stage.name,
            "done",
            time.monotonic() - started,
            record.counts,
            record=record,
            why=verdict.why,
            notes=tuple(outcome.notes),
        )

    def look(self, stage: Stage) -> Freshness:
        """Whether a stage would have to run, and why; the stages that it needs have been looked at."""
        return self._look(stage, self._context(stage, self.tracker.branch(stage.name)))

    def _look(self, stage: Stage, context: StageContext) -> Freshness:
        sources = {self.pipeline.shown(path): context.fingerprint_of(path) for path in stage.sources}
        basis = stage.basis(sources, {name: context.needed[name].digest for name in stage.needs})
        known = self.store.stage(stage.name)
        return Freshness(known, stage.key(basis), basis, self._why(stage, context, known, basis))

    def _why(
        self, stage: Stage, context: StageContext, known: StageRecord | None, basis: Mapping[str, Any]
    ) -> str | None:
        """Why a stage has to run; None where what is there still holds."""
        if known is None:
            return "it has not been done"
        if self._full_refresh and self.selection.takes(stage):
            return "everything is to be done again"
        if known.key != stage.key(basis):
            return changed_basis(known.basis, basis)
        if not all(is_recorded(self.pipeline, role, place, known.outputs) for role, place in stage.outputs.items()):
            return "an output is declared elsewhere"
        lost = missing_output(self.pipeline, known.outputs, thorough=self._thorough)
        if lost is not None:
            return f"{lost} is missing or was changed"
        return (
            None if stage.is_fresh(context, known.facts) else "the lake or registry no longer holds what it left there"
        )

    def bytes_of(self, stage: Stage) -> int:
        """How much a stage reads."""
        return _bytes_of(set(stage.sources))

    def _context(self, stage: Stage, tracker: Tracker) -> StageContext:
        sources = {path: self._fingerprints_of(path, tracker) for path in stage.sources}
        needed = {name: record for name in stage.needs if (record := self.runs[name].record) is not None}
        outputs = Outputs(self.pipeline, stage)
        return StageContext(
            self.pipeline, stage, self.state, self.engine, tracker, outputs, needed, sources, self._full_refresh
        )

    def _fingerprints_of(self, path: Location, tracker: Tracker) -> tuple[FileFingerprint, ...]:
        return tuple(self.fingerprints.take(file, tracker) for file in files_below(path))


def largest_flows_first(stages: list[Stage]) -> list[Stage]:
    """The stages in the order in which they are begun: what takes longest must not come last and alone."""
    sizes: dict[str, int] = {}
    for stage in stages:
        sizes[stage.flow] = sizes.get(stage.flow, 0) + _bytes_of(set(stage.sources))
    return sorted(stages, key=lambda stage: -sizes[stage.flow])


def _bytes_of(paths: set[Location]) -> int:
    return sum(map(size_below, paths))


def _result(run: PipelineRun, ignore_thresholds: bool) -> str:
    results = {stage.result for stage in run.runs.values()}
    if "cancelled" in results:
        return "cancelled"
    if results & {"failed", "blocked"}:
        return "failed"
    return "exceeded" if run.exceeded("fail") and not ignore_thresholds else "done"


def _words(error: BaseException, stage: Stage) -> str:
    if isinstance(error, DriftlineError):
        return f"{error.code}: {error.message}"
    if isinstance(error, MemoryError):
        return "out_of_memory: not enough memory: set a lower 'memory' in [pipeline]"
    if isinstance(error, OSError):
        explained = explain_os_error(error, f"the output of {stage.name}")
        return f"{explained.code}: {explained.message}"
    lines = str(error).strip().splitlines() or ["no word"]
    return f"internal: {type(error).__name__}: {lines[0][:300]}"


# Which stages a run does: by name, by day, or those that failed the last time (pipeline §4).
@dataclass(frozen=True, slots=True)
class Selection:
    """The stages that a run may do; all of them where nothing is named.

    `patterns` are names with `*`, `first` and `last` labels of snapshots, `failed` the names that ended badly before.
    """

    patterns: tuple[str, ...] = ()
    first: str | None = None
    last: str | None = None
    failed: frozenset[str] | None = None

    def takes(self, stage: Stage) -> bool:
        """Whether a stage is chosen."""
        if self.patterns and not any(fnmatchcase(stage.name, pattern) for pattern in self.patterns):
            return False
        if self.failed is not None and stage.name not in self.failed:
            return False
        return self._is_in_range(stage.label)

    def check(self, stages: Sequence[Stage], *, full_refresh: bool) -> None:
        """Refuse a choice of nothing, and half a table where all of it is to be forgotten."""
        if any(text is not None and label_order(text) is None for text in (self.first, self.last)):
            raise OptionError("--from and --to are days or numbers of snapshots, as 2026-03-02", code="invalid_range")
        for pattern in self.patterns:
            if not any(fnmatchcase(stage.name, pattern) for stage in stages):
                known = ", ".join(sorted({f"{stage.flow}/*" for stage in stages}))
                raise OptionError(f"--select {pattern} names no stage: try one of {known}", code="unknown_stage")
        if not full_refresh:
            return
        for stage in stages:
            others = [other for other in stages if other.flow == stage.flow and other.step == stage.step == "deltas"]
            if others and self.takes(stage) and not all(map(self.takes, others)):
                raise OptionError(
                    f"--full-refresh takes whole tables: choose all of {stage.flow}, as --select {stage.flow}/*",
                    code="invalid_option_combination",
                )

    def _is_in_range(self, label: str) -> bool:
        if label_order(label) is None:
            return True  # what follows the snapshots as a whole: compaction, states, payloads, indexes
        here, first, last = (label_order(text or label) for text in (label, self.first, self.last))
        return not (first is None or here is None or last is None) and first <= here <= last


def failed_stages(last_run: dict[str, object] | None) -> frozenset[str]:
    """The stages of the last run that were not done."""
    stages = (last_run or {}).get("stages")
    entries = stages if isinstance(stages, list) else []
    return frozenset(entry["stage"] for entry in entries if entry["result"] in _NOT_DONE)


# Limits that gate, limits that warn, usual counts, and the age of data (pipeline §5).
class Judge:
    """Compares counts with limits, and with the history of earlier runs where a limit needs it."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def verdicts(self, stage: Stage, run: StageRun) -> list[tuple[Threshold, JudgedLimit]]:
        """Every limit of a stage that can be judged, with what was measured."""
        levels = (("fail", stage.gate), ("warn", stage.warn))
        pairs = [(level, limit) for level, limits in levels for limit in limits]
        if run.counts is None or run.record is None or not pairs:
            return []
        counts = dict(run.counts)
        if any(limit.count == AGE for _, limit in pairs):
            counts |= stage.measures()
            pairs = [(level, limit) for level, limit in pairs if limit.count != AGE or AGE in counts]
        found = []
        for level, limit in pairs:
            judged = self._with_history(limit, stage, run.record.finished_at)
            if judged is not None:
                words = judged.describe(counts)
                found.append((limit, JudgedLimit(stage.name, level, limit.text, words, judged.is_exceeded(counts))))
        return found

    def _with_history(self, limit: Threshold, stage: Stage, until: str) -> Threshold | None:
        return limit.against(self.usual_counts(stage.name, until)) if limit.of_usual else limit

    def usual_counts(self, stage: str, until: str) -> dict[str, Fraction]:
        """The medians of what the same step of the same table counted in runs that had ended well before.

        Only runs that ended before `until` count, so that a stage that is kept is judged as it was when it was done.
        """
        seen: dict[str, list[int]] = {}
        for ended_at, counted in self._history:
            for other, counts in counted if ended_at <= datetime.fromisoformat(until) else ():
                if other != stage and kind_of(other) == kind_of(stage):
                    for name, value in counts.items():
                        seen.setdefault(name, []).append(value)
        return {
            name: Fraction(median(values[:USUAL_RUNS])) for name, values in seen.items() if len(values) >= LEAST_RUNS
        }

    @cached_property
    def _history(self) -> list[tuple[datetime, list[tuple[str, Mapping[str, int]]]]]:
        """What stages counted in runs that ended well, newest first, with when the runs ended."""
        return [(_end_of(record), list(_counted(record))) for _, record in self._store.runs() if _ended_well(record)]


def kind_of(stage: str) -> tuple[str, str]:
    """The table and the step of a stage, whichever snapshot it is for."""
    flow, *_, step = stage.split("/")
    return flow, step


def _ended_well(record: Mapping[str, Any] | None) -> bool:
    return record is not None and record["result"] == "done"


def _end_of(record: Any) -> datetime:
    return datetime.fromisoformat(record["started_at"]) + timedelta(seconds=record["seconds"])


def _counted(record: Any) -> Iterator[tuple[str, Mapping[str, int]]]:
    for stage in reversed(record["stages"]):
        if stage["result"] == "done":
            yield stage["stage"], stage["counts"]
