"""The OpenAPI document of the gateway."""

from __future__ import annotations

from typing import Any

from driftline.core._json import JsonObject
from driftline.deltas._schema import COLUMN_TYPES
from driftline.deltas._wire import MAX_ID_LENGTH
from driftline.gateway.cursor import REASONS
from driftline.gateway.pull import DEFAULT_LIMIT
from driftline.gateway.push import MAX_DELTAS
from driftline.gateway.rules import FILTER_OPS
from driftline.gateway.settings import GatewaySettings
from driftline.gateway.snapshot import ARROW, NDJSON
from driftline.gateway.snapshot import DEFAULT_LIMIT as SNAPSHOT_LIMIT
from driftline.version import __version__

_HLC = {"type": "string", "pattern": "^[0-9]{1,19}$", "description": "hybrid logical clock, a decimal string"}
_ID = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
_TABLE = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]{0,63}$"}
_COLUMN = {"type": "string", "minLength": 1, "maxLength": 255}
_ERRORS = {
    400: "malformed (VALIDATION_ERROR)",
    401: "no valid token (AUTH_ERROR)",
    403: "not allowed (FORBIDDEN)",
    409: "from too far in the future (CLOCK_DRIFT) or too old (TOO_OLD)",
    410: "the cursor is gone, for the given reason (MUST_REFETCH)",
    413: "the body is too large (PAYLOAD_TOO_LARGE)",
    415: "an encoded body (UNSUPPORTED_MEDIA_TYPE)",
    422: "against the schema (SCHEMA_ERROR)",
    429: "too many requests (RATE_LIMITED)",
    503: "try again later (BACKPRESSURE_ERROR)",
}
_GENERAL = (401, 403, 429, 503)


