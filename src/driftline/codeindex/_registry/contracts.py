"""The shapes of what a registry holds, checked on every write and read (index diffs §4).

Each shape is a record; msgspec checks values against it and tells its JSON Schema.

>>> check("diffs_manifest", {"version": 1, "updatedAt": None, "diffs": {}}, "manifest")
>>> schema("diff_summary")["properties"]["totalEvents"]
{'type': 'integer', 'minimum': 0}
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from driftline.core import JsonObject
from driftline.errors import IndexRefError

# The end of the text: `$` would also match before a last line feed.
_END = r"(?![\s\S])"

Count = Annotated[int, Meta(ge=0)]
Limit = Annotated[int, Meta(ge=1)]
Number = int | float
DiffId = Annotated[str, Meta(pattern=rf"^diff_[0-9a-f]{{16}}{_END}")]
Sha1 = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{40}}{_END}")]
Digest = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{32}}{_END}")]
Time = Annotated[str, Meta(pattern=rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d([.]\d+)?Z{_END}")]
Ref = Annotated[str, Meta(pattern=rf"^(latest|build:.+|snap:.+|tag:.+|path:<redacted>|git:[0-9a-f]{{40,64}}){_END}")]
Mode = Literal["code", "prose", "extracted-prose", "records"]
Modes = Annotated[list[Mode], Meta(min_length=1)]
Text = Annotated[str, Meta(min_length=1)]


class Closed(Struct, forbid_unknown_fields=True, rename="camel"):
    """A record without other members."""


class Open(Struct, rename="camel"):
    """A record that may have members of later versions."""


class EntryCounts(Open):
    """How much changed, for listings."""

    files_changed: Count
    chunks_changed: Count


class ManifestEntry(Open):
    """A diff in the list; `id` is there for other tools that share the registry."""

    diff_id: DiffId
    created_at: Time
    modes: Modes
    from_: Ref = msgspec.field(name="from")
    to: Ref
    summary: EntryCounts
    id: DiffId | UnsetType = UNSET


class Manifest(Open):
    """The list of persisted diffs; entries of other tools are passed through."""

    version: Literal[1]
    updated_at: Time | None
    diffs: dict[str, JsonObject]


class Endpoint(Closed):
    """One side of a diff, without any path."""

    ref: Ref
    identity_hash: Sha1
    type: Literal["latest", "build", "snapshot", "tag", "path", "git"]
    snapshot_id: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    build_id_by_mode: dict[Mode, str] | UnsetType = UNSET
    path_hash: Sha1 | UnsetType = UNSET
    tree_id: str | UnsetType = UNSET
    config_hash_by_mode: dict[Mode, str] | UnsetType = UNSET


class InputOptions(Closed):
    """The options that are part of a diff's identity."""

    detect_renames: bool
    include_relations: bool
    max_changed_files: Limit
    max_chunks_per_file: Limit


class Fingerprints(Closed):
    """What the artifacts of both sides looked like."""

    from_: dict[Mode, Sha1] = msgspec.field(name="from")
    to: dict[Mode, Sha1]


class ContentDigests(Closed):
    """What the other files of a stored diff must look like."""

    summary: Digest
    events: Digest


class Inputs(Open):
    """What a diff was computed from."""

    version: Literal[1]
    kind: Literal["semantic-v1", "semantic-v2"]
    from_: Endpoint = msgspec.field(name="from")
    to: Endpoint
    modes: Modes
    options: InputOptions
    created_at: Time
    fingerprints: Fingerprints | UnsetType = UNSET
    content: ContentDigests | UnsetType = UNSET


class SummarySide(Closed):
    """One side in a summary; a git revision is labelled as it was given."""

    ref: Ref
    identity_hash: Sha1
    label: str | UnsetType = UNSET


class FileCounts(Closed):
    """Changed files by kind."""

    added: Count
    removed: Count
    modified: Count
    renamed: Count


class ChunkCounts(Closed):
    """Changed chunks by kind; only semantic-v2 has renamed ones."""

    added: Count
    removed: Count
    modified: Count
    moved: Count
    renamed: Count | UnsetType = UNSET


