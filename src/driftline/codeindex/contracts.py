"""The JSON Schemas of what a registry holds, and the check against them on every write and read.

The schemas are files of this package (`schemas/`). They use a small part of JSON Schema 2020-12, which is compiled
here into plain functions.

>>> check("diffs_manifest", {"version": 1, "updatedAt": "2026-01-24T00:00:00.000Z", "diffs": {}}, "manifest")
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

from driftline.errors import IndexRefError

CONTRACTS = ("diffs_manifest", "diff_inputs", "diff_summary", "diff_event")

# Says what is wrong with a value, or None; the text starts with the place inside the value.
_Check = Callable[[Any], str | None]


def check(contract: str, value: Any, place: str) -> None:
    """Refuse a value that breaks its contract."""
    complaint = contract_check(contract)(value)
    if complaint is not None:
        raise IndexRefError(f"{place} is not what {contract} asks for: {complaint}")


def schema(contract: str) -> dict[str, Any]:
    """The JSON Schema of a contract."""
    text = files("driftline.codeindex").joinpath("schemas", f"{contract}.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


@cache
def contract_check(contract: str) -> _Check:
    """The compiled schema of a contract."""
    content = schema(contract)
    return _compile(content, content.get("$defs", {}))


def _compile(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    if "$ref" in node:
        return _compile(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)
    checks = [make(node, definitions) for keyword, make in _KEYWORDS.items() if keyword in node]
    if len(checks) == 1:
        return checks[0]
    return lambda value: next((complaint for check in checks if (complaint := check(value)) is not None), None)


def _type(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    names = [node["type"]] if isinstance(node["type"], str) else node["type"]
    tests = [_TYPES[name] for name in names]
    wanted = " or ".join(names)
    return lambda value: None if any(test(value) for test in tests) else f"is not {wanted}"


def _is_integer(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": _is_integer,
    "number": _is_number,
}


def _enum(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    allowed = node["enum"] if "enum" in node else [node["const"]]
    return lambda value: None if any(_same(value, item) for item in allowed) else "has a value that is not allowed"


def _same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _pattern(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    # JavaScript's `$` ends the text; Python's would also match before a last line feed.
    pattern = re.compile(node["pattern"].removesuffix("$") + (r"\Z" if node["pattern"].endswith("$") else ""))
    return lambda value: (
        None if not isinstance(value, str) or pattern.search(value) else f"does not match {node['pattern']}"
    )


def _minimum(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    least = node["minimum"]
    return lambda value: None if not _is_number(value) or value >= least else f"is below {least}"


def _min_length(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    least = node["minLength"]
    return lambda value: None if not isinstance(value, str) or len(value) >= least else "is too short"


def _min_items(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    least = node["minItems"]
    return lambda value: None if not isinstance(value, list) or len(value) >= least else "has too few items"


def _items(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    inner = _compile(node["items"], definitions)

    def check_items(value: Any) -> str | None:
        for number, item in enumerate(value if isinstance(value, list) else ()):
            complaint = inner(item)
            if complaint is not None:
                return f"[{number}] {complaint}"
        return None

    return check_items


def _required(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    names = node["required"]

    def check_required(value: Any) -> str | None:
        if isinstance(value, dict):
            for name in names:
                if name not in value:
                    return f"{name} is missing"
        return None

    return check_required


def _members(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    named = {name: _compile(inner, definitions) for name, inner in node.get("properties", {}).items()}
    patterns = [
        (re.compile(text), _compile(inner, definitions)) for text, inner in node.get("patternProperties", {}).items()
    ]
    closed = node.get("additionalProperties") is False

    def check_members(value: Any) -> str | None:
        for name, item in value.items() if isinstance(value, dict) else ():
            checks = [named[name]] if name in named else [inner for pattern, inner in patterns if pattern.search(name)]
            if closed and not checks:
                return "has a member that is not allowed"
            for inner in checks:
                complaint = inner(item)
                if complaint is not None:
                    return f"{name} {complaint}"
        return None

    return check_members


def _any_of(node: dict[str, Any], definitions: dict[str, Any]) -> _Check:
    branches = [_compile(inner, definitions) for inner in node["anyOf"]]

    def check_branches(value: Any) -> str | None:
        return None if any(branch(value) is None for branch in branches) else "fits none of the allowed shapes"

    return check_branches


_KEYWORDS: dict[str, Callable[[dict[str, Any], dict[str, Any]], _Check]] = {
    "type": _type,
    "enum": _enum,
    "const": _enum,
    "pattern": _pattern,
    "minimum": _minimum,
    "minLength": _min_length,
    "minItems": _min_items,
    "items": _items,
    "properties": _members,
    "patternProperties": _members,
    "required": _required,
    "anyOf": _any_of,
}
