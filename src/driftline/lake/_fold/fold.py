"""The fold: base rows, equality deletes and deltas of one range of row ids become new base rows and deletes.

The closed form of the merge rule (deltas-and-lake §2), for all rows at once: per column the greatest stamp wins and is
visible if greater than the row's greatest DELETE; the row lives if its greatest non-DELETE stamp is. Sorting the
deltas once by stamp makes "greatest" the last write of a scatter. `replay` is the reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core import JsonObject, utf16_sort_key
from driftline.deltas import ColumnSchema, RowDelta
from driftline.lake._store.rows import ROW_ID, STAMPS, base_file_schema, deletes_file_schema, escape_columns
from driftline.lake._store.stamps import NONE, Bools, ClientRanks, Ints, Stamps, ints, present

_WORTH_FOLDING = 1.3  # deltas per row from which an early fold costs less than the deltas it leaves out
_HOT = 3  # deltas per row that are left after covering; then every column is checked


@dataclass(frozen=True, slots=True)
class Folded:
    """The live rows and the deleted ones, both sorted by row id."""

    base: pa.Table
    deletes: pa.Table


def fold(
    columns: Sequence[ColumnSchema], deltas: pa.Table, base: pa.Table | None = None, deletes: pa.Table | None = None
) -> Folded:
    """Fold stamped deltas into the base rows and deletes of the same range."""
    base = base_file_schema(columns).empty_table() if base is None else base.combine_chunks()
    deletes = deletes_file_schema().empty_table() if deletes is None else deletes.combine_chunks()
    return _Fold(columns, deltas.unify_dictionaries().combine_chunks(), base, deletes).run()


def needs_fold(columns: Sequence[ColumnSchema], deltas: pa.Table) -> pa.Table:
    """The stamped deltas that win something among themselves; the others can never have an effect."""
    deltas = deltas.unify_dictionaries().combine_chunks()
    work = _Fold(columns, deltas, base_file_schema(columns).empty_table(), deletes_file_schema().empty_table())
    return deltas.filter(pa.array(work.wins()))


class _Fold:
    """One fold: rows are numbered in the order of their ids."""

    def __init__(self, columns: Sequence[ColumnSchema], deltas: pa.Table, base: pa.Table, deletes: pa.Table) -> None:
        self.columns = columns
        self.names = escape_columns(columns)
        self.deltas = deltas
        self.base = base
        self.base_stamps = _column(base, STAMPS)
        self.deletes = deletes
        self.ranks = ClientRanks(self._client_arrays())
        self.row_ids, codes = _number_rows([_column(base, ROW_ID), _column(deletes, ROW_ID), _column(deltas, "row_id")])
        self.base_rows, rest = codes[: base.num_rows], codes[base.num_rows :]
        self.dead_rows, self.delta_rows = rest[: deletes.num_rows], rest[deletes.num_rows :]
        self.base_at = np.full(len(self.row_ids), NONE, np.int64)
        self.base_at[self.base_rows] = np.arange(base.num_rows)
        self.stamps = Stamps(ints(deltas["hlc"]), self.ranks.ranks(_column(deltas, "client")), ints(deltas["mark"]))
        self.order = self.stamps.order()
        self.is_delete: Bools = _column(deltas, "is_delete").to_numpy(zero_copy_only=False)

    def run(self) -> Folded:
        deleted = self._deleted()
        life = self._base_stamp("live").latest(self.stamps.take(self.winners(~self.is_delete)))
        alive = life.after(deleted)
        values, column_stamps = self._fold_columns(alive, deleted)
        kept = np.flatnonzero(alive)
        members = [life.take(kept).write(self.ranks), deleted.take(kept).write(self.ranks)]
        if column_stamps:
            written = [each.write(self.ranks) for each in column_stamps]
            members.append(pa.StructArray.from_arrays(written, names=self.names))
        stamps = pa.StructArray.from_arrays(members, names=["live", "deleted", "columns"][: len(members)])
        base = pa.Table.from_arrays(
            [self.row_ids.take(pa.array(kept)), *values, stamps], schema=base_file_schema(self.columns)
        )
        gone = np.flatnonzero(~alive)
        dead = [self.row_ids.take(pa.array(gone)), deleted.take(gone).write(self.ranks)]
        return Folded(base, pa.Table.from_arrays(dead, schema=deletes_file_schema()))

    def winners(self, candidates: Bools) -> Ints:
        """Per row the delta with the greatest stamp among the candidates, or `NONE`."""
        chosen = self.order[candidates[self.order]]
        result = np.full(len(self.row_ids), NONE, np.int64)
        result[self.delta_rows[chosen]] = chosen  # a later write replaces an earlier one
        return result

    def wins(self) -> Bools:
        """Which deltas win a row's life, its death or a column, and are not covered by a greater DELETE."""
        death = self.winners(self.is_delete)
        covered_by = self.stamps.take(death)
        result = np.zeros(len(self.is_delete), dtype=bool)
        result[death[death >= 0]] = True
        written = ~self.is_delete
        for candidates in (written, *(present(self.deltas, k) & written for k in range(len(self.columns)))):
            winners = self.winners(candidates)
            winners = winners[self.stamps.take(winners).after(covered_by)]
            result[winners[winners >= 0]] = True
        return result

    def _deleted(self) -> Stamps:
        positions = np.full(len(self.row_ids), NONE, np.int64)
        positions[self.dead_rows] = np.arange(self.deletes.num_rows)
        tombstones = Stamps.read(_column(self.deletes, "_deleted"), self.ranks).take(positions)
        known = self._base_stamp("deleted").latest(tombstones)
        return known.latest(self.stamps.take(self.winners(self.is_delete)))

    def _base_stamp(self, *path: str) -> Stamps:
        array = self.base_stamps
        for name in path:
            array = pc.struct_field(array, [name])
        return Stamps.read(array, self.ranks).take(self.base_at)

    def _fold_columns(self, alive: Bools, deleted: Stamps) -> tuple[list[pa.Array], list[Stamps]]:
        values, stamps = [], []
        for position, name in enumerate(self.names):
            known = self._base_stamp("columns", name)
            winners = self.winners(present(self.deltas, position) & ~self.is_delete)
            newest = self.stamps.take(winners)
            newer = newest.after(known)
            stamp = newest.where(newer, known)
            visible = stamp.after(deleted)
            source = np.where(newer, winners + self.base.num_rows, self.base_at)
            pool = _column(self.deltas, name)
            if self.base.num_rows:
                pool = pa.concat_arrays([_column(self.base, name), pool])
            positions = np.where(visible, source, NONE)[alive]
            values.append(pool.take(pa.array(positions, mask=positions < 0)))
            stamp.hlc[~visible] = NONE
            stamps.append(Stamps(stamp.hlc[alive], stamp.client[alive], stamp.mark[alive]))
        return values, stamps

    def _client_arrays(self) -> list[pa.Array]:
        stamps = [_column(self.deletes, "_deleted")]
        if self.base.num_rows:
            stamps += [pc.struct_field(self.base_stamps, [name]) for name in ("live", "deleted")]
            stamps += [pc.struct_field(self.base_stamps, ["columns", name]) for name in self.names]
        return [_column(self.deltas, "client"), *(pc.struct_field(stamp, ["client"]) for stamp in stamps)]


