"""The shapes of what a registry holds, checked on every write and read (index diffs §4).

Each shape is a record; msgspec checks values against it and generates its JSON Schema.

>>> check("diffs_manifest", {"version": 1, "updatedAt": None, "diffs": {}}, "manifest")
>>> schema("diff_summary")["properties"]["totalEvents"]
{'type': 'integer', 'minimum': 0}
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from driftline.core import JsonObject
from driftline.errors import IndexRefError

# The end of the text: `$` would also match before a last line feed.
_END = r"(?![\s\S])"

Count = Annotated[int, Meta(ge=0)]
Limit = Annotated[int, Meta(ge=1)]
Number = int | float | None
DiffId = Annotated[str, Meta(pattern=rf"^diff_[0-9a-f]{{16}}{_END}")]
Sha1 = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{40}}{_END}")]
Digest = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{32}}{_END}")]
Time = Annotated[str, Meta(pattern=rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d([.]\d+)?Z{_END}")]
Ref = Annotated[str, Meta(pattern=rf"^(latest|build:.+|snap:.+|tag:.+|path:<redacted>|git:[0-9a-f]{{40,64}}){_END}")]
Mode = Literal["code", "prose", "extracted-prose", "records"]
Modes = Annotated[list[Mode], Meta(min_length=1)]
Text = Annotated[str, Meta(min_length=1)]


def _closed(
    name: str,
    about: str,
    base: Any = Struct,
    /,
    may_have: JsonObject | None = None,
    closed: bool = True,
    **members: Any,
) -> Any:
    """A record with these members and no others; `from_` stands for `from`."""
    more = [(member, kind | UnsetType, UNSET) for member, kind in (may_have or {}).items()]
    settings: JsonObject = {"rename": lambda member: member.rstrip("_"), "forbid_unknown_fields": closed}
    return msgspec.defstruct(name, [*members.items(), *more], bases=(base,), namespace={"__doc__": about}, **settings)


_open = partial(_closed, closed=False)  # it may have members of later versions


# The list of diffs.
EntryCounts = _open("EntryCounts", "How much changed, for listings.", filesChanged=Count, chunksChanged=Count)
ManifestEntry = _open(
    "ManifestEntry", "A diff in the list; `id` is there for other tools that share the registry.",
    diffId=DiffId, createdAt=Time, modes=Modes, from_=Ref, to=Ref, summary=EntryCounts, may_have={"id": DiffId},
)  # fmt: skip
Manifest = _open(
    "Manifest", "The list of persisted diffs; entries of other tools are passed through.",
    version=Literal[1], updatedAt=Time | None, diffs=dict[str, JsonObject],
)  # fmt: skip

# What a diff was computed from.
Endpoint = _closed(
    "Endpoint", "One side of a diff, without any path.",
    ref=Ref, identityHash=Sha1, type=Literal["latest", "build", "snapshot", "tag", "path", "git"],
    may_have={
        "snapshotId": str, "tag": str, "buildIdByMode": dict[Mode, str], "pathHash": Sha1, "treeId": str,
        "configHashByMode": dict[Mode, str],
    },
)  # fmt: skip
InputOptions = _closed(
    "InputOptions", "The options that are part of a diff's identity.",
    detectRenames=bool, includeRelations=bool, maxChangedFiles=Limit, maxChunksPerFile=Limit,
)  # fmt: skip
Fingerprints = _closed(
    "Fingerprints", "What the artifacts of both sides looked like.", from_=dict[Mode, Sha1], to=dict[Mode, Sha1]
)
ContentDigests = _closed(
    "ContentDigests", "What the other files of a stored diff must look like.", summary=Digest, events=Digest
)
Inputs = _open(
    "Inputs", "What a diff was computed from.",
    version=Literal[1], kind=Literal["semantic-v1", "semantic-v2"], from_=Endpoint, to=Endpoint, modes=Modes,
    options=InputOptions, createdAt=Time, may_have={"fingerprints": Fingerprints, "content": ContentDigests},
)  # fmt: skip

# The counts of a diff.
SummarySide = _closed(
    "SummarySide", "One side in a summary; a git revision is labelled as it was given.",
    ref=Ref, identityHash=Sha1, may_have={"label": str},
)  # fmt: skip
FileCounts = _closed("FileCounts", "Changed files by kind.", added=Count, removed=Count, modified=Count, renamed=Count)
ChunkCounts = _closed(
    "ChunkCounts", "Changed chunks by kind; only semantic-v2 has renamed ones.",
    added=Count, removed=Count, modified=Count, moved=Count, may_have={"renamed": Count},
)  # fmt: skip
RelationCounts = _closed("RelationCounts", "Changed edges.", edgesAdded=Count, edgesRemoved=Count)
ModeLimits = _closed(
    "ModeLimits", "Whether chunks were left out, and why.",
    chunkDiffSkipped=bool, reason=Literal["max-changed-files", "max-chunks-per-file"] | None,
    may_have={"renameSearchSkipped": bool},
)  # fmt: skip
ModeSummary = _closed(
    "ModeSummary", "The counts of one mode.",
    files=FileCounts, chunks=ChunkCounts, relations=RelationCounts, limits=ModeLimits,
)  # fmt: skip
SkippedRows = _closed("SkippedRows", "Rows that named no file.", from_=Count, to=Count)
Summary = _open(
    "Summary", "The counts of a diff.",
    version=Literal[1], diffId=DiffId, createdAt=Time, from_=SummarySide, to=SummarySide, modes=Modes,
    modesSummary=dict[Mode, ModeSummary],  # type: ignore[valid-type]
    totalEvents=Count, truncated=bool,
    truncatedReason=Literal["max-events"] | None, skippedRows=SkippedRows,
)  # fmt: skip

# Events of files.
FileEntry = _closed(
    "FileEntry", "One side of a file event.",
    file=str, hash=str | None, size=Number, ext=str | None, may_have={"state": str},
)  # fmt: skip
FileEvent = _closed("FileEvent", "What every event of a file has.", mode=Mode, file=Text)
FileAdded = _closed("FileAdded", "A new file.", FileEvent, kind=Literal["file.added"], after=FileEntry)
FileRemoved = _closed("FileRemoved", "A file that is gone.", FileEvent, kind=Literal["file.removed"], before=FileEntry)
FileModified = _closed(
    "FileModified", "Another content.", FileEvent, kind=Literal["file.modified"], before=FileEntry, after=FileEntry
)
FileRenamed = _closed(
    "FileRenamed", "Another path.", FileEvent,
    kind=Literal["file.renamed"], beforeFile=Text, afterFile=Text, before=FileEntry, after=FileEntry,
)  # fmt: skip

# Events of chunks, and of definitions.
Range = _closed("Range", "Where a chunk is.", start=Number, end=Number, startLine=Number, endLine=Number)
ChunkSide = _closed("ChunkSide", "One side of a chunk event.", range=Range, signature=str)
ChunkEvent = _closed(
    "ChunkEvent", "What every chunk event of semantic-v1 has.", FileEvent,
    chunkId=str | None, logicalKey=str, name=str, chunkKind=str,
)  # fmt: skip
ChunkAdded = _closed("ChunkAdded", "A new chunk.", ChunkEvent, kind=Literal["chunk.added"], after=ChunkSide)
ChunkRemoved = _closed(
    "ChunkRemoved", "A chunk that is gone.", ChunkEvent, kind=Literal["chunk.removed"], before=ChunkSide
)
ChunkMoved = _closed(
    "ChunkMoved", "Another range.", ChunkEvent, kind=Literal["chunk.moved"], before=ChunkSide, after=ChunkSide
)
ChunkModified = _closed(
    "ChunkModified", "Another meaning.", ChunkEvent,
    kind=Literal["chunk.modified"], logicalKeyBefore=str, logicalKeyAfter=str, before=ChunkSide, after=ChunkSide,
)  # fmt: skip
SymbolSide = _closed("SymbolSide", "One side of a chunk event of semantic-v2.", ChunkSide, file=Text, name=str)
CallChanges = _closed("CallChanges", "Called names that came and went.", added=list[str], removed=list[str])
SymbolEvent = _closed(
    "SymbolEvent", "What every chunk event of semantic-v2 has.", FileEvent,
    name=str, chunkKind=str, public=bool, changes=list[Literal["signature", "body", "doc", "relations"]],
)  # fmt: skip
SymbolAdded = _closed("SymbolAdded", "A new definition.", SymbolEvent, kind=Literal["chunk.added"], after=SymbolSide)
SymbolRemoved = _closed(
    "SymbolRemoved", "A definition that is gone.", SymbolEvent, kind=Literal["chunk.removed"], before=SymbolSide
)
SymbolModified = _closed(
    "SymbolModified", "Another signature, body, doc or other calls.", SymbolEvent,
    kind=Literal["chunk.modified"], before=SymbolSide, after=SymbolSide, may_have={"calls": CallChanges},
)  # fmt: skip
SymbolMoved = _closed(
    "SymbolMoved", "Another name, container or file.", SymbolEvent,
    kind=Literal["chunk.renamed", "chunk.moved"], before=SymbolSide, after=SymbolSide,
    similarity=Annotated[float, Meta(ge=0, le=1)], may_have={"calls": CallChanges},
)  # fmt: skip
RelationChanged = _closed(
    "RelationChanged", "An edge that came or went.", FileEvent,
    kind=Literal["relation.added", "relation.removed"], type=Literal["imports", "calls", "usageLinks"],
    fromKey=str, to=str, edgeKey=str,
)  # fmt: skip

# Limits.
ModeLimited = _closed(
    "ModeLimited", "Too many modified files: the chunks of a mode were not compared.",
    kind=Literal["limits.chunkDiffSkipped"], mode=Mode, reason=Literal["max-changed-files"],
    modifiedFiles=Count, maxChangedFiles=Limit,
)  # fmt: skip
FileLimited = _closed(
    "FileLimited", "Too many chunks: those of a file were not compared.", FileEvent,
    kind=Literal["limits.chunkDiffSkipped"], reason=Literal["max-chunks-per-file"],
    chunksBefore=Count, chunksAfter=Count, maxChunksPerFile=Limit,
)  # fmt: skip
RenameSearchSkipped = _closed(
    "RenameSearchSkipped", "Too many unmatched definitions: renames across files were not searched.",
    kind=Literal["limits.renameSearchSkipped"], mode=Mode, chunksBefore=Count, chunksAfter=Count, maxChunks=Limit,
)  # fmt: skip

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
    complaint = complaint_about(contract, value)
    if complaint is not None:
        raise IndexRefError(f"{place} is not what {contract} asks for: {complaint}")


def complaint_about(contract: str, value: object) -> str | None:
    try:
        msgspec.convert(value, _shape_of(contract, value), strict=True)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def event_contract(diff_kind: str) -> str:
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
    kind, reason = (word if isinstance(word := value.get(name), str) else None for name in ("kind", "reason"))
    return _EVENT_SHAPES[contract].get((kind, reason), shapes[0])


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
