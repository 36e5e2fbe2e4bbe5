"""The artifacts of an index: where they are, in which form they are stored, and whether two are the same.

`pieces/manifest.json` lists them; what it does not list is found by its file name. A piece that is listed but is not
there is an error: a leftover in another form must not take its place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

import xxhash

from driftline.codeindex._read.resolve import IndexDir, ResolvedRef
from driftline.codeindex._storage import exists, explain, is_below, names_in, read_object, regular_size
from driftline.core import JsonObject, canonical_json, sha1_hex
from driftline.errors import IndexRefError

FILE_META = "file_meta"
CHUNK_META = "chunk_meta"
CHUNK_META_COLD = "chunk_meta_cold"
FILE_RELATIONS = "file_relations"

MANIFEST = "pieces/manifest.json"

Form = Literal["columns", "lines", "array"]

# In the order of preference when an artifact without a manifest is there in several forms.
_FORM_BY_SUFFIX: tuple[tuple[str, Form], ...] = ((".columnar.json", "columns"), (".jsonl", "lines"), (".json", "array"))
COMPRESSIONS = (".gz", ".zst")

# Members of a piece that say what is in it; others come and go from run to run.
_PIECE_MEMBERS = ("type", "name", "format", "path", "bytes", "checksum", "count")
_READ_BY_DIFF = (FILE_META, CHUNK_META, CHUNK_META_COLD, FILE_RELATIONS)
_REQUIRED = (FILE_META, CHUNK_META)

# Files up to this size are hashed even where the manifest has their checksums: a patched file is noticed.
_ALWAYS_HASHED_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _ListedFile:
    """A file of an artifact, and what a meta file says about it."""

    path: str
    size: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One file of an artifact."""

    path: Path
    place: str
    form: Form
    size: int = 0
    listed: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact as the files that make it up, in order."""

    name: str
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class Pieces:
    """What `pieces/manifest.json` says that does not change from run to run."""

    surface_version: object
    compatibility_key: object
    pieces: tuple[JsonObject, ...]
    by_path: dict[str, JsonObject] = field(default_factory=dict, compare=False)

    def of(self, artifact: str) -> list[str]:
        """The paths listed for an artifact: by its name, or by a file name that begins with it."""
        named = [(piece.get("path"), piece.get("name")) for piece in self.pieces]
        listed = [(path, name) for path, name in named if isinstance(path, str) and path]
        start = f"{artifact}."
        return [
            path for path, name in listed if name == artifact or path.rstrip("/").rpartition("/")[2].startswith(start)
        ]

    def piece_at(self, path: str) -> JsonObject:
        """What is said about one file."""
        return self.by_path.get(path, {})


def read_pieces(index: IndexDir) -> Pieces | None:
    """The manifest of an index, flat or inside `fields`; None where there is none."""
    path = inside(index, MANIFEST)
    if not exists(path, index.place(MANIFEST)):
        return None
    outer = read_object(path, index.place(MANIFEST))
    fields = outer["fields"] if isinstance(outer.get("fields"), dict) else outer
    pieces = fields.get("pieces", outer.get("pieces"))
    listed = tuple(piece for piece in pieces if isinstance(piece, dict)) if isinstance(pieces, list) else ()
    # Where a path is listed twice, the first one counts.
    by_path = {piece["path"]: piece for piece in reversed(listed) if isinstance(piece.get("path"), str)}
    return Pieces(fields.get("artifactSurfaceVersion"), fields.get("compatibilityKey"), listed, by_path)


def find_artifact(index: IndexDir, name: str, pieces: Pieces | None) -> Artifact | None:
    """The artifact of that name, or None where the index has none."""
    files = _artifact_files(index, name, pieces)
    return None if files is None else Artifact(name, tuple(_part(index, file, pieces) for file in files))


def _artifact_files(index: IndexDir, name: str, pieces: Pieces | None) -> list[_ListedFile] | None:
    """The files with the rows of an artifact, in order and not read; None where the index has none."""
    candidates = (pieces.of(name) if pieces else []) or _found_by_name(index, name)
    if not candidates:
        return None
    shards = _shards(index, name, candidates, pieces)
    if shards is not None:
        return shards
    singles = sorted((path for path in candidates if not path.endswith(".meta.json")), key=len)
    single = next((path for _, form in _FORM_BY_SUFFIX for path in singles if _form_of(path) == form), None)
    if single is None:
        raise IndexRefError(
            f"{index.place(name)} is stored in a form that cannot be read: "
            "JSON, JSONL (plain, gzip, zstd), sharded JSONL and columnar JSON can"
        )
    return [_ListedFile(single)]


def stored_bytes(index: IndexDir, name: str, pieces: Pieces | None) -> int:
    """About how large an artifact is: as listed, else by the size of its files; 0 where there is none."""
    files = _artifact_files(index, name, pieces) or ()
    return sum(_part(index, file, pieces).size if file.size is None else file.size for file in files)


def require_artifact(index: IndexDir, name: str, pieces: Pieces | None) -> Artifact:
    """The artifact of that name; `NOT_FOUND` where the index has none."""
    artifact = find_artifact(index, name, pieces)
    if artifact is None:
        raise IndexRefError(f"{index.place(name)} does not exist in any form", code="NOT_FOUND")
    return artifact


def _form_of(path: str) -> Form | None:
    """The storage form of a file, by its name.

    >>> _form_of("chunk_meta.parts/chunk_meta.part-00000.jsonl.zst"), _form_of("chunk_meta.bin")
    ('lines', None)
    """
    plain = path
    for suffix in COMPRESSIONS:
        plain = plain.removesuffix(suffix)
    return next((form for suffix, form in _FORM_BY_SUFFIX if plain.endswith(suffix)), None)


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed, by its name."""
    return path.suffix in COMPRESSIONS


