"""The steps of payloads §3.2 in their plainest form: whole copies of a payload, straight from the schema's text.

It shares no code with the engine; only the JSONPath library is the same. It knows `properties`, `items`, an
`additionalProperties` schema, and the rules of the scrub.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jsonpath import JSONPathEnvironment

RFC_9535 = JSONPathEnvironment(strict=True)
KINDS = {type(None): 0, bool: 1, int: 2, float: 2, str: 3, list: 4, dict: 5}


class Flags(NamedTuple):
    """What holds for a node and everything below it."""

    null_as_missing: bool = False
    empty_as_null: bool = False

    def at(self, schema: dict[str, Any]) -> Flags:
        return Flags(
            schema.get("x-migration-allow-null-as-missing", self.null_as_missing),
            schema.get("x-migration-empty-string-as-null", self.empty_as_null),
        )


def scrubbed(schema: dict[str, Any], payload: Any, side: str) -> Any:
    """A normalised copy of one side."""
    return _value(schema, _without_ignored(payload, _ignores(schema)), side, Flags())


def _ignores(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = schema.get("x-migration-global-ignores", [])
        children = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
        return [*own, *(path for child in children for path in _ignores(child))]
    return []


def _without_ignored(payload: Any, paths: list[str]) -> Any:
    gone = {match.parts for path in paths for match in RFC_9535.finditer(path, payload)}

    def copy(value: Any, place: tuple[Any, ...]) -> Any:
        if isinstance(value, dict):
            return {name: copy(item, (*place, name)) for name, item in value.items() if (*place, name) not in gone}
        if isinstance(value, list):
            kept = [(index, item) for index, item in enumerate(value) if (*place, index) not in gone]
            return [copy(item, (*place, index)) for index, item in kept]
        return value

    return copy(payload, ())


def _value(schema: dict[str, Any], value: Any, side: str, flags: Flags) -> Any:
    flags = flags.at(schema)
    if isinstance(value, dict):
        return _object(schema, value, side, flags)
    if isinstance(value, list):
        return _array(schema, value, side, flags)
    if value == "" and flags.empty_as_null:
        value = None
    return _mapped(schema.get("x-migration-enum-map", {}), value) if side == "old" else value


def _mapped(enum_map: dict[str, Any], value: Any) -> Any:
    spelled = (
        {None: "null", True: "true", False: "false"}[value]
        if value is None or value is True or value is False
        else value
    )
    if isinstance(spelled, float) and spelled.is_integer():
        spelled = int(spelled)
    return enum_map.get(str(spelled), value)


def _object(schema: dict[str, Any], value: dict[str, Any], side: str, flags: Flags) -> dict[str, Any]:
    properties = schema.get("properties", {})
    other = schema.get("additionalProperties")
    members = _renamed(properties, value) if side == "old" else value
    found = {}
    for name, item in members.items():
        child = properties.get(name, other if isinstance(other, dict) else {})
        if child.get("x-migration-strategy") != "ignore" and not _is_absent(item, flags.at(child)):
            found[name] = _value(child, item, side, flags)
    for name, child in properties.items():
        if name not in found and "x-migration-default" in child and child.get("x-migration-strategy") != "ignore":
            found[name] = _value(child, child["x-migration-default"], side, flags)
    return found


def _is_absent(value: Any, flags: Flags) -> bool:
    return flags.null_as_missing and (value is None or (flags.empty_as_null and value == ""))


def _renamed(properties: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    aliases: dict[str, str] = {}
    for name, child in properties.items():
        alias = child.get("x-migration-alias") or name
        if alias != name:
            aliases.setdefault(alias, name)
    found = {}
    for raw, item in value.items():
        name = aliases.get(raw, raw)
        if name == raw or name not in value:
            found[name] = item
        elif raw in properties:  # the new name's value wins; a declared member keeps its own name
            found[raw] = item
    return found


def _array(schema: dict[str, Any], value: list[Any], side: str, flags: Flags) -> list[Any]:
    child = schema.get("items") or {}
    if child.get("x-migration-strategy") == "ignore":
        return []
    items = [_value(child, item, side, flags) for item in value]
    for field in reversed(schema.get("x-migration-order-by", [])):
        path, is_descending = field.removeprefix("-").split("."), field.startswith("-")
        items.sort(key=lambda item: _sort_key(item, path, is_descending), reverse=is_descending)
    return items


def _sort_key(item: Any, path: list[str], is_descending: bool) -> tuple[Any, ...]:
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    if item is None:  # nulls come first either way
        return (9,) if is_descending else (-1,)
    return (KINDS[type(item)], item)
