"""The log and its lake: flushes, exactly once, the tie that every flush checks first, and what comes from the lake.

The end of a range is noted in the log before anything is written. A process that dies in between finds the same range
again, and the lake refuses a range that it has: files without a commit are never read, a commit is never made twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driftline.core import JsonObject
from driftline.deltas import RowDelta, TableSchema
from driftline.errors import DriftlineError, GatewayError, InputError, LakeError
from driftline.gateway._log.log import UNSEEDED, DeltaLog, Entry, Identity
from driftline.gateway._sync.push import entry_of, exact_types, read_schemas, stored_delta
from driftline.gateway._sync.row_index import RowIndex
from driftline.gateway._sync.rules import SyncRules, read_stored_rules

if TYPE_CHECKING:
    from driftline.lake import FlushResult, FlushTarget

MAX_RANGE = 20_000  # deltas of one round, which are in memory
UNNAMED = "unnamed_in_lake"  # document of a log of format 1 until its first claim
LOOKED = "looked"  # the run of the server that checked last
IN_LAKE = "in_lake"  # log id and greatest sequence that was committed

_TRIES = 5
_logger = logging.getLogger("driftline.gateway")


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether the log owns its gateway's name: why not, and a notice for the operator."""

    closed: str | None = None
    set_back: str | None = None


# A log can be restored from a backup, copied, or replaced by an empty one, and then counts sequences that the lake has
# already. The log's random id, the claim in the lake and the arrival of the last record distinguish these cases
# (deltas-and-lake §4). A log that was set back takes a new id first, so that neither the lake nor a client's cursor
# confuses its sequences with earlier ones.
@dataclass(frozen=True, slots=True)
class LakeTie:
    """A log, the lake it flushes into, and the gateway's name there.

    `run` identifies one start of a server: the first check of a run is the one of the start, in whichever process and
    however late the lake can be reached.
    """

    log: DeltaLog
    store: FlushTarget
    gateway: str
    run: str
    adopt: bool = False

    def look(self) -> Standing:
        """Check whether this log still owns its gateway's name; one that was set back continues under a new id."""
        for _ in range(_TRIES):
            standing = self._checked(starting=self.log.document(LOOKED) != self.run.encode())
            if standing is not None:
                if standing.closed is None:
                    self.log.change_document(LOOKED, lambda _: self.run.encode())
                    self.log.change_document(UNNAMED, lambda _: None)
                return standing
        raise LakeError(f"gateway {self.gateway}: other logs keep claiming it", code="commit_conflict")

    def _checked(self, *, starting: bool) -> Standing | None:
        """One check; None if another claim was made in between."""
        claim, identity = self.store.claim(self.gateway), self.log.identity()
        if claim is None:
            return self._first_claim(identity)
        owner = claim[0]
        if owner == identity.log_id:
            problem = self._set_back_by(identity, starting)
            if problem is None:
                return self._checked_lake(identity)
            return self._claimed_again(self.log.renew_identity(), claim, problem)
        if owner in identity.was:  # the log has its new id already, after a promotion of its database or a kill
            problem = f"the lake follows log {owner}, which this one ({identity.log_id}) was before"
            return self._claimed_again(identity, claim, problem)
        if not starting:
            return Standing(closed=f"the lake follows another log of gateway {self.gateway} now ({owner})")
        if any(log_id in identity for log_id in claim):
            problem = f"the lake follows log {owner}, which came after this one ({identity.log_id})"
            return self._claimed_again(self.log.renew_identity(), claim, problem)
        if not self.adopt:
            raise self._other_log(owner)
        taken = self.store.take_claim(self.gateway, (identity.log_id, *claim), claim)
        return Standing() if taken else None

    def _first_claim(self, identity: Identity) -> Standing | None:
        flushed_before = self.store.unnamed_sequence(self.gateway)
        if self.log.document(UNNAMED) is None and flushed_before is not None and not self.adopt:
            raise self._other_log("of an earlier version, or an empty one put in its place")
        if self.log.document(UNNAMED) is not None and (flushed_before or 0) > self.log.head().flushing:
            return self._claimed_again(self.log.renew_identity(), None, self._ahead(flushed_before or 0))
        if not self.store.take_claim(self.gateway, (identity.log_id,), None):
            return None
        return self._checked_lake(identity)

    def _set_back_by(self, identity: Identity, starting: bool) -> str | None:
        """The evidence that the log was set back, or None."""
        position = self.store.position(identity.log_id)
        if position is None:
            return None
        if position.sequence > self.log.head().flushing:
            return self._ahead(position.sequence)
        here = self.log.arrival_at(position.sequence)
        if position.arrival is not None and here is not None and here != position.arrival:
            return f"the lake holds another record {position.sequence} of this log"
        if position.arrival is None and starting:
            enveloped, forgotten = self.store.enveloped(identity.log_id, position.sequence), self.log.head().horizon
            remembered = (delta for delta in enveloped if delta.hlc > forgotten)
            if not all(self.log.has(delta.hlc, bytes.fromhex(delta.delta_id)) for delta in remembered):
                return f"the lake holds other records up to {position.sequence} of this log"
        return None

    # The log is renewed first: after a kill in between, the claim has an earlier id of it, which is noticed again.
    def _claimed_again(self, identity: Identity, claim: tuple[str, ...] | None, problem: str) -> Standing | None:
        ids = tuple(dict.fromkeys((identity.log_id, *identity.was, *(claim or ()))))
        if not self.store.take_claim(self.gateway, ids, claim):
            return None
        message = f"log set back: {problem}"
        _logger.warning(message, extra={"fields": {"log": identity.log_id, "was": list(identity.was)}})
        return Standing(set_back=message)

    def _checked_lake(self, identity: Identity) -> Standing:
        """Flush again what is missing in a lake that was set back."""
        log_id, _, text = (self.log.document(IN_LAKE) or b"").decode().partition(":")
        if log_id != identity.log_id:
            return Standing()
        position = self.store.position(log_id)
        held = 0 if position is None else position.sequence
        if held >= int(text):
            return Standing()
        again = max(held, self.log.head().pruned)
        message = f"lake set back: it holds sequence {held}, the log had flushed {text}; flushing again from {again}"
        self.log.flush_again(again)
        _logger.warning(message, extra={"fields": {"log": log_id}})
        return Standing(set_back=message)

    def _ahead(self, sequence: int) -> str:
        return f"the lake holds sequence {sequence}, the log ends at {self.log.head().last}"

    def _other_log(self, holder: str) -> InputError:
        hint = "start with that log's data directory, or say --adopt-lake to go on with this one"
        problem = f"the lake's gateway {self.gateway} belongs to another log ({holder})"
        return InputError(f"{problem}; {hint}", code="other_log")


