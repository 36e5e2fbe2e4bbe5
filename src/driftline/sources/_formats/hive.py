"""Hive folders: Parquet files in folders named `column=value`; the values are text columns after those of the files.

They are text, because a guess would turn `01` into 1.
"""

from __future__ import annotations

import os
from pathlib import Path

from driftline.core import is_url
from driftline.errors import InputError
from driftline.sources._addresses import Address, list_urls, noted_file
from driftline.sources._formats.parquet import DataFile, DataFileSource, ParquetSource
from driftline.sources._source import Opening

_NULL = "__HIVE_DEFAULT_PARTITION__"


def open_input(address: Address, opening: Opening) -> DataFileSource:
    """All files below; each must have the same partition columns."""
    import pyarrow as pa

    found = [(path, _values(path, address.path)) for path in _paths(address.path)]
    names = [name for name, _ in found[0][1]]
    for path, values in found:
        if [name for name, _ in values] != names:
            raise InputError(f"{path} lies in other folders than the rest", code="mixed_inputs", path=path)
    data = tuple(DataFile(noted_file(path), values) for path, values in found)
    own = ParquetSource((data[0].file,), "parquet").types()
    columns = [field for field in own if field.name not in names]
    schema = pa.schema([*columns, *(pa.field(name, pa.string()) for name in names)])
    return DataFileSource(data, schema, {name: name for name in schema.names}, "hive", ordered=True)


def has_partitions(path: str) -> bool:
    """Whether a folder has folders named `column=value`."""
    if is_url(path):
        return path.endswith("/") and any("=" in url[len(path) :].rpartition("/")[0] for url in list_urls(path))
    if not os.path.isdir(path):
        return False
    return any("=" in entry.name and entry.is_dir() for entry in os.scandir(path))


def _paths(folder: str) -> list[str]:
    """The data files below a folder; anything but Parquet is refused."""
    found = list_urls(folder) if is_url(folder) else sorted(map(str, Path(folder).rglob("*")))
    files = [path for path in found if _is_data(path[len(folder) :]) and (is_url(path) or os.path.isfile(path))]
    others = [path for path in files if not path.endswith((".parquet", ".pq"))]
    if others or not files:
        what = others[0] if others else folder
        words = f"{what}: folders named column=value are read where they hold Parquet files"
        raise InputError(words, code="unsupported_format")
    return files


def _is_data(below: str) -> bool:
    return not any(part.startswith(("_", ".")) for part in below.strip("/").split("/"))


def _values(path: str, folder: str) -> tuple[tuple[str, str | None], ...]:
    from urllib.parse import unquote

    parts = [part.partition("=") for part in path[len(folder) :].strip("/").split("/")[:-1]]
    return tuple((unquote(name), None if value == _NULL else unquote(value)) for name, mark, value in parts if mark)
