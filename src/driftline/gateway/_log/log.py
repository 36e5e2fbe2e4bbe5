"""The durable log: its records, and all that does not depend on where it is stored.

`sqlite` is the embedded store, `postgres` the one for several hosts: each opens connections and has the statements
that the other does not understand (`Session`). Another store is one more file that passes the same contract tests.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from driftline.deltas import COUNTER_BITS, MAX_DRIFT_MS, Clock, RowKey, check_drift, latest_admitted, physical_ms
from driftline.errors import DriftlineError, GatewayError

if TYPE_CHECKING:
    from driftline.gateway._sync.rules import Judgement, RowRules

OP_CODES = {"INSERT": 0, "UPDATE": 1, "DELETE": 2}
UNSEEDED = "unseeded"  # document: the merged rows may lack some that only the lake has

_MAX_COUNTED = 1_000_000  # pending deltas whose size is added up; more than that is more than enough to flush

Claims = Mapping[str, Any]
Numbered = Literal["config", "rules"]
Id = tuple[int, bytes]  # hlc and delta id
Projection = tuple[int, int]  # the sequence up to which rows are merged, and the number of the rules they are for


@dataclass(frozen=True, slots=True)
class Entry:
    """A validated delta that is to be appended."""

    hlc: int
    delta_id: bytes  # the 32 bytes of the SHA-256
    op: int  # see OP_CODES
    table: str
    body: bytes  # the delta's JSON, as pulls send it

    @property
    def id(self) -> Id:
        """What identifies it; the id contains the hlc, which makes a search local."""
        return self.hlc, self.delta_id


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
class Head:
    """The numbers of a log, as of one point in time."""

    clock: int  # the newest timestamp that the log has issued or seen
    last: int  # the newest sequence
    pruned: int  # everything up to this sequence is removed
    pruned_arrival: int  # the arrival of that record
    horizon: int  # the greatest hlc of removed records: a read from below it would miss some
    flushed: int  # up to this sequence all is in the lake
    flushing: int  # up to this sequence some may be there
    config: int  # rises with every change of the configuration
    rules: int  # rises with every change of the rules that views depend on
    projected: int
    projected_rules: int

    @property
    def projection(self) -> Projection:
        """How far the rows are merged."""
        return self.projected, self.projected_rules


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is not in the lake yet: its size in bytes, and the arrival of the oldest (None: all is flushed)."""

    size: int
    since_ms: int | None


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


