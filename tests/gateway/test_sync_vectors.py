"""The vectors of the sync protocol (tests/vectors/sync.json) against a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftline.gateway._sync.rules import parse_rules
from support.gateways import Server, delta

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "sync.json").read_text())
COMPARISONS = [case for case in CASES if "op_value" in case.get("input", {})]
TEAMS = {"column": "team", "op": "in", "value": "jwt:teams"}


def rules(*filters: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "buckets": [{"name": "b", "tables": ["todos"], "filters": list(filters)}]}


def case_of(identity: str) -> dict[str, Any]:
    return next(case for case in CASES if case["id"] == identity)


@pytest.mark.parametrize("case", COMPARISONS, ids=[case["id"] for case in COMPARISONS])
def test_comparisons(case: dict[str, Any]) -> None:
    given = case["input"]
    found = {}
    for op in case["expected"]:
        parsed = parse_rules(json.dumps(rules({"column": "c", "op": op, "value": given["op_value"]})).encode())
        found[op] = parsed.sees("todos", given["row"], given["claims"])
    assert found == case["expected"]


@pytest.mark.parametrize("identity", ["SV1", "SV2"])
def test_refused_rules(identity: str, shared_server: Server) -> None:
    [step] = case_of(identity)["steps"]
    answer = shared_server.client("ops", role="admin").admin("sync-rules", step["body"])
    assert (answer.status_code, answer.json()["code"]) == (step["status"], step["code"])
    assert step.get("errorContains", "") in answer.json()["error"]


def test_limit_binds_inside_a_record(server: Server) -> None:
    """SL1: a view tells of one record by a DELETE and an INSERT, and limit=1 takes two pages."""
    admin, reader = server.client("ops", role="admin"), server.client("reader", teams=["a"])
    admin.admin("sync-rules", rules(TEAMS))
    # The row was hidden once, so that the reader is told merged values from then on.
    admin.push(delta("ops", op="INSERT", team="b", x=1))
    admin.push(delta("ops", team="a"))
    first = server.client("reader", teams=["a"]).pull_all()[1]
    late = delta("ops", op="DELETE", hlc=int(delta("ops")["hlc"]))
    admin.push(delta("ops", team="a", x=2))  # newer than the late DELETE: the row lives on
    cursor = reader.pull_all(cursor=first)[1]
    admin.push(late)
    whole = reader.pull(cursor=cursor, limit=2).json()
    assert [each["op"] for each in whole["deltas"]] == ["DELETE", "INSERT"]
    one = reader.pull(cursor=cursor, limit=1).json()
    assert ([each["op"] for each in one["deltas"]], one["hasMore"]) == (["DELETE"], True)
    two = reader.pull(cursor=one["cursor"], limit=1).json()
    assert (two["deltas"], two["hasMore"]) == (whole["deltas"][1:], False)
    assert two["cursor"] == whole["cursor"]


def test_hlc_zero(shared_server: Server) -> None:
    [step] = case_of("SL2")["steps"]
    answer = shared_server.client().push(delta(hlc=0))
    assert (answer.status_code, answer.json()["code"]) == (step["status"], step["code"])
    assert step["errorContains"] in answer.json()["error"]


def test_a_cursor_ends_with_its_view(server: Server) -> None:
    """SC1 and SC2; and the rows of a gained team do arrive."""
    admin = server.client("ops", role="admin")
    admin.admin("sync-rules", rules(TEAMS))
    admin.push(delta("ops", row="1", team="a"), delta("ops", row="2", team="b"))

    def reader(**claims: Any) -> Any:
        return server.client("reader", **claims)

    rows, cursor = reader(teams=["a"]).pull_all()
    assert [row["rowId"] for row in rows] == ["1"]
    assert reader(teams=["a"], name="x").pull(cursor=cursor).status_code == 200
    refused = reader(teams=["a", "b"]).pull(cursor=cursor)
    assert refused.status_code == 410
    assert (refused.json()["code"], refused.json()["reason"]) == ("MUST_REFETCH", "view_changed")
    both = reader(teams=["a", "b"]).pull_all()
    assert [row["rowId"] for row in both[0]] == ["1", "2"]
    assert reader(teams=["b", "a"]).pull(cursor=both[1]).status_code == 200
    # An admin sees more than any view.
    assert reader(teams=["a"], role="admin").pull(cursor=cursor).json()["reason"] == "view_changed"
    admin.admin("sync-rules", rules(TEAMS, {"column": "team", "op": "neq", "value": "z"}))
    assert reader(teams=["b", "a"]).pull(cursor=both[1]).json()["reason"] == "rules_changed"


def test_parameters_narrow_a_view(server: Server) -> None:
    admin, reader = server.client("ops", role="admin"), server.client("reader", teams=["a", "b"])
    admin.admin("sync-rules", rules(TEAMS, {"column": "level", "op": "gte", "value": "param:level"}))
    admin.push(delta("ops", row="1", team="a", level=1), delta("ops", row="2", team="b", level=10))
    admin.push(delta("ops", row="3", team="c", level=10))

    def rows(**query: str) -> list[str]:
        return [each["rowId"] for each in reader.pull(since="0", **query).json()["deltas"]]

    assert rows(**{"p.level": "2"}) == ["2"]
    assert rows(**{"p.level": "0"}) == ["1", "2"]
    assert rows() == []  # nothing to compare with: nothing is seen
    cursor = reader.pull(since="0", **{"p.level": "2"}).json()["cursor"]
    assert reader.pull(cursor=cursor, **{"p.level": "2"}).status_code == 200
    assert reader.pull(cursor=cursor, **{"p.level": "0"}).json()["reason"] == "view_changed"
