"""Merging Parquet and Arrow files: a merged cell is JSON text, written as the value of a version that has this text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.core import Workspace
from driftline.errors import InputError, TableError
from driftline.sources import Source, TypedRows, json_columns, take_rows

if TYPE_CHECKING:
    from driftline.tables._apply import Merged, Row

_CODECS = {"LZ4_RAW": "LZ4", "UNCOMPRESSED": "NONE"}


@dataclass(frozen=True)
class ColumnsStyle:
    """How the merged file is written: like OURS, with the values of all versions."""

    source: Source
    versions: dict[str, pa.Table] = field(default_factory=dict)
    fields: dict[str, pa.Field] = field(default_factory=dict)  # of all versions, OURS' first

    def read(self, name: str, source: Source, workspace: Workspace) -> tuple[list[str], list[tuple[int, Row]]]:
        """Header and rows of one version, whose columns have the types of those that were read before."""
        side = source.lay_out("A", 0, workspace)
        if len(source.files) > 1 or side is None or side.schema is None:
            raise InputError(f"{source.files[0].name}: merge one file at a time", code="unsupported_format")
        for own in side.schema:
            kind = self.fields.setdefault(own.name, own).type
            if own.type != kind:
                words = f"column {json.dumps(own.name)} is {kind} in one version and {own.type} in another"
                raise TableError(f"{words}: cast it to the same type in all versions", code="type_mismatch")
        parts = [split.typed_rows() for split in side.splits if isinstance(split, TypedRows)]
        self.versions[name] = table = pa.concat_tables([side.schema.empty_table(), *parts])
        names = table.column_names
        cells = zip(*(column.to_pylist() for column in json_columns(table).columns), strict=True)
        return names, [(at, dict(zip(names, row, strict=True))) for at, row in enumerate(cells, 1)]

    def write_merged(self, merged: Merged, out: BinaryIO) -> None:
        """Write the rows in OURS' format, and OURS' version of those in conflict."""
        versions = (row if isinstance(row, dict) else row[0] for row in merged.rows)
        rows, columns, fields = [row for row in versions if row is not None], [], []
        for name in merged.header:
            stored = [table.column(name) for table in self.versions.values() if name in table.column_names]
            own = self.fields[name]
            column = pa.chunked_array([chunk for one in stored for chunk in one.chunks], own.type)
            try:
                values = pa.table({name: column.unify_dictionaries()})
            except pa.ArrowInvalid:
                words = f"column {json.dumps(name)}: {own.type} has no room for the values of all versions"
                raise TableError(f"{words}: cast it to a wider type in all versions", code="type_mismatch") from None
            places = {text: at for at, text in enumerate(json_columns(values).column(0).to_pylist())}
            numbers = pa.array([places[row[name]] if name in row else None for row in rows], pa.int64())
            columns.append(take_rows(values, numbers).column(0))
            fields.append(own.with_nullable(own.nullable or columns[-1].null_count > 0))
        # What pandas and Spark note about columns is that of the version that changed it, and wrong for other columns.
        nothing = pa.table({})
        base, ours, theirs = (self.versions.get(name, nothing).schema for name in ("BASE", "OURS", "THEIRS"))
        described = (theirs, ours) if ours.metadata == base.metadata else (ours, theirs)
        metadata = next((one.metadata for one in described if {*one.names} == {*merged.header}), None)
        table = pa.table(columns, schema=pa.schema(fields, metadata))
        if self.source.format == "parquet":
            pq.write_table(table, out, **_parquet_settings(self.source))
            return
        open_writer = pa.ipc.new_file if self.source.format == "arrow" else pa.ipc.new_stream
        with open_writer(out, table.schema) as writer:
            writer.write_table(table)


def _parquet_settings(source: Source) -> dict[str, Any]:
    """Compression and row groups of a file, and its times: Spark does not read nanoseconds of another type."""
    with pq.ParquetFile(source.files[0].for_arrow()) as file:
        groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
        physical = [file.schema.column(at).physical_type for at in range(file.metadata.num_columns)]
    codec = groups[0].column(0).compression if groups and physical else "SNAPPY"
    rows = max((one.num_rows for one in groups), default=0) or None
    settings = {"compression": _CODECS.get(codec, codec), "row_group_size": rows}
    return {**settings, "use_deprecated_int96_timestamps": "INT96" in physical}
