"""The bytes of changesets (markers, operation codes, varints and values), and names as SQLite compares them.

A file is a row of sections; a section is a table header followed by change records (changesets §1).

>>> encode_value("hi").hex(), encode_value(None).hex(), encode_varint(300).hex()
('03026869', '05', '822c')
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

from driftline.errors import ChangesetError, CorruptChangesetError

CHANGESET_MARKER: Final = 0x54  # "T"
PATCHSET_MARKER: Final = 0x50  # "P"

INSERT: Final = 0x12
DELETE: Final = 0x09
UPDATE: Final = 0x17
KIND_NAMES: Final = {INSERT: "insert", DELETE: "delete", UPDATE: "update"}

TAG_UNDEFINED: Final = 0
TAG_INTEGER: Final = 1
TAG_REAL: Final = 2
TAG_TEXT: Final = 3
TAG_BLOB: Final = 4
TAG_NULL: Final = 5


FIRST_BUCKETS: Final = 256  # of the session's hash table (changesets §2.1)
HASH_MASK: Final = 0xFFFFFFFF
MAX_COLUMNS: Final = 65536
MAX_VARINT_BYTES: Final = 5
MIN_INTEGER: Final = -(1 << 63)
MAX_INTEGER: Final = (1 << 63) - 1

_LOWER_ASCII = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


class TruncatedChangesetError(CorruptChangesetError):
    """The bytes end too early: damage in a file, the end of a block in a stream."""


class Undefined(enum.Enum):
    """The type of `UNDEFINED`, the value of a field that a record leaves out."""

    UNDEFINED = 0

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __bool__(self) -> bool:
        return False


UNDEFINED: Final = Undefined.UNDEFINED

Value = int | float | str | bytes | None
Field = Value | Undefined
Row = tuple[Field, ...]

_pack_integer = struct.Struct(">Bq").pack
_pack_real = struct.Struct(">Bd").pack
_ENCODED_NULL = bytes([TAG_NULL])
ENCODED_UNDEFINED: Final = bytes([TAG_UNDEFINED])


def encode_varint(number: int) -> bytes:
    """Big-endian groups of seven bits, the high bit set on all but the last."""
    groups = [number & 0x7F]
    number >>= 7
    while number:
        groups.append((number & 0x7F) | 0x80)
        number >>= 7
    return bytes(reversed(groups))


def decode_varint(data: bytes, offset: int) -> tuple[int, int]:
    """The number at `offset` and the offset behind it."""
    number = 0
    for position in range(offset, min(offset + MAX_VARINT_BYTES, len(data))):
        byte = data[position]
        number = (number << 7) | (byte & 0x7F)
        if byte < 0x80:
            return number, position + 1
    if offset + MAX_VARINT_BYTES > len(data):
        raise TruncatedChangesetError("the data ends inside a length", offset=len(data))
    raise CorruptChangesetError("a length of more than five bytes", offset=offset)


def encode_value(value: Field) -> bytes:
    """One field: a type byte and its payload; NaN becomes NULL as in SQLite."""
    if value is None or value != value:
        return _ENCODED_NULL
    if isinstance(value, int):
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise integer_too_large(value)
        return _pack_integer(TAG_INTEGER, value)
    if isinstance(value, float):
        return _pack_real(TAG_REAL, value)
    if isinstance(value, str):
        data = encode_text(value)
        return bytes([TAG_TEXT]) + encode_varint(len(data)) + data
    if isinstance(value, bytes):
        return bytes([TAG_BLOB]) + encode_varint(len(value)) + value
    return ENCODED_UNDEFINED


def encode_text(text: str) -> bytes:
    """UTF-8, refusing what is not Unicode text; bytes that were read and are not UTF-8 come back as they were."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise ChangesetError(f"text with a lone surrogate at character {error.start}", code="invalid_text") from error


def integer_too_large(value: int) -> ChangesetError:
    """The error for an integer that SQLite cannot hold."""
    return ChangesetError(f"{value} does not fit into 64 bits", code="integer_too_large")


def decode_text(data: bytes) -> str:
    """Text as stored; bytes that are not UTF-8 survive as lone surrogates, as files may hold them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode(errors="surrogateescape")


# The row order of a session: the state of its hash table, in closed form.
#
# SQLite keeps changed keys in a hash table and writes them bucket by bucket. The table starts with 256 buckets, doubles
# before an event that finds it half full, and growth turns the chains around (changesets §2.1). Keys in first-touch
# order fall into stages that end at 128, 256, 512, … keys; a chain holds the keys of the last stage, the last but two,
# … from young to old, then the keys of the other stages from old to young. So a key's place is a sort key: its bucket,
# then a signed sequence number. `records.py` does the same for many keys at once.


def bucket_count(keys: int, *, event_after_last_key: bool) -> int:
    """How many buckets the table ends with, for a number of distinct keys.

    >>> bucket_count(128, event_after_last_key=False), bucket_count(128, event_after_last_key=True)
    (256, 512)
    >>> bucket_count(129, event_after_last_key=False)
    512
    """
    buckets = FIRST_BUCKETS
    while keys > buckets // 2 or (event_after_last_key and keys == buckets // 2):
        buckets *= 2
    return buckets


def session_places(hashes: Sequence[int], *, event_after_last_key: bool) -> list[int]:
    """The order in which a session writes keys, given their hashes in first-touch order."""
    buckets = bucket_count(len(hashes), event_after_last_key=event_after_last_key)
    last_stage = (buckets // FIRST_BUCKETS).bit_length() - 1

    def place(index: int) -> tuple[int, int]:
        stage = (index // (FIRST_BUCKETS // 2)).bit_length()
        return hashes[index] % buckets, index if (last_stage - stage) % 2 else ~index

    return sorted(range(len(hashes)), key=place)


def hash_fields(fields: Iterable[bytes]) -> int:
    """The session's hash of the encoded fields of a key."""
    value = 0
    for field in fields:
        value = hash_step(value, field[0])
        if field[0] in (TAG_INTEGER, TAG_REAL):
            value = hash_step(hash_step(value, int.from_bytes(field[5:], "big")), int.from_bytes(field[1:5], "big"))
        elif field[0] in (TAG_TEXT, TAG_BLOB):
            value = reduce(hash_step, field[decode_varint(field, 1)[1] :], value)
    return value


def hash_step(value: int, addend: int) -> int:
    """The hash with one more byte or word."""
    return ((value << 3) ^ value ^ addend) & HASH_MASK


def folded(name: str) -> str:
    """The form in which two names are the same: SQLite folds ASCII letters only (changesets §1.4).

    >>> folded("Users") == folded("USERS"), folded("Ä") == folded("ä")
    (True, False)
    """
    return name.translate(_LOWER_ASCII)


def quoted(name: str) -> str:
    """An SQL identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'
