"""JSON text: payloads read within the size limit, with exact numbers and no name twice, and values written.

The quick decoder reads nearly all text; what it refuses (lone surrogates, numbers beyond a double, a byte order mark)
is read again by the standard library, which also reports the position of an error.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any, NoReturn

import msgspec

from driftline.errors import PayloadError
from driftline.payloads._values.limits import BYTES_PER_MB, EngineConfig, current
from driftline.payloads._values.values import SIDE_NAMES, Json, Value, WrittenNumber, decimal_of

# Up to 15 significant digits every decimal survives the way through a double.
_LONG_RUN = b"0" * 17
_DIGIT_RUNS = bytes(ord("0") if chr(byte) in "0123456789." else ord(" ") for byte in range(256))
_JSON_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}:]', re.DOTALL)
_SPACE = re.compile(r"[ \t\r\n]*")
Fault = tuple[str, int, int]  # what is wrong with a text, and the line and column where


def exact_number(text: str) -> float:
    """A double, or a `WrittenNumber` where the text is more precise than a double.

    >>> exact_number("0.1"), exact_number("0.12345678901234567890")
    (0.1, 0.12345678901234567890)
    """
    number = float(text)
    if (len(text) <= 15 or repr(number) == text) and math.isfinite(number):
        return number
    written = WrittenNumber(text)
    return number if math.isfinite(number) and decimal_of(number) == decimal_of(written) else written


def exact_integer(text: str) -> int:
    """An integer; one that Python could not print again is refused with a message of its own."""
    if len(text) > sys.get_int_max_str_digits() > 0:
        raise ValueError(f"an integer of {len(text.lstrip('-')):,} digits is longer than can be read")
    return int(text)


_decode = msgspec.json.Decoder().decode
_decode_exact = msgspec.json.Decoder(float_hook=exact_number).decode


def read_payload(payload: Any, side: int, config: EngineConfig) -> Any:
    """The JSON value of one side; text is parsed, anything else is taken as parsed already."""
    if not isinstance(payload, str | bytes | bytearray | memoryview):
        _check_size(_compact_size(payload, side), side, config)
        return payload
    data = payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else bytes(payload)
    _check_size(len(data), side, config)
    return parse_json(data, f"{SIDE_NAMES[side]}_json")


def parse_json(data: bytes, what: str) -> Any:
    """The value of JSON text; raises `VALIDATION_ERROR` with line and column."""
    written: bytes | None = None
    try:
        value = _decode(data)
        written = _written_anew(value)
        # Text that comes out the same has no name twice and no number that a double could not hold.
        if written == data:
            return value
        # Some number may be more precise than a double (digits in strings count too).
        if _LONG_RUN in data.translate(_DIGIT_RUNS):
            value = _decode_exact(data)
    except RecursionError:
        raise _too_deep(what) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        value = _parse_slowly(data, what)
    repeated = find_repeated_name(data, value, written)
    if repeated is not None:
        raise _invalid(what, *repeated)
    return value


def _written_anew(value: object) -> bytes | None:
    """A value as compact JSON; None where it is nested too deep to be written."""
    try:
        return to_json_bytes(value)
    except RecursionError:
        return None


def find_repeated_name(data: bytes, value: object, written: bytes | None = None) -> Fault | None:
    """The first member name that occurs twice in an object of JSON text; `value` is what a decoder made of the text,
    and `written` that value as text again.

    A decoder drops all but one of the members, and with each a colon. So equal numbers of colons in the text and in
    the value written anew mean that nothing was dropped, unless the text spells colons as escapes.
    """
    if b"\\u003" not in data:
        again = written if written is not None else _written_anew(value)
        if again is not None and data.count(b":") == again.count(b":"):
            return None
    return _first_repeated(data)


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def check_members(data: bytes | memoryview) -> None:
    """Refuse an object one of whose own members occurs twice; its values are only skipped, not read."""
    text = bytes(data)
    repeated = find_repeated_name(text, _decode_members(text))
    if repeated is not None:
        raise _invalid("the object", *repeated)


def _first_repeated(data: bytes) -> Fault | None:
    names: list[set[str]] = []
    text: re.Match[bytes] | None = None
    for number, token in enumerate(_JSON_TOKEN.finditer(data)):
        if not number % 4096:
            current().check()
        mark = token.group()
        if mark in (b"{", b"["):
            names.append(set())
        elif mark in (b"}", b"]"):
            names.pop()
        elif mark != b":":
            text = token
        elif text is not None:
            name = json.loads(text.group().decode("utf-8", "surrogatepass"))
            if name in names[-1]:
                return f"the name {json.dumps(name)} stands twice in one object", *_position(data, text.start())
            names[-1].add(name)
    return None


def raw_members(data: bytes, what: str) -> dict[str, msgspec.Raw]:
    """The members of a JSON object as JSON text, also where the quick decoder gives up (lone surrogates)."""
    value = parse_json(data, what)
    if not isinstance(value, dict):
        raise PayloadError(f"{what} is not an object", details={"reason": "not an object"})
    return {name: msgspec.Raw(to_json_bytes(member)) for name, member in value.items()}


def readable_members(data: bytes) -> dict[str, Json]:
    """The members of a damaged JSON object that can be read: those before the damage, and scalars that are no JSON."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    found: dict[str, Json] = {}
    decode = json.JSONDecoder(parse_float=exact_number, parse_int=exact_integer).raw_decode
    at = 1 if text.startswith("{") else len(text)
    try:
        while at < len(text):
            name, at = decode(text, after_space(text, at))
            at = after_space(text, at)
            if text[at] != ":" or not isinstance(name, str):
                break
            found[name], at = decode(text, after_space(text, at + 1))
            at = after_space(text, at)
            if text[at] != ",":
                break
            at += 1
    except (ValueError, IndexError, RecursionError):
        pass  # here the damage begins
    return found


