"""JSON envelopes: files of deltas that no schema accepts yet, or that are below the retention horizon (version 1).

An envelope is created once and never rewritten, so that a second try follows its content. Its name says what made it:

    {min}-{max}-{log}-s{sequence}.json    a log, for the range of its records that ends at the sequence
    {min}-{max}-f{digest}.json            `lake flush`, from a file with this content
    {min}-{max}-s{sequence}.json          a flush that has only the name of its gateway
    {…}-rest.json                         what was left when the others of an envelope became Parquet
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow.fs as pa_fs

from driftline.core import io_errors, sync_directory, write_atomically
from driftline.deltas import RowDelta, delta_from_wire
from driftline.errors import DriftlineError, LakeError
from driftline.lake._store.lake import Lake, attempt_token, delta_file_name, relative
from driftline.lake._store.tables import StoredTable, transaction_version

VERSION = 1

EnvelopePart = Literal["envelopes", "set-aside"]
WAITING: EnvelopePart = "envelopes"
SET_ASIDE: EnvelopePart = "set-aside"  # below the retention horizon: stored, never folded

_REST = "-rest.json"
_SEQUENCE = re.compile(r"-s([0-9]+)\.json$")
_MADE_BY_LOG = re.compile(r"-([0-9a-f]{16})-s([0-9]+)(?:-rest)*\.json$")


@dataclass(frozen=True, slots=True)
class Envelope:
    """Deltas that one gateway flushed together."""

    gateway_id: str
    deltas: tuple[RowDelta, ...]
    made_ms: int = 0  # when it was written, for one that was read

    def to_json(self, created_at: datetime | None = None) -> bytes:
        """The envelope's JSON (deltas-and-lake §5.3); `byteSize` counts the UTF-8 JSON of `deltas`."""
        deltas = _compact([delta.to_wire() for delta in self.deltas])
        hlcs = [delta.hlc for delta in self.deltas]
        created = (created_at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        reach = {"min": str(min(hlcs)), "max": str(max(hlcs))}
        head = {"version": VERSION, "gatewayId": self.gateway_id, "createdAt": created, "hlcRange": reach}
        head |= {"deltaCount": len(self.deltas), "byteSize": len(deltas)}
        return _compact(head)[:-1] + b',"deltas":' + deltas + b"}"


def parse_envelope(data: bytes, name: str, *, stored: bool = False) -> Envelope:
    """The envelope of a file's bytes; every error names the file.

    `stored` ones may have what is refused today (hlc 0) and was accepted once.
    """
    try:
        content = json.loads(data)
    except ValueError as error:
        raise LakeError(f"{name} is not JSON: {error}", code="corrupt_file", path=name) from error
    if not isinstance(content, dict) or not isinstance(content.get("deltas"), list):
        raise LakeError(f"{name} is not an envelope of deltas", code="corrupt_file", path=name)
    if content.get("version") != VERSION or isinstance(content["version"], bool):
        message = f"{name} has envelope version {content.get('version')!r}; version {VERSION} is understood"
        raise LakeError(message, code="envelope_version", path=name)
    deltas = tuple(_deltas(content["deltas"], name, stored))
    try:
        made_ms = round(datetime.fromisoformat(str(content.get("createdAt"))).timestamp() * 1000)
    except ValueError:
        made_ms = 0
    return Envelope(str(content.get("gatewayId", "")), deltas, made_ms)


def create_envelope(lake: Lake, table: str, envelope: Envelope, suffix: str, part: EnvelopePart = WAITING) -> str:
    """Write an envelope unless one with this suffix exists; the name of the one that exists then."""
    known = find_envelope(lake, table, suffix, part)
    if known is not None:
        return known
    hlcs = [delta.hlc for delta in envelope.deltas]
    name = delta_file_name(envelope.gateway_id, min(hlcs), max(hlcs), suffix, "json")
    _create(lake, relative(table, part, name), envelope.to_json())
    return name


def create_rest(lake: Lake, table: str, name: str, envelope: Envelope) -> None:
    """Write the rest of an envelope, unless it exists."""
    _create(lake, relative(table, WAITING, rest_of(name)), envelope.to_json())


def exists(lake: Lake, table: str, name: str) -> bool:
    """Whether an envelope exists."""
    return bool(lake.files().get_file_info(relative(table, WAITING, name)).type == pa_fs.FileType.File)


def find_envelope(lake: Lake, table: str, suffix: str, part: EnvelopePart = WAITING) -> str | None:
    """The envelope with this suffix, whatever the day it was written."""
    return next((name for name in envelope_paths(lake, table, part) if name.endswith(f"-{suffix}.json")), None)


def envelope_paths(lake: Lake, table: str, part: EnvelopePart = WAITING) -> list[str]:
    """The table's envelopes below `envelopes/` (or `set-aside/`), in order of name."""
    root = relative(table, part)
    found = lake.files().get_file_info(pa_fs.FileSelector(root, recursive=True, allow_not_found=True))
    paths = (info.path for info in found if info.type == pa_fs.FileType.File and info.path.endswith(".json"))
    return sorted(path.removeprefix(f"{root}/") for path in paths if not path.rpartition("/")[2].startswith("."))


def read_envelope(lake: Lake, table: str, name: str, part: EnvelopePart = WAITING) -> Envelope:
    """One of the table's envelopes."""
    path = relative(table, part, name)
    try:
        with lake.files().open_input_stream(path) as stream:
            return parse_envelope(stream.read(), path, stored=True)
    except FileNotFoundError as error:
        raise LakeError(f"{path} is missing from the lake", code="missing_file", path=path) from error


def log_suffix(log_id: str, sequence: int) -> str:
    """The end of the name of a log's envelope."""
    return f"{log_id}-s{sequence}"


def rest_of(name: str) -> str:
    """The envelope, beside this one, of the deltas that did not fit when the others became Parquet."""
    return name.removesuffix(".json") + _REST


def origin_of(name: str) -> list[str]:
    """The envelope that this one is the rest of, if it is one."""
    return [name.removesuffix(_REST) + ".json"] if name.endswith(_REST) else []


def maker_of(name: str) -> tuple[str, int] | None:
    """The log and the sequence in an envelope's name, None where no log made it.

    >>> maker_of("2026-11-15/gw/5-9-0123456789abcdef-s7.json")
    ('0123456789abcdef', 7)
    """
    match = _MADE_BY_LOG.search(name)
    return None if match is None else (match.group(1), int(match.group(2)))


def last_sequence(lake: Lake, table: str, gateway_id: str) -> int | None:
    """The greatest sequence of a gateway's envelopes without a log in their names."""
    names = (name for name in envelope_paths(lake, table) if f"/{gateway_id}/" in name and maker_of(name) is None)
    sequences = [int(match.group(1)) for match in map(_SEQUENCE.search, names) if match]
    return max(sequences, default=None)


def envelope_transaction(name: str) -> str:
    """The application transaction of a commit with an envelope's deltas."""
    return f"envelope:{name}"


def waiting_envelopes(lake: Lake, table: str, deltas_table: StoredTable | None) -> list[str]:
    """The envelopes whose deltas are not in this version of the deltas table, without rests of pending ones."""
    names = envelope_paths(lake, table)
    waiting = {name for name in names if transaction_version(deltas_table, envelope_transaction(name)) is None}
    return [name for name in names if name in waiting and not waiting.intersection(origin_of(name))]


def _create(lake: Lake, path: str, data: bytes) -> None:
    """Create a file atomically, or leave the one that exists."""
    if not lake.is_local:
        # Stores write objects atomically. Two writers of the same one have decided from the same records.
        with lake.files().open_output_stream(path) as sink:
            sink.write(data)
        return
    target = Path(lake.root, path)
    temporary = target.with_name(f".{target.name}.{attempt_token()}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_atomically(temporary, data)
        with io_errors(target):
            _link(temporary, target)
            sync_directory(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    """Give a file another name unless that name is taken."""
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError:  # a file system without links: only one process flushes a log at a time
        if not target.exists():
            os.rename(source, target)


def _deltas(items: Sequence[Any], name: str, stored: bool) -> Iterator[RowDelta]:
    for position, item in enumerate(items):
        try:
            delta = delta_from_wire(item, stored=stored)
        except DriftlineError as error:
            raise LakeError(f"{name}, delta {position}: {error.message}", code="corrupt_file", path=name) from error
        if not delta.has_own_id():
            raise wrong_id(name, position, delta)
        yield delta


def wrong_id(name: str, position: int, delta: RowDelta) -> LakeError:
    """The error for a delta whose id is not the hash of its content."""
    where = f"{name}, delta {position} (row {delta.row_id!r})"
    message = f"{where}: deltaId {delta.delta_id[:16]}… does not match its content"
    return LakeError(message, code="bad_delta_id", path=name, index=position)


def other_op(name: str, position: int, delta_id: str) -> LakeError:
    """The error for a delta whose id is known with another operation, which ids do not cover."""
    message = f"{name}, delta {position} ({delta_id[:16]}…): its id is known with another op"
    return LakeError(message, code="VALIDATION_ERROR", path=name, index=position)


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
