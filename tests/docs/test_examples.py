"""Every example in README and docs is run: `console` blocks as commands, `python` blocks with prompts as doctests.

A console block holds `$ command` lines, each followed by what it prints; `...` stands for any text, on a line of its
own for any lines. `# exit 1` behind a command is its exit code (0 otherwise). All blocks of one page run in one
scratch directory that begins with a copy of `examples/`.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import driftline
from support.processes import run_process

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCE = str(Path(driftline.__file__).parents[1])
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT_CODE = re.compile(r"\s+# exit (\d+)$")


def blocks(page: Path) -> list[tuple[str, str]]:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(kind, text) for kind, text in found if kind == "console" or ">>>" in text]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block with its expected output; a trailing backslash goes on."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            line, _, output = output.partition("\n")
            command = command[:-1] + line.strip()
        yield command, output


def pattern_of(expected: str) -> re.Pattern[str]:
    lines = [".*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") for line in expected.splitlines()]
    return re.compile(r"\n".join(lines).replace("\n.*\n", "\n(?:.*\n)?"), re.DOTALL)


@pytest.fixture
def workshop(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A scratch directory with the examples, and an environment in which `driftline` is this source tree's."""
    shutil.copytree(ROOT / "examples", tmp_path / "work" / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "driftline"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m driftline "$@"\n')
    shim.chmod(0o755)
    search = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": search, "PYTHONPATH": SOURCE, "COLUMNS": "100", "NO_COLOR": "1"}
    return tmp_path / "work", environment


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_do_what_the_page_says(page: Path, workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, environment = workshop
    names: dict = {}
    for kind, text in blocks(page):
        if kind == "console":
            for command, expected in commands(text):
                run_command(command, expected, directory, environment)
        else:
            monkeypatch.chdir(directory)
            run_session(text, names, page.name)


def run_command(command: str, expected: str, directory: Path, environment: dict[str, str]) -> None:
    if command in {"make demo", "make test"}:  # these two are run by test_readme.py and by whoever runs this
        return
    code = EXIT_CODE.search(command)
    command = EXIT_CODE.sub("", command)
    done = run_process(command, shell=True, cwd=directory, env=environment, capture_output=True, text=True)
    shown = (done.stdout + done.stderr).rstrip("\n")
    assert done.returncode == (int(code.group(1)) if code else 0), f"$ {command}\n{shown}"
    expected = expected.strip("\n")
    assert pattern_of(expected).fullmatch(shown), f"$ {command}\nexpected:\n{expected}\nshown:\n{shown}"


def run_session(text: str, names: dict, name: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(text, names, name, name, 0)
    problems: list[str] = []
    doctest.DocTestRunner(optionflags=flags).run(test, out=problems.append, clear_globs=False)
    names.update(test.globs)
    assert not problems, "".join(problems)
