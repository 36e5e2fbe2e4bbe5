"""The OpenAPI document of the compare service, and the pages on which an API can be tried."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from driftline.payloads import LOG_LEVELS
from driftline.sinks import environment
from driftline.version import __version__

DIFF_TYPES = [
    "VALUE_MISMATCH", "TYPE_MISMATCH", "MISSING_IN_NEW", "EXTRA_IN_NEW", "ARRAY_LENGTH_MISMATCH", "ARRAY_ITEM_MISSING",
    "ARRAY_ITEM_EXTRA", "DUPLICATE_KEY", "SCHEMA_MISMATCH", "PRECISION_EXCEEDED", "PATTERN_MISMATCH",
    "DATETIME_EXCEEDED",
]  # fmt: skip
ERROR_CODES = [
    "VALIDATION_ERROR", "SCHEMA_PARSE_ERROR", "PAYLOAD_TOO_LARGE", "MAX_DEPTH_EXCEEDED", "TIMEOUT", "OVERLOADED",
    "METHOD_NOT_ALLOWED", "NOT_FOUND",
]  # fmt: skip
_ERRORS = {
    "405": "Another method",
    "413": "A payload or the body is too large (PAYLOAD_TOO_LARGE)",
    "422": "Not comparable: invalid JSON, schema or config, too deep, too slow",
    "503": "Too many requests under way",
}
_OLD = '{"id": 7, "total": 10.0, "status": "OPEN"}'
_NEW = '{"id": 7, "total": 10.004, "status": "open"}'
_RULES = """type: object
properties:
  total: {type: number, x-migration-precision: 0.01}
  status: {type: string, x-migration-case-insensitive: true}
"""
_DEEPEST = 6


def compare_document() -> dict[str, Any]:
    """The document of `/v1/compare` and `/v1/compare/batch`."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "driftline compare service",
            "version": __version__,
            "description": "Decides whether two JSON payloads are functionally equivalent under an OpenAPI schema.",
        },
        "paths": {
            "/v1/compare": {"post": _single()},
            "/v1/compare/batch": {"post": _batch()},
            "/v1/compare/health": {"get": _health()},
        },
        "components": {"schemas": _schemas()},
    }


def _single() -> dict[str, Any]:
    return {
        "operationId": "compare",
        "summary": "Compare one pair of payloads",
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("CompareRequest")}}},
        "responses": {"200": _json("The report", "DiffReport"), **_errors()},
    }


def _batch() -> dict[str, Any]:
    return {
        "operationId": "compareBatch",
        "summary": "Compare a stream of pairs",
        "description": "NDJSON. The first line is a BatchHeader, each further line a BatchPair; the answer has a line "
        "for each pair, in order: its id with a report, or with an error response. One bad pair does not end a batch.",
        "requestBody": {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string"}}}},
        "responses": {
            "200": {
                "description": "A line for each pair",
                "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
            },
            **_errors(),
        },
    }


def _health() -> dict[str, Any]:
    status = {"type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}}
    content = {"application/json": {"schema": status}}
    return {
        "operationId": "health",
        "summary": "Whether the server answers",
        "responses": {
            "200": {"description": "It does", "content": content},
            "405": _json(_ERRORS["405"], "ErrorResponse"),
        },
    }


def _errors() -> dict[str, Any]:
    return {status: _json(text, "ErrorResponse") for status, text in _ERRORS.items()}


def _json(description: str, schema: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _ref(schema)}}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: list[str], *, closed: bool = False, **properties: object) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "required": required, "properties": properties}
    return {**schema, "additionalProperties": False} if closed else schema


def _schemas() -> dict[str, Any]:
    count = {"type": "integer", "minimum": 0}
    text = {"type": "string"}
    fragment = {
        "description": "An OpenAPI 3 schema or document with x-migration-* extensions, as an object or as text",
        "type": ["object", "string"],
    }
    return {
        "CompareRequest": _object(
            ["old_json", "new_json", "schema_fragment"],
            closed=True,
            old_json={"description": "The baseline payload: any JSON value"},
            new_json={"description": "The payload to validate: any JSON value"},
            schema_fragment=fragment,
            config=_ref("EngineConfig"),
            root={"type": ["string", "null"], "description": "A component's name or a JSON Pointer"},
        ),
        "BatchHeader": _object(
            [],
            closed=True,
            schema_fragment=fragment,
            schemas={"type": "object", "additionalProperties": fragment, "description": "Schemas by endpoint"},
            config=_ref("EngineConfig"),
            root={"type": ["string", "null"]},
        ),
        "BatchPair": _object(["old", "new"], closed=True, id={}, endpoint={"type": ["string", "null"]}, old={}, new={}),
        "EngineConfig": _config(),
        "DiffReport": _object(
            ["is_match", "summary", "diffs", "warnings"],
            is_match={"type": ["boolean", "null"]},
            execution=_object(["duration_ms", "timestamp", "engine_version"]),
            summary=_object(
                ["total_fields_checked", "mismatches_found", "warnings_count", "fields_ignored"],
                total_fields_checked=count,
                mismatches_found=count,
                warnings_count=count,
                fields_ignored=count,
            ),
            diffs={"type": "array", "items": _ref("DiffEntry")},
            warnings={"type": "array", "items": _ref("WarningEntry")},
            coverage=_object(
                ["fields_in_schema", "fields_in_payload", "unmatched_in_old", "unmatched_in_new"],
                fields_in_schema=count,
                fields_in_payload=count,
                unmatched_in_old={"type": "array", "items": text, "maxItems": 100},
                unmatched_in_new={"type": "array", "items": text, "maxItems": 100},
            ),
            trace={"type": "array", "items": _object(["path", "rule", "outcome"], path=text, rule=text, outcome=text)},
        ),
        "DiffEntry": _object(
            ["path", "type", "severity", "old_value", "new_value", "message"],
            path=text,
            type={"enum": DIFF_TYPES},
            severity={"const": "ERROR"},
            message=text,
            rule_applied=text,
        ),
        "WarningEntry": _object(
            ["path", "type", "severity", "message"],
            path=text,
            type={"enum": ["EXTRA_IN_NEW", "MISSING_IN_NEW", "DUPLICATE_KEY", "RULE_ERROR"]},
            severity={"const": "WARNING"},
            message=text,
            rule_applied=text,
        ),
        "ErrorResponse": _object(
            ["success", "error", "partial_result"],
            success={"const": False},
            error=_object(["code", "message", "details"], code={"enum": ERROR_CODES}, message=text, details={}),
            partial_result={"anyOf": [{"type": "null"}, _ref("DiffReport")]},
        ),
    }


