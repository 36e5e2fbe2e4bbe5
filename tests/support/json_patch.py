"""An applier of JSON Patch, written from RFC 6902 and RFC 6901 alone, to judge patches by."""

from __future__ import annotations

import copy
import re
from typing import Any

_INDEX = re.compile("0|[1-9][0-9]*")


class PatchError(Exception):
    """The patch cannot be applied."""


def apply_patch(document: Any, patch: list[dict[str, Any]]) -> Any:
    """The document after all operations; the given one stays as it is."""
    document = copy.deepcopy(document)
    for operation in patch:
        document = _applied(document, operation)
    return document


def same_value(left: Any, right: Any) -> bool:
    """Equality of JSON values: objects without order, 1 is 1.0, and true is no number."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_value(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _applied(document: Any, operation: dict[str, Any]) -> Any:
    kind = operation["op"]
    path = _tokens(operation["path"])
    if kind == "add":
        return _added(document, path, copy.deepcopy(_needed(operation, "value")))
    if kind == "remove":
        return _removed(document, path)[0]
    if kind == "replace":
        value = copy.deepcopy(_needed(operation, "value"))
        _found(document, path)
        return _added(_removed(document, path)[0], path, value) if path else value
    if kind == "test":
        if not same_value(_found(document, path), _needed(operation, "value")):
            raise PatchError(f"{operation['path']} has another value")
        return document
    if kind in ("move", "copy"):
        source = _tokens(_needed(operation, "from"))
        value = copy.deepcopy(_found(document, source))
        if kind == "move":
            if path[: len(source)] == source and path != source:
                raise PatchError("a value cannot move into itself")
            document = _removed(document, source)[0]
        return _added(document, path, value)
    raise PatchError(f"unknown operation {kind}")


def _needed(operation: dict[str, Any], name: str) -> Any:
    if name not in operation:
        raise PatchError(f"{name} is missing")
    return operation[name]


def _tokens(pointer: str) -> list[str]:
    if not pointer:
        return []
    if not isinstance(pointer, str) or pointer[0] != "/":
        raise PatchError("a pointer begins with /")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]


def _index(array: list[Any], token: str, limit: int) -> int:
    if not _INDEX.fullmatch(token) or int(token) >= limit:
        raise PatchError(f"{token} is no index of {len(array)} items")
    return int(token)


def _found(document: Any, path: list[str]) -> Any:
    for token in path:
        if isinstance(document, list):
            document = document[_index(document, token, len(document))]
        elif isinstance(document, dict) and token in document:
            document = document[token]
        else:
            raise PatchError(f"there is no {token}")
    return document


def _added(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _found(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(parent, last, len(parent) + 1), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise PatchError("a scalar has no members")
    return document


def _removed(document: Any, path: list[str]) -> tuple[Any, Any]:
    value = _found(document, path)
    if not path:
        return None, value
    parent = _found(document, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return document, value
