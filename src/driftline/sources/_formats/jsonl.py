"""JSON Lines, arrays of objects in `.json` files, and GeoJSON: typed cells, copied into batches column by column.

`orders.json::data.items` names the array inside an object, `codes.json::*` takes all its members as rows. Objects of a
block that have the same members in the same order, with values that are not nested, are taken apart by one regular
expression of the JSON grammar, so that every number keeps its digits; all other objects are decoded one by one.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NoReturn

from driftline.core import Workspace, exact_number, io_errors
from driftline.errors import InputError
from driftline.sources._addresses import Address, InputFile, known_suffix
from driftline.sources._source import Opening, Pool, RowSource, SplitSide, polars_column

if TYPE_CHECKING:
    import polars as pl

    from driftline.sources._cells import JsonBatches

Row = Mapping[str, Any]

_BLOCK_BYTES = 8 << 20
_MOST_MEMBERS = 100  # of an object that is taken apart by a regular expression
_MOST_SHAPES = 8  # of objects in one block
_DECIDED = 3  # the patterns of plain values in which each character decides what follows; others are slow
_DOCUMENTS = (".json", ".geojson")
_STRING = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_SPACE = r"[ \t\r\n]*"
_VALUE = f"({_STRING}|{_NUMBER}|true|false|null)"
_GEOJSON = b'"FeatureCollection"'
_MEMBERS = "*"  # the rows are the members of an object, and their names are a column


def open_input(address: Address, opening: Opening) -> JsonLinesSource:
    """Its files, and the member of their objects that holds the rows."""
    return JsonLinesSource(opening.files, "jsonl", address.table or "")


@dataclass(frozen=True, slots=True)
class JsonLinesSource(RowSource):
    """Objects whose names are the columns, in the order of first appearance."""

    inner: str = ""  # the member of a document that holds the rows

    def rows(self, file: InputFile) -> Iterator[Row]:
        for block in self._blocks(file):
            for at, text in enumerate(block.texts):
                yield block.parsed(at, text)

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Pool = None) -> SplitSide:
        """Batches in the workspace."""
        from driftline.sources._cells import JsonBatches

        batches = JsonBatches(workspace)
        for file in self.files:
            for block in self._blocks(file):
                block.add_to(batches)
            file.check_unchanged()
        return batches.side()

    def _blocks(self, file: InputFile) -> Iterator[Block]:
        with io_errors(file.name), file.open() as stream:
            start = stream.read(1 << 16).removeprefix(codecs.BOM_UTF8).lstrip()
            if self.inner or (known_suffix(file.name) in _DOCUMENTS and not _is_line(start)):
                stream.seek(0)
                yield from _document(stream.read(), file.name, self.inner)
                return
            stream.seek(0)
            rest, number = stream.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8), 1
            while block := stream.read(_BLOCK_BYTES):
                lines, end, rest = (rest + block).rpartition(b"\n")
                yield _lines(lines, number, file.name)
                number += lines.count(b"\n") + len(end)
            yield _lines(rest, number, file.name)


def _is_line(start: bytes) -> bool:
    """Whether a file starts with an object on a line of its own that is followed by more lines."""
    if not start.startswith(b"{"):
        return not start
    line, end, rest = start.partition(b"\n")
    try:
        json.loads(line)
    except ValueError:
        return not end  # longer than what was read: an object that is printed over lines has short ones
    return bool(rest.strip()) or not re.search(rb"\[\s*\{", line)


@dataclass(frozen=True)
class Block:
    """Texts of objects, and where each of them is."""

    texts: Sequence[str] | pl.Series
    lines: Sequence[int]
    name: str

    def parsed(self, at: int, text: str) -> dict[str, Any]:
        """The object of one text."""
        number = int(self.lines[at])
        try:
            value = json.loads(text, parse_constant=_refuse, parse_float=exact_number)
        except (ValueError, RecursionError) as error:
            raise _bad_line(self.name, number, f"not JSON: {error}") from error
        if not isinstance(value, dict):
            raise _bad_line(self.name, number, "not an object: every line must be one JSON object")
        for column in value:
            if not column.isascii() and any("\ud800" <= letter <= "\udfff" for letter in column):
                raise _bad_line(self.name, number, f"the name {json.dumps(column)} holds half a character")
        return value

    def add_to(self, batches: JsonBatches) -> None:
        """Add all objects, in order."""
        import polars as pl

        if not len(self.texts):
            return
        texts = pl.Series(self.texts, dtype=pl.String)
        left = pl.arange(len(texts), eager=True)  # positions of objects that are still to be taken apart
        for turn in range(_MOST_SHAPES):
            members = self._shape(int(left[0]), texts) if len(left) else None
            if members is None:
                break
            plain = dict(_plain_members(members)) if turn % 2 == 0 else {}
            pattern = _pattern({name: plain[name][0] if name in plain else _VALUE for name in members})
            cells = texts.gather(left).str.extract_groups(pattern).struct.unnest()
            fits = cells.to_series(0).is_not_null()
            columns = dict(zip(members, cells.filter(fits).get_columns(), strict=True))
            batches.add_texts(left.filter(fits), columns, {name: value for name, (_, value) in plain.items()})
            left = left.filter(~fits)
        batches.add_rows(left, [self.parsed(at, text) for at, text in zip(left, texts.gather(left), strict=True)])
        batches.end(len(texts))

    def _shape(self, at: int, texts: pl.Series) -> dict[str, str] | None:
        """The members of an object and their texts, if it is one that a regular expression takes apart."""
        value = self.parsed(at, texts[at])
        is_flat = 0 < len(value) <= _MOST_MEMBERS and not any(isinstance(cell, (list, dict)) for cell in value.values())
        found = re.fullmatch(_pattern(dict.fromkeys(value, _VALUE)), texts[at]) if is_flat else None
        return None if found is None else dict(zip(value, found.groups(), strict=True))


def _plain_members(members: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, object]]]:
    """The patterns of members that hold plain values in one object, as in most others, and a value of each kind."""
    from driftline.sources._cells import PLAIN_VALUES

    for name, text in members.items():
        for pattern, value in PLAIN_VALUES[:_DECIDED]:
            if re.fullmatch(pattern, text):
                yield name, (f"({pattern}|null)", value)


def _pattern(values: Mapping[str, str]) -> str:
    members = (f"{_escaped(name)}{_SPACE}:{_SPACE}{value}" for name, value in values.items())
    return rf"^{_SPACE}\{{{_SPACE}{f'{_SPACE},{_SPACE}'.join(members)}{_SPACE}\}}{_SPACE}$"


def _escaped(name: str) -> str:
    """The text of a member's name, for the expressions of Python and of Rust."""
    return re.sub(r"[\\^$.|?*+()\[\]{}]", r"\\\g<0>", json.dumps(name, ensure_ascii=False))


