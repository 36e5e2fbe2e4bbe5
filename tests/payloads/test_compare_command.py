"""`driftline compare` and `driftline payloads lint` as users call them."""

import json
from xml.etree import ElementTree

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline

SCHEMA = "properties:\n  total: {type: number, x-migration-precision: 0.01}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "old.json").write_text('{"total": 1.00, "note": 0.12345678901234567890}')
    (tmp_path / "same.json").write_text('{"total": 1.01, "note": 0.12345678901234567890}')
    (tmp_path / "new.json").write_text('{"total": 1.02, "note": 0.12345678901234567891}')
    return tmp_path


def call(capfdbinary, *arguments):
    code = run(driftline, ["compare", *arguments])
    out, err = capfdbinary.readouterr()
    return code, out, err


def test_match_is_zero(folder, capfdbinary):
    code, out, err = call(capfdbinary, "old.json", "same.json", "--schema", "schema.yaml")
    assert (code, json.loads(out)["is_match"], err) == (0, True, b"")


def test_mismatch_is_one_and_numbers_stay_as_written(folder, capfdbinary):
    code, out, _ = call(capfdbinary, "old.json", "new.json", "--schema", "schema.yaml")
    assert code == 1
    assert b"0.12345678901234567891" in out
    assert [entry["type"] for entry in json.loads(out)["diffs"]] == ["PRECISION_EXCEEDED", "VALUE_MISMATCH"]


def test_text_names_path_values_and_rule(folder, capfdbinary):
    code, out, _ = call(capfdbinary, "old.json", "new.json", "--schema", "schema.yaml", "--format", "text")
    text = out.decode()
    assert code == 1
    for part in (
        "PRECISION_EXCEEDED $.total",
        "old  1.0",
        "new  1.02",
        "rule x-migration-precision: 0.01",
        "mismatch: 2 ",
    ):
        assert part in text


def test_junit_is_xml_with_a_failure_each(folder, capfdbinary):
    code, out, _ = call(capfdbinary, "old.json", "new.json", "--schema", "schema.yaml", "--format", "junit")
    suite = ElementTree.fromstring(out)
    assert (code, suite.get("tests"), suite.get("failures")) == (1, "2", "2")
    assert suite.find("testcase/failure").get("type") == "PRECISION_EXCEEDED"


def test_junit_of_a_match_passes(folder, capfdbinary):
    _, out, _ = call(capfdbinary, "old.json", "same.json", "--schema", "schema.yaml", "--format", "junit")
    suite = ElementTree.fromstring(out)
    assert (suite.get("failures"), len(suite.findall("testcase"))) == ("0", 1)


def test_config_file_and_output_file(folder, capfdbinary):
    (folder / "engine.yaml").write_text("fail_fast: true\n")
    arguments = ["old.json", "new.json", "--schema", "schema.yaml", "--config", "engine.yaml", "-o", "report.json"]
    code, out, _ = call(capfdbinary, *arguments)
    assert (code, out) == (1, b"")
    assert len(json.loads((folder / "report.json").read_text())["diffs"]) == 1


def test_root_option(folder, capfdbinary):
    (folder / "api.yaml").write_text(
        "openapi: 3.1.0\n"
        "components: {schemas: {A: {type: object}, B: {properties: {total: {x-migration-strategy: ignore}}}}}"
    )
    (folder / "a.json").write_text('{"total": 1}')
    (folder / "b.json").write_text('{"total": 2}')
    assert call(capfdbinary, "a.json", "b.json", "--schema", "api.yaml", "--root", "B")[0] == 0
    assert call(capfdbinary, "a.json", "b.json", "--schema", "api.yaml", "--root", "#/components/schemas/A")[0] == 1
    code, _, err = call(capfdbinary, "a.json", "b.json", "--schema", "api.yaml")
    assert code == 2
    assert b"error[schema_parse_error]" in err
    assert b"A, B" in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nope.json", "new.json", "--schema", "schema.yaml"], "not_found"),
        (["old.json", "broken.json", "--schema", "schema.yaml"], "VALIDATION_ERROR"),
        (["old.json", "new.json", "--schema", "broken.json"], "SCHEMA_PARSE_ERROR"),
        (["old.json", "new.json", "--schema", "schema.yaml", "--config", "broken.json"], "VALIDATION_ERROR"),
        (["-", "-", "--schema", "schema.yaml"], "usage"),
    ],
)
def test_errors_are_one_line_and_two(folder, capfdbinary, arguments, code):
    (folder / "broken.json").write_text('{"a": ')
    returned, out, err = call(capfdbinary, *arguments)
    assert (returned, out) == (2, b"")
    assert err.decode().startswith(f"error[{code.lower()}]: ")
    assert err.count(b"\n") == 1


