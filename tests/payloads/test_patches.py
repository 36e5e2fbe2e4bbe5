"""`compare --format patch`: the JSON Patch, applied by the library jsonpatch and by an applier written from the RFC."""

import copy
import json
from collections import Counter

import jsonpatch
import pytest
from hypothesis import HealthCheck, given, settings

from driftline import payloads
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import PayloadError
from driftline.payloads._rules.extensions import EXTENSIONS
from support.json_patch import PatchError, apply_patch as applied_by_the_rfc, same_value
from support.made_payloads import ROWS, RULES, Maker
from support.payload_strategies import PAYLOADS, SYMMETRIC_RULES, schemas

QUICK = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


def patch_of(old, new, schema=None, **options):
    plan = payloads.compile(schema or {}, **options)
    return json.loads(payloads.to_json_bytes(plan.patch(json.dumps(old), json.dumps(new))))


def apply_patch(document, patch):
    """The patched document, by two appliers that must agree: an outside library's and that of the RFC."""
    expected = applied_by_the_rfc(document, patch)
    assert same_value(jsonpatch.apply_patch(document, json.loads(json.dumps(patch))), expected)
    return expected


# The judge itself, by the examples of RFC 6902, appendix A.
@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
        ({"foo": ["a", "b", "c"]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": ["b", "c", "a"]}),
        ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "qux"}], {"baz": "qux"}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["x"]}], {"foo": ["bar", ["x"]]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"foo": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
    ],
)
def test_the_judge_follows_the_rfc(document, patch, expected):
    assert apply_patch(document, patch) == expected


@pytest.mark.parametrize(
    ("document", "step"),
    [
        ({"foo": "bar"}, {"op": "add", "path": "/baz/bat", "value": "qux"}),
        ({"baz": "qux"}, {"op": "test", "path": "/baz", "value": "bar"}),
        ({"/": 9, "~1": 10}, {"op": "test", "path": "/~01", "value": "10"}),
        ({"foo": [1]}, {"op": "add", "path": "/foo/2", "value": 1}),
        ({"foo": [1]}, {"op": "remove", "path": "/foo/01"}),
        ({"foo": 1}, {"op": "replace", "path": "/bar", "value": 1}),
        ({"foo": 1}, {"op": "spam", "path": "/foo", "value": 1}),
    ],
)
def test_the_judge_refuses_what_the_rfc_refuses(document, step):
    with pytest.raises(PatchError):
        applied_by_the_rfc(document, [step])


# The patches.
@QUICK
@given(PAYLOADS, PAYLOADS)
def test_without_rules_old_becomes_new(old, new):
    assert same_value(apply_patch(old, patch_of(old, new)), new)


@QUICK
@given(PAYLOADS, PAYLOADS, schemas(SYMMETRIC_RULES))
def test_rules_that_new_keeps_always_have_a_patch(old, new, schema):
    plan = payloads.compile(schema, {"strict_schema_validation": False})
    patch = plan.patch(json.dumps(old), json.dumps(new))
    assert plan.compare(json.dumps(apply_patch(old, patch)), json.dumps(new)).is_match
    assert bool(patch) == (not plan.compare(json.dumps(old), json.dumps(new)).is_match)


def test_every_rule_is_tried():
    rules = {name.removeprefix("x-migration-") for name in EXTENSIONS}
    assert rules - RULES.keys() == {"headers"} & rules


@pytest.mark.parametrize("seed", range(2))
def test_under_any_rules_the_patched_document_matches(seed):
    make, seen = Maker(seed), Counter()
    for _ in range(150):
        old = make.value(4)
        new, schema = make.mutation(copy.deepcopy(old)), make.schema(2)
        plan = payloads.compile(schema)
        before, after = json.dumps(old), json.dumps(new)
        differs = not plan.compare(before, after).is_match
        try:
            patch = json.loads(payloads.to_json_bytes(plan.patch(before, after)))
        except PayloadError:
            # Refused only where New does not even match itself.
            assert differs
            assert not plan.compare(after, after).is_match
            seen["refused"] += 1
            continue
        report = plan.compare(json.dumps(apply_patch(old, patch)), after)
        assert report.is_match, (schema, old, new, patch, report)
        assert bool(patch) == differs
        seen["patched" if patch else "equal"] += 1
    assert seen["patched"] > 20
    assert seen["equal"] > 20


def test_what_rules_count_as_equal_is_left_alone():
    schema = {
        "properties": {
            "total": {"x-migration-precision": 0.01},
            "at": {"x-migration-strategy": "ignore"},
            "qty": {"x-migration-alias": "quantity"},
        }
    }
    old = {"total": 1.00, "at": 1, "quantity": 2, "note": "a"}
    new = {"total": 1.01, "at": 2, "qty": 3, "note": "b"}
    assert patch_of(old, new, schema) == [
        {"op": "replace", "path": "/quantity", "value": 3},
        {"op": "replace", "path": "/note", "value": "b"},
    ]


