"""Values of options as people write them, on the command line, in Python or in TOML, to checked values.

Every function takes all three shapes and raises `ValueError` with the words of what is wrong.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast, get_args

from driftline.core._thresholds import TABLE_COUNTS, Threshold, parse_threshold
from driftline.tables.cells import STEPS, Kind, Step, TimePattern, Tolerance

_NOT_DELIMITERS = '"\r\n'
_TABS = ("tab", "\\t")
AUTO_DELIMITER = "auto"
_NO_TEXT_ENCODINGS = ("utf-7", "idna", "punycode", "undefined")
_AMOUNT = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBERS = re.compile(rf"({_AMOUNT})(?:,({_AMOUNT})%)?|({_AMOUNT})%")
_DURATION = re.compile(r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(ns|us|ms|s|m|h|d)")
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}


Settings = Mapping[str, Any] | Iterable[Any]  # settings of columns as they are given: COL=VALUE, pairs, a mapping


def as_it_is(value: object) -> bool:
    """A flag."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def one_of(known: tuple[str, ...]) -> Callable[[object], str]:
    """A check for one of some words."""

    def check(value: object) -> str:
        if value not in known:
            raise ValueError(f"{value!r} is none of {', '.join(known)}")
        return value

    return check


def words(value: str | Iterable[str]) -> tuple[str, ...]:
    """One text or several."""
    found = (value,) if isinstance(value, str) else tuple(value)
    for word in found:
        if not isinstance(word, str):
            raise ValueError(f"{word!r} is not a text")
    return found


def names(value: str | Iterable[str]) -> tuple[str, ...]:
    """Names of columns, each once."""
    return tuple(dict.fromkeys(words(value)))


def pairs(value: Settings) -> list[tuple[str, Any]]:
    """`COL=VALUE` texts, or the members of a mapping; a later setting of a column comes behind an earlier one."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Mapping):
        return list(value.items())
    found = []
    for one in value:
        name, mark, rest = one.partition("=") if isinstance(one, str) else (*one[:1], "=", *one[1:])
        if not mark:
            raise ValueError(f"{one!r} has no =: write it like COL=VALUE")
        found.append((name, rest))
    return found


def renames(value: Settings) -> tuple[tuple[str, str], ...]:
    """Old and new names."""
    found = pairs(value)
    for old, new in found:
        if not isinstance(new, str):
            raise ValueError(f"the new name of {old!r} is not a text")
    return tuple(found)


def encoding(value: str) -> str:
    """The name of a text encoding that this Python knows, in Python's own spelling."""
    try:
        found = codecs.lookup(value)
    except (LookupError, TypeError, ValueError):
        raise ValueError(f"{value!r} is no text encoding") from None
    is_text = getattr(found, "_is_text_encoding", True)
    if not is_text or found.name in _NO_TEXT_ENCODINGS or found.name.replace("-", "_").endswith("unicode_escape"):
        raise ValueError(f"{value!r} is no text encoding")
    return found.name


def delimiter(value: object) -> str:
    """One character, `tab` or `auto`."""
    if value in _TABS:
        return "\t"
    if value == AUTO_DELIMITER:
        return AUTO_DELIMITER
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in _NOT_DELIMITERS:
        raise ValueError("one ASCII character that is not a quote or a line end")
    return value


def normalizations(value: Settings) -> tuple[tuple[str, tuple[Step, ...]], ...]:
    """Steps for each column, in their fixed order."""
    return tuple((name, _steps(name, given)) for name, given in pairs(value))


def _steps(name: str, given: str | Iterable[str]) -> tuple[Step, ...]:
    wanted = [step.strip() for step in given.split(",")] if isinstance(given, str) else list(given)
    for step in wanted:
        if step not in STEPS:
            raise ValueError(f"{step!r} for {name!r} is none of {', '.join(STEPS)}")
    return tuple(step for step in STEPS if step in wanted)


def declared_types(value: Settings) -> tuple[tuple[str, tuple[Kind, TimePattern | None]], ...]:
    """A kind for each column, with a pattern where dates and times are written in another way than ISO 8601."""
    return tuple((name, _declared_type(name, given)) for name, given in pairs(value))


def _declared_type(name: str, given: str) -> tuple[Kind, TimePattern | None]:
    word, mark, pattern = given.partition(":") if isinstance(given, str) else (given, "", "")
    if word not in get_args(Kind) or (mark and word not in ("date", "datetime")):
        known = ", ".join([*get_args(Kind), "date:PATTERN", "datetime:PATTERN"])
        raise ValueError(f"{given!r} for {name!r} is none of {known}")
    return cast(Kind, word), TimePattern.of(pattern, of_dates=word == "date") if mark else None


def tolerances(value: Settings) -> tuple[tuple[str, Tolerance], ...]:
    """A tolerance for each column."""
    return tuple((name, _tolerance(name, str(given))) for name, given in pairs(value))


def _tolerance(name: str, text: str) -> Tolerance:
    found = _DURATION.fullmatch(text)
    if found is not None:
        from fractions import Fraction

        amount = found[1] if found[1][-1] != "." else found[1][:-1]
        return Tolerance(nanoseconds=int(Fraction(amount) * _NANOSECONDS[found[2]]))
    numbers = _NUMBERS.fullmatch(text)
    if numbers is None:
        raise ValueError(f"{text!r} for {name!r} is no tolerance: write it like 0.01, 1%, 0.01,1% or 2s")
    absolute, relative = numbers[1], numbers[2] or numbers[3]
    return Tolerance(None if absolute is None else float(absolute), None if relative is None else float(relative) / 100)


def thresholds(value: str | Iterable[str]) -> tuple[Threshold, ...]:
    """Conditions on the counts of a diff."""
    found = tuple(parse_threshold(text) for text in words(value))
    for one in found:
        if one.count not in TABLE_COUNTS or one.sign == "==":
            raise ValueError(f"{one.text!r}: count one of {', '.join(TABLE_COUNTS)}, by >, >=, < or <=")
    return found
