"""What the tasks of a table diff report, gathered on the driver: facts, and where the events are."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from driftline.core._files import explain_io_errors
from driftline.errors import DriftlineError
from driftline.sources._source import SplitSide
from driftline.spark.ordered_files import OrderedPart
from driftline.spark.table_diff_tasks import FACT, PART, BucketFact, ChangesFact
from driftline.tables._columns import Comparison, Side
from driftline.tables._events import Stats
from driftline.tables._kernels.stages import HashedSide, HashedSplit, TablePlan, total_stats


@dataclass
class Findings:
    """Facts by split and bucket, and the parts of the output."""

    hashed: dict[tuple[str, int], HashedSplit] = field(default_factory=dict)
    buckets: list[BucketFact] = field(default_factory=list)
    changes: list[tuple[int, ...]] = field(default_factory=list)
    errors: list[tuple[str, int, DriftlineError]] = field(default_factory=list)
    parts: list[OrderedPart] = field(default_factory=list)

    def stats(self, plan: TablePlan, a: HashedSide, b: HashedSide) -> Stats:
        """The counts of all buckets together."""
        return total_stats((bucket.stats for bucket in self.buckets), plan, a, b)

    def column_changes(self, compared: Comparison) -> dict[str, int]:
        """How often each compared column changed."""
        totals = [sum(counts) for counts in zip(*self.changes, strict=True)] if self.changes else []
        return dict(zip((column.a for column in compared.columns), totals, strict=False))

    @property
    def collided(self) -> bool:
        """Whether two different keys had the same hash."""
        return any(bucket.collided for bucket in self.buckets)

    def raise_error(self) -> None:
        """Raise the first error of a task, by side and split."""
        for _, _, error in sorted(self.errors, key=lambda one: one[:2]):
            raise error

    def side(self, side: Side, layout: SplitSide) -> HashedSide:
        """The facts of one side, split after split."""
        found = HashedSide(side, layout)
        for number in range(len(layout.splits)):
            found.note(self.hashed[side, number])
        return found

    def note(self, fact: Any, side: str, number: int) -> None:
        """Take a fact into account."""
        if isinstance(fact, DriftlineError):
            self.errors.append((side, number, fact))
        elif isinstance(fact, HashedSplit):
            self.hashed[side, number] = fact
        elif isinstance(fact, ChangesFact):
            self.changes += fact.counts
        else:
            self.buckets.append(fact)


def gather(rows: Iterable[Any], spool: Path) -> Findings:
    """Take what the last tasks send; event lines, where they come, are appended to the file `spool`."""
    findings = Findings()
    stream: BinaryIO | None = None
    try:
        for row in rows:
            if row["kind"] == FACT:
                findings.note(_unpickled(row["blob"]), row["side"], row["number"])
            elif row["kind"] == PART:
                findings.parts.append(_unpickled(row["blob"]))
            else:
                with explain_io_errors(spool):
                    stream = stream or open(spool, "wb")  # noqa: SIM115 - closed below
                    findings.parts.append(OrderedPart(row["target"], str(spool), stream.tell(), len(row["blob"])))
                    stream.write(row["blob"])
    finally:
        if stream is not None:
            stream.close()
    return findings


def _unpickled(blob: bytes | bytearray) -> Any:
    return pickle.loads(blob)  # noqa: S301 - made by our own tasks
