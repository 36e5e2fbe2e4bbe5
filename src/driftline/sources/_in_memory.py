"""Tables that are Python objects: whatever has Arrow's stream interface, lists of dicts, cursors.

A table in memory is read without a copy. Streams and rows of Python values are copied once into the workspace, because
they can be read only once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driftline.core import Workspace
from driftline.errors import InputError
from driftline.sources._addresses import InputFile
from driftline.sources._source import Counted, Pool, Source, SplitSide, TypedRows, explained, quoted, typed_side

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_BATCH_ROWS = 100_000


def is_in_memory(given: object) -> bool:
    """Whether an input is a table itself, and not the name of one."""
    return not isinstance(given, (str, os.PathLike))


def object_size(given: Any) -> int | None:
    """The bytes that a table holds in memory; None for rows, cursors and streams, which would have to be read first."""
    if hasattr(given, "estimated_size"):  # Polars
        return int(given.estimated_size())
    if hasattr(given, "memory_usage") and hasattr(given, "columns"):  # pandas
        return int(given.memory_usage(index=False).sum())
    return int(given.nbytes) if hasattr(given, "nbytes") else None  # Arrow


def open_object(given: Any, workspace: Workspace) -> ObjectSource:
    import pyarrow as pa
    from polars.exceptions import PolarsError

    foreign = (PolarsError, pa.ArrowException, TypeError, ValueError, OverflowError)
    with explained(foreign, f"{type(given).__name__} cannot be read", code="unsupported_input"):
        return _opened_object(given, workspace)


def _opened_object(given: Any, workspace: Workspace) -> ObjectSource:
    import polars as pl
    import pyarrow as pa

    from driftline.sources._cells import spool_rows

    library = type(given).__module__.partition(".")[0]
    if library in ("sqlite3", "apsw") and type(given).__name__ == "Connection":
        given = _only_table(given)
    if isinstance(given, Sequence) and all(isinstance(row, Mapping) for row in given[:1]):
        rows = ({str(name): value for name, value in row.items()} for row in given)
        return ObjectSource(spool_rows(((_Nowhere(), rows),), workspace))
    if hasattr(given, "description") and not hasattr(given, "fetch_record_batch"):
        names = [part[0] for part in given.description or ()]
        rows = (dict(zip(names, row, strict=True)) for row in given)
        return ObjectSource(spool_rows(((_Nowhere(), rows),), workspace, names))
    if library == "pandas":
        frame = _pandas_frame(given)
        table = _pandas_table(frame)
        if table is None:
            return ObjectSource(spool_rows(((_Nowhere(), _pandas_rows(frame)),), workspace, list(frame.columns)))
        given = table
    if isinstance(given, pl.LazyFrame):
        given = given.collect()
    if isinstance(given, pl.DataFrame):
        if any(kind == pl.Object for kind in given.dtypes):
            return ObjectSource(spool_rows(((_Nowhere(), given.iter_rows(named=True)),), workspace, given.columns))
        return ObjectSource(_held_side(given, given.clear().to_arrow().schema))
    if isinstance(given, (pa.Table, pa.RecordBatch)):
        return ObjectSource(_held_side(pa.table(given), given.schema))
    return ObjectSource(stored_side(_reader(given), workspace))


def _held_side(table: pa.Table | pl.DataFrame, schema: pa.Schema) -> SplitSide:
    splits = [MemorySlice(table.slice(at, _BATCH_ROWS)) for at in range(0, len(table), _BATCH_ROWS)]
    return typed_side(schema, splits, len(table))


def stored_side(reader: pa.RecordBatchReader, workspace: Workspace) -> SplitSide:
    """The rows of a stream, which can be larger than memory, in files."""
    from driftline.sources._cells import TypedBatch, write_table

    splits = [TypedBatch(*write_table(table, workspace)) for table in _tables(reader) if table.num_rows]
    return typed_side(reader.schema, splits, sum(split.rows for split in splits))


@dataclass(frozen=True, slots=True)
class MemorySlice(TypedRows):
    """Some rows of a table of Arrow or a frame of Polars, without a copy; the caller does not change it meanwhile."""

    rows: pa.Table | pl.DataFrame

    @property
    def size(self) -> int:
        return int(self.rows.nbytes if hasattr(self.rows, "nbytes") else self.rows.estimated_size())

    def count(self) -> Counted:
        return Counted(len(self.rows), len(self.rows))

    def typed_rows(self) -> pa.Table:
        return self.rows.to_arrow() if hasattr(self.rows, "to_arrow") else self.rows


def _only_table(connection: Any) -> Any:
    """All rows of the one table that a database has."""
    query = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    names = [row[0] for row in connection.execute(query)]
    if len(names) != 1:
        which = f"has {len(names)} tables ({', '.join(names)})" if names else "has no table"
        hint = 'give a cursor: connection.execute("SELECT * FROM …")'
        raise InputError(f"the database {which}: {hint}", code="unsupported_input")
    return connection.execute(f"SELECT * FROM {quoted(names[0])}")  # noqa: S608 - a name that the database gave


def _reader(given: Any) -> pa.RecordBatchReader:
    import pyarrow as pa

    if hasattr(given, "scanner"):
        return given.scanner().to_reader()
    if hasattr(given, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(given)
    if not hasattr(given, "fetch_record_batch"):
        is_connection = hasattr(given, "cursor")
        hint = "a cursor: connection.execute(…)" if is_connection else "a path, a DataFrame or a list of dicts"
        raise InputError(f"{type(given).__name__} is no table: give {hint}", code="unsupported_input")
    return given.fetch_record_batch()


def _pandas_frame(given: Any) -> Any:
    """A frame whose index, if it has a meaning, is among the columns."""
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]

    if not isinstance(given, pd.DataFrame):
        raise InputError(f"a pandas {type(given).__name__} is no table: give to_frame()", code="unsupported_input")
    if any(name is not None for name in given.index.names):
        taken = [name for name in given.index.names if name in given.columns]
        if taken:
            words = f"the index and a column are both called {taken[0]!r}: rename one, or give reset_index(drop=True)"
            raise InputError(words, code="unsupported_input", column=str(taken[0]))
        given = given.reset_index()
    elif not given.index.equals(pd.RangeIndex(len(given))):
        raise InputError(
            "the index of a pandas frame has no name and is not 0…n-1: give reset_index() to compare it as a column, "
            "or reset_index(drop=True) to leave it out",
            code="unsupported_input",
        )
    return given.set_axis([str(name) for name in given.columns], axis=1)


def _pandas_table(frame: Any) -> pa.Table | None:
    """NaN is null; None where a column is of no one type of Arrow."""
    import pyarrow as pa

    twice = next((name for name, count in Counter(frame.columns).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"two columns are called {twice!r}: rename one", code="unsupported_input", column=twice)
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):
        return None


def _pandas_rows(frame: Any) -> Iterator[dict[str, Any]]:
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]

    for row in frame.itertuples(index=False, name=None):
        yield {
            name: None if pd.api.types.is_scalar(cell) and pd.isna(cell) else cell
            for name, cell in zip(frame.columns, row, strict=True)
        }


def _tables(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    import pyarrow as pa

    for batch in reader:
        for start in range(0, max(1, batch.num_rows), _BATCH_ROWS):
            yield pa.Table.from_batches([batch.slice(start, _BATCH_ROWS)])


class _Nowhere(InputFile):
    """Rows that are in no file."""

    def __init__(self) -> None:
        super().__init__("", "a Python object", 0, 0)

    def check_unchanged(self) -> None:
        """Do nothing: rows in memory do not change."""


@dataclass(frozen=True, slots=True)
class ObjectSource(Source):
    """The copied rows of an object."""

    side: SplitSide
    format: str = "Python object"

    @property
    def size(self) -> int:
        return self.side.size

    def header(self, side: str) -> tuple[str, ...]:
        return self.side.header

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Pool = None) -> SplitSide:
        return self.side
