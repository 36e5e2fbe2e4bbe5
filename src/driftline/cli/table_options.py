"""The options of a table diff on the command line, made from the one table of them, and rules files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from driftline.cli.commands import Function
from driftline.cli.completion import Words
from driftline.core._files import explain_io_errors
from driftline.errors import DriftlineError, OptionError
from driftline.tables._options import OPTIONS, DiffOptions, Option, option_names

_SIDES = ("a", "b")


def table_options(command: Function) -> Function:
    """Add every option of a diff, and `--rules`."""
    rules = click.option("--rules", metavar="FILE", help="Options from a TOML file; those given here replace them.")
    command = rules(command)
    for name, option in reversed(OPTIONS.items()):
        if option.each_side:
            for side in reversed(_SIDES):
                text = f"The same for {side.upper()} alone."
                command = _click_option(f"{name}_{side}", option, flag=None, text=text)(command)
        command = _click_option(name, option, flag=option.flag, text=option.help)(command)
    order = click.option("--ignore-column-order", is_flag=True, help="The same as --header-mode sorted.")
    return order(command)


_READING = ("encoding", "delimiter", "no_header", "duplicate_columns", "ragged", "skip_blank_lines")


def reading_options(command: Function) -> Function:
    """Add the options that say how one CSV file is read."""
    for name in reversed(_READING):
        option = OPTIONS[name]
        command = _click_option(name, option, flag=option.flag, text=option.help)(command)
    return command


def _click_option(name: str, option: Option, flag: str | None, text: str) -> Function:
    names = [flag or f"--{name.replace('_', '-')}", name]
    if option.short is not None:
        names.insert(0, option.short)
    if option.given == "flag":
        return click.option(*names, is_flag=True, default=None, help=text)
    about: dict[str, Any] = {"metavar": option.metavar, "help": text, "multiple": option.given != "text"}
    if option.words:
        about["type"] = Words(lambda: option.words)
    return click.option(*names, **about)


def given_options(*, rules: str | None = None, ignore_column_order: bool = False, **given: object) -> dict[str, Any]:
    """What was asked for: the rules file's options, each replaced as a whole by what the command line gives."""
    chosen = {name: value for name, value in given.items() if value is not None and value != ()}
    if ignore_column_order:
        chosen.setdefault("header_mode", "sorted")
    return {**(read_rules(rules) if rules is not None else {}), **chosen}


@contextmanager
def naming_remedies(options: DiffOptions) -> Iterator[None]:
    """Say behind an error which option takes such a file."""
    try:
        yield
    except DriftlineError as error:
        from driftline.tables._explain import remedy

        words = remedy(error, options)
        if words is not None:
            error.message = f"{error.message}; {words}"
        raise


def read_rules(path: str) -> dict[str, Any]:
    """The options of a rules file."""
    with explain_io_errors(path):
        text = Path(path).read_bytes()
    try:
        import tomllib

        content = tomllib.loads(text.decode())
    except ValueError as error:
        raise OptionError(f"{path} is not valid TOML: {error}", code="invalid_option") from None
    unknown = sorted(content.keys() - option_names())
    if unknown:
        raise OptionError(f"{path}: unknown option {unknown[0]!r}", code="invalid_option")
    renamed = {"key": "key_columns", "as": "types"}
    return {renamed.get(name, name): value for name, value in content.items()}
