"""An OpenAPI document as a page for people: plain HTML, nothing loaded from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 code { background: #eef; padding: .1em .4em; border-radius: .3em; }
pre { background: #f6f6f6; padding: 1rem; overflow: auto; border-radius: .4em; font-size: .85rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } pre, h2 code { background: #262626; } }
"""


def openapi_page(*documents: dict[str, Any]) -> bytes:
    """The page of one or more documents: their operations, then their schemas."""
    title = escape(documents[0]["info"]["title"])
    body = "".join(_document(document) for document in documents)
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style></head><body>{body}</body></html>"
    ).encode()


def _document(document: dict[str, Any]) -> str:
    info = document["info"]
    operations = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f"<h3 id='{escape(name)}'>{escape(name)}</h3><pre>{escape(json.dumps(schema, indent=2))}</pre>"
        for name, schema in document["components"]["schemas"].items()
    ]
    head = f"<h1>{escape(info['title'])}</h1><p>{escape(info.get('description', ''))}</p>"
    return "".join([head, *operations, "<h2>Schemas</h2>", *schemas])


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(response['description'])}</td></tr>"
        for status, response in operation["responses"].items()
    )
    description = escape(operation.get("description", ""))
    return (
        f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2><p>{escape(operation['summary'])}. {description}"
        f"</p><table><tr><th>status</th><th>meaning</th></tr>{rows}</table>"
    )
