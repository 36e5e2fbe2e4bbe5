"""Running a pipeline: ready stages side by side, each skipped if it is done and still true, else done and committed."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property
from statistics import median
from typing import Any

from driftline import core
from driftline.errors import Cancelled, DriftlineError, LockedError, OptionError, PipelineError
from driftline.pipeline._declare.declaration import Pipeline, state_directory
from driftline.pipeline._declare.snapshots import TableStages, find_snapshots, label_order
from driftline.pipeline._declare.tables import TableReader
from driftline.pipeline._run.records import JudgedLimit, RecordStore, RunRecord, StageRun, new_run_id, utc_now, versions
from driftline.pipeline._stages import outputs, own_stage
from driftline.pipeline._stages.diffs import changeset_stages, diff_stages
from driftline.pipeline._stages.lake import check_stages, compact_stages, load_stages, state_stages
from driftline.pipeline._stages.stage import Result, RunEngine, Stage, StageContext, StageRecord, changed_basis

_LABELS = "--from and --to are days, hours or numbers of snapshots, as 2026-03-02, 2026-03-02T05 or 7"
USUAL_RUNS, LEAST_RUNS = 7, 3
_NOT_DONE = frozenset({"failed", "blocked", "cancelled"})
StageListener = Callable[[StageRun], None]


def run_pipeline(
    pipeline: Pipeline,
    *,
    engine: str | None = None,
    master: str | None = None,
    tracker: core.Tracker | None = None,
    wait_seconds: float = 0.0,
    ignore_thresholds: bool = False,
    thorough: bool = False,
    full_refresh: bool = False,
    selection: Selection | None = None,
    on_start: Callable[[int], None] = lambda stages: None,
    on_stage: StageListener = lambda done: None,
) -> RunRecord:
    """Run a pipeline to its end and keep the record; a run of the same pipeline that is under way is waited for."""
    started, clock = utc_now(), time.monotonic()
    opened = engine_of(pipeline, engine, master)
    reader = TableReader(state_directory(pipeline) / "work")
    with locked(pipeline, wait_seconds) as check_lock, closing(opened) as run_engine, closing(reader) as tables:
        run = PipelineRun(
            pipeline,
            stage_graph(pipeline, tables, run_engine),
            tables,
            run_engine,
            tracker or core.Tracker(),
            selection or Selection(),
            full_refresh,
            ignore_thresholds,
            thorough,
            on_stage,
            check_lock,
        )
        on_start(len(run.stages))
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


def engine_of(pipeline: Pipeline, engine: str | None = None, master: str | None = None) -> RunEngine:
    """The engine of a run: what is given, else what the file declares."""
    requested = engine or pipeline.engine
    if pipeline.reads_catalogs:
        if requested == "local":
            words = f"{pipeline.file.name} reads tables of a Spark catalog, which engine local cannot: use engine spark"
            raise PipelineError(words, code="needs_spark")
        requested = "spark"
    named = requested, master or pipeline.master
    return RunEngine(*named, memory=pipeline.memory, parallel=pipeline.parallel, settings=pipeline.spark)


# The stages of a whole pipeline, in an order in which each comes after what it needs.
# What nothing is declared for is not imported: half of the time of a run that has nothing to do.
def _of_changes(plan: TableStages) -> Iterator[Stage]:
    if plan.flow.changes is not None:
        from driftline.pipeline._stages.changes import change_stages

        yield from change_stages(plan)
        yield from check_stages(plan)


def _own_stages(plan: TableStages) -> Iterator[Stage]:
    for key, declared in plan.flow.own.items():
        yield from own_stage(key).stages(plan, declared)  # type: ignore[union-attr]


# The stages of a table in the order of the data: compare snapshots, load the lake, compact, write states, changesets,
# and what stages in files of their own do with any of it.
STAGES_OF_A_TABLE: tuple[Callable[[TableStages], Iterator[Stage]], ...] = (
    diff_stages,
    load_stages,
    _of_changes,
    compact_stages,
    state_stages,
    changeset_stages,
    _own_stages,
)


def stage_graph(pipeline: Pipeline, tables: TableReader, engine: RunEngine) -> list[Stage]:
    """Every stage; two that write the same file are refused."""
    state = state_directory(pipeline)
    if pipeline.reads_catalogs:
        engine.session()  # its catalogs know which snapshots there are
    found = [(flow, tuple(find_snapshots(pipeline, flow))) for flow in pipeline.tables]
    plans = [TableStages(pipeline, *snapshots, state, tables) for snapshots in found]
    stages = [stage for plan in plans for make in STAGES_OF_A_TABLE for stage in make(plan)]
    if pipeline.payloads or pipeline.indexes:
        from driftline.pipeline._stages.flows import flow_stages

        stages += flow_stages(pipeline)
    owners: dict[core.Location, str] = {}
    for stage in stages:
        for place in stage.outputs.values():
            if place in owners:
                raise PipelineError(
                    f"{pipeline.file.name}: {owners[place]} and {stage.name} both write {pipeline.shown(place)}"
                )
            owners[place] = stage.name
    return stages


def failed_before_start(pipeline: Pipeline, error: DriftlineError) -> RunRecord:
    """The record of a run that could not start, for hooks and metrics; it is not stored."""
    result = "locked" if isinstance(error, LockedError) else "failed"
    words = f"{error.code}: {error.message}"
    return RunRecord(
        new_run_id(), pipeline.name, utc_now(), 0.0, pipeline.engine, result, (), (), versions(), problem=words
    )


@contextmanager
def locked(pipeline: Pipeline, wait_seconds: float) -> Iterator[Callable[[], None]]:
    """Hold the pipeline's lock: two runs of one pipeline never work at the same time.

    What is given raises once the lock is lost, which happens to leases in stores.
    """
    state = state_directory(pipeline)
    with core.io_errors(pipeline.shown(state)):
        state.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            check = stack.enter_context(core.file_lock(state / "lock", scope=pipeline.name, wait_seconds=wait_seconds))
        except LockedError as error:
            who = error.message.partition(": ")[0].partition(" is held ")[2]
            raise LockedError(
                f"pipeline {pipeline.name} is already running ({who}): --wait SECONDS waits for it"
            ) from error
        # All workers of a cluster see the state directory, so what they exchange is stored there; a sweep empties it.
        work = state / "work"
        if not isinstance(work, core.ObjectPath):
            work.mkdir(exist_ok=True)
        stack.enter_context(core.shared_location(str(work)))
        yield check


@dataclass(frozen=True, slots=True)
class Freshness:
    """What is known of a stage before it runs: its record, what it rests on, and why it has to run, if it has to."""

    known: StageRecord | None
    key: str
    basis: Mapping[str, Any]
    why: str | None


@dataclass(eq=False)
class PipelineRun:
    """One run, under the pipeline's lock; a dry run looks at the stages only."""

    pipeline: Pipeline
    stages: list[Stage]
    tables: TableReader
    engine: RunEngine
    tracker: core.Tracker
    selection: Selection
    full_refresh: bool
    ignore_thresholds: bool = False
    thorough: bool = False
    on_stage: StageListener = lambda done: None
    check_lock: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.selection.check(self.stages, full_refresh=self.full_refresh)
        self.state = state_directory(self.pipeline)
        self.store = RecordStore(self.state)
        self.fingerprints = outputs.FingerprintCache(self.pipeline, self.state, self.tables)
        self.runs: dict[str, StageRun] = {}
        self._limits: dict[str, list[JudgedLimit]] = {}
        self._gating: set[str] = set()

    def run(self) -> None:
        """Every stage once; what fails takes down only what needs it."""
        self.engine.input_bytes = outputs.bytes_of({path for stage in self.stages for path in stage.sources})
        outputs.sweep_state(self.state)
        outputs.sweep(self.pipeline, [place for stage in self.stages for place in stage.outputs.values()])
        sizes = Counter[str]()
        for stage in self.stages:
            sizes[stage.flow] += outputs.bytes_of(set(stage.sources))
        waiting = sorted(self.stages, key=lambda stage: -sizes[stage.flow])  # what takes longest must not come last
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
            is_ready = all(other in self.runs for other in (*stage.needs, *stage.waits_for, *stage.after))
            if is_ready and (hindrance := self._hindrance(stage)) is not None:
                self._note(stage, hindrance)
            elif is_ready and len(running) < self.engine.parallel:
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
                is_selected = result == "skipped" and self.selection.takes(stage)
                become: Result = "blocked" if result == "failed" or is_selected else result
                words = ", which is not selected and not fresh" if is_selected else ""
                return StageRun(stage.name, become, problem=f"needs {results[result]}{words}")
        if not self.ignore_thresholds and self._gating.intersection(needs):
            return StageRun(stage.name, "gated", problem="a threshold was exceeded")
        return None

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
        verdicts = self._verdicts(stage, run)
        self._limits[stage.name] = [judged for _, judged in verdicts]
        if any(judged.exceeded and judged.level == "fail" and limit.count != core.AGE for limit, judged in verdicts):
            self._gating.add(stage.name)  # old data are no wrong data: an age holds nothing back
        self.on_stage(run)

    def _one(self, stage: Stage) -> StageRun:
        started_at, started = utc_now(), time.monotonic()
        try:
            self.tracker.check()
            run = self._done_or_kept(stage, started)
        except Exception as error:  # noqa: BLE001 - whatever fails, the other stages go on
            if isinstance(error, Cancelled) or self.tracker.cancelled:  # or an engine was ended in its work
                run = StageRun(stage.name, "cancelled")
            else:
                run = StageRun(stage.name, "failed", problem=_words(error, stage))
        seconds = 0.0 if run.result == "skipped" else time.monotonic() - started
        return replace(run, started_at=started_at, seconds=seconds)

    def _done_or_kept(self, stage: Stage, started: float) -> StageRun:
        context = self._context(stage)
        verdict = self.look(stage, context)
        if verdict.why is None:
            assert verdict.known is not None
            return StageRun(stage.name, "kept", counts=verdict.known.counts, record=verdict.known)
        if not self.selection.takes(stage):
            return StageRun(stage.name, "skipped", problem=f"not selected ({verdict.why})")
        self.store.remove_stage(stage.name)
        try:
            outcome = stage.action(context)
            for path in stage.sources:
                for file in outputs.places_below(path):
                    self.fingerprints.check(file)
            self.check_lock()
            files = context.outputs.commit()
        finally:
            context.outputs.discard()
        read = [entry for path in stage.sources for entry in context.sources[path]]
        inputs = tuple({"path": each.path, "size": each.size, "fingerprint": each.content} for each in read)
        seconds, counts = round(time.monotonic() - started, 3), dict(outcome.counts)
        made = (stage.name, verdict.key, counts, dict(outcome.facts), inputs, files)
        record = StageRecord(*made, seconds, utc_now(), verdict.basis)
        self.check_lock()
        self.store.keep_stage(record)
        return StageRun(stage.name, "done", 0.0, counts, None, record, verdict.why, tuple(outcome.notes))

    def look(self, stage: Stage, context: StageContext | None = None) -> Freshness:
        """Whether a stage has to run, and why; the stages that it needs have been looked at."""
        context = context or self._context(stage)
        sources = {self.pipeline.shown(path): context.fingerprint_of(path) for path in stage.sources}
        basis = stage.basis(sources, {name: context.needed[name].digest for name in stage.needs})
        known = self.store.stage(stage.name)
        return Freshness(known, stage.key(basis), basis, self._why(stage, context, known, basis))

    def _why(
        self, stage: Stage, context: StageContext, known: StageRecord | None, basis: Mapping[str, Any]
    ) -> str | None:
        """Why a stage has to run; None where what is there still holds."""
        if known is None:
            return "first run"
        if self.full_refresh and self.selection.takes(stage):
            return "everything is to be done again"
        if known.key != stage.key(basis):
            return changed_basis(known.basis, basis)
        for role, place in stage.outputs.items():  # the file, or files of the folder
            shown = f"{self.pipeline.shown(place)}/"
            if not any(each.role == role and f"{each.path}/".startswith(shown) for each in known.outputs):
                return "an output is declared elsewhere"
        for each in known.outputs:
            if not outputs.is_there(self.pipeline.place(each.path), each, self.thorough):
                return f"{each.path} is missing or was changed"
        still_there = stage.is_fresh(context, known.facts)
        return None if still_there else "the lake or registry no longer holds what it left there"

    def _context(self, stage: Stage) -> StageContext:
        tracker = self.tracker.branch(stage.name)
        files = {path: outputs.places_below(path) for path in stage.sources}
        take = self.fingerprints.take
        sources = {path: tuple(take(file, tracker) for file in below) for path, below in files.items()}
        needed = {name: record for name in stage.needs if (record := self.runs[name].record) is not None}
        written = outputs.Outputs(self.pipeline, stage)
        return StageContext(
            self.pipeline, stage, self.state, self.engine, tracker, written, needed, sources, self.full_refresh
        )

    # Limits that gate, limits that warn, usual counts, and the age of data (pipeline §5).
    def _verdicts(self, stage: Stage, run: StageRun) -> list[tuple[core.Threshold, JudgedLimit]]:
        """Every limit of a stage that can be judged, with what was measured."""
        pairs = [*(("fail", limit) for limit in stage.gate), *(("warn", limit) for limit in stage.warn)]
        if run.counts is None or run.record is None or not pairs:
            return []
        counts = dict(run.counts)
        if any(limit.count == core.AGE for _, limit in pairs):
            counts |= stage.measures()
        found = []
        for level, limit in pairs:
            usual = self._usual_counts(stage.name, run.record.finished_at) if limit.of_usual else None
            judged = limit if usual is None else limit.against(usual)
            if judged is not None and (limit.count != core.AGE or core.AGE in counts):
                words = judged.describe(counts)
                found.append((limit, JudgedLimit(stage.name, level, limit.text, words, judged.is_exceeded(counts))))
        return found

    def _usual_counts(self, stage: str, until: str) -> dict[str, Fraction]:
        """The medians of what the same step of the same table counted in runs that had ended well before.

        Only runs that ended before `until` count, so that a stage that is kept is judged as it was when it was done.
        """
        seen: dict[str, list[int]] = {}
        flow, *_, step = stage.split("/")
        for ended_at, counted in self._history:
            for other, counts in counted if ended_at <= datetime.fromisoformat(until) else ():
                if other != stage and other.split("/")[0] == flow and other.split("/")[-1] == step:
                    for name, value in counts.items():
                        seen.setdefault(name, []).append(value)
        return {
            name: Fraction(median(values[:USUAL_RUNS])) for name, values in seen.items() if len(values) >= LEAST_RUNS
        }

    @cached_property
    def _history(self) -> list[tuple[datetime, list[tuple[str, Mapping[str, int]]]]]:
        """What stages counted in runs that ended well, newest first, with when the runs ended."""
        found = []
        for _, record in self.store.runs():
            if record is not None and record["result"] == "done":
                end = datetime.fromisoformat(record["started_at"]) + timedelta(seconds=record["seconds"])
                done = [each for each in reversed(record["stages"]) if each["result"] == "done"]
                found.append((end, [(each["stage"], each["counts"]) for each in done]))
        return found


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
        explained = core.explain_os_error(error, f"the output of {stage.name}")
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
        here = label_order(stage.label)
        if here is None:
            return True  # what follows the snapshots as a whole: compaction, states, payloads, indexes
        first, last = (label_order(text) if text else here for text in (self.first, self.last))
        if first is None or last is None:
            return False
        return first <= here and (here[0], here[1][: len(last[1])]) <= last  # a day has its hours

    def check(self, stages: Sequence[Stage], *, full_refresh: bool) -> None:
        """Refuse a choice of nothing, and half a table where all of it is to be forgotten."""
        if any(text is not None and label_order(text) is None for text in (self.first, self.last)):
            raise OptionError(_LABELS, code="invalid_range")
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


