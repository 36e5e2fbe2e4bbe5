"""The OpenAPI document is true: schemathesis makes requests from it and holds the answers against it."""

from __future__ import annotations

import json
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from driftline.deltas import FILTER_OPS, MAX_ID_LENGTH
from driftline.gateway._http import openapi_document
from driftline.gateway._lake.snapshot import DEFAULT_LIMIT as SNAPSHOT_LIMIT
from driftline.gateway._log.log import OP_CODES
from driftline.gateway._settings import GatewaySettings
from driftline.gateway._sync.pull import DEFAULT_LIMIT as PULL_LIMIT, REASONS
from driftline.gateway._sync.push import MAX_DELTAS
from driftline.gateway._sync.rules import OPEN, OPERATIONS as WRITES
from driftline.http._requests import _MEMBERS, STATUS_OF_CODE
from support.gateways import GATEWAY, Server, token

schema = schemathesis.openapi.from_dict(openapi_document(GatewaySettings(gateway=GATEWAY, data=Path("data"))))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


# A feed has no end that a generated request could wait for.
OPERATIONS = {found.ok().label: found.ok() for found in schema.exclude(path_regex="feed$").get_all_operations()}


@pytest.mark.servers
@pytest.mark.parametrize("label", OPERATIONS)
def test_answers_are_as_documented(label: str, shared_server: Server) -> None:
    claims = {"role": "admin", "exp": int(time.time()) + 600}
    authorization = {"Authorization": f"Bearer {token(**claims)}"}

    @settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
    @given(case=OPERATIONS[label].as_strategy())
    def ask(case: Any) -> None:
        case.call_and_validate(base_url=shared_server.url, headers=authorization, checks=CHECKS)

    ask()


def test_the_served_document_is_this_one(shared_server: Server) -> None:
    served = shared_server.client().http.get("/openapi.json").json()
    assert served == json.loads(json.dumps(schema.raw_schema))


@pytest.mark.parametrize(
    "path", ["/sync/{gw}/push", "/sync/{gw}/pull", "/sync/{gw}/feed", "/admin/schema/{gw}", "/metrics"]
)
def test_the_document_names_every_route(path: str) -> None:
    assert path in schema.raw_schema["paths"]


def test_the_document_says_what_the_code_does() -> None:
    """The numbers and words of the document are those of the functions that check them."""
    document = openapi_document(GatewaySettings(gateway=GATEWAY, data=Path("/nowhere")))
    schemas = document["components"]["schemas"]
    assert schemas["Push"]["properties"]["deltas"]["maxItems"] == MAX_DELTAS
    delta = schemas["Delta"]["properties"]
    assert (delta["op"]["enum"], delta["rowId"]["maxLength"]) == (list(OP_CODES), MAX_ID_LENGTH)
    rules = schemas["SyncRules"]["properties"]
    assert rules["buckets"]["items"]["properties"]["filters"]["items"]["properties"]["op"]["enum"] == list(FILTER_OPS)
    opened, entries = rules["writes"]["anyOf"]
    assert (opened["const"], set(entries["items"]["properties"])) == (OPEN, {"tables", *WRITES})
    assert set(schemas["Error"]["properties"]) == {"error", "code", "requestId", *chain(*_MEMBERS.values())}
    assert all(reason in schemas["Error"]["properties"]["reason"]["description"] for reason in REASONS)
    limits = {
        (path, each["name"]): each["schema"].get("default")
        for path in ("pull", "snapshot")
        for each in document["paths"][f"/sync/{{gw}}/{path}"]["get"]["parameters"]
    }
    assert (limits["pull", "limit"], limits["snapshot", "limit"]) == (PULL_LIMIT, SNAPSHOT_LIMIT)
    codes = {int(status) for each in document["paths"].values() for way in each.values() for status in way["responses"]}
    assert codes - {200} <= set(STATUS_OF_CODE.values())
