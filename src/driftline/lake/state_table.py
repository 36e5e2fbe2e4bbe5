"""`tables/{table}/state`: the rows of the newest snapshot as a plain Delta table, for everybody's query.

One file for each file of `base`, under the same name, without stamps and with names as they are. So mending it is a
difference of two sets, and a compaction that touches few ranges rewrites few files here too (deltas-and-lake §8.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from driftline.deltas import ColumnSchema
from driftline.deltas._schema import ColumnType
from driftline.lake.columns import (
    META_COLUMNS,
    ROW_ID,
    STAMPS,
    base_file_schema,
    escape_name,
    state_file_schema,
    unescape_name,
)
from driftline.lake.delta_tables import Commit, append, create, files_of, load, retried, transaction_version
from driftline.lake.layout import Lake, relative
from driftline.lake.parquet_files import DataFile, naming_damage, read_file, write_file

FOLLOWED_BASE = "state:base"  # application transaction: the version of `base` that the state shows


def write_state_file(lake: Lake, table: str, name: str, rows: pa.Table, columns: Sequence[ColumnSchema]) -> DataFile:
    """Write the plain rows of a base file under its name."""
    arrays = [rows[ROW_ID], *(rows[escape_name(column.name)] for column in columns)]
    plain = pa.Table.from_arrays(arrays, schema=state_file_schema(columns))
    return write_file(lake, relative(table, "state"), name, plain)


def follow_base(lake: Lake, table: str) -> None:
    """Make `state` show the newest `base`; what is there already stays."""

    def attempt() -> bool:
        base = load(lake, table, "base")
        state = load(lake, table, "state")
        if base is None or (transaction_version(state, FOLLOWED_BASE) or -1) >= base.version():
            return True
        columns = _columns_of(base)
        schema = state_file_schema(columns)
        wanted = {file.path: file for file in files_of(base)}
        pins = {FOLLOWED_BASE: base.version()}
        details = {"operation": "state", "base": base.version()}
        if state is None:
            files = [_state_file(lake, table, file, columns) for file in wanted.values()]
            return create(lake, table, "state", schema, Commit(files, (), pins, details))
        overwrite = _columns_of(state, str) != columns
        present = set() if overwrite else {file.path for file in files_of(state)}
        adds = [_state_file(lake, table, file, columns) for path, file in wanted.items() if path not in present]
        commit = Commit(adds, sorted(present - set(wanted)), pins, details, overwrite=overwrite)
        return append(state, commit, schema if overwrite else None)

    retried(attempt, f"writing the state of {table}")


def _state_file(lake: Lake, table: str, base: DataFile, columns: Sequence[ColumnSchema]) -> DataFile:
    """The plain file of a base file: as the fold wrote it, or made from it now."""
    path = relative(table, "state", base.path)
    info = lake.files().get_file_info(path)
    if info.type == pa_fs.FileType.File and _is_whole(lake, path, base.rows):
        return DataFile(base.path, info.size, base.rows, base.min_row_id, base.max_row_id)
    rows = read_file(lake, relative(table, "base", base.path), base_file_schema(columns))
    return write_state_file(lake, table, base.path, rows, columns)


def _is_whole(lake: Lake, path: str, rows: int) -> bool:
    """Whether a file that a killed task may have left is all there."""
    try:
        with naming_damage(path), lake.files().open_input_file(path) as source:
            return bool(pq.ParquetFile(source).metadata.num_rows == rows)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is written again
        return False


def _columns_of(delta_table: DeltaTable, plain_name: Callable[[str], str] = unescape_name) -> list[ColumnSchema]:
    """The table's own columns, by the types of the files; json is a string to every reader."""
    kinds: dict[str, ColumnType] = {"double": "number", "boolean": "boolean"}
    fields = [field for field in delta_table.schema().fields if field.name not in META_COLUMNS and field.name != STAMPS]
    return [ColumnSchema(plain_name(field.name), kinds.get(field.type.type, "string")) for field in fields]
