"""Hypothesis strategies for JSON values, rows and deltas."""

from __future__ import annotations

from hypothesis import strategies as st

from driftline.deltas import ColumnDelta, RowDelta

any_text = st.text(st.characters(exclude_categories=()), max_size=12)  # lone surrogates included
clean_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.one_of(
    st.integers(-10, 10),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.sampled_from([0.0, -0.0, 1e16, 1e21, 1e-4, 1e-5, 1e-6, 1e-7, 5e-324, 123456789.0, 0.1, 2.0**53, 2.0**53 + 2]),
)


def values(texts: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    leaves = st.one_of(st.none(), st.booleans(), numbers, texts)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
        max_leaves=5,
    )


@st.composite
def deltas(draw: st.DrawFn) -> RowDelta:
    """Deltas that collide often: few rows, few clients, few moments."""
    op = draw(st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE"]))
    names = [] if op == "DELETE" else draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3))
    entries = [ColumnDelta(name, draw(st.one_of(st.none(), st.integers(0, 3), st.just("x")))) for name in names]
    return RowDelta.make(
        op=op,
        table=draw(st.sampled_from(["t", "u"])),
        row_id=draw(st.sampled_from(["1", "2"])),
        client_id=draw(st.sampled_from(["a", "b", "\U0001f602", "\ufb33"])),
        columns=entries,
        hlc=draw(st.integers(0, 4)),
    )
