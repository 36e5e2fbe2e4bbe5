"""Seeded lakes: a table of six columns with full-row writes, single-column updates, deletes and explicit nulls."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.deltas import TableSchema
from driftline.lake import Lake, register
from driftline.lake._fold.local import delta_ids
from driftline.lake._store.lake import attempt_token, delta_file_name, relative
from driftline.lake._store.parquet import write_file
from driftline.lake._store.rows import delta_file_schema
from driftline.lake._store.tables import Commit, loaded

TABLE = "orders"
COLUMNS = {
    "name": "string",
    "city": "string",
    "amount": "number",
    "count": "number",
    "active": "boolean",
    "note": "string",
}
SCHEMA = TableSchema(TABLE, [{"name": name, "type": kind} for name, kind in COLUMNS.items()])
ROWS_PER_FILE = 500_000
START = 1_790_000_000_000 << 16

_SINGLE, _DELETES, _NULLS = 0.20, 0.05, 0.03

Rng = np.random.Generator


def write_lake(root: str, deltas: int, rows: int, *, seed: int = 7, real_ids: bool = True) -> Lake:
    """A lake with `deltas` deltas over `rows` rows, in files of half a million."""
    lake = Lake(root)
    register(lake, SCHEMA)
    rng = np.random.default_rng(seed)
    for start in range(0, deltas, ROWS_PER_FILE):
        count = min(ROWS_PER_FILE, deltas - start)
        add_file(lake, make_deltas(rng, rng.integers(0, rows, count), START + start, real_ids=real_ids))
    return lake


def write_inserts(root: str, rows: int, *, seed: int = 7) -> Lake:
    """A lake with one INSERT for each of `rows` rows, in random order."""
    lake = Lake(root)
    register(lake, SCHEMA)
    rng = np.random.default_rng(seed)
    ids = rng.permutation(rows)
    for start in range(0, rows, ROWS_PER_FILE):
        chosen = ids[start : start + ROWS_PER_FILE]
        kinds = np.full(len(chosen), "INSERT")
        add_file(lake, make_deltas(rng, chosen, START + start, kinds=kinds, real_ids=False))
    return lake


def add_updates(lake: Lake, row_numbers: npt.NDArray[Any], *, seed: int, start: int) -> None:
    """One more file: single-column updates of the given rows."""
    kinds = np.full(len(row_numbers), "UPDATE")
    add_file(lake, make_deltas(np.random.default_rng(seed), row_numbers, start, kinds=kinds, real_ids=False))


def add_file(lake: Lake, rows: Any) -> None:
    """Write and commit one delta file."""
    hlcs = rows["_hlc"].to_numpy()
    name = delta_file_name("bench", int(hlcs.min()), int(hlcs.max()), attempt_token())
    file = write_file(lake, relative(TABLE, "deltas"), name, rows)
    assert loaded(lake, TABLE).append(Commit(adds=[file]))


def make_deltas(
    rng: Rng, row_numbers: npt.NDArray[Any], start: int, *, kinds: Any = None, real_ids: bool = True
) -> Any:
    """Rows of a delta file."""
    count = len(row_numbers)
    if kinds is None:
        kinds = rng.choice(["UPDATE", "DELETE", "INSERT"], count, p=[_SINGLE, _DELETES, 1 - _SINGLE - _DELETES])
    present = _present(rng, kinds)
    values = _values(rng, row_numbers, present)
    named = _names(present)
    hlcs = start + rng.permutation(count)
    fixed = [
        pa.array(kinds.tolist(), pa.string()),
        _texts("row-", row_numbers, 9),
        _texts("client-", rng.integers(0, 50, count), 2),
        pa.array(hlcs, pa.int64()),
        pa.array([""] * count, pa.string()),
        named,
    ]
    rows = pa.Table.from_arrays([*fixed, *values], schema=delta_file_schema(SCHEMA.columns))
    ids = delta_ids(TABLE, rows, SCHEMA.columns) if real_ids else _random_ids(rng, count)
    return rows.set_column(4, rows.schema.field(4), ids)


def _present(rng: Rng, kinds: Any) -> npt.NDArray[np.bool_]:
    single = np.zeros((len(kinds), len(COLUMNS)), dtype=bool)
    single[np.arange(len(kinds)), rng.integers(0, len(COLUMNS), len(kinds))] = True
    return np.where((kinds == "INSERT")[:, None], True, single & (kinds == "UPDATE")[:, None])


def _values(rng: Rng, row_numbers: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> list[Any]:
    count = len(row_numbers)
    made: Sequence[Any] = (
        _texts("name of ", row_numbers, 7),
        _texts("city ", rng.integers(0, 5000, count), 4),
        pa.array(np.round(rng.random(count) * 1000, 2)),
        pa.array(rng.integers(0, 100, count).astype(np.float64)),
        pa.array(rng.random(count) < 0.5),
        _texts("note ", rng.integers(0, 10_000_000, count), 8),
    )
    nulls = rng.random((count, len(COLUMNS))) < _NULLS
    hidden = ~present | nulls
    return [_masked(array, hidden[:, number]) for number, array in enumerate(made)]


def _names(present: npt.NDArray[np.bool_]) -> Any:
    names = pa.array(list(COLUMNS), pa.string())
    offsets = np.zeros(len(present) + 1, dtype=np.int32)
    np.cumsum(present.sum(axis=1), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(present)[1])))


def _texts(prefix: str, numbers: Any, width: int) -> Any:
    import pyarrow.compute as pc

    digits = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), width, "0")
    return pc.binary_join_element_wise(prefix, digits, "")


def _masked(array: Any, mask: npt.NDArray[np.bool_]) -> Any:
    import pyarrow.compute as pc

    return pc.if_else(pa.array(~mask), array, None)


def _random_ids(rng: Rng, count: int) -> Any:
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)[rng.integers(0, 16, count * 64, dtype=np.uint8)]
    offsets = np.arange(0, (count + 1) * 64, 64, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(digits))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--deltas", type=int, default=5_000_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--random-ids", action="store_true")
    given = parser.parse_args()
    write_lake(given.root, given.deltas, given.rows, real_ids=not given.random_ids)
