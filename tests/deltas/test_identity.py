"""The quick way to a delta id says what canonical JSON says."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings, strategies as st

from driftline.core._json import canonical_json, sha256_hex
from driftline.deltas import ColumnDelta, delta_id
from driftline.deltas._deltas import columns_text
from support.delta_strategies import any_text, values


@settings(max_examples=400)
@given(
    any_text, st.integers(0, 1 << 63), any_text, any_text, st.lists(st.tuples(any_text, values(any_text)), max_size=6)
)
@example("c", 1, "t", "r", [("a", "\ud83d\ude02"), ("b", 1e16), ("c", -0.0), ("d", 2**53 + 1)])
@example("\ud800", 1, "\udc00", "\ud83d" + "\ude02", [("\ud800", 1)])
def test_equals_the_canonical_text(client: str, hlc: int, table: str, row: str, columns: list[tuple[str, Any]]) -> None:
    plain = [{"column": name, "value": value} for name, value in columns]
    content = {"clientId": client, "hlc": str(hlc), "table": table, "rowId": row, "columns": plain}
    expected = sha256_hex(canonical_json(content))
    records = [ColumnDelta(name, value) for name, value in columns]
    for given_columns in (plain, records, tuple(records), iter(records)):
        assert delta_id(client_id=client, hlc=hlc, table=table, row_id=row, columns=given_columns) == expected
    assert columns_text(records) == canonical_json(plain)


@settings(max_examples=1000)
@given(st.floats() | st.floats(1e-5, 1e17) | st.integers(-(1 << 60), 1 << 60).map(float))
def test_numbers_print_alike(value: float) -> None:
    assert columns_text([ColumnDelta("n", value)]) == canonical_json([{"column": "n", "value": value}])