def _number_rows(arrays: list[pa.Array]) -> tuple[pa.Array, Ints]:
    """The distinct row ids in order, and the number of each input id."""
    encoded = pa.concat_arrays(arrays).dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order.to_numpy(zero_copy_only=False)] = np.arange(len(order))
    codes: npt.NDArray[np.int64] = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    return encoded.dictionary.take(order), codes


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def fold_early(columns: Sequence[ColumnSchema], deltas: pa.Table) -> pa.Table:
    """The deltas without those that can never have an effect, where rows repeat enough for that to pay."""
    if not deltas.num_rows or _deltas_per_row(deltas) < _WORTH_FOLDING:
        return deltas
    deltas = deltas.unify_dictionaries().combine_chunks()
    kept = deltas.filter(pa.array(_uncovered(columns, deltas)))
    return kept if _deltas_per_row(kept) < _HOT else needs_fold(columns, kept)


def _deltas_per_row(deltas: pa.Table) -> float:
    """An estimate: ids are counted by their hashes, which only decides whether to fold."""
    import polars as pl

    return float(deltas.num_rows / pl.Series(deltas["row_id"]).hash().n_unique())


def _uncovered(columns: Sequence[ColumnSchema], deltas: pa.Table) -> Bools:
    """Which deltas no later DELETE or full write of their row covers; a row's greatest DELETE always stays."""
    encoded = deltas["row_id"].combine_chunks().dictionary_encode()
    rows: Ints = encoded.indices.to_numpy(zero_copy_only=False)
    clients = deltas["client"].combine_chunks()
    order = Stamps(ints(deltas["hlc"]), ClientRanks([clients]).ranks(clients), ints(deltas["mark"])).order()
    is_delete: Bools = deltas["is_delete"].to_numpy(zero_copy_only=False)
    covers = is_delete | np.logical_and.reduce([present(deltas, k) for k in range(len(columns))])
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    result: Bools = positions >= _last(covers, order, rows, positions, len(encoded.dictionary))[rows]
    deaths = _last(is_delete, order, rows, positions, len(encoded.dictionary))
    result[order[deaths[deaths >= 0]]] = True
    return result


def _last(chosen: Bools, order: Ints, rows: Ints, positions: Ints, row_count: int) -> Ints:
    """Per row the last position in the order of one of the chosen deltas, or `NONE`."""
    result = np.full(row_count, NONE, np.int64)
    among = order[chosen[order]]
    result[rows[among]] = positions[among]  # a later write replaces an earlier one
    return result


# Replay in plain Python, row by row and literally the rule: the reference that every fold is compared with.


def replay(deltas: Iterable[RowDelta], *, as_of: int | None = None) -> dict[str, JsonObject]:
    """The live rows of one table by row id, each with the columns that are set.

    >>> from driftline.deltas import extract
    >>> made = extract(None, {"a": 1}, table="t", row_id="r", client_id="c", hlc=1)
    >>> gone = extract({"a": 1}, None, table="t", row_id="r", client_id="c", hlc=2)
    >>> replay([gone, made]), replay([gone, made], as_of=1)
    ({}, {'r': {'a': 1}})
    """
    rows: dict[str, JsonObject] = {}
    for delta in sorted(deltas, key=replay_order):
        if as_of is not None and delta.hlc > as_of:
            continue
        if delta.op == "DELETE":
            rows.pop(delta.row_id, None)
        else:
            row = rows.setdefault(delta.row_id, {})
            row.update((entry.column, entry.value) for entry in delta.columns)
    return rows


def replay_order(delta: RowDelta) -> tuple[int, bytes, str, bool]:
    """The position of a delta in the order of replay."""
    return delta.hlc, utf16_sort_key(delta.client_id), delta.delta_id, delta.op == "DELETE"
