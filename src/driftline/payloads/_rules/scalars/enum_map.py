"""`x-migration-enum-map`: Old's words in New's vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.payloads._rules.scalars.parts import BadValueError, Step
from driftline.payloads._values.values import Json, Value, to_string


def read_enum_map(value: Value) -> dict[str, Json]:
    """The vocabulary that a schema gives."""
    if not isinstance(value, dict):
        raise BadValueError("must be an object of old and new values")
    return value


def enum_map(words: Mapping[str, Json]) -> Step:
    """The step on Old's side."""
    return Step(lambda value: mapped(words, value), None, ("{c}.get({x}, {x})", "{x}"), words)


def mapped(words: Mapping[str, Json], value: Value) -> Any:
    """The new value of an old enum value; numbers and booleans are looked up by their JSON spelling."""
    if isinstance(value, str):
        return words.get(value, value)
    if isinstance(value, dict | list):
        return value
    return words.get(to_string(value), value)
