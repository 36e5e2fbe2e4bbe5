"""Parcels: what tasks send each other through a shuffle, blobs with an address, in Arrow batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

SCHEMA = "target int, kind string, side string, number int, blob binary"
PARCEL_BYTES = 16 << 20  # larger contents are cut: the JVM builds a whole batch in memory

_ARROW_SCHEMA = pa.schema(
    [
        ("target", pa.int32()),
        ("kind", pa.string()),
        ("side", pa.string()),
        ("number", pa.int32()),
        ("blob", pa.binary()),
    ]
)


class Parcel(NamedTuple):
    """Some bytes for the task that works on `target`."""

    target: int
    kind: str
    side: str
    number: int
    blob: Any


def pack(parcels: Iterable[Parcel]) -> Iterator[pa.RecordBatch]:
    """Parcels as record batches.

    >>> batches = pack([Parcel(3, "rows", "A", 0, b"abc")])
    >>> [bytes(parcel.blob) for parcel in unpack(batches)]
    [b'abc']
    """
    held: list[Parcel] = []
    size = 0
    for parcel in parcels:
        held.append(parcel)
        size += len(parcel.blob)
        if size >= PARCEL_BYTES:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    """The parcels of record batches; blobs are views into the batches."""
    for batch in batches:
        targets, kinds, sides, numbers = (column.to_pylist() for column in batch.columns[:4])
        blobs = batch.column(4)
        for index, target in enumerate(targets):
            yield Parcel(target, kinds[index], sides[index], numbers[index], memoryview(blobs[index].as_buffer()))


def _batch(parcels: list[Parcel]) -> pa.RecordBatch:
    columns = zip(*parcels, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)
