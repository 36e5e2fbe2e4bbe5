from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from driftline.sinks._formats import cell_text
from driftline.sinks._pages import changed_cell, difference_in_words, highlight, missing_word

CELLS = st.one_of(st.text(max_size=30), st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False))


@given(CELLS, CELLS)
def test_parts_put_together_are_the_texts(old: object, new: object) -> None:
    before, after = highlight(old, new)
    assert "".join(text for text, _ in before) == cell_text(old)
    assert "".join(text for text, _ in after) == cell_text(new)
    unmarked = ["".join(text for text, marked in side if not marked) for side in (before, after)]
    if any(marked for _, marked in before + after):
        assert unmarked[0] == unmarked[1]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("313.94", "331.35", "+17.41 (+5.5%)"),
        ("0", "5", "+5"),
        ("10", "7.5", "−2.5 (−25.0%)"),
        ("1000000", "2500000", "+1,500,000 (+150.0%)"),
        (1, 2, "+1 (+100.0%)"),
        ("1.0", "1", ""),
        ("2024-03-01", "2024-02-29", "−1 day"),
        ("basic", "pro", ""),
        (True, False, ""),
        (None, "1", ""),
        ("1e400", "2", ""),
        ("9" * 31, "1", ""),
        ("05", "04", ""),  # a code
        ("01", "3", ""),
        ("0", "1", ""),  # a flag
        (1, 0, ""),
        ("51.470020", "51.470020298095703", "+0.000000298"),
        ("1", "123457.654321", "+123,457 (+12345665.4%)"),
        ("100", "99.99", "−0.01"),
    ],
)
def test_differences_in_words(old: object, new: object, words: str) -> None:
    assert difference_in_words(old, new) == words


def test_short_words_that_share_a_letter_are_marked_whole() -> None:
    assert highlight("free", "pie") == ([("free", True)], [("pie", True)])
    assert highlight("Rosa Khan", "ROSA KHAN")[0] == [("Rosa", True), (" ", False), ("Khan", True)]


def test_a_long_text_is_marked_between_its_common_ends() -> None:
    before, after = highlight("x " * 5000 + "old" + " y" * 5000, "x " * 5000 + "new" + " y" * 5000)
    assert [text for text, marked in before if marked] == ["old"]
    assert [text for text, marked in after if marked] == ["new"]


def test_a_long_cell_is_shown_around_the_first_difference() -> None:
    """Two megabytes that differ in the middle, and nothing else."""
    old, new = changed_cell("x" * 500_000 + "old" + "y" * 500_000, "x" * 500_000 + "new" + "y" * 500_000)
    assert "<mark>old</mark>" in old
    assert "<mark>new</mark>" in new
    assert old.startswith("…" + "x" * 200 + "<mark>")
    assert len(old) < 2_100


def test_missing_values_have_words() -> None:
    assert [missing_word(value) for value in (None, "", 0, False, " ")] == ["null", "empty", None, None, None]
