"""HTML pages from templates, and the rendering of a changed cell that reports, terminal and console share.

Reports are self-contained: they need no network and no other file, so that they can be mailed or stored with a build.

>>> highlight("Bo Dubois", "Bo Dubois Jr")
([('Bo Dubois', False)], [('Bo Dubois', False), (' Jr', True)])
>>> difference_in_words("2537.18", "2563.08"), difference_in_words("2024-02-28", "2024-03-01")
('+25.9 (+1.0%)', '+2 days')
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from difflib import SequenceMatcher
from functools import cache
from typing import TYPE_CHECKING, Any

from driftline.sinks._formats import cell_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jinja2 import Environment
    from markupsafe import Markup

Part = tuple[str, bool]  # a part of a text, and whether it changed

_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")
_MOST_TOKENS = 400  # aligning is quadratic: longer texts are compared at their ends only
_LEAST_SHARED = 0.4  # below this share of common characters, marks would only be noise
# Text that is written like an amount: 05 is a code, and 0 and 1 beside each other are a flag.
_NUMBER = re.compile(r"[+-]?((0|[1-9]\d{0,29})(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,2})?")
_FLAG = {"0", "1"}
_LONGEST_CELL = 2000  # characters
_SHORT = 24  # characters of a cell that is not broken
_LEAD = 200  # characters of a long cell before its first difference
_LONGEST_ALIGNED = 20_000  # characters; longer texts are compared at their ends only
_MOST_DIGITS = 6  # of a difference; longer ones are rounded to three


def page_bytes(template: str, **shown: object) -> Iterator[bytes]:
    """A page from a template of this package, in chunks."""
    for piece in environment("driftline.sinks").get_template(template).generate(**shown):
        yield piece.encode(errors="backslashreplace")  # a lone surrogate has no UTF-8


@cache
def environment(package: str) -> Environment:
    """The templates of a package and, for what pages share, of this one, with the functions of all pages."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    packages = dict.fromkeys((package, "driftline.sinks"))
    templates = Environment(
        loader=ChoiceLoader([PackageLoader(each, "templates") for each in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(cell=cell, changed_cell=changed_cell, difference=difference_in_words)
    templates.filters.update(number=number, bytes=size_text)
    templates.tests["short"] = is_short
    return templates


def cell(value: object) -> Markup:
    """A value as HTML: a word for what would be invisible, and long text is cut."""
    from markupsafe import Markup

    word = missing_word(value)
    if word is not None:
        return Markup('<i class="none">{}</i>').format(word)
    return _marked([(cell_text(value), False)])


def changed_cell(old: object, new: object) -> tuple[Markup, Markup]:
    """Both values of a changed cell as HTML, with what differs marked."""
    before, after = highlight(old, new)
    return (
        cell(old) if missing_word(old) is not None else _marked(before),
        cell(new) if missing_word(new) is not None else _marked(after),
    )


def number(value: int) -> str:
    """Digits in groups of three."""
    return f"{value:,}"


def size_text(count: int) -> str:
    """A number of bytes in the unit that reads best.

    >>> size_text(73_400), size_text(12)
    ('73 KB', '12 B')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}" if count < 10 * size else f"{count / size:,.0f} {unit}"
    return f"{count} B"


def is_short(value: object) -> bool:
    """Whether a cell stands on one line: a date or a word is not broken."""
    return len(cell_text(value)) <= _SHORT


def _marked(parts: Iterable[Part]) -> Markup:
    from markupsafe import Markup

    shown = (
        Markup("<mark>{}</mark>").format(text) if mark else Markup("{}").format(text) for text, mark in _cut(parts)
    )
    return Markup("").join(shown)


def _cut(parts: Iterable[Part]) -> Iterator[Part]:
    """A window of a long text, around the first part that is marked."""
    parts = list(parts)
    is_long = sum(len(text) for text, _ in parts) > _LONGEST_CELL
    if is_long and len(parts) > 1 and not parts[0][1] and len(parts[0][0]) > 2 * _LEAD:
        parts[0] = ("…" + parts[0][0][-_LEAD:], False)
    left = _LONGEST_CELL
    for text, marked in parts:
        if left <= 0:
            return
        yield text[:left] + ("…" if len(text) > left else ""), marked
        left -= len(text)


def missing_word(value: object) -> str | None:
    """The word for a value that would be invisible, or None for any other value."""
    if value is None:
        return "null"
    return "empty" if value == "" else None


def highlight(old: object, new: object) -> tuple[list[Part], list[Part]]:
    """Both texts in parts, those marked that only one of them has."""
    before, after = cell_text(old), cell_text(new)
    if not before or not after or difference_in_words(old, new):
        return _whole(before), _whole(after)
    if len(before) + len(after) > _LONGEST_ALIGNED:
        start, end = _common_ends(before, after)  # all is marked that is between
        return _three_parts(before, start, end), _three_parts(after, start, end)
    left, right = _TOKENS.findall(before), _TOKENS.findall(after)
    if len(left) + len(right) > _MOST_TOKENS or (len(left) == 1 and len(right) == 1):
        left, right = _cut_at_ends(before, after)
    return _aligned(left, right)


def difference_in_words(old: Any, new: Any) -> str:
    """The difference of two numbers or dates as text; empty for other values."""
    if str(old) in _FLAG and str(new) in _FLAG:
        return ""
    before, after = _number(old), _number(new)
    if before is not None and after is not None:
        return _number_difference(before, after)
    try:
        days = (date.fromisoformat(new) - date.fromisoformat(old)).days
    except (TypeError, ValueError):
        return ""
    return _signed(f"{days:+d} day{'' if abs(days) == 1 else 's'}") if days else ""


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value).strip()
    try:
        return Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:
        return None


def _number_difference(before: Decimal, after: Decimal) -> str:
    moved = after - before
    if not moved:
        return ""
    text = f"{_rounded(moved):+,f}" if abs(moved.adjusted()) < 16 else f"{moved:+.3e}"
    share = f" ({float(moved / abs(before)):+.1%})" if before else ""
    return _signed(text if share in (" (+0.0%)", " (-0.0%)") else text + share)


def _rounded(moved: Decimal) -> Decimal:
    """An amount with at most as many digits as can be read at a glance."""
    exact = moved.normalize()
    exponent = exact.as_tuple().exponent
    if len(exact.as_tuple().digits) <= _MOST_DIGITS or not isinstance(exponent, int) or exponent >= 0:
        return exact
    return exact.quantize(Decimal(1).scaleb(min(0, exact.adjusted() - 2))).normalize()


def _signed(text: str) -> str:
    return text.replace("-", "−")


def _whole(text: str) -> list[Part]:
    return [(text, False)] if text else []


def _cut_at_ends(before: str, after: str) -> tuple[list[str], list[str]]:
    """Both texts cut where they start and stop to differ; uncut where they share too little."""
    start, end = _common_ends(before, after)
    if start + end < _LEAST_SHARED * max(len(before), len(after)):
        return [before], [after]
    both = (_three_parts(text, start, end) for text in (before, after))
    left, right = ([text for text, _ in parts] for parts in both)
    return left, right


def _common_ends(before: str, after: str) -> tuple[int, int]:
    """How many characters two texts share at their start, and behind that at their end."""
    start = common_start(before, after)
    shortest = min(len(before), len(after)) - start
    return start, common_start(before[len(before) - shortest :][::-1], after[len(after) - shortest :][::-1])


def common_start(a: str, b: str) -> int:
    """How many characters two texts share at their start."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _three_parts(text: str, start: int, end: int) -> list[Part]:
    parts = ((text[:start], False), (text[start : len(text) - end], True), (text[len(text) - end :], False))
    return [part for part in parts if part[0]]


def _aligned(left: Sequence[str], right: Sequence[str]) -> tuple[list[Part], list[Part]]:
    steps = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    before = [("".join(left[i:j]), kind != "equal") for kind, i, j, _, _ in steps if j > i]
    return before, [("".join(right[k:m]), kind != "equal") for kind, _, _, k, m in steps if m > k]
