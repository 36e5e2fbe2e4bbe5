"""A changeset made of diff events: the operations of the events, and the same bytes from every engine."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from driftline.changesets._make.rows import from_events
from driftline.core._workspace import Workspace
from support.engines import engines_for

COLUMNS = ["v", "a", "b", "w"]
TYPES = {"b": "INTEGER"}


def events(count: int) -> list[dict[str, Any]]:
    """A keyed diff with composite keys, empty cells and long texts."""
    dice = random.Random(count)
    made: list[dict[str, Any]] = [{"type": "schema", "columns_a": COLUMNS, "columns_b": COLUMNS}]
    for number in range(count):
        key = {"a": f"k{number // 3:05d}", "b": str(number)}
        before = {"v": dice.choice(["1", "2.5", ""]), **key, "w": dice.choice(["x", "é" * 200, ""])}
        if number % 3:
            made.append({"type": dice.choice(["added", "removed"]), "key": key, "row": before})
        else:
            made.append({"type": "changed", "key": key, "before": before, "after": {**before, "v": "9"}})
    return [*made, {"type": "stats"}]


def on_spark(session: Any, folder: Path, stream: list[dict[str, Any]]) -> bytes:
    from driftline.spark._changesets import events_to_changeset

    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in stream))
    out = io.BytesIO()
    sizes = {"split_bytes": 40_000, "range_bytes": 60_000}
    with Workspace() as workspace:
        events_to_changeset(
            session, str(path), out, "changeset", folder=workspace.folder, table="t", types=TYPES, **sizes
        )
    return out.getvalue()


@pytest.mark.parametrize("engine", engines_for("changesets"))
def test_events_become_a_changeset(engine: str, session: Any, tmp_path: Path) -> None:
    stream = events(200)
    local = bytes(from_events(stream, "t", types=TYPES))
    if engine == "spark":
        assert on_spark(session, tmp_path, stream) == local
        return
    verbs = {"added": "INSERT", "removed": "DELETE", "changed": "UPDATE"}
    expected = sorted((verbs[event["type"]], event["key"]["a"], int(event["key"]["b"])) for event in stream[1:-1])
    found = []
    for change in apsw.Changeset.iter(local):
        row = change.new if change.op == "INSERT" else change.old
        found.append((change.op, row[1], row[2]))
    assert sorted(found) == expected
