"""YAML text as plain JSON values, with positions, and values as YAML text.

libyaml splits the text into events, a loop builds values from them by the rules of YAML 1.2. What is rare (tags, merge
keys, directives) and whatever is wrong is read by ruamel instead, which is slow and names the error.

>>> read_yaml("a: yes\\nb: [=, 0o10, 2020-01-01]")
{'a': 'yes', 'b': ['=', 8, '2020-01-01']}
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from driftline.errors import PayloadError
from driftline.payloads._values.limits import current
from driftline.payloads._values.paths import escape_pointer

MAX_NESTING = 500
_EVENTS_BETWEEN_CLOCK_LOOKS = 512
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]+")
_VALUE_TAG = "tag:yaml.org,2002:value"
_TEXT_TAG = "tag:yaml.org,2002:str"
_MERGE = "<<"


class _UnusualError(Exception):
    """What the loop over events leaves to ruamel."""


def read_yaml(text: str) -> Any:
    """The content of a document; raises `SCHEMA_PARSE_ERROR`."""
    try:
        return _Reader(text).read()
    except _UnusualError:
        return _read_slowly(text)


def yaml_marks(text: str) -> dict[str, tuple[int, int]]:
    """Pointer -> (line, column), from 1; empty where the text cannot be read."""
    reader = _Reader(text.replace("\t", " "), has_marks=True)
    try:
        reader.read()
    except _UnusualError:
        return _slow_marks(text)
    return reader.marks


class _Open:
    """A container whose end has not been read yet."""

    __slots__ = ("key", "pointer", "value")

    def __init__(self, value: Any, pointer: str) -> None:
        self.value = value
        self.pointer = pointer
        self.key: str | None = None  # of the member whose value comes next


class _Reader:
    """Builds the values of one document from the events of libyaml."""

    def __init__(self, text: str, *, has_marks: bool = False) -> None:
        self._text = text
        self._has_marks = has_marks
        self._open: list[_Open] = []
        self._anchors: dict[str, Any] = {}
        self._anchor_marks: dict[str, tuple[int, int]] = {}
        self._content: Any = None
        self.marks: dict[str, tuple[int, int]] = {}

    def read(self) -> Any:
        """The content; raises `_UnusualError` for what is rare or wrong."""
        from yaml.events import (
            AliasEvent,
            DocumentStartEvent,
            MappingEndEvent,
            MappingStartEvent,
            ScalarEvent,
            SequenceEndEvent,
            SequenceStartEvent,
        )

        documents = 0
        for event in self._events():
            kind = type(event)
            if kind is ScalarEvent:
                self._scalar(event)
            elif kind is MappingStartEvent or kind is SequenceStartEvent:
                self._start(event, {} if kind is MappingStartEvent else [])
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                self._open.pop()
            elif kind is AliasEvent:
                self._alias(event)
            elif kind is DocumentStartEvent:
                documents += 1
                if documents > 1 or event.version or event.tags:
                    raise _UnusualError
        return self._content

    def _events(self) -> Iterator[Any]:
        from yaml import YAMLError
        from yaml.cyaml import CParser

        deadline = current()
        try:
            parser = CParser(self._text)
            count = 0
            while (event := parser.get_event()) is not None:
                count += 1
                if not count % _EVENTS_BETWEEN_CLOCK_LOOKS:
                    deadline.check()
                yield event
        except (YAMLError, UnicodeError):
            raise _UnusualError from None

    def _scalar(self, event: Any) -> None:
        if event.tag is not None:
            raise _UnusualError
        text = event.value
        owner = self._open[-1] if self._open else None
        if owner is not None and owner.key is None and type(owner.value) is dict:
            if text == _MERGE and event.implicit[0]:
                raise _UnusualError
            owner.key = text if not event.implicit[0] else key_text(_plain(text))
            if owner.key in owner.value or event.anchor is not None:
                raise _UnusualError
            return
        self._place(_plain(text) if event.implicit[0] else text, event)

    def _start(self, event: Any, value: Any) -> None:
        if event.tag is not None or len(self._open) >= MAX_NESTING:
            raise _UnusualError
        self._open.append(_Open(value, self._place(value, event)))

    def _alias(self, event: Any) -> None:
        name = event.anchor
        value = self._anchors.get(name, self)
        if value is self or any(one.value is value for one in self._open):
            raise _UnusualError
        self._place(value, event)

    def _place(self, value: Any, event: Any) -> str:
        """Put a value where it belongs; its pointer, where marks are wanted."""
        pointer = ""
        owner = self._open[-1] if self._open else None
        if owner is None:
            self._content = value
        elif type(owner.value) is list:
            pointer = f"{owner.pointer}/{len(owner.value)}" if self._has_marks else ""
            owner.value.append(value)
        else:
            if owner.key is None:
                raise _UnusualError  # a container as a key
            pointer = f"{owner.pointer}/{escape_pointer(owner.key)}" if self._has_marks else ""
            owner.value[owner.key] = value
            owner.key = None
        if self._has_marks:
            self._mark(pointer, event)
        if event.anchor is not None and type(event).__name__ != "AliasEvent":
            self._anchors[event.anchor] = value
        return pointer

    def _mark(self, pointer: str, event: Any) -> None:
        mark = (event.start_mark.line + 1, event.start_mark.column + 1)
        if type(event).__name__ == "AliasEvent":
            mark = self._anchor_marks[event.anchor]
        elif event.anchor is not None:
            self._anchor_marks[event.anchor] = mark
        self.marks[pointer] = mark


@lru_cache(maxsize=8192)
def _plain(text: str) -> Any:
    """The value of a plain scalar."""
    if not text or text[0] in "0123456789-+.~nNtTfF=<":
        if _INTEGER.fullmatch(text) and len(text) < 4000:
            return int(text)
        if _DECIMAL.fullmatch(text):
            return float(text)
        return _resolved(text)
    return text


def _resolved(text: str) -> Any:
    from ruamel.yaml.nodes import ScalarNode

    tag = str(_slow_loader().resolver.resolve(ScalarNode, text, (True, False)))
    if tag in (_TEXT_TAG, _VALUE_TAG):
        return text
    if text == _MERGE:
        raise _UnusualError
    return _read_slowly(f"- {text}\n")[0]


# What ruamel reads.
@cache
def _loader_class() -> type[Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import Composer
    from ruamel.yaml.constructor import SafeConstructor

    class WatchedComposer(Composer):
        """Checks the deadline: reading YAML is slow enough to be a way to keep a service busy."""

        def compose_node(self, parent: object, index: object) -> Any:
            current().check()
            return super().compose_node(parent, index)

    class PlainConstructor(SafeConstructor):
        """Reads `=` as text."""

    PlainConstructor.add_constructor(_VALUE_TAG, PlainConstructor.construct_yaml_str)

    class Loader(YAML):
        def __init__(self) -> None:
            super().__init__(typ="safe", pure=True)
            self.Composer = WatchedComposer
            self.Constructor = PlainConstructor

    return Loader


def _slow_loader() -> Any:
    return _loader_class()()


def _read_slowly(text: str) -> Any:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return as_json(_slow_loader().load(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = str(error.problem or error.context or "not valid YAML").splitlines()[0]
        raise parse_error(reason, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1) from None
    except RecursionError:
        raise parse_error("it is nested deeper than can be read", 1, 1) from None
    except (YAMLError, ValueError, AttributeError, TypeError, KeyError, IndexError) as error:
        # ruamel lets errors of its own constructors through (an odd date, a broken tag).
        raise parse_error(str(error).splitlines()[0] if str(error) else type(error).__name__, 1, 1) from None


def _slow_marks(text: str) -> dict[str, tuple[int, int]]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        # Tabs are fine in flow style but not elsewhere; a space takes the same column.
        node = YAML(typ="rt", pure=True).compose(text.replace("\t", " "))
    except (YAMLError, RecursionError):
        return {}
    marks: dict[str, tuple[int, int]] = {}
    waiting = [("", node)]
    seen: set[int] = set()
    while waiting:
        pointer, node = waiting.pop()
        if node is None:
            continue
        marks[pointer] = (node.start_mark.line + 1, node.start_mark.column + 1)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "mapping":
            waiting.extend((f"{pointer}/{escape_pointer(str(key.value))}", value) for key, value in node.value)
        elif node.id == "sequence":
            waiting.extend((f"{pointer}/{index}", value) for index, value in enumerate(node.value))
    return marks


def parse_error(reason: str, line: int, column: int) -> PayloadError:
    """The error of a schema's text."""
    return PayloadError(
        f"the schema cannot be parsed: {reason} (line {line}, column {column})",
        code="SCHEMA_PARSE_ERROR",
        details={"line": line, "column": column, "reason": reason},
    )


def as_json(value: object, inside: tuple[int, ...] = (), done: dict[int, Any] | None = None) -> Any:
    """Plain JSON values: string keys, dates as text; YAML anchors stay shared, loops are refused."""
    done = {} if done is None else done
    if isinstance(value, Mapping | list | tuple):
        if id(value) in inside:
            raise PayloadError(
                "the schema contains itself (a YAML anchor inside its own value)",
                code="SCHEMA_PARSE_ERROR",
                details={"reason": "self-containing value"},
            )
        if id(value) not in done:
            within = (*inside, id(value))
            if isinstance(value, Mapping):
                done[id(value)] = {key_text(key): as_json(item, within, done) for key, item in value.items()}
            else:
                done[id(value)] = [as_json(item, within, done) for item in value]
        return done[id(value)]
    if value is None or isinstance(value, str | int | float):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def key_text(key: object) -> str:
    """The name of a member whose key may be no text in YAML."""
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    return key.isoformat() if hasattr(key, "isoformat") else str(key)


def yaml_text(content: object) -> str:
    """Plain YAML of a value, members in their order."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.allow_unicode = True
    yaml.width = 1 << 16  # no line is folded
    out = io.StringIO()
    yaml.dump(content, out)
    return out.getvalue()
