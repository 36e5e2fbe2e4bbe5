"""What the public API is made of: facts a file, which depend on its bytes alone, and names a side.

A reader of a language turns the tree of a file into `FileFacts`; its surface joins the facts of all files by their
paths into the names that a caller can write.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node

# Raised when a reader or a surface changes: builds keep facts, and a kept fact must not outlive the rule behind it.
SURFACE_RULES = 4
_DEPTH = 5

TABLES = tomllib.loads(files("driftline.codeindex").joinpath("rules.toml").read_text("utf-8"))
WORDS: dict[str, dict[str, Any]] = TABLES["words"]


class Param(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, frozen=True):
    """A parameter: how it is given (`both`, `positional`, `keyword`, `rest`, `keywords`) and what stands for it."""

    name: str
    how: str = "both"
    default: str | None = None
    type: str = ""

    @property
    def required(self) -> bool:
        return self.default is None and self.how not in ("rest", "keywords")


class Fact(msgspec.Struct, omit_defaults=True, gc=False):
    """A definition as its file has it; `flags` are visibility, modifiers and what else rules ask for."""

    name: str
    kind: str
    line: int = 0
    params: list[Param] | None = None
    type: str = ""
    value: str = ""
    bases: list[str] = []
    generics: list[str] = []
    flags: list[str] = []
    members: list[Fact] = []


class FileFacts(msgspec.Struct, omit_defaults=True, gc=False):
    """The facts of a file; `declared` is Python's `__all__`, `manifest` what a package's own file says."""

    unit: str = ""
    names: list[Fact] = []
    stars: list[str] = []
    declared: list[str] | None = None
    flags: list[str] = []
    manifest: dict[str, Any] = {}


@dataclass(eq=False, slots=True)
class Thing:
    """A definition of one side, the same object under each name that reaches it."""

    fact: Fact
    file: str
    id: str
    members: dict[str, Thing] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    overloads: list[Fact] = field(default_factory=list)
    owner: Thing | None = None

    @classmethod
    def of(cls, fact: Fact, file: str, name: str) -> Thing:
        """A definition without its members."""
        return cls(fact, file, name, flags=frozenset(fact.flags), overloads=[fact])

    @classmethod
    def whole(cls, fact: Fact, file: str, name: str) -> Thing:
        """A definition with its members."""
        thing = cls.of(fact, file, name)
        for member in fact.members:
            thing.members[member.name] = inner = cls.whole(member, file, f"{name}.{member.name}")
            inner.owner = thing
        return thing

    @property
    def kind(self) -> str:
        return self.fact.kind


@dataclass(slots=True)
class SourceFile:
    """A file of one side: its facts, or why there are none."""

    path: str
    language: str
    hash: str
    facts: FileFacts
    broken: str | None = None


Files = Mapping[str, SourceFile]


@dataclass(slots=True)
class Surface:
    """The names of one side; `hidden` ones are there and not public, `open` units may have more than can be seen."""

    names: dict[str, Thing] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    open: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)

    def put(self, name: str, thing: Thing, depth: int = 0) -> None:
        """Add a name with its members."""
        self.names.setdefault(name, thing)
        for member, inner in thing.members.items() if depth < _DEPTH else ():
            self.put(f"{name}.{member}", inner, depth + 1)


# Nodes of a tree.


def text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""


def part(node: Node, name: str) -> str:
    return text(node.child_by_field_name(name))


def children(node: Node | None, *types: str) -> list[Node]:
    """Named children, comments left out; only of some types, if any are given."""
    found = node.named_children if node is not None else []
    return [child for child in found if (child.type in types if types else "comment" not in child.type)]


def line_of(node: Node) -> int:
    return node.start_point[0] + 1


def walk(node: Node, *types: str) -> Iterator[Node]:
    """Nodes of some types below a node, not inside of each other."""
    for child in node.named_children:
        if child.type in types:
            yield child
        else:
            yield from walk(child, *types)
