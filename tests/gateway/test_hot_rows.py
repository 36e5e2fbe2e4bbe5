"""A row that changes again and again under sync rules: what is read grows with the changes, not with their square."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftline.gateway._auth import Caller
from driftline.gateway._log.sqlite import SqliteLog
from driftline.gateway._sync.pull import LogReader, Page
from driftline.gateway._sync.push import parse_push
from driftline.gateway._sync.row_index import RowIndex
from driftline.gateway._sync.rules import parse_rules
from support.gateways import GATEWAY, delta

CHANGES = 3000
RULES = parse_rules(
    json.dumps(
        {
            "version": 1,
            "buckets": [
                {"name": "b", "tables": ["todos"], "filters": [{"column": "n", "op": "lt", "value": CHANGES - 5}]}
            ],
        }
    ).encode()
)


class CountingLog(SqliteLog):
    """Counts what is read and written of rows."""

    read_moments = 0
    written_bytes = 0

    def versions(self, *arguments: Any) -> Any:
        found = super().versions(*arguments)
        self.read_moments += len(found)
        return found

    def store_rows(self, rows: Any, *arguments: Any, anew: bool = False) -> None:
        self.written_bytes += sum(
            len(row.fold) + sum(len(each.watched) for each in row.versions) for row in rows.values()
        )
        super().store_rows(rows, *arguments, anew=anew)


@pytest.fixture
def log(tmp_path: Path) -> Any:
    made = CountingLog(tmp_path / "log.sqlite")
    for first in range(0, CHANGES, 500):
        changes = [delta(row="hot", n=number) for number in range(first, first + 500)]
        made.append([parse_push(json.dumps({"clientId": "alice", "deltas": changes}).encode()).entries])
    yield made
    made.close()


def test_a_hot_row_costs_what_its_changes_cost(log: CountingLog) -> None:
    reader = LogReader(log, RowIndex(log), GATEWAY, lambda: (RULES, 1))
    caller = Caller("alice", GATEWAY, "client", {"sub": "alice"})
    sent: list[bytes] = []
    query = {"since": "0", "limit": "100"}
    while True:
        page: Page = reader.page(caller, query)
        sent += page.deltas
        query = {"cursor": page.cursor.encode(), "limit": "100"}
        if not page.has_more:
            break
    ops = [json.loads(each)["op"] for each in sent]
    assert ops == ["UPDATE"] * (CHANGES - 5) + ["DELETE"]
    # Each page reads on from where the last one stood, some way ahead.
    assert log.read_moments < 4 * CHANGES
    assert log.written_bytes < CHANGES * 100
