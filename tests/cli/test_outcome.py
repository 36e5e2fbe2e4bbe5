from __future__ import annotations

import json

import click
import pytest

from driftline.cli import _outcome as outcome
from driftline.cli.main import driftline
from driftline.errors import Cancelled, InputError


def command_that(action) -> click.Command:
    @click.command()
    @click.option("--error-format")
    def command(error_format: str | None) -> int | None:
        return action()

    return command


def fail_with(error: BaseException):
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("action", "code", "line"),
    [
        (lambda: None, 0, ""),
        (lambda: outcome.DIFFERENT, 1, ""),
        (fail_with(InputError("A file is empty", code="empty_file")), 2, "error[empty_file]: A file is empty\n"),
        (fail_with(Cancelled("cancelled")), 130, "error[cancelled]: cancelled\n"),
        (fail_with(KeyboardInterrupt()), 130, "error[cancelled]: cancelled\n"),
        (fail_with(FileNotFoundError(2, "x", "a.csv")), 2, "error[not_found]: no such file or directory: a.csv\n"),
        (fail_with(InputError("two\nlines", code="c")), 2, "error[c]: two lines\n"),
    ],
)
def test_exit_code_and_one_line(action, code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome.run(command_that(action), []) == code
    assert capsys.readouterr().err == line


def test_a_fault_of_ours_is_one_line_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRIFTLINE_DEBUG", raising=False)
    assert outcome.run(command_that(fail_with(ZeroDivisionError("oops"))), []) == 2
    err = capsys.readouterr().err
    assert err.startswith("error[internal]: ZeroDivisionError: oops")
    assert len(err.splitlines()) == 1


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    error = InputError("A file is empty", code="empty_file", side="A")
    assert outcome.run(command_that(fail_with(error)), ["--error-format", "json"]) == 2
    record = json.loads(capsys.readouterr().err)
    assert record == {"error": {"code": "empty_file", "message": "A file is empty", "side": "A"}}


def test_mistyped_words_get_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome.run(driftline, ["docter"]) == 2
    assert 'Did you mean "doctor"?' in capsys.readouterr().err
    assert outcome.run(driftline, ["--error-format=json", "--nonsense"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "usage"


def test_no_command_shows_the_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome.run(driftline, []) == 2
    assert "Usage: driftline" in capsys.readouterr().err
