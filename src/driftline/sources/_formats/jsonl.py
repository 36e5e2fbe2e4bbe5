"""JSON Lines, and arrays of objects in `.json` files: typed cells, read once from the start and copied into batches."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from driftline.core import exact_number, io_errors
from driftline.errors import InputError
from driftline.sources._addresses import Address, InputFile, known_suffix
from driftline.sources._source import Opening, RowSource, reads_input

if TYPE_CHECKING:
    pass

Row = Mapping[str, Any]

_CHUNK_BYTES = 1 << 20
_SPACE = " \t\r\n"


def open_input(address: Address, opening: Opening) -> JsonLinesSource:
    """Its files."""
    return JsonLinesSource(opening.files, "jsonl")


@reads_input
@dataclass(frozen=True, slots=True)
class JsonLinesSource(RowSource):
    """Objects whose names are the columns, in the order of first appearance."""

    def rows(self, file: InputFile) -> Iterator[Row]:
        """The objects of a file."""
        return json_rows(file)


# Rows: one object a line, or, in a `.json` file, an array of objects.


def json_rows(file: InputFile) -> Iterator[Row]:
    """All objects of a file, in order."""
    with io_errors(file.name), file.open() as stream:
        is_array = known_suffix(file.name) == ".json" and _starts_array(stream.read(_CHUNK_BYTES))
        stream.seek(0)
        yield from _array_objects(stream, file.name) if is_array else _lines(stream, file.name)


def _starts_array(start: bytes) -> bool:
    return start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["


def _lines(stream: BinaryIO, name: str) -> Iterator[Row]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            yield _object(_parsed(line, number, name), number, name)


def _parsed(line: bytes, number: int, name: str) -> object:
    try:
        return json.loads(
            line.decode("utf-8-sig" if number == 1 else "utf-8"), parse_constant=_refuse, parse_float=exact_number
        )
    except (ValueError, RecursionError) as error:
        raise _bad_line(name, number, f"not JSON: {error}") from error


def _object(value: object, number: int, name: str) -> Row:
    if not isinstance(value, dict):
        raise _bad_line(name, number, "not an object: every line must be one JSON object")
    for column in value:
        if not column.isascii() and any("\ud800" <= letter <= "\udfff" for letter in column):
            raise _bad_line(name, number, f"the name {json.dumps(column)} holds half a character")
    return value


def _array_objects(stream: BinaryIO, name: str) -> Iterator[Row]:
    """The elements of an array one by one, so that a large file need not fit into memory."""
    text = _Text(stream, name)
    text.skip("[")
    decode = json.JSONDecoder(parse_constant=_refuse, parse_float=exact_number).raw_decode
    while text.peek() != "]":
        try:
            yield _object(text.take(decode), text.line, name)
        except (ValueError, RecursionError) as error:
            raise _bad_line(name, text.line, f"not JSON: {error}") from error
        if text.peek() != "]":
            text.skip(",")
            if text.peek() == "]":
                raise _bad_line(name, text.line, "not JSON: a comma before the end of the array")
    text.skip("]")
    if text.peek():
        raise _bad_line(name, text.line, "not JSON: something follows the array")


class _Text:
    """A stream's text, of which only the current part is in memory."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._position = 0
        self.line = 1

    def peek(self) -> str:
        """The next character that is no space, or nothing at the end."""
        while True:
            while self._position < len(self._text) and self._text[self._position] in _SPACE:
                self.line += self._text[self._position] == "\n"
                self._position += 1
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._more(_CHUNK_BYTES):
                return ""

    def skip(self, character: str) -> None:
        """Skip one required character."""
        if self.peek() != character:
            raise _bad_line(self._name, self.line, f'not JSON: "{character}" is missing')
        self._position += 1

    def take(self, decode: Any) -> Any:
        """The next value; the part in memory is doubled until it contains the complete value."""
        self.peek()
        size = _CHUNK_BYTES
        while True:
            try:
                value, end = decode(self._text, self._position)
            except ValueError:
                if not self._more(size):
                    raise
                size *= 2
                continue
            if end == len(self._text) and self._more(size):
                continue  # a number may continue
            self.line += self._text.count("\n", self._position, end)
            self._position = end
            return value

    def _more(self, size: int) -> bool:
        more, at_end = "", False
        try:
            while not more and not at_end:
                data = self._stream.read(size)
                at_end = not data
                more = self._decoder.decode(data, at_end)
        except UnicodeDecodeError as error:
            raise _bad_line(self._name, self.line, f"not UTF-8: {error.reason}") from None
        self._text, self._position = self._text[self._position :] + more, 0
        return bool(more)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _bad_line(name: str, number: int, reason: str) -> InputError:
    return InputError(f"{name}, line {number}: {reason}", code="invalid_jsonl", path=name, line=number)
