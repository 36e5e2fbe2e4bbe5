"""The registry of persisted diffs: `diffs/` below the cache root (index diffs §4).

The truth about a diff is in its own files: `inputs.json` is known by the id, and has the digests of `summary.json` and
`events.jsonl`. `diffs/manifest.json` is only the list. A diff is taken out of it before its files are replaced and put
back as the last step, so that a process killed in between leaves an orphan directory. Entries of other tools that
share the registry are passed through; a list that cannot be read is made again from the directories.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from driftline.codeindex import _storage as storage
from driftline.codeindex._diff.chunks import IndexEvent
from driftline.codeindex._diff.diff import IndexDiff, timestamp
from driftline.codeindex._read.artifacts import file_digest
from driftline.codeindex._read.resolve import CANONICAL_KEYS, diff_id, stable_text
from driftline.codeindex._registry.contracts import check, complaint_about, event_contract
from driftline.codeindex._storage import CacheRoot, event_line, explain
from driftline.core import JsonObject, atomic_write, sync_directory
from driftline.errors import IndexRefError, InputError, StorageError

DIFF_ID = re.compile(r"diff_[0-9a-f]{16}")

_MANIFEST = "diffs/manifest.json"
# Members that hold text of the indexed sources, and keys made of it.
_SOURCE_TEXT = frozenset(
    ("name", "signature", "chunkKind", "to", "fromKey", "edgeKey", "logicalKey", "logicalKeyBefore", "logicalKeyAfter",
     "calls")
)  # fmt: skip
_MACHINE_PATH = re.compile(r"[A-Za-z]:[\\/]|file://", re.IGNORECASE)
# A key's parts are joined by `|`, and `file:` starts a file-level key: a path may begin after them.
_BEGINNING = r"(?:\A|\||\bfile:)"


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """The events of a stored diff, read from its file at each iteration."""

    path: Path
    place: str
    contract: str

    def __iter__(self) -> Iterator[IndexEvent]:
        try:
            with open(self.path, "rb") as lines:
                for number, line in enumerate(lines, 1):
                    event = storage.parse_json(line, f"{self.place} line {number}")
                    check(self.contract, event, f"{self.place} line {number}")
                    yield event
        except OSError as error:
            raise explain(error, self.place) from None


class Registry:
    """The persisted diffs of one cache root."""

    def __init__(self, cache: CacheRoot) -> None:
        self.cache = cache

    def manifest(self) -> JsonObject:
        """The list of diffs; made again from the directories where it is not there or cannot be read."""
        path = self.cache.inside(_MANIFEST, _MANIFEST)
        if not storage.exists(path, _MANIFEST):
            return self._rebuilt()
        try:
            content = storage.read_object(path, _MANIFEST)
        except IndexRefError:
            storage.read_bytes(path, _MANIFEST)  # a list that may not be read is not a damaged list
            return self._rebuilt()
        if content.get("version", 1) != 1:
            raise IndexRefError(f"{_MANIFEST} has version {content['version']!r}: a newer driftline is needed")
        if complaint_about("diffs_manifest", content) is not None:
            diffs = content.get("diffs")
            listed = diffs.items() if isinstance(diffs, dict) else ()
            content = {**self._rebuilt(), "diffs": {key: entry for key, entry in listed if isinstance(entry, dict)}}
        return content | {"diffs": {_id_of(key, entry): entry for key, entry in content["diffs"].items()}}

    def _rebuilt(self) -> JsonObject:
        folders = filter(DIFF_ID.fullmatch, storage.names_in(self.cache.inside("diffs", "diffs"), "diffs"))
        entries = {name: entry for name in folders if (entry := self._entry_of_folder(name)) is not None}
        return {"version": 1, "updatedAt": timestamp(), "diffs": entries}

    def _entry_of_folder(self, name: str) -> JsonObject | None:
        try:
            return manifest_entry(self._load_whole(name))
        except IndexRefError:
            return None

    def entries(self, modes: Iterable[str] = ()) -> list[JsonObject]:
        """Listed diffs, newest first, then by id; with `modes`, only diffs that have all of them."""
        found = []
        for key, entry in self.manifest()["diffs"].items():
            # One of driftline as it is, or made again; one of another tool as far as it is known.
            own = entry if _is_own(entry) else self._entry_of_folder(key) if DIFF_ID.fullmatch(key) else None
            found.append(own or _foreign_entry(key, entry))
        needed = [entry for entry in found if {*modes} <= {*entry["modes"]}]
        needed.sort(key=lambda entry: str(entry["diffId"]))
        return sorted(needed, key=lambda entry: str(entry["createdAt"]), reverse=True)

    def load(self, diff_id: str) -> IndexDiff:
        """A persisted diff by its id, complete or not at all."""
        if DIFF_ID.fullmatch(diff_id) is None:
            raise IndexRefError("a diff id is diff_ and 16 hex digits")
        entry = self.manifest()["diffs"].get(diff_id)
        if entry is None:
            raise IndexRefError(f"no diff {diff_id} in the registry", code="NOT_FOUND")
        if not _is_own(entry) and self._entry_of_folder(diff_id) is None and isinstance(entry.get("id"), str):
            raise IndexRefError(f"{diff_id} was written by another tool, which shares this registry: show it with that")
        return self._load_whole(diff_id)

    def _load_whole(self, name: str) -> IndexDiff:
        """A diff whose files belong together; what is cut short, emptied or edited is refused."""
        inputs = self._read(name, "inputs", "diff_inputs")
        summary = self._read(name, "summary", "diff_summary")
        place = f"diffs/{name}/events.jsonl"
        events = StoredEvents(self.cache.inside(place, place), place, event_contract(inputs["kind"]))
        storage.regular_size(events.path, place)
        known = diff_id({member: inputs[member] for member in CANONICAL_KEYS})
        if known != name or summary["diffId"] != name or summary["createdAt"] != inputs["createdAt"]:
            raise IndexRefError(f"diffs/{name} holds another diff: compute it again")
        if "content" in inputs:
            digest = file_digest(events.path, place)
            whole = inputs["content"] == {"summary": _content_digest(summary), "events": digest}
        else:
            # Written by an earlier version, which did not keep digests.
            whole = summary["truncated"] or sum(1 for _ in events) == summary["totalEvents"]
        if not whole:
            raise IndexRefError(f"diffs/{name} is damaged: compute it again")
        return IndexDiff(name, inputs, summary, events)

    def find(self, diff_id: str, inputs: JsonObject) -> IndexDiff | None:
        """The stored diff of these inputs, None where there is none or it is damaged; a collision is an error."""
        place = f"diffs/{diff_id}/inputs.json"
        path = self.cache.inside(place, place)
        try:
            stored = storage.read_object(path, place) if storage.exists(path, place) else inputs
        except IndexRefError:
            stored = inputs  # damaged
        if stable_text({name: stored[name] for name in CANONICAL_KEYS if name in stored}) != stable_text(inputs):
            raise StorageError(
                f"diffId collision: {place} belongs to another diff; delete the diffs directory of the cache",
                code="INTERNAL",
            )
        try:
            return self.load(diff_id)
        except IndexRefError:
            # Not listed, or damaged: it is computed again and replaced.
            return None

    def save(self, result: IndexDiff, fingerprints: dict[str, dict[str, str]], leaks: LeakCheck) -> None:
        """Persist a diff; the caller holds the lock."""
        contract, digest = event_contract(result.inputs["kind"]), xxhash.xxh3_128()
        for event in result.events:
            check(contract, event, "an event")
            leaks.refuse(event, "an event: ", is_event=True)
            digest.update(event_line(event))
        content = {"summary": _content_digest(result.summary), "events": digest.hexdigest()}
        extra = {"createdAt": result.summary["createdAt"], "fingerprints": fingerprints, "content": content}
        inputs = {**result.inputs, **extra}
        entry = manifest_entry(result)
        for contract, record in (("diff_inputs", inputs), ("diff_summary", result.summary), ("manifest_entry", entry)):
            check(contract, record, contract)
            leaks.refuse(record, contract)
        manifest = self.manifest()
        if manifest["diffs"].pop(result.diff_id, None):
            self.write_manifest(manifest)
        folder = f"diffs/{result.diff_id}"
        path = self.cache.inside(folder, folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
            sync_directory(path.parent)
        except OSError as error:
            raise explain(error, folder) from None
        self._write(f"{folder}/inputs.json", inputs)
        self._write(f"{folder}/summary.json", result.summary)
        self._stream(f"{folder}/events.jsonl", map(event_line, result.events))
        manifest = self.manifest()
        manifest["diffs"][result.diff_id] = entry
        self.write_manifest(manifest)

    def write_manifest(self, manifest: JsonObject) -> None:
        """Replace the manifest; the caller holds the lock."""
        content = {**manifest, "updatedAt": timestamp()}
        check("diffs_manifest", content, _MANIFEST)
        self._write(_MANIFEST, content)

    def _read(self, diff_id: str, name: str, contract: str) -> JsonObject:
        place = f"diffs/{diff_id}/{name}.json"
        content = storage.read_object(self.cache.inside(place, place), place)
        check(contract, content, place)
        return content

    def _write(self, place: str, record: JsonObject) -> None:
        self._stream(place, [json.dumps(record, indent=2).encode() + b"\n"])

    def _stream(self, place: str, blocks: Iterable[bytes]) -> None:
        path = self.cache.inside(place, place)
        try:
            with atomic_write(path) as out:
                out.writelines(blocks)
        except (StorageError, InputError) as error:
            # The location in the cache replaces the absolute path in errors of the file layer.
            raise StorageError(error.message.replace(str(path), place), code=error.code) from None
        except OSError as error:
            raise explain(error, place) from None


def manifest_entry(result: IndexDiff) -> JsonObject:
    """The entry of a diff in the list; `id` keeps it there when another tool writes the list."""
    summary, counts = result.summary, result.counts
    entry = {"diffId": result.diff_id, "id": result.diff_id, "createdAt": summary["createdAt"]}
    sides = {"modes": summary["modes"], "from": summary["from"]["ref"], "to": summary["to"]["ref"]}
    return {**entry, **sides, "summary": {"filesChanged": counts["files"], "chunksChanged": counts["chunks"]}}


def _content_digest(summary: JsonObject) -> str:
    return xxhash.xxh3_128_hexdigest(stable_text(summary).encode())


def _is_own(entry: JsonObject) -> bool:
    """Whether driftline wrote this entry of the list."""
    return complaint_about("manifest_entry", entry) is None


def _id_of(key: str, entry: JsonObject) -> str:
    """The id of an entry; another tool, which has another member for it, may have stored it under a wrong key."""
    own = entry.get("diffId")
    return own if isinstance(own, str) and DIFF_ID.fullmatch(own) else key


def _foreign_entry(key: str, entry: JsonObject) -> JsonObject:
    """What is known of a diff that another tool keeps in the same registry."""
    modes = entry.get("modes")
    listed = [mode for mode in modes if isinstance(mode, str)] if isinstance(modes, list) else []
    known = {"diffId": key, "createdAt": str(entry.get("createdAt") or ""), "modes": listed}
    for side in ("from", "to"):
        ref = storage.member(entry.get(side), "ref") if isinstance(entry.get(side), dict) else entry.get(side)
        known[side] = ref if isinstance(ref, str) else ""
    return {**known, "summary": None, "foreign": True}


class LeakCheck:
    """Refuses records that contain a path of this machine, so that none is persisted (index diffs §4.5).

    A leak is a string that begins with a directory of this run. Refs, paths and labels may not look like a drive path
    or a `file://` address either. Routes such as `/api/users`, and whatever else source text contains, are names.
    """

    def __init__(self, directories: Iterable[str | os.PathLike[str]] = ()) -> None:
        given = [*directories, os.path.expanduser("~"), tempfile.gettempdir()]
        known = {os.path.abspath(path) for path in given} | {os.path.realpath(path) for path in given}
        texts = sorted(re.escape(path) for path in known if path.strip(os.sep))
        self._known = re.compile(rf"{_BEGINNING}(?:{'|'.join(texts)})(?![^/\\|])" if texts else r"(?!)")

    def refuse(self, record: object, what: str, *, is_event: bool = False) -> None:
        """Raise if any string of `record`, a member's name included, is such a path."""
        for place, text, is_source in _strings(record, "", _SOURCE_TEXT if is_event else frozenset()):
            if self._known.search(text) or (not is_source and _MACHINE_PATH.match(text)):
                raise IndexRefError(
                    f"{what}{place} holds an absolute path, which is never persisted: nothing was written "
                    "(see the diff with --no-persist)"
                )


def _strings(
    value: object, place: str, source: frozenset[str], is_source: bool = False
) -> Iterator[tuple[str, str, bool]]:
    """Every string with its place, and whether it is text of the indexed sources."""
    if isinstance(value, str):
        yield place, value, is_source
    elif isinstance(value, dict):
        for name, item in value.items():
            yield place, name, is_source
            here = f"{place}.{name}" if name.isidentifier() else place
            yield from _strings(item, here, source, is_source or name in source)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item, place, source, is_source)
