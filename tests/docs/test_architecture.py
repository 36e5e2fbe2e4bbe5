"""docs/architecture.md is true: its table comes from the public surfaces, its walks name files that commands pass."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import gate  # noqa: E402 - scripts are not a package
import source_counts  # noqa: E402

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
WALK = re.compile(r"\*\*(?P<title>[^*]+)\*\*(?:(?!\*\*).)*?```mermaid\n(?P<picture>.*?)```", re.DOTALL)
BOX = re.compile(r"\[([\w/]+)(?: or ([\w/]+))?\]")


def boxes(title: str) -> list[tuple[str, ...]]:
    """The files that a walk's boxes name; more than one where either will do."""
    pictures = {match["title"]: match["picture"] for match in WALK.finditer(PAGE)}
    return [tuple(f"{name}.py" for name in found if name) for found in BOX.findall(pictures[title])]


def large_diff(folder: Path) -> list[str]:
    for name, changed in (("before", "x"), ("after", "y")):
        rows = (f"{n},{changed if n % 50 == 0 else 'same'},{'text ' * 6}\n" for n in range(40_000))
        (folder / f"{name}.csv").write_text("id,word,text\n" + "".join(rows))
    return source_counts.trace("diff", "before.csv", "after.csv", "--key", "id", "-o", "events.jsonl", folder=folder)


def compact(folder: Path) -> list[str]:
    (folder / "before.csv").write_text("id,name\n")
    (folder / "after.csv").write_text("id,name\n1,Ada\n2,Grace\n")
    extract = ["lake", "extract", "before.csv", "after.csv", "--key", "id", "--table", "people", "--client-id", "x"]
    subprocess.run([sys.executable, "-m", "driftline", *extract], cwd=folder, check=True, capture_output=True)
    return source_counts.trace("lake", "compact", "--table", "people", folder=folder)


def compare(folder: Path) -> list[str]:
    example = ROOT / "examples/payloads"
    files = (str(example / "old.json"), str(example / "new.json"))
    return source_counts.trace("compare", *files, "--schema", str(example / "invoice.yaml"), folder=folder)


def changeset_diff(folder: Path) -> list[str]:
    for name, word in (("before", "b"), ("after", "c")):
        database = sqlite3.connect(folder / f"{name}.db")
        with database:
            database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, word TEXT)")
            database.executemany("INSERT INTO items VALUES (?, ?)", [(1, "a"), (2, word)])
        database.close()
    return source_counts.trace("changeset", "diff", "before.db", "after.db", "-o", "changes.bin", folder=folder)


WALKS: dict[str, Callable[[Path], list[str]]] = {
    "`driftline diff` on small CSV files": source_counts.small_diff,
    "`driftline diff` on large files": large_diff,
    "`driftline lake compact`": compact,
    "`driftline pipeline run`": source_counts.pipeline_run,
    "`driftline compare`": compare,
    "`driftline changeset diff`": changeset_diff,
}
LIMITS = {
    "`driftline diff` on small CSV files": gate.MAX_SMALL_DIFF,
    "`driftline pipeline run`": gate.MAX_PIPELINE_RUN,
}


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_names_files_that_the_command_passes(title: str, tmp_path: Path) -> None:
    named = boxes(title)
    passed = WALKS[title](tmp_path)
    assert len(named) >= 5
    assert [files for files in named if not set(files) & set(passed)] == []
    assert len(passed) <= LIMITS.get(title, len(passed))


def test_every_walk_is_traced_but_for_spark() -> None:
    titles = {match["title"] for match in WALK.finditer(PAGE)}
    assert titles - set(WALKS) == {"`driftline diff --engine spark`"}


@pytest.mark.parametrize(
    "script", ["write_packages", "write_equality", "write_cli_reference", "write_options", "write_errors"]
)
def test_tables_of_the_docs_are_made_from_the_code(script: str) -> None:
    done = subprocess.run([sys.executable, ROOT / f"scripts/{script}.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("measure", [gate.counts, gate.history], ids=["counts", "history"])
def test_counts_of_the_gate(measure: Callable[[], list[gate.Measure]]) -> None:
    assert [each for each in measure() if not each.kept] == []


def test_no_import_passes_a_public_surface() -> None:
    assert source_counts.crossings() == []
