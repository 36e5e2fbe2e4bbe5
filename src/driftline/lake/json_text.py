"""JSON texts of whole columns: what `canonical_json` prints for each value, made for all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.canonical import number_text, string_text

_NEEDS_ESCAPE = '["\\\\\\x00-\\x1f]'
# Within these bounds Arrow prints the shortest digits without an exponent, as JavaScript does.
_EXACT = float(1 << 53)
_PLAIN_LOW, _PLAIN_HIGH = 1e-3, 1e9


def json_texts(values: Any, kind: str) -> Any:
    """The JSON text of every value of a column of a declared type; null becomes `null`."""
    return pc.fill_null(_TEXTS[kind](values), "null")


def string_texts(values: Any) -> Any:
    """JSON string literals; null stays null."""
    quoted = pc.binary_join_element_wise('"', values, '"', "")
    special = pc.fill_null(pc.match_substring_regex(values, _NEEDS_ESCAPE), False)
    if not pc.any(special).as_py():
        return quoted
    escaped = pa.array([string_text(text) for text in values.filter(special).to_pylist()], pa.string())
    return pc.replace_with_mask(quoted, special, escaped)


def number_texts(values: Any) -> Any:
    """Doubles as JavaScript prints them; null stays null."""
    numbers: npt.NDArray[np.float64] = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    whole = (np.abs(numbers) <= _EXACT) & (numbers == np.trunc(numbers))
    size = np.abs(numbers)
    plain = whole | ((size >= _PLAIN_LOW) & (size <= _PLAIN_HIGH))
    if bool(whole.all()):
        texts = pc.cast(pa.array(numbers.astype(np.int64)), pa.string())
    else:
        texts = pc.cast(pa.array(np.where(whole, 0.5, numbers)), pa.string())
        integers = pc.cast(pa.array(numbers[whole].astype(np.int64)), pa.string())
        texts = pc.replace_with_mask(texts, pa.array(whole), integers)
    if not bool(plain.all()):
        odd = pa.array([number_text(number) for number in numbers[~plain].tolist()], pa.string())
        texts = pc.replace_with_mask(texts, pa.array(~plain), odd)
    return pc.if_else(pc.is_valid(values), texts, None) if values.null_count else texts


def boolean_texts(values: Any) -> Any:
    """`true` and `false`; null stays null."""
    return pc.if_else(values, "true", "false")


_TEXTS: dict[str, Callable[[Any], Any]] = {
    "string": string_texts,
    "number": number_texts,
    "boolean": boolean_texts,
    "json": lambda values: values,
}
