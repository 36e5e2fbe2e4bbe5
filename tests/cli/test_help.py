"""Help pages: the first screen, the main options of a diff within fifty lines, every option behind `--help-all`."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from driftline.cli._commands.tables import ColumnNames, diff
from driftline.cli._group import COMMANDS, FIRST_COMMANDS
from driftline.cli.main import driftline
from driftline.tables import OPTION_GROUPS, OPTIONS


def page(*words: str, width: int = 80) -> list[str]:
    done = CliRunner().invoke(driftline, [*words], terminal_width=width, prog_name="driftline")
    assert done.exit_code == 0, done.output
    return str(done.output).splitlines()


@pytest.mark.parametrize("width", [80, 100])
def test_the_main_options_fit_on_a_screen(width: int) -> None:
    lines = page("diff", "--help", width=width)
    assert len(lines) <= 50
    assert "  -k, --key COL" in "\n".join(lines)
    assert any("--help-all" in line for line in lines)


def test_every_option_is_behind_help_all_once() -> None:
    text = "\n".join(page("diff", "--help-all"))
    for option in diff.params:
        if isinstance(option, click.Option):
            assert sum(line.split()[:1] in ([name], [f"{name},"]) for line in text.splitlines() for name in option.opts)


def test_every_option_of_tables_has_one_group() -> None:
    grouped = [name for names in OPTION_GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(OPTIONS)


def test_the_first_screen_names_five_commands_before_the_others() -> None:
    lines = page("--help")
    first, more = lines.index("Commands:"), lines.index("More:")
    named = [line.split()[0] for line in lines[first:more] if line.startswith("  ") and line[2] != " "]
    assert tuple(named) == FIRST_COMMANDS
    assert all(any(line.startswith(f"  {name} ") for line in lines) for name in COMMANDS)


@pytest.mark.parametrize(("option", "expected"), [("key_columns", ["id", "idle"]), ("tolerance", ["id=", "idle="])])
def test_columns_are_completed_from_the_tables(tmp_path: Path, option: str, expected: list[str]) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,x\n")
    (tmp_path / "b.csv").write_text("id,idle\n1,x\n")
    context = click.Context(diff)
    context.params = {"a": str(tmp_path / "a.csv"), "b": str(tmp_path / "b.csv")}
    param = next(each for each in diff.params if each.name == option)
    assert [item.value for item in ColumnNames().shell_complete(context, param, "id")] == expected
    context.params = {"a": str(tmp_path / "missing.csv")}
    assert ColumnNames().shell_complete(context, param, "") == []
