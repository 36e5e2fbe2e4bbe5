"""The commonest migrations, one rule each: new members, another naming convention, an envelope."""

from __future__ import annotations

import json

import pytest

from driftline import payloads
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import PayloadError
from driftline.payloads import compare

ALLOW = {"x-migration-allow-new-members": True}


def found(report):
    return [(entry.path, entry.type) for entry in report.diffs]


def allowed(report):
    return [entry.path for entry in report.warnings if entry.type == "EXTRA_IN_NEW"]


def test_new_members_are_allowed_and_counted():
    report = compare({"a": 1, "o": {"x": 1}}, {"a": 1, "b": 2, "o": {"x": 1, "y": [1, 2]}}, ALLOW)
    assert report.is_match
    assert allowed(report) == ["$.o.y", "$.b"]
    assert report.summary["warnings_count"] == 2
    assert report.coverage["unmatched_in_new_count"] == 2


def test_a_lost_member_stays_a_difference():
    report = compare({"a": 1, "s": "x"}, {"a": 1, "b": 2}, ALLOW)
    assert found(report) == [("$.s", "MISSING_IN_NEW")]
    assert found(compare({"a": 1}, {"a": 2, "b": 2}, ALLOW)) == [("$.a", "VALUE_MISMATCH")]


def test_new_members_are_allowed_by_path_and_below():
    schema = {"properties": {"o": {**ALLOW, "properties": {"strict": {"x-migration-allow-new-members": False}}}}}
    old = {"o": {"p": {}, "strict": {}}}
    new = {"n": 1, "o": {"p": {"n": 1}, "strict": {"n": 1}}}
    assert found(compare(old, new, schema)) == [("$.o.strict.n", "EXTRA_IN_NEW"), ("$.n", "EXTRA_IN_NEW")]
    assert found(compare(old, new, allow_new=["$.o"])) == [("$.n", "EXTRA_IN_NEW")]
    assert compare(old, new, allow_new=["$"]).is_match


