"""YAML by the C parser means what ruamel reads, a slow and careful reader of YAML 1.2."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from ruamel.yaml import YAML

from driftline import payloads
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import PayloadError
from driftline.payloads._schema import documents as reader
from driftline.payloads._values.limits import Deadline
from driftline.payloads._values.paths import escape_pointer

SCALARS = [
    *("a", "true", "yes", "1", "010", "0o10", "1_000", "1e3", "1.5", ".5", "2020-01-01", "2020-01-01T00:00:00Z", "~"),
    *("null", "0x1F", "0b1", "1:30", ".inf", "on", "TRUE", "-", "+1", "1.", "12e03", "-.INF", "=x", "==", "<<x", "a:b"),
    *("a#b", "'it''s'", '"x\\ty"', "!x", "%y", "-1", "-0", "0", "00", "0.0", "-0.5", "+.5", "1e400", "No", "N", "n"),
    "123456789012345678901234567890",
]
DOCUMENTS = (
    "",
    "# nothing",
    "a: &x {b: 1}\nc: *x",
    "a: &x [1]\nb: [*x, *x]",
    "a: |\n  x\n  y\nb: >-\n  x\n  y\n",
    "{a: 1, b: [x, 'y'], c: {}}",
    "? a\n: 1",
    "2: a\ntrue: b\n~: c\n2.5: d\n2020-01-01: e",
    "- a\n- - b\n  - c\n-",
    "a:\nb:   \n  c",
    "a: b c  # words\nd: 'x # y'",
    "base: &b {x: 1}\nc:\n  <<: *b\n  y: 2",
    "a: !!str 1\nb: !!int '2'",
    "%YAML 1.2\n---\na: 1\n",
    "---\na: 1\n...\n",
    "a: {b:1, c: 2}",
    "a: [b:1]",
    "text: é ü 漢字 🎈",
)
BROKEN = ("a: 1\na: 2", "a: [1", "a: b: c", "a: *x", "a: !x 1", "--- 1\n--- 2", "a: &x [*x]", "\ta: 1", "{a: 1, a: 2}")


def slow(text: str) -> Any:
    return reader._read_slowly(text)


def slow_marks(text: str) -> dict[str, tuple[int, int]]:
    """Pointer -> (line, column) of what ruamel composes."""
    root = YAML(typ="rt", pure=True).compose(text.replace("\t", " "))
    marks: dict[str, tuple[int, int]] = {}
    waiting = [("", root)] if root is not None else []
    seen: set[int] = set()
    for pointer, node in waiting:
        marks[pointer] = (node.start_mark.line + 1, node.start_mark.column + 1)
        if id(node) not in seen:
            seen.add(id(node))
            if node.id == "mapping":
                waiting += [(f"{pointer}/{escape_pointer(str(key.value))}", value) for key, value in node.value]
            elif node.id == "sequence":
                waiting += [(f"{pointer}/{index}", value) for index, value in enumerate(node.value)]
    return marks


@pytest.mark.parametrize("scalar", SCALARS)
def test_plain_scalars(scalar: str) -> None:
    for text in (f"a: {scalar}\n", f"- {scalar}\n", f"{scalar}: 1\n", f"[{scalar}]"):
        assert outcome(reader.read_yaml, text) == outcome(slow, text)


@pytest.mark.parametrize("text", DOCUMENTS + BROKEN)
def test_documents(text: str) -> None:
    assert outcome(reader.read_yaml, text) == outcome(slow, text)
    if text in DOCUMENTS:
        marks, others = reader.yaml_marks(text), slow_marks(text)
        # An empty value has no place of its own; an anchor's content is where it is written.
        assert all(marks[pointer] == others[pointer] for pointer in marks.keys() & others.keys() - {"/a"})


def outcome(read: Any, text: str) -> tuple[str, str]:
    try:
        return "value", repr(read(text))
    except PayloadError as error:
        return "error", error.message


@pytest.mark.parametrize("seed", range(20))
def test_random_documents(seed: int) -> None:
    dice = random.Random(seed)

    def value(depth: int) -> Any:
        kind = dice.randint(0, 6 if depth else 4)
        if kind >= 5:
            members = range(dice.randint(0, 4))
            return [value(depth - 1) for _ in members] if kind == 5 else {f"m {n}": value(depth - 1) for n in members}
        words = ["x", "yes", "=", "", "a: b", "- a", "# a", "it's", "line\nline\n", " blank ", "1e3", "~", "<<", "é"]
        return (dice.choice(words), dice.randint(-9, 10**9), dice.random() * 100, dice.random() < 0.5, None)[kind]

    content = {"root": value(4)}
    text = reader.yaml_text(content)
    assert reader.read_yaml(text) == content == slow(text)
    assert reader.yaml_marks(text) == slow_marks(text)


def test_equals_signs_are_text() -> None:
    assert reader.read_yaml('enum: [=, ">"]') == {"enum": ["=", ">"]}
    assert reader.read_yaml('base: &b {}\nx: {<<: *b, enum: [=, ">"]}')["x"] == {"enum": ["=", ">"]}


def test_anchors_stay_shared_and_depth_is_limited() -> None:
    content = reader.read_yaml("a: &x {b: 1}\nc: *x")
    assert content["a"] is content["c"]
    with pytest.raises(PayloadError, match="nested deeper"):
        reader.read_yaml("[" * 30_000 + "]" * 30_000)


def test_the_limit_of_a_schema_is_cpu_time_and_has_a_flag(tmp_path, capfd) -> None:
    with Deadline(0.05, "compiling", is_cpu_time=True) as deadline:
        time.sleep(0.1)
        deadline.check()  # waiting is no work
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "api.yaml").write_text("properties:\n" + "".join(f"  m{n}: {{type: string}}\n" for n in range(2000)))
    call = ["compare", str(tmp_path / "a.json"), str(tmp_path / "a.json"), "--schema", str(tmp_path / "api.yaml")]
    assert run(driftline, [*call, "--schema-timeout", "0"]) == 2
    assert "longer than 0 seconds (schema_timeout_seconds)" in capfd.readouterr().err
    assert run(driftline, [*call, "--schema-timeout", "60"]) == 0


def test_none_is_no_schema() -> None:
    assert payloads.compare({"a": 1}, {"a": 1}, None).is_match
    assert not payloads.compare("[1]", "[2]", None).is_match


@pytest.mark.parametrize("written", ["2025-01-02T10:00:00Z", "2025-1-2 10:00:00", "2025-01-02", "2025-13-45"])
def test_dates_and_times_stay_as_they_are_written(written):
    """As JSON has them: a default that is spelled otherwise would differ from every payload."""
    schema = f"properties:\n  at: {{x-migration-default: {written}}}\n  is: {{x-migration-enum-map: {{{written}: x}}}}"
    assert payloads.compare({"is": written}, {"is": "x", "at": written}, schema).is_match
    tagged = schema.replace("default:", "default: !!timestamp")
    assert payloads.compare({"is": written}, {"is": "x", "at": written}, tagged).is_match
