"""Iceberg tables through pyiceberg: the metadata lists the files, a split reads one of them (sources §8).

Catalogs are those that pyiceberg knows: its configuration file, or variables such as `PYICEBERG_CATALOG__SHOP__URI`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from driftline.core import Workspace
from driftline.errors import DriftlineError, InputError
from driftline.sources._addresses import Address, InputFile
from driftline.sources._formats.columnar import TypedRows, TypedSource
from driftline.sources._source import FileFingerprint, Opening, SplitSide, reads_input

if TYPE_CHECKING:
    from concurrent.futures import Executor

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
            raise InputError(
                f"{address.text} has delete files, which driftline does not apply: compact the table first",
                code="unsupported_table",
                path=address.text,
            )
        projection = scan.projection()
    ordered = tuple(sorted(tasks, key=lambda task: task.file.file_path))
    version = snapshot.snapshot_id if snapshot else "empty"
    identity = f"iceberg:{table.metadata.table_uuid}:{version}:{projection.schema_id}"
    return IcebergSource(table.metadata, table.io, projection, ordered, identity)


@reads_input
@dataclass(frozen=True)
class IcebergSource(TypedSource):
    """The planned files of one snapshot, which never change."""

    metadata: TableMetadata
    io: FileIO
    projection: Schema
    tasks: tuple[FileScanTask, ...]
    identity: str
    format: str = "iceberg"
    typed: bool = True
    seekable: bool = True
    ordered: bool = False

    @property
    def files(self) -> tuple[InputFile, ...]:
        """None: data files of a snapshot are never written again."""
        return ()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(task.file.file_size_in_bytes for task in self.tasks)

    def types(self) -> pa.Schema:
        """As the snapshot's schema declares them."""
        schema: pa.Schema = self.projection.as_arrow()
        return schema

    def fingerprint(self, of_file: FileFingerprint) -> str:
        """The table and its snapshot."""
        return self.identity

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None) -> SplitSide:
        """A split for each planned file."""
        from driftline.sources._cells import column_kinds

        splits = [IcebergSplit(self.metadata, self.io, self.projection, task) for task in self.tasks]
        rows = sum(task.file.record_count for task in self.tasks)
        return SplitSide(self.header(side), splits, rows, typed=True, kinds=column_kinds(self.types()))

    def with_absolute_paths(self) -> IcebergSource:
        """As it is: files of a table have absolute names."""
        return self


@reads_input
@dataclass(frozen=True)
class IcebergSplit(TypedRows):
    """One planned file, with the snapshot's schema."""

    metadata: TableMetadata
    io: FileIO
    projection: Schema
    task: FileScanTask

    @property
    def files(self) -> tuple[InputFile, ...]:
        """None: they never change."""
        return ()

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self.task.file.file_size_in_bytes)

    def typed_rows(self) -> pa.Table:
        """All rows of the file."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        try:
            table: pa.Table = ArrowScan(self.metadata, self.io, self.projection, AlwaysTrue()).to_table([self.task])
        except OSError as error:
            path = self.task.file.file_path
            raise InputError(
                f"{path} of an Iceberg table cannot be read: {error}", code="io_error", path=path
            ) from error
        return table.cast(self.projection.as_arrow())


def _load(address: Address) -> Table:
    from pyiceberg.catalog import load_catalog

    catalog, mark, name = address.path.partition("/")
    if not mark or "." not in name:
        raise InputError(
            f"{address.text}: name a catalog and a table, as iceberg:CATALOG/NAMESPACE.TABLE",
            code="invalid_address",
            path=address.text,
        )
    return load_catalog(catalog).load_table(name)


def _snapshot(table: Table, address: Address) -> Snapshot | None:
    """The snapshot of the address; checked, because a scan of a missing one plans no files."""
    if address.version is None:
        return table.current_snapshot()
    if address.version.isdecimal():
        found = table.snapshot_by_id(int(address.version))
    else:
        moment = datetime.fromisoformat(address.version)
        found = table.snapshot_as_of_timestamp(int(moment.timestamp() * 1000))
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
        raise InputError(f"{address.text}: {_line(error)}", code="missing_extra", path=address.text) from error
    except Exception as error:  # catalogs are plugins: whatever they raise becomes one line
        raise InputError(
            f"{address.text} cannot be read: {_line(error)}: check the catalog's settings for pyiceberg",
            code="bad_catalog",
            path=address.text,
        ) from error


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
