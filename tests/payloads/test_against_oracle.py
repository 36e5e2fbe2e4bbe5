"""The compiled comparison against a plain one: normalise both sides as a whole, then compare without any rule."""

import json
from collections import Counter

from hypothesis import assume, given, settings, strategies as st

from driftline import payloads
from support.payload_strategies import NAMES, PAYLOADS, SCALARS, schemas
from support.plain_scrub import KINDS, scrubbed

SCRUB_RULES = {
    "x-migration-strategy": st.sampled_from(["strict", "ignore"]),
    "x-migration-alias": NAMES,
    "x-migration-order-by": st.sampled_from([["a"], ["-id", "b"], ["a.b"]]),
    "x-migration-allow-null-as-missing": st.booleans(),
    "x-migration-empty-string-as-null": st.booleans(),
    "x-migration-global-ignores": st.sampled_from([["$..a"], ["$.r.b"], ["$.r.*.c"], ["$..id.a"]]),
}
LOOSE = {"strict_schema_validation": False, "max_payload_size_mb": 1}


def plain_compare(old, new, path="$"):
    """All differences of two JSON values, strictly."""
    if KINDS[type(old)] != KINDS[type(new)]:
        yield path, "TYPE_MISMATCH"
    elif isinstance(old, dict):
        for name, value in old.items():
            if name in new:
                yield from plain_compare(value, new[name], path + step(name))
            else:
                yield path + step(name), "MISSING_IN_NEW"
        yield from ((path + step(name), "EXTRA_IN_NEW") for name in new if name not in old)
    elif isinstance(old, list):
        if len(old) != len(new):
            yield path, "ARRAY_LENGTH_MISMATCH"
        for index, (left, right) in enumerate(zip(old, new, strict=False)):
            yield from plain_compare(left, right, f"{path}[{index}]")
    elif old != new:
        yield path, "VALUE_MISMATCH"


def step(name):
    """A member as the paths of reports write it."""
    if name.isidentifier():
        return f".{name}"
    return "['" + name.replace("\\", "\\\\").replace("'", "\\'") + "']"


def check(schema, old, new):
    whole = {"type": "object", "properties": {"r": schema}}
    old, new = {"r": old}, {"r": new}
    try:
        expected = Counter(plain_compare(scrubbed(whole, old, "old"), scrubbed(whole, new, "new")))
    except TypeError:  # containers as sort keys have no order that anybody promises
        assume(False)
    found = payloads.compile(whole, LOOSE).compare(old, new).diffs
    assert Counter((entry.path, entry.type) for entry in found) == expected


@settings(max_examples=100)
@given(schemas(SCRUB_RULES), PAYLOADS, PAYLOADS)
def test_scrubbing_rules(schema, old, new):
    check(schema, old, new)


@settings(max_examples=60)
@given(schemas(SCRUB_RULES | {"x-migration-default": SCALARS}), PAYLOADS, PAYLOADS)
def test_defaults(schema, old, new):
    # For any other name the default only shows beside a partner, which one side alone cannot know.
    assume('"additionalProperties": {' not in json.dumps(schema))
    check(schema, old, new)


@settings(max_examples=60)
@given(
    schemas(SCRUB_RULES | {"x-migration-enum-map": st.sampled_from([{"A": "a", "1": "x"}, {"true": 1}])}),
    PAYLOADS,
    PAYLOADS,
)
def test_enum_maps(schema, old, new):
    check(schema, old, new)


@settings(max_examples=60)
@given(schemas(SCRUB_RULES), PAYLOADS)
def test_a_payload_and_itself(schema, payload):
    check(schema, payload, payload)
