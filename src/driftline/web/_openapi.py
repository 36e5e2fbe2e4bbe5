"""The OpenAPI document of the compare service, and the pages on which an API can be tried."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from driftline.sinks import environment
from driftline.version import __version__

_OLD = '{"id": 7, "total": 10.0, "status": "OPEN"}'
_NEW = '{"id": 7, "total": 10.004, "status": "open"}'
_RULES = """type: object
properties:
  total: {type: number, x-migration-precision: 0.01}
  status: {type: string, x-migration-case-insensitive: true}
"""
_DEEPEST = 6


def compare_document() -> dict[str, Any]:
    """The document of `/v1/compare` and `/v1/compare/batch`: `compare_openapi.json`, with the version."""
    document: dict[str, Any] = json.loads((files("driftline.web") / "compare_openapi.json").read_bytes())
    document["info"]["version"] = __version__
    return document


# Pages. Each is self-contained: styles and script are inline, and its policy allows those two and this server alone.
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


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The operations of an API, each with what a form needs to try it."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            kind = next(iter(content), "")
            yield {
                "description": "",
                **operation,
                "method": method,
                "path": path,
                "parameters": [_parameter(each) for each in operation.get("parameters", ())],
                "type": kind,
                "example": _example_text(content[kind]["schema"], document, kind) if kind else "",
                "answers": [(status, answer["description"]) for status, answer in operation["responses"].items()],
            }


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
