"""What a stage works with: the pipeline, its outputs, what the stages before it made, and an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driftline.pipeline.declaration import Pipeline
from driftline.pipeline.engine import RunEngine
from driftline.pipeline.outputs import Outputs
from driftline.pipeline.prints import FilePrint
from driftline.pipeline.stages import Stage, StageRecord
from driftline.progress import Tracker


@dataclass(frozen=True)
class Workbench:
    """Handed to a stage's action."""

    pipeline: Pipeline
    stage: Stage
    state: Path
    engine: RunEngine
    tracker: Tracker
    outputs: Outputs
    needed: Mapping[str, StageRecord]
    sources: Mapping[Path, tuple[FilePrint, ...]]
    full_refresh: bool = False

    def made(self, stage: str, role: str) -> Path:
        """A file that a needed stage committed."""
        found = next(output for output in self.needed[stage].outputs if output.role == role)
        return self.pipeline.place(found.path)

    def print_of(self, path: Path) -> str:
        """The fingerprint of a source of this stage."""
        return ",".join(entry.content for entry in self.sources[path])
