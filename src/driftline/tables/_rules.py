"""Equality of cells (tables §4): the normalized value (form) of a cell under a rule, and the comparison of two of them.

A form is a text: cells are equal when their forms are, and forms sort, by code point, as keys do (null, false, true,
numbers by value, dates, local times, instants, text). `STEPS` (`--normalize`) and `KINDS` (`--as`) are the tables of
rules, and engines know rules from them alone. A new rule is one object with the form of a cell, which decides, given to
`register`; it gives the same result for ten rows and for a billion. `_rule_columns` has forms of whole columns, which
are optional and must give the same; where there is none, it applies the form of the cell to every value.

>>> rule = CellRule(kind=KINDS["number"])
>>> rule.form("1.50") == rule.form("+15e-1"), rule.form("2") < rule.form("10") < rule.form("ten")
(True, True)
>>> rule = CellRule(steps=(Step("no-dashes", lambda text: text.replace("-", "")),))
>>> rule.equal(rule.form("12-34"), rule.form("1-234"))
True
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from typing import Any, Literal

SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
NULL, FALSE, TRUE, NUMBER, DATE, LOCAL, INSTANT, TEXT = "01234567"  # first letters of forms: the order of kinds

_RUN_OF_SPACE = re.compile(f"[{SPACE}]+")
_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?)0*([0-9]*))?")
_LONGEST_EXPONENT = 9
_LARGE_DOUBLE = 2.0**53  # from here on a double is an integer
EXACT_TEXT = 16  # characters; shorter texts of doubles without an exponent are exact below it
EXPONENT_SHIFT = 5 * 10**11  # makes every exponent of a leading digit positive, in 12 digits
EXPONENT_DIGITS = 12
_COMPLEMENT = str.maketrans("0123456789", "9876543210")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_ZONE = r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
_DATETIME = re.compile(
    rf"{_DATE.pattern}(?:[T ]([0-9]{{2}}):([0-9]{{2}})(?::([0-9]{{2}})(?:\.([0-9]{{1,9}}))?)?{_ZONE}?)?"
)
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), TRUE),
    **dict.fromkeys(("false", "f", "no", "n", "0"), FALSE),
}
_ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
SECOND_SHIFT = 10**6  # with an offset, an instant of the first day may be before it
_BILLION = 10**9
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of `--normalize`: a function of text, applied before null words and kinds are recognised.

    The functions are pickled by name, so they must be in a module that the other processes can import.
    """

    name: str
    cell: Callable[[str], str]
    keeps: frozenset[str] = frozenset()  # kinds whose values, in the spellings of their column form, it does not change


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of `--as`: the form of a text that is a value of this type, or None.

    Some have a column form too (`COLUMN_FORMS`), which is used where no pattern is given and every step keeps
    the kind.
    """

    name: str
    cell: Callable[[str], str | None] | None  # None: every text is a value and stays as it is
    has_patterns: bool = False  # NAME:PATTERN says how values are written
    measure: Literal["number", "time"] | None = None  # what a tolerance takes its values for


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far two numbers (absolute, relative), or two times (nanoseconds), may be apart."""

    absolute: float | None = None
    relative: float | None = None  # a fraction: 0.01 for one percent
    nanoseconds: int | None = None

    def allows(self, a: float, b: float) -> bool:
        """The verdict on two finite numbers; each operation is one of IEEE doubles."""
        distance = abs(a - b)
        if self.absolute is not None and distance <= self.absolute:
            return True
        return self.relative is not None and (distance <= abs(self.relative * a) or distance <= abs(self.relative * b))


