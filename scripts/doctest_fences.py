"""For the site: examples in docstrings are shown as code, where Markdown would take `>>>` for quotations."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

EXAMPLE = re.compile(r"(?m)^>>> .*\n?(?:^(?!\s*$).*\n?)*")


class DoctestFences(Extension):
    """Fences the examples of every docstring that is shown."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(fenced, obj.docstring.value)


def fenced(example: re.Match[str]) -> str:
    return "```pycon\n" + example.group().rstrip("\n") + "\n```\n"
