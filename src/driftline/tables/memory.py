"""How much memory a diff may use."""

from __future__ import annotations

import re

from driftline.errors import OptionError

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\Z", re.IGNORECASE)
SMALLEST_LIMIT = 64 << 20


def parse_size(text: str) -> int:
    """Bytes of a size in words.

    >>> parse_size("500MB"), parse_size("2GiB"), parse_size("1.5g")
    (500000000, 2147483648, 1500000000)
    """
    match = _SIZE.match(text.strip())
    if match is None:
        raise OptionError(f'"{text}" is not a size: write it like 500MB or 2GB', code="invalid_size")
    number, unit, binary = match.groups()
    factor = _BINARY_UNITS[unit.lower()] if binary and unit else _UNITS[unit.lower()]
    return int(float(number) * factor)


def memory_limit(text: str | None) -> int | None:
    """The limit a user asked for, or None for the default."""
    if text is None:
        return None
    size = parse_size(text)
    if size < SMALLEST_LIMIT:
        raise OptionError(f"--memory {text} is too little: {SMALLEST_LIMIT >> 20}MiB is the least", code="invalid_size")
    return size


def default_limit() -> int:
    """Half of the memory that is free now."""
    import psutil

    return max(int(psutil.virtual_memory().available) // 2, SMALLEST_LIMIT)