class Session:
    """A connection in use. Statements have `?` for values, and words in braces for what a store spells in its own way.

    A store whose tables are shared by several gateways has one more value and column in front: `{own}` in a condition,
    `{gw}` in a list of values. Every statement has one of the two. A store has a method for each of the names below.
    """

    run: Callable[..., Iterable[Sequence[Any]]]  # a statement and its values; the rows
    run_many: Callable[[str, Iterable[Sequence[Any]]], None]  # a statement for each of the rows
    head: Callable[[], Head]  # the numbers; inside a transaction no other writer changes them
    set: Callable[..., None]  # change some of the numbers, by their names
    identity: Callable[[], Identity]
    set_identity: Callable[[Identity], None]
    known_ops: Callable[[Sequence[Entry]], dict[Id, int]]  # the operations under which ids of entries are known
    insert: Callable[[int, Sequence[tuple[int, Entry]], bool], None]  # from a sequence on, each with its arrival
    remove: Callable[[int], int]  # records up to a sequence; their number
    rows: Callable[[Sequence[RowKey]], dict[RowKey, StoredRow]]  # those that are stored, without their versions

    def one(self, statement: str, *values: Any) -> Any:
        """The first value of a statement's result, or None."""
        return next(iter(self.run(statement, *values)), (None,))[0]

    def records(self, after: int, upto: int, limit: int, since_hlc: int = -1) -> list[Record]:
        """The records in a range of sequences with an hlc above `since_hlc`."""
        query = """SELECT seq, hlc, arrival, body, is_foreign FROM {t}log
            WHERE {own} seq > ? AND seq <= ? AND hlc > ? ORDER BY seq LIMIT ?"""
        rows = self.run(query, after, upto, since_hlc, limit)
        return [Record(seq, hlc, arrival, body, bool(foreign)) for seq, hlc, arrival, body, foreign in rows]

    def arrival(self, seq: int) -> int | None:
        """The arrival of a record that is not removed."""
        found: int | None = self.one("SELECT arrival FROM {t}log WHERE {own} seq = ?", seq)
        return found

    def document(self, name: str) -> bytes | None:
        """A named document, or None."""
        body = self.one("SELECT body FROM {t}documents WHERE {own} name = ?", name)
        return body.encode() if isinstance(body, str) else body

    def tables(self) -> dict[str, str]:
        """The tables that deltas have named, by their names without case."""
        return dict(self.run("SELECT folded, name FROM {t}tables WHERE {own} TRUE"))  # type: ignore[arg-type]

    def put_rows(self, rows: Mapping[RowKey, StoredRow]) -> None:
        """Replace merged rows, and add their new versions."""
        upsert = """INSERT INTO {t}rows VALUES ({gw} ?, ?, ?)
            ON CONFLICT ({gateway} {table}, row_id) DO UPDATE SET {fold} = excluded.{fold}"""
        self.run_many(upsert, [(*key, row.fold) for key, row in rows.items()])
        versions = [(*key, each.seq, each.live, each.watched) for key, row in rows.items() for each in row.versions]
        self.run_many("INSERT INTO {t}row_versions VALUES ({gw} ?, ?, ?, ?, ?)", versions)

    def renew_identity(self) -> Identity:
        """Take a new random id because the log was set back; no range is being flushed then."""
        head, before = self.head(), self.identity()
        renewed = Identity(secrets.token_hex(8), (before.log_id, *before.was))
        self.set_identity(renewed)
        # The number of the configuration wakes listeners, whose cursors are invalid now.
        self.set(flushing=head.flushed, config=head.config + 1)
        return renewed


