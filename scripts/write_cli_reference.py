"""Writes docs/cli/, a page a command, from the commands themselves; with --check only says whether it is current."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from generated import DOCS, ROOT, code, plain, prose, table, write_or_check

from driftline.cli._group import COMMANDS, GroupedCommand, examples
from driftline.cli.main import driftline

FOLDER = DOCS / "cli"
HEAD = "Written from the commands by `make references`.\n"


def main() -> None:
    pages = dict(all_pages())
    for old in sorted(set(FOLDER.glob("*.md")) - set(pages)):
        if "--check" in sys.argv[1:]:
            sys.exit(f"{old.relative_to(ROOT)} is of no command: run `make references`")
        old.unlink()
    write_or_check(pages)


def all_pages() -> Iterator[tuple[Path, str]]:
    """A page for each command of `driftline --help`, with the commands inside it, and one that lists them."""
    root = click.Context(driftline, info_name="driftline")
    yield FOLDER / "README.md", overview(root)
    for name in driftline.list_commands(root):
        command = driftline.get_command(root, name)
        assert command is not None
        yield FOLDER / page_of(name), f"# driftline {name}\n\n" + "".join(sections(command, name, root, level=1))[1:]


def page_of(name: str) -> str:
    """The file of a command's page: `index.md` would be the home of its folder."""
    return f"driftline-{name}.md"


def overview(root: click.Context) -> str:
    rows = [[f"[`driftline {name}`]({page_of(name)})", plain(text)] for name, (_, text) in COMMANDS.items()]
    parts = [
        f"# Command line\n\n{HEAD}",
        f"{table(['command', 'what it does'], rows)}\n",
        "The options of `driftline` itself stand before the command: `driftline --error-format json diff …`.\n",
        *options_of(driftline, root),
        *epilog("driftline"),
    ]
    return "\n".join(parts)


def sections(command: click.Command, name: str, above: click.Context, level: int) -> Iterator[str]:
    """What a command does, its usage, options and examples; then the commands inside it."""
    context = click.Context(command, info_name=name, parent=above)
    if level > 1:
        yield f"\n{'#' * level} {context.command_path}\n"
    about = re.split(r"\n\s*\n", inspect.cleandoc(command.help or "").partition("\f")[0])
    usage = f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    parts = [*(f"{prose(part)}\n" for part in about if part), f"```text\n{usage}\n```\n"]
    yield "\n" + "\n".join([*parts, *options_of(command, context), *epilog(context.command_path)])
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            if inner is not None and not inner.hidden:
                yield from sections(inner, inner_name, context, level + 1)


def options_of(command: click.Command, context: click.Context) -> Iterator[str]:
    """A table of options; one for each section of the help page, below its title, where it has sections."""
    options = [param for param in command.get_params(context) if isinstance(param, click.Option)]
    titled = command.titled(context) if isinstance(command, GroupedCommand) else [("", options)]
    for title, shown in titled:
        records = [record for param in shown if (record := param.get_help_record(context)) is not None]
        rows = [[code(names), plain(" ".join(text.split()))] for names, text in records if names != "--help"]
        if rows:
            yield (f"## {title}\n\n" if title else "") + f"{table(['option', 'meaning'], rows)}\n"
    if len(titled) > 1:
        yield "## Examples and exit codes\n"


def epilog(path: str) -> Iterator[str]:
    """The examples of a command as code, and what is said below them."""
    text = examples(path).replace("\b\n", "").strip("\n")
    for part in re.split(r"\n\n(?! )", text) if text else ():
        first, _, rest = part.partition("\n")
        if first.endswith(":") and rest.startswith("  "):
            yield f"{prose(first)}\n\n```text\n{inspect.cleandoc(rest)}\n```\n"
        else:
            yield f"{prose(part)}\n"


if __name__ == "__main__":
    main()
