"""Which snapshots of a table the lake holds: one entry a snapshot, and the load that is under way.

A load is written down here before its first delta is committed (with its timestamps, the name of its transaction and a
copy of its events) and ticked off when its last one is in. So a load that was killed goes on as it began, and a
snapshot that changed after it was loaded can be corrected: the events that went in before are known.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from backports import zstd

from driftline.canonical import sha256_hex
from driftline.deltas.clock import COUNTER_BITS, MAX_HLC
from driftline.errors import PipelineError
from driftline.files import read_lines, write_atomically

REVISION_MS = 1000  # corrections of one snapshot are stamped a second apart, so that the newest wins


@dataclass(frozen=True, slots=True)
class Load:
    """One snapshot in the lake. `events` are copies of what was loaded for it, one for each revision."""

    label: str
    snapshot: str
    previous: str | None
    previous_revision: int
    source: str
    start: int
    revision: int
    by_comparison: bool = False  # its rows were found by comparing the whole snapshot with the lake
    events: tuple[str, ...] = ()
    finished: bool = False
    deltas: int = 0
    pieces: int = 0

    def transaction(self, piece: int) -> str:
        """The application transaction under which a piece of this revision is committed to the lake."""
        content = sha256_hex(f"{self.snapshot} {self.source} {self.previous_revision}")[:12]
        return f"load:{self.label}:{self.revision}:{content}:{piece}"

    @property
    def first_hlc(self) -> int:
        """The timestamp of this revision's first delta."""
        return self.start + ((self.revision * REVISION_MS) << COUNTER_BITS)


class LoadChain:
    """The loads of one table, in order; kept in a directory of the pipeline's state."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file = directory / "loads.json"
        self.loads = self._read()

    def find(self, label: str) -> Load | None:
        """The load of a snapshot."""
        return next((load for load in self.loads if load.label == label), None)

    def find_content(self, snapshot: str) -> Load | None:
        """The newest load of a snapshot with this fingerprint."""
        return next((load for load in reversed(self.loads) if load.snapshot == snapshot), None)

    @property
    def last(self) -> Load | None:
        """The load of the newest snapshot."""
        return self.loads[-1] if self.loads else None

    def keep(self, load: Load) -> None:
        """Write a load down, in its place or at the end."""
        places = [place for place, known in enumerate(self.loads) if known.label == load.label]
        if places:
            self.loads[places[0]] = load
        else:
            self.loads.append(load)
        self._write()

    def finish(self, load: Load, deltas: int, pieces: int) -> Load:
        """Tick a load off."""
        done = replace(load, finished=True, deltas=deltas, pieces=pieces)
        self.keep(done)
        return done

    def clear(self) -> None:
        """Forget everything: the lake is gone."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.loads = []

    def end_of(self, label: str) -> int:
        """The last timestamp that belongs to a snapshot."""
        labels = [load.label for load in self.loads]
        place = labels.index(label)
        return self.loads[place + 1].start - 1 if place + 1 < len(labels) else MAX_HLC

    def copy_events(self, label: str, revision: int, events: Path) -> str:
        """Keep the events of a load, compressed; the name of the copy."""
        name = f"{label}.{revision}.jsonl.zst"
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / f".{name}.part"
        with open(events, "rb") as source, zstd.open(temporary, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        temporary.replace(self.directory / name)
        return name

    def events_of(self, load: Load) -> Iterator[dict[str, Any]]:
        """Every event that was loaded for a snapshot, in all revisions."""
        for name in load.events:
            for line in read_lines(self.directory / name):
                yield json.loads(line)

    def touched(self, label: str) -> dict[str, Any]:
        """The rows that corrections of a snapshot set, by row id; None is a removed row."""
        path = self._touched_path(label)
        if not path.exists():
            return {}
        return {entry[0]: entry[1] for entry in map(json.loads, read_lines(path))}

    def keep_touched(self, label: str, rows: dict[str, Any]) -> None:
        """Remember the rows that a correction set: the next snapshot's rows may rest on them."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps([row_id, row], ensure_ascii=False).encode() + b"\n" for row_id, row in sorted(rows.items()))
        write_atomically(self._touched_path(label), b"".join(lines))

    def _touched_path(self, label: str) -> Path:
        return self.directory / f"{label}.touched.jsonl"

    def _read(self) -> list[Load]:
        if not self._file.exists():
            return []
        try:
            entries = json.loads(self._file.read_bytes())
            return [Load(**{**entry, "events": tuple(entry["events"])}) for entry in entries]
        except (ValueError, TypeError, KeyError) as error:
            raise PipelineError(
                f"the record of loads {self._file.parent.name}/{self._file.name} is damaged: restore it, "
                "or start with a new state directory and a new lake",
                code="damaged_state",
            ) from error

    def _write(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file, json.dumps([asdict(load) for load in self.loads], indent=1).encode())
