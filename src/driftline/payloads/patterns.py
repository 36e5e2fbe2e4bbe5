"""Regular expressions from callers: Python's `re` meaning, but none may hang the process.

Patterns that cannot backtrack much run in `re`; the others run in `regex`, which can be told to give up.

>>> SafePattern("^ORD-[A-Z]{2}").match("ORD-AB-1")
True
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import regex

MATCH_SECONDS = 0.25
MAX_PATTERN_LENGTH = 10_000

# What can repeat a varying number of times; character classes and escapes are skipped as a whole.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|\(\?[a-zA-Z#<=!:P-]+|.", re.DOTALL)
_VARIABLE = re.compile(r"[*+?]|\{\d*,\d*\}")
_BACKREFERENCE = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")


class PatternError(ValueError):
    """The text is not a usable regular expression."""


class PatternTimeoutError(Exception):
    """A match took too long."""


class SafePattern:
    """A compiled pattern whose `match` and `search` end."""

    __slots__ = ("_engine", "_limited", "text")

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        self.text = text
        self._engine, self._limited = _compiled(text, ignore_case)

    @property
    def unlimited_match(self) -> Callable[[str], Any] | None:
        """`re`'s own match, where it cannot take long."""
        return None if self._limited else self._engine.match

    def match(self, value: str, seconds: float = MATCH_SECONDS) -> bool:
        """Whether the pattern matches at the start of the value (`re.match`)."""
        if not self._limited:
            return self._engine.match(value) is not None
        try:
            return self._engine.match(value, timeout=seconds) is not None
        except TimeoutError:
            raise PatternTimeoutError from None

    def search(self, value: str, seconds: float = MATCH_SECONDS) -> bool:
        """Whether the pattern matches anywhere in the value."""
        if not self._limited:
            return self._engine.search(value) is not None
        try:
            return self._engine.search(value, timeout=seconds) is not None
        except TimeoutError:
            raise PatternTimeoutError from None


def _compiled(text: str, ignore_case: bool) -> tuple[Any, bool]:
    if len(text) > MAX_PATTERN_LENGTH:
        raise PatternError(f"longer than {MAX_PATTERN_LENGTH} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = re.compile(text, re.IGNORECASE if ignore_case else 0)
            if is_simple(text):
                return plain, False
            return regex.compile(text, regex.IGNORECASE if ignore_case else 0), True
    except (re.error, regex.error, RecursionError, OverflowError, ValueError) as error:
        raise PatternError(str(error).split("\n")[0]) from None


def is_simple(text: str) -> bool:
    """Whether matching is linear: at most one varying repeat, none of them on a group.

    >>> is_simple(r"^ORD-\\d{6}$"), is_simple("(a+)+$"), is_simple("a?a?aa")
    (True, False, False)
    """
    if _BACKREFERENCE.search(text):
        return False
    varying = 0
    previous = ""
    for token in _TOKEN.findall(text):
        is_repeat = _VARIABLE.fullmatch(token) is not None
        if previous == ")" and (is_repeat or token.startswith("{")):
            return False
        varying += is_repeat
        previous = token
    return varying <= 1
