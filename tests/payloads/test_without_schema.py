"""Payloads without a schema: rules of paths, from the command line and from Python; masked values; inferred schemas."""

import json
import re
from pathlib import Path

import pytest

import driftline as dl
from driftline import payloads
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import PayloadError
from driftline.payloads._lint import infer_schema

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "payload-beyond.json").read_text())
CASES = [case for case in VECTORS if case["area"] in ("flags", "mask")]


def call(capfd, folder, old, new, *flags):
    (folder / "old.json").write_text(json.dumps(old))
    (folder / "new.json").write_text(json.dumps(new))
    code = run(driftline, ["compare", str(folder / "old.json"), str(folder / "new.json"), *flags])
    return code, *capfd.readouterr()


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_vectors(case, tmp_path, capfd):
    for format_name in ("json", "text", "junit"):
        code, out, err = call(capfd, tmp_path, case["old"], case["new"], *case["flags"], "--format", format_name)
        assert code == case["expect"].get("exit", 1)
        for secret in case["expect"].get("output_must_not_contain", []):
            assert secret not in out + err
        if "tokens" in case["expect"]:
            assert len(set(re.findall("masked:[0-9a-f]{12}(?![0-9a-f])", out))) == 2


def test_a_report_is_true_where_the_payloads_differ():
    assert not dl.compare({"total": 1}, {"total": 1.0})
    assert dl.compare({"total": 1}, {"total": 2})
    with pytest.raises(PayloadError) as cut_short:
        dl.compare([[1], [[2]]], [[1], [[2]]], config={"max_depth": 2})
    assert payloads.Report.of(cut_short.value.partial_result)


OLD = {"id": 1, "items": [{"sku": "a", "price": 1.0, "at": "2025-01-01T00:00:00Z"}, {"sku": "b", "price": 2.0}]}
NEW = {"id": 2, "items": [{"sku": "b", "price": 2.01}, {"sku": "a", "price": 1.0, "at": "2025-01-01T00:00:03Z"}]}


def test_python_takes_the_same_rules(tmp_path):
    rules = {
        "ignore": ["$.id"],
        "key": {"$.items": "sku"},
        "tolerance": {"$..price": 0.01, "$..at": "5s"},
    }
    assert dl.compare(OLD, NEW, **rules).is_match
    assert not dl.compare(OLD, NEW).is_match
    dl.assert_equivalent(json.dumps(OLD), json.dumps(NEW).encode(), **rules)
    (tmp_path / "old.json").write_text(json.dumps(OLD))
    dl.assert_equivalent(tmp_path / "old.json", NEW, **rules)
    unordered = {**rules, "key": {}, "unordered": ["$.items"]}
    assert dl.compare(OLD, NEW, **unordered).is_match
    with pytest.raises(AssertionError, match=r"\$\.id VALUE_MISMATCH: Values differ: 1 != 2"):
        dl.assert_equivalent(OLD, NEW, key={"$.items": ["sku"]})


def test_flags_win_over_the_schema():
    schema = {"properties": {"a": {"x-migration-precision": 0}, "l": {"x-migration-array-mode": "strict"}}}
    report = dl.compare({"a": 1, "l": [1, 2]}, {"a": 2, "l": [2, 1]}, schema, tolerance={"$.a": 1}, unordered=["$.l"])
    assert report.is_match


@pytest.mark.parametrize("path", ["$.a[1]", "$.*[1]", "$..[1]"])
def test_indexes_in_paths(path):
    report = dl.compare({"a": [1, 1, 1]}, {"a": [2, 2, 2]}, tolerance={path: 1})
    assert [entry.path for entry in report.diffs] == ["$.a[0]", "$.a[2]"]


def test_a_path_that_meets_nothing_is_told():
    report = dl.compare({}, {}, ignore=["$.nope"])
    assert report.is_match
    assert [entry.message for entry in report.warnings] == ["--ignore $.nope met nothing in either payload"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ignore": ["$..["]}, "--ignore $..[: not a JSONPath"),
        ({"unordered": ["$[?@.a]"]}, "only names, *, .. and indexes can be used here"),
        ({"tolerance": {"$.a": "soon"}}, "needs a number or a duration"),
        ({"tolerance": {"$.a": -1}}, "needs a number that is not negative"),
        ({"key": {"$.a": ""}}, "needs PATH=FIELD"),
    ],
)
def test_bad_flags_are_refused(options, words):
    with pytest.raises(PayloadError, match=re.escape(words)):
        dl.compare({}, {}, **options)


def test_reports_are_readable():
    report = dl.compare({"a": 1, "b": "<x>"}, {"a": 2, "b": "y"})
    assert repr(report).splitlines()[0] == "mismatch: 2 differences, 0 warnings"
    assert "&lt;x&gt;" in report._repr_html_()
    assert repr(dl.compare(1, 1)) == "match: 0 differences, 0 warnings"


def test_masks_reach_containers_keys_and_old_names():
    from driftline.payloads._captures import Masker

    schema = {"properties": {"p": {"properties": {"email": {"x-migration-alias": "mail"}}}}}
    plan = payloads.compile(schema)
    report = plan.compare({"p": {"mail": "a@x", "n": 1}, "q": [{"email": "b@x"}]}, {"p": [], "q": []})
    masker = Masker(("$..email",), b"key").with_aliases(plan.renames)
    text = masker.report(report).to_json().decode()
    assert "a@x" not in text
    assert "b@x" not in text
    assert '"n":1' in text
    again = Masker(("$..email",), b"key").token("a@x")
    assert again in text
    assert Masker(("$..email",)).token("a@x") != again


def test_masked_distances_are_not_told():
    from driftline.payloads._captures import Masker

    report = dl.compare({"pay": 100}, {"pay": 150}, tolerance={"$.pay": 1})
    (entry,) = Masker(("$.pay",), b"k").report(report).diffs
    assert "50" not in entry.message
    assert "100" not in json.dumps(entry)


def test_an_inferred_schema_fits_its_samples():
    samples = [{"a": 1, "b": [{"c": None}, {"c": 1.5, "d": True}]}, {"a": "x", "b": []}]
    schema = infer_schema(samples)
    assert schema["properties"]["a"] == {"type": ["integer", "string"]}
    assert schema["required"] == ["a", "b"]
    assert schema["properties"]["b"]["items"]["required"] == ["c"]
    for sample in samples:
        assert dl.compare(sample, sample, schema).is_match


def test_infer_command(tmp_path, capfd):
    (tmp_path / "s.jsonl").write_text('{"a": 1}\n{"a": 2, "b": "x"}\n')
    assert run(driftline, ["payloads", "infer", str(tmp_path / "s.jsonl"), "-o", str(tmp_path / "out.yaml")]) == 0
    assert dl.compare({"a": 1}, {"a": 1}, tmp_path / "out.yaml").is_match
    assert len(dl.compare({"b": 1}, {"b": 1}, tmp_path / "out.yaml").warnings) == 2


@pytest.mark.parametrize("test", ["@.n > 0", "@.n >= 0", "@.n < 2", "@.n > 0 && count(@.*) == 1"])
def test_a_boolean_is_neither_less_nor_greater(test):
    old, new = {"rows": [{"n": True}, {"n": 1}]}, {"rows": [{"n": False}, {"n": 1}]}
    assert not dl.compare(old, new, ignore=[f"$.rows[?{test}]"]).is_match
    rule = {"x-migration-when": test, "x-migration-strategy": "ignore"}
    schema = {"properties": {"rows": {"items": {"properties": {"n": rule}}}}}
    assert not dl.compare(old, new, schema).is_match
