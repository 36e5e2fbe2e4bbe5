"""Deltas that wait in envelopes: what a schema takes is folded by every reader, the others are counted.

An envelope becomes Parquet when a schema is registered or the table is compacted. A kill can come in between, so
readers never rely on it: a table's state holds the deltas of its envelopes from the moment that the schema takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from driftline.deltas import ColumnSchema, RowDelta
from driftline.deltas._merge import RowFold
from driftline.lake.delta_tables import load
from driftline.lake.envelopes import SET_ASIDE, envelope_paths, maker_of, read_envelope
from driftline.lake.flushing import columns_by_name, fits, waiting_envelopes
from driftline.lake.layout import Lake
from driftline.lake.registry import schema_of
from driftline.lake.retention import refused_before
from driftline.lake.rows import encode_deltas


@dataclass(frozen=True, slots=True)
class WaitingEnvelope:
    """An envelope that is not Parquet yet: its name, the row ids of what a fold takes of it, and how many wait on."""

    name: str
    row_ids: tuple[str, ...]
    waiting: int


def envelopes_of(lake: Lake, table: str, deltas_table: DeltaTable | None) -> tuple[WaitingEnvelope, ...]:
    """The envelopes of a table that are not Parquet yet."""
    if deltas_table is None or schema_of(deltas_table) is None:
        return ()
    columns, floor = columns_by_name(deltas_table), refused_before(deltas_table)
    found = []
    for name in waiting_envelopes(lake, table, deltas_table):
        deltas = read_envelope(lake, table, name).deltas
        taken = _taken(deltas, columns, floor)
        late = sum(delta.hlc < (floor or 0) for delta in deltas)
        found.append(WaitingEnvelope(name, tuple(delta.row_id for delta in taken), len(deltas) - len(taken) - late))
    return tuple(found)


def read_taken(lake: Lake, table: str, name: str, columns: Sequence[ColumnSchema], floor: int | None) -> pa.Table:
    """What a fold takes of an envelope, as rows of a delta file."""
    by_name = {column.name: column for column in columns}
    return encode_deltas(_taken(read_envelope(lake, table, name).deltas, by_name, floor), columns)


def count_waiting(lake: Lake, table: str) -> int:
    """How many deltas no schema takes; without a schema that is every delta in an envelope."""
    deltas_table = load(lake, table, "deltas")
    if schema_of(deltas_table) is None:
        return sum(
            len(read_envelope(lake, table, name).deltas) for name in waiting_envelopes(lake, table, deltas_table)
        )
    return sum(each.waiting for each in envelopes_of(lake, table, deltas_table))


def count_set_aside(lake: Lake, table: str) -> int:
    """How many deltas came below the retention horizon and are kept aside."""
    names = envelope_paths(lake, table, SET_ASIDE)
    found = (delta for name in names for delta in read_envelope(lake, table, name, SET_ASIDE).deltas)
    return len({delta.delta_id for delta in found})


def enveloped_rows(lake: Lake, table: str, version: int, log: tuple[str, int], made_ms: int) -> dict[str, RowFold]:
    """The folded rows of the envelopes that waited at a version of the deltas, whether a schema takes them or not.

    Of a log's own envelopes those up to a sequence count, of others those made before a time: what came later reaches
    clients through the log.
    """
    deltas_table = None if version < 0 else load(lake, table, "deltas", version)
    found: dict[str, RowFold] = {}
    for name in waiting_envelopes(lake, table, deltas_table):
        maker = maker_of(name)
        if maker is not None and maker[0] == log[0] and maker[1] > log[1]:
            continue
        envelope = read_envelope(lake, table, name)
        if (maker is None or maker[0] != log[0]) and envelope.made_ms >= made_ms:
            continue
        for delta in envelope.deltas:
            found.setdefault(delta.row_id, RowFold()).add(delta)
    return found


def _taken(deltas: Sequence[RowDelta], columns: dict[str, ColumnSchema], floor: int | None) -> list[RowDelta]:
    return [delta for delta in deltas if delta.hlc >= (floor or 0) and fits(delta, columns)]
