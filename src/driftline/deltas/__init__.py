"""Row deltas: the clock, the records, their ids, extraction from row versions, and merging."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.deltas._deltas import (
        COUNTER_BITS as COUNTER_BITS,
        MAX_COUNTER as MAX_COUNTER,
        MAX_DRIFT_MS as MAX_DRIFT_MS,
        MAX_HLC as MAX_HLC,
        MAX_ID_LENGTH as MAX_ID_LENGTH,
        Clock as Clock,
        ColumnDelta as ColumnDelta,
        Op as Op,
        RowDelta as RowDelta,
        abbreviate as abbreviate,
        check_column_name as check_column_name,
        check_column_names as check_column_names,
        check_drift as check_drift,
        check_gateway_id as check_gateway_id,
        check_id as check_id,
        check_table_name as check_table_name,
        check_text as check_text,
        check_value as check_value,
        columns_text as columns_text,
        delta_from_wire as delta_from_wire,
        delta_hlc_from_wire as delta_hlc_from_wire,
        delta_id as delta_id,
        hash_input as hash_input,
        hlc_from_wire as hlc_from_wire,
        latest_admitted as latest_admitted,
        make_hlc as make_hlc,
        physical_ms as physical_ms,
    )
    from driftline.deltas._extract import extract as extract, from_events as from_events, row_id_of_key as row_id_of_key
    from driftline.deltas._filters import (
        ABSENT as ABSENT,
        FILTER_OPS as FILTER_OPS,
        ORDER_OPS as ORDER_OPS,
        FilterOp as FilterOp,
        comparable as comparable,
        holds as holds,
        index_keys as index_keys,
        index_spans as index_spans,
        sort_key as sort_key,
    )
    from driftline.deltas._merge import (
        RowKey as RowKey,
        RowMerge as RowMerge,
        RowState as RowState,
        fold_from_plain as fold_from_plain,
        fold_to_plain as fold_to_plain,
        merge as merge,
        stamp_of as stamp_of,
    )
    from driftline.deltas._numbers import (
        MAX_DIGITS as MAX_DIGITS,
        SAFE_INTEGER as SAFE_INTEGER,
        as_double as as_double,
        decimal_scale as decimal_scale,
        exact_value as exact_value,
        exact_wire as exact_wire,
        integer_of as integer_of,
        integer_wire as integer_wire,
        number_kind as number_kind,
        survives as survives,
    )
    from driftline.deltas._schema import (
        COLUMN_TYPES as COLUMN_TYPES,
        ColumnSchema as ColumnSchema,
        ColumnType as ColumnType,
        TableSchema as TableSchema,
        Types as Types,
        is_column_type as is_column_type,
        typed_event as typed_event,
        typed_events as typed_events,
        typed_key as typed_key,
        typed_row as typed_row,
        with_doubles as with_doubles,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
