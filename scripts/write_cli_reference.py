"""Writes docs/cli-reference.md from the help texts; with --check only says whether it is current."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from driftline.cli._group import whole_help
from driftline.cli.main import driftline

TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli-reference.md"
HEAD = "# Command line reference\n\nWritten from the help texts by `make references`.\n"


def main() -> None:
    text = HEAD + "".join(sections(driftline, "driftline"))
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        sys.exit("docs/cli-reference.md is not current: run `make references`")


def sections(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100)
    yield f"\n## {path}\n\n```text\n{whole_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from sections(inner, f"{path} {name}")


if __name__ == "__main__":
    main()
