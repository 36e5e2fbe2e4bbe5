"""What may be appended to a log: decided here for every store, which only looks up what it knows and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from driftline.errors import GatewayError
from driftline.gateway.log import Entry

KnownOp = Callable[[Entry], int | None]  # the operation under which an id is known
KnownTable = Callable[[str], str | None]  # the name under which a table is known, by its name without case


def fresh_positions(batch: Sequence[Entry], known_op: KnownOp) -> list[int]:
    """Positions of entries that are not known yet; a known id with another operation refuses the batch."""
    fresh: list[int] = []
    in_batch: dict[bytes, int] = {}
    for position, entry in enumerate(batch):
        known = in_batch.get(entry.delta_id)
        if known is None:
            known = known_op(entry)
        if known is None:
            fresh.append(position)
            in_batch[entry.delta_id] = entry.op
        elif known != entry.op:
            raise GatewayError(f"deltas[{position}]: its id is known with another op", index=position)
    return fresh


def check_horizon(batch: Sequence[Entry], fresh: Sequence[int], horizon: int) -> None:
    """Refuse new deltas as old as what the log has forgotten: it could not tell whether they are new."""
    for position in fresh:
        if horizon and batch[position].hlc <= horizon:
            raise GatewayError(
                f"deltas[{position}]: older than what this gateway still remembers (hlc up to {horizon})",
                code="TOO_OLD",
                index=position,
            )


def new_tables(batch: Sequence[Entry], known_table: KnownTable) -> dict[str, str]:
    """Tables seen for the first time, by their name without case; they become directories, so case must not differ."""
    found: dict[str, str] = {}
    for name in sorted({entry.table for entry in batch}):
        folded = name.casefold()
        known = known_table(folded) or found.get(folded)
        if known is None:
            found[folded] = name
        elif known != name:
            raise GatewayError(f"table {name!r} differs from {known!r} only in case")
    return found


def unknown_entries(batch: Sequence[Entry], known_op: KnownOp) -> list[Entry]:
    """Foreign entries that the log does not know, each once.

    Also those as old as what it has forgotten: a load of an earlier day reaches the lake late, and clients that pull
    must end where a snapshot of the lake begins. One that was here before changes nothing for whoever has it.
    """
    fresh = (entry for entry in batch if known_op(entry) is None)
    return list({(entry.delta_id, entry.op): entry for entry in fresh}.values())


def first_reached(low: int, high: int, arrival_at: Callable[[int], int | None], hlc: int) -> int:
    """The first sequence from `low` up to `high` that arrived at `hlc` or later; arrivals rise with the sequence."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if (arrival_at(middle) or 0) >= hlc else (middle + 1, high)
    return low
