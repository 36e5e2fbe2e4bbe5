"""A table of a pipeline with the snapshots that were found for it: names, places and doors that its stages share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.lake import Lake
from driftline.lake.ledger import Ledger, read_ledger
from driftline.pipeline.declaration import Pipeline, TableFlow
from driftline.pipeline.snapshots import Snapshot, fill
from driftline.tables.options import DiffOptions, check_options


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A table with the snapshots that were found for it."""

    pipeline: Pipeline
    flow: TableFlow
    snapshots: tuple[Snapshot, ...]
    state: Path

    def pairs(self) -> list[tuple[Snapshot, Snapshot]]:
        """Each snapshot with the one before it."""
        return list(zip(self.snapshots, self.snapshots[1:], strict=False))

    def name(self, label: str, step: str) -> str:
        """The name of a stage."""
        return f"{self.flow.name}/{label}/{step}"

    def target(self, path: str, before: Snapshot, after: Snapshot) -> Path:
        """Where a target of one comparison lies."""
        return self.pipeline.place(fill(path, table=self.flow.name, before=before.label, after=after.label))

    def ledger(self) -> Ledger:
        """What the lake holds of this table."""
        return read_ledger(self.lake(), self.flow.name)

    def lake(self) -> Lake:
        """The lake of the pipeline."""
        assert self.pipeline.lake is not None
        path = self.pipeline.lake.path
        return Lake(path if "://" in path else str(self.pipeline.place(path)))

    def lake_options(self) -> dict[str, Any]:
        """What is declared about the lake, for the keys of stages."""
        assert self.pipeline.lake is not None
        return {"path": self.pipeline.lake.path, "client_id": self.pipeline.lake.client_id}

    def diff_options(self) -> DiffOptions:
        """The rules of its comparisons, checked."""
        return check_options(**self.flow.rules())
