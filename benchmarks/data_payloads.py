"""Seeded payload pairs: a 10 KB invoice with every rule in use, long arrays, and small pairs for batches."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

WORDS = ["amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath"]

ITEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["sku", "quantity"],
    "properties": {
        "sku": {"type": "string"},
        "name": {"type": "string", "x-migration-trim-whitespace": True},
        "quantity": {"type": "integer", "x-migration-default": 1},
        "unitPrice": {"type": "number", "x-migration-precision": 0.001},
        "taxRate": {"type": "number"},
        "category": {"type": "string", "x-migration-case-insensitive": True},
        "packed": {"type": "boolean"},
        "discount": {
            "type": "object",
            "properties": {"code": {"type": "string"}, "percent": {"type": "number"}},
        },
    },
}
INVOICE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "x-migration-global-ignores": ["$..updatedAt", "$..metadata", "$.debug"],
    "x-migration-allow-null-as-missing": True,
    "x-migration-empty-string-as-null": True,
    "properties": {
        "id": {"type": "string", "x-migration-strategy": "strict"},
        "legacyId": {"type": "string", "x-migration-alias": "old_invoice_id"},
        "total": {"type": "number", "x-migration-precision": 0.01},
        "status": {"type": "string", "x-migration-enum-map": {"PAID": "paid", "OPEN": "open"}},
        "createdAt": {
            "type": "string",
            "x-migration-datetime-format": "ISO8601",
            "x-migration-datetime-tolerance": "5s",
        },
        "orderNumber": {"type": "string", "x-migration-pattern": "^ORD-[A-Z]{2}-\\d{6}$"},
        "description": {"type": "string", "x-migration-strategy": "lenient"},
        "version": {"x-migration-cast": "int"},
        "requestId": {"type": "string", "x-migration-strategy": "ignore"},
        "session": {"type": "object", "x-migration-strategy": "exists"},
        "rebate": {"type": "number", "x-migration-when": "$.status == 'paid'", "x-migration-precision": 0.5},
        "currency": {"type": "string", "x-migration-default": "EUR"},
        "customer": {
            "type": "object",
            "x-migration-strategy": "lenient",
            "x-migration-inherit-rules": True,
            "properties": {
                "name": {"type": "string"},
                "email": {"type": "string"},
                "vip": {"type": "boolean"},
                "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}},
            },
        },
        "tags": {"type": "array", "x-migration-array-mode": "unordered", "items": {"type": "string"}},
        "labels": {"type": "array", "x-migration-array-subset": True, "items": {"type": "string"}},
        "events": {
            "type": "array",
            "x-migration-order-by": ["at"],
            "x-migration-ignore-missing-items": True,
            "items": {"type": "object", "properties": {"at": {"type": "string"}, "what": {"type": "string"}}},
        },
        "lineItems": {
            "type": "array",
            "x-migration-array-mode": "keyed",
            "x-migration-array-key": "sku",
            "x-migration-ignore-extra-items": True,
            "x-migration-duplicate-handling": "first",
            "items": ITEM_SCHEMA,
        },
    },
}
_ARRAY = {"type": "array", "x-migration-global-ignores": ["$..updatedAt"], "items": ITEM_SCHEMA}
KEYED_SCHEMA = {**_ARRAY, "x-migration-array-mode": "keyed", "x-migration-array-key": "sku"}
UNORDERED_SCHEMA = {**_ARRAY, "x-migration-array-mode": "unordered"}


def item(number: int, chance: random.Random) -> dict[str, Any]:
    return {
        "sku": f"SKU-{number:06d}",
        "name": f"{chance.choice(WORDS)} {chance.choice(WORDS)} of the {chance.choice(WORDS)} {number}",
        "quantity": chance.randint(1, 20),
        "unitPrice": round(chance.uniform(1, 500), 2),
        "taxRate": 0.19,
        "category": chance.choice(WORDS),
        "packed": chance.random() < 0.5,
        "updatedAt": f"2025-02-02T10:{number % 60:02d}:00.000Z",
        "discount": {"code": f"D{number}", "percent": chance.choice([0, 2.5, 5])},
    }


def invoice(items: int = 40, seed: int = 1) -> dict[str, Any]:
    """Old's side of the 10 KB pair (with 40 items)."""
    chance = random.Random(seed)
    address = {"street": "Main Street 1", "city": "Berlin", "zip": "10115", "country": "DE"}
    return {
        "id": f"INV-{seed:07d}",
        "old_invoice_id": f"L-{seed}",
        "total": 1234.56,
        "status": "PAID",
        "createdAt": "2025-02-02T10:30:00Z",
        "updatedAt": "2025-02-02T11:00:00Z",
        "orderNumber": "ORD-AB-123456",
        "description": "  An Invoice of some length  ",
        "version": "3",
        "requestId": f"r-{seed}",
        "session": {"id": seed},
        "rebate": 1.0,
        "notes": None,
        "metadata": {"traceId": "abc", "host": "h1"},
        "debug": {"took": 12},
        "customer": {"name": "Jane Doe", "email": "jane@example.com", "vip": True, "address": address},
        "tags": ["a", "b", "c", "d"],
        "labels": ["x", "y"],
        "events": [{"at": f"2025-02-0{day}", "what": "seen"} for day in (3, 1, 2)],
        "flags": {f"flag{number}": number % 2 == 0 for number in range(8)},
        "lineItems": [item(number, chance) for number in range(items)],
    }


