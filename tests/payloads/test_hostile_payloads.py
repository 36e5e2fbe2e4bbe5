"""Payloads and schemas that want to hurt: depth, size, huge numbers, slow patterns, odd text, many threads."""

import json
import sys
import threading

import pytest

from driftline import payloads
from driftline.errors import PayloadError
from driftline.payloads import compare, error_response


def nested(depth, inner="1"):
    return '{"n":' * depth + inner + "}" * depth


@pytest.mark.parametrize("depth", [101, 1_000, 100_000])
def test_deep_payloads_end_in_max_depth_exceeded(depth):
    with pytest.raises(PayloadError) as caught:
        compare(nested(depth), nested(depth), {})
    response = error_response(caught.value)
    assert response["error"]["code"] == "MAX_DEPTH_EXCEEDED"
    assert response["partial_result"]["is_match"] is None


def test_a_recursive_schema_follows_the_payload_and_no_further():
    schema = {"$ref": "#/$defs/T", "$defs": {"T": {"properties": {"n": {"$ref": "#/$defs/T"}}}}}
    report = compare(nested(90, '"a"'), nested(90, '"b"'), schema)
    assert report.diffs[0].path == "$" + ".n" * 90


def test_raised_max_depth_is_kept():
    report = compare(nested(900), nested(900, "2"), {}, {"max_depth": 900})
    assert [entry.type for entry in report.diffs] == ["VALUE_MISMATCH"]


def test_deep_parsed_values_end_too():
    value: list = []
    for _ in range(50_000):
        value = [value]
    with pytest.raises(PayloadError) as caught:
        compare(value, value, {})
    assert caught.value.code == "MAX_DEPTH_EXCEEDED"


def test_huge_integers_are_exact():
    big = 10**400
    assert compare(f'{{"a": {big}}}', f'{{"a": {big}}}', {}).is_match
    assert not compare(f'{{"a": {big}}}', f'{{"a": {big + 1}}}', {}).is_match
    report = compare(f'{{"a": {big}}}', f'{{"a": {big + 3}}}', {"properties": {"a": {"x-migration-precision": 2}}})
    assert report.diffs[0].message == "Value difference (3) exceeds precision tolerance (2)"
    assert str(big).encode() in report.to_json()


def test_numbers_too_long_to_print_are_refused_not_hung():
    digits = "9" * (sys.get_int_max_str_digits() + 1)
    with pytest.raises(PayloadError) as caught:
        compare(f'{{"a": {digits}}}', "{}", {})
    assert caught.value.code == "VALIDATION_ERROR"


@pytest.mark.parametrize("value", ["1e999999999", "-1e-999999999", "1E400"])
def test_extreme_exponents_are_compared(value):
    schema = {"properties": {"a": {"x-migration-precision": 1, "x-migration-cast": "int"}}}
    assert compare(f'{{"a": {value}}}', f'{{"a": {value}}}', {}).is_match
    assert compare(f'{{"a": {value}}}', f'{{"a": {value}}}', schema).is_match


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"b": {"\\u0061": 1, "a": 1}}]', '{"a:": 1, "a\\u003a": 1}'])
def test_a_name_that_stands_twice_is_refused(text):
    with pytest.raises(PayloadError, match="stands twice in one object"):
        compare(text, "{}", {})
    with pytest.raises(PayloadError, match="stands twice in one object"):
        compare("{}", "{}", f'{{"x-migration-default": {text}}}')


def test_the_same_name_in_two_objects_and_colons_in_text_are_fine():
    text = '{"a": {"a": ":\\u003a"}, "b": [{"a": 1}, {"a": "\\"a\\": 1"}]}'
    assert compare(text, text, {}).is_match


def test_lone_surrogates_survive_into_the_report():
    report = compare('{"\\ud800": "\\udfff"}', "{}", {})
    assert json.loads(report.to_json())["diffs"][0]["old_value"] == "\udfff"


def test_invalid_utf8_is_told_with_its_place():
    with pytest.raises(PayloadError) as caught:
        compare(b'{"a": "\xff"}', b"{}", {})
    assert (caught.value.code, caught.value.details["column"]) == ("VALIDATION_ERROR", 8)