@dataclass(frozen=True)
class CellRule:
    """How the cells of one column are compared; without settings, as they are."""

    steps: tuple[Step, ...] = ()
    null_words: tuple[str, ...] = ()
    kind: Kind | None = None
    pattern: TimePattern | None = None
    tolerance: Tolerance | None = None

    mixed: bool = False  # text is compared with typed values, or typed values have a declared type

    @property
    def is_exact(self) -> bool:
        """Whether the form of a cell is the cell."""
        return not self.mixed and not self.steps and not self.null_words and self.is_text

    @property
    def is_text(self) -> bool:
        return self.kind is None or self.kind.cell is None

    def form(self, cell: str) -> str:
        """The form of a cell of text."""
        if self.is_exact:
            return cell
        text = self._normalized(cell)
        if text in self.nulls:
            return NULL
        read = self._read(text.strip(SPACE)) if self.kind is not None else None
        return read if read is not None else TEXT + text

    def form_of_json(self, cell: str) -> str:
        """The form of a typed cell, given as JSON text; numbers and booleans count by their JSON text."""
        if self.is_exact:
            return cell
        if cell == "null":
            return NULL
        if cell[0] == '"':
            return self.form(sortable_text(json.loads(cell)))
        if self.kind is not None:
            return self.form(cell)
        if cell in ("true", "false"):
            return TRUE if cell == "true" else FALSE
        number = number_form(cell)  # where nothing is declared only text is normalized: 1 stays another value than 1.0
        return TEXT + "\U0010ffff" + cell if number is None else f"{number}\x00{cell}"

    def equal(self, a: str, b: str) -> bool:
        return a == b or (self.tolerance is not None and self._within(a, b, self.tolerance))

    def _within(self, a: str, b: str, tolerance: Tolerance) -> bool:
        if a[0] != b[0]:
            return False
        if a[0] == NUMBER:
            left, right = number_of(a), number_of(b)
            return math.isfinite(left) and math.isfinite(right) and tolerance.allows(left, right)
        if a[0] in (DATE, LOCAL, INSTANT) and tolerance.nanoseconds is not None:
            return abs(nanoseconds_of(a) - nanoseconds_of(b)) <= tolerance.nanoseconds
        return False

    def missing_forms(self, *, typed: bool) -> tuple[str, ...]:
        """The forms of a key cell that is missing: null or empty text."""
        if not self.is_exact:
            return NULL, TEXT
        return ("null", '""') if typed else ("",)

    @cached_property
    def nulls(self) -> frozenset[str]:
        """The null words as they are after normalization."""
        return frozenset(map(self._normalized, self.null_words))

    def _normalized(self, text: str) -> str:
        for step in self.steps:
            text = step.cell(text)
        return text

    def _read(self, text: str) -> str | None:
        if self.pattern is not None:
            return self.pattern.read(text)
        return self.kind.cell(text) if self.kind is not None and self.kind.cell is not None else None


def sortable_text(text: str) -> str:
    """Text that has UTF-8; a lone surrogate becomes a text that sorts after everything that starts like it."""
    return _SURROGATE.sub(lambda half: f"\ud7ff\U0010ffff{ord(half[0]):x}", text)


def number_form(text: str) -> str | None:
    """Sign, position of the leading digit, digits: from the text, so exact for numbers of any length."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    sign, whole, fraction, bare, exponent_sign, exponent = match.groups()
    if exponent == "" and text[-1] not in "0":
        return None  # an "e" without digits behind it
    if exponent is not None and len(exponent) > _LONGEST_EXPONENT:
        return None
    whole, fraction = whole or "", fraction or bare or ""
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return NUMBER + "1"
    shift = int(exponent or "0") * (-1 if exponent_sign == "-" else 1)
    leading = len(digits) - len(fraction) + shift
    digits = digits.rstrip("0")
    if sign == "-":
        # Larger ones sort first: everything is complemented, and a shorter one sorts after a longer one.
        return f"{NUMBER}0{EXPONENT_SHIFT - leading:0{EXPONENT_DIGITS}d}{digits.translate(_COMPLEMENT)}~"
    return f"{NUMBER}2{EXPONENT_SHIFT + leading:0{EXPONENT_DIGITS}d}{digits}"


def double_form(text: str) -> str | None:
    """The exact value of a double; its shortest text is that of another number where it is large."""
    number = number_form(text)
    if number is None or len(text) < EXACT_TEXT:
        return number
    value = float(text)
    return number_form(str(int(value))) if abs(value) >= _LARGE_DOUBLE and math.isfinite(value) else number


def _single_form(text: str) -> str | None:
    """The shortest text that reads back as a number of single precision."""
    if number_form(text) is None:
        return None
    import numpy as np

    return number_form(str(np.float32(float(text))))


def number_of(form: str) -> float:
    """The double nearest to a number's form."""
    sign, place, digits = form[1], form[2:14], form[14:].split("\x00")[0]
    if sign == "1":
        return 0.0
    if sign == "0":
        return -float(f"0.{digits[:-1].translate(_COMPLEMENT)}e{EXPONENT_SHIFT - int(place)}")
    return float(f"0.{digits}e{int(place) - EXPONENT_SHIFT}")


def _boolean_form(text: str) -> str | None:
    return _BOOLEANS.get(text.translate(_ASCII_LOWER))


def date_form(text: str) -> str | None:
    match = _DATE.fullmatch(text)
    days = _days(*match.groups()) if match else None
    return None if days is None else f"{DATE}{days:07d}"


def datetime_form(text: str) -> str | None:
    match = _DATETIME.fullmatch(text)
    return None if match is None else _time_form(*match.groups())


def _time_form(year: str, month: str, day: str, *clock: str | None) -> str | None:
    hour, minute, second, fraction, zone = clock
    days = _days(year, month, day)
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    offset = _offset(zone)
    if days is None or offset is None or hours > 23 or minutes > 59 or seconds > 59:
        return None
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds - offset + SECOND_SHIFT
    return f"{LOCAL if zone is None else INSTANT}{total:013d}{(fraction or '0').ljust(9, '0')}"