def test_items_are_those_that_were_paired():
    old = {"rows": [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 3}]}
    new = {"rows": [{"id": 3, "n": 30}, {"id": 4, "n": 4}, {"id": 1, "n": 1}]}
    schema = {"properties": {"rows": {f"x-migration-{name}": value for name, value in ROWS.items()}}}
    assert patch_of(old, new, schema) == [
        {"op": "replace", "path": "/rows/2/n", "value": 30},
        {"op": "add", "path": "/rows/-", "value": {"id": 4, "n": 4}},
        {"op": "remove", "path": "/rows/1"},
    ]


@pytest.mark.parametrize(
    ("rule", "old", "new", "expected"),
    [
        ({"scale": 100}, 1.5, 175, 1.75),
        ({"enum-map": {"A": "a", "a": "b"}}, "x", "a", "A"),
        ({"datetime-format": {"old": "epoch", "new": "ISO8601"}}, 0, "1970-01-02T00:00:00Z", 86400),
        ({"datetime-format": {"old": "epoch-ms", "new": "ISO8601"}}, 0, "1970-01-01T00:00:01.5Z", 1500),
        ({"datetime-format": {"old": "ISO8601", "new": "epoch"}}, "2025-02-02T10:30:00Z", 60, "1970-01-01T00:01:00Z"),
    ],
)
def test_values_are_written_as_old_writes_them(rule, old, new, expected):
    schema = {"properties": {"v": {f"x-migration-{name}": value for name, value in rule.items()}}}
    assert patch_of({"v": old}, {"v": new}, schema) == [{"op": "replace", "path": "/v", "value": expected}]


def test_an_envelope_is_part_of_the_path():
    flags = payloads.path_flags(("$.data", None))
    assert patch_of({"data": {"a": 1}}, {"a": 2}, flags=flags) == [{"op": "replace", "path": "/data/a", "value": 2}]
    with pytest.raises(PayloadError, match="Old has nothing at --old-select"):
        patch_of({"a": 1}, {"a": 2, "data": {}}, flags=payloads.path_flags(("$.data", "$.data")))


def test_numbers_stay_as_they_are_written():
    plan = payloads.compile("{}")
    patch = payloads.to_json_bytes(plan.patch('{"n": 1}', '{"n": 0.12345678901234567891}'))
    assert patch == b'[{"op":"replace","path":"/n","value":0.12345678901234567891}]'


# The command.
@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.json").write_text('{"a": 1, "rows": [1, 2]}')
    (tmp_path / "new.json").write_text('{"a": 2, "rows": [1]}')
    (tmp_path / "rules.yaml").write_text("properties: {a: {x-migration-pattern: '^x'}, rows: {}}")
    return tmp_path


def test_the_command_writes_the_patch(folder, capfd):
    assert run(driftline, ["compare", "old.json", "new.json", "--format", "patch"]) == 1
    out, err = capfd.readouterr()
    assert (json.loads(out), err) == (
        [{"op": "replace", "path": "/a", "value": 2}, {"op": "remove", "path": "/rows/1"}],
        "",
    )
    assert run(driftline, ["compare", "old.json", "old.json", "--format", "patch"]) == 0
    assert capfd.readouterr().out == "[]\n"


def test_a_first_difference_is_not_the_only_one(folder, capfd):
    (folder / "engine.yaml").write_text("fail_fast: true\n")
    assert run(driftline, ["compare", "old.json", "new.json", "--config", "engine.yaml", "--format", "patch"]) == 1
    assert len(json.loads(capfd.readouterr().out)) == 2


def test_no_patch_is_said_in_one_line_and_nothing_is_written(folder, capfd):
    (folder / "old.json").write_text('{"a": "x"}')
    (folder / "new.json").write_text('{"a": "y"}')
    command = ["compare", "old.json", "new.json", "--schema", "rules.yaml", "--format", "patch", "-o", "patch.json"]
    assert run(driftline, command) == 2
    error = capfd.readouterr().err
    assert "no value of Old matches New under the rules of $.a; --ignore '$.a' leaves a place out" in error
    assert not (folder / "patch.json").exists()
    assert run(driftline, [*command, "--ignore", "$.a"]) == 0


def test_a_patch_has_no_masked_values(folder, capfd):
    assert run(driftline, ["compare", "old.json", "new.json", "--format", "patch", "--mask", "$.a"]) == 2
    assert "leave out --mask" in capfd.readouterr().err