def test_processing_errors_carry_the_partial_result(folder, capfdbinary):
    (folder / "engine.json").write_text('{"max_depth": 0}')
    code = run(
        driftline,
        [
            "--error-format",
            "json",
            "compare",
            "old.json",
            "new.json",
            "--schema",
            "schema.yaml",
            "--config",
            "engine.json",
        ],
    )
    error = json.loads(capfdbinary.readouterr().err)["error"]
    assert (code, error["code"], error["partial_result"]["is_match"]) == (2, "max_depth_exceeded", None)


def test_lint_finds_typos_and_rules_without_effect(folder, capfdbinary):
    (folder / "bad.yaml").write_text(
        "properties:\n"
        "  a: {type: string, x-migration-precison: 1, x-migration-precision: 2}\n"
        "  b: {type: array, x-migration-array-key: id}\n"
        "  c: {x-migration-strategy: ignore, x-migration-cast: int}\n"
        "  d: {x-migration-pattern: '('}\n"
        "  e: {x-migration-when: '$.a ='}\n"
        "  f: {x-migration-alias: f}\n"
        "definitions:\n"
        "  Unused: {x-migration-strategy: lenient}\n"
    )
    code = run(driftline, ["payloads", "lint", "bad.yaml"])
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert code == 1
    assert [line.split(":")[1] for line in lines] == ["2", "2", "3", "4", "5", "6", "7", "9"]
    assert "did you mean x-migration-precision?" in lines[0]
    assert run(driftline, ["payloads", "lint", "schema.yaml"]) == 0
    run(driftline, ["payloads", "lint", "bad.yaml", "--format", "json"])
    assert {finding["rule"] for finding in json.loads(capfdbinary.readouterr().out)} >= {"x-migration-array-key"}


DEEP = "[" * 120 + "]" * 120


@pytest.fixture
def deep(folder):
    (folder / "deep.json").write_text(f'{{"total": 5, "x": {DEEP}}}')
    (folder / "deep2.json").write_text(f'{{"total": 6, "x": {DEEP}}}')
    return ["deep.json", "deep2.json", "--schema", "schema.yaml"]


def test_what_was_found_before_the_end_is_written(deep, capfdbinary):
    code, out, err = call(capfdbinary, *deep)
    answer = json.loads(out)
    assert (code, answer["success"], answer["error"]["code"]) == (2, False, "MAX_DEPTH_EXCEEDED")
    assert [entry["path"] for entry in answer["partial_result"]["diffs"]] == ["$.total"]
    assert err.startswith(b"error[max_depth_exceeded]: ")


def test_what_was_found_goes_to_the_output_file_and_into_all_formats(deep, folder, capfdbinary):
    assert call(capfdbinary, *deep, "-o", "out.json")[0] == 2
    assert json.loads((folder / "out.json").read_text())["partial_result"]["is_match"] is None
    text = call(capfdbinary, *deep, "--format", "text")[1].decode()
    assert "PRECISION_EXCEEDED $.total" in text
    assert "cut short: 1 field compared" in text
    suite = ElementTree.fromstring(call(capfdbinary, *deep, "--format", "junit")[1])
    assert (suite.get("errors"), suite.get("failures"), suite.get("tests")) == ("1", "1", "2")
    assert suite.find(".//error").get("type") == "MAX_DEPTH_EXCEEDED"
