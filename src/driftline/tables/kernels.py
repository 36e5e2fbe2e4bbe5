"""The steps of a table diff for schedulers; only the Spark engine imports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.tables._columns import (
        Comparison as Comparison,
        Side as Side,
        Sides as Sides,
        named_options as named_options,
        raise_first_error as raise_first_error,
        resolve_columns as resolve_columns,
    )
    from driftline.tables._engines import Engine as Engine, open_sides as open_sides
    from driftline.tables._events import (
        changes_by_column as changes_by_column,
        column_stats_event as column_stats_event,
        event_line as event_line,
        joined_profile as joined_profile,
        schema_event as schema_event,
    )
    from driftline.tables._kernels.match import (
        ROW_HASH as ROW_HASH,
        SELECTED_ROW as SELECTED_ROW,
        Duplicate as Duplicate,
        HashCollision as HashCollision,
        RowHashes as RowHashes,
        SelectedRows as SelectedRows,
        as_frame as as_frame,
        join_hashes as join_hashes,
        new_seeds as new_seeds,
        split_of as split_of,
    )
    from driftline.tables._kernels.output import (
        ChunkStore as ChunkStore,
        RowChunk as RowChunk,
        choose_bounds as choose_bounds,
        cut_points as cut_points,
        join_chunks as join_chunks,
        order_values as order_values,
    )
    from driftline.tables._kernels.stages import (
        DiffPlan as DiffPlan,
        HashedSide as HashedSide,
        HashedSplit as HashedSplit,
        check_unchanged as check_unchanged,
        cut_chunks as cut_chunks,
        encode_cut as encode_cut,
        fetch_rows as fetch_rows,
        hash_split as hash_split,
        match_bucket as match_bucket,
        range_bounds as range_bounds,
        row_blocks as row_blocks,
        sides_of as sides_of,
        total_stats as total_stats,
    )
    from driftline.tables._options import READING_OPTIONS as READING_OPTIONS, DiffRules as DiffRules
    from driftline.tables._reference import match_similar as match_similar
    from driftline.tables._rule_columns import form_column as form_column, forms_differ as forms_differ
    from driftline.tables._rules import CellRule as CellRule
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
