"""Golden cases: a folder each, written by SQLite sessions; events in, the same bytes out."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from driftline.changesets import Changeset, Patchset, parse
from driftline.changesets._format.database import tables_from_database

CASES = sorted((Path(__file__).parents[1] / "conformance" / "changesets").iterdir())


def value(data):
    if isinstance(data, dict):
        return bytes.fromhex(data["blob"]) if "blob" in data else float.fromhex(data["real"])
    return data


def row(data):
    if data is None or isinstance(data, dict):
        return data
    return [value(item) for item in data]


@pytest.mark.parametrize("kind", [Changeset, Patchset])
@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_golden_case(folder, kind):
    case = json.loads((folder / "case.json").read_text())
    connection = apsw.Connection(":memory:")
    for statement in case["ddl"]:
        connection.execute(statement)
    tables = {table.name: table for table in tables_from_database(connection)}
    changes = kind()
    for event in case["events"]:
        table, old, new = tables[event["table"]], row(event["old"]), row(event["new"])
        if event["op"] == "insert":
            changes.insert(table, new, indirect=event["indirect"])
        elif event["op"] == "delete":
            changes.delete(table, old, indirect=event["indirect"])
        else:
            changes.update(table, old, new, indirect=event["indirect"])
    expected = bytes.fromhex((folder / f"expected.{kind.__name__.lower()}.hex").read_text())
    assert bytes(changes) == expected
    assert bytes(parse(expected)) == expected