class RelationCounts(Closed):
    """Changed edges."""

    edges_added: Count
    edges_removed: Count


class ModeLimits(Closed):
    """Whether chunks were left out, and why."""

    chunk_diff_skipped: bool
    reason: Literal["max-changed-files", "max-chunks-per-file"] | None
    rename_search_skipped: bool | UnsetType = UNSET


class ModeSummary(Closed):
    """The counts of one mode."""

    files: FileCounts
    chunks: ChunkCounts
    relations: RelationCounts
    limits: ModeLimits


class SkippedRows(Closed):
    """Rows that named no file."""

    from_: Count = msgspec.field(name="from")
    to: Count


class Summary(Open):
    """The counts of a diff."""

    version: Literal[1]
    diff_id: DiffId
    created_at: Time
    from_: SummarySide = msgspec.field(name="from")
    to: SummarySide
    modes: Modes
    modes_summary: dict[Mode, ModeSummary]
    total_events: Count
    truncated: bool
    truncated_reason: Literal["max-events"] | None
    skipped_rows: SkippedRows


class FileEntry(Closed):
    """One side of a file event."""

    file: str
    hash: str | None
    size: Number | None
    ext: str | None
    state: str | UnsetType = UNSET


class Range(Closed):
    """Where a chunk is."""

    start: Number | None
    end: Number | None
    start_line: Number | None
    end_line: Number | None


class ChunkSide(Closed):
    """One side of a chunk event."""

    range: Range
    signature: str


class SymbolSide(ChunkSide):
    """One side of a chunk event of semantic-v2."""

    file: Text
    name: str


class FileEvent(Closed):
    """What every event of a file has."""

    mode: Mode
    file: Text


class FileAdded(FileEvent):
    """A new file."""

    kind: Literal["file.added"]
    after: FileEntry


class FileRemoved(FileEvent):
    """A file that is gone."""

    kind: Literal["file.removed"]
    before: FileEntry


class FileModified(FileEvent):
    """Another content."""

    kind: Literal["file.modified"]
    before: FileEntry
    after: FileEntry


class FileRenamed(FileEvent):
    """Another path."""

    kind: Literal["file.renamed"]
    before_file: Text
    after_file: Text
    before: FileEntry
    after: FileEntry


class ChunkEvent(FileEvent):
    """What every chunk event of semantic-v1 has."""

    chunk_id: str | None
    logical_key: str
    name: str
    chunk_kind: str


class ChunkAdded(ChunkEvent):
    """A new chunk."""

    kind: Literal["chunk.added"]
    after: ChunkSide


class ChunkRemoved(ChunkEvent):
    """A chunk that is gone."""

    kind: Literal["chunk.removed"]
    before: ChunkSide


class ChunkMoved(ChunkEvent):
    """Another range."""

    kind: Literal["chunk.moved"]
    before: ChunkSide
    after: ChunkSide


class ChunkModified(ChunkEvent):
    """Another meaning."""

    kind: Literal["chunk.modified"]
    logical_key_before: str
    logical_key_after: str
    before: ChunkSide
    after: ChunkSide


class CallChanges(Closed):
    """Called names that came and went."""

    added: list[str]
    removed: list[str]


class SymbolEvent(FileEvent):
    """What every chunk event of semantic-v2 has."""

    name: str
    chunk_kind: str
    public: bool
    changes: list[Literal["signature", "body", "doc", "relations"]]


class SymbolAdded(SymbolEvent):
    """A new definition."""

    kind: Literal["chunk.added"]
    after: SymbolSide


class SymbolRemoved(SymbolEvent):
    """A definition that is gone."""

    kind: Literal["chunk.removed"]
    before: SymbolSide


class SymbolModified(SymbolEvent):
    """Another signature, body, doc or other calls."""

    kind: Literal["chunk.modified"]
    before: SymbolSide
    after: SymbolSide
    calls: CallChanges | UnsetType = UNSET


