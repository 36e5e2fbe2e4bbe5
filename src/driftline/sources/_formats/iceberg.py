"""Iceberg tables through pyiceberg: the metadata lists the files, a split reads one of them (sources §8).

Catalogs are those that pyiceberg has: its configuration file, or variables such as `PYICEBERG_CATALOG__SHOP__URI`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from driftline.core import Workspace
from driftline.errors import DriftlineError, InputError
from driftline.sources._addresses import Address
from driftline.sources._source import Opening, Pool, Source, SplitSide, TypedRows, explained, first_line, typed_side

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


def open_input(address: Address, opening: Opening) -> IcebergSource:
    """The files that the table has in the snapshot."""
    with _explained(address):
        table = _load(address)
        snapshot = _snapshot(table, address)
        # Without a version it is the table's current schema, which may be newer than its last snapshot.
        scan = table.scan(snapshot_id=snapshot.snapshot_id if address.version and snapshot else None)
        tasks = tuple(scan.plan_files()) if snapshot else ()
        if any(task.delete_files for task in tasks):
            words = f"{address.text} has delete files, which driftline does not apply: compact the table first"
            raise InputError(words, code="unsupported_table", path=address.text)
        projection = scan.projection()
    ordered = tuple(sorted(tasks, key=lambda task: task.file.file_path))
    version = snapshot.snapshot_id if snapshot else "empty"
    identity = f"iceberg:{table.metadata.table_uuid}:{version}:{projection.schema_id}"
    return IcebergSource(table.metadata, table.io, projection, ordered, identity)


@dataclass(frozen=True)
class IcebergSource(Source):
    """The planned files of one snapshot, which never change."""

    metadata: TableMetadata
    io: FileIO
    projection: Schema
    tasks: tuple[FileScanTask, ...]
    identity: str
    format: str = "iceberg"
    ordered: bool = False

    @property
    def size(self) -> int:
        return sum(task.file.file_size_in_bytes for task in self.tasks)

    def types(self) -> pa.Schema:
        schema: pa.Schema = self.projection.as_arrow()
        return schema

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Pool = None) -> SplitSide:
        splits = [IcebergSplit(self.metadata, self.io, self.projection, task) for task in self.tasks]
        rows = sum(task.file.record_count for task in self.tasks)
        return typed_side(self.types(), splits, rows, by_value=False)


@dataclass(frozen=True)
class IcebergSplit(TypedRows):
    """One planned file, with the snapshot's schema."""

    metadata: TableMetadata
    io: FileIO
    projection: Schema
    task: FileScanTask

    @property
    def size(self) -> int:
        return int(self.task.file.file_size_in_bytes)

    def typed_rows(self) -> pa.Table:
        """All rows of the file."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        path = self.task.file.file_path
        with explained(OSError, f"{path} of an Iceberg table cannot be read", code="io_error", path=path):
            table: pa.Table = ArrowScan(self.metadata, self.io, self.projection, AlwaysTrue()).to_table([self.task])
        return table.cast(self.projection.as_arrow())


def tables_beside(address: Address) -> list[str]:
    """The tables of the namespace."""
    from pyiceberg.catalog import load_catalog

    name, _, table = address.path.partition("/")
    with _explained(address):
        found = load_catalog(name).list_tables(table.rpartition(".")[0])
    return [f"iceberg:{name}/{'.'.join(each)}" for each in found]


def _load(address: Address) -> Table:
    from pyiceberg.catalog import load_catalog

    catalog, mark, name = address.path.partition("/")
    if not mark or "." not in name:
        words = f"{address.text}: name a catalog and a table, as iceberg:CATALOG/NAMESPACE.TABLE"
        raise InputError(words, code="invalid_address", path=address.text)
    return load_catalog(catalog).load_table(name)


def _snapshot(table: Table, address: Address) -> Snapshot | None:
    """The snapshot of the address; checked, because a scan of a missing one plans no files."""
    if address.version is None:
        return table.current_snapshot()
    if address.version.isdecimal():
        found = table.snapshot_by_id(int(address.version))
    else:
        time = datetime.fromisoformat(address.version)
        found = table.snapshot_as_of_timestamp(int(time.timestamp() * 1000))
    if found is None:
        raise InputError(f"{address.text}: the table has no such snapshot", code="no_such_version", path=address.text)
    return found


@contextmanager
def _explained(address: Address) -> Iterator[None]:
    """Exceptions of pyiceberg as one line."""
    from pyiceberg import exceptions

    try:
        yield
    except DriftlineError:
        raise
    except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError) as error:
        raise InputError(f"{address.text} does not exist", code="not_found", path=address.text) from error
    except (exceptions.NotInstalledError, ImportError) as error:
        words = f"{address.text}: {first_line(error)[:200]}"
        raise InputError(words, code="missing_extra", path=address.text) from error
    except Exception as error:  # catalogs are plugins: whatever they raise becomes one line
        words = f"{address.text} cannot be read: {first_line(error)[:200]}: check the catalog's settings for pyiceberg"
        raise InputError(words, code="bad_catalog", path=address.text) from error
