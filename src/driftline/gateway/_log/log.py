"""The port to the durable log: its protocol and records, and the part that its stores share.

`sqlite` is the embedded store, `postgres` the one for several hosts. Flushes, row index, pulls and metrics use only
this port, so that another store is one more file that passes the same contract tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from driftline.deltas import COUNTER_BITS, MAX_DRIFT_MS, RowKey, latest_admitted
from driftline.errors import DriftlineError, GatewayError

if TYPE_CHECKING:
    from driftline.gateway._sync.write_rules import RowRules

OP_CODES = {"INSERT": 0, "UPDATE": 1, "DELETE": 2}
UNSEEDED = "unseeded"  # document: the merged rows may lack some that only the lake has
MAX_COUNTED = 1_000_000  # pending deltas whose size is added up; more than that is more than enough to flush

Numbered = Literal["config", "rules"]
KnownOp = Callable[["Entry"], int | None]  # the operation under which an id is known
KnownTable = Callable[[str], str | None]  # the name under which a table is known, by its name without case


@dataclass(frozen=True, slots=True)
class Entry:
    """A validated delta that is to be appended."""

    hlc: int
    delta_id: bytes  # the 32 bytes of the SHA-256
    op: int  # see OP_CODES
    table: str
    body: bytes  # the delta's JSON, as pulls send it


@dataclass(frozen=True, slots=True)
class Record:
    """A delta in the log: its sequence in arrival order, and its arrival by the gateway's clock (unique, rising)."""

    seq: int
    hlc: int
    arrival: int
    body: bytes
    is_foreign: bool = False  # imported from the lake


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of a batch: the server's clock, and the positions of the entries that were new."""

    server_hlc: int
    fresh: Sequence[int]
    hidden: Sequence[int] = ()  # after which the row lives out of the writer's sight


@dataclass(frozen=True, slots=True)
class Identity:
    """The log's random id, and the ids it had before it was set back."""

    log_id: str
    was: tuple[str, ...] = ()

    def __contains__(self, log_id: object) -> bool:
        return log_id == self.log_id or log_id in self.was


@dataclass(frozen=True, slots=True)
class Bounds:
    """The log's extent: everything up to `pruned` is removed, `last` is the newest sequence.

    `pruned_hlc` is the greatest timestamp of the removed records: a read from below it would miss some.
    """

    pruned: int
    last: int
    pruned_hlc: int = 0


@dataclass(frozen=True, slots=True)
class FlushProgress:
    """The part of the log that is in the lake.

    Up to `flushed` all of it is; the range up to `flushing` is being flushed and may be there in part.
    """

    flushed: int
    flushing: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is not in the lake yet: its size in bytes, and the arrival of the oldest (None: all is flushed)."""

    size: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of the configuration and of the sync rules, which rise with every change."""

    config: int
    rules: int


