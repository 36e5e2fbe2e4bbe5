"""JSON envelopes: where deltas of a table without a schema wait, in the document's format (version 1)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow.fs as pa_fs

from driftline.deltas import RowDelta
from driftline.errors import DriftlineError, LakeError
from driftline.lake.layout import Lake, delta_file_name, relative

VERSION = 1

_SEQUENCE = re.compile(r"-s([0-9]+)\.json$")


@dataclass(frozen=True, slots=True)
class Envelope:
    """Deltas that one gateway flushed together."""

    gateway_id: str
    deltas: tuple[RowDelta, ...]

    def to_json(self, created_at: datetime | None = None) -> bytes:
        """The envelope as the document shows it; `byteSize` counts the UTF-8 JSON of `deltas`."""
        deltas = _compact([delta.to_wire() for delta in self.deltas])
        hlcs = [delta.hlc for delta in self.deltas]
        created = (created_at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        head = {
            "version": VERSION,
            "gatewayId": self.gateway_id,
            "createdAt": created,
            "hlcRange": {"min": str(min(hlcs)), "max": str(max(hlcs))},
            "deltaCount": len(self.deltas),
            "byteSize": len(deltas),
        }
        return _compact(head)[:-1] + b',"deltas":' + deltas + b"}"


def parse_envelope(data: bytes, name: str) -> Envelope:
    """The envelope of a file's bytes; whatever is wrong with it, the file is named."""
    try:
        content = json.loads(data)
    except ValueError as error:
        raise LakeError(f"{name} is not JSON: {error}", code="corrupt_file", path=name) from error
    if not isinstance(content, dict) or not isinstance(content.get("deltas"), list):
        raise LakeError(f"{name} is not an envelope of deltas", code="corrupt_file", path=name)
    if content.get("version") != VERSION or isinstance(content["version"], bool):
        raise LakeError(
            f"{name} has envelope version {content.get('version')!r}; version {VERSION} is understood",
            code="envelope_version",
            path=name,
        )
    return Envelope(str(content.get("gatewayId", "")), tuple(_deltas(content["deltas"], name)))


def write_envelope(lake: Lake, table: str, envelope: Envelope, sequence: int) -> str:
    """Write an envelope; its name carries the sequence, so that a repeated flush is noticed."""
    hlcs = [delta.hlc for delta in envelope.deltas]
    name = delta_file_name(envelope.gateway_id, min(hlcs), max(hlcs), f"s{sequence}", "json")
    path = relative(table, "envelopes", name)
    lake.make_directory(path.rpartition("/")[0])
    if lake.is_local:
        from driftline.files import write_atomically

        write_atomically(f"{lake.root}/{path}", envelope.to_json())
    else:
        with lake.files().open_output_stream(path) as sink:
            sink.write(envelope.to_json())
    return name


def envelope_paths(lake: Lake, table: str) -> list[str]:
    """The table's envelopes below `envelopes/`, in order of name."""
    root = relative(table, "envelopes")
    found = lake.files().get_file_info(pa_fs.FileSelector(root, recursive=True, allow_not_found=True))
    paths = (info.path for info in found if info.type == pa_fs.FileType.File and info.path.endswith(".json"))
    return sorted(path.removeprefix(f"{root}/") for path in paths if not path.rpartition("/")[2].startswith("."))


def read_envelope(lake: Lake, table: str, name: str) -> Envelope:
    """One of the table's envelopes."""
    path = relative(table, "envelopes", name)
    with lake.files().open_input_stream(path) as stream:
        return parse_envelope(stream.read(), path)


def last_sequence(lake: Lake, table: str, gateway_id: str) -> int | None:
    """The greatest sequence among a gateway's envelopes of a table."""
    names = (name for name in envelope_paths(lake, table) if f"/{gateway_id}/" in name)
    sequences = [int(match.group(1)) for match in map(_SEQUENCE.search, names) if match]
    return max(sequences, default=None)


def _deltas(items: Sequence[Any], name: str) -> Iterator[RowDelta]:
    for position, item in enumerate(items):
        try:
            delta = RowDelta.from_wire(item)
        except DriftlineError as error:
            raise LakeError(f"{name}, delta {position}: {error.message}", code="corrupt_file", path=name) from error
        if not delta.has_own_id():
            raise wrong_id(name, position, delta)
        yield delta


def wrong_id(name: str, position: int, delta: RowDelta) -> LakeError:
    """The error for a delta whose id is not the hash of its content."""
    return LakeError(
        f"{name}, delta {position} (row {delta.row_id!r}): deltaId {delta.delta_id[:16]}… does not match its content",
        code="bad_delta_id",
        path=name,
        index=position,
    )


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
