"""The JavaScript client in Node: the same vectors, and a real gateway that Python's client shares."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from driftline.client import Store
from support.gateways import GATEWAY, Server, token
from support.processes import run_process

CLIENT = Path(__file__).parents[2] / "clients" / "javascript"

pytestmark = pytest.mark.node


def run_node(name: str, **environment: str) -> str:
    command = ["node", "--test", "--test-reporter=tap", str(CLIENT / "test" / name)]
    ended = run_process(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:]
    return ended.stdout


def test_the_same_vectors() -> None:
    output = run_node("vectors.test.js")
    assert "# fail 0" in output
    assert int(output.split("# pass ")[1].split()[0]) >= 18


def test_stores_in_memory_and_in_a_file() -> None:
    assert "# fail 0" in run_node("store.test.js")


def test_both_clients_on_one_gateway(server: Server) -> None:
    schema = [{"name": name, "type": "json"} for name in ("title", "done", "x", "y", "z", "text")]
    admin = server.client("ops", role="admin")
    for table in ("todos", "notes"):
        assert admin.admin("schema", {"table": table, "columns": schema}).is_success
    strict = {"table": "strict", "columns": [{"name": "title", "type": "string"}]}
    assert admin.admin("schema", strict).is_success
    output = run_node(
        "gateway.test.js",
        DRIFTLINE_URL=server.url,
        DRIFTLINE_GATEWAY=GATEWAY,
        DRIFTLINE_TOKENS=json.dumps({name: token(name) for name in "abc"}),
    )
    assert "# skipped 0" in output
    [converged] = [line.partition("converged ")[2] for line in output.splitlines() if "converged " in line]
    local = Store(":memory:", "python", url=server.url, gateway=GATEWAY, token=token("python"))
    local.sync()
    assert local.rows("todos") == json.loads(converged)
    assert local.get("notes", "1") == {"text": "hello back"}
