"""What a user may name as a side, taken apart (sources §1).

>>> parse_address("data/orders.csv").path, parse_address("shop.db::users").table
('data/orders.csv', 'users')
>>> parse_address("delta:s3://lake/orders@7").version
'7'
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from driftline.errors import InputError
from driftline.sources.stores import SCHEMES, is_url

_TABLE_MARK = "::"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# Counts only at the end, before digits or an ISO time with its zone.
_VERSION = re.compile(r"(.+)@(\d+|\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2}))\Z")
_PREFIXES = ("delta", "iceberg", "spark")
_SERVED = (
    "use a path, s3://, gs://, abfs://, file://, delta:LOCATION, iceberg:CATALOG/NAMESPACE.TABLE, "
    "postgresql://…::TABLE or FILE.db::TABLE"
)
_KNOWN_SCHEMES = (*SCHEMES, "file", "postgresql")


@dataclass(frozen=True, slots=True)
class Address:
    """What was named: its text, and the parts that formats look at.

    `kind` is the word before a `:` that names a format (`delta:…`) or a database (`postgresql`), else "".
    """

    text: str
    path: str
    table: str | None = None
    kind: str = ""
    version: str | None = None


def parse_address(text: str) -> Address:
    """The parts of an address; raises for one that nobody serves."""
    if os.path.exists(text):
        return Address(text, text)
    kind, mark, rest = text.partition(":")
    if mark and kind in _PREFIXES and not rest.startswith("//"):
        return _prefixed(text, kind, rest)
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1] not in _KNOWN_SCHEMES:
        raise unsupported(text, scheme[1])
    if scheme is not None and scheme[1] == "postgresql":
        location, _, table = text.partition(_TABLE_MARK)
        return Address(text, location, table or None, "postgresql")
    versioned = _VERSION.match(text)
    if versioned is not None and is_delta_folder(versioned[1]):
        return Address(text, _local(versioned[1]), kind="delta", version=versioned[2])
    path, mark, table = text.rpartition(_TABLE_MARK)
    if mark:
        return Address(text, _local(path), table)
    return Address(text, _local(text))


def is_delta_folder(path: str) -> bool:
    """Whether a local folder is a Delta table."""
    return not is_url(path) and Path(_local(path), "_delta_log").is_dir()


def unsupported(text: str, scheme: str) -> InputError:
    """The error for an address that nobody serves."""
    remedy = {
        "hdfs": "copy the files to a path or an object store that this machine sees",
        "mysql": "export the table, or hand it over as a Spark or Arrow object",
        "spark": "read it with spark.table(…) and use driftline.spark.diff",
    }.get(scheme, _SERVED)
    return InputError(f"{text}: addresses of {scheme} are not served: {remedy}", code="unsupported_address", path=text)


def _prefixed(text: str, kind: str, rest: str) -> Address:
    if kind not in ("delta", "iceberg"):
        raise unsupported(text, kind)
    versioned = _VERSION.match(rest)
    path, version = (versioned[1], versioned[2]) if versioned else (rest, None)
    return Address(text, _local(path), kind=kind, version=version)


def _local(path: str) -> str:
    return path.removeprefix("file://")
