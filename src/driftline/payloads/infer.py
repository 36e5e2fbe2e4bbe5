"""A schema from samples: types, members, and which of them are always there (payloads §8.3).

>>> infer_schema([{"a": 1}, {"a": 1.5, "b": None}])["properties"]["a"]
{'type': 'number'}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from driftline.payloads.values import Json, kind_of


def infer_schema(samples: Iterable[Json]) -> dict[str, Json]:
    """The tightest schema of types, members and required members that all samples fit."""
    given = list(samples)
    types = sorted({_type_of(value) for value in given})
    if "number" in types and "integer" in types:
        types.remove("integer")
    schema: dict[str, Any] = {"type": types[0] if len(types) == 1 else types} if types else {}
    objects = [value for value in given if isinstance(value, dict)]
    members: dict[str, list[Any]] = {}
    for value in objects:
        for name, item in value.items():
            members.setdefault(name, []).append(item)
    if members:
        schema["properties"] = {name: infer_schema(items) for name, items in members.items()}
        required = [name for name, items in members.items() if len(items) == len(objects)]
        if required:
            schema["required"] = required
    items = [item for value in given if isinstance(value, list) for item in value]
    if items:
        schema["items"] = infer_schema(items)
    return schema


def _type_of(value: Any) -> str:
    kind = kind_of(value)
    return "integer" if kind == "number" and isinstance(value, int) else kind