@dataclass(slots=True)
class FlushReport:
    """The counts of a flush: flushed deltas by table, and those that were not flushed as usual."""

    tables: dict[str, int] = field(default_factory=dict)
    known: int = 0  # in the lake already
    waiting: int = 0  # no schema accepts them yet
    set_aside: int = 0  # below the lake's retention horizon
    notices: list[str] = field(default_factory=list)  # for the operator
    due: list[str] = field(default_factory=list)  # tables to compact
    imported: int = 0  # deltas of other writers, taken into the log

    @property
    def deltas(self) -> int:
        """All flushed deltas."""
        return sum(self.tables.values())

    def add(self, result: FlushResult) -> None:
        """Add the counts of one table."""
        self.tables[result.table] = self.tables.get(result.table, 0) + result.deltas
        self.known += result.known
        self.waiting += result.waiting
        self.set_aside += result.set_aside


class Flusher:
    """Flushes the tail of the log to the lake, one process at a time."""

    def __init__(self, tie: LakeTie) -> None:
        self._tie = tie
        self._log = tie.log
        self._notices: list[str] = []  # also those of checks whose flush failed afterwards

    def flush(self, *, wait: bool = True) -> FlushReport:
        """Flush everything that has arrived by now; without `wait` nothing happens while another process flushes."""
        report = FlushReport()
        with self._log.flush_lock(wait=wait) as alone:
            last = self._log.head().last
            while alone and self._log.head().flushed < last:
                self._look()
                self._flush_range(report)
        return self._with_notices(report)

    def look(self) -> FlushReport:
        """Check the tie of log and lake."""
        with self._log.flush_lock(wait=True):
            self._look()
        return self._with_notices(FlushReport())

    def _with_notices(self, report: FlushReport) -> FlushReport:
        report.notices, self._notices = self._notices, []
        return report

    def _look(self) -> None:
        try:
            standing = self._tie.look()
        except DriftlineError as error:
            if error.code == "other_log":
                close_gateway(self._log, error.message)
            raise
        # A log that was replaced takes no pushes any more, but what it acknowledged is still flushed.
        close_gateway(self._log, standing.closed)
        if standing.set_back is not None:
            self._notices.append(standing.set_back)

    def _flush_range(self, report: FlushReport) -> None:
        for _ in range(_TRIES):
            try:
                return self._try_range(report)
            except LakeError as error:
                if error.code != "log_set_back":
                    raise
                self._look()  # a copy of this log has flushed in between
        raise LakeError("copies of this log keep flushing into the lake", code="commit_conflict")

    def _try_range(self, report: FlushReport) -> None:
        from driftline.lake import LogRange

        head, identity = self._log.head(), self._log.identity()
        done, target = head.flushed, head.flushing
        if target <= done:
            target = min(head.last, done + MAX_RANGE)
            self._log.advance(flushing=target)
        arrival = self._log.arrival_at(target) or 0
        log_range = LogRange(self._tie.gateway, identity.log_id, target, arrival)
        by_table: dict[str, list[RowDelta]] = {}
        for record in self._log.read_all(done, target):
            if not record.is_foreign:
                delta = stored_delta(record.body)
                by_table.setdefault(delta.table, []).append(delta)
        results = [self._tie.store.append(table, deltas, log_range) for table, deltas in by_table.items()]
        self._log.advance(flushed=target)
        for result in results:
            report.add(result)
        # What the lake must contain, so that a lake that was set back is noticed. Where it had every delta of a table
        # without a schema, nothing was written that names this log.
        if any(result.format != "json" or result.waiting for result in results):
            self._log.change_document(IN_LAKE, lambda _: f"{identity.log_id}:{target}".encode())


