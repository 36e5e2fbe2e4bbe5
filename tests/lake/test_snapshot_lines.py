"""Lines of snapshots are made by columns; the judge makes each row's line from its merged deltas."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings, strategies as st

from driftline.core import canonical_json
from driftline.deltas import ColumnDelta, RowDelta, RowMerge, TableSchema, exact_wire, fold_to_plain
from driftline.lake import Lake, columns_in, compact, flush, register, row_lines
from driftline.lake._read.state import write_rows
from driftline.lake._store.rows import plain_number
from driftline.lake._store.tables import loaded

KINDS = {"b": "number", "a": "string", "ü ,": "json", "yes": "boolean", "n": "integer", "d": "decimal(4)"}
SCHEMA = TableSchema("t", [{"name": name, "type": kind} for name, kind in KINDS.items()])
NUMBERS = [0, -0.0, 7, 0.5, 1e-4, 1e-5, 0.001, 1e9, 1e15, 1.5e16, 1 << 53, 1e21, 1e22, 1.7e308, 5e-324, -123.456, 1e-6]
TEXTS = ["", "a", 'q"\\', "\n\t\x00\x1f\x7f", "é\u2028😂", "1e-7 0.00001"]
JSON = [
    {"z": 1, "a": [1e-7, "e+5"]},
    [1e21, 100000000000000000000],
    {},
    "0.00001",
    0.00001,
    [True, None, {"é\n": 1}],
    5,
]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "b": (st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False)).map(float).map(plain_number),
    "a": st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"])),
    "ü ,": st.sampled_from(JSON).map(canonical_json).map(json.loads),
    "yes": st.booleans(),
    "n": st.sampled_from([0, -7, (1 << 53) - 1, 1 << 53, -(1 << 63)]).map(lambda value: exact_wire("integer", value)),
    "d": st.sampled_from(["0", "-1.5", "1234567890.1234", "0.0001"]),
}
rows = st.fixed_dictionaries({}, optional={name: st.none() | values for name, values in VALUES.items()})
changes = st.tuples(
    st.sampled_from(["INSERT", "UPDATE", "DELETE"]), st.sampled_from(["1", "2", 'ä"']),
    st.sampled_from(["c", "😂", "\ufb33"]), st.integers(1, 6), rows,
)  # fmt: skip


def made(change: Any) -> RowDelta:
    op, row_id, client, hlc, columns = change
    entries = [] if op == "DELETE" else [ColumnDelta(*each) for each in columns.items()]
    return RowDelta.make(op=op, table="t", row_id=row_id, client_id=client, columns=entries, hlc=hlc << 16)


def model(deltas: list[RowDelta]) -> bytes:
    folds: dict[str, RowMerge] = {}
    for delta in deltas:
        folds.setdefault(delta.row_id, RowMerge()).add(delta)
    lines = []
    for row_id in sorted(folds, key=str.encode):
        record = {"table": "t", "rowId": row_id, **fold_to_plain(folds[row_id])}
        lines.append(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return b"".join(lines)


def lines_of(lake: Lake, more: list[RowDelta], folder: str) -> bytes:
    tail: dict[str, RowMerge] = {}
    for delta in more:
        tail.setdefault(delta.row_id, RowMerge()).add(delta)
    target = Path(folder) / "rows.arrow"
    write_rows(lake, "t", loaded(lake, "t").version(), tail, target)
    with pa.memory_map(str(target)) as source:
        table = pa.ipc.open_file(source).read_all()
        found, ends = row_lines(table, "t", columns_in(table.schema))
        assert list(ends) == [at + 1 for at, byte in enumerate(found) if byte == 10]
        sliced = [row_lines(table.slice(at, 1), "t", columns_in(table.schema))[0] for at in range(table.num_rows)]
        assert b"".join(sliced) == found
    return found


@settings(max_examples=60)
@given(st.lists(changes, min_size=1, max_size=10), st.lists(changes, max_size=3), st.booleans())
@example([("INSERT", "1", "c", 1, {}), ("DELETE", "2", "c", 1, {})], [], False)
@example(
    [("INSERT", "1", "c", 2, {"b": 1e-7}), ("DELETE", "1", "c", 1, {}), ("UPDATE", "1", "c", 3, {"a": ""})], [], True
)
def test_lines_are_those_of_merged_rows(flushed: list[Any], tail: list[Any], compacted: bool) -> None:
    first, more = list(map(made, flushed)), list(map(made, tail))
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(f"{folder}/lake")
        register(lake, SCHEMA)
        first = list({delta.delta_id: delta for delta in first}.values())
        flush(lake, "t", first, gateway_id="gw", sequence=1)
        if compacted:
            compact(lake, "t")
        assert lines_of(lake, more, folder) == model([*first, *more])
