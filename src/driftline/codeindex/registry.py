"""The registry of persisted diffs: `diffs/` below the cache root (specification 2, 3.3 and 6).

What is in `diffs/manifest.json` counts. A diff is taken out of it before its files are replaced and put back as the
last step, so that a process killed in between leaves an orphan directory, never a half-written diff that looks whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.codeindex.cache_root import CacheRoot
from driftline.codeindex.contracts import check
from driftline.codeindex.diffing import IndexDiff, timestamp
from driftline.codeindex.events import Event
from driftline.codeindex.identity import CANONICAL_KEYS, stable_text
from driftline.codeindex.json_reading import explain, parse_json, read_object
from driftline.codeindex.json_text import event_line
from driftline.codeindex.leaks import LeakCheck
from driftline.errors import IndexRefError, InputError, LockedError, StorageError
from driftline.files import atomic_write, exclusive_lock, sync_directory

DIFF_ID = re.compile(r"diff_[0-9a-f]{16}")
LOCK = "locks/index.lock"

_MANIFEST = "diffs/manifest.json"


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """The events of a stored diff, read from its file each time they are asked for."""

    path: Path
    place: str

    def count(self) -> int:
        """How many lines the file has."""
        try:
            with open(self.path, "rb") as lines:
                return sum(1 for _ in lines)
        except OSError as error:
            raise explain(error, self.place) from None

    def __iter__(self) -> Iterator[Event]:
        try:
            with open(self.path, "rb") as lines:
                for number, line in enumerate(lines, 1):
                    event = parse_json(line, f"{self.place} line {number}")
                    check("diff_event", event, f"{self.place} line {number}")
                    yield event
        except OSError as error:
            raise explain(error, self.place) from None


class Registry:
    """The persisted diffs of one cache root."""

    def __init__(self, cache: CacheRoot) -> None:
        self.cache = cache

    @contextmanager
    def locked(self, wait_ms: int = 0) -> Iterator[None]:
        """Hold the lock that builds and snapshots use too; `QUEUE_OVERLOADED` when somebody else has it."""
        path = self.cache.inside(LOCK, LOCK)
        try:
            with exclusive_lock(path, scope="index-diff", wait_seconds=wait_ms / 1000):
                yield
        except LockedError as error:
            raise LockedError(f"{error.message} (--wait-ms)", code="QUEUE_OVERLOADED") from None
        except OSError as error:
            raise explain(error, LOCK) from None

    def manifest(self) -> dict[str, Any]:
        """The manifest; an empty one where nothing was persisted yet."""
        path = self.cache.inside(_MANIFEST, _MANIFEST)
        if not path.exists():
            return {"version": 1, "updatedAt": timestamp(), "diffs": {}}
        content = read_object(path, _MANIFEST)
        check("diffs_manifest", content, _MANIFEST)
        return content

    def entries(self, modes: Iterable[str] = ()) -> list[dict[str, Any]]:
        """Listed diffs, newest first, then by id; with `modes`, only diffs that have all of them."""
        wanted = set(modes)
        found = [entry for entry in self.manifest()["diffs"].values() if wanted <= set(entry["modes"])]
        found.sort(key=lambda entry: entry["diffId"])
        return sorted(found, key=lambda entry: str(entry["createdAt"]), reverse=True)

    def load(self, diff_id: str) -> IndexDiff:
        """A persisted diff by its id."""
        if DIFF_ID.fullmatch(diff_id) is None:
            raise IndexRefError("a diff id is diff_ and 16 hex digits")
        if diff_id not in self.manifest()["diffs"]:
            raise IndexRefError(f"no diff {diff_id} in the registry", code="NOT_FOUND")
        inputs = self._read(diff_id, "inputs", "diff_inputs")
        summary = self._read(diff_id, "summary", "diff_summary")
        return IndexDiff(diff_id, inputs, summary, self._events(diff_id))

    def find(self, diff_id: str, inputs: dict[str, Any]) -> IndexDiff | None:
        """The stored diff of these inputs, None where there is none or it is damaged; a collision is an error."""
        place = f"diffs/{diff_id}/inputs.json"
        if self.cache.inside(place, place).exists():
            self._refuse_collision(place, inputs)
        try:
            stored = self.load(diff_id)
            whole = self._events(diff_id).count() == stored.summary["totalEvents"]
        except IndexRefError:
            # Not listed, or damaged: it is computed again and replaced.
            return None
        return stored if whole or stored.summary["truncated"] else None

    def save(self, result: IndexDiff, fingerprints: dict[str, dict[str, str]], leaks: LeakCheck) -> None:
        """Persist a diff; the caller holds the lock."""
        inputs = {**result.inputs, "createdAt": result.summary["createdAt"], "fingerprints": fingerprints}
        entry = _manifest_entry(result)
        check("diff_inputs", inputs, "inputs.json")
        check("diff_summary", result.summary, "summary.json")
        for record, what in ((inputs, "inputs"), (result.summary, "summary"), (entry, "manifest")):
            leaks.refuse(record, what)
        for event in result.events:
            check("diff_event", event, "an event")
            leaks.refuse(event, "an event: ")
        self._forget([result.diff_id])
        folder = f"diffs/{result.diff_id}"
        self._make_folder(folder)
        self._write(f"{folder}/inputs.json", _pretty(inputs))
        self._write(f"{folder}/summary.json", _pretty(result.summary))
        self._stream(f"{folder}/events.jsonl", map(event_line, result.events))
        manifest = self.manifest()
        manifest["diffs"][result.diff_id] = entry
        self.write_manifest(manifest)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest; the caller holds the lock."""
        content = {**manifest, "updatedAt": timestamp()}
        check("diffs_manifest", content, _MANIFEST)
        self._write(_MANIFEST, _pretty(content))

    def _forget(self, diff_ids: Sequence[str]) -> None:
        manifest = self.manifest()
        known = [diff_id for diff_id in diff_ids if manifest["diffs"].pop(diff_id, None)]
        if known:
            self.write_manifest(manifest)

    def _read(self, diff_id: str, name: str, contract: str) -> dict[str, Any]:
        place = f"diffs/{diff_id}/{name}.json"
        content = read_object(self.cache.inside(place, place), place)
        check(contract, content, place)
        return content

    def _events(self, diff_id: str) -> StoredEvents:
        place = f"diffs/{diff_id}/events.jsonl"
        path = self.cache.inside(place, place)
        if not path.exists():
            raise IndexRefError(f"{place} does not exist", code="NOT_FOUND")
        return StoredEvents(path, place)

    def _refuse_collision(self, place: str, inputs: dict[str, Any]) -> None:
        try:
            stored = read_object(self.cache.inside(place, place), place)
        except IndexRefError:
            return
        known = {name: stored[name] for name in CANONICAL_KEYS if name in stored}
        if stable_text(known) != stable_text(inputs):
            raise StorageError(
                f"diffId collision: {place} belongs to another diff; delete the diffs directory of the cache",
                code="INTERNAL",
            )

    def _make_folder(self, folder: str) -> None:
        path = self.cache.inside(folder, folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
            sync_directory(path.parent)
        except OSError as error:
            raise explain(error, folder) from None

    def _write(self, place: str, data: bytes) -> None:
        self._stream(place, [data])

    def _stream(self, place: str, blocks: Iterable[bytes]) -> None:
        path = self.cache.inside(place, place)
        with _naming(path, place), atomic_write(path) as out:
            _write_all(out.write, blocks)


def _write_all(write: Callable[[bytes], Any], blocks: Iterable[bytes]) -> None:
    for block in blocks:
        write(block)


def _pretty(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def _manifest_entry(result: IndexDiff) -> dict[str, Any]:
    summary = result.summary
    modes = summary["modesSummary"].values()
    return {
        "diffId": result.diff_id,
        "createdAt": summary["createdAt"],
        "modes": summary["modes"],
        "from": summary["from"]["ref"],
        "to": summary["to"]["ref"],
        "summary": {
            "filesChanged": sum(sum(mode["files"].values()) for mode in modes),
            "chunksChanged": sum(sum(mode["chunks"].values()) for mode in modes),
        },
    }


@contextmanager
def _naming(path: Path, place: str) -> Iterator[None]:
    """Errors of the file layer name the absolute path: say the place instead."""
    try:
        yield
    except (StorageError, InputError) as error:
        raise StorageError(error.message.replace(str(path), place), code=error.code) from None
    except OSError as error:
        raise explain(error, place) from None
