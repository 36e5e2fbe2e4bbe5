"""Functions of Arrow arrays as functions of columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

if TYPE_CHECKING:
    from pyspark.sql import Column

_make: Any = vars(functions)["arrow_udf"]  # public, but left out of pyspark's annotations


def arrow_function(kind: str, function: Callable[..., Any]) -> Callable[..., Column]:
    """A function of columns whose batches `function` makes; it must say that it takes and gives `pa.Array`s."""
    made: Callable[..., Column] = _make(function, kind)
    return made
