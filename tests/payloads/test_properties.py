"""What holds for every payload: reflexivity, mirroring, paths that select their node, no crash."""

import json
from collections import Counter

from hypothesis import HealthCheck, given, settings, strategies as st
from jsonpath import JSONPathEnvironment

from driftline import payloads
from driftline.errors import PayloadError
from driftline.payloads import compare, error_response
from driftline.payloads._compare.report import Run
from driftline.payloads._compare.sides import materialise
from driftline.payloads._values.limits import Deadline
from driftline.payloads._values.values import MISSING
from support.payload_strategies import ANY_SCHEMA, PAYLOADS, SYMMETRIC_RULES, schemas

RFC_9535 = JSONPathEnvironment(strict=True)
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LOOSE = {"strict_schema_validation": False}
MIRROR = {
    "MISSING_IN_NEW": "EXTRA_IN_NEW",
    "EXTRA_IN_NEW": "MISSING_IN_NEW",
    "ARRAY_ITEM_MISSING": "ARRAY_ITEM_EXTRA",
    "ARRAY_ITEM_EXTRA": "ARRAY_ITEM_MISSING",
}
VALUE_RULES = {name: rule for name, rule in SYMMETRIC_RULES.items() if name != "x-migration-array-mode"}


def outcome(*arguments):
    """The report, or the code of the error response."""
    try:
        return compare(*arguments)
    except PayloadError as error:
        return error_response(error)["error"]["code"]


@QUICK
@given(PAYLOADS, schemas(SYMMETRIC_RULES))
def test_everything_equals_itself(payload, schema):
    report = compare(json.dumps(payload), json.dumps(payload), schema, LOOSE)
    assert report.is_match, report.diffs


@QUICK
@given(PAYLOADS, PAYLOADS, schemas(VALUE_RULES))
def test_swapping_the_sides_mirrors_the_report(old, new, schema):
    there = compare({"r": old}, {"r": new}, {"properties": {"r": schema}}, LOOSE)
    back = compare({"r": new}, {"r": old}, {"properties": {"r": schema}}, LOOSE)
    assert Counter((entry.path, MIRROR.get(entry.type, entry.type)) for entry in there.diffs) == Counter(
        (entry.path, entry.type) for entry in back.diffs
    )
    assert there.summary["total_fields_checked"] == back.summary["total_fields_checked"]
    assert there.summary["fields_ignored"] == back.summary["fields_ignored"]


@QUICK
@given(PAYLOADS, PAYLOADS, ANY_SCHEMA)
def test_every_path_selects_its_node(old, new, schema):
    plan = payloads.compile(schema, LOOSE | {"max_payload_size_mb": 1})
    report = plan.compare({"r": old, "a": 1}, {"r": new, "id": 1})
    views = normalised(plan, {"r": old, "a": 1}, {"r": new, "id": 1})
    if "x-migration-when" in json.dumps(schema):
        views += [{"r": old, "a": 1}, {"r": new, "id": 1}]  # a rule that falls away leaves the raw name
    for entry in [*report.diffs, *report.warnings]:
        query = RFC_9535.compile(entry.path)
        assert any(query.findall(view) for view in views), entry


def normalised(plan, old, new):
    """Both sides as the rules leave them, with default-filled members and raw nulls still to be found."""
    from driftline.payloads._rules.path_rules import prune

    plans, settings = plan._plans, plan._plans.settings
    run = Run(plan.config, plans.root, (old, new), Deadline(60, "the test"))
    run.pruned = tuple(prune(root, settings.located)[0] for root in (old, new)) if settings.located else ({}, {})
    return [materialise(plans.root, root, side, run) for side, root in enumerate((old, new)) if root is not MISSING]


@QUICK
@given(PAYLOADS, PAYLOADS, ANY_SCHEMA, st.booleans(), st.booleans())
def test_random_schemas_and_payloads_never_crash(old, new, schema, fail_fast, trace):
    config = {"fail_fast": fail_fast, "trace_rule_application": trace, "timeout_seconds": 20}
    report = outcome(json.dumps(old), json.dumps(new), json.dumps(schema), config)
    if isinstance(report, str):
        assert report in ("SCHEMA_PARSE_ERROR", "VALIDATION_ERROR")
        return
    assert report.is_match == (not report.diffs)
    assert not fail_fast or len(report.diffs) <= 1
    assert json.loads(report.to_json()) is not None
    again = compare(json.dumps(old), json.dumps(new), json.dumps(schema), config)
    assert again.to_json(execution=False) == report.to_json(execution=False)


SCHEMA_WORDS = st.sampled_from(
    ["type", "properties", "items", "allOf", "oneOf", "$ref", "required", "discriminator", "patternProperties",
     "additionalProperties", "x-migration-strategy", "x-migration-when", "x-migration-global-ignores", "prefixItems"]
)  # fmt: skip
WILD_SCHEMAS = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.sampled_from(["object", "#", "#/a", "#/properties/a", "(", "$.a"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(SCHEMA_WORDS, st.just("a")), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(WILD_SCHEMAS, PAYLOADS)
def test_wild_schemas_are_refused_or_used(schema, payload):
    report = outcome({"a": payload}, {"a": payload}, schema)
    assert not isinstance(report, str) or report == "SCHEMA_PARSE_ERROR"


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_wild_schema_text_is_refused_or_used(text):
    report = outcome({}, {}, text)
    assert not isinstance(report, str) or report == "SCHEMA_PARSE_ERROR"
