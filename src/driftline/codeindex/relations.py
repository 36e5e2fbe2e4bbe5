"""Edges of chunks and files, and which of them came or went (index diffs §5.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from driftline.codeindex.chunks import Chunk, ChunkPair
from driftline.codeindex.json_values import member, text_or_empty
from driftline.core._json import JsonObject, utf16_sort_key

EDGE_TYPES = ("imports", "calls", "usageLinks")


class Edge(msgspec.Struct, frozen=True):
    """A relation as it is known across builds; what it resolved to is left out, for it changes with every edit."""

    type: str
    to: str
    extra: str = ""


class EdgeChange(msgspec.Struct, frozen=True):
    """An edge that came or went, seen from the after side's key."""

    added: bool
    from_key: str
    edge: Edge

    @property
    def edge_key(self) -> str:
        """`type|fromLogicalKey|to|extra`."""
        return f"{self.edge.type}|{self.from_key}|{self.edge.to}|{self.edge.extra}"

    @property
    def order(self) -> tuple[object, ...]:
        """By (fromKey, to, type); then by extra, added before removed."""
        texts = (self.from_key, self.edge.to, self.edge.type, self.edge.extra)
        return (*map(utf16_sort_key, texts), not self.added)


def changed_edges(pairs: Iterable[ChunkPair]) -> Iterator[EdgeChange]:
    """Edge changes of the matched chunks; a changed signature alone turns no edge over."""
    for pair in pairs:
        if pair.before is None or pair.after is None:
            continue
        if pair.before.relations != pair.after.relations:
            yield from _difference(edges_of(pair.before), edges_of(pair.after), pair.after.logical_key)


def changed_file_imports(
    path: str, before: Iterable[str], after: Iterable[str], old: Iterable[Chunk], new: Iterable[Chunk]
) -> Iterator[EdgeChange]:
    """Changed imports of a whole file, except those that a chunk of that side carries itself."""
    changes = list(_difference(_imports(before), _imports(after), f"file:{path}"))
    carried = {True: _carried(new), False: _carried(old)} if changes else {}
    return (change for change in changes if change.edge not in carried[change.added])


def file_imports(row: JsonObject) -> list[str]:
    """The imported names in a `file_relations` row."""
    return [edge.to for edge in _edges(row.get("relations"), ("imports",))]


def edges_of(chunk: Chunk) -> frozenset[Edge]:
    """The edges of a chunk, each once."""
    return frozenset(_edges(chunk.relations, EDGE_TYPES))


def _edges(relations: object, types: Iterable[str]) -> Iterator[Edge]:
    for edge_type in types:
        links = member(relations, edge_type)
        for link in links if isinstance(links, list) else []:
            target = _target(link)
            if target:
                yield Edge(edge_type, target, text_or_empty(member(link, "extra")))


def _target(link: object) -> str:
    """What a link points to: a text, the callee of a pair, or the target's name in an object."""
    if isinstance(link, str):
        return link
    if isinstance(link, list):
        return text_or_empty(link[1]) if len(link) > 1 else ""
    to = member(link, "to")
    named = member(to, "targetName") if isinstance(to, dict) else to
    return text_or_empty(named or member(link, "callee") or member(link, "targetName"))


def _imports(names: Iterable[str]) -> frozenset[Edge]:
    return frozenset(Edge("imports", name) for name in names)


def _carried(chunks: Iterable[Chunk]) -> frozenset[Edge]:
    return frozenset(Edge("imports", edge.to) for chunk in chunks for edge in edges_of(chunk) if edge.type == "imports")


def _difference(before: frozenset[Edge], after: frozenset[Edge], from_key: str) -> Iterator[EdgeChange]:
    for edge in after - before:
        yield EdgeChange(True, from_key, edge)
    for edge in before - after:
        yield EdgeChange(False, from_key, edge)