def openapi_document(settings: GatewaySettings) -> JsonObject:
    """The document for one gateway; it also holds under `/v1`."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "driftline sync gateway", "version": __version__},
        "servers": [{"url": "/"}, {"url": "/v1"}],
        "security": [] if settings.insecure else [{"token": []}],
        "paths": _paths(settings.gateway),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            "schemas": _schemas(),
        },
    }


def _paths(gateway: str) -> JsonObject:
    own = {"name": "gw", "in": "path", "required": True, "schema": {"type": "string", "enum": [gateway]}}
    return {
        "/sync/{gw}/push": {
            "post": _operation(
                "Push a batch of deltas, all or nothing", "PushAnswer", (400, 409, 413, 415, 422), [own], "Push"
            )
        },
        "/sync/{gw}/pull": {
            "get": _operation(
                "Pull deltas in arrival order; with wait=N, where there are none, as soon as there are (at most 30 s)",
                "PullAnswer",
                (400, 410),
                [own, *_pull_parameters()],
            )
        },
        "/sync/{gw}/feed": {"get": _feed_operation(own)},
        "/sync/{gw}/snapshot": {"get": _snapshot_operation(own)},
        "/admin/flush/{gw}": {"post": _operation("Flush the log to the lake", "Flushed", (), [own])},
        "/admin/schema/{gw}": {
            "post": _operation("Register a table's schema", "TableSchema", (400, 413, 415, 422), [own], "TableSchema")
        },
        "/admin/sync-rules/{gw}": {
            "post": _operation("Set the sync rules", "RulesSet", (400, 413, 415), [own], "SyncRules"),
            "delete": _operation("Remove the sync rules", "RulesSet", (), [own]),
        },
        "/admin/metrics/{gw}": {"get": _operation("The gateway in numbers", "Numbers", (), [own])},
        "/health": {"get": _open_operation("Alive", "Status")},
        "/ready": {"get": _open_operation("Able to take pushes", "Status", (503,))},
        "/metrics": {"get": _metrics_operation()},
        "/openapi.json": {"get": _open_operation("This document", "Document")},
    }


def _operation(
    summary: str, answer: str, errors: tuple[int, ...], parameters: list[Any], body: str | None = None
) -> JsonObject:
    operation: JsonObject = {"summary": summary, "parameters": parameters}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json_of(body)}
    operation["responses"] = _responses(answer, (*errors, *_GENERAL))
    return operation


def _feed_operation(own: JsonObject) -> JsonObject:
    parameters = [each for each in _pull_parameters() if each["name"] in ("clientId", "since", "cursor")]
    operation = _operation("Deltas as they arrive, as server-sent events", "Document", (400, 410), [own, *parameters])
    content = {"text/event-stream": {"schema": {"type": "string"}}}
    operation["responses"]["200"] = {"description": "events until one side ends them", "content": content}
    return operation


def _snapshot_operation(own: JsonObject) -> JsonObject:
    page = {"name": "page", "in": "query", "required": False, "schema": {"type": "string"}}
    limit = {**page, "name": "limit", "schema": {"type": "integer", "minimum": 1, "default": SNAPSHOT_LIMIT}}
    operation = _operation("The state to begin with, in pages", "Document", (400, 410), [own, page, limit])
    kinds = (NDJSON, ARROW)
    operation["responses"]["200"]["content"] = {kind: {"schema": {"type": "string"}} for kind in kinds}
    return operation


def _open_operation(summary: str, answer: str, errors: tuple[int, ...] = ()) -> JsonObject:
    return {"summary": summary, "security": [], "responses": _responses(answer, errors)}


def _metrics_operation() -> JsonObject:
    content = {"text/plain": {"schema": {"type": "string"}}}
    answer = {"200": {"description": "metrics", "content": content}}
    return {"summary": "Prometheus metrics", "security": [], "responses": answer}


def _responses(answer: str, errors: tuple[int, ...]) -> JsonObject:
    responses: JsonObject = {"200": {"description": "done", "content": _json_of(answer)}}
    for status in sorted(errors):
        responses[str(status)] = {"description": _ERRORS[status], "content": _json_of("Error")}
    return responses


def _pull_parameters() -> list[JsonObject]:
    def parameter(name: str, schema: JsonObject, text: str) -> JsonObject:
        return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}

    limit = {"type": "integer", "minimum": 1, "default": DEFAULT_LIMIT}
    return [
        parameter("clientId", _ID, "must be the token's subject"),
        parameter("since", _HLC, "deltas with a greater hlc; since or cursor is required"),
        parameter("cursor", {"type": "string"}, "where the last page ended; wins over since"),
        parameter("limit", limit, "page size, at most 10,000"),
    ]


def _json_of(name: str) -> JsonObject:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _object(required: JsonObject, optional: JsonObject | None = None) -> JsonObject:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }


def _list(item: JsonObject, **limits: int) -> JsonObject:
    return {"type": "array", "items": item, **limits}


def _ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas() -> JsonObject:
    number, text, deltas = {"type": "integer"}, {"type": "string"}, _list(_ref("Delta"))
    counts = {"type": "object", "additionalProperties": number}
    return {
        "Delta": _delta(),
        "Push": _object(
            {"clientId": _ID, "deltas": _list(_ref("Delta"), maxItems=MAX_DELTAS)},
            {"lastSeenHlc": {"anyOf": [_HLC, {"type": "null"}]}},
        ),
        "PushAnswer": _object({"serverHlc": _HLC, "accepted": number, "deltas": deltas}),
        "PullAnswer": _object({"deltas": deltas, "serverHlc": _HLC, "hasMore": {"type": "boolean"}, "cursor": text}),
        "TableSchema": _object(
            {"table": _TABLE, "columns": _list(_object({"name": _COLUMN, "type": {"enum": list(COLUMN_TYPES)}}))},
            {"key": _list(_COLUMN)},
        ),
        "SyncRules": _object({"version": {"const": 1}, "buckets": _list(_bucket())}),
        "RulesSet": _object({"buckets": number}),
        "Flushed": _object({"flushed": number, "tables": counts}, {"known": number, "setAside": number}),
        "Numbers": {"type": "object"},
        "Status": _object({"status": text}),
        "Document": {"type": "object"},
        "Error": _object(
            {"error": text, "code": text, "requestId": text}, {"reason": {"enum": list(REASONS)}, "snapshot": text}
        ),
    }


def _delta() -> JsonObject:
    return _object(
        {
            "op": {"enum": ["INSERT", "UPDATE", "DELETE"]},
            "table": _TABLE,
            "rowId": _ID,
            "clientId": _ID,
            "columns": _list(_object({"column": _COLUMN, "value": {}})),
            "hlc": _HLC,
            "deltaId": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        }
    )


def _bucket() -> JsonObject:
    condition = _object({"column": _COLUMN, "op": {"enum": list(FILTER_OPS)}, "value": {}})
    return _object({"name": {"type": "string"}, "tables": _list(_TABLE, minItems=1)}, {"filters": _list(condition)})
