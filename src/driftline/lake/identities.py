"""Delta ids of whole files: the hash input is put together column by column, only the hashing goes one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core._json import string_text
from driftline.deltas import ColumnSchema
from driftline.errors import LakeError
from driftline.lake.columns import escape_name
from driftline.lake.rendering import json_texts, string_texts


def delta_ids(table: str, rows: pa.Table, columns: Sequence[ColumnSchema]) -> pa.Array:
    """The ids that rows of delta files should have, by their content."""
    texts = pc.binary_join_element_wise(
        '{"clientId":',
        string_texts(_one(rows["_client_id"])),
        ',"columns":[',
        column_texts(rows, columns),
        '],"hlc":"',
        pc.cast(_one(rows["_hlc"]), pa.string()),
        '","rowId":',
        string_texts(_one(rows["_row_id"])),
        f',"table":{string_text(table)}}}',
        "",
    )
    return pa.array(_hex_digests(texts), pa.string())


def check_delta_ids(table: str, rows: pa.Table, columns: Sequence[ColumnSchema], path: str) -> None:
    """Raise an error that names the file and the first row whose id does not match its content."""
    given = _one(rows["_delta_id"])
    wrong = pc.fill_null(pc.not_equal(given, delta_ids(table, rows, columns)), True)
    if pc.any(wrong).as_py():
        position = pc.index(wrong, True).as_py()
        row_id = rows["_row_id"][position].as_py()
        raise LakeError(
            f"{path}, row {position} (row id {row_id!r}): the delta id does not match the content",
            code="bad_delta_id",
            path=path,
            index=position,
        )


def column_texts(rows: pa.Table, columns: Sequence[ColumnSchema]) -> pa.Array:
    """The canonical JSON of each row's `columns`, without the brackets, in the order of `_columns`."""
    named = _one(rows["_columns"])
    flat = named.flatten()
    codes = pc.fill_null(pc.index_in(flat, value_set=pa.array([c.name for c in columns], pa.string())), -1)
    numbers = codes.to_numpy(zero_copy_only=False)
    if len(numbers) and numbers.min() < 0:
        unknown = flat[int(np.argmin(numbers))].as_py()
        raise LakeError(f"a delta sets the column {unknown!r}, which the table never had", code="wrong_schema")
    parents = pc.list_parent_indices(named).to_numpy(zero_copy_only=False)
    entries = _entries(rows, columns, numbers, parents)
    offsets = np.zeros(len(named) + 1, dtype=np.int32)
    np.cumsum(pc.list_value_length(named).to_numpy(zero_copy_only=False), out=offsets[1:])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), entries), ",")


def _entries(rows: pa.Table, columns: Sequence[ColumnSchema], numbers: pa.Array, parents: pa.Array) -> pa.Array:
    """`{"column":…,"value":…}` for every entry of every row."""
    pieces, positions = [pa.array([], pa.string())], [np.array([], dtype=np.int64)]
    for number, column in enumerate(columns):
        chosen = np.flatnonzero(numbers == number)
        if len(chosen):
            values = _one(rows[escape_name(column.name)]).take(pa.array(parents[chosen]))
            start = f'{{"column":{string_text(column.name)},"value":'
            pieces.append(pc.binary_join_element_wise(start, json_texts(values, column.type), "}", ""))
            positions.append(chosen)
    order = np.concatenate(positions)
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(pieces).take(pa.array(back))


def _hex_digests(texts: pa.Array) -> list[str]:
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1].tolist()
    data = memoryview(texts.buffers()[2] or b"")
    sha256 = hashlib.sha256
    return [sha256(data[start:stop]).hexdigest() for start, stop in pairwise(offsets)]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
