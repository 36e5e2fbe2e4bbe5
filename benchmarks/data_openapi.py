"""An OpenAPI document in the manner of large payment APIs, with fixtures: expandable references, `nullable` beside
combinators, deleted twins, lists, polymorphic sources, metadata; seeded, of any size."""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]

_NOUNS = ("account", "balance", "card", "charge", "coupon", "dispute", "event", "fee", "invoice", "payout", "refund")
_QUALITIES = ("application", "billing", "credit", "issuing", "radar", "tax", "terminal", "transfer", "treasury", "test")
_STATES = ("active", "canceled", "draft", "open", "paid", "past_due", "uncollectible", "void")


def document(resources: int, seed: int = 7) -> Schema:
    """An OpenAPI 3.0 document with so many resources, each with a deleted twin, a list, details and a source."""
    dice = random.Random(seed)
    names = resource_names(resources)
    schemas: dict[str, Schema] = {"metadata": {"type": "object", "additionalProperties": {"type": "string"}}}
    paths: dict[str, Schema] = {}
    for name in names:
        schemas[name] = _resource(name, names, dice)
        schemas[f"{name}_details"] = _details(name, names, dice)
        schemas[f"deleted_{name}"] = _deleted(name)
        schemas[f"{name}_source"] = _source(name, names, dice)
        paths[f"/v1/{name}s"] = {"get": _operation({"$ref": f"#/components/schemas/{name}_list"})}
        paths[f"/v1/{name}s/{{id}}"] = {"get": _operation({"$ref": f"#/components/schemas/{name}"})}
        schemas[f"{name}_list"] = _list(name)
    info = {"title": "Payments", "version": "1"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def resource_names(count: int) -> list[str]:
    """Names such as `billing_invoice_3`."""
    pairs = [f"{quality}_{noun}" for noun in _NOUNS for quality in _QUALITIES]
    return [pairs[n % len(pairs)] + (f"_{n // len(pairs)}" if n >= len(pairs) else "") for n in range(count)]


def _operation(schema: Schema) -> Schema:
    return {"responses": {"200": {"content": {"application/json": {"schema": schema}}}}}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _resource(name: str, names: list[str], dice: random.Random) -> Schema:
    properties: dict[str, Schema] = {
        "id": {"type": "string", "maxLength": 5000},
        "object": {"type": "string", "enum": [name]},
        "created": {"type": "integer", "format": "unix-time"},
        "livemode": {"type": "boolean"},
        "metadata": {**_reference("metadata"), "nullable": True},
        "amount": {"type": "integer", "nullable": dice.random() < 0.3},
        "percent": {"type": "number", "nullable": True},
        "status": {"type": "string", "enum": [*_STATES, ""], "nullable": dice.random() < 0.4},
        "description": {"type": "string", "maxLength": 5000, "nullable": True},
        "details": {"allOf": [_reference(f"{name}_details")], "nullable": True},
        "source": {**_reference(f"{name}_source"), "nullable": True},
    }
    for number, target in enumerate(dice.sample(names, min(6, len(names)))):
        properties[f"{target}_{number}"] = _expandable(target, dice)
    properties["related"] = {"type": "array", "items": {"anyOf": [{"type": "string"}, _reference(dice.choice(names))]}}
    properties["history"] = {**_list_of(_reference(dice.choice(names))), "nullable": True}
    required = ["id", "object", "created", "livemode"]
    return {"type": "object", "properties": properties, "required": required, "x-expandableFields": ["source"]}


def _expandable(target: str, dice: random.Random) -> Schema:
    """An id, or the resource itself, or its deleted twin; nearly always nullable, written beside the branches."""
    branches: list[Schema] = [{"type": "string", "maxLength": 5000}, _reference(target)]
    if dice.random() < 0.5:
        branches.append(_reference(f"deleted_{target}"))
    return {"anyOf": branches, "nullable": dice.random() < 0.8, "x-expansionResources": {"oneOf": branches[1:]}}


def _details(name: str, names: list[str], dice: random.Random) -> Schema:
    own = {
        "reason": {"type": "string", "nullable": True, "enum": ["duplicate", "fraudulent", None]},
        "amounts": {"type": "array", "items": {"type": "integer"}, "nullable": True},
        "address": {
            "type": "object",
            "nullable": True,
            "properties": {"city": {"type": "string", "nullable": True}, "line1": {"type": "string", "nullable": True}},
        },
        "owner": _expandable(dice.choice(names), dice),
    }
    return {"type": "object", "properties": own, "required": ["reason"]}


def _deleted(name: str) -> Schema:
    deleted = {"type": "boolean", "enum": [True]}
    members = {"id": {"type": "string"}, "object": {"type": "string", "enum": [name]}, "deleted": deleted}
    return {"type": "object", "properties": members, "required": ["id", "object", "deleted"]}


def _source(name: str, names: list[str], dice: random.Random) -> Schema:
    """A choice without a discriminator, one branch behind an `allOf`."""
    other = dice.choice(names)
    bank = {"type": "object", "properties": {"iban": {"type": "string", "nullable": True}}, "required": ["iban"]}
    return {"oneOf": [_reference(f"deleted_{other}"), {"allOf": [_reference(f"{name}_details")]}, bank]}


def _list_of(items: Schema) -> Schema:
    members = {
        "object": {"type": "string", "enum": ["list"]},
        "data": {"type": "array", "items": items},
        "has_more": {"type": "boolean"},
        "url": {"type": "string"},
    }
    return {"type": "object", "properties": members, "required": ["object", "data", "has_more", "url"]}


def _list(name: str) -> Schema:
    return _list_of(_reference(name))


def fixture(schemas: dict[str, Schema], name: str, seed: int, levels: int = 5) -> Any:
    """A value that fits a component; null wherever it may be, now and then."""
    return _value(schemas, _reference(name), random.Random(f"{name} {seed}"), levels)


def _value(schemas: dict[str, Schema], schema: Schema, dice: random.Random, levels: int) -> Any:
    if schema.get("nullable") and dice.random() < 0.4:
        return None
    if "$ref" in schema:
        return _value(schemas, schemas[schema["$ref"].rsplit("/", 1)[1]], dice, levels)
    if "allOf" in schema:
        return {name: item for part in schema["allOf"] for name, item in _value(schemas, part, dice, levels).items()}
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return _value(schemas, branches[0] if levels <= 0 else dice.choice(branches), dice, levels)
    if "enum" in schema:
        return dice.choice(schema["enum"])
    return _plain(schemas, schema, dice, levels)


def _plain(schemas: dict[str, Schema], schema: Schema, dice: random.Random, levels: int) -> Any:
    kind = schema["type"]
    if kind == "object":
        required = set(schema.get("required", ()))
        members = {
            name: _value(schemas, child, dice, levels - 1)
            for name, child in schema.get("properties", {}).items()
            if name in required or (levels > 0 and dice.random() < 0.8)
        }
        return members or {f"key_{dice.randint(0, 9)}": "value"}
    if kind == "array":
        return [
            _value(schemas, schema["items"], dice, levels - 1) for _ in range(dice.randint(0, 2 if levels > 2 else 0))
        ]
    makers = {"string": lambda: f"txt_{dice.randint(0, 10**6)}", "integer": lambda: dice.randint(0, 10**9)}
    makers |= {"number": lambda: round(dice.uniform(0, 100), 2), "boolean": lambda: dice.random() < 0.5}
    return makers[kind]()
