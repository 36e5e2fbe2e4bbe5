"""Generated functions and the loop mean the same: reports are equal to the byte whichever of them compares."""

import copy
import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from driftline.errors import PayloadError
from driftline.payloads import error_response
from driftline.payloads._compare import arrays, compare as comparison, walk
from driftline.payloads._rules.extensions import EXTENSIONS
from support.made_payloads import Maker
from support.payload_strategies import ANY_SCHEMA, NAMES, PAYLOADS, SCALARS

pytestmark = pytest.mark.exhaustive

# Two objects of the same members, so that most of them match and some do not.
OBJECTS = st.dictionaries(NAMES, PAYLOADS, max_size=6)
CONFIG = st.fixed_dictionaries(
    {},
    optional={
        "strict_schema_validation": st.booleans(),
        "trace_rule_application": st.booleans(),
        "max_depth": st.integers(0, 6),
        "collect_statistics": st.booleans(),
        "fail_fast": st.booleans(),
    },
)


def reports(old, new, schema, config, threshold, monkeypatch):
    """The report of a fresh plan, and the one it gives once everything is compiled."""
    monkeypatch.setattr(walk, "OBJECTS_BEFORE_CODE", threshold)
    monkeypatch.setattr(arrays, "QUICK_FROM_ITEMS", threshold)
    comparison._plans.clear()
    try:
        plan = comparison.compile(json.dumps(schema), config)
    except PayloadError as error:
        return [error.code] * 2
    return [answer(plan, old, new) for _ in range(2)]


def answer(plan, old, new):
    try:
        return plan.compare(old, new).to_json(execution=False)
    except PayloadError as error:
        partial = error_response(error)["partial_result"]
        return error.code, {name: value for name, value in (partial or {}).items() if name != "execution"}


@st.composite
def pairs(draw):
    """An object and a copy in which some members are changed, removed or added."""
    old = draw(OBJECTS)
    new = {name: draw(st.one_of(st.just(value), st.just(value), SCALARS)) for name, value in old.items()}
    new |= draw(st.dictionaries(NAMES, SCALARS, max_size=1))
    names = draw(st.permutations(sorted(new)))
    return old, {name: new[name] for name in names[: draw(st.integers(max(len(names) - 1, 0), len(names)))]}


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs(), st.dictionaries(NAMES, ANY_SCHEMA, max_size=6), ANY_SCHEMA, st.booleans(), CONFIG)
def test_members(pair, members, other, in_array, config):
    own = {name: value for name, value in other.items() if name != "type"}
    schema = {**own, "properties": {**members, **other.get("properties", {})}}
    old, new = pair
    if in_array:
        schema, old, new = {"items": schema}, [old, old], [new, old]
    check(old, new, schema, config)


ITEMS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.sampled_from([1, 1.0, True, 2, 3, "1", "a", "", None, [1]]),
            "name": st.sampled_from(["x", "X", "y ", "", None]),
            "n": st.sampled_from([1, 1.004, 1.02, 5, None]),
            "other": st.sampled_from([1, "", {"x": 1}]),
        },
    ),
    max_size=7,
)
ARRAY_RULES = st.fixed_dictionaries(
    {"x-migration-array-mode": st.sampled_from(["unordered", "unordered", "strict", "keyed"])},
    optional={
        "x-migration-array-key": st.just("id"),
        "x-migration-array-subset": st.booleans(),
        "x-migration-ignore-extra-items": st.booleans(),
        "x-migration-ignore-missing-items": st.booleans(),
        "x-migration-allow-null-as-missing": st.booleans(),
        "x-migration-empty-string-as-null": st.booleans(),
        "x-migration-duplicate-handling": st.sampled_from(["first", "last", "merge"]),
    },
)
ITEM_MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from([{}, {"type": ["integer", "string"]}, {"x-migration-default": 1}]),
        "name": st.sampled_from([{}, {"type": "string", "x-migration-strategy": "lenient"}]),
        "n": st.sampled_from([{}, {"x-migration-precision": 0.01}, {"x-migration-strategy": "ignore"}]),
    },
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(ITEMS, ITEMS, st.booleans(), ARRAY_RULES, ITEM_MEMBERS, CONFIG)
def test_items(old, new, are_alike, rules, members, config):
    if are_alike:
        new = [*reversed(old), *new[:2]]
    check(old, new, {**rules, "type": "array", "items": {"properties": members}}, config)


def check(old, new, schema, config):
    with pytest.MonkeyPatch.context() as monkeypatch:
        looped = reports(old, new, schema, config, 10**9, monkeypatch)
        generated = reports(old, new, schema, config, 0, monkeypatch)
    assert looped[0] == looped[1] == generated[0] == generated[1]


