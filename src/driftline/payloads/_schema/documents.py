"""Schema documents: YAML or JSON text as plain JSON values (and values as YAML text), positions of pointers, and the
files beside a schema.

References may name files in the folder of the schema, and nowhere else (payloads §2.3). A pointer into another file is
written `name#/pointer`, with the name relative to the folder; pointers into the schema itself begin with `/` or are
empty.

>>> load_schema("type: object\\nproperties: {a: {type: string}}").content["type"]
'object'
>>> split_pointer("parts/pet.yaml#/Pet"), split_pointer("/a#b")
(('parts/pet.yaml', '/Pet'), ('', '/a#b'))
>>> read_yaml("a: yes\\nb: [=, 0o10, 2020-01-01]")
{'a': 'yes', 'b': ['=', 8, '2020-01-01']}
"""

from __future__ import annotations

import io
import json
import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from driftline.core import io_errors
from driftline.errors import PayloadError
from driftline.payloads._values.limits import current
from driftline.payloads._values.paths import escape_pointer, unescape_pointer
from driftline.payloads._values.text import after_space, exact_integer, find_repeated_name

# Reading YAML for line numbers takes seconds for a large document; beyond this an error names the pointer alone.
MAX_MARKED_YAML = 2_000_000
MAX_NESTING = 500
_EVENTS_BETWEEN_CLOCK_LOOKS = 512
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]+")
_VALUE_TAG = "tag:yaml.org,2002:value"
_TIME_TAG = "tag:yaml.org,2002:timestamp"
_TEXT_TAG = "tag:yaml.org,2002:str"


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
                raise parse_error(*repeated)
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
    decode = json.JSONDecoder().raw_decode
    at = after_space(text, 0)
    try:
        for name in map(unescape_pointer, pointer.split("/")[1:]):
            is_object, at = text[at] == "{", after_space(text, at + 1)
            for position in count():
                if text[at] in "}]":
                    return None
                key = str(position)
                if is_object:
                    key, at = decode(text, at)
                    at = after_space(text, after_space(text, at) + 1)
                if key == name:
                    break
                at = after_space(text, decode(text, at)[1])
                at = after_space(text, at + 1) if text[at] == "," else at
    except (ValueError, IndexError, RecursionError):
        return None
    return at


def _line_and_column(text: str, offset: int) -> dict[str, int]:
    return {"line": text.count("\n", 0, offset) + 1, "column": offset - text.rfind("\n", 0, offset)}


def parse_error(reason: str, line: int, column: int) -> PayloadError:
    """The error of a schema's text."""
    return PayloadError(
        f"the schema cannot be parsed: {reason} (line {line}, column {column})",
        code="SCHEMA_PARSE_ERROR",
        details={"line": line, "column": column, "reason": reason},
    )


# YAML: libyaml splits the text into events, from which values are built by the rules of YAML 1.2. What is rare (tags,
# merge keys, directives) and whatever is wrong is read by ruamel instead, which is slow and names the error.
class _UnusualError(Exception):
    """What is left to ruamel."""


def read_yaml(text: str) -> Any:
    """The content of a document; raises `SCHEMA_PARSE_ERROR`."""
    try:
        return _read_quickly(text, _Reader())
    except _UnusualError:
        return _read_slowly(text)


def _read_quickly(text: str, reader: _Reader) -> Any:
    from yaml import YAMLError, events
    from yaml.cyaml import CParser

    deadline = current()
    handlers: dict[type[Any], Any] = {
        events.ScalarEvent: reader.scalar,
        events.MappingStartEvent: lambda event: reader.start(event, {}),
        events.SequenceStartEvent: lambda event: reader.start(event, []),
        events.MappingEndEvent: reader.end,
        events.SequenceEndEvent: reader.end,
        events.AliasEvent: reader.alias,
        events.DocumentStartEvent: reader.document,
    }
    try:
        parser = CParser(text)
        for number in count(1):
            event = parser.get_event()
            if event is None:
                break
            if not number % _EVENTS_BETWEEN_CLOCK_LOOKS:
                deadline.check()
            handle = handlers.get(type(event))
            if handle is not None:
                handle(event)
    except (YAMLError, UnicodeError):
        raise _UnusualError from None
    return reader.content


