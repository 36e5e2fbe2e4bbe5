"""Chunks of one file: their identity, how the two sides are matched and what changed (index diffs §5.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from driftline.codeindex.json_values import Number, member, number_or_none, text_or_empty
from driftline.core._json import JsonObject, canonical_json, utf16_sort_key

Verdict = Literal["added", "removed", "modified", "moved"]


class Span(msgspec.Struct, frozen=True):
    """Where a chunk is in its file."""

    start: Number | None
    end: Number | None
    start_line: Number | None
    end_line: Number | None

    def to_dict(self) -> JsonObject:
        """The range as events carry it."""
        return {"start": self.start, "end": self.end, "startLine": self.start_line, "endLine": self.end_line}


class Chunk(msgspec.Struct, frozen=True):
    """The members of a `chunk_meta` row that a diff looks at."""

    chunk_id: str | None
    logical_key: str
    kind: str
    name: str
    signature: str
    semantics: tuple[object, ...]
    span: Span
    relations: object

    def to_dict(self) -> JsonObject:
        """One side of a chunk event."""
        return {"range": self.span.to_dict(), "signature": self.signature}


class ChunkPair(msgspec.Struct, frozen=True):
    """A chunk on both sides, or on the one side where it is."""

    before: Chunk | None
    after: Chunk | None

    @property
    def verdict(self) -> Verdict | None:
        """What happened to the chunk; None where nothing did."""
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        if self.before.semantics != self.after.semantics:
            return "modified"
        return "moved" if self.before.span != self.after.span else None

    @property
    def placed(self) -> Chunk:
        """The side whose coordinates order the event: the before side only for removed chunks."""
        chunk = self.after or self.before
        assert chunk is not None
        return chunk


def chunk_from_row(row: JsonObject) -> Chunk:
    """A chunk from its (joined) row."""
    meta = row.get("metaV2")
    kind, name = text_or_empty(row.get("kind")), text_or_empty(row.get("name"))
    segment_id = text_or_empty(member(row.get("segment"), "segmentId"))
    signature = text_or_empty(member(meta, "signature") or member(row.get("docmeta"), "signature"))
    details = (_comparable(member(meta, "modifiers")), _comparable(member(meta, "params")))
    return Chunk(
        chunk_id=_chunk_id(row, meta),
        logical_key=f"{segment_id}|{kind}|{name}|{signature}",
        kind=kind,
        name=name,
        signature=signature,
        semantics=(kind, name, signature, *details),
        span=Span(*(number_or_none(row.get(edge)) for edge in ("start", "end", "startLine", "endLine"))),
        relations=row.get("codeRelations"),
    )


def match_chunks(before: Iterable[Chunk], after: Iterable[Chunk]) -> list[ChunkPair]:
    """Pair chunks by chunk id, then by a logical key that is unique among the rest; nothing is guessed."""
    old, new = _in_order(before), _in_order(after)
    by_id = _pair_by(_identity, old, new, only_unique=False)
    old, new = _unpaired(old, new, by_id)
    by_key = _pair_by(_logical_key, old, new, only_unique=True)
    old, new = _unpaired(old, new, by_key)
    return [*by_id, *by_key, *(ChunkPair(chunk, None) for chunk in old), *(ChunkPair(None, chunk) for chunk in new)]


def _chunk_id(row: JsonObject, meta: object) -> str | None:
    """`metaV2.chunkId`, then `chunkId`; a number is a row number, which identifies nothing."""
    candidates = (member(meta, "chunkId"), row.get("chunkId"))
    return next((value for value in candidates if isinstance(value, str) and value), None)


def _identity(chunk: Chunk) -> str | None:
    return chunk.chunk_id


def _logical_key(chunk: Chunk) -> str:
    return chunk.logical_key


def _pair_by(
    key_of: Callable[[Chunk], str | None], old: Sequence[Chunk], new: Sequence[Chunk], *, only_unique: bool
) -> list[ChunkPair]:
    old_by_key, new_by_key = _grouped(key_of, old), _grouped(key_of, new)
    pairs: list[ChunkPair] = []
    for key, candidates in old_by_key.items():
        others = new_by_key.get(key, [])
        if only_unique and (len(candidates) > 1 or len(others) > 1):
            continue
        pairs += [ChunkPair(left, right) for left, right in zip(candidates, others, strict=False)]
    return pairs


def _grouped(key_of: Callable[[Chunk], str | None], chunks: Iterable[Chunk]) -> dict[str, list[Chunk]]:
    groups: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        key = key_of(chunk)
        if key is not None:
            groups[key].append(chunk)
    return groups


def _unpaired(
    old: Sequence[Chunk], new: Sequence[Chunk], pairs: Iterable[ChunkPair]
) -> tuple[list[Chunk], list[Chunk]]:
    # By object, not by value: two rows may be equal in every member.
    taken = {id(chunk) for pair in pairs for chunk in (pair.before, pair.after)}
    return [chunk for chunk in old if id(chunk) not in taken], [chunk for chunk in new if id(chunk) not in taken]


def _comparable(value: object) -> Any:
    """A value that is equal where its JSON is; most often there is none, or a list of names."""
    if value is None or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return None if value is None else tuple(value)
    return canonical_json(value)


def _in_order(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Chunks in an order that does not hang on the order of their rows."""
    ordered = sorted(chunks, key=_place)
    if len(set(map(_place, ordered))) < len(ordered):
        # Only twins are told apart by everything they have, for that is slow.
        ordered.sort(key=lambda chunk: (_place(chunk), repr(chunk.semantics), canonical_json(chunk.relations)))
    return ordered


def _place(chunk: Chunk) -> tuple[object, ...]:
    span = chunk.span
    return (
        span.start or 0,
        span.start_line or 0,
        utf16_sort_key(chunk.logical_key),
        chunk.chunk_id or "",
        span.end or 0,
        span.end_line or 0,
    )
