"""The early fold: before deltas travel, the ones that can never matter are left out.

A delta is covered by a later one of its row that is a DELETE or sets every column. Where rows are hot and nothing
covers their deltas, only those that win something stay. What is left folds to the same state (deltas-and-lake §2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from driftline.deltas import ColumnSchema
from driftline.lake.fold import useful
from driftline.lake.stamped import ints, present
from driftline.lake.stamps import NONE, Bools, ClientRanks, Ints, Stamps

_WORTH_FOLDING = 1.3  # deltas per row from which fewer of them travel in less time than it takes to find out
_HOT = 3  # deltas per row that are left after covering; then every column is looked at


def fold_early(columns: Sequence[ColumnSchema], deltas: Any) -> Any:
    """The deltas without what can never matter, where rows repeat enough for that to pay."""
    if not deltas.num_rows or _deltas_per_row(deltas) < _WORTH_FOLDING:
        return deltas
    deltas = deltas.unify_dictionaries().combine_chunks()
    kept = deltas.filter(pa.array(_uncovered(columns, deltas)))
    return kept if _deltas_per_row(kept) < _HOT else useful(columns, kept)


def _deltas_per_row(deltas: Any) -> float:
    """About: ids are counted by their hashes, which only decides whether to fold."""
    return float(deltas.num_rows / pl.Series(deltas["row_id"]).hash().n_unique())


def _uncovered(columns: Sequence[ColumnSchema], deltas: Any) -> Bools:
    """Which deltas no later DELETE or full write of their row covers; a row's greatest DELETE always stays."""
    encoded = deltas["row_id"].combine_chunks().dictionary_encode()
    rows: Ints = encoded.indices.to_numpy(zero_copy_only=False)
    clients = deltas["client"].combine_chunks()
    order = Stamps(ints(deltas["hlc"]), ClientRanks([clients]).ranks(clients), ints(deltas["mark"])).order()
    is_delete: Bools = deltas["is_delete"].to_numpy(zero_copy_only=False)
    covers = is_delete | np.logical_and.reduce([present(deltas, k) for k in range(len(columns))])
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    result: Bools = places >= _last(covers, order, rows, places, len(encoded.dictionary))[rows]
    deaths = _last(is_delete, order, rows, places, len(encoded.dictionary))
    result[order[deaths[deaths >= 0]]] = True
    return result


def _last(chosen: Bools, order: Ints, rows: Ints, places: Ints, row_count: int) -> Ints:
    """Per row the last place in the order of one of the chosen deltas, or `NONE`."""
    result = np.full(row_count, NONE, np.int64)
    among = order[chosen[order]]
    result[rows[among]] = places[among]  # a later write replaces an earlier one
    return result