def _found_by_name(index: IndexDir, name: str) -> list[str]:
    folder = f"{name}.parts"
    shards = names_in(index.path / folder, index.place(folder))
    parts = [f"{folder}/{part}" for part in shards if part.startswith(f"{name}.")]
    names = names_in(index.path, index.label)
    return [entry for entry in names if entry.startswith(f"{name}.") and entry != folder] + parts


def _shards(index: IndexDir, name: str, candidates: list[str], pieces: Pieces | None) -> list[_ListedFile] | None:
    """The shards in their order: `parts` of the meta file, else sorted names; None where it is not sharded.

    An empty list of parts is an empty artifact, whatever other files there are.
    """
    meta = next((path for path in candidates if PurePosixPath(path).name == f"{name}.meta.json"), None)
    listed = _parts_of_meta(index, name, meta) if meta else None
    in_manifest = {path for path in (pieces.of(name) if pieces else []) if _is_shard(name, path)}
    if listed is not None:
        if in_manifest - {shard.path for shard in listed}:
            raise IndexRefError(
                f"{index.place(str(meta))} leaves out shards that {MANIFEST} lists: build the index again"
            )
        return listed
    in_folder = candidates if not meta else [*candidates, *_found_by_name(index, name)]
    shards = {path for path in in_folder if _is_shard(name, path)}
    return [_ListedFile(path) for path in sorted(shards)] or None


def _is_shard(name: str, path: str) -> bool:
    return f"{name}.parts/" in path and _form_of(path) == "lines"


def _parts_of_meta(index: IndexDir, name: str, meta: str) -> list[_ListedFile] | None:
    content = read_object(inside(index, meta), index.place(meta))
    fields = content["fields"] if isinstance(content.get("fields"), dict) else content
    parts = fields.get("parts", content.get("parts"))
    return [_listed_shard(index, name, part, index.place(meta)) for part in parts] if isinstance(parts, list) else None