class _Reader:
    """Builds the values of one document from the events of libyaml."""

    is_strict = True  # leaves tags, merge keys and directives to ruamel

    def __init__(self) -> None:
        self.content: Any = None
        self._documents = 0
        # Containers whose end has not been read yet, each with the name of the member whose value comes next.
        self._open: list[tuple[Any, str | None]] = []
        self._anchors: dict[str, Any] = {}

    def document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1 or (self.is_strict and (event.version or event.tags)):
            raise _UnusualError

    def scalar(self, event: Any) -> None:
        if event.tag is not None and self.is_strict:
            raise _UnusualError
        value = _plain(event.value) if event.implicit[0] and self.is_strict else event.value
        owner, name = self._open[-1] if self._open else (None, None)
        if type(owner) is not dict or name is not None:
            self._place(value, event, event.anchor)
            return
        name = key_text(value)
        if (name in owner or event.anchor is not None) and self.is_strict:
            raise _UnusualError
        self._open[-1] = (owner, name)

    def start(self, event: Any, value: Any) -> None:
        if (event.tag is not None and self.is_strict) or len(self._open) >= MAX_NESTING:
            raise _UnusualError
        self._place(value, event, event.anchor)
        self._open.append((value, None))

    def end(self, _event: Any) -> None:
        self._open.pop()

    def alias(self, event: Any) -> None:
        value = self._anchors.get(event.anchor, self)
        if value is self or any(one is value for one, _ in self._open):
            raise _UnusualError
        self._place(value, event, None)

    def _place(self, value: Any, _event: Any, anchor: str | None) -> None:
        owner, name = self._open[-1] if self._open else (None, None)
        if owner is None:
            self.content = value
        elif type(owner) is list:
            owner.append(value)
        elif name is None:
            raise _UnusualError  # a container as a key
        else:
            owner[name] = value
            self._open[-1] = (owner, None)
        if anchor is not None:
            self._anchors[anchor] = value


class _MarkReader(_Reader):
    """Notes where values begin, by their pointers; an alias begins where its anchor does."""

    is_strict = False

    def __init__(self) -> None:
        super().__init__()
        self.marks: dict[str, tuple[int, int]] = {}
        self._pointers: list[str] = []  # of the open containers, and of the value placed last
        self._anchor_marks: dict[str, tuple[int, int]] = {}

    def _place(self, value: Any, event: Any, anchor: str | None) -> None:
        owner, name = self._open[-1] if self._open else (None, None)
        pointer = ""
        if owner is not None:
            step = str(len(owner)) if type(owner) is list else escape_pointer(name or "")
            pointer = f"{self._pointers[len(self._open) - 1]}/{step}"
        super()._place(value, event, anchor)
        mark = (event.start_mark.line + 1, event.start_mark.column + 1)
        self.marks[pointer] = self._anchor_marks.get(event.anchor, mark) if anchor is None else mark
        if anchor is not None:
            self._anchor_marks[anchor] = mark
        self._pointers[len(self._open) :] = [pointer]


@lru_cache(maxsize=8192)
def _plain(text: str) -> Any:
    """The value of a plain scalar."""
    if text and text[0] not in "0123456789-+.~nNtTfF=<":
        return text
    if _INTEGER.fullmatch(text) and len(text) < 4000:
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    from ruamel.yaml.nodes import ScalarNode

    tag = str(_loader_class()().resolver.resolve(ScalarNode, text, (True, False)))
    if tag in (_TEXT_TAG, _VALUE_TAG, _TIME_TAG):
        return text
    if text == "<<":
        raise _UnusualError
    return _read_slowly(f"- {text}\n")[0]


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
        """Reads `=`, dates and times as they are written, as JSON has them."""

    for tag in (_VALUE_TAG, _TIME_TAG):
        PlainConstructor.add_constructor(tag, PlainConstructor.construct_yaml_str)

    class Loader(YAML):
        def __init__(self) -> None:
            super().__init__(typ="safe", pure=True)
            self.Composer = WatchedComposer
            self.Constructor = PlainConstructor

    return Loader


def _read_slowly(text: str) -> Any:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return as_json(_loader_class()().load(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = str(error.problem or error.context or "not valid YAML").splitlines()[0]
        raise parse_error(reason, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1) from None
    except RecursionError:
        raise parse_error("it is nested deeper than can be read", 1, 1) from None
    except (YAMLError, ValueError, AttributeError, TypeError, KeyError, IndexError) as error:
        # ruamel lets errors of its own constructors through (an odd date, a broken tag).
        raise parse_error(str(error).splitlines()[0] if str(error) else type(error).__name__, 1, 1) from None


def yaml_marks(text: str) -> dict[str, tuple[int, int]]:
    """Pointer -> (line, column), from 1; empty where the text cannot be read."""
    reader = _MarkReader()
    try:
        # Tabs are fine in flow style but not elsewhere; a space takes the same column.
        _read_quickly(text.replace("\t", " "), reader)
    except _UnusualError:
        return {}
    return reader.marks


def as_json(value: object, inside: tuple[int, ...] = (), done: dict[int, Any] | None = None) -> Any:
    """Plain JSON values: string keys; YAML anchors stay shared, loops are refused."""
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
    return str(value)


def key_text(key: object) -> str:
    """The name of a member whose key may be no text in YAML."""
    if isinstance(key, str):
        return key
    return json.dumps(key) if key is None or isinstance(key, bool | int | float) else str(key)


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


# Files beside a schema, and pointers into them.
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
        if name not in self.files:
            raise ValueError("it is not among the files of the schema")
        return self.files[name]


FileReader = Folder | Bundle  # reads a file beside the schema by its name; `ValueError` where that is not allowed


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