def counterpart(old: dict[str, Any], seed: int = 2, differences: int = 2) -> dict[str, Any]:
    """New's side: everything the rules allow, and a few real differences."""
    chance = random.Random(seed)
    new = copy.deepcopy(old)
    new["legacyId"] = new.pop("old_invoice_id")
    new.update(status="paid", total=1234.57, createdAt="2025-02-02T10:30:02Z", updatedAt="2025-03-01T00:00:00Z")
    new.update(orderNumber="ORD-ZZ-000001", description="an invoice of some length", version=3, requestId="other")
    new.update(session={"id": 0}, rebate=1.25, currency="", metadata={"traceId": "zzz"}, debug={"took": 9})
    del new["notes"]
    new["customer"]["name"] = "JANE DOE "
    new["tags"].reverse()
    new["labels"].append("z")
    chance.shuffle(new["events"])
    change_items(new["lineItems"], chance, differences)
    return new


def mostly_equal(old: dict[str, Any]) -> dict[str, Any]:
    """New's side of an answer that was replayed: nine of ten members are the same to the byte."""
    return {**old, "status": "paid", "total": 1234.57}


def change_items(items: list[dict[str, Any]], chance: random.Random, differences: int) -> None:
    for entry in items:
        entry["unitPrice"] = round(entry["unitPrice"] + 0.0004, 4)
        entry["updatedAt"] = "2025-03-01T00:00:00Z"
        entry["category"] = entry["category"].upper()
    for number in range(differences):
        items[number * 3 % len(items)]["quantity"] += 1
    chance.shuffle(items)


def long_arrays(count: int, *, tolerated: bool, seed: int = 3) -> tuple[list[Any], list[Any]]:
    """Two arrays of items in different order, a thousandth of them different."""
    chance = random.Random(seed)
    old = [item(number, chance) for number in range(count)]
    new = copy.deepcopy(old)
    if tolerated:
        change_items(new, chance, 0)
    else:
        chance.shuffle(new)
    for entry in new[:: max(count // 20, 1)]:
        entry["quantity"] += 1
    return old, new


def write_batch(path: Path, pairs: int, seed: int = 4) -> None:
    """JSONL of pairs of two payloads of about 2 KB each, not in the order of their ids; one in fifty differs."""
    chance = random.Random(seed)
    templates = []
    for number in range(200):
        old = invoice(6, seed=number + 10)
        templates.append((old, counterpart(old, number, differences=number % 50 == 0)))
    texts = [(json.dumps(old, separators=(",", ":")), json.dumps(new, separators=(",", ":"))) for old, new in templates]
    with path.open("w") as out:
        for number in range(pairs):
            old, new = texts[chance.randrange(len(texts))]
            # Numbers times a prime visit all others in a scattered order.
            identity = number * 611_953 % pairs
            out.write(f'{{"id":"{identity:09d}","old":{old},"new":{new}}}\n')