def _lines(data: bytes, first: int, name: str) -> Block:
    import numpy as np
    import pyarrow as pa

    try:
        data.decode()  # the buffer below is not checked again
    except UnicodeDecodeError as error:
        number = first + data.count(b"\n", 0, error.start)
        raise _bad_line(name, number, f"not JSON: not UTF-8: {error.reason}") from None
    data += b"\n"
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    offsets = pa.py_buffer(np.concatenate([[0], ends]).astype(np.int64))
    texts = polars_column(pa.Array.from_buffers(pa.large_string(), len(ends), [None, offsets, pa.py_buffer(data)]))
    if texts.str.starts_with("{").all():
        return Block(texts, range(first, first + len(texts)), name)
    kept = texts.str.contains(r"[^ \t\r\n]").arg_true()
    return Block(texts.gather(kept), (kept + first).to_list(), name)


# Documents: the rows are the elements of an array.


def _document(data: bytes, name: str, member: str) -> Iterator[Block]:
    import msgspec

    data = data.removeprefix(codecs.BOM_UTF8)
    found: Sequence[Any]
    try:
        if data.lstrip()[:1] == b"[" and not member:
            found = msgspec.json.decode(data, type=list[msgspec.Raw])
        else:
            found = _rows_of_object(data, name, member)
    except msgspec.MsgspecError as error:
        text = _checked(data, name)
        if member or text.lstrip()[:1] != "[":
            raise _bad_line(name, 1, f"not rows: {error}") from None
        found = _elements(text)
    texts, lines, end, line = [], [], 0, 1
    for element in map(bytes, found):
        start = max(end, data.find(element, end))  # a feature or a member is not there as it is
        line += data.count(b"\n", end, start)
        texts.append(element.decode())
        lines.append(line)
        end, line = start + len(element), line + element.count(b"\n")
    yield Block(texts, lines, name)


