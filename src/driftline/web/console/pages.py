"""Templates of the console, with the one way to show a cell."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from driftline.sinks.cell_view import Part, difference_in_words, marked_parts, missing_word, shown_text

_LONGEST_CELL = 2000  # characters shown of a cell; the rest is a download away
_NARROW = "\u2009"


def render(template: str, **shown: Any) -> str:
    """A template of this folder, filled in."""
    return _environment().get_template(template).render(**shown)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("driftline.web.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(cell=cell, changed_cell=changed_cell, difference=difference_in_words)
    environment.filters.update(number=number, bytes=byte_size, moment=when, seconds=seconds)
    return environment


def cell(value: Any) -> Markup:
    """A value as people read it: what would be invisible has a word, what is long is cut."""
    word = missing_word(value)
    if word is not None:
        return Markup('<i class="none">{}</i>').format(word)
    return _marked(_cut([(shown_text(value), False)]))


def changed_cell(old: Any, new: Any) -> tuple[Markup, Markup]:
    """Both values of a changed cell, with what differs marked."""
    before, after = marked_parts(old, new)
    return (
        _marked(_cut(before)) if missing_word(old) is None else cell(old),
        _marked(_cut(after)) if missing_word(new) is None else cell(new),
    )


def _cut(parts: Iterable[Part]) -> Iterable[Part]:
    left = _LONGEST_CELL
    for text, marked in parts:
        if left <= 0:
            return
        yield text[:left] + ("…" if len(text) > left else ""), marked
        left -= len(text)


def _marked(parts: Iterable[Part]) -> Markup:
    pieces = (Markup("<mark>{}</mark>").format(text) if marked else Markup("{}").format(text) for text, marked in parts)
    return Markup("").join(pieces)


def number(value: int) -> str:
    """Digits in groups of three."""
    return f"{value:,}".replace(",", _NARROW)


def byte_size(count: int) -> str:
    """A size in the unit that reads best."""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def when(timestamp: float | str) -> str:
    """A moment as a date and a time of day, UTC."""
    moment = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else datetime.fromtimestamp(timestamp, UTC)
    return moment.strftime("%-d %b %Y %H:%M")


def seconds(value: float) -> str:
    """A duration, with as many digits as matter."""
    return f"{value:.1f} s" if value < 100 else f"{int(value // 60)} min {int(value % 60)} s"
