from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from driftline.errors import PipelineError
from driftline.pipeline import dry_run, load
from driftline.pipeline._declare.declaration import template_for
from driftline.pipeline._declare.toml import line_of, parse_toml

HEAD = '[pipeline]\nname = "shop"\n'
TABLE = '[tables.t]\nbefore = "a.csv"\nafter = "b.csv"\nkey = "id"\nevents = "e.jsonl"\n'

MISTAKES = {
    "unknown key": (HEAD + TABLE + 'evnts = "x"\n', 8, "unknown key 'evnts' in [tables.t]: did you mean \"events\"?"),
    "unknown section": (HEAD + TABLE + "[tabels.x]\n", 8, 'did you mean "tables"?'),
    "no pipeline": (TABLE, 1, "there is no [pipeline] section"),
    "no name": ("[pipeline]\n" + TABLE, 1, "has no 'name'"),
    "bad name": ('[pipeline]\nname = "a b"\n' + TABLE, 2, "the pipeline's name 'a b' is not valid"),
    "syntax": (HEAD + "[tables.t\n", 3, "expected ']'"),
    "wrong kind": (HEAD + TABLE + "deltas = 1\n", 8, "'deltas' in [tables.t] is true or false, not 1"),
    "wrong word": (HEAD + TABLE + 'events_format = "xml"\n', 8, "use one of jsonl, json, csv, markdown"),
    "wrong type": (HEAD + TABLE + '[tables.t.columns]\nprice = "money"\n', 9, "string, number, boolean, json"),
    "no lake": (HEAD + TABLE + "deltas = true\n", 8, "'deltas' need a lake"),
    "compact alone": (HEAD + TABLE + "compact = true\n", 8, "'compact' needs 'deltas = true'"),
    "state alone": (HEAD + TABLE + '[[tables.t.state]]\npath = "x"\n', 8, "it needs 'deltas = true'"),
    "threshold": (HEAD + TABLE + 'fail_if = ["changed > five"]\n', 8, "is not a threshold"),
    "count": (HEAD + TABLE + 'fail_if = ["chunks > 5"]\n', 8, "knows the counts added"),
    "two sources": (HEAD + TABLE + 'snapshots = "x-{date}.csv"\n', 8, "not both"),
    "no source": (HEAD + '[tables.t]\nevents = "e"\n', 3, "has no source"),
    "no target": (HEAD + '[tables.t]\nbefore = "a"\nafter = "b"\n', 3, "has no target"),
    "no mark": (HEAD + '[tables.t]\nsnapshots = "a.csv"\nevents = "e"\n', 4, "needs one of {date}, {n}"),
    "one file for all": (HEAD + '[tables.t]\nsnapshots = "a-{n}.csv"\nevents = "e"\n', 5, "put {to} into its name"),
    "patchset without key": (
        HEAD + '[tables.t]\nbefore = "a"\nafter = "b"\npatchset = "p"\n',
        6,
        "a patchset needs the key columns",
    ),
    "rules": (HEAD + TABLE + "ignore_row_order = true\n", 3, "ignore_row_order works in positional mode only"),
    "header mode": (HEAD + TABLE + 'header_mode = "loose"\n', 8, "use one of strict, sorted"),
    "nearest word": (HEAD + TABLE + 'mode = "keyd"\n', 8, 'did you mean "keyed"? It is one of keyed, positional'),
    "nothing": (HEAD, 1, "nothing is declared"),
    "same file": (HEAD + TABLE + TABLE.replace("tables.t", "tables.u"), 8, "write the same file e.jsonl"),
    "webhook": (HEAD + TABLE + '[finish]\nwebhook = "ftp://x"\n', 9, "http:// or https://"),
    "payload sources": (HEAD + '[payloads.p]\nschema = "s"\nreport = "r"\n', 3, "either 'pairs', or 'old' and 'new'"),
    "blank": (HEAD + TABLE + 'mode = " "\n', 8, "is blank"),
    "parallel": ('[pipeline]\nname = "x"\nparallel = 0\n' + TABLE, 3, "at least 1"),
    "memory": ('[pipeline]\nname = "x"\nmemory = "lots"\n' + TABLE, 3, "lots"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    text, line, words = MISTAKES[name]
    file = tmp_path / "p.toml"
    file.write_text(text)
    with pytest.raises(PipelineError) as caught:
        load(file)
    assert caught.value.code == "invalid_pipeline"
    assert (caught.value.line, words in caught.value.message) == (line, True), caught.value.message
    assert caught.value.message.startswith(f"p.toml:{line}: ")


def test_a_file_that_is_not_text_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(b"[pipeline]\nname = '\xff'\n")
    with pytest.raises(PipelineError, match="not UTF-8"):
        load(tmp_path / "p.toml")


def test_the_template_is_a_valid_pipeline(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(template_for("p.toml"))
    declared = load(tmp_path / "p.toml")
    assert [flow.name for flow in declared.tables] == ["customers"]
    everything = template_for("p.toml").replace("\n# [", "\n[")
    lines = [line[2:] if line.startswith("# ") and " = " in line else line for line in everything.splitlines()]
    kept = [line for line in lines if not line.startswith(("before", "after", "... or"))]
    (tmp_path / "all.toml").write_text("\n".join(kept))
    declared = load(tmp_path / "all.toml")
    assert declared.payloads
    assert declared.indexes
    assert declared.hooks[0].webhook


def test_two_stages_may_not_write_one_file(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        (tmp_path / f"a-2026-03-0{day}.csv").write_text("id\n1\n")
    (tmp_path / "p.toml").write_text(
        HEAD
        + '[tables.t]\nsnapshots = "a-{date}.csv"\nkey = "id"\nevents = "e-{from}.jsonl"\npatchset = "e-{to}.jsonl"\n'
    )
    with pytest.raises(PipelineError, match=r"both write e-2026-03-02\.jsonl"):
        dry_run(load(tmp_path / "p.toml"))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b c", "d.e", "é"]), st.sampled_from(['"x"', "[1,\n2]", "'''\n[z]\n'''", "{q=1}"])
        ),
        unique_by=lambda pair: pair[0],
        min_size=1,
    ),
    st.integers(0, 3),
)
def test_lines_of_keys_are_where_the_keys_stand(pairs: list[tuple[str, str]], blanks: int) -> None:
    text, expected = "\n" * blanks + "# [not.a.header]\n[s]\n", {}
    for key, value in pairs:
        expected[("s", key)] = text.count("\n") + 1
        text += f'"{key}" = {value} # "\n'
    parse_toml(text, "p.toml")
    assert {path: line_of(text, path) for path in expected} == expected


def test_places_do_not_depend_on_where_tasks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.toml").write_text(HEAD + TABLE)
    monkeypatch.chdir(tmp_path)
    assert load("p.toml").place("out/x.jsonl") == tmp_path / "out/x.jsonl"
