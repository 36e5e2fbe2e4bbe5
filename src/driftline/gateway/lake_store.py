"""The lake as the place that flushes go to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from driftline.deltas import ColumnSchema, RowDelta, TableSchema
from driftline.errors import DriftlineError, LakeError

if TYPE_CHECKING:
    from driftline.lake.layout import Lake

# The lake's libraries are large: a gateway that has not flushed yet does without them.


class LakeStore:
    """A `DeltaStore` that commits to the Delta tables of a lake."""

    def __init__(self, location: str) -> None:
        self._location = location

    @cached_property
    def _lake(self) -> Lake:
        from driftline.lake.layout import Lake

        return Lake(self._location)

    def register(self, schema: TableSchema) -> None:
        """Make the schema the table's current one, or refuse what would retype a column."""
        from driftline.lake.registry import register

        with _lake_errors():
            register(self._lake, schema)

    def refused_before(self, table: str) -> int | None:
        """The hlc below which the lake takes no deltas of a table any more."""
        from driftline.lake.delta_tables import load
        from driftline.lake.retention import refused_before

        with _lake_errors():
            return refused_before(load(self._lake, table, "deltas"))

    def append(self, table: str, deltas: Sequence[RowDelta], *, gateway: str, sequence: int) -> None:
        """Add deltas of one table once.

        Deltas that do not fit the schema (they came before it, or before a horizon was set) wait in an envelope, so
        that they neither get lost nor hold up the others. The envelope is written last: where it is, all is done.
        """
        from driftline.lake.envelopes import Envelope, last_sequence, write_envelope
        from driftline.lake.flushing import flush

        with _lake_errors():
            done = last_sequence(self._lake, table, gateway)
            if done is not None and done >= sequence:
                return
            fitting, others = self._sorted_by_fit(table, deltas)
            flush(self._lake, table, fitting, gateway_id=gateway, sequence=sequence, check_ids=False)
            if others:
                write_envelope(self._lake, table, Envelope(gateway, tuple(others)), sequence)

    def _sorted_by_fit(self, table: str, deltas: Sequence[RowDelta]) -> tuple[list[RowDelta], list[RowDelta]]:
        from driftline.lake.delta_tables import load
        from driftline.lake.registry import every_column
        from driftline.lake.retention import refused_before

        deltas_table = load(self._lake, table, "deltas")
        if deltas_table is None:
            return list(deltas), []
        columns = {column.name: column for column in every_column(deltas_table)}
        floor = refused_before(deltas_table) or 0
        fitting: list[RowDelta] = []
        others: list[RowDelta] = []
        for delta in deltas:
            (fitting if delta.hlc >= floor and _fits(delta, columns) else others).append(delta)
        return fitting, others


def _fits(delta: RowDelta, columns: dict[str, ColumnSchema]) -> bool:
    for entry in delta.columns:
        column = columns.get(entry.column)
        if column is None or not column.accepts(entry.value):
            return False
    return True


@contextmanager
def _lake_errors() -> Iterator[None]:
    """Whatever a file system, an object store or a library raises, the gateway hears of a lake in trouble."""
    try:
        yield
    except DriftlineError:
        raise
    except Exception as error:
        raise LakeError(f"the lake cannot be used: {type(error).__name__}: {error}") from error
