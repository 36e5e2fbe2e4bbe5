"""A stage: one step of a pipeline with what it reads, needs and writes, and the function that does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from driftline.canonical import canonical_json, sha256_hex
from driftline.thresholds import Threshold

if TYPE_CHECKING:
    from driftline.pipeline.declaration import Pipeline
    from driftline.pipeline.engine import RunEngine
    from driftline.pipeline.fingerprints import FileFingerprint
    from driftline.pipeline.outputs import Outputs
    from driftline.progress import Tracker

CACHE_VERSION = (
    2  # raised when the same inputs give other results than before, so that records of older runs no longer hold
)

# done: it ran; kept: done before and still true; failed: it raised; blocked: it needs one that failed;
# gated: a threshold before it was exceeded; cancelled: the run was stopped before it
Result = Literal["done", "kept", "failed", "blocked", "gated", "cancelled"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action reports: counts for people and thresholds, facts for the stages behind it."""

    counts: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


Action = Callable[["StageContext"], Outcome]
Check = Callable[["StageContext", Mapping[str, Any]], bool]


def always_fresh(context: StageContext, facts: Mapping[str, Any]) -> bool:
    """For stages whose result is their files alone."""
    return True


@dataclass(frozen=True, slots=True)
class Stage:
    """One step.

    `after` names stages that it rather follows than runs beside, whatever becomes of them: what they parsed waits for
    it. `extra_inputs` tell what it reads beside plain files; `is_fresh` asks the world outside its files (a lake, a
    registry) whether the result still holds.
    """

    name: str
    action: Action
    needs: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()
    outputs: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    gate: tuple[Threshold, ...] = ()
    extra_inputs: Callable[[], Mapping[str, Any]] = dict
    is_fresh: Check = always_fresh
    after: tuple[str, ...] = ()

    @property
    def flow(self) -> str:
        """The table, payload set or index it belongs to."""
        return self.name.partition("/")[0]

    def key(self, sources: list[str], needs: list[str]) -> str:
        """Equal keys, equal results: a hash of what is read, what is declared and what the needed stages made."""
        parts = {
            "version": CACHE_VERSION,
            "stage": self.name,
            "options": dict(self.options),
            "sources": sources,
            "extra_inputs": dict(self.extra_inputs()),
            "needs": needs,
            "outputs": sorted(self.outputs),
        }
        return sha256_hex(canonical_json(parts))


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
    state: Path
    engine: RunEngine
    tracker: Tracker
    outputs: Outputs
    needed: Mapping[str, StageRecord]
    sources: Mapping[Path, tuple[FileFingerprint, ...]]
    full_refresh: bool = False

    def made(self, stage: str, role: str) -> Path:
        """A file that a needed stage committed."""
        found = next(output for output in self.needed[stage].outputs if output.role == role)
        return self.pipeline.place(found.path)

    def fingerprint_of(self, path: Path) -> str:
        """The fingerprint of a source of this stage."""
        return ",".join(entry.content for entry in self.sources[path])
