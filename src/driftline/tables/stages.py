"""The steps that a scheduler runs on splits and buckets: pure, picklable, the same on every engine.

The way of the data: `print_split` for every split of both sides, `match_bucket` for every bucket of prints,
`pick_rows` for every split that holds wanted rows, `encode_range` for every range of the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from driftline.sources.port import Split, WidthMismatch
from driftline.tables.encoding import EventShape, encode_events
from driftline.tables.header import check_headers
from driftline.tables.matching import Matches, Wanted, match_keyed, match_multisets, match_positions
from driftline.tables.options import DiffOptions
from driftline.tables.ordering import RowChunk, join_chunks, kinds_series, order_values
from driftline.tables.print_shelf import PrintShelf, leave_prints, take_prints
from driftline.tables.prints import (
    Prints,
    Seeds,
    as_frame,
    column_name,
    cut_prints,
    join_prints,
    make_prints,
    row_in_split,
)
from driftline.tables.problems import Problem, Side, missing_key_problem, width_problem
from driftline.tables.rules import comparison_columns, key_cell_is_missing

FIRST_DATA_ROW = 2  # rulings: the header is record 1


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What every step must know: checked options, both headers, and the seeds and buckets of this run."""

    options: DiffOptions
    header_a: tuple[str, ...]
    header_b: tuple[str, ...]
    seeds: Seeds
    buckets: int = 1
    typed: bool = False  # cells are JSON text
    shelf: PrintShelf | None = None

    def check(self) -> None:
        """Raise the first header error."""
        check_headers(self.header_a, self.header_b, self.options)

    @property
    def shape(self) -> EventShape:
        """How events look."""
        return EventShape.of(self.header_a, self.options, typed=self.typed)

    @property
    def print_columns(self) -> tuple[list[str], list[str]]:
        """The columns that make the key and the rest of a print; a multiset's key is the whole row."""
        columns = comparison_columns(self.header_a, self.options)
        if self.options.ignore_row_order:
            return columns, []
        keys = self.options.key_columns
        return list(keys), [name for name in columns if name not in keys]


@dataclass(frozen=True, slots=True)
class PrintedSplit:
    """The prints of a split, cut into buckets, or what stands in their way."""

    number: int
    rows: int
    parts: Sequence[Prints] = ()
    sound: bool = True
    width_mismatch: WidthMismatch | None = None
    missing_key: tuple[int, str] | None = None

    def problems(self, side: Side, rows_before: int, width: int) -> list[Problem]:
        """Its row errors, with the record numbers of the whole file."""
        first_row = rows_before + FIRST_DATA_ROW
        found = []
        if self.width_mismatch is not None:
            found.append(width_problem(side, first_row + self.width_mismatch.record, width, self.width_mismatch.got))
        if self.missing_key is not None:
            row, column = self.missing_key
            found.append(missing_key_problem(side, first_row + row, column))
        return found


def print_split(split: Split, number: int, plan: TablePlan) -> PrintedSplit:
    """Read a split and make its prints, or take those that an earlier comparison of this run left."""
    keys, _ = plan.print_columns
    buckets = plan.buckets if keys else 1
    place = plan.shelf.place_for(split, number, plan.print_columns) if plan.shelf is not None else None
    if place is None:
        return _read_and_print(split, number, plan, buckets)
    kept = take_prints(place)
    if kept is None:
        printed = _read_and_print(split, number, plan, 1)
        if not printed.parts or printed.missing_key is not None:
            return printed  # what is wrong with it is looked at each time
        [kept] = printed.parts
        leave_prints(place, kept)
    return PrintedSplit(number, len(kept), cut_prints(kept, buckets))


def _read_and_print(split: Split, number: int, plan: TablePlan, buckets: int) -> PrintedSplit:
    parsed = split.read()
    if parsed.table is None:
        return PrintedSplit(number, parsed.records, (), parsed.sound, parsed.width_mismatch)
    frame = as_frame(parsed.table)
    keys, others = plan.print_columns
    parts = make_prints(frame, key_columns=keys, other_columns=others, split=number, seeds=plan.seeds, buckets=buckets)
    return PrintedSplit(number, frame.height, parts, missing_key=_first_missing_key(frame, plan))


def _first_missing_key(frame: pl.DataFrame, plan: TablePlan) -> tuple[int, str] | None:
    """The first row with a missing key cell, and the first key column that misses it."""
    found = []
    for position, name in enumerate(plan.options.key_columns):
        cells = frame[column_name(name)]
        row = key_cell_is_missing(cells, typed=plan.typed).arg_max() if frame.height else None
        if row is not None and key_cell_is_missing(cells[row], typed=plan.typed):
            found.append((row, position))
    if not found:
        return None
    row, position = min(found)
    return row, plan.options.key_columns[position]


def match_bucket(a: Sequence[Prints], b: Sequence[Prints], plan: TablePlan) -> Matches:
    """Match the prints of one bucket; positional buckets are runs of rows."""
    prints_a, prints_b = join_prints(a), join_prints(b)
    if plan.options.ignore_row_order:
        return match_multisets(prints_a, prints_b)
    if plan.options.mode == "keyed":
        return match_keyed(prints_a, prints_b, emit_unchanged=plan.options.emit_unchanged)
    return match_positions(prints_a, prints_b, emit_unchanged=plan.options.emit_unchanged)


def pick_rows(split: Split, wanted: Wanted, rows_before: int, plan: TablePlan) -> RowChunk:
    """Fetch the wanted rows of one split, in output order; `rows_before` counts the data rows of earlier splits."""
    wanted = wanted[np.argsort(wanted["place"])]
    records = row_in_split(wanted["place"]).astype(np.int64)
    frame = as_frame(split.pick(records))
    if plan.options.mode == "keyed":
        order = order_values(frame, plan.options.key_columns, typed=plan.typed)
    elif plan.options.ignore_row_order:
        order = order_values(frame, plan.shape.columns, typed=plan.typed)
    else:
        order = pl.Series(records + rows_before + FIRST_DATA_ROW, dtype=pl.UInt64)
    return RowChunk(frame, kinds_series(wanted["kind"]), order).sorted()


def encode_range(a: Iterable[RowChunk], b: Iterable[RowChunk], plan: TablePlan) -> memoryview:
    """The event lines of one range of the output, from the pieces of both sides that fall into it."""
    return encode_events(_joined(a, plan.header_a), _joined(b, plan.header_b), plan.shape)


def _joined(chunks: Iterable[RowChunk], header: Sequence[str]) -> RowChunk:
    filled = [chunk for chunk in chunks if chunk.height]
    if filled:
        return join_chunks(filled)
    return RowChunk(
        pl.DataFrame(schema=dict.fromkeys(map(column_name, header), pl.String)),
        pl.Series([], dtype=pl.UInt8),
        pl.Series([], dtype=pl.String),
    )