MODES = {
    "strict": {},
    "unordered": {"x-migration-array-mode": "unordered"},
    "keyed": {"x-migration-array-mode": "keyed", "x-migration-array-key": "id"},
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("rule", [{}, {"x-migration-precision": 0.5}], ids=["equal", "tolerant"])
def test_items_with_new_members_find_their_partners(mode, rule):
    schema = {**ALLOW, **mode, "items": {"properties": {"n": rule}}}
    old = [{"id": n, "n": 10 * n, "in": {"x": n}} for n in range(20)]
    new = [{"id": n, "n": 10 * n, "in": {"x": n, "y": 1}, "p": n, "q": 1, "r": 1, "s": 1} for n in range(20)]
    if mode:
        new.reverse()
    assert compare(old, new, schema).is_match
    del new[7]["id"]
    assert not compare(old, new, schema).is_match


SNAKE = {"x-migration-naming": "snake-to-camel"}


def test_a_naming_convention_holds_for_a_subtree():
    old = {"first_name": "A", "home_address": {"zip_code": 1}, "rows": [{"unit_price": 1, "id": 1}], "_id": 1}
    new = {"firstName": "A", "homeAddress": {"zipCode": 1}, "rows": [{"unitPrice": 1, "id": 1}], "_id": 1}
    assert compare(old, new, SNAKE).is_match
    assert compare(new, old, {"x-migration-naming": "camel-to-snake"}).is_match
    below = {"properties": {"rows": SNAKE}}
    assert compare({"rows": old["rows"]}, {"rows": new["rows"]}, below).is_match
    assert not compare(old, new, below).is_match
    new["homeAddress"]["zipCode"] = 2
    assert found(compare(old, new, SNAKE)) == [("$.homeAddress.zipCode", "VALUE_MISMATCH")]


@pytest.mark.parametrize("mode", ["unordered", "keyed"])
def test_a_naming_convention_in_arrays(mode):
    schema = {
        **SNAKE,
        "x-migration-array-mode": mode,
        "x-migration-array-key": "rowId",
        "items": {
            "properties": {"unitPrice": {"x-migration-precision": 0.5}, "rowKind": {"x-migration-alias": "kind"}}
        },
    }
    old = [{"row_id": n, "unit_price": n, "kind": "x", "more_words": n} for n in range(30)]
    new = [{"rowId": n, "unitPrice": n + 0.4, "rowKind": "x", "moreWords": n} for n in reversed(range(30))]
    assert compare(old, new, schema).is_match
    new[3]["moreWords"] = 99
    (path, kind), *rest = found(compare(old, new, schema))
    assert (kind, path.endswith(".moreWords"), rest) == ("VALUE_MISMATCH", True, [])


def test_both_spellings_in_old_are_a_warning():
    report = compare({"first_name": "A", "firstName": "B"}, {"firstName": "B"}, SNAKE)
    assert report.is_match
    assert "Old has both first_name and firstName" in report.warnings[0].message


def test_masks_cover_both_spellings(tmp_path, capfd):
    (tmp_path / "old.json").write_text('{"p": {"e_mail": "a@x"}}')
    (tmp_path / "new.json").write_text("{}")
    (tmp_path / "s.yaml").write_text("x-migration-naming: snake-to-camel\n")
    files = [str(tmp_path / name) for name in ("old.json", "new.json")]
    assert run(driftline, ["compare", *files, "--schema", str(tmp_path / "s.yaml"), "--mask", "$..eMail"]) == 1
    assert "a@x" not in capfd.readouterr().out


def test_an_envelope_is_left_out():
    old, new = {"n": 1}, {"data": {"n": 1}, "meta": {"took": 3}}
    assert compare(old, new, select=(None, "$.data")).is_match
    assert compare({"r": {"v": old}}, new, select=("$.r.v", "$.data")).is_match
    assert found(compare({"n": 2}, new, select=(None, "$.data"))) == [("$.n", "VALUE_MISMATCH")]
    assert found(compare({"a": old}, {"b": 1}, select=("$.a", "$.data"))) == [("$", "MISSING_IN_NEW")]
    assert compare({"error": 1}, {"error": 1}, select=("$.a", "$.data")).is_match
    for bad in ("$..a", "$[0]", "nope", "$.*"):
        with pytest.raises(PayloadError):
            compare({}, {}, select=(bad, None))


def test_flags_of_commands(tmp_path):
    answer = {"status": 200, "headers": {}}
    pairs = [
        {"id": 1, "old": {**answer, "body": {"a_b": 1}}, "new": {**answer, "body": {"data": {"aB": 1, "c": 2}}}},
        {"id": 2, "old": {**answer, "body": {"a_b": 1}}, "new": {**answer, "body": {"data": {"c": 2}}}},
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (tmp_path / "s.yaml").write_text("x-migration-naming: snake-to-camel\n")
    call = ["payloads", "batch", str(tmp_path / "pairs.jsonl"), "--records", "full", "-o", str(tmp_path / "out")]
    call += ["--schema", str(tmp_path / "s.yaml"), "--new-select", "$.data", "--allow-new", "$.body"]
    assert run(driftline, call) == 1
    rows = [json.loads(line)["report"]["diffs"] for line in (tmp_path / "out/reports.jsonl").read_text().splitlines()]
    assert [[(entry["path"], entry["type"]) for entry in row] for row in rows] == [
        [],
        [("$.body.aB", "MISSING_IN_NEW")],
    ]


def test_values_of_the_rules_are_checked():
    warnings = payloads.compare({}, {}, {"x-migration-naming": "kebab"}).warnings
    assert "must be one of snake-to-camel" in warnings[0].message


def test_a_path_without_its_start_gets_a_hint():
    with pytest.raises(PayloadError, match=r"--ignore b: not a JSONPath \(a path begins with \$, such as"):
        compare({}, {}, ignore=["b"])


def test_one_text_in_two_formats_is_two_dates():
    formats = {"old": "%d/%m/%Y", "new": "%m/%d/%Y"}
    schema = {"properties": {"on": {"x-migration-datetime-format": formats}}}
    assert compare({"on": "01/02/2025"}, {"on": "02/01/2025"}, schema).is_match
    assert found(compare({"on": "01/02/2025"}, {"on": "01/02/2025"}, schema)) == [("$.on", "VALUE_MISMATCH")]
    assert compare({"on": "02/02/2025"}, {"on": "02/02/2025"}, schema).is_match
    rows = {"items": {**schema, "type": "object"}}
    same = [{"on": "01/02/2025"}] * 40  # enough for generated code
    assert len(compare(same, same, rows)) == 40


@pytest.mark.parametrize("new", [{"aB": 1}, {"aB": 2}])
def test_names_that_a_convention_makes_one_are_never_lost(new):
    old = {"a_b": 1, "a__b": 2}
    report = compare(old, new, {"x-migration-naming": "snake-to-camel"})
    assert ("$.a__b", "MISSING_IN_NEW") in found(report)
    assert (("$.aB", "VALUE_MISMATCH") in found(report)) == (new["aB"] == 2)
    rows = {"x-migration-naming": "snake-to-camel", "x-migration-array-mode": "unordered"}
    assert not compare([old], [new], rows).is_match