def _days(year: str, month: str, day: str) -> int | None:
    try:
        return date(int(year), int(month), int(day)).toordinal()
    except ValueError:
        return None


def _offset(zone: str | None) -> int | None:
    """Seconds east of Greenwich; None for an invalid offset."""
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or "0")
    if hours > 23 or minutes > 59:
        return None
    return (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)


def seconds_of(form: str) -> tuple[int, int]:
    """Seconds and nanoseconds of a date's or a time's form, from a common start."""
    if form[0] == DATE:
        return int(form[1:]) * 86400, 0
    return int(form[1:14]), int(form[14:])


def nanoseconds_of(form: str) -> int:
    seconds, nanoseconds = seconds_of(form)
    return seconds * _BILLION + nanoseconds


_DIRECTIVES = {
    "%Y": "(?P<Y>[0-9]{4})",
    "%y": "(?P<y>[0-9]{2})",
    "%m": "(?P<m>[0-9]{1,2})",
    "%d": "(?P<d>[0-9]{1,2})",
    "%H": "(?P<H>[0-9]{1,2})",
    "%M": "(?P<M>[0-9]{1,2})",
    "%S": "(?P<S>[0-9]{1,2})",
    "%f": "(?P<f>[0-9]{1,9})",
    "%z": f"(?P<z>{_ZONE[1:-1]})",
    "%%": "%",
}
_OF_TIME = ("%H", "%M", "%S", "%f", "%z")


@dataclass(frozen=True, slots=True)
class TimePattern:
    """How dates or times are written: `%d.%m.%Y`."""

    text: str
    of_dates: bool

    @classmethod
    def of(cls, text: str, *, of_dates: bool) -> TimePattern:
        """A checked pattern; `ValueError` says what is wrong with it."""
        used = re.findall("%.?", text, re.DOTALL)
        for directive in used:
            if directive not in _DIRECTIVES:
                raise ValueError(f'"{directive}" is no directive (known: {" ".join(_DIRECTIVES)})')
            if directive != "%%" and used.count(directive) > 1:
                raise ValueError(f'"{directive}" is there twice')
            if of_dates and directive in _OF_TIME:
                raise ValueError(f'"{directive}" is no part of a date')
        if ("%Y" in used) == ("%y" in used) or "%m" not in used or "%d" not in used:
            raise ValueError("year, month and day are needed, each once")
        return cls(text, of_dates)

    def read(self, text: str) -> str | None:
        """The form of a text, or None where it does not fit."""
        match = _compiled(self.text).fullmatch(text)
        if match is None:
            return None
        found: dict[str, Any] = match.groupdict()
        year = found.get("Y") or f"{'19' if int(found['y']) >= 69 else '20'}{found['y']}"
        if self.of_dates:
            days = _days(year, found["m"], found["d"])
            return None if days is None else f"{DATE}{days:07d}"
        return _time_form(year, found["m"], found["d"], *map(found.get, "HMSfz"))


@cache
def _compiled(text: str) -> re.Pattern[str]:
    parts = re.split("(%.)", text, flags=re.DOTALL)
    return re.compile("".join(_DIRECTIVES.get(part) or re.escape(part) for part in parts))


def _single_blanks(text: str) -> str:
    return _RUN_OF_SPACE.sub(" ", text).strip(" ")


def _trimmed(text: str) -> str:
    return text.strip(SPACE)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


_NUMBERS = frozenset({"number"})
_NUMBERS_AND_TIMES = frozenset({"number", "date", "datetime"})

# Steps are applied in this order, whatever the order in which they are given.
STEPS: dict[str, Step] = {
    step.name: step
    for step in (
        Step("nfc", _composed, keeps=_NUMBERS_AND_TIMES),
        Step("blanks", _single_blanks, keeps=_NUMBERS_AND_TIMES),
        Step("trim", _trimmed, keeps=_NUMBERS_AND_TIMES),
        Step("case", str.casefold, keeps=_NUMBERS),  # T and Z of a time become t and z
    )
}
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("text", None),
        Kind("number", number_form, measure="number"),
        Kind("date", date_form, has_patterns=True, measure="time"),
        Kind("datetime", datetime_form, has_patterns=True, measure="time"),
        Kind("boolean", _boolean_form),
    )
}

DOUBLE = Kind("number", double_form, measure="number")  # of a float column against integers
SINGLE = Kind("number", _single_form, measure="number")  # of a column of single precision against decimals


def register(rule: Step | Kind) -> None:
    """Add a step, which comes behind those that are there, or a kind; the name must be free."""
    table: dict[str, Any] = STEPS if isinstance(rule, Step) else KINDS
    if rule.name in table:
        raise ValueError(f"{rule.name!r} is there already")
    table[rule.name] = rule
