"""Records on disk: one per stage that is done, one per run. Paths in them are relative to the pipeline file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata

import msgspec

from driftline.core import JsonObject, Location, ObjectPath, io_errors, sha256_hex, write_atomically
from driftline.errors import PipelineError
from driftline.pipeline._stages.stage import Result, StageRecord
from driftline.version import __version__

RUNS_KEPT = 100
EXIT_CODES = {"done": 0, "exceeded": 1, "failed": 2, "locked": 2, "cancelled": 130}  # by the result of a run
_SHOWN = ("role", "path", "size", "checksum")  # of outputs, in records of runs
_PACKAGES = ("pyspark", "pyarrow", "polars", "deltalake")
# Known to msgspec before threads of stages read records: it crashes where two of them meet a type for the first time.
msgspec.json.Decoder(StageRecord)


@dataclass(frozen=True, slots=True)
class StageRun:
    """What became of one stage in one run."""

    stage: str
    result: Result
    seconds: float = 0.0
    counts: Mapping[str, int] | None = None
    problem: str | None = None
    record: StageRecord | None = None
    why: str | None = None
    notes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    started_at: str | None = None


@dataclass(frozen=True, slots=True)
class JudgedLimit:
    """A limit that a stage was held against: what was measured, in words, and whether it was too much."""

    stage: str
    level: str  # fail or warn
    text: str
    words: str
    exceeded: bool


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run: when, with what, every stage's fate, and what was exceeded."""

    run_id: str
    pipeline: str
    started_at: str
    seconds: float
    engine: str
    result: str
    stages: tuple[StageRun, ...]
    exceeded: tuple[str, ...]
    versions: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    limits: tuple[JudgedLimit, ...] = ()
    problem: str | None = None  # why a run could not begin

    @property
    def exit_code(self) -> int:
        """0 done, 1 a threshold was exceeded, 2 a stage failed or it could not begin, 130 cancelled."""
        return EXIT_CODES[self.result]

    def to_dict(self) -> JsonObject:
        """The record as plain data."""
        plain = asdict(self)
        for stage in plain["stages"]:
            kept = stage.pop("record") or {"inputs": (), "outputs": ()}
            stage["inputs"] = list(kept["inputs"])
            stage["outputs"] = [{name: output[name] for name in _SHOWN} for output in kept["outputs"]]
        return plain


class RecordStore:
    """The directory with the records of a pipeline."""

    def __init__(self, state: Location) -> None:
        self._stages = state / "stages"
        self._runs = state / "runs"

    def stage(self, name: str) -> StageRecord | None:
        """The record of a stage, or None if there is none that can be read."""
        try:
            return msgspec.convert(_opened(self._path(name).read_bytes()), StageRecord)
        except (OSError, ValueError):
            return None  # an unreadable record means that the stage runs again

    def keep_stage(self, record: StageRecord) -> None:
        """Write a stage's record; from here on the stage is done."""
        self._stages.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(record.stage), _sealed(asdict(record)))

    def remove_stage(self, name: str) -> None:
        """A stage that is about to run again is not done until it says so."""
        self._path(name).unlink(missing_ok=True)

    def keep_run(self, record: RunRecord, runs: int = RUNS_KEPT, days: int | None = None) -> None:
        """Write a run's record, and drop the oldest of too many, and those that are too old (pipeline §6)."""
        self._runs.mkdir(parents=True, exist_ok=True)
        write_atomically(self._runs / f"{record.run_id}.json", _sealed(record.to_dict()))
        # Ids are in the order of time; the newest one stays.
        first = "" if days is None else new_run_id(datetime.now(UTC) - timedelta(days=days))
        kept = _records_in(self._runs)
        for place, path in enumerate(kept):
            if place < len(kept) - runs or (path.stem < first and path.stem != record.run_id):
                path.unlink(missing_ok=True)

    def last_run(self) -> JsonObject | None:
        """The record of the newest run as plain data."""
        newest = _records_in(self._runs)[-1:]
        return _read_run(newest[0]) if newest else None

    def runs(self) -> Iterator[tuple[str, JsonObject | None]]:
        """Every run that is remembered, newest first, with its record; None where that is damaged."""
        for path in reversed(_records_in(self._runs)):
            try:
                yield path.stem, _read_run(path)
            except PipelineError:
                yield path.stem, None

    def _path(self, name: str) -> Location:
        return self._stages / f"{name.replace('/', '.')}.json"


def _records_in(folder: Location) -> list[Location]:
    """The records of a folder in the order of their names, which is that of time."""
    found = folder.below() if isinstance(folder, ObjectPath) else folder.glob("*.json")
    return sorted(path for path in found if path.name.endswith(".json"))


def _read_run(path: Location) -> JsonObject:
    with io_errors(path.name):
        content = path.read_bytes()
    try:
        return _opened(content)
    except ValueError as error:
        is_old = isinstance(error, _UnsealedError)
        what = "was written by an older version" if is_old else "is damaged"
        raise PipelineError(
            f"the record of the run {path.stem} {what}: remove runs/{path.name} in the state directory to see the "
            "run before it, or run the pipeline again",
            code="old_record" if is_old else "damaged_record",
            path=path.name,
        ) from error


def new_run_id(now: datetime | None = None) -> str:
    """Sorts by time; the process id separates runs that started in one microsecond."""
    return f"{(now or datetime.now(UTC)).strftime('%Y%m%dT%H%M%S%f')}-{os.getpid()}"


def utc_now() -> str:
    """Now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def versions() -> dict[str, str]:
    """The versions that made a result."""
    found = {"driftline": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def _sealed(data: JsonObject) -> bytes:
    """The record as JSON with a hash of itself: a flipped digit in a count must not be believed."""
    sealed = {**data, "seal": _seal(data)}
    return json.dumps(sealed, ensure_ascii=False, indent=1).encode() + b"\n"


def _opened(content: bytes) -> JsonObject:
    """A record as it was sealed; `ValueError` says that it is not."""
    data = json.loads(content)
    if isinstance(data, dict) and "seal" not in data and {"run_id", "stages", "versions"} <= data.keys():
        raise _UnsealedError("there is no seal")
    if not isinstance(data, dict) or data.pop("seal", None) != _seal(data):
        raise ValueError("the seal is broken")
    return data


class _UnsealedError(ValueError):
    """A record that is whole but from a time before records were sealed."""


def _seal(data: JsonObject) -> str:
    plain = json.loads(json.dumps(data))
    return sha256_hex(json.dumps(plain, sort_keys=True))[:32]