def _listed_shard(index: IndexDir, name: str, listed: object, place: str) -> _ListedFile:
    """A shard is named from the index directory; a bare name is looked up in the folder of shards too."""
    part = listed if isinstance(listed, dict) else {"path": listed}
    path = part.get("path")
    if not isinstance(path, str) or _form_of(path) is None:
        raise IndexRefError(f"{place} lists a part that is no JSON or JSONL file")
    in_folder = f"{name}.parts/{path}"
    bare = "/" not in path and not exists(inside(index, path), index.place(path))
    found = in_folder if bare and exists(inside(index, in_folder), index.place(in_folder)) else path
    return _ListedFile(found, _count(part.get("bytes")), _count(part.get("records", part.get("count"))))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _part(index: IndexDir, file: _ListedFile, pieces: Pieces | None) -> Part:
    """A file that is there; one with fewer bytes than manifest or meta file promise has lost rows."""
    form = _form_of(file.path)
    assert form is not None
    path, place = inside(index, file.path), index.place(file.path)
    size = regular_size(path, place)
    promised = max(file.size or 0, _count(pieces.piece_at(file.path).get("bytes")) or 0 if pieces else 0)
    if size < promised or (size == 0 and file.rows):
        what = f"{promised} bytes" if size < promised else f"{file.rows} rows"
        raise IndexRefError(f"{place} is cut short: it has {size} bytes, but {what} are listed; build the index again")
    return Part(path, place, form, size, file.path)


def inside(index: IndexDir, relative: str) -> Path:
    """A file of the index; a listed path that leaves the index (or, by symlink, the cache root) is refused."""
    path = Path(os.path.abspath(os.path.join(index.path, relative)))
    if "\0" in relative or not is_below(str(path), str(index.path)):
        raise IndexRefError(f"{index.label} lists a file outside of the index")
    return path if index.cache is None else index.cache.inside(str(path), index.place(relative))


# Whether artifacts are the same: those of two sides, and those of a stored diff and now (index diffs §3.3).


def same_artifacts(before: IndexDir, after: IndexDir, old: Pieces | None, new: Pieces | None) -> bool:
    """Whether both manifests vouch, by checksums, for the same rows; their files are not read.

    Only files with rows count: meta files contain times, and sidecars are not read.
    """
    if old is None or new is None:
        return False
    if (old.surface_version, old.compatibility_key) != (new.surface_version, new.compatibility_key):
        return False
    vouched = _vouched_pieces(before, old)
    return vouched is not None and vouched == _vouched_pieces(after, new)


def _vouched_pieces(index: IndexDir, pieces: Pieces) -> list[str] | None:
    """The pieces that a diff reads, as sorted texts; None unless each has a checksum and none is missing."""
    try:
        found = {name: _artifact_files(index, name, pieces) for name in _READ_BY_DIFF if pieces.of(name)}
    except IndexRefError:
        return None  # a meta file is damaged, which reading the artifact will say
    if any(found.get(name) is None for name in _REQUIRED):
        return None
    read = [pieces.piece_at(file.path) for files in found.values() for file in files or ()]
    if not all(isinstance(piece.get("checksum"), str) and piece["checksum"] for piece in read):
        return None
    return sorted(canonical_json({name: piece.get(name) for name in _PIECE_MEMBERS}) for piece in read)


def fingerprints(resolved: ResolvedRef) -> dict[str, str]:
    """A fingerprint for each mode of one side, without paths and times: the checksums of the manifest where it vouches
    for the artifacts, else the files' own content.
    """
    found = {}
    for mode, index in resolved.indexes.items():
        pieces = read_pieces(index)
        vouched = _vouched_pieces(index, pieces) if pieces is not None else None
        artifacts = [find_artifact(index, name, pieces) for name in _READ_BY_DIFF]
        marks = []
        for part in (part for artifact in artifacts if artifact is not None for part in artifact.parts):
            is_trusted = vouched is not None and part.size > _ALWAYS_HASHED_BYTES
            digest = None if is_trusted else file_digest(part.path, part.place)
            marks.append([f"/{part.listed}", part.size, digest])
        found[mode] = sha1_hex(canonical_json({"pieces": vouched, "parts": marks}))
    return found


def file_digest(path: Path, place: str) -> str:
    """The digest of a file's content."""
    digest = xxhash.xxh3_128()
    try:
        with open(path, "rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise explain(error, place) from None
    return digest.hexdigest()