def _config() -> dict[str, Any]:
    number = {"type": "number", "minimum": 0}
    return {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {
            "max_depth": {"type": "integer", "minimum": 0, "default": 100},
            "max_payload_size_mb": {**number, "default": 50},
            "timeout_seconds": {**number, "default": 30},
            "schema_timeout_seconds": {**number, "default": 30},
            "strict_schema_validation": {"type": "boolean", "default": True},
            "collect_statistics": {"type": "boolean", "default": True},
            "log_level": {"enum": list(LOG_LEVELS), "default": "INFO"},
            "trace_rule_application": {"type": "boolean", "default": False},
            "fail_fast": {"type": "boolean", "default": False},
        },
    }


# Pages. Each is self-contained: styles and script are inline, and its policy allows those two and this server alone.
@dataclass(frozen=True)
class Operation:
    """One operation of an API, with what a form needs to try it."""

    method: str
    path: str
    summary: str
    description: str
    parameters: list[dict[str, Any]]
    type: str
    example: str
    answers: list[tuple[str, str]]


def openapi_page(*documents: dict[str, Any]) -> bytes:
    """The page of one or more documents: their operations, then their schemas."""
    return _page("api.html", here="docs", documents=documents, operations=lambda document: list(_operations(document)))


def server_page(gateway: str | None) -> bytes:
    """The first page of a server."""
    return _page("server.html", here="start", version=__version__, gateway=gateway, old=_OLD, new=_NEW, rules=_RULES)


def _page(template: str, **shown: object) -> bytes:
    look, script, policy = _parts()
    text = environment("driftline.web").get_template(template).render(look=look, script=script, policy=policy, **shown)
    return text.encode()


@cache
def _parts() -> tuple[str, str, str]:
    """Styles and script, and a policy that names them by their hashes."""
    sheets = (files("driftline.sinks") / "templates/look.css", files("driftline.web") / "_console/static/console.css")
    look = "".join(sheet.read_text("utf-8") for sheet in sheets)
    script = (files("driftline.web") / "templates" / "try.js").read_text("utf-8")
    style_hash, script_hash = (b64encode(sha256(text.encode()).digest()).decode() for text in (look, script))
    policy = (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return look, script, policy


def _operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            kind = next(iter(content), "")
            yield Operation(
                method,
                path,
                operation["summary"],
                operation.get("description", ""),
                [_parameter(each) for each in operation.get("parameters", ())],
                kind,
                _example_text(content[kind]["schema"], document, kind) if kind else "",
                [(status, answer["description"]) for status, answer in operation["responses"].items()],
            )


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    value = (parameter.get("schema", {}).get("enum") or [""])[0]
    return {"description": "", "required": False, **parameter, "value": value}


def _example_text(schema: dict[str, Any], document: dict[str, Any], kind: str) -> str:
    if kind == "application/x-ndjson":
        return f'{{"schema_fragment": {{}}}}\n{{"id": 1, "old": {_OLD}, "new": {_NEW}}}\n'
    return json.dumps(_example(schema, document["components"]["schemas"], _DEEPEST), indent=2)


def _example(schema: dict[str, Any], schemas: dict[str, Any], depth: int) -> Any:
    """A small value that fits a schema, as far as its required members say."""
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth - 1)
    for word in ("example", "const", "default"):
        if word in schema:
            return schema[word]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" and depth > 0:
        members = schema.get("properties", {})
        return {
            name: _example(members[name], schemas, depth - 1) for name in schema.get("required", ()) if name in members
        }
    if kind == "array" and depth > 0:
        return [_example(schema["items"], schemas, depth - 1)] if "items" in schema else []
    return {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}.get(str(kind), {})
