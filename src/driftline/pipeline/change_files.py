"""Files of change events: which bytes of them are new, and whether what was read is still what it was (pipeline §8)."""

from __future__ import annotations

import gzip
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import xxhash
from backports import zstd

from driftline.core._files import explain_io_errors
from driftline.core._objects import entries_below
from driftline.core._parts import LineRange
from driftline.core._thresholds import AGE
from driftline.errors import PipelineError
from driftline.lake._store.snapshots import Positions, ReadFile
from driftline.sources._addresses import InputFile, StoredFile, is_url, list_urls

_CHUNK = 4 << 20
_PIECE_BYTES = 32 << 20
_REMEDY = "put it back as it was, or run once with --full-refresh, which reads every file anew"


@dataclass(frozen=True, slots=True)
class ChangeFile:
    """One file of a stream, by its name below the folder or prefix."""

    name: str
    file: InputFile

    @property
    def mark(self) -> str:
        """What it is by, without reading it."""
        return self.file.etag if isinstance(self.file, StoredFile) else f"{self.file.size}:{self.file.modified_ns}"

    def plain(self, scratch: Path) -> Path:
        """Its bytes as a file of this machine that tasks see: itself, or a copy without compression."""
        suffix = Path(self.name).suffix.lower()
        if not isinstance(self.file, StoredFile) and suffix not in (".gz", ".zst", ".zstd"):
            return Path(self.file.path)
        copy = scratch / f"{len(list(scratch.iterdir()))}.jsonl"
        with explain_io_errors(self.name), self.file.open() as source, open(copy, "wb") as out:
            shutil.copyfileobj(_uncompressed(source, suffix), out, _CHUNK)
        return copy


def _uncompressed(source: BinaryIO, suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=source)
    return zstd.ZstdFile(source) if suffix in (".zst", ".zstd") else source


@dataclass(frozen=True, slots=True)
class Unread:
    """The new bytes of a file: whole lines from `start` up to `stop`; `rest` bytes after them are no whole line yet."""

    name: str
    path: Path
    start: int
    stop: int
    rest: int
    mark: str

    def pieces(self) -> list[LineRange]:
        """Runs of whole lines that tasks can read side by side."""
        found, start = [], self.start
        with open(self.path, "rb") as file:
            while start < self.stop:
                file.seek(min(start + _PIECE_BYTES, self.stop))
                file.readline()
                stop = min(max(file.tell(), start + 1), self.stop)
                found.append(LineRange(str(self.path), start, stop))
                start = stop
        return found

    def read_up_to(self, offset: int) -> ReadFile:
        """The position after reading so far."""
        is_all = offset == self.stop and not self.rest
        return ReadFile(offset, _digest(self.path, offset), self.mark if is_all else "")


def list_changes(given: str) -> list[ChangeFile]:
    """The files of a folder or a prefix in the order of their names; hidden ones and writers' marks are left out."""
    if is_url(given):
        prefix = given if given.endswith("/") else f"{given}/"
        found = [ChangeFile(url.removeprefix(prefix), StoredFile.at(url)) for url in list_urls(prefix)]
    else:
        folder = Path(given)
        if not folder.is_dir():
            raise PipelineError(f"{given} is no folder: 'changes' is a folder or a prefix of files", code="not_found")
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        found = [ChangeFile(path.relative_to(folder).as_posix(), _local(path)) for path in paths]
    return sorted(
        (each for each in found if not Path(each.name).name.startswith((".", "_"))), key=lambda each: each.name
    )


def _local(path: Path) -> InputFile:
    return InputFile.of(path.absolute(), path.name)


def age_of_changes(given: str) -> dict[str, int]:
    """How many seconds ago the newest file was written to; a folder without files has no age."""
    if is_url(given):
        written = [when.timestamp() for _, when in entries_below(given.rstrip("/") + "/")]
    else:
        written = [each.file.modified_ns / 1e9 for each in list_changes(given)]
    return {AGE: max(0, round(time.time() - max(written)))} if written else {}