def test_a_slow_pattern_is_tried_once_and_told_once():
    schema = {"items": {"x-migration-pattern": "^(a|aa)+$"}}
    payload = ["a" * 60 + "!"] * 200
    report = compare(payload, payload, schema, {"timeout_seconds": 20})
    assert report.is_match
    assert [entry.type for entry in report.warnings] == ["RULE_ERROR"]


def test_slow_patterns_in_conditions_and_names_end():
    schema = {
        "patternProperties": {"^(a|aa)+$": {"x-migration-strategy": "ignore"}},
        "properties": {"x": {"x-migration-when": "match(@.y, '(a|aa)+')", "x-migration-strategy": "ignore"}},
    }
    payload = {"a" * 60 + "!": 1, "x": 1, "y": "a" * 60 + "!"}
    assert compare(payload, payload, schema, {"timeout_seconds": 20}).is_match


def test_the_timeout_is_cooperative_and_works_in_threads():
    schema = {"type": "array", "x-migration-array-mode": "unordered", "items": {"x-migration-precision": 0.5}}
    old, new = [[float(n) for n in range(200_000)], [n + 0.25 for n in range(200_000)]]
    found: list[str] = []

    def work():
        try:
            compare(old, new, schema, {"timeout_seconds": 0.05})
        except PayloadError as error:
            found.append(error.code)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["TIMEOUT", "TIMEOUT"]


def test_one_plan_serves_many_threads():
    plan = payloads.compile(
        {"properties": {"a": {"x-migration-cast": "int"}, "b": {"items": {"properties": {"c": {}}}}}}
    )
    reports: list[bytes] = []

    def work():
        for _ in range(50):
            reports.append(
                plan.compare({"a": "1", "b": [{"c": 1}]}, {"a": 2, "b": [{"c": 2}]}).to_json(execution=False)
            )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 200
    assert len(set(reports)) == 1


def test_unordered_arrays_without_equal_items_stay_bounded():
    old = [{"id": n, "kind": "a", "v": n} for n in range(3_000)]
    new = [{"id": -n - 1, "kind": "a", "v": n + 10_000} for n in range(3_000)]
    report = compare(old, new, {"x-migration-array-mode": "unordered"}, {"timeout_seconds": 20})
    assert report.summary["mismatches_found"] == 6_000


def test_yaml_that_contains_itself_is_refused():
    with pytest.raises(PayloadError) as caught:
        compare({}, {}, "properties: &p\n  a: {properties: *p}\n")
    assert caught.value.code == "SCHEMA_PARSE_ERROR"


def test_billion_laughs_cost_nothing():
    lines = ["a0: &a0 {type: string}"] + [
        f"a{n}: &a{n} {{properties: {{x: *a{n - 1}, y: *a{n - 1}}}}}" for n in range(1, 25)
    ]
    schema = "\n".join(["definitions:", *(f"  {line}" for line in lines), "$ref: '#/definitions/a24'"])
    assert compare({}, {}, schema).is_match


@pytest.mark.parametrize("schema", ["", "just text", "[1]", "5", b"\xff", "a: [", {"properties": []}, {"allOf": {}}])
def test_malformed_schemas_are_parse_errors(schema):
    with pytest.raises(PayloadError) as caught:
        compare({}, {}, schema)
    assert caught.value.code == "SCHEMA_PARSE_ERROR"
    assert "reason" in caught.value.details


@pytest.mark.parametrize(("level", "expected"), [("DEBUG", True), ("INFO", False), ("ERROR", False)])
def test_log_level_decides_what_is_logged(caplog, level, expected):
    schema = {"properties": {"a": {"x-migration-pattern": "("}}}
    with caplog.at_level("DEBUG", logger="driftline.payloads"):
        compare({"a": 1}, {"a": 1}, schema, {"log_level": level})
    texts = [record.getMessage() for record in caplog.records]
    assert any(text.startswith("compared") for text in texts) is expected
    assert any("x-migration-pattern" in text for text in texts) is (level != "ERROR")
