"""A whole snapshot against the lake's state: two streams in the order of row ids, merged; neither is held in memory."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from driftline.files import naming_the_file

ROWS_IN_MEMORY = 200_000

Row = dict[str, Any]
Rows = Iterable[tuple[str, Row]]


def differing_rows(there: Rows, wanted: Rows) -> Iterator[tuple[str, Row | None]]:
    """Rows that are not as wanted, as they should be, in the order of row ids; None where there should be none.

    >>> list(differing_rows([("1", {"a": 1}), ("2", {}), ("3", {"a": 3})], [("1", {"a": 1}), ("3", {"a": 4})]))
    [('2', None), ('3', {'a': 4})]
    """
    ours, theirs = iter(there), iter(wanted)
    here, should = next(ours, None), next(theirs, None)
    while here is not None or should is not None:
        if should is None or (here is not None and here[0] < should[0]):
            assert here is not None
            yield here[0], None
            here = next(ours, None)
        elif here is None or should[0] < here[0]:
            yield should
            should = next(theirs, None)
        else:
            if here[1] != should[1]:
                yield should
            here, should = next(ours, None), next(theirs, None)


def in_order_of_ids(rows: Rows, scratch: Path, limit: int = ROWS_IN_MEMORY) -> Iterator[tuple[str, Row]]:
    """The rows sorted by their ids, a bounded number in memory, the rest in files of `scratch`."""
    source = iter(rows)
    batch = sorted(islice(source, limit), key=_row_id)
    files: list[Path] = []
    while batch and (following := list(islice(source, limit))):
        files.append(_spilled(batch, scratch / f"sorted-{len(files):05d}.jsonl"))
        batch = sorted(following, key=_row_id)
    return heapq.merge(*map(_read, files), batch, key=_row_id)


def _row_id(entry: tuple[str, Row]) -> str:
    return entry[0]


def _spilled(batch: list[tuple[str, Row]], path: Path) -> Path:
    with naming_the_file(path.name), path.open("w", encoding="utf-8") as out:
        for entry in batch:
            out.write(json.dumps(entry, ensure_ascii=False) + "\n")
    return path


def _read(path: Path) -> Iterator[tuple[str, Row]]:
    with naming_the_file(path.name), path.open(encoding="utf-8") as lines:
        for line in lines:
            row_id, row = json.loads(line)
            yield row_id, row
