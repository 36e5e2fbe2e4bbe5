"""A stage: one step of a pipeline with what it reads, needs and writes, and the function that does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from driftline.canonical import canonical_json, sha256_hex
from driftline.pipeline.thresholds import Threshold

if TYPE_CHECKING:
    from driftline.pipeline.workbench import Workbench

MEANING = 1  # raised when the same inputs give other results than before, so that records of older runs no longer hold

# done: it ran; kept: done before and still true; failed: it raised; blocked: it needs one that failed;
# held: a threshold before it was exceeded; cancelled: the run was stopped before it
Result = Literal["done", "kept", "failed", "blocked", "held", "cancelled"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action reports: counts for people and thresholds, facts for the stages behind it."""

    counts: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


Action = Callable[["Workbench"], Outcome]
Check = Callable[["Workbench", Mapping[str, Any]], bool]


def always_true(bench: Workbench, facts: Mapping[str, Any]) -> bool:
    """For stages whose result is their files alone."""
    return True


@dataclass(frozen=True, slots=True)
class Stage:
    """One step.

    `after` names stages that it rather follows than runs beside, whatever becomes of them: what they parsed waits for
    it. `marks` tell what it reads beside plain files; `still_true` asks the world outside its files (a lake, a
    registry) whether the result still holds.
    """

    name: str
    action: Action
    needs: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()
    outputs: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    gate: tuple[Threshold, ...] = ()
    marks: Callable[[], Mapping[str, Any]] = dict
    still_true: Check = always_true
    after: tuple[str, ...] = ()

    @property
    def flow(self) -> str:
        """The table, payload set or index it belongs to."""
        return self.name.partition("/")[0]

    def key(self, sources: list[str], needs: list[str]) -> str:
        """Equal keys, equal results: a hash of what is read, what is declared and what the needed stages made."""
        parts = {
            "meaning": MEANING,
            "stage": self.name,
            "options": dict(self.options),
            "sources": sources,
            "marks": dict(self.marks()),
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
