"""What `lake` and `gateway` say on a terminal (a real one, of both widths) and in a pipe."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from driftline.lake import Lake, compact, flush, register
from support.lakes import SCHEMA, delta
from support.processes import run_process, start_process

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = Lake(str(tmp_path_factory.mktemp("terminal") / "lake"))
    register(made, SCHEMA)
    flush(
        made, "todos", [delta("INSERT", str(n), n, title=f"t{n}") for n in range(1, 1201)], gateway_id="g", sequence=1
    )
    compact(made, "todos")
    flush(made, "todos", [delta("UPDATE", "7", 5000, title="x" * 90, done=True)], gateway_id="g", sequence=2)
    return made.root


def on_terminal(*arguments: str, width: int = 80) -> str:
    """The output of a command whose stdout is a terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": str(width), "TERM": "dumb"}
    command = [sys.executable, "-m", "driftline", *arguments]
    with start_process(command, stdout=follower, stderr=subprocess.PIPE, env=environment):
        os.close(follower)
        pieces = []
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            pieces.append(piece)
    os.close(leader)
    return b"".join(pieces).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("width", [80, 140])
def test_tables_fit_the_terminal(lake: str, width: int) -> None:
    shown = on_terminal("lake", "history", "--lake", lake, "--table", "todos", "--row", "7", width=width)
    head, *lines = shown.splitlines()
    assert head.split() == ["timestamp", "client", "operation", "columns"]
    assert "title=" in shown
    assert max(map(len, lines)) <= width


def test_words_on_a_terminal_and_data_in_a_pipe(lake: str) -> None:
    shown = on_terminal("lake", "tables", "--lake", lake)
    assert "1,200" in shown
    assert "behind" in shown
    assert on_terminal("lake", "verify", "--lake", lake, "--table", "todos").startswith("todos: proved (1,200 deltas")
    command = [sys.executable, "-m", "driftline", "lake", "compact", "--lake", lake]
    piped = run_process(command, env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, check=True)
    assert json.loads(piped.stdout)["deltas"] == 1
    assert on_terminal("lake", "compact", "--lake", lake) == "todos: nothing new to fold\n"
