"""Accepted rules in schemas that people wrote: lines are added, nothing else moves, and the rules hold there alone."""

import json
from typing import NamedTuple

import pytest

from driftline import payloads
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import PayloadError
from driftline.payloads._schema.documents import load_schema
from driftline.payloads._suggest.suggest import suggest
from driftline.payloads._suggest.write import apply_rules


class Rule(NamedTuple):
    place: tuple
    rule: dict


API = """\
openapi: 3.0.3   # as the gateway serves it
paths:
  /orders:
    get:
      responses:
        200:
          content: {application/json: {schema: {$ref: '#/components/schemas/Order'}}}
components:
  schemas:
    Money: # used twice
      type: object
      properties:
        amount: {type: number}
    Address:
      type: object
      properties:
        zip:
          type: string

        # the town
        city: {type: string}
    Order:
      type: object
      properties:
        total: {$ref: '#/components/schemas/Money'}
        tax:
          $ref: '#/components/schemas/Money'
        to: {$ref: '#/components/schemas/Address'}
        pay:
          oneOf:
            - type: object
              properties: {card: {type: string}}
            - $ref: '#/components/schemas/Money'
        lines:
          type: array
          items:
            allOf:
              - type: object
                properties: {sku: {type: string}}
"""
RULES = [
    Rule(("tax", "amount"), {"precision": 0.5}),
    Rule(("to", "zip"), {"cast": "string"}),
    Rule(("pay", "card"), {"trim-whitespace": True}),
    Rule(("lines", None, "sku"), {"alias": "code"}),
    Rule(("lines",), {"array-mode": "keyed", "array-key": "sku"}),
    Rule(("note", "text"), {"enum-map": {"A b": None}}),
    Rule(("anything",), {"empty-string-as-null": True}),
]
OLD = {
    "total": {"amount": 1}, "tax": {"amount": 1}, "to": {"zip": 7}, "pay": {"card": "x "},
    "lines": [{"code": "a"}, {"code": "b"}], "note": {"text": ""},
}  # fmt: skip
NEW = {
    "total": {"amount": 1.4}, "tax": {"amount": 1.4}, "to": {"zip": "7"}, "pay": {"card": "x"},
    "lines": [{"sku": "b"}, {"sku": "a"}], "note": {"text": None},
}  # fmt: skip


def test_rules_hold_at_their_place_alone_and_the_rest_of_the_text_stays():
    edit = apply_rules(API, RULES, "GET /orders")
    report = payloads.compare(OLD, NEW, edit.after, {"strict_schema_validation": False}, "GET /orders")
    assert [entry.path for entry in report.diffs] == ["$.total.amount"]  # the same Money, without a rule
    kept = [line for line in edit.after.splitlines() if line in API.splitlines()]
    changed = [line for line in API.splitlines() if line not in kept]
    assert len(changed) == 3  # what is written in braces gets its rule inside them
    assert "# used twice" in edit.after
    assert edit.diff("api.yaml").startswith("--- api.yaml\n+++ api.yaml\n@@")


@pytest.mark.parametrize("indent", [None, 2])
def test_json_stays_json(indent):
    text = json.dumps({"type": "object", "properties": {"a": {"type": "string"}, "b": {}}}, indent=indent)
    rules = [Rule(("a",), {"cast": "string"}), Rule(("b", "c"), {"precision": 1}), Rule(("d",), {"alias": "e"})]
    after = json.loads(apply_rules(text, rules).after)
    assert after["properties"] == {
        "a": {"type": "string", "x-migration-cast": "string"},
        "b": {"properties": {"c": {"x-migration-precision": 1}}},
        "d": {"x-migration-alias": "e"},
    }


def test_a_schema_begins_with_nothing():
    after = apply_rules("# mine\n", [Rule(("a", None), {"precision": 0.1})]).after
    assert after.startswith("# mine\n")
    assert load_schema(after).content == {"properties": {"a": {"items": {"x-migration-precision": 0.1}}}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("properties:\n  a: &x {type: string}\n  b: *x\n", "YAML anchor"),
        ("properties:\n  a: {x-migration-cast: int}\n", "x-migration-cast stands there already"),
    ],
)
def test_what_has_no_room_is_refused(text, words):
    with pytest.raises(PayloadError, match=words):
        apply_rules(text, [Rule(("a",), {"cast": "string"})])


def test_a_schema_s_rules_count_behind_references_and_roots():
    times = [f"2025-01-01T00:00:{n:02d}" for n in range(40)]
    olds = [{"total": {"amount": n + 1}, "on": f"{time}Z"} for n, time in enumerate(times)]
    news = [{"total": {"amount": n * 100 + 100}, "on": f"{time}+00:00"} for n, time in enumerate(times)]
    pairs = list(zip(olds, news, strict=True))
    before = {one.id for one in suggest(pairs, schema=API, root="Order")}
    assert before == {"$.total.amount:scale", "$.on:datetime-format"}
    edit = apply_rules(API, [one for one in suggest(pairs, schema=API, root="Order") if "scale" in one.rule], "Order")
    assert {one.id for one in suggest(pairs, schema=edit.after, root="Order")} == {"$.on:datetime-format"}


def test_the_command_changes_the_file_and_shows_how(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [{"id": n, "endpoint": "/a", "old": {"zip": n}, "new": {"zip": str(n)}} for n in range(20)]
    lines += [{"id": 100 + n, "endpoint": "/b", "old": {"zip": n}, "new": {"zip": n + 1}} for n in range(20)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "api.yaml").write_text("properties:\n  zip: # of the sender\n    description: digits\n")
    arguments = ["payloads", "suggest", "pairs.jsonl", "--endpoint", "/a", "--apply", "api.yaml"]
    assert run(driftline, arguments) == 0
    out, err = capfd.readouterr()
    assert "+    x-migration-cast: string\n" in out
    assert err == "1 sure, 0 review, 0 finding; 1 accepted\n"
    text = (tmp_path / "api.yaml").read_text()
    assert text == "properties:\n  zip: # of the sender\n    x-migration-cast: string\n    description: digits\n"
    assert run(driftline, arguments) == 0
    assert capfd.readouterr().out == ""
    assert (tmp_path / "api.yaml").read_text() == text
    assert run(driftline, [*arguments, "-o", "x.yaml"]) == 2
