"""Reading JSON so that whatever JavaScript wrote is understood and damage is an error with a place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from driftline.errors import IndexRefError

_decode = msgspec.json.Decoder().decode


def parse_json(data: bytes, place: str) -> Any:
    """The value of a JSON text; `place` names it in the error."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_leniently(data, place)


def read_json(path: Path, place: str) -> Any:
    """The value in a JSON file: missing is `NOT_FOUND`, unreadable is `INVALID_REQUEST`."""
    return parse_json(read_bytes(path, place), place)


def read_object(path: Path, place: str) -> dict[str, Any]:
    """The object in a JSON file."""
    value = read_json(path, place)
    if not isinstance(value, dict):
        raise IndexRefError(f"{place} does not hold a JSON object")
    return value


def read_bytes(path: Path, place: str) -> bytes:
    """A file's content, with errors that name `place` instead of the path."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise explain(error, place) from None


def explain(error: OSError | ValueError, place: str) -> IndexRefError:
    """The error for a file that cannot be read; the operating system's message would name its absolute path."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return IndexRefError(f"{place} does not exist", code="NOT_FOUND")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable path"
    return IndexRefError(f"{place} cannot be read: {reason}")


def _parse_leniently(data: bytes, place: str) -> Any:
    # msgspec refuses lone surrogates, which JavaScript writes; the standard library takes them.
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise IndexRefError(f"{place} is not valid JSON") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