def _rows_of_object(data: bytes, name: str, member: str) -> list[Any]:
    """The elements of the array that `member` names, by a path of names with points between them; `*`: the members."""
    import msgspec

    members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    if not member and bytes(members.get("type", b"")) == _GEOJSON:
        features = msgspec.json.decode(members.get("features", b"[]"), type=list[dict[str, msgspec.Raw]])
        return list(map(_feature, features))
    if member == _MEMBERS and member not in members:
        return _rows_of_members(data, name)
    arrays = [one for one, text in members.items() if re.match(rb"\[\s*[{\]]", bytes(text))]
    if not member and len(members) == len(arrays) == 1:
        member = arrays[0]
    if not member:
        is_map = len(members) > 1 and all(bytes(text)[:1] == b"{" for text in members.values())
        places = sorted(arrays, key=lambda one: -len(bytes(members[one]))) or [_MEMBERS] * is_map  # the longest first
        which = f"name the member with the rows: {', '.join(f'{name}::{one}' for one in places)}"
        words = which if places else "it has no member that is an array of objects, nor only objects"
        raise InputError(f"{name} is one object: {words}", code="missing_table_name", path=name, places=places)
    first, _, rest = (member, "", "") if member in members else member.partition(".")
    if first not in members:
        known = ", ".join(arrays or members) or "none"
        raise InputError(f"{name} has no member {first} (it has: {known})", code="no_such_table", path=name)
    if rest:
        return _rows_of_object(bytes(members[first]), name, rest)
    return msgspec.json.decode(members[first], type=list[msgspec.Raw])


def _rows_of_members(data: bytes, name: str) -> list[bytes]:
    """An object whose members are rows: each as an object with its name in front, as `member`."""
    import msgspec

    rows = msgspec.json.decode(data, type=dict[str, dict[str, msgspec.Raw]])
    if json.loads(data, object_pairs_hook=len) != len(rows):
        raise _bad_line(name, 1, "a member is there twice")
    names = chain(["member"], (f"member.{number}" for number in count(2)))
    column = next(one for one in names if not any(one in row for row in rows.values()))
    return [_object({column: json.dumps(one).encode(), **row}) for one, row in rows.items()]


def _feature(feature: Mapping[str, Any]) -> bytes:
    """A feature of GeoJSON as the text of a row: its id, its properties and its geometry."""
    import msgspec

    own = {name: feature[name] for name in ("id",) if name in feature}
    properties = msgspec.json.decode(feature.get("properties", b"null"), type=dict[str, msgspec.Raw] | None)
    return _object({**own, **(properties or {}), "geometry": feature.get("geometry", b"null")})


def _object(members: Mapping[str, Any]) -> bytes:
    return b"{" + b",".join(json.dumps(name).encode() + b":" + bytes(text) for name, text in members.items()) + b"}"


def _checked(data: bytes, name: str) -> str:
    """The text of a document; says what is wrong with it, in the words that are used for lines."""
    try:
        json.loads(data.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as wrong:
        raise _bad_line(name, data.count(b"\n", 0, wrong.start) + 1, f"not UTF-8: {wrong.reason}") from None
    except json.JSONDecodeError as wrong:
        raise _bad_line(name, wrong.lineno, f"not JSON: {wrong.msg}") from None
    except (ValueError, RecursionError) as wrong:
        raise _bad_line(name, 1, f"not JSON: {wrong}") from None
    return data.decode()


def _elements(text: str) -> list[bytes]:
    """The elements of an array with halves of characters, which only Python's own decoder takes."""
    decode, at, found = json.JSONDecoder().raw_decode, text.find("[") + 1, []
    while text[at] != "]":
        if text[at] in ", \t\r\n":
            at += 1
        else:
            start, (_, at) = at, decode(text, at)
            found.append(text[start:at].encode())
    return found


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _bad_line(name: str, number: int, reason: str) -> InputError:
    return InputError(f"{name}, line {number}: {reason}", code="invalid_jsonl", path=name, line=number)
