"""The files of a stage: written under temporary names beside their places, committed together at the end."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from driftline.errors import StorageError
from driftline.files import explain_io_errors, replace_file, sync_directory
from driftline.pipeline.declaration import Pipeline
from driftline.pipeline.fingerprints import checksum, files_below
from driftline.pipeline.stages import OutputFile

_MARK = ".part"


class Outputs:
    """Temporary places for a stage's outputs; `commit` moves them all, `discard` removes what is left."""

    def __init__(self, pipeline: Pipeline, places: Mapping[str, Path]) -> None:
        self._pipeline = pipeline
        self._places = places
        token = f"{os.getpid()}-{secrets.token_hex(4)}"
        # A folder of its own: whatever an engine puts beside its output goes with it.
        self._temporary = {
            role: place.with_name(f".{place.name}.{token}{_MARK}") / place.name for role, place in places.items()
        }

    def path(self, role: str) -> Path:
        """Where the stage writes; the folder is made."""
        temporary = self._temporary[role]
        with explain_io_errors(self._pipeline.shown(temporary.parent)):
            temporary.parent.mkdir(parents=True, exist_ok=True)
        return temporary

    def place(self, role: str) -> Path:
        """Where the output will lie."""
        return self._places[role]

    def commit(self) -> tuple[OutputFile, ...]:
        """Make every output durable and move it into place."""
        for role, temporary in self._temporary.items():
            if not temporary.exists():
                raise StorageError(f"the stage wrote no {role}", code="missing_output")
            for file in files_below(temporary):
                _sync(file)
        for role, temporary in self._temporary.items():
            place = self._places[role]
            with explain_io_errors(self._pipeline.shown(place)):
                _move(temporary, place)
                sync_directory(place.parent)
            _remove(temporary.parent)
        return tuple(entry for role in self._temporary for entry in describe(self._pipeline, role, self._places[role]))

    def discard(self) -> None:
        """Remove what was not committed."""
        for temporary in self._temporary.values():
            _remove(temporary.parent)


def describe(pipeline: Pipeline, role: str, place: Path) -> list[OutputFile]:
    """The files of an output as the record holds them; a folder is each of its files."""
    found = []
    for file in files_below(place):
        status = file.stat()
        found.append(OutputFile(role, pipeline.shown(file), status.st_size, checksum(file), status.st_mtime_ns))
    return found


def missing_output(pipeline: Pipeline, outputs: Iterable[OutputFile], *, thorough: bool = False) -> str | None:
    """The first committed file that is not what it was; bytes are read only where times differ, or on demand."""
    lost = (output.path for output in outputs if not _is_there(pipeline.place(output.path), output, thorough))
    return next(lost, None)


def sweep(places: Iterable[Path]) -> None:
    """Remove what killed runs left beside these places; only the holder of the pipeline's lock may."""
    for place in places:
        if place.parent.is_dir():
            for left in place.parent.iterdir():
                if left.name.startswith(f".{place.name}.") and left.name.endswith(_MARK):
                    _remove(left)


def sweep_state(state: Path) -> None:
    """Remove what killed runs left in the pipeline's own directory."""
    for left in [*state.rglob(".*.tmp"), *state.rglob(f".*{_MARK}"), *(state / "work").glob("*")]:
        _remove(left)


def _is_there(path: Path, output: OutputFile, thorough: bool) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    if status.st_size != output.size:
        return False
    if status.st_mtime_ns == output.modified_ns and not thorough:
        return True
    return checksum(path) == output.checksum


def _move(temporary: Path, place: Path) -> None:
    if place.is_dir():
        grave = place.with_name(f".{place.name}.{secrets.token_hex(4)}{_MARK}")
        os.rename(place, grave)
        os.rename(temporary, place)
        shutil.rmtree(grave, ignore_errors=True)
    else:
        replace_file(temporary, place)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(file: Path) -> None:
    with explain_io_errors(file.name):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
