"""Self-contained HTML pages: no network and no other file, so that they can be mailed or kept with a build."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def page_bytes(template: str, **shown: Any) -> Iterator[bytes]:
    """A page made of one of the templates beside this file, piece by piece."""
    templates = Environment(
        loader=PackageLoader("driftline.sinks", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for piece in templates.get_template(template).generate(**shown):
        yield piece.encode(errors="backslashreplace")  # a lone surrogate has no UTF-8
