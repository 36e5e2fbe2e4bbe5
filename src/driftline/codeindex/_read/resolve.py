"""What is compared: index references, resolved to directories and an identity, and the options of a diff.

Resolution is relative to the cache root; a path reference stands for itself. Identities never contain a path:
a path reference is known by the hash of its absolute path.

>>> parse_ref(" BUILD:20260124T000000Z_abc ")
IndexRef(kind='build', value='20260124T000000Z_abc')
>>> parse_ref("latest").canonical
'latest'
>>> DiffOptions.of(modes="prose, code code", max_events=7.9).modes
('code', 'prose')
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeGuard, cast

from driftline.codeindex._storage import CacheRoot, exists, is_directory, read_object
from driftline.core import JsonObject, canonical_json, sha1_hex
from driftline.errors import IndexRefError

RefKind = Literal["latest", "worktree", "staged", "build", "snapshot", "tag", "path", "git"]

REDACTED_PATH = "path:<redacted>"

BUILD_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
SNAPSHOT_ID = re.compile(r"snap-[A-Za-z0-9._-]+")
TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,63}")

# prefix -> (kind, pattern of the whole value); a path only must not be blank
_FORMS: dict[str, tuple[RefKind, re.Pattern[str]]] = {
    "build": ("build", BUILD_ID),
    "snap": ("snapshot", SNAPSHOT_ID),
    "tag": ("tag", TAG),
    "path": ("path", re.compile(r".*\S.*", re.DOTALL)),
    "git": ("git", re.compile(r"[^\x00-\x1f]*[^\x00-\x20][^\x00-\x1f]*")),
}
_PREFIX_OF: dict[RefKind, str] = {kind: prefix for prefix, (kind, _) in _FORMS.items()}
_WORDS: tuple[RefKind, ...] = ("latest", "worktree", "staged")
_KNOWN_FORMS = "git:<revision>, worktree, staged, latest, build:<id>, snap:<id>, tag:<tag> or path:<directory>"

# What JavaScript's `trim` removes; Python's `strip` differs at U+FEFF, U+0085 and U+001C to U+001F.
_WHITE_SPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))


@dataclass(frozen=True, slots=True)
class IndexRef:
    """A parsed index reference."""

    kind: RefKind
    value: str = ""

    @property
    def canonical(self) -> str:
        """The one way to write this reference; a path is kept as given, so this form is for memory only."""
        return f"{_PREFIX_OF[self.kind]}:{self.value}" if self.kind in _PREFIX_OF else self.kind

    @property
    def is_of_git(self) -> bool:
        """Whether it names a state of a git repository."""
        return self.kind in ("git", "worktree", "staged")

    @property
    def shown(self) -> str:
        """The form for messages and files: a path is redacted."""
        return REDACTED_PATH if self.kind == "path" else self.canonical


def parse_ref(text: str) -> IndexRef:
    """Parse an index reference; anything else is `INVALID_REQUEST`."""
    if not isinstance(text, str):
        raise IndexRefError(f"an index reference is a text: {_KNOWN_FORMS}")
    trimmed = text.strip(_WHITE_SPACE)
    for word in _WORDS:
        if trimmed.lower() == word:
            return IndexRef(word)
    prefix, colon, value = trimmed.partition(":")
    form = _FORMS.get(prefix.lower()) if colon else None
    if form is None:
        # The text is not repeated: it may be a bare directory, and messages hold no absolute paths.
        raise IndexRefError(f"not an index reference: write {_KNOWN_FORMS}")
    kind, pattern = form
    if pattern.fullmatch(value) is None:
        raise IndexRefError(f"not a valid value after {prefix.lower()}: (it must match {pattern.pattern})")
    return IndexRef(kind, value)


@dataclass(frozen=True, slots=True)
class IndexDir:
    """The index of one mode: its directory, and the name it has in messages."""

    path: Path
    label: str
    cache: CacheRoot | None = None

    def place(self, relative: str) -> str:
        """How a message names a file of this index."""
        return f"{self.label}/{relative}"


@dataclass(frozen=True, slots=True)
class ResolvedRef:
    """What a reference stands for: an index directory per mode and an identity without paths."""

    ref: IndexRef
    identity: JsonObject
    indexes: dict[str, IndexDir]
    config_hashes: dict[str, str]
    label: str | None = None


class _Target(NamedTuple):
    """Where the index of one mode lives, before anything was read from it."""

    root: Path
    place: str
    build_id: str | None = None


def resolve(ref: IndexRef, cache: CacheRoot | None, modes: Sequence[str]) -> ResolvedRef:
    """Find the directories of `ref` for the given modes."""
    if ref.kind == "path":
        return _resolve_path(ref, modes)
    if ref.is_of_git:
        raise IndexRefError(f"{ref.canonical} needs a repository (--repo)")
    if cache is None:
        raise IndexRefError(f"{ref.canonical} needs a cache root (--cache-root)")
    named: dict[str, str] = {}
    if ref.kind == "latest":
        targets = _latest_targets(cache, modes)
    elif ref.kind == "build":
        place = f"builds/{ref.value}"
        targets = dict.fromkeys(modes, _target(cache, place, place, ref.value))
    else:
        targets, named = _snapshot_targets(cache, ref, modes)
    states = {mode: _build_state(target, required=ref.kind == "latest") for mode, target in targets.items()}
    builds = {f"{name}ByMode": _by_mode(states, name) for name in ("buildId", "configHash", "toolVersion")}
    identity = {"type": ref.kind, **named, **{name: by_mode for name, by_mode in builds.items() if by_mode}}
    indexes = {mode: _index_dir(ref, mode, target, cache) for mode, target in targets.items()}
    return ResolvedRef(ref, identity, indexes, builds["configHashByMode"])


def resolve_tree(tree_id: str, root: Path, cache: CacheRoot, modes: Sequence[str], label: str) -> ResolvedRef:
    """The build of a git tree; it is identified by the tree, whatever revision was named."""
    ref = IndexRef("git", tree_id)
    target = _Target(root, ref.shown)
    state = _build_state(target, required=True)
    config_hashes = dict.fromkeys(modes, str(state.get("configHash", "")))
    identity = {"type": "git", "treeId": tree_id, "configHashByMode": config_hashes}
    indexes = {mode: _index_dir(ref, mode, target, cache) for mode in modes}
    return ResolvedRef(ref, identity, indexes, config_hashes, label)


def check_compatible(before: ResolvedRef, after: ResolvedRef) -> None:
    """Builds made with different configurations differ everywhere: refuse to compare them."""
    for mode, config_hash in before.config_hashes.items():
        if after.config_hashes.get(mode, config_hash) != config_hash:
            raise IndexRefError(
                f"{before.ref.shown} and {after.ref.shown} were built with different configurations (mode {mode}): "
                "compare them anyway with --allow-mismatch"
            )


def _resolve_path(ref: IndexRef, modes: Sequence[str]) -> ResolvedRef:
    root = Path(os.path.abspath(ref.value))
    target = _Target(root, ref.shown)
    indexes = {mode: _index_dir(ref, mode, target, None) for mode in modes}
    states = dict.fromkeys(modes, _build_state(target, required=False))
    identity = {"type": "path", "pathHash": sha1_hex(os.fsencode(root))}
    return ResolvedRef(ref, identity, indexes, _by_mode(states, "configHash"))


def _latest_targets(cache: CacheRoot, modes: Sequence[str]) -> dict[str, _Target]:
    place = "builds/current.json"
    current = read_object(cache.inside(place, place), place)
    build_id = current.get("buildId")
    if build_id is not None and not _matches(build_id, BUILD_ID):
        raise IndexRefError(f"{place} has a buildId that is no build id")
    return {mode: _latest_target(cache, current, mode, build_id) for mode in modes}


def _latest_target(cache: CacheRoot, current: JsonObject, mode: str, build_id: str | None) -> _Target:
    """The root of a mode as written: a directory below the cache root, or the bare id of a build."""
    roots = {f"{name}.{mode}": _member(current, name).get(mode) for name in ("buildRoots", "buildRootsByMode")}
    name, root = next(((name, root) for name, root in roots.items() if root), ("buildRoot", current.get("buildRoot")))
    place = f"{name} of builds/current.json"
    if _matches(root, BUILD_ID) and not is_directory(cache.inside(root, place), place):
        return _target(cache, f"builds/{root}", place, build_id or root)
    if root:
        return _target(cache, root, place, build_id)
    if build_id is None:
        raise IndexRefError(f"builds/current.json names no build for mode {mode}", code="NOT_FOUND")
    return _target(cache, f"builds/{build_id}", f"builds/{build_id}", build_id)


def _snapshot_targets(
    cache: CacheRoot, ref: IndexRef, modes: Sequence[str]
) -> tuple[dict[str, _Target], dict[str, str]]:
    listing = "snapshots/manifest.json"
    manifest = read_object(cache.inside(listing, listing), listing)
    snapshot_id = ref.value if ref.kind == "snapshot" else _tagged_snapshot(manifest, ref.value)
    entry = _snapshot_entry(manifest, snapshot_id)
    folder = f"snapshots/{snapshot_id}"
    place = f"{folder}/snapshot.json"
    snapshot = read_object(cache.inside(place, place), place)
    named = {"snapshotId": snapshot_id, **({"tag": ref.value} if ref.kind == "tag" else {})}
    if _is_frozen(cache, folder, entry, snapshot):
        frozen = f"{folder}/frozen"
        return dict.fromkeys(modes, _target(cache, frozen, frozen)), named
    roots = _member(_member(snapshot, "pointer"), "buildRootsByMode")
    for mode in modes:
        if not roots.get(mode):
            raise IndexRefError(f"{place} points to no build for mode {mode}", code="NOT_FOUND")
    pointed = {mode: _target(cache, roots[mode], f"pointer.buildRootsByMode.{mode} of {place}") for mode in modes}
    return pointed, named


def _snapshot_entry(manifest: JsonObject, snapshot_id: str) -> JsonObject:
    """What the manifest says about a snapshot, in a map by id or in a list."""
    listed = manifest.get("snapshots")
    if isinstance(listed, list):
        listed = {str(entry.get("snapshotId", entry.get("id"))): entry for entry in listed if isinstance(entry, dict)}
    entry = listed.get(snapshot_id) if isinstance(listed, dict) else None
    if entry is None:
        raise IndexRefError(f"snapshots/manifest.json does not list {snapshot_id}", code="NOT_FOUND")
    return entry if isinstance(entry, dict) else {}


def _tagged_snapshot(manifest: JsonObject, tag: str) -> str:
    ids = _member(manifest, "tags").get(tag)
    first = ids[0] if isinstance(ids, list) and ids else ids
    if not first:
        raise IndexRefError(f"snapshots/manifest.json has no snapshot for tag:{tag}", code="NOT_FOUND")
    if not _matches(first, SNAPSHOT_ID):
        raise IndexRefError(f"snapshots/manifest.json: tag:{tag} does not name a snapshot id")
    return str(first)


def _is_frozen(cache: CacheRoot, folder: str, entry: JsonObject, snapshot: JsonObject) -> bool:
    """Whether a snapshot is frozen: by what it states, else by whether it has a `frozen` directory."""
    if "frozen" in (entry.get("kind"), snapshot.get("kind")):
        return True
    flags = [record.get(name) for record in (entry, snapshot) for name in ("hasFrozen", "frozen")]
    stated = [bool(flag) for flag in flags if flag is not None]
    return any(stated) if stated else is_directory(cache.inside(f"{folder}/frozen", f"{folder}/frozen"), folder)


def _target(cache: CacheRoot, relative: object, place: str, build_id: str | None = None) -> _Target:
    if not isinstance(relative, str):
        raise IndexRefError(f"{place} is not a directory name")
    return _Target(cache.inside(relative, place), place, build_id)


def _index_dir(ref: IndexRef, mode: str, target: _Target, cache: CacheRoot | None) -> IndexDir:
    name = f"index-{mode}"
    path = target.root / name if cache is None else cache.inside(str(target.root / name), f"{target.place}: {name}")
    if not is_directory(path, f"{ref.shown}: {name}"):
        raise IndexRefError(f"{ref.shown} has no {name} directory", code="NOT_FOUND")
    return IndexDir(path, f"{ref.shown}: {name}", cache)


def _build_state(target: _Target, *, required: bool) -> JsonObject:
    path, place = target.root / "build_state.json", f"{target.place}: build_state.json"
    state = read_object(path, place) if required or exists(path, place) else {}
    texts = {
        "buildId": state.get("buildId"),
        "configHash": state.get("configHash"),
        "toolVersion": _member(state, "tool").get("version"),
    }
    return {"buildId": target.build_id} | {name: text for name, text in texts.items() if isinstance(text, str) and text}


def _by_mode(states: dict[str, JsonObject], name: str) -> dict[str, str]:
    return {mode: state[name] for mode, state in states.items() if state.get(name)}


def _member(record: JsonObject, name: str) -> JsonObject:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _matches(value: object, pattern: re.Pattern[str]) -> TypeGuard[str]:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


# The options of a diff, checked and in canonical form, and the id of a diff with given inputs.

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
        return {
            "detectRenames": self.detect_renames,
            "includeRelations": self.include_relations,
            "maxChangedFiles": self.max_changed_files,
            "maxChunksPerFile": self.max_chunks_per_file,
        }


def kind_of(kind: str | None, refs: Iterable[str]) -> str | None:
    """The kind of diff: as requested, else semantic-v2 between two git revisions, else semantic-v1."""
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
    digest = sha1_hex(canonical_json(identity, integer_keys_first=True))
    endpoint = {"ref": resolved.ref.shown, "identityHash": digest, "type": identity["type"]}
    members = (*_ENDPOINT_MEMBERS, "configHashByMode") if resolved.ref.kind == "git" else _ENDPOINT_MEMBERS
    return endpoint | {name: identity[name] for name in members if name in identity}
