"""Which stages of a pipeline a run is to do: by name, by day, or what failed the last time (pipeline §4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from driftline.errors import OptionError
from driftline.pipeline.snapshots import label_order
from driftline.pipeline.stages import Stage

_NOT_DONE = frozenset({"failed", "blocked", "cancelled"})


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
