"""What the lake holds already: whoever may bring a delta a second time looks its id up first.

An id contains the timestamp, so only files whose timestamps reach over a delta's own can hold it. Files that the asking
log wrote are passed over: a log never takes an id twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from driftline.deltas import RowDelta
from driftline.lake.columns import HLC
from driftline.lake.delta_tables import files_of
from driftline.lake.envelopes import envelope_paths, read_envelope
from driftline.lake.layout import Lake, is_written_by, path_hlcs, relative
from driftline.lake.parquet_files import DataFile, read_batches, read_file
from driftline.lake.stamps import id_prefixes

Identity = tuple[str, str]  # delta id and operation

_ID_COLUMNS = pa.schema(
    [
        pa.field("_op", pa.string(), nullable=False),
        pa.field(HLC, pa.int64(), nullable=False),
        pa.field("_delta_id", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Holdings:
    """The files of a table in which ids are looked up; small, so that tasks on other machines can do it too."""

    lake: Lake
    table: str
    files: tuple[DataFile, ...] = ()
    envelopes: tuple[str, ...] = ()

    def known(self, deltas: Sequence[RowDelta]) -> set[Identity]:
        """Those of the deltas that the lake has."""
        hlcs = sorted({delta.hlc for delta in deltas})
        wanted = pa.array(sorted({delta.delta_id for delta in deltas}), pa.string())
        found: set[Identity] = set()
        for file in self.files:
            if _reaches_over(hlcs, file.min_hlc, file.max_hlc):
                found |= self._in_file(file, wanted)
        ids = {identity_of(delta) for delta in deltas}
        for name in self.envelopes:
            if _reaches_over(hlcs, *(path_hlcs(name) or (None, None))):
                found |= ids & {identity_of(each) for each in read_envelope(self.lake, self.table, name).deltas}
        return found

    def _in_file(self, file: DataFile, wanted: pa.Array) -> set[Identity]:
        found: set[Identity] = set()
        for batch in read_batches(self.lake, relative(self.table, "deltas", file.path), _ID_COLUMNS):
            rows = batch.filter(pc.is_in(batch["_delta_id"], value_set=wanted))
            found.update(zip(rows["_delta_id"].to_pylist(), rows["_op"].to_pylist(), strict=True))
        return found


def holdings_of(lake: Lake, table: str, deltas_table: DeltaTable | None, *, log_id: str | None = None) -> Holdings:
    """What the lake holds of a table, apart from what this log wrote."""
    files = [] if deltas_table is None else files_of(deltas_table)
    names = envelope_paths(lake, table)
    if log_id is not None:
        files = [file for file in files if not is_written_by(file.path, log_id)]
        names = [name for name in names if not is_written_by(name, log_id)]
    return Holdings(lake, table, tuple(files), tuple(names))


def repeated_rows(lake: Lake, table: str, files: Sequence[DataFile]) -> dict[str, list[int]]:
    """By file, the rows whose delta stands in an earlier file already.

    The first 8 bytes of the ids tell which deltas to look at: almost always none.
    """
    prefixes = [id_prefixes(_ids_of(lake, table, file)["_delta_id"].combine_chunks()) for file in files]
    values, counts = np.unique(np.concatenate([np.empty(0, np.int64), *prefixes]), return_counts=True)
    suspects = values[counts > 1]
    seen: set[Identity] = set()
    found: dict[str, list[int]] = {}
    for file, own in zip(files, prefixes, strict=True):
        rows = np.flatnonzero(np.isin(own, suspects))
        ids = _ids_of(lake, table, file).take(pa.array(rows)).to_pylist() if len(rows) else []
        identities = [(each["_delta_id"], each["_op"]) for each in ids]
        again = [int(row) for row, identity in zip(rows, identities, strict=True) if identity in seen]
        seen.update(identities)
        found |= {file.path: again} if again else {}
    return found


def _ids_of(lake: Lake, table: str, file: DataFile) -> pa.Table:
    return read_file(lake, relative(table, "deltas", file.path), _ID_COLUMNS)


def identity_of(delta: RowDelta) -> Identity:
    """What makes two deltas the same one."""
    return delta.delta_id, delta.op


def without(deltas: Iterable[RowDelta], known: set[Identity]) -> list[RowDelta]:
    """The deltas that are not known, each once."""
    seen = set(known)
    kept = []
    for delta in deltas:
        if identity_of(delta) not in seen:
            seen.add(identity_of(delta))
            kept.append(delta)
    return kept


def _reaches_over(hlcs: Sequence[int], low: int | None, high: int | None) -> bool:
    """Whether any of the sorted timestamps lies within the bounds."""
    if low is None or high is None:
        return True
    index = bisect_left(hlcs, low)
    return index < len(hlcs) and hlcs[index] <= high
