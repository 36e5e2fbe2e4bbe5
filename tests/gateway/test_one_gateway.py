"""One real gateway, its lake in an object store: what was acknowledged survives a kill and reaches the lake once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from driftline.deltas import TableSchema
from driftline.lake import Lake, compact, register, verify
from driftline.lake._read.state import all_deltas, state_rows
from support.gateways import delta, running

pytestmark = pytest.mark.smoke

SCHEMA = TableSchema("todos", [{"name": "title", "type": "string"}])


def test_push_kill_pull_and_flush(tmp_path: Path, s3: tuple[Any, dict[str, str]]) -> None:
    options = ("--lake", "s3://data/gateway", "--flush-seconds", "3600", "--rate-limit", "0")
    lake = Lake("s3://data/gateway")
    register(lake, SCHEMA)
    pushed = [delta(row=str(number), title=f"number {number}") for number in range(20)]
    with running(tmp_path, *options, environment=s3[1]) as server:
        assert server.client().push(*pushed).status_code == 200
        server.kill()
    with running(tmp_path, *options, environment=s3[1]) as server:
        client = server.client("ops", role="admin")
        assert [each["deltaId"] for each in client.pull_all()[0]] == [each["deltaId"] for each in pushed]
        assert server.client().push(*pushed).status_code == 200  # again, as a client does that saw no answer
        assert client.admin("flush").status_code == 200
        assert server.stop() == 0
    found = Counter(each.delta_id for each in all_deltas(lake, "todos"))
    assert found == Counter(each["deltaId"] for each in pushed)
    compact(lake, "todos")
    assert verify(lake, "todos").is_proved
    assert dict(state_rows(lake, "todos"))["7"] == {"title": "number 7"}
