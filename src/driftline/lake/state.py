"""The state of a table, now or at any timestamp within retention, as Arrow tables in the order of row ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from driftline.core._json import JsonObject
from driftline.core._progress import Tracker
from driftline.deltas import RowDelta
from driftline.lake.columns import base_file_schema
from driftline.lake.delta_tables import files_of, load
from driftline.lake.envelopes import read_envelope
from driftline.lake.flushing import waiting_envelopes
from driftline.lake.kernels import RangeInput, Result, fold_range
from driftline.lake.layout import Lake, relative
from driftline.lake.local_engine import run_locally
from driftline.lake.parquet_files import read_file
from driftline.lake.planning import FoldPlan, plan_fold
from driftline.lake.registry import every_column, schema_of
from driftline.lake.rows import decode_deltas, decode_state


@dataclass(frozen=True)
class KeepState:
    """The job that hands the folded base rows of every range over, in memory."""

    needs_originals: bool = False
    every_range: bool = True
    checks_ids: bool = False

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        """Fold a range."""
        return [{"rows": fold_range(plan, given).base}]


def state_tables(plan: FoldPlan, tracker: Tracker | None = None) -> Iterator[pa.Table]:
    """The base rows of a plan, range by range in the order of row ids."""
    for result in run_locally(plan, KeepState(), tracker):
        yield result["rows"]


def state_rows(lake: Lake, table: str, *, as_of: int | None = None) -> Iterator[tuple[str, JsonObject]]:
    """Row ids and their set columns, in the order of row ids."""
    plan = plan_fold(lake, table, as_of=as_of)
    for rows in state_tables(plan):
        yield from decode_state(rows, plan.columns)


def snapshot_table(lake: Lake, table: str) -> pa.Table:
    """The base as it is committed, whole; for tests and small tables."""
    plan = plan_fold(lake, table)
    files = plan.snapshot.base if plan.snapshot else ()
    schema = base_file_schema(plan.columns)
    tables = [read_file(lake, relative(table, "base", file.path), schema) for file in files]
    return pa.concat_tables([schema.empty_table(), *tables]).sort_by("_row_id")


def all_deltas(lake: Lake, table: str) -> Iterator[RowDelta]:
    """Every delta of a table, from Parquet and from envelopes that are not flushed yet."""
    deltas_table = load(lake, table, "deltas")
    if deltas_table is not None and schema_of(deltas_table) is not None:
        columns = every_column(deltas_table)
        from driftline.lake.columns import delta_file_schema

        for file in sorted(files_of(deltas_table), key=lambda file: (file.min_hlc or 0, file.path)):
            rows = read_file(lake, relative(table, "deltas", file.path), delta_file_schema(columns))
            yield from decode_deltas(rows, table, columns)
    for name in waiting_envelopes(lake, table, deltas_table):
        yield from read_envelope(lake, table, name).deltas
