"""Definitions as semantic-v2 compares them, read from the rows of an index that driftline built (index diffs §7)."""

from __future__ import annotations

import binascii
import struct
from dataclasses import dataclass, field

import msgspec

from driftline.codeindex.index_rows import ChunkRow
from driftline.codeindex.json_values import member
from driftline.codeindex.rows import Row
from driftline.errors import IndexRefError

Sketch = tuple[int, ...]

SKETCH_VALUES = 64
_VALUE_BYTES = 4


@dataclass(slots=True, eq=False)
class Symbol:
    """One definition on one side."""

    file: str
    name: str
    ordinal: int
    kind: str
    parent: str
    signature: str
    signature_hash: str
    body_hash: str
    doc_hash: str
    own_tokens: int
    signature_tokens: int
    tokens: int
    shingles: int
    public: bool
    calls: tuple[str, ...]
    range: dict[str, int]
    encoded_sketch: str
    _sketch: Sketch | None = field(default=None, repr=False)

    @property
    def leaf(self) -> str:
        """The last name, inside of the container."""
        return self.name[len(self.parent) + 1 :] if self.parent else self.name

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells definitions of one side apart, and orders them."""
        return self.file, self.name, self.ordinal

    @property
    def sketch(self) -> Sketch:
        """The smallest hashes of its shingles, sorted."""
        if self._sketch is None:
            self._sketch = _sketch_of(self.encoded_sketch)
        return self._sketch

    def side(self) -> dict[str, object]:
        """One side of an event."""
        return {"file": self.file, "name": self.name, "signature": self.signature, "range": self.range}


def _sketch_of(encoded: str) -> Sketch:
    try:
        raw = binascii.a2b_base64(encoded)
        return struct.unpack(f"<{len(raw) // _VALUE_BYTES}I", raw)
    except (struct.error, ValueError):
        raise _damaged() from None


def _damaged() -> IndexRefError:
    return IndexRefError("a chunk row is damaged: build the index again (index build --force)")


def symbol_from_row(row: Row, file: str) -> Symbol:
    """A definition from its row; rows of other tools do not say enough."""
    if not isinstance(member(row.get("metaV2"), "bodyHash"), str):
        raise IndexRefError(
            "semantic-v2 compares indexes that driftline built from git; this one has no body hashes "
            "(--kind semantic-v1 compares it)"
        )
    try:
        return symbol_from_chunk(msgspec.convert({**row, "file": file}, ChunkRow))
    except msgspec.ValidationError:
        raise _damaged() from None


def symbol_from_chunk(row: ChunkRow) -> Symbol:
    """A definition from a row that driftline wrote."""
    meta = row.metaV2
    return Symbol(
        file=row.file,
        name=row.name,
        ordinal=meta.ordinal,
        kind=row.kind,
        parent=meta.parent,
        signature=meta.signature,
        signature_hash=meta.sigHash,
        body_hash=meta.bodyHash,
        doc_hash=meta.docHash,
        own_tokens=meta.ownTokens,
        signature_tokens=meta.sigTokens,
        tokens=meta.tokens,
        shingles=meta.shingles,
        public=meta.public,
        calls=tuple(callee for _, callee in row.codeRelations.calls),
        range={"start": row.start, "end": row.end, "startLine": row.startLine, "endLine": row.endLine},
        encoded_sketch=meta.sketch,
    )


def similarity(left: Symbol, right: Symbol) -> float:
    """The Jaccard index of the shingles of two definitions, estimated where they have many."""
    one, other = set(left.sketch), set(right.sketch)
    if not one or not other:
        return 0.0
    shared = one & other
    if left.shingles <= SKETCH_VALUES and right.shingles <= SKETCH_VALUES:
        return len(shared) / (len(one) + len(other) - len(shared))
    union = sorted(one | other)[:SKETCH_VALUES]
    return len(shared.intersection(union)) / len(union)


def changes(before: Symbol, after: Symbol, *, with_relations: bool = True) -> list[str]:
    """What differs between the two sides of a definition, in this order."""
    found = []
    if (before.signature_hash, before.kind) != (after.signature_hash, after.kind):
        found.append("signature")
    if before.body_hash != after.body_hash:
        found.append("body")
    if before.doc_hash != after.doc_hash:
        found.append("doc")
    if with_relations and before.calls != after.calls:
        found.append("relations")
    return found
