"""Limits that hold for every caller: nothing in a schema or payload runs longer than it is allowed to.

Without its limit each of these would not end in the life of the test run.
"""

import json
import sys

import pytest

from driftline import payloads
from driftline.errors import PayloadError
from driftline.payloads import compare
from driftline.payloads._values.patterns import SafePattern, is_linear

SOON = {"timeout_seconds": 1}


def comparing(old, new, schema, config=SOON):
    """The report, or the code of the error."""
    try:
        return compare(old, new, schema, config)
    except PayloadError as error:
        return error.code


@pytest.mark.parametrize(
    ("pattern", "engine", "search_engine"),
    [
        (r"^ORD-[A-Z]{2}-\d{6}$", "re", "re"),
        ("^cus_[A-Za-z0-9]+$", "re", "re"),
        (r"^\d+-\d+$", "re", "re"),
        ("^[^@]+@.*$", "re", "re"),
        ("(?i)^abc$", "re", "re"),
        ("a+b", "re", "regex"),
        ("^(?:a|aa)(?:a|aa)$", "regex", "regex"),
        ("(?x)(a|aa) +$", "regex", "regex"),
        ("(a+)+$", "regex", "regex"),
        ("a?a?aa", "regex", "regex"),
        ("b*b*?c$", "regex", "regex"),
        (r"(a)\1", "regex", "regex"),
        ("(?=a)a", "regex", "regex"),
        ("(?m)^a$", "regex", "regex"),
        ("(?i)a*b*", "regex", "regex"),
        (".*" + "a" * 1001, "regex", "regex"),
    ],
)
def test_only_patterns_that_are_linear_by_their_shape_run_in_re(pattern, engine, search_engine):
    assert (SafePattern(pattern).engine, SafePattern(pattern).search_engine) == (engine, search_engine)
    assert is_linear(pattern, search=True) == (search_engine == "re")


SLOW = [
    ("^" + "(?:a|aa)" * 34 + "$", "a" * 50 + "b"),
    ("(?x)(a|aa) +$", "a" * 60 + "b"),
    ("(a+)+$", "a" * 60 + "b"),
]


@pytest.mark.parametrize(("pattern", "text"), SLOW)
def test_a_slow_pattern_becomes_a_warning(pattern, text):
    report = comparing({"a": text}, {"a": text}, {"properties": {"a": {"x-migration-pattern": pattern}}}, {})
    assert [entry.type for entry in report.warnings] == ["RULE_ERROR"] or not report.is_match


def test_a_slow_pattern_of_names_is_given_up_once_and_told():
    schema = {"patternProperties": {"(x|xx)+[yz]$": {"x-migration-strategy": "ignore"}}}
    payload = {"x" * 60 + str(number): number for number in range(40)}
    report = comparing(payload, payload, schema, {})
    assert report.is_match
    assert [entry.message for entry in report.warnings] == [
        "The pattern (x|xx)+[yz]$ took too long; what it was tried on counts as no match"
    ]


def test_long_names_and_patterns_in_ignored_paths_end():
    name = "a" * 200_000
    assert comparing({name: 1}, {name: 1}, {"patternProperties": {"a+b": {}}}, {}).is_match
    ignores = ["$[?match(@.v, '(a|aa)+')]", "$[?search(@.v, '(x+x+)+y')]"]
    payload = [{"v": "a" * 60 + "b"}, {"v": "x" * 60}] * 20
    report = comparing(payload, payload, {"x-migration-global-ignores": ignores})
    assert report == "TIMEOUT" or report.is_match


def tree(depth):
    value = {"v": 1}
    for _ in range(depth):
        value = {"l": value, "r": {"v": 1}}
    return value


def test_a_recursive_choice_is_decided_once_for_each_value():
    node = {
        "oneOf": [
            {"required": ["x"], "properties": {"l": {"$ref": "#/$defs/T"}, "r": {"$ref": "#/$defs/T"}}},
            {"required": ["y"], "properties": {"l": {"$ref": "#/$defs/T"}, "r": {"$ref": "#/$defs/T"}}},
            {"properties": {"l": {"$ref": "#/$defs/T"}, "r": {"$ref": "#/$defs/T"}}},
        ]
    }
    schema = {"$ref": "#/$defs/T", "$defs": {"T": node}}
    assert comparing(tree(60), tree(60), schema, {}).is_match


def test_choices_side_by_side_are_cut_off():
    choice = {"oneOf": [{"required": ["x"]}, {"required": ["y"]}]}
    parts = [{"oneOf": [{"required": [f"x{number}"]}, {"required": [f"y{number}"]}]} for number in range(40)]
    schema = {"anyOf": [{"allOf": [*parts, {"required": ["nowhere"]}]}, choice, {}]}
    assert comparing({}, {}, schema) in ("TIMEOUT", "SCHEMA_PARSE_ERROR")


def test_descending_paths_do_not_multiply():
    deep = 1
    for _ in range(60):
        deep = {"a": deep, "b": {"zz": 1}}
    report = comparing(deep, deep, {"x-migration-global-ignores": ["$..*..*..*..[?@.zz==1]"]}, {})
    assert report.is_match
    assert report.summary["fields_ignored"] > 0


