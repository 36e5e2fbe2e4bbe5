"""The port to the durable log: what the gateway needs of a store, and the records that cross it.

The embedded store is `sqlite_log`; a store for several hosts implements the same few methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from driftline.errors import DriftlineError

OP_CODES = {"INSERT": 0, "UPDATE": 1, "DELETE": 2}


@dataclass(frozen=True, slots=True)
class Entry:
    """A validated delta on its way into the log."""

    hlc: int
    delta_id: bytes  # the 32 bytes of the SHA-256
    op: int  # see OP_CODES
    table: str
    body: bytes  # the delta's JSON, as pulls send it


@dataclass(frozen=True, slots=True)
class Record:
    """A delta in the log: its place in arrival order, and the gateway's own time of arrival (unique, rising)."""

    seq: int
    hlc: int
    arrival: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of a batch: the server's clock, and the positions of the entries that were new."""

    server_hlc: int
    fresh: Sequence[int]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The log's extent: everything up to `pruned` is gone, `last` is the newest sequence."""

    pruned: int
    last: int


class DeltaLog(Protocol):
    """Arrival order, append-only, durable before `append` returns.

    It needs one writer at a time (several processes take turns) and readers that never wait for it.
    """

    @property
    def log_id(self) -> str:
        """Names this log for ever, so that a cursor of another log is noticed."""

    def append(self, batches: Sequence[Sequence[Entry]]) -> list[Appended | DriftlineError]:
        """Take whole batches or nothing of them, all in one durable step; known ids change nothing."""

    def read(self, after: int, limit: int, *, upto: int | None = None, since_hlc: int = -1) -> list[Record]:
        """The records after a sequence in order, those with a greater hlc than `since_hlc`."""

    def has(self, hlc: int, delta_id: bytes) -> bool:
        """Whether a delta is known; its id contains its hlc, which makes the search local."""

    def bounds(self) -> Bounds:
        """How far the log reaches."""

    def prune(self, upto: int) -> int:
        """Forget records up to a sequence; how many went. Older deltas are refused from then on."""

    def close(self) -> None:
        """Let go of files and connections."""


def read_all(log: DeltaLog, after: int, upto: int, page: int = 5000) -> Iterator[Record]:
    """Every record in a range of sequences, a page in memory at a time."""
    while after < upto:
        records = log.read(after, page, upto=upto)
        if not records:
            return
        yield from records
        after = records[-1].seq
