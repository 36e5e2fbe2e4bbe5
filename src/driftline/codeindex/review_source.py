"""The source behind the events of a diff of git revisions, for reviews: blobs are fetched once, in one go."""

from __future__ import annotations

from collections.abc import Iterable

from driftline.codeindex.events import Event
from driftline.codeindex.git_objects import GitRepository
from driftline.core._json import JsonObject

MAX_BODIES = 1000


class ReviewSource:
    """Gives the text of a definition on either side; nothing without a repository."""

    def __init__(self, events: Iterable[Event], repository: GitRepository | None = None) -> None:
        self.blobs: dict[tuple[str, str], bytes] = {}
        if repository is None:
            return
        listed = list(events)
        hashes = _hashes(listed)
        changed = [event for event in listed if _has_body(event)][:MAX_BODIES]
        wanted = {(side, event[side]["file"]) for event in changed for side in ("before", "after")} & hashes.keys()
        keys = sorted(wanted)
        contents = repository.blobs(hashes[key] for key in keys)
        self.blobs = dict(zip(keys, contents, strict=True))

    def text(self, event: Event, side: str) -> str | None:
        """The lines of a definition, whole."""
        blob = self.blobs.get((side, event[side]["file"])) if side in event else None
        if blob is None:
            return None
        place = event[side]["range"]
        start = blob.rfind(b"\n", 0, place["start"]) + 1
        return blob[start : place["end"]].decode("utf-8", "replace")


def _has_body(event: Event) -> bool:
    return event["kind"].startswith("chunk.") and "before" in event and "after" in event and event["name"] != ""


def _hashes(events: Iterable[Event]) -> dict[tuple[str, str], str]:
    """The blobs of the files that the diff tells about."""
    found: dict[tuple[str, str], str] = {}
    for event in events:
        if event["kind"].startswith("file."):
            sides: JsonObject = {side: event[side] for side in ("before", "after") if side in event}
            found |= {(side, entry["file"]): entry["hash"] for side, entry in sides.items() if entry["hash"]}
    return found
