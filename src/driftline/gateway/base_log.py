"""What every store of the log does alike: it keeps a few numbers beside its records, and all questions about how far
the log, its flushes and its rows have come are questions about these.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from driftline.deltas._merge import RowKey
from driftline.errors import GatewayError
from driftline.gateway.log import Bounds, Entry, FlushProgress, Numbers, Projection, StoredRow


class BaseLog(ABC):
    """The part of a `DeltaLog` that needs nothing but the store's numbers."""

    _poll_seconds: ClassVar[float]  # how late another process's commit is seen by whoever waits

    def __init__(self) -> None:
        self._committed = threading.Condition()

    @abstractmethod
    def _numbers(self) -> Mapping[str, Any]:
        """Every number by its name, as of now."""

    @abstractmethod
    def _raise(self, name: str, value: int) -> None:
        """Make a number at least this, durably."""

    @abstractmethod
    def _arrival(self, seq: int) -> int | None:
        """The arrival of a record that is still there."""

    @abstractmethod
    def _replace_rows(
        self, rows: Mapping[RowKey, StoredRow], before: Projection, after: Projection, *, anew: bool
    ) -> None:
        """Replace folds and add versions in one durable step, unless the rows are not at `before` any more."""

    def arrival_at(self, seq: int) -> int | None:
        """The arrival of the record with this sequence (0 for 0), None where it is not known any more."""
        if seq == 0:
            return 0
        found = self._arrival(seq)
        if found is None:
            numbers = self._numbers()
            return numbers["pruned_arrival"] or None if seq == numbers["pruned"] else None
        return found

    def bounds(self) -> Bounds:
        """How far the log reaches."""
        numbers = self._numbers()
        return Bounds(numbers["pruned"], numbers["last"], numbers["horizon"])

    def forget_below(self, hlc: int) -> None:
        """Say that deltas with timestamps up to `hlc` were never here."""
        self._raise("horizon", hlc)

    def first_arrival_from(self, hlc: int) -> int:
        """The sequence of the first record that arrived at `hlc` or later; one past the end if none did."""
        bounds = self.bounds()
        return first_reached(bounds.pruned + 1, bounds.last + 1, self.arrival_at, hlc)

    def clock(self) -> int:
        """The newest timestamp that the log has given or seen."""
        return int(self._numbers()["clock"])

    def wait_past(self, seq: int, seconds: float) -> int:
        """Wait until the log reaches past a sequence, or for so long; the newest sequence then."""
        deadline = time.monotonic() + seconds
        while True:
            last = int(self._numbers()["last"])
            left = deadline - time.monotonic()
            if last > seq or left <= 0:
                return last
            with self._committed:  # commits that this process hears of are told, others are found by looking
                self._committed.wait(min(left, self._poll_seconds))

    def flush_progress(self) -> FlushProgress:
        """How far the lake has the log."""
        numbers = self._numbers()
        return FlushProgress(numbers["flushed"], numbers["flushing"])

    def note_flushing(self, target: int) -> None:
        """Note durably that the range up to `target` is on its way."""
        self._raise("flushing", target)

    def note_flushed(self, target: int) -> None:
        """Note durably that the lake has everything up to `target`."""
        self._raise("flushed", target)

    def numbers(self) -> Numbers:
        """The numbers of the configuration."""
        numbers = self._numbers()
        return Numbers(numbers["config"], numbers["rules"])

    def projected(self) -> Projection:
        """How far the rows are folded."""
        numbers = self._numbers()
        return Projection(numbers["projected"], numbers["projected_rules"])

    def store_rows(self, rows: Mapping[RowKey, StoredRow], before: Projection, after: Projection) -> None:
        """Replace folds and add versions, unless another process was as quick."""
        self._replace_rows(rows, before, after, anew=False)

    def restart_rows(self, rows: Mapping[RowKey, StoredRow], before: Projection, after: Projection) -> None:
        """Like `store_rows`, after every fold and version was removed."""
        self._replace_rows(rows, before, after, anew=True)

    def _wake(self) -> None:
        with self._committed:
            self._committed.notify_all()


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