LEAF_RULES = [
    {},
    {"type": "string"},
    {"type": "integer"},
    {"type": "number", "x-migration-precision": 0.01},
    {"type": ["number", "null"], "x-migration-precision": 0},
    {"type": "boolean"},
    {"type": "string", "x-migration-strategy": "lenient"},
    {"x-migration-case-insensitive": True},
    {"x-migration-strategy": "exists"},
    {"x-migration-strategy": "ignore"},
    {"x-migration-cast": "int"},
    {"x-migration-cast": "string", "x-migration-pattern": "^1"},
    {"x-migration-pattern": "^[a-z]"},
    {"x-migration-pattern": "^1", "x-migration-enum-map": {"a": "1"}},
    {"x-migration-enum-map": {"a": "b", "1": "x"}},
    {"x-migration-datetime-tolerance": "5s"},
    {"x-migration-scale": 10, "type": "number"},
    {"x-migration-scale": 0.1, "x-migration-precision": 0.5, "x-migration-cast": "float"},
    {"x-migration-datetime-format": "epoch", "x-migration-datetime-tolerance": "1s"},
    {"x-migration-datetime-format": {"old": "epoch", "new": "ISO8601"}},
    {"x-migration-datetime-format": "%Y", "x-migration-trim-whitespace": True},
    {"x-migration-datetime-format": {"old": "%Y", "new": "%y%m"}},
    {"x-migration-default": 1, "type": "integer"},
    {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
]
VALUES = [
    None, True, False, 0, 1, 1.0, 1.01, 1.011, 1e15, 2**60, "", "a", "A", " a ", "b", "1", "x", "2025",
    "2025-01-01T00:00:00Z", "2025-01-01T00:00:03Z", "2025-01-01T00:00:03", [], {}, {"x": "a"}, {"x": 1}, {"y": 1},
]  # fmt: skip
FLAGS = [
    {},
    {"x-migration-allow-null-as-missing": True},
    {"x-migration-empty-string-as-null": True},
    {"x-migration-allow-null-as-missing": True, "x-migration-empty-string-as-null": True},
]


@pytest.mark.parametrize("flags", FLAGS, ids=["plain", "null", "empty", "both"])
@pytest.mark.parametrize("rule", LEAF_RULES, ids=[json.dumps(rule) for rule in LEAF_RULES])
def test_every_rule_on_every_pair_of_values(rule, flags):
    old = [{"v": left, "k": "same"} for left in VALUES for _ in VALUES]
    new = [{"k": "same", "v": right} for _ in VALUES for right in VALUES]
    for required in ([], ["v"]):
        item = {"properties": {"v": rule, "k": {"type": "string"}}, "required": required}
        check(old, new, {**flags, "items": item}, {})
        nested = [[{"inner": one} for one in side] for side in (old, new)]
        check(*nested, {**flags, "items": {"properties": {"inner": item}}}, {})


def test_every_rule_of_a_value_is_among_them():
    of_values = {name for name, kind in EXTENSIONS.items() if kind.scope in ("field", "string", "number")}
    assert of_values - {name for rule in LEAF_RULES for name in rule} == {"x-migration-alias"}, "it is of members"


@pytest.mark.parametrize("seed", range(3))
def test_short_cuts_change_no_byte_under_any_rules(seed, monkeypatch):
    """The walk without any short cut is the slow reference, over random documents, mutations and every kind of rule."""
    monkeypatch.setattr(walk, "OBJECTS_BEFORE_CODE", 0)
    monkeypatch.setattr(arrays, "QUICK_FROM_ITEMS", 0)
    make, verdicts = Maker(seed), Counter()
    for _ in range(200):
        old = make.value(4)
        new, schema = make.mutation(copy.deepcopy(old)), make.schema(2)
        comparison._plans.clear()
        plan = comparison.compile(json.dumps(schema))
        old, new = json.dumps(old), json.dumps(new)
        slow = answer(plan.observed(), old, new)
        assert answer(plan, old, new) == slow == answer(plan, old, new), (schema, old, new)
        verdicts[b'"is_match":true' in slow] += 1
    assert min(verdicts[True], verdicts[False]) > 30


def test_names_of_the_schema_are_never_code():
    odd = ["a'); raise SystemExit  #", '"""', "{name}", "c1", "old", "\n    return", "\\", "plan"]
    schema = {"properties": {name: {"type": "string"} for name in odd}}
    check(dict.fromkeys(odd, "x"), dict.fromkeys(odd, "x"), schema, {})
    check(dict.fromkeys(odd, "x"), dict.fromkeys(odd, "y"), schema, {})
