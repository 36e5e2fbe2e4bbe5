"""Paths as RFC 9535 queries, stored as linked steps until the text is needed.

A path is None (the root) or `(parent, step)`; a step is a member name, an array index, or the key paths of a keyed
array with the values of an item.

>>> render(((None, "odd name"), 0))
"$['odd name'][0]"
>>> render((None, ((("sku",), ("no",)), ("it's", 2))))
"$[?(@.sku=='it\\\\'s' && @.no==2)]"
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TypeAlias

from driftline.payloads._values.values import Json, Value, to_string

KeyPath = tuple[str, ...]  # member names on the way to a key value
SortField = tuple[KeyPath, bool]  # a field of `x-migration-order-by`, and whether it is descending
KeyStep = tuple[tuple[KeyPath, ...], tuple[Json, ...]]
Path: TypeAlias = "tuple[Path, str | int | KeyStep] | None"
Place = tuple[str | None, ...]  # where a rule is: member names, None for the items of an array

_SHORTHAND = re.compile("[A-Za-z_\u0080-\ud7ff\ue000-\U0010ffff][0-9A-Za-z_\u0080-\ud7ff\ue000-\U0010ffff]*")
_ESCAPED = re.compile("['\\\\\x00-\x1f\ud800-\udfff]")
_SHORT_ESCAPES = {"'": "\\'", "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# The steps of a rendered path.
STEP = re.compile(
    r"\.(?P<name>[^.\['\s(]+)|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]|\[(?P<index>[0-9]+|\*)\]"
    r"|\[\?\((?P<test>(?:[^'\\]|\\.|'(?:[^'\\]|\\.)*')*?)\)\]",
    re.DOTALL,
)
_ITEM = re.compile(r"\[(?:[0-9]+|\?\((?:[^'\\]|\\.|'(?:[^'\\]|\\.)*')*?\))\]")
_ESCAPE = re.compile(r"\\(u([0-9a-fA-F]{4})|.)", re.DOTALL)
_PLAIN = {escape[1]: char for char, escape in _SHORT_ESCAPES.items()}


def render(path: Path) -> str:
    """The path as text."""
    text = ""
    while path is not None:
        path, step = path
        text = (_member_text(step) if isinstance(step, str) else _step_text(step)) + text
    return f"${text}"


def _step_text(step: int | KeyStep) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    pairs = zip(*step, strict=True)
    tests = (f"@{''.join(map(_member_text, path))}=={_literal(value)}" for path, value in pairs)
    return f"[?({' && '.join(tests)})]"


@lru_cache(maxsize=4096)
def _member_text(name: str) -> str:
    return f".{name}" if _SHORTHAND.fullmatch(name) else f"[{_quoted(name)}]"


def _quoted(text: str) -> str:
    return f"'{_ESCAPED.sub(_escape, text)}'"


def _escape(found: re.Match[str]) -> str:
    char = found.group()
    return _SHORT_ESCAPES.get(char) or f"\\u{ord(char):04x}"


def _literal(value: Value) -> str:
    return _quoted(value) if isinstance(value, str) else to_string(value)


def place_of(path: Path) -> Place:
    """Where a path leads, without indexes and keys.

    >>> place_of((((None, "rows"), 3), "qty"))
    ('rows', None, 'qty')
    """
    steps: list[str | None] = []
    while path is not None:
        path, step = path
        steps.append(step if type(step) is str else None)
    return tuple(reversed(steps))


# Rendered paths, parsed again: for masks, totals and accepted rules.
@lru_cache(maxsize=4096)
def generalised(path: str) -> str:
    """A path without indexes and keys.

    >>> generalised("$.a[3].b[?(@.sku=='x]')].c")
    '$.a[*].b[*].c'
    """
    return _ITEM.sub("[*]", path)


def place_text(place: Place) -> str:
    """A place as a path.

    >>> place_text(("items", None, "odd name"))
    "$.items[*]['odd name']"
    """
    return "$" + "".join("[*]" if step is None else _member_text(step) for step in place)


def parse_place(path: str) -> Place | None:
    """The place that a path leads to; None where it is no rendered path.

    >>> parse_place("$.items[*]['odd name']")
    ('items', None, 'odd name')
    """
    at, place = 1, []
    while at < len(path):
        found = STEP.match(path, at)
        if found is None:
            return None
        name = found["name"] if found["name"] is not None else found["quoted"]
        place.append(None if name is None else unescaped(name))
        at = found.end()
    return tuple(place)


def unescaped(text: str) -> str:
    """The name or value inside quotes."""
    return _ESCAPE.sub(lambda found: chr(int(found[2], 16)) if found[2] else _PLAIN.get(found[1], found[1]), text)


# Key paths inside an item, as `array-key` and `order-by` name them: a name, a dotted path or a JSON Pointer.
def parse_key(text: str) -> KeyPath:
    """The member names on the way to a key value.

    >>> parse_key("/a~1b/c"), parse_key("address.city")
    (('a/b', 'c'), ('address', 'city'))
    """
    if text.startswith("/"):
        return tuple(unescape_pointer(token) for token in text[1:].split("/"))
    return tuple(text.split("."))


def parse_keys(value: Value) -> tuple[KeyPath, ...] | None:
    """The key paths of `x-migration-array-key`; None where it is neither a name nor a list of names."""
    names = _names(value)
    return None if names is None else tuple(parse_key(name) for name in names)


def parse_order(value: Value) -> tuple[SortField, ...] | None:
    """The fields of `x-migration-order-by`; None where it is not a list of names."""
    names = _names(value)
    if names is None or "-" in names:
        return None
    return tuple((parse_key(name.removeprefix("-")), name.startswith("-")) for name in names)


def _names(value: Value) -> list[str] | None:
    """A name or a list of names; None where one is empty or no text, or where there is none."""
    given = value if isinstance(value, list) else [value]
    names = [name for name in given if isinstance(name, str) and name]
    return names if names and len(names) == len(given) else None


# Conventions for member names.
def to_camel(name: str) -> str:
    """A name in camel case; leading underscores stay.

    >>> to_camel("first_name"), to_camel("_links"), to_camel("a1_b2")
    ('firstName', '_links', 'a1B2')
    """
    return re.sub(r"(?<=[^_])_+([^_])", lambda found: found[1].upper(), name)


def to_snake(name: str) -> str:
    """A name in snake case.

    >>> to_snake("firstName"), to_snake("userID"), to_snake("HTTPStatus")
    ('first_name', 'user_id', 'http_status')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


NAMINGS = {"snake-to-camel": to_camel, "camel-to-snake": to_snake}  # Old's name -> New's


def unescape_pointer(token: str) -> str:
    """The member name of a JSON Pointer token (RFC 6901)."""
    return token.replace("~1", "/").replace("~0", "~")


def escape_pointer(token: str) -> str:
    """A member name as a JSON Pointer token."""
    return token.replace("~", "~0").replace("/", "~1")
