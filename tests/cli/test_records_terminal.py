"""`driftline index` and `driftline changeset` on a terminal: tables within its width; in a pipe, data as before."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from support.repositories import make_repository
from support.terminals import on_terminal, plain

BEFORE = "LIMIT = 1\n\n\ndef find(users, name):\n    return [user for user in users if name in (user.name, user)]\n"
AFTER = BEFORE.replace("def find(", "def look_for(").replace("LIMIT = 1", "LIMIT = 2")


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("tree_sitter")
    path = tmp_path_factory.mktemp("terminal") / "repo"
    versions = [{"pkg/[bold]users.py": text} for text in (BEFORE, AFTER)]
    return str(make_repository(path, *versions))


def test_definitions_as_a_table(repo: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, screen = on_terminal(["index", "diff", "git:v1", "git:v2", "--repo", repo], 60)
    lines = plain(screen)
    assert code == 0
    assert max(map(len, lines)) <= 60
    assert any(line.startswith("→  find → look_for") and line.endswith("pkg/[bold]users.py") for line in lines)
    assert any(line.startswith("~  LIMIT") and "body" in line for line in lines)
    capfd.readouterr()
    assert run(driftline, ["index", "diff", "git:v1", "git:v2", "--repo", repo]) == 0
    assert "look_for" not in capfd.readouterr().err  # in a pipe the summary alone, as before


def test_what_breaks_and_what_is_kept(repo: str, tmp_path: Path) -> None:
    importable = str(make_repository(tmp_path / "api", *({"users.py": text} for text in (BEFORE, AFTER))))
    _, screen = on_terminal(["index", "api", "git:v1", "git:v2", "--repo", importable], 80)
    assert any(line.startswith("major  removed  users.find") for line in plain(screen))
    assert "\x1b[31mmajor" in screen
    _, screen = on_terminal(["index", "list", "--repo", repo], 80)
    assert max(map(len, plain(screen))) <= 80


def test_what_was_made_and_applied(tmp_path: Path) -> None:
    old, new, changes = (str(tmp_path / name) for name in ("old.db", "new.db", "changes.bin"))
    for path, rows in ((old, [(1, "a")]), (new, [(1, "b"), (2, "c")])):
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO users VALUES (?, ?)", rows)
        connection.commit()
        connection.close()
    code, screen = on_terminal(["changeset", "diff", old, new, "-o", changes], 200)
    assert (code, plain(screen)) == (1, [f"2 changes in users written to {changes}"])
    code, screen = on_terminal(["changeset", "apply", changes, old], 80)
    assert code == 0
    assert [line.split() for line in plain(screen) if "users" in line] == [["users", "1", "1", "0", "2"]]
