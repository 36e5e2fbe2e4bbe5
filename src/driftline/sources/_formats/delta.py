"""Delta tables at a version: typed cells, every row group of an active file is a split (sources §5).

The log is read by `deltalake`, the files by pyarrow, on any machine that sees them. A split handles renamed and missing
columns, widened types, partition values and deleted rows. (`to_pyarrow_dataset` silently gives nulls for renamed
columns.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from driftline.core import delta_options, is_url
from driftline.errors import InputError
from driftline.sources._addresses import Address, noted_file
from driftline.sources._formats.parquet import DataFile, DataFileSource
from driftline.sources._source import Opening, first_line

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_READER_FEATURES = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
_READER_FEATURES |= {"typeWidening", "typeWidening-preview"}
_MOST_DELETION_BYTES = 64 << 20  # bit masks are sent to the tasks with the plan


def open_input(address: Address, opening: Opening) -> DataFileSource:
    """The table as of its version."""
    with _explained(address):
        table = _table_at(address)
        unknown = set(table.protocol().reader_features or ()) - _READER_FEATURES
        if unknown:
            words = f"{address.text} uses {', '.join(sorted(unknown))}, which driftline does not read"
            raise InputError(words, code="unsupported_table")
        schema, physical = _columns(table)
        data = _data_files(table, address, physical)
    identity = f"delta:{table.metadata().id}@{table.version()}"  # versions never change
    return DataFileSource(data, schema, physical, "delta", ordered=False, identity=identity)


def _table_at(address: Address) -> DeltaTable:
    """The table at the version or time of the address, else its current version."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    number = int(address.version) if address.version and address.version.isdigit() else None
    try:
        table = DeltaTable(address.path, version=number, storage_options=delta_options(address.path))
        if address.version and number is None:
            at = datetime.fromisoformat(address.version.replace("Z", "+00:00")).astimezone(UTC)
            first = min(entry["timestamp"] for entry in table.history())
            if at.timestamp() * 1000 < first:  # deltalake would silently give the oldest version
                raise _no_such_version(address)
            table.load_as_version(at)
    except TableNotFoundError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        if address.version:
            raise _no_such_version(address) from error
        raise
    return table


@contextmanager
def _explained(address: Address) -> Iterator[None]:
    """Exceptions of `deltalake` as one clear line; a damaged log may raise anywhere."""
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        yield
    except TableNotFoundError as error:
        words = f"{address.path} is no Delta table: there is no log"
        raise InputError(words, code="not_found", path=address.path) from error
    except (DeltaError, OSError, ValueError, KeyError) as error:
        words = f"{address.path} cannot be read as a Delta table: {first_line(error)}"
        raise InputError(words, code="invalid_delta", path=address.path) from error


def _no_such_version(address: Address) -> InputError:
    words = f"{address.path} has no version {address.version}: see the history of the table"
    return InputError(words, code="no_such_version")


def _columns(table: DeltaTable) -> tuple[pa.Schema, dict[str, str]]:
    """The declared columns, and the name of each inside the files."""
    import pyarrow as pa

    schema = pa.schema(table.schema().to_arrow())
    fields = table.schema().fields
    is_mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    mapped = {field.name: field.metadata.get("delta.columnMapping.physicalName", field.name) for field in fields}
    return schema, mapped if is_mapped else {name: name for name in mapped}


def _data_files(table: DeltaTable, address: Address, physical: dict[str, str]) -> tuple[DataFile, ...]:
    import pyarrow as pa

    masks = _deletions(table, address)
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    partitions = table.metadata().partition_columns
    found = []
    for action in actions:
        uri = _file_of(address.path, action["path"])
        own = {name: physical[name] if f"partition.{name}" not in action else name for name in partitions}
        values = tuple((name, action[f"partition.{stored}"]) for name, stored in own.items())
        keep, masked = masks.get(uri, (None, 0))
        found.append(DataFile(noted_file(uri), values, keep, masked))
    # The log has no order: the names of the files decide it.
    return tuple(sorted(found, key=lambda one: one.file.path))


def _file_of(root: str, path: str) -> str:
    """The location of a file; its path in the log is percent-encoded, relative to the table or (in clones) absolute."""
    from urllib.parse import unquote

    decoded = unquote(path)
    if "://" in decoded:
        return decoded.removeprefix("file://")
    return f"{root.rstrip('/') if is_url(root) else os.path.abspath(root)}/{decoded}"


def _deletions(table: DeltaTable, address: Address) -> dict[str, tuple[bytes, int]]:
    """For each file with deleted rows a bit mask of the other rows, and its length."""
    from urllib.parse import unquote

    import numpy as np
    import pyarrow as pa

    masks: dict[str, tuple[bytes, int]] = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for name, keep in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            bits = keep.values.to_numpy(zero_copy_only=False)
            masks[unquote(name).removeprefix("file://")] = np.packbits(bits).tobytes(), len(bits)
    if sum(len(bits) for bits, _ in masks.values()) > _MOST_DELETION_BYTES:
        words = f"{address.path} has too many deleted rows in place: run OPTIMIZE on it first"
        raise InputError(words, code="too_many_deletions")
    return masks
