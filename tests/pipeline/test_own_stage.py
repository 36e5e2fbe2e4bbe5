"""A stage that one file adds: it is found by the key that declares it, and runs, is kept and fails like any other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.errors import PipelineError
from driftline.pipeline import _stages, load
from support.shop import results, run

STAGE = """
import json
from functools import partial

from driftline.pipeline._stages.stage import Outcome, Stage


def declare(section, key):
    path = section.text(key)
    if "{to}" not in path:
        section.fail("put {to} into its name", key)
    return path


def stages(plan, declared):
    for before, after in plan.pairs():
        diff = plan.name(after.label, "diff")
        target = {"counts": plan.target(declared, before, after)}
        yield Stage(plan.name(after.label, "counts"), partial(_write, diff), needs=(diff,), outputs=target)


def _write(diff, context):
    counts = dict(context.needed[diff].counts)
    with context.outputs.writing("counts") as out:
        out.write(json.dumps(counts).encode())
    return Outcome(counts)
"""


@pytest.fixture
def with_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of stages with one more file in it."""
    folder = tmp_path / "stages"
    folder.mkdir()
    (folder / "counts.py").write_text(STAGE)
    monkeypatch.setattr(_stages, "__path__", [*_stages.__path__, str(folder)])
    yield
    sys.modules.pop(f"{_stages.__name__}.counts", None)


def declare(folder: Path, lines: str) -> Path:
    for day, value in (("01", "a"), ("02", "b"), ("03", "b")):
        (folder / f"t-2026-03-{day}.csv").write_text(f"id,v\n1,{value}\n")
    file = folder / "p.toml"
    file.write_text(f'[pipeline]\nname = "p"\n[tables.t]\nsnapshots = "t-{{date}}.csv"\nkey = "id"\n{lines}\n')
    return file


@pytest.mark.usefixtures("with_counts")
def test_a_file_adds_a_stage(tmp_path: Path) -> None:
    file = declare(tmp_path, 'counts = "out/{to}.json"')
    assert results(run(file)) == dict.fromkeys(
        [f"t/2026-03-0{day}/{step}" for step in ("diff", "counts") for day in (2, 3)], "done"
    )
    assert json.loads((tmp_path / "out/2026-03-02.json").read_text())["changed"] == 1
    assert set(results(run(file)).values()) == {"kept"}
    (tmp_path / "t-2026-03-03.csv").write_text("id,v\n1,c\n")
    assert results(run(file))["t/2026-03-03/counts"] == "done"
    assert json.loads((tmp_path / "out/2026-03-03.json").read_text())["changed"] == 1
    with pytest.raises(PipelineError, match=r"p.toml:6: put \{to\} into its name"):
        load(declare(tmp_path, 'counts = "out.json"'))


@pytest.mark.parametrize("key", ["counts", "lake", "outputs", "stage", "__init__", "not a name"])
def test_other_files_and_no_files_declare_no_key(tmp_path: Path, key: str) -> None:
    with pytest.raises(PipelineError, match=f"p.toml:7: unknown key '{key}'"):
        load(declare(tmp_path, f'events = "{{to}}.jsonl"\n"{key}" = "x"'))
