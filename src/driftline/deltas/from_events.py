"""The door from table diffs: data events become deltas.

>>> event = {"type": "removed", "key": {"id": "1"}, "row": {"id": "1", "name": "Alice"}}
>>> [delta] = from_events([event], table="people", client_id="nightly", start=1000)
>>> delta.op, delta.row_id, delta.hlc
('DELETE', '1', 1000)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from driftline.core._json import canonical_json
from driftline.deltas.clock import Clock
from driftline.deltas.extraction import Row, extract
from driftline.deltas.row_delta import RowDelta
from driftline.deltas.schema import TableSchema
from driftline.errors import DeltaError

Event = Mapping[str, Any]

_VERSIONS: dict[str, Callable[[Event], tuple[Row | None, Row | None]]] = {
    "added": lambda event: (None, event["row"]),
    "removed": lambda event: (event["row"], None),
    "changed": lambda event: (event["before"], event["after"]),
    "unchanged": lambda event: (None, None),
}
_FRAME = frozenset({"schema", "stats"})


def from_events(
    events: Iterable[Event],
    *,
    table: str,
    client_id: str,
    start: int | Clock | Iterator[int],
    schema: TableSchema | None = None,
) -> Iterator[RowDelta]:
    """The deltas of a table diff, in the order of its events.

    `start` is the first timestamp, the next ones count up from it, so that a rerun makes the same deltas; a `Clock`
    gives live ones, an iterator whatever it holds.
    """
    timestamps = _timestamps(start)
    for event in events:
        if event.get("type") in _FRAME:
            continue
        before, after = _versions(event)
        if before is not None or after is not None:
            delta = extract(
                before,
                after,
                table=table,
                row_id=row_id_of(event),
                client_id=client_id,
                hlc=next(timestamps),
                schema=schema,
            )
            if delta is not None:
                yield delta


def row_id_of(event: Event) -> str:
    """The row id of a data event: its key, or its row number in a positional diff."""
    if "key" in event:
        return row_id_of_key(list(event["key"].values()))
    if "row_index" in event:
        return str(event["row_index"])
    raise DeltaError(
        "an event without key and row_index cannot become a delta: diff with --key, or without --ignore-row-order"
    )


def row_id_of_key(values: list[Any]) -> str:
    """The row id of key values: the text itself for one column, their canonical JSON array for several.

    >>> row_id_of_key(["7"]), row_id_of_key([7]), row_id_of_key(["a", "b"])
    ('7', '7', '["a","b"]')
    """
    if len(values) == 1:
        return values[0] if isinstance(values[0], str) else canonical_json(values[0])
    return canonical_json(values)


def _versions(event: Event) -> tuple[Row | None, Row | None]:
    kind = event.get("type")
    if kind not in _VERSIONS:
        raise DeltaError(f"a table diff has no event of type {kind!r}")
    return _VERSIONS[kind](event)


def _timestamps(start: int | Clock | Iterator[int]) -> Iterator[int]:
    # Adding one carries a full counter into the wall clock, as the clock itself does.
    if isinstance(start, int):
        return count(start)
    return iter(start.now, None) if isinstance(start, Clock) else start
