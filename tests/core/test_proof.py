"""How the tests themselves are run: signals, shrinking, failing examples written down, sets by kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.internal.conjecture import engine

from support import kinds, proof
from support.processes import heed_signals, run_process

pytest_plugins = ["pytester"]

TESTS = str(Path(proof.__file__).parents[1])
# A parent that ignores the interrupt, as `nohup make test &` makes it do; its child is interrupted all the same.
IGNORING = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from support.processes import heed_signals, start_process
if sys.argv[1] == "heeds":
    heed_signals()
child = start_process([sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"])
child.wait()
signal.raise_signal(signal.SIGINT)
print("goes on")
"""
FAILING = """
from hypothesis import given, strategies as st

@given(st.lists(st.integers(), min_size=2), st.text())
def test_large(numbers, word):
    assert sum(numbers) < 1000
"""


@pytest.mark.parametrize(("how", "is_deaf"), [("heeds", "False"), ("as it is", "True")])
def test_children_can_be_interrupted_although_their_parent_cannot(how: str, is_deaf: str) -> None:
    done = run_process([sys.executable, "-c", IGNORING, how], env={"PYTHONPATH": TESTS}, stdout=subprocess.PIPE)
    assert done.stdout.decode().split("\n") == [is_deaf, "goes on", ""]


def test_examples_are_the_same_in_every_run() -> None:
    heed_signals()  # again: it changes nothing
    if not proof.is_searching():
        assert settings.default is not None
        assert settings.default.derandomize
        assert settings.default.database is None


def test_shrinking_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.MAX_SHRINKING_SECONDS == proof.SHRINKING_SECONDS == 20
    calls = {seconds: steps_to_shrink(monkeypatch, seconds) for seconds in (proof.SHRINKING_SECONDS, 0)}
    assert calls[0] < calls[proof.SHRINKING_SECONDS]


def steps_to_shrink(monkeypatch: pytest.MonkeyPatch, seconds: float) -> int:
    """How many examples are tried after the first one that fails."""
    monkeypatch.setattr(engine, "MAX_SHRINKING_SECONDS", seconds)
    tried: list[bool] = []

    @settings(derandomize=True, database=None)
    @given(st.lists(st.integers(), min_size=3))
    def fails(numbers: list[int]) -> None:
        tried.append(sum(numbers) > 1000)
        assert not tried[-1]

    with pytest.raises(AssertionError):
        fails()
    return len(tried) - tried.index(True)


def test_a_failing_example_of_a_search_is_written_down(pytester: pytest.Pytester, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", TESTS)
    pytester.makepyfile(test_failing=FAILING)
    pytester.makeconftest(
        "import pytest\nfrom pathlib import Path\nfrom support import proof\nproof.CASES = Path('cases')\n"
        "@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
        "    report = yield\n    if report.failed:\n        proof.write_case(item, call.excinfo)\n    return report\n"
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(failed=1)
    text = (pytester.path / "cases/test_failing-py-test_large.txt").read_text()
    example = text.splitlines()[1]
    assert example.startswith("@example(numbers=[")
    numbers = eval(example.removeprefix("@example(numbers=").partition("]")[0] + "]")
    assert sum(numbers) >= 1000


def test_every_kind_says_what_it_is_and_which_set_it_is_in() -> None:
    assert all(kind.about and kind.set in ("quick", "rest", "faults") for kind in kinds.KINDS)
    assert len({kind.name for kind in kinds.KINDS}) == len(kinds.KINDS)
    assert {tool for kind in kinds.KINDS for tool in kind.needs} == set(kinds.TOOLS)
    assert kinds.KINDS[-1].paths == ("*",), "every test is of some kind"
