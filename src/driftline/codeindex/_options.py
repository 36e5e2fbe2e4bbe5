"""The options of a diff, checked and in canonical form, and the id of a diff with given inputs.

>>> DiffOptions.of(modes="prose, code code", max_events=7.9).modes
('code', 'prose')
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from driftline.codeindex._read.resolve import ResolvedRef
from driftline.core import JsonObject, canonical_json, sha1_hex
from driftline.errors import IndexRefError

MODES = ("code", "prose", "extracted-prose", "records")
V1, V2 = "semantic-v1", "semantic-v2"
KINDS = (V1, V2)
CANONICAL_KEYS = ("version", "kind", "from", "to", "modes", "options")

_ENDPOINT_MEMBERS = ("snapshotId", "tag", "buildIdByMode", "pathHash", "treeId")
_ID_HEX_DIGITS = 16

# How much is compared by default: nearly everything between git revisions.
_LIMITS = {V1: (200, 500), V2: (5000, 5000)}

_BETWEEN_MODES = re.compile(r"[,\s]+")
_PLAIN_WORD = re.compile(r"[\w.-]{1,40}")


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What to compare and how much of it."""

    modes: tuple[str, ...] = ("code",)
    max_changed_files: int = 200
    max_chunks_per_file: int = 500
    max_events: int = 20000
    include_relations: bool = True
    detect_renames: bool = True
    kind: str = V1

    @classmethod
    def of(
        cls,
        modes: str | Iterable[str] = ("code",),
        max_changed_files: object = None,
        max_chunks_per_file: object = None,
        max_events: object = 20000,
        include_relations: bool = True,
        detect_renames: bool = True,
        kind: str | None = None,
    ) -> DiffOptions:
        """Options from a user's values; the default limits depend on the kind of diff."""
        if kind not in (None, *KINDS):
            raise IndexRefError(f"unknown kind of diff {_shown(str(kind))}: the kinds are {', '.join(KINDS)}")
        files, chunks = _LIMITS[kind or V1]
        return cls(
            parse_modes(modes),
            whole_number(files if max_changed_files is None else max_changed_files, "max-changed-files"),
            whole_number(chunks if max_chunks_per_file is None else max_chunks_per_file, "max-chunks-per-file"),
            whole_number(max_events, "max-events"),
            bool(include_relations),
            bool(detect_renames),
            kind or V1,
        )

    def identity(self) -> JsonObject:
        """The options that are part of a diff's identity; `max_events` only cuts the output."""
        return {
            "detectRenames": self.detect_renames,
            "includeRelations": self.include_relations,
            "maxChangedFiles": self.max_changed_files,
            "maxChunksPerFile": self.max_chunks_per_file,
        }


def kind_of(kind: str | None, refs: Iterable[str]) -> str | None:
    """The kind of diff: as asked for, else semantic-v2 between two git revisions, else semantic-v1."""
    between_git = all(str(ref).strip().lower().startswith(("git:", "worktree", "staged")) for ref in refs)
    return kind or (V2 if between_git else None)


def parse_modes(modes: str | Iterable[str]) -> tuple[str, ...]:
    """Modes from a list or a text split on commas and blanks, in mode order and without doubles."""
    parts = [modes] if isinstance(modes, str) else list(modes)
    words = {word for part in parts for word in _BETWEEN_MODES.split(str(part)) if word}
    unknown = sorted(words.difference(MODES))
    if unknown:
        raise IndexRefError(f"unknown mode {_shown(unknown[0])}: the modes are {', '.join(MODES)}")
    if not words:
        raise IndexRefError(f"no mode given: the modes are {', '.join(MODES)}")
    return tuple(mode for mode in MODES if mode in words)


def _shown(word: str) -> str:
    """A word as messages show it: nothing that could be a path of this machine."""
    return word if _PLAIN_WORD.fullmatch(word) else "(not shown)"


def whole_number(value: object, name: str, *, minimum: int = 1) -> int:
    """A count: rounded down and at least `minimum`.

    >>> whole_number("2.9", "n"), whole_number(-4, "n"), whole_number(0, "n", minimum=0)
    (2, 1, 0)
    """
    try:
        number = value if isinstance(value, int) else float(cast(str, value))  # what is no number raises
        return max(minimum, math.floor(number))
    except (TypeError, ValueError, OverflowError):
        raise IndexRefError(f"{name} must be a number") from None


# Identity: the canonical inputs of a diff and the id made from them (index diffs §3).


def canonical_inputs(before: ResolvedRef, after: ResolvedRef, options: DiffOptions) -> JsonObject:
    """The inputs object that identifies a diff; it holds no path."""
    return {
        "version": 1,
        "kind": options.kind,
        "from": _endpoint(before),
        "to": _endpoint(after),
        "modes": list(options.modes),
        "options": options.identity(),
    }


def diff_id(inputs: JsonObject) -> str:
    """The id of a diff with these canonical inputs.

    >>> diff_id({"a": 1}) == diff_id({"a": 1.0})
    True
    """
    return f"diff_{sha1_hex(stable_text(inputs))[:_ID_HEX_DIGITS]}"


def stable_text(inputs: JsonObject) -> str:
    """The text that ids and collisions are decided by."""
    return canonical_json(inputs, integer_keys_first=True)


def _endpoint(resolved: ResolvedRef) -> JsonObject:
    identity = resolved.identity
    endpoint = {"ref": resolved.ref.shown, "identityHash": resolved.identity_hash, "type": identity["type"]}
    members = (*_ENDPOINT_MEMBERS, "configHashByMode") if resolved.ref.kind == "git" else _ENDPOINT_MEMBERS
    return endpoint | {name: identity[name] for name in members if name in identity}