def failed_stages(last_run: core.JsonObject | None) -> frozenset[str]:
    """The stages of the last run that were not done."""
    stages = (last_run or {}).get("stages", ())
    return frozenset(stage["stage"] for stage in stages if stage["result"] in _NOT_DONE)


# What a run would do, and why: for every stage run or keep, the reason, how much, how long (pipeline §3).
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

    def to_dict(self) -> core.JsonObject:
        """The stage as plain data."""
        plain = asdict(self)
        del plain["delivers"]
        plain["expectedSeconds"] = plain.pop("seconds")
        return plain


def dry_run(
    pipeline: Pipeline, selection: Selection | None = None, *, full_refresh: bool = False
) -> list[PlannedStage]:
    """The plan of a run that would start now; sources that changed are read, and nothing is written."""
    with closing(engine_of(pipeline)) as engine, closing(TableReader()) as tables:
        stages = stage_graph(pipeline, tables, engine)
        run = PipelineRun(pipeline, stages, tables, engine, core.no_progress(), selection or Selection(), full_refresh)
        known = {stage.name: kept.seconds for stage in run.stages if (kept := run.store.stage(stage.name)) is not None}
        kinds: dict[str, list[float]] = {}  # of steps, for stages that were never done
        for name, seconds in known.items():
            kinds.setdefault(name.rpartition("/")[2], []).append(seconds)
        usual = {**{kind: round(median(times), 3) for kind, times in kinds.items()}, **known}
        return [_planned(run, stage, usual) for stage in stages]


def _planned(run: PipelineRun, stage: Stage, usual: Mapping[str, float]) -> PlannedStage:
    plan, why = _verdict(run, stage)
    places, shown = stage.outputs.values(), run.pipeline.shown
    return PlannedStage(
        stage.name,
        plan,
        why,
        stage.needs,
        tuple(map(shown, stage.sources)),
        tuple(map(shown, places)),
        outputs.bytes_of(set(stage.sources)),
        usual.get(stage.name, usual.get(stage.step)) if plan == "run" else None,
        tuple(shown(path) for path in places if run.state not in tuple(path.parents)),
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
