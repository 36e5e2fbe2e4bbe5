"""Schema fragments as text: YAML or JSON in, plain JSON values out, and where a pointer stands in the text.

>>> load_schema("type: object\\nproperties: {a: {type: string}}").content["type"]
'object'
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from driftline.errors import PayloadError
from driftline.files import naming_the_file


@dataclass(frozen=True)
class SchemaText:
    """A parsed schema document and, where it came as text, that text."""

    content: Any
    text: str | None = None

    def position(self, pointer: str) -> dict[str, int]:
        """Line and column (from 1) of the value at a JSON Pointer; empty where there is no text."""
        mark = self._marks.get(pointer)
        return {"line": mark[0], "column": mark[1]} if mark else {}

    @cached_property
    def _marks(self) -> dict[str, tuple[int, int]]:
        return _marks_of(self.text) if self.text is not None else {}


def load_schema(schema: Any) -> SchemaText:
    """A schema from text (YAML or JSON), bytes, a `Path` to such a file, or an object."""
    if isinstance(schema, os.PathLike):
        with naming_the_file(schema):
            schema = Path(schema).read_bytes()
    if isinstance(schema, bytes | bytearray):
        try:
            schema = bytes(schema).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _refusal(f"byte {error.start} is not UTF-8", 1, 1) from None
    if isinstance(schema, str):
        return SchemaText(_parse(schema), schema)
    return SchemaText(_as_json(schema))


def _parse(text: str) -> Any:
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            if not text.lstrip().startswith("{") or '"' in text.lstrip()[:3]:
                raise _refusal(error.msg, error.lineno, error.colno) from None
        except (RecursionError, ValueError) as error:
            raise _refusal(str(error), 1, 1) from None
    return _parse_yaml(text)


def _parse_yaml(text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return _as_json(YAML(typ="safe", pure=True).load(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = str(error.problem or error.context or "not valid YAML").splitlines()[0]
        raise _refusal(reason, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1) from None
    except (YAMLError, ValueError, RecursionError, AttributeError, TypeError, KeyError, IndexError) as error:
        # ruamel lets errors of its own constructors through (an odd date, a broken tag).
        raise _refusal(str(error).splitlines()[0] if str(error) else type(error).__name__, 1, 1) from None


def _refusal(reason: str, line: int, column: int) -> PayloadError:
    return PayloadError(
        f"the schema cannot be parsed: {reason} (line {line}, column {column})",
        code="SCHEMA_PARSE_ERROR",
        details={"line": line, "column": column, "reason": reason},
    )


def _as_json(value: Any, inside: tuple[int, ...] = (), done: dict[int, Any] | None = None) -> Any:
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
                done[id(value)] = {_key_text(key): _as_json(item, within, done) for key, item in value.items()}
            else:
                done[id(value)] = [_as_json(item, within, done) for item in value]
        return done[id(value)]
    if value is None or isinstance(value, str | int | float):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    return key.isoformat() if hasattr(key, "isoformat") else str(key)


def _marks_of(text: str) -> dict[str, tuple[int, int]]:
    """Pointer -> (line, column), read from the YAML node tree (JSON is read the same way)."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        # Tabs are fine in JSON but not in YAML; a space takes the same column.
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


def escape_pointer(token: str) -> str:
    """A member name as a JSON Pointer token (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")


def unescape_pointer(token: str) -> str:
    """The member name of a JSON Pointer token."""
    return token.replace("~1", "/").replace("~0", "~")