# The configuration, and what a gateway takes over from its lake. It is stored as documents of the log, so that all
# processes of a gateway see a change with the next request; its number rises with every change. The lake owns schemas
# (deltas-and-lake §3): the copy is refreshed every 30 seconds and after `/admin/schema`.


IMPORTED = "imported"  # document: by table, the commits that were inspected and the files that are still to be read

_BATCH_DELTAS = 2000  # in one transaction, so that pushes are not blocked
_ROUND_DELTAS = 50_000  # in one round, so that flushes are not blocked


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a gateway; `number` rises with every change."""

    number: int
    schemas: Mapping[str, TableSchema]
    is_strict: bool  # an admin registered schemas here: tables without one are refused
    floors: Mapping[str, int]  # by table, the hlc below which the lake refuses deltas
    rules: SyncRules | None
    rules_number: int
    closed: str | None  # why pushes are refused

    def exact_types(self, rules: SyncRules | None) -> dict[str, dict[str, str]]:
        """The types of columns with exact numbers, in the tables that a caller under these rules may see."""
        found = exact_types(self.schemas)
        return found if rules is None else {table: found[table] for table in found if table in rules.tables()}


def load_configuration(log: DeltaLog) -> Configuration:
    """The configuration in the documents of the log."""
    head = log.head()
    schemas, is_strict = read_schemas(log.document("schemas"))
    rules, closed = log.document("rules"), log.document("closed")
    floors = json.loads(log.document("floors") or b"{}")
    parsed = None if rules is None else read_stored_rules(rules, exact_types(schemas))
    reason = None if closed is None else closed.decode()
    return Configuration(head.config, schemas, is_strict, floors, parsed, head.rules, reason)


def copy_facts(log: DeltaLog, store: FlushTarget) -> None:
    """Replace the copy of schemas and horizons by the lake's."""
    _, is_strict = read_schemas(log.document("schemas"))
    facts = store.facts()
    schemas = {table: schema for table, (schema, _) in facts.items() if schema is not None}
    floors = {table: floor for table, (_, floor) in facts.items() if floor is not None}
    _set(log, "schemas", _schemas_document(schemas, is_strict))
    _set(log, "floors", json.dumps(floors, sort_keys=True).encode())


