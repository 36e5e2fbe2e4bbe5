"""Events as a table: Parquet, alone or as parts of a folder, and Delta (storage §6).

Columns: `number` (position in the stream), `type`, `key` (JSON text), `row_index`, `changed` (list of columns),
`before` and `after` (JSON text of the row), `details` (JSON text of the events that are not about a row).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from driftline import core
from driftline.errors import StorageError

SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("row_index", pa.int64()),
        pa.field("changed", pa.list_(pa.string())),
        pa.field("before", pa.string()),
        pa.field("after", pa.string()),
        pa.field("details", pa.string()),
    ]
)
_PART_BYTES = 64 << 20
_BATCH = 50_000
_NONE = msgspec.Raw(b"")

Mapper = Callable[..., Iterable[Any]]


class _Event(msgspec.Struct):
    type: str
    key: msgspec.Raw = _NONE
    row_index: int | None = None
    changed: list[str] | None = None
    row: msgspec.Raw = _NONE
    before: msgspec.Raw = _NONE
    after: msgspec.Raw = _NONE


_decode = msgspec.json.Decoder(_Event).decode


def write(lines: Iterable[bytes], out: object, *, first: int = 0, **settings: object) -> None:
    """Write the events; `first` is the number of the first one."""
    with pq.ParquetWriter(out, SCHEMA, compression="zstd", compression_level=1) as writer:
        for table in _tables(lines, first):
            writer.write_table(table)


def known_version(target: core.Location, format_name: str) -> Any:
    """The current version of the table; a commit is refused if it has changed since."""
    return _loaded(target) if format_name == "delta" else core.manifest_version(target)


def write_table(
    events: Sequence[core.AnyPath], target: core.Location, format_name: str, known: Any = None, each: Mapper = map
) -> None:
    """Write events as a folder of Parquet parts or a Delta table; `each` maps functions, locally or in tasks."""
    ranges = [lines for piece in events for lines in core.line_ranges(piece, _PART_BYTES)]
    counts: list[int] = list(each(core.LineRange.count, ranges))
    firsts = list(accumulate(counts, initial=0))[:-1]
    numbers = range(len(ranges))
    parts = list(each(_write_part, [target] * len(ranges), numbers, ranges, firsts))
    if format_name == "delta":
        commit_delta(target, parts, counts, known)
    else:
        core.commit_parts(target, parts, known)


def _write_part(target: core.Location, number: int, lines: core.LineRange, first: int) -> core.Part:
    sink = pa.BufferOutputStream()
    write(lines.lines(), sink, first=first)
    return core.write_part(target, number, [memoryview(sink.getvalue())], ".parquet")


def _tables(lines: Iterable[bytes], first: int) -> Iterator[pa.Table]:
    reader = iter(lines)
    while batch := list(islice(reader, _BATCH)):
        rows = [_row(number, line, _decode(line)) for number, line in enumerate(batch, start=first)]
        columns = zip(*rows, strict=True)
        yield pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
        first += len(rows)


def _row(number: int, line: bytes, event: _Event) -> tuple[Any, ...]:
    before = event.row if event.type == "removed" else event.before
    after = event.row if event.type in ("added", "unchanged") else event.after
    about_a_row = event.key or event.row or event.before or event.row_index is not None
    details = None if about_a_row else line.strip().decode()
    return number, event.type, _text(event.key), event.row_index, event.changed, _text(before), _text(after), details


def _text(raw: msgspec.Raw) -> str | None:
    return bytes(raw).decode() if raw else None


def _loaded(target: core.Location) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(str(target), storage_options=core.delta_options(str(target)))
    except TableNotFoundError:
        return None


def commit_delta(
    target: core.Location,
    parts: Sequence[core.Part],
    counts: Sequence[int],
    known: Any = None,
    columns: pa.Schema = SCHEMA,
) -> None:
    """Make Parquet parts the content of a Delta table, new or as it was when it was `known`."""
    from deltalake import Schema
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import AddAction, create_table_with_add_actions

    adds = [
        AddAction(part.name, part.size, {}, 0, True, f'{{"numRecords":{rows}}}')
        for part, rows in zip(parts, counts, strict=True)
    ]
    schema = Schema.from_arrow(columns)
    try:
        if known is None:
            options = core.delta_options(str(target))
            create_table_with_add_actions(str(target), schema, adds, mode="error", storage_options=options)
        else:
            known.create_write_transaction(adds, "overwrite", schema)
    except (CommitFailedError, DeltaError) as error:
        raise StorageError(
            f"{target} was not committed, somebody else wrote it meanwhile or it is no table of events: "
            f"{str(error).splitlines()[0][:200]}",
            code="output_changed",
            path=str(target),
        ) from error
