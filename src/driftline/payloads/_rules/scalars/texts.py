"""Small changes of text: the empty string as null, blanks at the ends, upper and lower case."""

from __future__ import annotations

from typing import Any

from driftline.payloads._rules.scalars.parts import Step
from driftline.payloads._values.values import Value


def _null_if_empty(value: Value) -> Any:
    return None if isinstance(value, str) and value == "" else value


def _trimmed(text: str) -> str:
    return text.strip()


def _folded(text: str) -> str:
    return text.lower()


# The first takes any value, the others take text.
EMPTY_STRING_AS_NULL = Step(_null_if_empty, _null_if_empty, ("{x}", "{x}"))
TRIM = Step(_trimmed, _trimmed, ("{x}.strip()", "{x}.strip()"))
FOLD = Step(_folded, _folded, ("{x}.lower()", "{x}.lower()"))
