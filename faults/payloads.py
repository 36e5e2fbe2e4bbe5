"""Faults for payload comparisons: damaged schemas, payloads, batch lines, captures and HTTP bodies.

Every attempt must end in time, in a report or in one clear error; what reports a match must really match.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from driftline import payloads
from driftline.errors import DriftlineError
from driftline.payloads import capture_pairs
from driftline.payloads._values.limits import Deadline
from driftline.payloads._values.patterns import PatternError, PatternTimeoutError, SafePattern
from faults.tools import Tally, attempt, driftline, mutate

PATIENCE = 15.0  # seconds for one comparison whose own limit is 2
CONFIG = {"timeout_seconds": 2}
SCHEMA = {
    "openapi": "3.0.0",
    "components": {
        "schemas": {
            "Order": {
                "type": "object",
                "x-migration-global-ignores": ["$..traceId", "$.items[?@.hidden == true]"],
                "required": ["id"],
                "properties": {
                    "id": {"type": "string", "x-migration-alias": "order_id", "x-migration-pattern": "^O-[0-9]+$"},
                    "total": {"type": "number", "x-migration-precision": 0.01, "x-migration-scale": 1},
                    "at": {"nullable": True, "x-migration-datetime-tolerance": "5s"},
                    "state": {"x-migration-enum-map": {"A": "a"}, "x-migration-when": "$.total > 1 || @.id == 'x'"},
                    "items": {
                        "type": "array",
                        "x-migration-array-mode": "unordered",
                        "items": {"$ref": "#/components/schemas/Item"},
                    },
                    "parent": {"nullable": True, "anyOf": [{"$ref": "#/components/schemas/Order"}, {"type": "string"}]},
                },
                "patternProperties": {"^x-[a-z]+$": {"x-migration-strategy": "exists"}},
            },
            "Item": {"properties": {"sku": {}, "n": {"x-migration-precision": 1, "x-migration-cast": "float"}}},
        }
    },
}
OLD = {
    "order_id": "O-1", "total": 2.5, "at": "2025-01-01T00:00:00Z", "state": "A", "traceId": 1, "x-a": 1,
    "items": [{"sku": f"s{n}", "n": str(n)} for n in range(12)], "parent": {"order_id": "O-2", "total": 1},
}  # fmt: skip


NEW = {**{name: value for name, value in OLD.items() if name != "order_id"}, "id": "O-1", "state": "a"}
NEW["parent"] = {"id": "O-2", "total": 1}


def run(seed: int, rounds: int) -> Iterator[Tally]:
    dice = random.Random(seed)
    yield _texts("mutated schemas", dice, rounds * 5, lambda text: (OLD, OLD, text))
    yield _texts("mutated payloads", dice, rounds * 5, lambda text: (text, OLD, SCHEMA), json.dumps(OLD))
    yield _patterns(dice, rounds * 5)
    yield _equal_payloads(dice, rounds * 5)
    yield _lines(dice, rounds)
    yield _captures(dice, rounds * 2)
    yield _bodies(dice, rounds)


def _texts(
    name: str, dice: random.Random, rounds: int, call: Callable[[bytes], tuple[Any, Any, Any]], text: str = ""
) -> Tally:
    tally = Tally(name)
    whole = (text or json.dumps(SCHEMA, indent=1)).encode()
    for number in range(rounds):
        damaged = mutate(whole, dice)
        started = time.monotonic()
        arguments = call(damaged)
        found = attempt(
            tally,
            lambda arguments=arguments: payloads.compare(*arguments, CONFIG, "Order"),
            DriftlineError,
            f"{name} {number}",
        )
        if time.monotonic() - started > PATIENCE:
            tally.hang(f"{name} {number}")
        if found is not None:
            attempt(tally, found.to_json, DriftlineError, f"{name} {number} as JSON")
    return tally


def _patterns(dice: random.Random, rounds: int) -> Tally:
    tally = Tally("random patterns on long texts")
    texts = ["a" * 3000 + "c", "ab" * 1500 + "c", "b" * 3000, "aab" * 1000 + "c"]
    for _ in range(rounds):
        pattern = dice.choice(["", "^"]) + _pattern(dice, 2) + dice.choice(["", "$", "c$"])
        started = time.monotonic()
        tally.tried += 1
        try:
            safe = SafePattern(pattern)
            with Deadline(2, "the match"):
                for text in texts:
                    safe.match(text)
                    safe.search(text)
        except (PatternError, PatternTimeoutError, DriftlineError):
            pass
        except Exception as error:
            tally.traceback(f"{pattern}: {error!r}")
        if time.monotonic() - started > PATIENCE:
            tally.hang(pattern)
    return tally


def _pattern(dice: random.Random, depth: int) -> str:
    parts = ["a", "b", "[ab]", "[^b]", ".", "ab", r"\w"]
    if depth:
        parts += [f"({_pattern(dice, depth - 1)})", f"(?:{_pattern(dice, depth - 1)})"]
    repeats = ["", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,40}", "*?"]
    text = "".join(dice.choice(parts) + dice.choice(repeats) for _ in range(dice.randint(1, 5)))
    return f"{text}|{dice.choice(parts)}" if dice.random() < 0.15 else text


def _equal_payloads(dice: random.Random, rounds: int) -> Tally:
    """A value that is not there on one side is never a match, whatever the order of the items."""
    tally = Tally("one changed value under tolerances")
    plan = payloads.compile(SCHEMA, CONFIG, "Order")
    for number in range(rounds):
        new = json.loads(json.dumps(NEW))
        dice.shuffle(new["items"])
        tally.tried += 1
        if not plan.compare(OLD, new).is_match:
            tally.loss(f"{number}: a shuffled array differs")
        new["items"][dice.randrange(12)]["sku"] = "other"
        if plan.compare(OLD, new).is_match:
            tally.loss(f"{number}: a changed key is not seen")
    return tally


def _lines(dice: random.Random, rounds: int) -> Tally:
    tally = Tally("mutated batch lines")
    good = b"".join(json.dumps({"id": n, "old": OLD, "new": OLD}).encode() + b"\n" for n in range(20))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "s.json").write_text(json.dumps(SCHEMA))
        for number in range(max(rounds // 10, 1)):
            damaged = mutate(good, dice)
            (root / "pairs.jsonl").write_bytes(damaged)
            arguments = [
                "payloads",
                "batch",
                str(root / "pairs.jsonl"),
                "--schema",
                str(root / "s.json"),
                "--root",
                "Order",
            ]
            outcome = driftline(tally, [*arguments, "-o", str(root / f"out{number}")], what=f"batch {number}")
            rows = root / f"out{number}" / "reports.jsonl"
            wanted = sum(bool(line.strip()) for line in damaged.split(b"\n"))
            if outcome.code in (0, 1) and len(rows.read_bytes().splitlines()) != wanted:
                tally.loss(f"batch {number}: {wanted} lines, {len(rows.read_bytes().splitlines())} rows")
    return tally


def _captures(dice: random.Random, rounds: int) -> Tally:
    tally = Tally("mutated captures")
    entry = {
        "request": {"method": "GET", "url": "https://x/a?b=1"},
        "response": {"status": 200, "headers": [{"name": "A", "value": "b"}], "content": {"text": "{}"}},
    }
    har = json.dumps({"log": {"entries": [entry] * 5}}).encode()
    message = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    end = "\n🐵🙈🙉\n".encode()
    gor = b"1 a 1\nGET / HTTP/1.1\r\n\r\n" + end + b"2 a 1\n" + message + end + b"3 a 1\n" + message + end
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for name, data, count in (("x.har", har, 2), ("x.gor", gor, 1)):
                path = Path(folder) / name
                path.write_bytes(mutate(data, dice))
                attempt(tally, lambda p=path, c=count: list(capture_pairs([p] * c)), DriftlineError, f"{name} {number}")
    return tally


def _bodies(dice: random.Random, rounds: int) -> Tally:
    from driftline.web._compare import CompareLimits, answer_request

    tally = Tally("mutated HTTP bodies")
    limits = CompareLimits(payload_mb=1, timeout_seconds=2, max_depth=100, compile_seconds=2)
    body = json.dumps({"old_json": OLD, "new_json": OLD, "schema_fragment": SCHEMA, "root": "Order"}).encode()
    for number in range(rounds * 5):
        damaged = mutate(body, dice)
        started = time.monotonic()
        attempt(tally, lambda data=damaged: answer_request(data, limits), DriftlineError, f"body {number}")
        if time.monotonic() - started > PATIENCE:
            tally.hang(f"body {number}")
    return tally
