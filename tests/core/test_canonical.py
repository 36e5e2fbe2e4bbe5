from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from driftline.core._json import canonical_json, sha1_hex, sha256_hex, utf16_sort_key
from support.processes import run_process

VECTORS = Path(__file__).parents[1] / "vectors"
NODE = shutil.which("node")

STRINGIFY = """
const sorted = v => Array.isArray(v) ? v.map(sorted)
  : v !== null && typeof v === 'object'
    ? new Map(Object.keys(v).sort((a, b) => a < b ? -1 : a > b ? 1 : 0).map(k => [k, sorted(v[k])]))
    : v;
const print = v => Array.isArray(v) ? '[' + v.map(print).join(',') + ']'
  : v instanceof Map ? '{' + [...v].map(([k, w]) => JSON.stringify(k) + ':' + print(w)).join(',') + '}'
  : JSON.stringify(v);
const lines = require('fs').readFileSync(0, 'utf8').split('\\n').filter(line => line);
for (const line of lines) console.log(print(sorted(JSON.parse(line))));
"""

texts = st.text(st.characters(codec=None, categories=None), max_size=12)
numbers = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.floats(width=32, allow_nan=False)
)
values = st.recursive(
    st.none() | st.booleans() | numbers.filter(math.isfinite) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=12,
)


def load(name: str) -> list[dict]:
    return json.loads((VECTORS / name).read_text())


@pytest.mark.parametrize("case", load("canonical-json.json"), ids=lambda case: case["sha1"][:8])
def test_vectors_in_javascript_key_order(case: dict) -> None:
    text = canonical_json(json.loads(case["raw"]), integer_keys_first=True)
    assert text == case["stable"]
    assert sha1_hex(text) == case["sha1"]


@pytest.mark.parametrize("case", load("diff-id.json"), ids=lambda case: case["name"])
def test_diff_id_vectors(case: dict) -> None:
    text = canonical_json(case["inputsCanonical"], integer_keys_first=True)
    assert text == case["stable"]
    assert sha1_hex(text) == case["sha1"]


@pytest.mark.parametrize("case", load("delta-id.json"), ids=lambda case: case["name"])
def test_delta_id_vectors(case: dict) -> None:
    given_ = dict(case["input"])
    given_["columns"] = json.loads(given_.pop("columns_json"))
    text = canonical_json(given_)
    assert text == case["canonical"]
    assert sha256_hex(text) == case["deltaId"]


@pytest.mark.node
@settings(max_examples=25)
@given(st.lists(values, min_size=20, max_size=60))
def test_prints_what_node_prints(many: list) -> None:
    lines = "".join(json.dumps(value) + "\n" for value in many)
    done = run_process([NODE, "-e", STRINGIFY], input=lines.encode(), capture_output=True, check=True)
    assert done.stdout.decode().split("\n")[:-1] == [canonical_json(value) for value in many]


@given(st.lists(st.floats(), max_size=40))
def test_doubles_survive_and_infinities_do_not(many: list[float]) -> None:
    again = json.loads(canonical_json(many), parse_int=float)
    assert again == [value if math.isfinite(value) else None for value in many]


@given(values)
def test_parsing_gives_the_value_back(value: object) -> None:
    assert as_javascript_holds_it(json.loads(canonical_json(value))) == as_javascript_holds_it(value)


@given(values)
def test_is_a_fixed_point(value: object) -> None:
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text


def as_javascript_holds_it(value: object) -> object:
    """Doubles for large integers, and surrogate pairs joined; all else as it is."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= 2**53 else float(value)
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [as_javascript_holds_it(item) for item in value]
    if isinstance(value, dict):
        return {as_javascript_holds_it(key): as_javascript_holds_it(item) for key, item in value.items()}
    return value


def test_keys_sort_by_utf16_code_unit() -> None:
    text = canonical_json({"\U0001f602": 1, "\ufb33": 2, "a": 3, "B": 4, "9": 5, "10": 6})
    assert list(json.loads(text)) == ["10", "9", "B", "a", "\U0001f602", "\ufb33"]
    assert utf16_sort_key("\U0001f602") < utf16_sort_key("\ufb33")


def test_booleans_are_not_numbers_and_odd_types_are_refused() -> None:
    assert canonical_json([True, 1, 1.0]) == "[true,1,1]"
    with pytest.raises(TypeError, match="set is not a JSON value"):
        canonical_json({"a": {1}})
    with pytest.raises(TypeError, match="object keys must be strings"):
        canonical_json({1: 2})
