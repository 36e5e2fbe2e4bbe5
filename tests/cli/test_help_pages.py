from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from driftline.cli._group import ALIASES, current_names
from driftline.cli._outcome import run
from driftline.cli.main import driftline


def all_commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from all_commands(inner, (*path, name))


COMMANDS = list(all_commands(driftline))


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) or "driftline" for path, _ in COMMANDS])
def test_every_command_explains_itself(path: tuple[str, ...], command: click.Command) -> None:
    text = command.get_help(click.Context(command, info_name=" ".join(("driftline", *path))))
    assert command.help, "a command needs a help text"
    if not isinstance(command, click.Group):
        assert "Examples:" in text, "a command's help shows examples"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.opts[0]} needs a help text"


def test_older_names_are_understood_and_lead_to_commands_that_exist(capfd: pytest.CaptureFixture[str]) -> None:
    paths = {" ".join(path) for path, _ in COMMANDS}
    for old, alias in ALIASES.items():
        assert alias.now in paths, f"{old} leads to {alias.now}, which is no command"
        assert current_names([*old.split(), "--x"]) == [*alias.now.split(), "--x"]
        assert (alias.now in capfd.readouterr().err) is not alias.for_good
    assert current_names(["diff", "conformance"]) == ["diff", "conformance"]


def test_older_names_run_and_are_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(driftline, ["conformance", "--help"]) == 0
    assert "Usage: driftline dev conformance" in capfd.readouterr().out
    assert run(driftline, ["--help"]) == 0
    assert "conformance" not in capfd.readouterr().out
