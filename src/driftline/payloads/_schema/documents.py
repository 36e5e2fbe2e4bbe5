"""Schema documents: YAML or JSON text as plain JSON values, positions of pointers, and the files beside a schema.

References may name files in the folder of the schema, and nowhere else (payloads §2.3). A pointer into another file is
written `name#/pointer`, with the name relative to the folder; pointers into the schema itself begin with `/` or are
empty.

>>> load_schema("type: object\\nproperties: {a: {type: string}}").content["type"]
'object'
>>> split_pointer("parts/pet.yaml#/Pet"), split_pointer("/a#b")
(('parts/pet.yaml', '/Pet'), ('', '/a#b'))
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

import msgspec

from driftline.core import io_errors
from driftline.payloads._schema.yaml import as_json, parse_error, read_yaml, yaml_marks
from driftline.payloads._values.paths import unescape_pointer
from driftline.payloads._values.text import after_space, exact_integer, find_repeated_name

# Reading YAML for line numbers takes seconds for a large document; beyond this an error names the pointer alone.
MAX_MARKED_YAML = 2_000_000


@dataclass(frozen=True)
class SchemaText:
    """A parsed schema document and, where it came as text, that text."""

    content: Any
    text: str | None = None

    def position(self, pointer: str) -> dict[str, int]:
        """Line and column (from 1) of the value at a JSON Pointer; empty where there is no text."""
        if self.text is None:
            return {}
        if pointer == "":
            return _line_and_column(self.text, len(self.text) - len(self.text.lstrip()))
        if is_json_text(self.text):
            offset = _json_offset(self.text, pointer)
            return {} if offset is None else _line_and_column(self.text, offset)
        mark = self._marks.get(pointer)
        return {"line": mark[0], "column": mark[1]} if mark else {}

    @cached_property
    def _marks(self) -> dict[str, tuple[int, int]]:
        return yaml_marks(self.text) if self.text is not None and len(self.text) <= MAX_MARKED_YAML else {}


def load_schema(schema: object) -> SchemaText:
    """A schema from text (YAML or JSON), bytes, a `Path` to such a file, or an object."""
    if isinstance(schema, os.PathLike | bytes | bytearray):
        schema = read_text(schema)
    if isinstance(schema, str):
        return SchemaText(_parse(schema), schema)
    return SchemaText(as_json(schema))


def read_text(schema: os.PathLike[str] | bytes | bytearray) -> str:
    """The text of a schema in a file or in bytes."""
    if isinstance(schema, os.PathLike):
        with io_errors(schema):
            schema = Path(schema).read_bytes()
    try:
        return bytes(schema).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise parse_error(f"byte {error.start} is not UTF-8", 1, 1) from None


def is_json_text(text: str) -> bool:
    """Whether a schema's text is JSON, not YAML."""
    start = text.lstrip()[:3]
    return start[:1] == "[" or (start[:1] == "{" and ('"' in start or start[1:].lstrip()[:1] in ("", "}")))


def _parse(text: str) -> Any:
    if text.lstrip()[:1] in ("{", "["):
        data = text.encode("utf-8", "surrogatepass")
        try:
            content = _read_json(text, data)
        except json.JSONDecodeError as error:
            # `{a: 1}` is YAML in flow style; a quoted name means JSON.
            if is_json_text(text) and text.lstrip()[:1] == "{":
                raise parse_error(error.msg, error.lineno, error.colno) from None
        except (RecursionError, ValueError) as error:
            raise parse_error(str(error), 1, 1) from None
        else:
            repeated = find_repeated_name(data, content)
            if repeated is not None:
                raise parse_error(repeated.message, repeated.line, repeated.column)
            return content
    return read_yaml(text)


def _read_json(text: str, data: bytes) -> Any:
    """The value of JSON text; the quick decoder reads nearly all, the standard library says what is wrong."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return json.loads(text, parse_int=exact_integer)


def unfolded_size(value: object) -> int:
    """How many values a value contains; shared parts (YAML aliases) count each time, but are walked once."""
    sizes: dict[int, int] = {}

    def size(node: object) -> int:
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        if not children:
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = 1 + sum(map(size, children))
        return sizes[id(node)]

    return size(value)


def _json_offset(text: str, pointer: str) -> int | None:
    """Where the value at a pointer begins in JSON text; the quick decoder skips what is before it."""
    at = after_space(text, 0)
    for token in pointer.split("/")[1:]:
        found = _member_offset(text, at, unescape_pointer(token))
        if found is None:
            return None
        at = found
    return at


def _member_offset(text: str, at: int, name: str) -> int | None:
    decode = json.JSONDecoder().raw_decode
    is_object = text[at] == "{"
    position, at = 0, after_space(text, at + 1)
    try:
        while text[at] not in "}]":
            key = str(position)
            if is_object:
                key, at = decode(text, at)
                at = after_space(text, after_space(text, at) + 1)
            if key == name:
                return at
            _, at = decode(text, at)
            at = after_space(text, at)
            at = after_space(text, at + 1) if text[at] == "," else at
            position += 1
    except (ValueError, IndexError, RecursionError):
        return None
    return None


def _line_and_column(text: str, offset: int) -> dict[str, int]:
    return {"line": text.count("\n", 0, offset) + 1, "column": offset - text.rfind("\n", 0, offset)}


# Files beside a schema, and pointers into them.
class FileReader(Protocol):
    """Reads a file beside the schema by its name; raises `ValueError` where the name is not allowed."""

    def read(self, name: str) -> bytes:
        """The content of a file."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of a folder on this machine."""

    path: Path

    def read(self, name: str) -> bytes:
        """The content of a file inside the folder; a link that leads out of it is not followed."""
        target = (self.path / name).resolve()
        if not target.is_relative_to(self.path.resolve()):
            raise ValueError("it lies outside the folder of the schema")
        with io_errors(self.path / name):
            return target.read_bytes()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A schema with the files it refers to, as bytes that can travel to other machines."""

    main: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)

    def read(self, name: str) -> bytes:
        """The content of a file of the bundle."""
        if name not in self.files:
            raise ValueError("it is not among the files of the schema")
        return self.files[name]


def opened(schema: object) -> tuple[Any, FileReader | None]:
    """The content of a schema and where the files beside it are read; only a schema given as a path has any."""
    if isinstance(schema, Bundle):
        return schema.main, schema
    if isinstance(schema, os.PathLike):
        path = Path(schema)
        with io_errors(path):
            return path.read_bytes(), Folder(path.parent)
    return schema, None


def split_pointer(pointer: str) -> tuple[str, str]:
    """The file (empty for the schema itself) and the pointer inside it."""
    if pointer == "" or pointer.startswith("/"):
        return "", pointer
    name, _, inner = pointer.partition("#")
    return name, inner


def joined_pointer(name: str, inner: str) -> str:
    """The pointer into a file."""
    return f"{name}#{inner}" if name else inner


def joined_reference(pointer: str) -> str:
    """The `$ref` that leads to a pointer from the schema itself."""
    name, inner = split_pointer(pointer)
    return f"{quote(name)}#{quote(inner)}"


def file_of_reference(reference: str, base: str) -> tuple[str, str]:
    """The file and the fragment that a `$ref` in the file `base` names; raises `ValueError` for what is no file."""
    given, _, fragment = reference.partition("#")
    if "://" in given or given.startswith(("//", "/")) or "\\" in given:
        raise ValueError("only files in the folder of the schema can be referred to")
    if not given:
        return base, unquote(fragment)
    name = posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(given)))
    if name.startswith("../") or name == "..":
        raise ValueError("it lies outside the folder of the schema")
    return name, unquote(fragment)
