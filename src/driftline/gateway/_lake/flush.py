"""What ties a log to a lake (deltas-and-lake §4): looked at when a server starts, and before every flushed range.

A log can be restored from a backup, copied, or replaced by an empty one, and then counts sequences that the lake has
already. The log's random id, the claim in the lake and the arrival of the last record tell these cases apart. A log
that was set back takes a new id before it goes on, so that neither the lake nor a client's cursor takes its sequences
for those of before.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.errors import InputError, LakeError
from driftline.gateway.log import DeltaLog, Identity
from driftline.lake._flush_target import LakeStore

if TYPE_CHECKING:
    from driftline.lake._store.logs import Claim

UNNAMED = "unnamed_in_lake"  # document of a log of format 1 until its first claim
LOOKED = "looked"  # the run of the server that looked last
IN_LAKE = "in_lake"  # log id and greatest sequence that was committed

_TRIES = 5
_logger = logging.getLogger("driftline.gateway")


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether the log may speak for its gateway: why not, and what an operator should know."""

    closed: str | None = None
    set_back: str | None = None


@dataclass(frozen=True, slots=True)
class LakeTie:
    """A log, the lake it flushes into, and the name it does so under.

    `run` names one start of a server: the first look of a run is the start's, whichever process makes it and however
    late the lake can be reached.
    """

    log: DeltaLog
    store: LakeStore
    gateway: str
    run: str
    adopt: bool = False

    def look(self) -> Standing:
        """See whether this log still speaks for its gateway; where it was set back, begin anew under another id."""
        for _ in range(_TRIES):
            standing = self._look(starting=self.log.document(LOOKED) != self.run.encode())
            if standing is not None:
                if standing.closed is None:
                    self._note_look()
                return standing
        raise LakeError(f"gateway {self.gateway}: other logs keep claiming it", code="commit_conflict")

    def note_committed(self, log_id: str, sequence: int) -> None:
        """Remember what the lake must hold, so that a lake that was set back is noticed."""
        self.log.change_document(IN_LAKE, lambda _: f"{log_id}:{sequence}".encode())

    def _look(self, *, starting: bool) -> Standing | None:
        """One look; None if a rival's claim came in between."""
        from driftline.lake._store.logs import Claim

        claim, identity = self.store.claim(self.gateway), self.log.identity()
        if claim is None:
            return self._first_claim(identity)
        if claim.log_id == identity.log_id:
            problem = self._set_back_by(identity, starting)
            return self._set_back(claim, problem) if problem else self._checked_lake(identity)
        if claim.log_id in identity.was:  # the log has its new id already: its database was promoted, or a kill came
            problem = f"the lake follows log {claim.log_id}, which this one ({identity.log_id}) was before"
            return self._claimed_again(identity, claim, problem)
        if not starting:
            return Standing(closed=f"the lake follows another log of gateway {self.gateway} now ({claim.log_id})")
        if any(log_id in identity for log_id in claim.ids):
            problem = f"the lake follows log {claim.log_id}, which came after this one ({identity.log_id})"
            return self._set_back(claim, problem)
        if not self.adopt:
            raise self._other_log(claim.log_id)
        taken = self.store.take_claim(self.gateway, Claim(identity.log_id, (claim.log_id, *claim.was)), claim)
        return Standing() if taken else None

    def _first_claim(self, identity: Identity) -> Standing | None:
        from driftline.lake._store.logs import Claim

        flushed_before = self.store.unnamed_sequence(self.gateway)
        if self.log.document(UNNAMED) is None and flushed_before is not None and not self.adopt:
            raise self._other_log("of an earlier version, or an empty one put in its place")
        if self.log.document(UNNAMED) is not None and (flushed_before or 0) > self.log.flush_progress().flushing:
            return self._set_back(None, self._ahead(flushed_before or 0))
        if not self.store.take_claim(self.gateway, Claim(identity.log_id), None):
            return None
        return self._checked_lake(identity)

    def _set_back_by(self, identity: Identity, starting: bool) -> str | None:
        """What shows that the log was set back, if anything does."""
        position = self.store.position(identity.log_id)
        if position is None:
            return None
        if position.sequence > self.log.flush_progress().flushing:
            return self._ahead(position.sequence)
        here = self.log.arrival_at(position.sequence)
        if position.arrival is not None and here is not None and here != position.arrival:
            return f"the lake holds another record {position.sequence} of this log"
        if position.arrival is None and starting and self._has_strangers(identity, position.sequence):
            return f"the lake holds other records up to {position.sequence} of this log"
        return None

    def _has_strangers(self, identity: Identity, sequence: int) -> bool:
        forgotten = self.log.bounds().pruned_hlc
        return any(
            delta.hlc > forgotten and not self.log.has(delta.hlc, bytes.fromhex(delta.delta_id))
            for delta in self.store.enveloped(identity.log_id, sequence)
        )

    def _set_back(self, claim: Claim | None, problem: str) -> Standing | None:
        # The log first: a kill in between leaves a log whose earlier id is in the claim, which is said again then.
        return self._claimed_again(self.log.renew_identity(), claim, problem)

    def _claimed_again(self, identity: Identity, claim: Claim | None, problem: str) -> Standing | None:
        from driftline.lake._store.logs import Claim

        before = claim.ids if claim else ()
        was = tuple(dict.fromkeys(log_id for log_id in (*identity.was, *before) if log_id != identity.log_id))
        if not self.store.take_claim(self.gateway, Claim(identity.log_id, was), claim):
            return None
        message = f"log set back: {problem}"
        _logger.warning(message, extra={"fields": {"log": identity.log_id, "was": list(identity.was)}})
        return Standing(set_back=message)

    def _checked_lake(self, identity: Identity) -> Standing:
        """Flush again what a lake that was set back has lost."""
        log_id, _, text = (self.log.document(IN_LAKE) or b"").decode().partition(":")
        if log_id != identity.log_id:
            return Standing()
        position = self.store.position(log_id)
        held = 0 if position is None else position.sequence
        if held >= int(text):
            return Standing()
        again = max(held, self.log.bounds().pruned)
        message = f"lake set back: it holds sequence {held}, the log had flushed {text}; flushing again from {again}"
        self.log.flush_again(again)
        _logger.warning(message, extra={"fields": {"log": log_id}})
        return Standing(set_back=message)

    def _ahead(self, sequence: int) -> str:
        return f"the lake holds sequence {sequence}, the log ends at {self.log.bounds().last}"

    def _note_look(self) -> None:
        self.log.change_document(LOOKED, lambda _: self.run.encode())
        self.log.change_document(UNNAMED, lambda _: None)

    def _other_log(self, holder: str) -> InputError:
        return InputError(
            f"the lake's gateway {self.gateway} belongs to another log ({holder}); "
            "start with that log's data directory, or say --adopt-lake to go on with this one",
            code="other_log",
        )