class DeltaLog:
    """Arrival order, append-only, durable before `append` returns.

    One writer at a time (several processes take turns), readers never wait for it; a reader that sees a sequence sees
    everything below it.
    """

    judge: RowRules | None = None  # decides who may write what, inside the transaction of an append
    _poll_seconds: ClassVar[float]  # how late a waiting reader sees the commit of another process

    def __init__(self, wall: Callable[[], int] | None) -> None:
        self._wall = wall or physical_ms
        self._write_lock = threading.Lock()
        self._committed = threading.Condition()

    # What a store does in its own way.

    writing: Callable[[], AbstractContextManager[Session]]  # a durable transaction; undone when the block raises
    reading: Callable[[], AbstractContextManager[Session]]  # this thread's connection for reading
    flush_lock: Callable[..., AbstractContextManager[bool]]  # one process flushes; with `wait=False` it may be False
    close: Callable[[], None]  # files and connections

    def upkeep(self) -> None:
        """Periodic work of the store, which blocks neither writers nor readers."""

    def size(self) -> int:
        """Bytes that upkeep has still to process."""
        return 0

    # Records.

    def identity(self) -> Identity:
        """The id of this log, so that a cursor or a lake of another log is noticed."""
        with self.reading() as session:
            return session.identity()

    def renew_identity(self) -> Identity:
        """Take a new random id because the log was set back; no range is being flushed then."""
        with self.writing() as session:
            return session.renew_identity()

    def append(
        self, batches: Sequence[Sequence[Entry]], claims: Sequence[Claims | None] = ()
    ) -> list[Appended | DriftlineError]:
        """Append each batch whole or not at all, all in one durable step; known ids change nothing.

        `claims` are those of the batches' writers, which the log's judge uses; None is an operator, who may write all.
        """
        entries = [entry for batch in batches for entry in batch]
        with self.writing() as session:
            head = session.head()
            verdicts = None if self.judge is None else self.judge.begin(session, head, entries)
            step = _Append(session, head, Clock(self._wall, last=head.clock), entries)
            writers = claims or [None] * len(batches)
            pairs = zip(batches, writers, strict=True)
            results = [step.accept(batch, writer, verdicts, self._wall()) for batch, writer in pairs]
            step.write(is_foreign=False)
            if verdicts is not None:
                session.put_rows(verdicts.changed())
                session.set(projected=head.last + len(step.taken))
        self._wake()
        return results

    def import_foreign(self, batch: Sequence[Entry]) -> int:
        """Append deltas of the lake that are not in this log; the number of new ones. They are never flushed.

        Also those as old as removed records: a load of an earlier day reaches the lake late, and clients that pull must
        end with the state of a snapshot. A delta that was here before changes nothing for a client that has it.
        """
        if not batch:
            return 0
        newest = max(entry.hlc for entry in batch)
        check_drift(newest, self._wall())  # else it would advance the clock, and every client's with it
        with self.writing() as session:
            head = session.head()
            step = _Append(session, head, Clock(self._wall, last=max(head.clock, newest)), batch)
            step.take([batch[position] for position in step.fresh(batch)])
            step.write(is_foreign=True)
        self._wake()
        return len(step.taken)

    def read(self, after: int, limit: int, *, upto: int | None = None, since_hlc: int = -1) -> list[Record]:
        """The records after a sequence in order, those with an hlc above `since_hlc`."""
        with self.reading() as session:
            return session.records(after, (1 << 62) if upto is None else upto, limit, since_hlc)

    def read_all(self, after: int, upto: int, page: int = 5000) -> Iterator[Record]:
        """Every record in a range of sequences, one page in memory at a time."""
        while after < upto and (records := self.read(after, page, upto=upto)):
            yield from records
            after = records[-1].seq

    def has(self, hlc: int, delta_id: bytes) -> bool:
        """Whether a delta is known."""
        with self.reading() as session:
            return session.one("SELECT 1 FROM {t}log WHERE {own} hlc = ? AND delta_id = ?", hlc, delta_id) is not None

    def prune(self, upto: int) -> int:
        """Remove records up to a sequence; their number. Deltas as old as those are refused from then on."""
        with self.writing() as session:
            head = session.head()
            newest = session.one("SELECT max(hlc) FROM {t}log WHERE {own} seq <= ?", upto)
            if newest is None:
                return 0
            gone = min(upto, head.last)
            arrival = session.arrival(gone) or 0
            session.set(pruned=max(head.pruned, gone), pruned_arrival=arrival, horizon=max(head.horizon, newest))
            return session.remove(upto)

    def table_names(self) -> list[str]:
        """The tables that deltas have named."""
        with self.reading() as session:
            return sorted(session.tables().values())

    # Numbers.

    def head(self) -> Head:
        """The numbers of the log."""
        with self.reading() as session:
            return session.head()

    def arrival_at(self, seq: int) -> int | None:
        """The arrival of the record with this sequence (0 for 0), None where it is removed."""
        if seq == 0:
            return 0
        with self.reading() as session:
            found = session.arrival(seq)
            if found is None:
                head = session.head()
                return head.pruned_arrival or None if seq == head.pruned else None
            return found

    def first_arrival_from(self, hlc: int) -> int:
        """The sequence of the first record that arrived at `hlc` or later; one past the end if none did."""
        head = self.head()
        low, high = head.pruned + 1, head.last + 1
        while low < high:  # arrivals rise with the sequence
            middle = (low + high) // 2
            low, high = (low, middle) if (self.arrival_at(middle) or 0) >= hlc else (middle + 1, high)
        return low

    def wait_past(self, seq: int, seconds: float) -> int:
        """Wait until the log reaches past a sequence, or for so long; the newest sequence then."""
        deadline = time.monotonic() + seconds
        while True:
            last = self.head().last
            left = deadline - time.monotonic()
            if last > seq or left <= 0:
                return last
            with self._committed:  # commits of this process notify, others are found by polling
                self._committed.wait(min(left, self._poll_seconds))

    def waiting(self) -> Waiting:
        """What is not in the lake yet."""
        query = """SELECT min(arrival), sum(length(body)) FROM (
            SELECT arrival, body FROM {t}log WHERE {own} seq > ? ORDER BY seq LIMIT ?) tail"""
        with self.reading() as session:
            [(oldest, size)] = session.run(query, session.head().flushed, _MAX_COUNTED)
        return Waiting(int(size or 0), None if oldest is None else oldest >> COUNTER_BITS)

    def flush_again(self, after: int) -> None:
        """Note durably that the lake has nothing after this sequence any more."""
        with self.writing() as session:
            head = session.head()
            session.set(flushed=min(head.flushed, after), flushing=min(head.flushing, after))

    def advance(self, **least: int) -> None:
        """Make numbers at least this, durably: what is `flushing` or `flushed`, the `horizon` of missing deltas."""
        with self.writing() as session:
            head = session.head()
            session.set(**{name: max(getattr(head, name), value) for name, value in least.items()})

    # Configuration.

    def document(self, name: str) -> bytes | None:
        """A named document, or None."""
        with self.reading() as session:
            return session.document(name)

    def change_document(self, name: str, change: Callable[[bytes | None], bytes | None], *bumped: Numbered) -> None:
        """Rewrite or remove (None) a document and raise numbers, in one durable step."""
        with self.writing() as session:
            head, before = session.head(), session.document(name)
            body = change(before)
            if body == before and not bumped:
                return
            session.run("DELETE FROM {t}documents WHERE {own} name = ?", name)
            if body is not None:
                session.run("INSERT INTO {t}documents VALUES ({gw} ?, ?)", name, body)
            session.set(**{each: getattr(head, each) + 1 for each in bumped})

    # Merged rows, while sync rules are set.

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, StoredRow]:
        """Those of the rows that are stored, without their versions."""
        with self.reading() as session:
            return session.rows(keys)

    def all_rows(self) -> Iterator[tuple[RowKey, StoredRow]]:
        """Every stored row, without its versions."""
        with self.reading() as session:
            for table, row_id, fold in session.run("SELECT {table}, row_id, {fold} FROM {t}rows WHERE {own} TRUE"):
                yield (table, row_id), StoredRow(bytes(fold))

    def versions(self, key: RowKey, after: int, limit: int) -> list[StoredVersion]:
        """The versions of a row after a sequence, in order."""
        query = """SELECT seq, live, watched FROM {t}row_versions
            WHERE {own} {table} = ? AND row_id = ? AND seq > ? ORDER BY seq LIMIT ?"""
        with self.reading() as session:
            rows = session.run(query, *key, after, limit)
            return [StoredVersion(seq, bool(live), watched) for seq, live, watched in rows]

    def store_rows(
        self, rows: Mapping[RowKey, StoredRow], before: Projection, after: Projection, *, anew: bool = False
    ) -> None:
        """Replace rows and add versions, unless another process was faster; `anew`: after every one was removed."""
        with self.writing() as session:
            if session.head().projection != before:
                return
            if anew:
                session.run("DELETE FROM {t}rows WHERE {own} TRUE")
                session.run("DELETE FROM {t}row_versions WHERE {own} TRUE")
            session.put_rows(rows)
            session.set(projected=after[0], projected_rules=after[1])

    def _wake(self) -> None:
        with self._committed:
            self._committed.notify_all()


