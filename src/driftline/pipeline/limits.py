"""Judging what stages counted: limits that gate, limits that warn, what is usual, how old data are (pipeline §5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from statistics import median
from typing import Any

from driftline.core._thresholds import AGE, Threshold
from driftline.pipeline.records import JudgedLimit, RecordStore, StageRun
from driftline.pipeline.stages import Stage

USUAL_RUNS, LEAST_RUNS = 7, 3


class Judge:
    """Holds counts against limits, with the history of earlier runs where a limit asks for it."""

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
