"""Python's csv module with strict quoting and no limit on the size of a field (tables §2.1).

The module keeps its limit for the whole process, which may be somebody else's program. So this is a copy of it with
a limit of its own; the copy is made by the interpreter from the same C code.
"""

from __future__ import annotations

import csv
import struct
from collections.abc import Iterable, Iterator
from importlib.util import find_spec, module_from_spec
from typing import Any

_LARGEST_FIELD = (1 << (8 * struct.calcsize("l") - 1)) - 1  # the limit is a C long


def _own_copy() -> Any:
    spec = find_spec("_csv")
    assert spec is not None, "every Python has the module below csv"
    assert spec.loader is not None, "every Python has the module below csv"
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    copy.field_size_limit(_LARGEST_FIELD)
    return copy


_csv = _own_copy()
CsvError: type[csv.Error] = _csv.Error


def parse_records(text: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """The records of lines of text whose line ends are untouched; a blank line is a record with one empty field.

    >>> list(parse_records(['1,"a,b"\\n', "\\n"], ","))
    [['1', 'a,b'], ['']]
    """
    for record in _csv.reader(text, delimiter=delimiter, strict=True):
        yield record or [""]
