"""JSON as it lies about: arrays inside objects, GeoJSON, printed over lines; and the two ways to take objects apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import driftline as dl
from driftline.core import Workspace
from driftline.sources import fingerprint, open_source

OLD, NEW = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], [{"id": 1, "v": "a"}, {"id": 2, "v": "c"}]


def pair(folder: Path, wrap, name: str = "t.json", indent: int | None = None) -> list[str]:
    for side, rows in (("a", OLD), ("b", NEW)):
        (folder / side).mkdir(exist_ok=True)
        (folder / side / name).write_text(json.dumps(wrap(rows), indent=indent))
    return [str(folder / side / name) for side in "ab"]


@pytest.mark.parametrize("indent", [None, 2])
def test_rows_inside_an_object_are_named(tmp_path: Path, indent: int | None) -> None:
    a, b = pair(tmp_path, lambda rows: {"meta": 1, "data": {"items": rows}, "records": rows}, indent=indent)
    for member in ("records", "data.items"):
        assert dl.diff(f"{a}::{member}", f"{b}::{member}", key="id").stats["rows_changed"] == 1
    with pytest.raises(dl.InputError, match=r"has no member nothing \(it has: records\)"):
        dl.diff(f"{a}::nothing", b)
    if indent:
        words = r"name the member with the rows: .*t.json::records\nthis .* with inside='records'$"
        with pytest.raises(dl.InputError, match=f"is one object: {words}"):
            dl.diff(a, b, key="id")


def test_members_of_an_object_are_rows(tmp_path: Path) -> None:
    """Their names are a column of their own, which no other one may have as its name."""
    old, new = {"x": {"n": 1.50}, "y": {}}, {"y": {"n": None}, "z": {"n": 2, "member": 3, "member.2": "a"}}
    for name, members in (("a.json", old), ("b.json", new)):
        (tmp_path / name).write_text(json.dumps(members))
    a, b = (f"{tmp_path / name}::*" for name in ("a.json", "b.json"))
    schema, *events, _ = dl.diff(a, b, rename={"member": "member.3"}, key="member", header_mode="common")
    assert (schema["columns_a"], schema["columns_b"]) == (["member", "n"], ["member.3", "n", "member", "member.2"])
    assert [(event["type"], event["key"]["member"]) for event in events] == [("removed", "x"), ("added", "z")]
    for text, words in {
        '{"x": {"n": 1}, "x": {"n": 2}}': "line 1: a member is there twice",
        '{"x": {"n": 1}, "y": 2}': "line 1: not rows: Expected `object`, got `int` - at `.*`",
        "[]": "line 1: not rows: .*",
    }.items():
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(dl.InputError, match=words):
            dl.diff(a, b)


def test_the_only_member_needs_no_name(tmp_path: Path) -> None:
    a, b = pair(tmp_path, lambda rows: {"4217": rows}, indent=2)
    assert dl.diff(a, b, key="id").stats["rows_changed"] == 1


def test_members_of_one_file_are_different_inputs(tmp_path: Path) -> None:
    a, _ = pair(tmp_path, lambda rows: {"one": rows, "two": rows[:1]})
    assert fingerprint(f"{a}::one") != fingerprint(f"{a}::two")


@pytest.mark.parametrize("name", ["t.json", "t.geojson"])
def test_geojson_is_a_table_of_features(tmp_path: Path, name: str) -> None:
    def collection(rows: list) -> dict:
        place = {"type": "Point", "coordinates": [1.5, 2]}
        features = [{"type": "Feature", "properties": row, "geometry": place} for row in rows]
        return {"type": "FeatureCollection", "features": features}

    result = dl.diff(*pair(tmp_path, collection, name, indent=1), key="id")
    schema, changed, _ = result
    assert schema["columns_a"] == ["id", "v", "geometry"]
    assert changed["delta"] == {"v": {"from": "b", "to": "c"}}


def test_an_empty_array_has_the_columns_of_the_other_side(tmp_path: Path) -> None:
    a, b = pair(tmp_path, lambda rows: rows)
    Path(a).write_text("[]")
    assert dl.diff(a, b, key="id").stats["rows_added"] == 2
    assert dl.diff(b, a, key="id").stats["rows_removed"] == 2
    assert dl.diff([], OLD).stats["rows_added"] == 2
    assert dl.diff(a, b).added.columns == ["id", "v"]


SPECIAL = [0, -0.0, 1e-7, 1e16, 2**53 + 1, 10**30, "\\", "\ud800", '"', "null"]
scalars = [
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
]
values = st.one_of(*scalars, st.sampled_from(SPECIAL))
members = st.dictionaries(st.sampled_from(["a", "b\n", "é", "c.d"]), st.one_of(values, st.lists(values, max_size=2)))
objects = st.lists(members.map(lambda row: {"id": 1, **row}), max_size=6)


def is_utf8(row: dict) -> bool:
    return not any(
        "\ud800" <= letter <= "\udfff" for letter in str(list(row.values())) + json.dumps(row, ensure_ascii=False)
    )


@settings(max_examples=150, deadline=None)
@given(rows=objects, ascii_only=st.booleans(), spaced=st.booleans(), array=st.booleans())
def test_columns_and_rows_are_read_alike(
    rows: list, ascii_only: bool, spaced: bool, array: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    form: dict = {"indent": 1 if spaced and array else None, "separators": None if spaced else (",", ":")}
    texts = [json.dumps(row, ensure_ascii=ascii_only or not is_utf8(row), **form) for row in rows]
    path = tmp_path_factory.mktemp("json") / ("t.json" if array else "t.jsonl")
    path.write_text(f"[{','.join(texts)}]" if array else "\n".join(texts), encoding="utf-8", newline="")
    with Workspace() as workspace:
        side = open_source(path, workspace).lay_out("A", 1 << 20, workspace)
        found = [row for split in side.splits for row in split.read().table.to_pylist()]
    assert [{name: json.loads(cell) for name, cell in row.items() if cell != "null"} for row in found] == [
        {name: cell for name, cell in row.items() if cell is not None} for row in rows
    ]


def test_texts_are_the_same_however_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id":1,"v":1.50,"w":"\\u0041","x":-0,"y":1E2,"z":0.00001}\n')
    (tmp_path / "b.jsonl").write_text('{ "id" : 1 , "v":1.5 , "w":"A","x":0,"y":100.0,"z":1e-05 }\n')
    assert not dl.diff(tmp_path / "a.jsonl", tmp_path / "b.jsonl", key="id")
