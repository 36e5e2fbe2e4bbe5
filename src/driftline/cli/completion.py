"""What a shell offers when somebody presses Tab: file names for arguments and files, the known words for options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_FILES = ("FILE", "DIR", "PATH")


class Words(click.ParamType[str]):
    """A text of which some values are known; it is checked where it is used, so that the error has its own code."""

    name = "text"

    def __init__(self, words: Callable[[], Iterable[str]]) -> None:
        self._words = words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The words that begin like what was typed."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self._words() if word.startswith(incomplete)]


def offer_files() -> None:
    """Let arguments, and options that take a file, complete to file names; for a process that only completes."""
    from click.shell_completion import CompletionItem

    def shell_complete(
        self: object, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        takes_file = isinstance(param, click.Argument) or (param.metavar or "").startswith(_FILES)
        return [CompletionItem(incomplete, type="file")] if takes_file else []

    setattr(click.types.StringParamType, "shell_complete", shell_complete)  # noqa: B010 - no other door in click
