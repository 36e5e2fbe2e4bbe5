"""The table of formats: what each kind of data is recognised by. The module of its name reads it.

A module has `open_input(address, opening)`. One that this table does not list reads the files whose suffix is its name:
`fwf.py` reads `*.fwf`. `RowSource` is the base of formats that only have rows.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from driftline.core import SQLITE_MAGIC, is_url
from driftline.errors import InputError
from driftline.sources._addresses import Address, is_delta_folder, known_suffix
from driftline.sources._source import Opening, Source


class Format(NamedTuple):
    """One kind of data; a prefix or scheme of an address (`delta:…`) is its name."""

    name: str
    suffixes: tuple[str, ...] = ()  # of data files; other files of a folder are ignored
    magic: bytes | None = None
    named: tuple[str, ...] = ()  # suffixes of files that are read when they are named, not as one of a folder
    magic_at: int = 0
    module: str = ""  # of another package; it is imported when it is used

    def open(self, address: Address, opening: Opening) -> Source:
        source: Source = self._module().open_input(address, opening)
        return source

    def tables_beside(self, address: Address) -> list[str]:
        """The addresses of the tables that lie where the named one does, in a catalog or a database with schemas."""
        module = self._module()
        if hasattr(module, "tables_beside"):
            return list(module.tables_beside(address))
        words = f"{address.text}: tables of {self.name} are not found by a pattern: name each one"
        raise InputError(words, code="unsupported_address", path=address.text)

    def _module(self) -> Any:
        return import_module(self.module or f"{__name__}.{self.name}")


FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        Format("delta"),
        Format("iceberg"),
        Format("spark", module="driftline.spark"),
        Format("hive"),
        Format("postgresql"),
        Format("workbook", (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")),
        Format("duckdb", (".duckdb", ".ddb"), b"DUCK", magic_at=8),
        Format("sqlite", magic=SQLITE_MAGIC),
        Format("parquet", (".parquet", ".pq"), b"PAR1"),
        Format("arrow", (".arrow", ".feather", ".arrows", ".orc"), b"ARROW1"),
        # A .json file in a folder is more often metadata than data.
        Format("jsonl", (".jsonl", ".ndjson"), named=(".json", ".geojson")),
        Format("csv", (".csv", ".tsv", ".tab", ".txt")),
    )
}


def format_of_address(address: Address) -> Format | None:
    """The format that the address alone decides: by its prefix, its table, or the folder that it names."""
    if address.kind:
        return FORMATS[address.kind]
    if address.table is not None:
        return _format_of_tables(address.path)
    if is_delta_folder(address.path):
        return FORMATS["delta"]
    if address.path.endswith("/") or os.path.isdir(address.path):
        from driftline.sources._formats.hive import has_partitions

        if has_partitions(address.path):
            return FORMATS["hive"]
    return None


def _format_of_tables(path: str) -> Format:
    """The format of a file of which one table is named."""
    if is_workbook(path):
        return FORMATS["workbook"]
    if known_suffix(path) in FORMATS["jsonl"].named:
        return FORMATS["jsonl"]
    if not is_url(path) and os.path.isfile(path):
        with open(path, "rb") as stream:
            found = format_of_file(path, stream.read(len(SQLITE_MAGIC)))
        if found.name == "duckdb":
            return found
    return FORMATS["sqlite"]


def is_workbook(name: str) -> bool:
    """Whether a file is a workbook, by its suffix: its first bytes are those of any archive."""
    return known_suffix(name) in FORMATS["workbook"].suffixes


def format_of_file(name: str, start: bytes) -> Format:
    """The format of a file: by its first bytes, else by its suffix; CSV reads what no other format does."""
    for each in FORMATS.values():
        if each.magic is not None and start.startswith(each.magic, each.magic_at):
            return each
    return format_of_suffix(known_suffix(name), in_folder=False) or FORMATS["csv"]


def format_of_suffix(suffix: str, *, in_folder: bool = True) -> Format | None:
    """The format of data files with this suffix, if there is one."""
    for each in FORMATS.values():
        if suffix in each.suffixes or (suffix in each.named and not in_folder):
            return each
    name = suffix[1:]
    if name in FORMATS or not name.isidentifier() or find_spec(f"{__name__}.{name}") is None:
        return None
    return Format(name, (suffix,)) if hasattr(import_module(f"{__name__}.{name}"), "open_input") else None
