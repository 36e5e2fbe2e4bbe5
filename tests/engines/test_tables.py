"""Golden table cases and frames: the same bytes and the same errors from every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import driftline as dl
from driftline.tables._engines import find_engine
from support.engines import engines_for
from support.table_conformance import find_fixtures, job_of, run_fixture

FIXTURES = Path(__file__).parents[1] / "conformance" / "tables"
BEFORE = [{"id": n, "name": f" n{n}", "score": n / 2} for n in range(20)]
AFTER = [{"id": n, "name": f"N{n % 15}", "score": n / 2 + 0.001} for n in range(5, 25)]
RULES = {"key": "id", "normalize": {"name": "trim,case"}, "tolerance": {"score": "0.01"}}


@pytest.mark.parametrize("engine", engines_for("tables"))
@pytest.mark.parametrize("fixture", find_fixtures(FIXTURES), ids=lambda path: path.name)
def test_golden_cases(fixture: Path, engine: str) -> None:
    expected = fixture / "expected.jsonl"
    if not expected.exists() or engine != "spark":
        assert run_fixture(fixture, engine) is None
    if expected.exists():
        written: list[bytes] = []
        find_engine(engine)(job_of(fixture), lambda data: written.append(bytes(data)))
        assert b"".join(written) == expected.read_bytes()


@pytest.mark.parametrize("engine", engines_for("frames"))
def test_frames(engine: str, session: Any) -> None:
    """Rows of a frame and rows of a DataFrame: the same events under the same rules."""
    if engine == "spark":
        import driftline.spark

        frames = [session.createDataFrame(rows, "id int, name string, score double") for rows in (BEFORE, AFTER)]
        found = [row.asDict(recursive=True) for row in driftline.spark.diff(*frames, **RULES).events.collect()]
    else:
        found = [dict(event) for event in dl.diff(BEFORE, AFTER, engine=engine, **RULES)]
    kinds = {
        kind: [event["key"]["id"] for event in found if event["type"] == kind]
        for kind in ("removed", "changed", "added")
    }
    assert {kind: sorted(map(int, keys)) for kind, keys in kinds.items()} == {
        "removed": list(range(5)),
        "changed": list(range(15, 20)),
        "added": list(range(20, 25)),
    }


@pytest.mark.parametrize("engine", engines_for("tables"))
def test_the_kind_of_change(engine: str, tmp_path: Path) -> None:
    """Counts, blocks of rows, frequent pairs and suggested rules are those of the plain engine."""
    rows = [(n, f"Name {n}", n / 8) for n in range(60)]
    (tmp_path / "a.csv").write_text("id,name,score\n" + "".join(f"{n:03},{name},{x}\n" for n, name, x in rows[:40]))
    (tmp_path / "b.csv").write_text(
        "id,name,score\n" + "".join(f"{n:03},{name.upper()},{x + 0.5:.4f}\n" for n, name, x in rows[5:])
    )
    profiles = [
        dl.diff(tmp_path / "a.csv", tmp_path / "b.csv", key="id", engine=name).profile().to_dict()
        for name in (engine, "local")
    ]
    assert profiles[0] == profiles[1]
    assert profiles[0]["columns"]["score"]["words"] == ["another number, always +0.5"]
    assert profiles[0]["rows"]["added"] == {
        "runs": 1,
        "longest": {"kind": "added", "rows": 20, "first": "040", "last": "059"},
    }
    assert profiles[0]["suggestions"][0]["flag"] == "--normalize name=case"


REPEATED_A = [("k1", "x"), ("k2", "x"), ("k3", "x"), ("k3", "y"), ("k3", "z"), ("k4", "x"), ("k4", "x"), ("k6", "x")]
REPEATED_B = [("k1", "x"), ("k1", "y"), ("k1", "x"), ("k3", "z"), ("k4", "x"), ("k4", "y"), ("k5", "x"), ("k5", "x")]
DUPLICATES = {
    "came": {
        "keys": 2,
        "rows": 3,
        "most": [{"key": {"id": "k1"}, "rows_a": 1, "rows_b": 3}, {"key": {"id": "k5"}, "rows_a": 0, "rows_b": 2}],
    },
    "went": {"keys": 1, "rows": 2, "most": [{"key": {"id": "k3"}, "rows_a": 3, "rows_b": 1}]},
}
WORDS = [
    "3 duplicates came, in 2 keys: k1 (1 → 3 rows), k5 (0 → 2 rows)",
    "2 duplicates went, in 1 key: k3 (3 → 1 rows)",
]


@pytest.mark.parametrize("policy", ["match", "first", "last"])
@pytest.mark.parametrize("engine", engines_for("tables"))
def test_duplicates_that_came(engine: str, policy: str, tmp_path: Path) -> None:
    for name, rows in (("a.csv", REPEATED_A), ("b.csv", REPEATED_B)):
        (tmp_path / name).write_text("id,v\n" + "".join(f"{key},{value}\n" for key, value in rows))
    profile = dl.diff(tmp_path / "a.csv", tmp_path / "b.csv", key="id", duplicates=policy, engine=engine).profile()
    assert profile.to_dict()["duplicates"] == DUPLICATES
    assert profile.about_rows() == WORDS
