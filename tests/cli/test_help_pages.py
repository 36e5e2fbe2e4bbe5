from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete

from driftline.cli._group import ALIASES, LEAVING, current_names
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
    for old, now in ALIASES.items():
        assert now in paths, f"{old} leads to {now}, which is no command"
        assert current_names([*old.split(), "--x"]) == [*now.split(), "--x"]
        assert (now in capfd.readouterr().err) is (old in LEAVING)
    assert current_names(["diff", "push"]) == ["diff", "push"]


def test_older_names_run_and_are_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(driftline, ["compare-batch", "--help"]) == 0
    assert "Usage: driftline payloads batch" in capfd.readouterr().out
    assert run(driftline, ["--help"]) == 0
    assert "compare-batch" not in capfd.readouterr().out


@pytest.mark.parametrize("old", [old for old in ALIASES if old not in LEAVING])
def test_older_names_have_the_same_help_and_complete_without_being_offered(
    old: str, capfd: pytest.CaptureFixture[str]
) -> None:
    now = ALIASES[old]
    assert run(driftline, [*now.split(), "--help"]) == 0
    page = capfd.readouterr()
    assert run(driftline, [*old.split(), "--help"]) == 0
    assert capfd.readouterr() == page
    assert old not in {" ".join(path) for path, _ in COMMANDS}
    complete = ShellComplete(driftline, {}, "driftline", "_DRIFTLINE_COMPLETE").get_completions
    *group, word = old.split()
    assert word not in {item.value for item in complete(group, "")}
    options = [item.value for item in complete(old.split(), "--")]
    assert "--help" in options
    assert options == [item.value for item in complete(now.split(), "--")]