@dataclass(slots=True)
class _Append:
    """The batches of one append: what is known, and what was taken so far, each with its arrival."""

    session: Session
    head: Head
    clock: Clock
    entries: Sequence[Entry]
    known: dict[Id, int] = field(init=False)
    tables: dict[str, str] = field(init=False)
    new_tables: dict[str, str] = field(default_factory=dict)
    taken: list[tuple[int, Entry]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known = self.session.known_ops(self.entries)
        self.tables = self.session.tables()

    def accept(
        self, batch: Sequence[Entry], claims: Claims | None, verdicts: Judgement | None, physical: int
    ) -> Appended | DriftlineError:
        try:
            fresh = self.fresh(batch)
            check_clock(batch, fresh, self.clock.last, physical)
            horizon = self.head.horizon
            old = [position for position in fresh if batch[position].hlc <= horizon] if horizon else []
            if old:  # as old as removed records: whether they are new is unknown
                message = f"deltas[{old[0]}]: older than what this gateway still remembers (hlc up to {horizon})"
                raise GatewayError(message, code="TOO_OLD", positions=old)
            hidden = () if verdicts is None else verdicts.check(batch, fresh, claims)
            self._check_tables(batch)
            newest = max((batch[position].hlc for position in fresh), default=None)
            server_hlc = self.clock.now() if newest is None else self.clock.follow(newest)
        except DriftlineError as error:
            return error
        if verdicts is not None:
            first = self.head.last + len(self.taken) + 1
            verdicts.merge({seq: batch[position].body for seq, position in enumerate(fresh, first)})
        self.take([batch[position] for position in fresh])
        return Appended(server_hlc, fresh, hidden)

    def fresh(self, batch: Sequence[Entry]) -> list[int]:
        """Positions of entries that are not known yet; a known id with another operation refuses the batch."""
        fresh: list[int] = []
        in_batch: dict[Id, int] = {}
        for position, entry in enumerate(batch):
            known = self.known.get(entry.id, in_batch.get(entry.id))
            if known is None:
                fresh.append(position)
                in_batch[entry.id] = entry.op
            elif known != entry.op:
                message = f"deltas[{position}]: its id is known with another op"
                raise GatewayError(message, index=position, positions=[position])
        return fresh

    def take(self, entries: Sequence[Entry]) -> None:
        """Give entries their arrivals; the odd ones are for the deltas that a view derives from a record."""
        self.new_tables |= self._check_tables(entries)
        self.known.update({entry.id: entry.op for entry in entries})
        self.taken += zip(self.clock.take(len(entries) * 2)[::2], entries, strict=True)

    def write(self, *, is_foreign: bool) -> None:
        if self.taken:
            self.session.insert(self.head.last + 1, self.taken, is_foreign)
            self.session.run_many("INSERT INTO {t}tables VALUES ({gw} ?, ?)", list(self.new_tables.items()))
        self.session.set(clock=self.clock.last, last=self.head.last + len(self.taken))

    def _check_tables(self, batch: Sequence[Entry]) -> dict[str, str]:
        """Tables seen for the first time, by name without case; they become directories, so case must not differ."""
        found: dict[str, str] = {}
        for name in sorted({entry.table for entry in batch}):
            folded = name.casefold()
            known = self.tables.get(folded) or self.new_tables.get(folded) or found.get(folded)
            if known is None:
                found[folded] = name
            elif known != name:
                positions = [position for position, entry in enumerate(batch) if entry.table == name]
                raise GatewayError(f"table {name!r} differs from {known!r} only in case", positions=positions)
        return found


def script(name: str) -> str:
    """A script of statements beside this file."""
    return resources.files("driftline.gateway._log").joinpath(name).read_text("utf-8")


def unavailable(message: str, reason: str, *, retry_after: int = 2, **context: Any) -> GatewayError:
    """The error of what cannot be used just now: nothing was acknowledged and the client may try again."""
    return GatewayError(message, code="BACKPRESSURE_ERROR", reason=reason, retry_after=retry_after, **context)


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
