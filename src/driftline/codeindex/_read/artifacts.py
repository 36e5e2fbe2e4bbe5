"""The artifacts of an index: where they are, in which form they are stored, whether two are the same, and their rows.

`pieces/manifest.json` lists them; what it does not list is found by its file name. A piece that is listed but is not
there is an error: a leftover in another form must not take its place. Rows are read one shard at a time: each is first
probed for its key alone, and only selected ones are parsed.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import msgspec
import xxhash

from driftline.codeindex._read.resolve import IndexDir, ResolvedRef
from driftline.codeindex._storage import exists, explain, is_below, names_in, parse_json, read_object, regular_size
from driftline.core import (
    JsonObject,
    Tracker,
    canonical_json,
    compression_of_bytes,
    decompressed,
    no_progress,
    sha1_hex,
)
from driftline.errors import IndexRefError, InputError

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


class _ListedFile(NamedTuple):
    """A file of an artifact, and what a meta file says about it."""

    path: str
    size: int | None = None
    rows: int | None = None


class Part(NamedTuple):
    """One file of an artifact."""

    path: Path
    place: str
    form: Form
    size: int = 0
    listed: str = ""


class Artifact(NamedTuple):
    """An artifact as the files that make it up, in order."""

    name: str
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
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
        listed = [piece for piece in self.pieces if isinstance(piece.get("path"), str) and piece["path"]]
        named = [(piece["path"], piece["path"].rstrip("/").rpartition("/")[2], piece.get("name")) for piece in listed]
        return [path for path, leaf, name in named if name == artifact or leaf.startswith(f"{artifact}.")]


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
    promised = max(file.size or 0, _count(pieces.by_path.get(file.path, {}).get("bytes")) or 0 if pieces else 0)
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
    read = [pieces.by_path.get(file.path, {}) for files in found.values() for file in files or ()]
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
    digest = xxhash.xxh3_128()
    try:
        with open(path, "rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise explain(error, place) from None
    return digest.hexdigest()


# Rows of an artifact in any storage form.


Row = JsonObject

_MAGIC_BYTES = 4


class Probe(msgspec.Struct, gc=False):
    """The members of a row by which it is selected."""

    id: object = None
    file: object = None
    fileId: object = None  # noqa: N815 - named as in the artifact


# Returns the key of a selected row, or None to leave the row unparsed.
_Choose = Callable[[Probe], Any]


def every_row(_probe: Probe) -> bool:
    return True


def all_rows(artifact: Artifact, tracker: Tracker | None = None) -> Iterator[Row]:
    for _, row in selected_rows(artifact, every_row, tracker):
        yield row


def selected_rows(artifact: Artifact, choose: _Choose, tracker: Tracker | None = None) -> Iterator[_Found]:
    """The selected rows of an artifact with their keys, shard after shard."""
    for part in artifact.parts:
        yield from rows_between(part, 0, None, choose, tracker)


def rows_between(
    part: Part, start: int, end: int | None, choose: _Choose, tracker: Tracker | None = None
) -> Iterator[_Found]:
    """The selected rows of a part; only uncompressed lines can be cut, a line belonging to where it starts."""
    watch = tracker or no_progress()
    with _opened(part) as stream:
        if part.form == "lines":
            place, number = part.place if start == 0 else f"{part.place} (from byte {start})", 0
            for block in _line_blocks(stream, start, end):
                yield from _from_texts(block, choose, place, "line", number)
                number += len(block)
                watch.advance(sum(map(len, block)))
            return
        data = stream.read()
        watch.advance(len(data))
        if part.form == "array":
            yield from _from_texts(_raw_items(data, part.place), choose, part.place, "element", 0)
            return
        columns, rows = _columns(parse_json(data, part.place), part.place)
        probed = [columns.get(name) or [None] * rows for name in Probe.__struct_fields__]
        for number in range(rows):
            key = choose(Probe(*(column[number] for column in probed)))
            if key is not None:
                yield key, {name: column[number] for name, column in columns.items()}


_Found = tuple[Any, Row]  # what the selector made of a row, and the row
_Text = bytes | msgspec.Raw

_probe = msgspec.json.Decoder(Probe).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _line_blocks(stream: BinaryIO, start: int, end: int | None) -> Iterator[list[bytes]]:
    position = start
    if start > 0:
        # The line that crosses `start` belongs to the range before.
        stream.seek(start - 1)
        position += len(stream.readline()) - 1
    while end is None or position < end:
        left = _BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - position)
        # `readlines` goes on until it has more bytes than the hint, and takes 0 for "no limit".
        block = stream.readlines(left - 1) if left > 1 else [line for line in [stream.readline()] if line]
        if not block:
            return
        yield block
        position += sum(map(len, block))


def _raw_items(data: bytes, place: str) -> Iterable[_Text]:
    try:
        return _decode_items(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        items = parse_json(data, place)
        if not isinstance(items, list):
            raise IndexRefError(f"{place} is not a JSON array") from None
        return (json.dumps(item).encode() for item in items)


def _from_texts(texts: Iterable[_Text], choose: _Choose, place: str, unit: str, before: int) -> Iterator[_Found]:
    for number, text in enumerate(texts, before + 1):
        try:
            probe = _probe(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if not bytes(text).strip():
                continue
            row = _parse_row(text, f"{place} {unit} {number}")
            probe = Probe(row.get("id"), row.get("file"), row.get("fileId"))
        key = choose(probe)
        if key is not None:
            yield key, _parse_row(text, f"{place} {unit} {number}")


def _columns(value: object, place: str) -> tuple[dict[str, list[Any]], int]:
    """The columns of a columnar artifact, and how many rows they have; a column with a table holds positions in it."""
    content: JsonObject = value if isinstance(value, dict) else {}
    arrays, listed, tables, length = (content.get(name) for name in ("arrays", "columns", "tables", "length"))
    if not isinstance(arrays, dict) or not all(isinstance(array, list) for array in arrays.values()):
        raise IndexRefError(f"{place} is not a columnar artifact: its arrays are missing")
    names = listed if isinstance(listed, list) else list(arrays)
    found: dict[str, list[Any]] = {name: arrays[name] for name in names if name in arrays}
    rows = length if isinstance(length, int) else max(map(len, found.values()), default=0)
    if any(len(array) < rows for array in found.values()):
        raise IndexRefError(f"{place} is cut short: an array has fewer than {rows} values")
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if isinstance(table, list) and name in found:
            known = dict(enumerate(table))
            found[name] = [known.get(item) if type(item) is int else item for item in found[name]]
    return found, rows


@contextmanager
def _opened(part: Part) -> Iterator[BinaryIO]:
    """A part's content, decompressed; errors name the part, never its absolute path."""
    try:
        with io.BufferedReader(io.FileIO(part.path), _BLOCK_BYTES) as raw:
            start = raw.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
            if not start and part.path.suffix in COMPRESSIONS:
                raise IndexRefError(f"{part.place} is damaged or cut short: it is empty")
            with decompressed(cast(BinaryIO, raw), compression_of_bytes(start), part.place) as stream:
                yield stream
    except OSError as error:
        raise explain(error, part.place) from None
    except InputError as error:
        if isinstance(error, IndexRefError):
            raise
        raise IndexRefError(error.message) from None


def _parse_row(text: _Text, place: str) -> Row:
    row = parse_json(bytes(text), place)
    if not isinstance(row, dict):
        raise IndexRefError(f"{place} is not a JSON object")
    return row
