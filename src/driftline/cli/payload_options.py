"""Options that the commands for payloads share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftline.cli.commands import Function

if TYPE_CHECKING:
    from driftline.payloads._captures import Masker
    from driftline.payloads._rules.path_rules import PathRule


def schema_options(command: Function) -> Function:
    """Add `--root` and `--config`."""
    root = click.option(
        "--root",
        metavar="NAME",
        help='The root schema: a component, a JSON Pointer, or an operation such as "GET /v1/charges 200".',
    )
    config = click.option("--config", metavar="FILE", help="Limits and switches of the engine, YAML or JSON.")
    return root(config(command))


def path_options(command: Function) -> Function:
    """Add the rules of paths, which win over the schema's."""
    for option in (
        click.option("--ignore", multiple=True, metavar="PATH", help="Leave out what a JSONPath selects."),
        click.option("--unordered", multiple=True, metavar="PATH", help="Compare arrays without their order."),
        click.option("--key", "keys", multiple=True, metavar="PATH=FIELD[,FIELD]", help="Align the items of arrays."),
        click.option(
            "--tolerance",
            "tolerances",
            multiple=True,
            metavar="PATH=NUMBER|DURATION",
            help="Let numbers or times be so far apart.",
        ),
    ):
        command = option(command)
    return command


def mask_options(command: Function) -> Function:
    """Add `--mask` and `--mask-key-file`."""
    mask = click.option("--mask", "masked", multiple=True, metavar="PATH", help="Show tokens instead of values.")
    key = click.option("--mask-key-file", metavar="FILE", help="The key of the tokens.  [default: a new one each run]")
    return mask(key(command))


def flags_of(
    ignore: tuple[str, ...], unordered: tuple[str, ...], keys: tuple[str, ...], tolerances: tuple[str, ...]
) -> tuple[PathRule, ...]:
    """The rules of paths that a call gave; a text that is no path is refused at once."""
    from driftline.payloads._rules.path_rules import ignore_flag, key_flag, start_state, tolerance_flag, unordered_flag

    flags = (
        *map(ignore_flag, ignore),
        *map(unordered_flag, unordered),
        *map(key_flag, keys),
        *map(tolerance_flag, tolerances),
    )
    start_state((), flags)
    return flags


def read_mask_key(path: str | None) -> bytes | None:
    """The key of masked values, from a file."""
    from driftline.core._files import explain_io_errors

    if path is None:
        return None
    with explain_io_errors(path):
        key = Path(path).read_bytes().strip()
    if not key:
        raise click.UsageError(f"--mask-key-file {path} is empty: put some random bytes into it")
    return key


def masker_of(masked: tuple[str, ...], key_file: str | None) -> Masker | None:
    """The masker that a call asked for."""
    from driftline.payloads._captures import Masker

    key = read_mask_key(key_file)
    return Masker(masked, key) if masked else None
