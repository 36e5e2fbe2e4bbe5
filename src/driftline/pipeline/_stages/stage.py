"""A stage: one step of a pipeline with its inputs, outputs and function; the engine that the stages of a run share."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from driftline.core import (
    JsonObject,
    Threshold,
    canonical_json,
    check_engine,
    choose_engine,
    sha256_hex,
    spark_settings,
)
from driftline.tables import TableDiffJob, choose_engine as choose_table_engine, default_limit

if TYPE_CHECKING:
    from driftline.core import Location, Tracker
    from driftline.pipeline._declare.declaration import Pipeline, Place
    from driftline.pipeline._stages.outputs import FileFingerprint, Outputs

CACHE_VERSION = 2  # raised when the same inputs give other results, so that records of older runs no longer hold
# done: it ran; kept: done before and still true; failed: it raised; blocked: it needs one that failed;
# gated: a threshold before it was exceeded; cancelled: the run was stopped before it; skipped: not selected, not fresh
Result = Literal["done", "kept", "failed", "blocked", "gated", "cancelled", "skipped"]
_SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action reports: counts for reports and thresholds, facts for the stages after it."""

    counts: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()  # for the operator


Action = Callable[["StageContext"], Outcome]
Check = Callable[["StageContext", Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Stage:
    """One step.

    `after` names stages that it rather follows than runs beside, whatever becomes of them: what they parsed waits for
    it. `waits_for` must have ended well, but it does not rest on what they made. `extra_inputs` tell what it reads
    beside plain files; `history` is a digest of what the lake went through, on which it rests instead of the results of
    its needs; `is_fresh` checks what is outside of its files (a lake, a registry): whether the result is up to date.
    `measures` are what limits ask about the present, such as an age.
    """

    name: str
    action: Action
    needs: tuple[str, ...] = ()
    sources: tuple[Place, ...] = ()
    outputs: Mapping[str, Location] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    gate: tuple[Threshold, ...] = ()
    warn: tuple[Threshold, ...] = ()
    extra_inputs: Callable[[], Mapping[str, Any]] = dict
    history: Callable[[], str] | None = None
    is_fresh: Check = lambda context, facts: True
    after: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    part_folders: frozenset[str] = frozenset()  # outputs that are folders of ordered parts
    measures: Callable[[], Mapping[str, int]] = dict

    @property
    def flow(self) -> str:
        """The table, payload set or index it belongs to."""
        return self.name.partition("/")[0]

    @property
    def label(self) -> str:
        """The snapshot it belongs to, or what follows them as a whole."""
        return self.name.split("/")[1]

    @property
    def step(self) -> str:
        """What it does."""
        return self.name.rpartition("/")[2]

    def basis(self, sources: Mapping[str, str], needs: Mapping[str, str]) -> JsonObject:
        """What its result follows from: what is read, what is declared, and what the needed stages made."""
        history = {} if self.history is None else {"the load history of the lake": self.history()}
        return {
            "version": CACHE_VERSION,
            "options": dict(self.options),
            "sources": dict(sources),
            "extra_inputs": {**self.extra_inputs(), **history},
            "needs": {} if history else dict(needs),
            "outputs": sorted(self.outputs),
        }

    def key(self, basis: Mapping[str, Any]) -> str:
        """Equal keys, equal results: a hash of the basis; where sources lie does not matter."""
        parts = {**basis, "stage": self.name}
        parts["sources"], parts["needs"] = list(basis["sources"].values()), list(basis["needs"].values())
        return sha256_hex(canonical_json(parts))


def changed_basis(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between two bases, in words."""
    if before.get("version") != now["version"]:
        return "this version of driftline gives other results"
    words = {
        "sources": "{} changed",
        "options": "option {!r} changed",
        "needs": "{} gave another result",
        "extra_inputs": "{} changed",
    }
    found = []
    for part, form in words.items():
        old, new = before.get(part, {}), now[part]
        found += [form.format(name) for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(found) or "another output is declared"


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that a stage committed."""

    role: str
    path: str
    size: int
    checksum: str
    modified_ns: int


@dataclass(frozen=True, slots=True)
class StageRecord:
    """What is kept about a stage that was done: why it was right, and what it left behind."""

    stage: str
    key: str
    counts: Mapping[str, int]
    facts: Mapping[str, Any]
    inputs: tuple[Mapping[str, Any], ...]
    outputs: tuple[OutputFile, ...]
    seconds: float
    finished_at: str
    basis: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Equal results, equal digests: what the stages behind it depend on."""
        files = [[output.role, output.checksum] for output in self.outputs]
        return sha256_hex(canonical_json([self.stage, files, dict(self.facts)]))


@dataclass(frozen=True)
class StageContext:
    """Handed to a stage's action."""

    pipeline: Pipeline
    stage: Stage
    state: Location
    engine: RunEngine
    tracker: Tracker
    outputs: Outputs
    needed: Mapping[str, StageRecord]
    sources: Mapping[Place, tuple[FileFingerprint, ...]]
    full_refresh: bool = False

    def made(self, stage: str, role: str) -> Location:
        """A file that a needed stage committed."""
        found = next(output for output in self.needed[stage].outputs if output.role == role)
        return self.pipeline.place(found.path)

    def fingerprint_of(self, path: Place) -> str:
        """The fingerprint of a source of this stage."""
        return ",".join(entry.content for entry in self.sources[path])


class RunEngine:
    """The engine of one run: this machine, or a Spark session, opened at its first use and shared by all stages."""

    def __init__(
        self,
        requested: str,
        master: str | None,
        *,
        memory: int | None,
        parallel: int,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        check_engine(requested, master)
        self.requested = _SPARK if master is not None and requested == "auto" else requested
        self.master = master
        self._settings = settings or {}
        self.memory = memory or default_limit() // parallel  # stages that run side by side share the machine
        self.parallel = parallel
        self.input_bytes = 0
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._session: Any = None
        self.used: set[str] = set()

    def choose(self, job: TableDiffJob) -> str:
        """The engine for a table diff; a Spark session is up when it says so."""
        name = choose_table_engine(self.requested, job).name
        self.used.add(name)
        if name == _SPARK:
            self.session()
        return name

    @property
    def is_spark(self) -> bool:
        """Whether folds and batches run on Spark: requested, configured, in use already, or large inputs."""
        if self.requested == "auto" and self._session is not None:
            return True
        return (
            choose_engine("lake", self.requested, sizes=lambda: [self.input_bytes], master=self.master).name == _SPARK
        )

    def session(self) -> Any:
        """The one Spark session of the run."""
        from driftline.spark import open_session

        with self._lock:
            if self._session is None:
                self.used.add(_SPARK)
                settings = {**self._settings, **spark_settings()}  # those of the command win over those of the file
                opened = open_session(self.master, app_name="driftline pipeline", config=settings)
                self._session = self._stack.enter_context(opened)
            return self._session

    def abandon(self, wish: BaseException) -> None:
        """Stop at once: a session of this run is closed with the tasks that still run in it."""
        with contextlib.suppress(type(wish)):
            self._stack.__exit__(type(wish), wish, None)

    def close(self) -> None:
        """End the session, if there is one."""
        self._stack.close()
        self._session = None

    def __str__(self) -> str:
        return "+".join(sorted(self.used)) or self.requested