def unread_bytes(
    files: Sequence[ChangeFile], positions: Positions, scratch: Path, *, in_order: bool
) -> tuple[list[Unread], list[str]]:
    """What is new, in the order of names, and notes about what has to wait; what was read must be as it was."""
    found: list[Unread] = []
    notes: list[str] = []
    for each in files:
        known = positions.get(each.name)
        if known is not None and known.mark == each.mark:
            continue
        unread = _look(each, known, scratch)
        if in_order and unread.stop > unread.start:
            _refuse_late(each.name, positions)
        found.append(unread)
        if unread.rest:
            waits = "; files after it wait" if in_order and each is not files[-1] else ""
            notes.append(f"{each.name} ends in the middle of a message: its last {unread.rest} bytes wait{waits}")
            if in_order:
                break
    return found, notes


def _look(each: ChangeFile, known: ReadFile | None, scratch: Path) -> Unread:
    path = each.plain(scratch)
    with explain_io_errors(each.name):
        size = path.stat().st_size
    start = known.offset if known else 0
    if size < start:
        raise PipelineError(
            f"{each.name} was cut: {start} bytes of it were read, and it has {size} now: {_REMEDY}", code="changes_cut"
        )
    if known is not None and _digest(path, start) != known.digest:
        raise PipelineError(
            f"{each.name} was replaced: its first {start} bytes, which were read, are others now: {_REMEDY}",
            code="changes_replaced",
        )
    stop = _end_of_messages(path, start, size)
    return Unread(each.name, path, start, stop, size - stop, each.mark)


def _refuse_late(name: str, positions: Positions) -> None:
    later = [other for other in positions if other > name]
    if later:
        raise PipelineError(
            f"{name} has new messages, but {max(later)}, which comes after it, was read: files are read in the order "
            "of their names. Declare partitioned = true if rows of one key are always in one partition, or run once "
            "with --full-refresh",
            code="late_changes",
        )


def _end_of_messages(path: Path, start: int, size: int) -> int:
    """Where the last whole message ends: at a line end, or at the end of the file if its last line is one too."""
    with explain_io_errors(path.name), open(path, "rb") as file:
        end = size
        while end > start:
            begin = max(start, end - _CHUNK)
            file.seek(begin)
            place = file.read(end - begin).rfind(b"\n")
            if place >= 0:
                end = begin + place + 1
                break
            end = begin
        file.seek(end)
        rest = file.read(size - end)
    return size if not rest.strip() or _is_message(rest) else end


def _is_message(text: bytes) -> bool:
    # An object that ends cannot be the beginning of a longer one.
    with suppress(ValueError):
        return isinstance(json.loads(text), dict)
    return False


def _digest(path: Path, stop: int) -> str:
    digest = xxhash.xxh3_128()
    with explain_io_errors(path.name), open(path, "rb", buffering=0) as file:
        left = stop
        while left and (chunk := file.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()


def lines_of(piece: LineRange) -> Iterator[tuple[int, bytes]]:
    """The lines of a piece that are not blank, each with its offset in the file."""
    with explain_io_errors(piece.path), open(piece.path, "rb") as file:
        file.seek(piece.start)
        offset = piece.start
        for line in file:
            if offset >= piece.stop:
                return
            if line.strip():
                yield offset, line[: piece.stop - offset]
            offset += len(line)


def missing_files(files: Sequence[ChangeFile], positions: Mapping[str, ReadFile]) -> list[str]:
    """What was read and is no longer there."""
    there = {each.name for each in files}
    return sorted(name for name in positions if name not in there)


def needed_positions(positions: Positions, files: Sequence[ChangeFile], *, in_order: bool) -> Positions:
    """Without files that are gone: in order, one that comes back is late and refused whether it is known or not.

    The last of them stays, because it says that the files no longer hold the whole table.
    """
    gone = missing_files(files, positions)
    if not in_order or len(gone) < 2:
        return positions
    return {name: position for name, position in positions.items() if name not in gone[:-1]}
