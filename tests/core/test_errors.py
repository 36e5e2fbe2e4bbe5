from __future__ import annotations

import ast
import inspect
import json
import pickle
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline import errors
from driftline.client._http import _refusal
from driftline.http import STATUS_OF_CODE

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.DriftlineError)]


def make(kind: type[errors.DriftlineError]) -> errors.DriftlineError:
    extra = {"offset": 7} if issubclass(kind, errors.CorruptChangesetError) else {}
    return kind("what went wrong", row=3, **extra)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_is_drawn_and_crosses_processes(kind: type[errors.DriftlineError]) -> None:
    error = make(kind)
    assert isinstance(error.code, str)
    assert kind.__name__ in (errors.__doc__ or "")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.code, again.message, again.context) == (error.code, error.message, error.context)
    assert again.row == 3


def test_context_is_readable_as_attributes_and_unknown_ones_are_not() -> None:
    error = errors.InputError("no", code="empty_file", side="A")
    assert (error.code, error.side, str(error)) == ("empty_file", "A", "no")
    with pytest.raises(AttributeError):
        _ = error.nothing


def test_offset_is_part_of_the_message() -> None:
    error = errors.CorruptChangesetError("truncated varint", offset=12)
    assert str(error) == "truncated varint (at byte 12)"
    assert error.offset == 12


SOURCE = Path(errors.__file__).parent
TABLE = tomllib.loads((SOURCE / "core/error_codes.toml").read_text(encoding="utf-8"))
MEANINGS = {code: text for group in TABLE.values() for code, text in group.items()}
# Functions that take a code as an argument without its name, and where.
TAKE_A_CODE = {
    "Code": 0,
    "refused": 0,
    "problem": 0,
    "note": 0,
    "Note": 0,
    "Problem": 0,
    "CdcNote": 0,
    "raw_refusal": 0,
}
TAKE_A_CODE |= {"refuse": 1, "_choice": 2}


def raised_codes() -> Iterator[tuple[str, str]]:
    """Every code that the source writes as text, with its file."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call | ast.ClassDef):
                continue
            given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                given += node.args[TAKE_A_CODE[name] : TAKE_A_CODE[name] + 1] if name in TAKE_A_CODE else []
            for value in given:
                for branch in [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]:
                    text = branch.value if isinstance(branch, ast.Constant) else None
                    if isinstance(text, str) and re.fullmatch(r"[A-Za-z]+(_[A-Za-z]+)*", text):
                        yield text, str(path.relative_to(SOURCE))


def test_every_code_is_in_the_table_and_the_table_has_no_other() -> None:
    raised = dict(raised_codes())
    assert len(raised) > 200
    missing = {code: file for code, file in raised.items() if code.lower() not in MEANINGS}
    assert missing == {}, "core/error_codes.toml says what each code means"
    text = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    assert [code for code in MEANINGS if not re.search(rf'"{code}"', text, re.IGNORECASE)] == []


def test_codes_have_one_spelling() -> None:
    assert [code for code in MEANINGS if not re.fullmatch(r"[a-z]+(_[a-z]+)*", code)] == []
    in_capitals = {code.lower() for code, _ in raised_codes() if code != code.lower()} | {
        *map(str.lower, STATUS_OF_CODE)
    }
    assert in_capitals == set(TABLE["protocols"])
    for kind in CLASSES:
        assert make(kind).code.islower()


def test_both_spellings_are_equal_and_the_protocol_keeps_its_own() -> None:
    error = errors.DeltaError("no", code="SCHEMA_ERROR")
    assert error.code == "schema_error"
    assert error.code == "SCHEMA_ERROR"
    assert "SCHEMA_ERROR" == error.code  # noqa: SIM300 - the other way round too
    assert error.code != "TOO_OLD"
    assert error.code in ("TOO_OLD", "SCHEMA_ERROR")
    assert {error.code: 1}["schema_error"] == 1
    assert json.dumps(error.to_dict()) == '{"code": "schema_error", "message": "no"}'
    again = pickle.loads(pickle.dumps(errors.LakeError("again", code=error.code)))
    assert (str(again.code), again.code.wire) == ("schema_error", "SCHEMA_ERROR")


@pytest.mark.parametrize("code", ["MUST_REFETCH", "must_refetch"])
def test_the_client_accepts_both_spellings_from_a_server(code: str) -> None:
    refused = _refusal(410, json.dumps({"error": "begin anew", "code": code, "requestId": "r"}).encode())
    assert refused.code == "MUST_REFETCH"
    assert refused.code == "must_refetch"