@dataclass(frozen=True, slots=True)
class Projection:
    """The sequence up to which rows are merged, and the number of the rules that define their versions."""

    seq: int
    rules: int


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """From this sequence on, what filters use: whether the row lives, and the values as JSON."""

    seq: int
    live: bool
    watched: str


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A merged row as JSON, and the versions to add to those that are stored."""

    fold: bytes
    versions: tuple[StoredVersion, ...] = ()


Claims = Mapping[str, Any]


class AppendView(Protocol):
    """What a judge reads inside the transaction of an append."""

    def numbers(self) -> Mapping[str, int]:
        """The numbers of the log: `last`, `config`, `rules`, `projected`, `projected_rules`."""

    def document(self, name: str) -> bytes | None:
        """A named document, or None."""

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, StoredRow]:
        """Those of the merged rows that are stored."""

    def records(self, after: int, upto: int) -> list[Record]:
        """The records in a range of sequences."""


class DeltaLog(Protocol):
    """Arrival order, append-only, durable before `append` returns.

    One writer at a time (several processes take turns), readers never wait for it; a reader that sees a sequence sees
    everything below it.
    """

    judge: RowRules | None = None  # decides who may write what, inside the transaction of an append
    _poll_seconds: ClassVar[float]  # how late a waiting reader sees the commit of another process
    _committed: threading.Condition

    def __init__(self) -> None:
        self._committed = threading.Condition()

    # Records.

    def identity(self) -> Identity:
        """The id of this log, so that a cursor or a lake of another log is noticed."""

    def renew_identity(self) -> Identity:
        """Take a new random id because the log was set back; no range is being flushed then."""

    def append(
        self, batches: Sequence[Sequence[Entry]], claims: Sequence[Claims | None] = ()
    ) -> list[Appended | DriftlineError]:
        """Append each batch whole or not at all, all in one durable step; known ids change nothing.

        `claims` are those of the batches' writers, which the log's judge uses; None is an operator, who may write all.
        """

    def import_foreign(self, batch: Sequence[Entry]) -> int:
        """Append deltas of the lake that are not in this log; the number of new ones. They are never flushed."""

    def read(self, after: int, limit: int, *, upto: int | None = None, since_hlc: int = -1) -> list[Record]:
        """The records after a sequence in order, those with an hlc above `since_hlc`."""

    def has(self, hlc: int, delta_id: bytes) -> bool:
        """Whether a delta is known; its id contains its hlc, which makes the search local."""

    def prune(self, upto: int) -> int:
        """Remove records up to a sequence; their number. Older deltas are refused from then on."""

    def table_names(self) -> list[str]:
        """The tables that deltas have named."""

    # Flush progress.

    def waiting(self) -> Waiting:
        """What is not in the lake yet."""

    def flush_again(self, after: int) -> None:
        """Note durably that the lake has nothing after this sequence any more."""

    def flush_lock(self, *, wait: bool) -> AbstractContextManager[bool]:
        """Only one process flushes at a time; without `wait` the result may be False."""

    # Configuration.

    def document(self, name: str) -> bytes | None:
        """A named document, or None."""

    def change_document(self, name: str, change: Callable[[bytes | None], bytes | None], *bumped: Numbered) -> None:
        """Rewrite or remove (None) a document and raise numbers, in one durable step."""

    # Merged rows, while sync rules are set.

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, StoredRow]:
        """Those of the rows that are stored, without their versions."""

    def all_rows(self) -> Iterator[tuple[RowKey, StoredRow]]:
        """Every stored row, without its versions."""

    def versions(self, key: RowKey, after: int, limit: int) -> list[StoredVersion]:
        """The versions of a row after a sequence, in order."""

    # Upkeep.

    def upkeep(self) -> None:
        """Periodic work of the store, which blocks neither writers nor readers."""

    def size(self) -> int:
        """Bytes that upkeep has still to process."""

    def close(self) -> None:
        """Close files and connections."""

    # The few numbers that every store has beside its records, and what needs only these.

    def _numbers(self) -> Mapping[str, Any]:
        """Every number by its name, as of now."""

    def _raise(self, name: str, value: int) -> None:
        """Make a number at least this, durably."""

    def _arrival(self, seq: int) -> int | None:
        """The arrival of a record that is not removed."""

    def _replace_rows(
        self, rows: Mapping[RowKey, StoredRow], before: Projection, after: Projection, *, anew: bool
    ) -> None:
        """Replace rows and add versions in one durable step, unless the rows are not at `before` any more."""

    def arrival_at(self, seq: int) -> int | None:
        """The arrival of the record with this sequence (0 for 0), None where it is removed."""
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
        """Note that deltas up to `hlc` may be missing."""
        self._raise("horizon", hlc)

    def first_arrival_from(self, hlc: int) -> int:
        """The sequence of the first record that arrived at `hlc` or later; one past the end if none did."""
        bounds = self.bounds()
        return first_reached(bounds.pruned + 1, bounds.last + 1, self.arrival_at, hlc)

    def clock(self) -> int:
        """The newest timestamp that the log has issued or seen."""
        return int(self._numbers()["clock"])

    def wait_past(self, seq: int, seconds: float) -> int:
        """Wait until the log reaches past a sequence, or for so long; the newest sequence then."""
        deadline = time.monotonic() + seconds
        while True:
            last = int(self._numbers()["last"])
            left = deadline - time.monotonic()
            if last > seq or left <= 0:
                return last
            with self._committed:  # commits of this process notify, others are found by polling
                self._committed.wait(min(left, self._poll_seconds))

    def flush_progress(self) -> FlushProgress:
        """The part of the log that is in the lake."""
        numbers = self._numbers()
        return FlushProgress(numbers["flushed"], numbers["flushing"])

    def note_flushing(self, target: int) -> None:
        """Note durably that the range up to `target` is being flushed."""
        self._raise("flushing", target)

    def note_flushed(self, target: int) -> None:
        """Note durably that the lake has everything up to `target`."""
        self._raise("flushed", target)

    def numbers(self) -> Numbers:
        """The numbers of the configuration."""
        numbers = self._numbers()
        return Numbers(numbers["config"], numbers["rules"])

    def projected(self) -> Projection:
        """How far the rows are merged."""
        numbers = self._numbers()
        return Projection(numbers["projected"], numbers["projected_rules"])

    def store_rows(self, rows: Mapping[RowKey, StoredRow], before: Projection, after: Projection) -> None:
        """Replace rows and add versions, unless another process was faster."""
        self._replace_rows(rows, before, after, anew=False)

    def restart_rows(self, rows: Mapping[RowKey, StoredRow], before: Projection, after: Projection) -> None:
        """Like `store_rows`, after every row and version was removed."""
        self._replace_rows(rows, before, after, anew=True)

    def _wake(self) -> None:
        with self._committed:
            self._committed.notify_all()


def read_all(log: DeltaLog, after: int, upto: int, page: int = 5000) -> Iterator[Record]:
    """Every record in a range of sequences, one page in memory at a time."""
    while after < upto:
        records = log.read(after, page, upto=upto)
        if not records:
            return
        yield from records
        after = records[-1].seq


def unavailable(message: str, reason: str, **context: Any) -> GatewayError:
    """The error of a log that cannot be used just now: nothing was acknowledged and the client may try again."""
    return GatewayError(message, code="BACKPRESSURE_ERROR", reason=reason, retry_after=2, **context)


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
            message = f"deltas[{position}]: its id is known with another op"
            raise GatewayError(message, index=position, positions=[position])
    return fresh


def check_horizon(batch: Sequence[Entry], fresh: Sequence[int], horizon: int) -> None:
    """Refuse new deltas as old as removed records: whether they are new is unknown."""
    old = [position for position in fresh if batch[position].hlc <= horizon] if horizon else []
    if old:
        raise GatewayError(
            f"deltas[{old[0]}]: older than what this gateway still remembers (hlc up to {horizon})",
            code="TOO_OLD",
            positions=old,
        )


def check_clock(batch: Sequence[Entry], fresh: Sequence[int], clock: int, physical: int) -> None:
    """Refuse new deltas from too far in the future; with what a client needs to correct their timestamps."""
    latest = latest_admitted(clock, physical)
    ahead = [position for position in fresh if batch[position].hlc > latest]
    if ahead:
        milliseconds = (max(batch[position].hlc for position in ahead) >> COUNTER_BITS) - physical
        raise GatewayError(
            f"deltas[{ahead[0]}]: Remote clock is {milliseconds}ms ahead (max drift: {MAX_DRIFT_MS}ms)",
            code="CLOCK_DRIFT",
            positions=ahead,
            aheadMs=milliseconds,
            maxDriftMs=MAX_DRIFT_MS,
            maxHlc=str(latest),
            serverHlc=str(clock),
            serverTime=physical,
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
            positions = [position for position, entry in enumerate(batch) if entry.table == name]
            raise GatewayError(f"table {name!r} differs from {known!r} only in case", positions=positions)
    return found


def unknown_entries(batch: Sequence[Entry], known_op: KnownOp) -> list[Entry]:
    """Imported entries that the log does not have, each once; a known id with another operation refuses the batch.

    Also those as old as removed records: a load of an earlier day reaches the lake late, and clients that pull must end
    with the state of a snapshot. A delta that was here before changes nothing for a client that has it.
    """
    return [batch[position] for position in fresh_positions(batch, known_op)]


def with_claims(
    batches: Sequence[Sequence[Entry]], claims: Sequence[Claims | None]
) -> Iterator[tuple[Sequence[Entry], Claims | None]]:
    """Each batch with the claims of its writer."""
    return zip(batches, claims or [None] * len(batches), strict=True)


def first_reached(low: int, high: int, arrival_at: Callable[[int], int | None], hlc: int) -> int:
    """The first sequence from `low` up to `high` that arrived at `hlc` or later; arrivals rise with the sequence."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if (arrival_at(middle) or 0) >= hlc else (middle + 1, high)
    return low