def after_space(text: str, at: int) -> int:
    """The offset of the next character that is no JSON whitespace."""
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _parse_slowly(data: bytes, what: str) -> Any:
    try:
        text = data.decode("utf-8-sig", "surrogatepass")
        return json.loads(text, parse_float=exact_number, parse_int=exact_integer, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise _invalid(what, error.msg, error.lineno, error.colno) from None
    except UnicodeDecodeError as error:
        raise _invalid(what, f"byte {error.start} is not UTF-8", *_position(data, error.start)) from None
    except RecursionError:
        raise _too_deep(what) from None
    except _ConstantError as error:
        raise _invalid(what, f"{error} is not JSON", *_position(data, data.find(str(error).encode()))) from None
    except ValueError as error:
        raise _invalid(what, str(error), 1, 1) from None


class _ConstantError(ValueError):
    """NaN or an infinity in JSON text."""


def _refuse_constant(name: str) -> NoReturn:
    raise _ConstantError(name)


def _position(data: bytes, offset: int) -> tuple[int, int]:
    before = data[:offset]
    return before.count(b"\n") + 1, offset - (before.rfind(b"\n") + 1) + 1


def _too_deep(what: str) -> PayloadError:
    message = f"{what} is nested deeper than can be read"
    return PayloadError(message, code="MAX_DEPTH_EXCEEDED", details={"reason": "nesting"})


def _invalid(what: str, reason: str, line: int, column: int) -> PayloadError:
    return PayloadError(
        f"{what} is not valid JSON: {reason} (line {line}, column {column})",
        details={"line": line, "column": column, "reason": reason},
    )


def _compact_size(value: Value, side: int) -> int:
    try:
        return len(msgspec.json.encode(value))
    except RecursionError:
        return 0  # the depth limit reports it
    except (TypeError, ValueError, OverflowError):
        pass  # lone surrogates, numbers that are none, or no JSON at all
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=True)
    except RecursionError:
        return 0
    except (TypeError, ValueError) as error:
        message = f"{SIDE_NAMES[side]}_json is not a JSON value: {error}"
        raise PayloadError(message, details={"reason": str(error)}) from None
    return len(text.encode("utf-8", "surrogatepass"))


def _check_size(size: int, side: int, config: EngineConfig) -> None:
    if size > config.max_payload_bytes:
        raise PayloadError(
            f"{SIDE_NAMES[side]}_json has {size / BYTES_PER_MB:.1f} MB, "
            f"allowed are {config.max_payload_size_mb:g} (max_payload_size_mb)",
            code="PAYLOAD_TOO_LARGE",
            details={"side": SIDE_NAMES[side], "bytes": size, "limit_bytes": config.max_payload_bytes},
        )


def to_json_bytes(value: object) -> bytes:
    """Compact JSON in UTF-8; numbers appear as written, lone surrogates escaped."""
    try:
        return _quick.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        pass  # strings that are not Unicode text, and very deep values
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text).encode()


def _written(value: object) -> Any:
    if isinstance(value, WrittenNumber):
        return msgspec.Raw(value.written.encode())
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_quick = msgspec.json.Encoder(enc_hook=_written, decimal_format="number")
