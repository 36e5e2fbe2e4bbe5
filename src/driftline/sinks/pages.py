"""HTML pages from templates, with the one way to show a cell; reports and the console share the look.

Reports are self-contained: no network and no other file, so that they can be mailed or kept with a build.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from driftline.sinks.cell_view import Part, difference_in_words, marked_parts, missing_word
from driftline.sinks.text import cell_text

_LONGEST_CELL = 2000  # characters shown of a cell
_NARROW_SPACE = "\u2009"


def page_bytes(template: str, **shown: object) -> Iterator[bytes]:
    """A page made of one of the templates beside this file, piece by piece."""
    for piece in environment("driftline.sinks").get_template(template).generate(**shown):
        yield piece.encode(errors="backslashreplace")  # a lone surrogate has no UTF-8


@cache
def environment(package: str) -> Environment:
    """The templates of a package, with what all pages show alike."""
    templates = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(cell=cell, changed_cell=changed_cell, difference=difference_in_words)
    templates.filters["number"] = number
    return templates


def cell(value: object) -> Markup:
    """A value as people read it: what would be invisible has a word, what is long is cut."""
    word = missing_word(value)
    if word is not None:
        return Markup('<i class="none">{}</i>').format(word)
    return _marked([(cell_text(value), False)])


def changed_cell(old: object, new: object) -> tuple[Markup, Markup]:
    """Both values of a changed cell, with what differs marked."""
    before, after = marked_parts(old, new)
    return (
        cell(old) if missing_word(old) is not None else _marked(before),
        cell(new) if missing_word(new) is not None else _marked(after),
    )


def number(value: int) -> str:
    """Digits in groups of three."""
    return f"{value:,}".replace(",", _NARROW_SPACE)


def _marked(parts: Iterable[Part]) -> Markup:
    shown = (
        Markup("<mark>{}</mark>").format(text) if mark else Markup("{}").format(text) for text, mark in _cut(parts)
    )
    return Markup("").join(shown)


def _cut(parts: Iterable[Part]) -> Iterator[Part]:
    left = _LONGEST_CELL
    for text, marked in parts:
        if left <= 0:
            return
        yield text[:left] + ("…" if len(text) > left else ""), marked
        left -= len(text)