def note_registered(log: DeltaLog, schema: TableSchema) -> None:
    """Add an admin's schema to the copy, after the lake has it."""
    schemas, _ = read_schemas(log.document("schemas"))
    _set(log, "schemas", _schemas_document({**schemas, schema.table: schema}, is_strict=True))


def close_gateway(log: DeltaLog, reason: str | None) -> None:
    """Refuse pushes from now on, or accept them again (None)."""
    _set(log, "closed", None if reason is None else reason.encode())


def _set(log: DeltaLog, name: str, body: bytes | None) -> None:
    if log.document(name) != body:
        log.change_document(name, lambda _: body, "config")


def _schemas_document(schemas: Mapping[str, TableSchema], is_strict: bool) -> bytes:
    plain = [schemas[table].to_wire() for table in sorted(schemas)]
    return json.dumps({"strict": is_strict, "schemas": plain}, ensure_ascii=False).encode()


# Import. Clients pull from the log, so deltas that reached the lake another way (another log, `lake extract`,
# `lake flush`) are taken into it (deltas-and-lake §6). Every commit is inspected once; its files stay in a list until
# they are read, which a kill only makes longer: a delta that the log contains is not taken twice. Imported records are
# marked and never flushed back.


def import_foreign(log: DeltaLog, store: FlushTarget) -> tuple[int, list[str], bool]:
    """Import what is new in the lake and not of this log, except ids that the log has with another operation.

    The number of new deltas, a message for each refused one, and whether nothing is left to read.
    """
    taken = read = left = 0
    refused: list[str] = []
    for table in store.tables():
        stored = json.loads(log.document(IMPORTED) or b"{}").get(table, {})
        done = {"version": -1, "files": [], "envelopes": [], **stored}
        found = store.foreign_files(table, done["version"], set(done["envelopes"]), log.identity().log_id)
        if found.sequence > log.head().flushing:
            return taken, refused, False  # a copy of the log flushed: its files are foreign once this one has a new id
        files = list(dict.fromkeys((*done["files"], *found.files)))  # to read, relative to the lake
        progress = {"version": found.version, "files": files, "envelopes": found.envelopes}
        if found.archived_below is not None:
            log.advance(horizon=found.archived_below)
        _note(log, table, progress)
        while files and read < _ROUND_DELTAS:
            fresh, seen = _import_file(log, store, table, files[0], refused)
            taken, read = taken + fresh, read + seen
            files.pop(0)
            _note(log, table, progress)
        left += len(files)
    return taken, refused, left == 0


def seed_rows(log: DeltaLog, store: FlushTarget) -> None:
    """Take rows from the lake that the log's records do not make: those of tables whose old deltas were archived.

    Write rules are evaluated on rows, so pushes are refused until all of them are there.
    """
    stored = log.document("rules")
    if stored is not None:
        versions = store.versions()
        archived = [table for table, (_, floor) in store.facts().items() if floor is not None]
        folds = {(table, row): fold for table in archived for row, fold in store.folded_rows(table, versions[table])}
        RowIndex(log).seed(read_stored_rules(stored), log.head().rules, folds)
    log.change_document(UNSEEDED, lambda _: None, "config")


def _import_file(log: DeltaLog, store: FlushTarget, table: str, path: str, refused: list[str]) -> tuple[int, int]:
    """Import one file; the number of new deltas, and of all."""
    batch: list[Entry] = []
    fresh = seen = 0
    for delta in store.deltas_in(table, path):
        batch.append(entry_of(delta))
        seen += 1
        if len(batch) == _BATCH_DELTAS:
            fresh += _import_batch(log, batch, path, refused)
            batch.clear()
    return fresh + _import_batch(log, batch, path, refused), seen


def _import_batch(log: DeltaLog, batch: list[Entry], path: str, refused: list[str]) -> int:
    """Import a batch; refused deltas are left out and named, so that one does not block all others."""
    while True:
        try:
            return log.import_foreign(batch)
        except GatewayError as error:
            if "index" not in error.context:
                raise
            left_out = batch.pop(error.index)
            refused.append(f"import of {path}, delta {left_out.delta_id.hex()[:16]}…: its id is known with another op")


def _note(log: DeltaLog, table: str, progress: JsonObject) -> None:
    def change(before: bytes | None) -> bytes:
        return json.dumps({**json.loads(before or b"{}"), table: progress}).encode()

    log.change_document(IMPORTED, change)