def test_queries_inside_filters_look_at_the_clock():
    deep = 1
    for _ in range(60):
        deep = {"a": deep, "b": [1, 2]}
    ignores = ["$..[?count(@..*..*..*..*) > 3]"]
    assert comparing(deep, deep, {"x-migration-global-ignores": ignores}) == "TIMEOUT"


def test_doubling_parts_are_refused_at_compile_time():
    defs = {f"A{n}": {"allOf": [{"$ref": f"#/$defs/A{n + 1}"}, {"$ref": f"#/$defs/A{n + 1}"}]} for n in range(25)}
    schema = {"$ref": "#/$defs/A0", "$defs": {**defs, "A25": {"type": "object"}}}
    with pytest.raises(PayloadError, match="add up to more than 10,000 schemas in one place") as caught:
        payloads.compile(schema)
    assert caught.value.code == "SCHEMA_PARSE_ERROR"


def bomb(key):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 9)]
    return "\n".join([*lines, f"properties: {{p: {{{key}: *a8}}}}"])


@pytest.mark.parametrize("key", ["x-migration-default", "x-migration-enum-map", "x-migration-nonsense"])
def test_yaml_aliases_that_multiply_are_refused(key):
    with pytest.raises(PayloadError, match="holds more than 10,000 values"):
        payloads.compile(bomb(key))


def test_yaml_aliases_elsewhere_do_no_harm():
    assert compare({"p": 1}, {"p": 1}, bomb("enum")).is_match


def test_compiling_has_a_time_limit_of_its_own():
    text = "\n".join(f"p{number}: {{a: [1, 2, 3]}}" for number in range(20_000))
    with pytest.raises(PayloadError, match="compiling the schema took longer than") as caught:
        payloads.compile(text, seconds=0.05)
    assert caught.value.code == "TIMEOUT"


def test_a_condition_asks_for_the_root_once():
    schema = {
        "properties": {
            "l": {"items": {"properties": {"v": {"x-migration-when": "@.v == 1 || count($.l[*]) > 3",
                                                 "x-migration-strategy": "ignore"}}}}
        }
    }  # fmt: skip
    payload = {"l": [{"v": number} for number in range(3000)]}
    assert compare(payload, payload, schema, {"timeout_seconds": 20}).is_match


def test_compiling_and_comparing_leave_the_recursion_limit_alone():
    before = sys.getrecursionlimit()
    deep = '{"n":' * 900 + "1" + "}" * 900
    assert compare(deep, deep, {}, {"max_depth": 900}).is_match
    assert sys.getrecursionlimit() == before


def test_integers_too_long_to_read_are_told_in_our_own_words():
    for text in ['{"a": ' + "9" * 5000 + "}", "[-" + "9" * 5000 + "]"]:
        with pytest.raises(PayloadError, match="an integer of 5,000 digits is longer than can be read"):
            compare(text, "{}", {})


def test_a_payload_that_is_a_string_is_not_parsed_again():
    schema = {"x-migration-global-ignores": ["$[0:2]", "$[?@.a == $.b]"]}
    assert compare('"[1, {"', '"[1, {"', schema).is_match


@pytest.mark.parametrize(
    ("extension", "value", "effect"),
    [
        ("allow-null-as-missing", "yes", "it is not used"),
        ("array-key", 5, "the array is compared strictly"),
        ("ignore-extra-items", 1, "the array is compared without it"),
        ("precision", -1, "the field is compared strictly"),
    ],
)
def test_a_rule_that_cannot_be_used_says_what_happens_instead(extension, value, effect):
    (warning,) = compare([], [], {"x-migration-" + extension: value}).warnings
    assert warning.message.endswith(effect)


def test_entries_below_a_default_say_that_the_side_is_missing():
    schema = {"properties": {"o": {"x-migration-default": {"a": {"b": 1}, "c": [1]}}}}
    report = compare({}, {"o": {"a": {"b": 2}, "c": [2]}}, schema)
    assert [(entry.path, entry.old_value, entry.new_value) for entry in report.diffs] == [
        ("$.o.a.b", None, 2),
        ("$.o.c[0]", None, 2),
    ]
    note = '(Old is missing, x-migration-default: {"a":{"b":1},"c":[1]})'
    assert all(entry.message.endswith(note) and "rule_applied" in entry for entry in report.diffs)


def test_plans_are_made_of_the_members_that_payloads_have():
    """A schema of many members of which one is used: a plan takes at most ten bytes for each byte of text."""
    import gc
    import tracemalloc

    from driftline import payloads

    def grown(work):
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        made = work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before, made

    text = json.dumps({"type": "object", "properties": {f"m{n}": {"type": "string"} for n in range(8_000)}})
    payloads.compare({}, {})
    tracemalloc.start()
    try:
        parsed, _content = grown(lambda: payloads.load_schema(text))
        whole, plan = grown(lambda: payloads.compile(text))
        used, report = grown(lambda: plan.compare({"m7": "x"}, {"m7": "y"}))
    finally:
        tracemalloc.stop()
    assert not report.is_match
    assert whole + used - parsed <= 10 * len(text)