class SymbolMoved(SymbolEvent):
    """Another name, container or file."""

    kind: Literal["chunk.renamed", "chunk.moved"]
    before: SymbolSide
    after: SymbolSide
    similarity: Annotated[float, Meta(ge=0, le=1)]
    calls: CallChanges | UnsetType = UNSET


class RelationChanged(FileEvent):
    """An edge that came or went."""

    kind: Literal["relation.added", "relation.removed"]
    type: Literal["imports", "calls", "usageLinks"]
    from_key: str
    to: str
    edge_key: str


class ModeLimited(Closed):
    """Too many modified files: the chunks of a mode were not compared."""

    kind: Literal["limits.chunkDiffSkipped"]
    mode: Mode
    reason: Literal["max-changed-files"]
    modified_files: Count
    max_changed_files: Limit


class FileLimited(FileEvent):
    """Too many chunks: those of a file were not compared."""

    kind: Literal["limits.chunkDiffSkipped"]
    reason: Literal["max-chunks-per-file"]
    chunks_before: Count
    chunks_after: Count
    max_chunks_per_file: Limit


class RenameSearchSkipped(Closed):
    """Too many unmatched definitions: renames across files were not searched."""

    kind: Literal["limits.renameSearchSkipped"]
    mode: Mode
    chunks_before: Count
    chunks_after: Count
    max_chunks: Limit


_FILE_EVENTS = (FileAdded, FileRemoved, FileModified, FileRenamed, RelationChanged, ModeLimited, FileLimited)
_DOCUMENTS: dict[str, tuple[type[Struct], ...]] = {
    "diffs_manifest": (Manifest,),
    "manifest_entry": (ManifestEntry,),
    "diff_inputs": (Inputs,),
    "diff_summary": (Summary,),
    "diff_event": (*_FILE_EVENTS, ChunkAdded, ChunkRemoved, ChunkMoved, ChunkModified),
    "diff_event_v2": (
        *_FILE_EVENTS, SymbolAdded, SymbolRemoved, SymbolModified, SymbolMoved, RenameSearchSkipped,
    ),
}  # fmt: skip
CONTRACTS = tuple(_DOCUMENTS)


def check(contract: str, value: object, place: str) -> None:
    """Refuse a value that breaks its contract."""
    complaint = complaint_about(contract, value)
    if complaint is not None:
        raise IndexRefError(f"{place} is not what {contract} asks for: {complaint}")


def complaint_about(contract: str, value: object) -> str | None:
    """What is wrong with a value, or None."""
    try:
        msgspec.convert(value, _shape_of(contract, value), strict=True)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def event_contract(diff_kind: str) -> str:
    """The contract of the events of a diff of this kind."""
    return "diff_event_v2" if diff_kind == "semantic-v2" else "diff_event"


def schema(contract: str) -> JsonObject:
    """The JSON Schema of a contract."""
    shapes, definitions = msgspec.json.schema_components(_DOCUMENTS[contract], ref_template="#/$defs/{name}")
    first = definitions.pop(_DOCUMENTS[contract][0].__name__) if len(shapes) == 1 else {"anyOf": list(shapes)}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:driftline:codeindex:{contract}"}
    return {**head, **first, "$defs": definitions}


def _shape_of(contract: str, value: object) -> type[Struct]:
    shapes = _DOCUMENTS[contract]
    if len(shapes) == 1 or not isinstance(value, dict):
        return shapes[0]
    return _EVENT_SHAPES[contract].get((_text(value, "kind"), _text(value, "reason")), shapes[0])


def _text(event: JsonObject, name: str) -> str | None:
    value = event.get(name)
    return value if isinstance(value, str) else None


def _keys_of(shape: type[Struct]) -> list[tuple[str | None, str | None]]:
    """The kinds of event that have this shape; limits are distinguished by their reason too."""
    hints = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
    reasons = hints["reason"].__args__ if "reason" in hints else (None,)
    return [(kind, reason) for kind in hints["kind"].__args__ for reason in reasons]


_EVENT_SHAPES = {
    contract: {key: shape for shape in shapes for key in _keys_of(shape)}
    for contract, shapes in _DOCUMENTS.items()
    if len(shapes) > 1
}
