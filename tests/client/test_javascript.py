"""The JavaScript client in Node: the same vectors, and a real gateway that Python's client shares."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from driftline.client import Store
from driftline.deltas import FILTER_OPS, ORDER_OPS
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


TYPES = {"i": "integer", "d": "decimal(4)"}
WIRE: dict[str, list[Any]] = {
    "i": [0, 7, -7, 10, 9, 2**53 - 1, "9007199254740992", "9007199254740993", "-9223372036854775808", None],
    "d": ["0", "9.5", "10", "10.25", "-0.0001", "-10", "9007199254740993.0001", "9007199254740993", None],
    "v": [0, 1.5, "1.5", "10", 10, 9, "b", "B", "\U0001f600", "\ufb00", True, False, "true", None, [1, 2], {"a": 1}],
}
OPERANDS: list[Any] = [
    *(0, 7, 9, 9.5, 10, 10.25, -1e-4, 1e300, 2**53, 2**53 + 1, -(2**63), 10**40, True, None, [1, 2], {"a": 1}),
    *("0", "-0", "7.0", "10", "10.250", "1e1", "95e-1", "9007199254740993.0", "-10.0", "true", "b", "", "1e400"),
    *("1e-400", "1e99999999999999999999", "+7", "07", " 7", "0x7", "\U0001f600"),
]


def test_queries_mean_what_they_mean_in_python(tmp_path: Path) -> None:
    """Columns with exact numbers, whose wire form is text, are compared and ordered by value in both clients."""
    dice = random.Random(7)
    rows = [
        (f"r{number:02}", {name: dice.choice(each) for name, each in WIRE.items() if dice.random() < 0.9})
        for number in range(60)
    ]
    queries: list[dict[str, Any]] = []
    for column, op, value in itertools.product(WIRE, FILTER_OPS, OPERANDS):
        if op in ORDER_OPS and isinstance(value, list):
            continue
        value = [value, dice.choice(OPERANDS)] if op == "in" else value
        order = dice.choice([None, *({"column": name, "descending": dice.random() < 0.5} for name in WIRE)])
        queries.append({"where": [{"column": column, "op": op, "value": value}], "order": order})
    store = Store(":memory:", "a", types={"t": TYPES})
    for row_id, columns in rows:
        store.put("t", row_id, columns)
    expected = [
        list(
            store.query(
                "t",
                query["where"],
                order_by=order and order["column"],
                descending=bool(order and order["descending"]),
            )
        )
        for query in queries
        for order in [query["order"]]
    ]
    file = tmp_path / "queries.json"
    file.write_text(json.dumps({"types": TYPES, "rows": rows, "queries": large(queries)}))
    command = ["node", str(CLIENT / "test" / "queries.js"), str(file)]
    ended = run_process(command, capture_output=True, text=True, check=True)
    for found in json.loads(ended.stdout):
        different = [
            (query, *pair) for query, *pair in zip(queries, expected, found, strict=True) if pair[0] != pair[1]
        ]
        assert different == []
    assert sum(map(bool, expected)) > len(expected) / 3


def large(content: Any) -> Any:
    """Integers that JavaScript reads as BigInt."""
    if isinstance(content, dict):
        return {name: large(each) for name, each in content.items()}
    if isinstance(content, list):
        return list(map(large, content))
    is_large = type(content) is int and abs(content) > 2**53 - 1
    return {"digits": str(content)} if is_large else content


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
