"""The merged state of every row, folded from the log behind the pushes; only kept while sync rules are set.

Beside a row's fold stands the short history of what decides its visibility: whether it lived, and the columns that
filters look at, each time that changed. With it a page of old records is judged as of their moment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from driftline.deltas.merging import RowFold, RowKey
from driftline.deltas.row_delta import RowDelta
from driftline.gateway.log import Record, read_all
from driftline.gateway.push import stored_delta
from driftline.gateway.rules import SyncRules

_STEP = 2000  # records folded in one transaction, so that pushes get their turn

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    name TEXT NOT NULL, row_id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (name, row_id)
) WITHOUT ROWID;
INSERT OR IGNORE INTO counters VALUES ('projected', 0), ('projected_rules', 0);
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """From this sequence on the row lived or not, with these values in the columns that filters look at."""

    seq: int
    live: bool
    columns: dict[str, Any]


@dataclass(slots=True)
class IndexedRow:
    """A row's fold and its history."""

    fold: RowFold = field(default_factory=RowFold)
    history: list[Moment] = field(default_factory=list)

    def add(self, seq: int, delta: RowDelta, watched: Sequence[str]) -> None:
        """Fold one more delta in."""
        self.fold.add(delta)
        self.note(seq, watched)

    def note(self, seq: int, watched: Sequence[str]) -> None:
        """Write the present into the history if it differs from the last entry."""
        state = self.fold.state()
        moment = Moment(seq, state.live, {name: state.columns[name] for name in watched if name in state.columns})
        last = self.history[-1] if self.history else None
        if last is None or (last.live, last.columns) != (moment.live, moment.columns):
            self.history.append(moment)


class RowIndex:
    """The rows of a log, caught up on demand."""

    def __init__(self, log: Any) -> None:
        self._log = log
        with log.writing() as db:
            db.execute(_SCHEMA)

    def catch_up(self, rules: SyncRules, rules_number: int) -> int:
        """Fold everything that has arrived; the sequence that the index stands at."""
        if self._log.counter("projected_rules") != rules_number:
            self._begin_again(rules, rules_number)
        last: int = self._log.bounds().last
        while self._log.counter("projected") < last:
            self._fold_step(rules, last)
        return last

    def is_whole(self) -> bool:
        """Whether the rows hold everything that the log has forgotten."""
        return bool(self._log.counter("projected") >= self._log.bounds().pruned)

    def row(self, key: RowKey) -> IndexedRow:
        """A row as of the place the index stands at."""
        return _load(self._log.reader(), key)

    def _fold_step(self, rules: SyncRules, last: int) -> None:
        with self._log.writing() as db:
            done = int(db.execute("SELECT value FROM counters WHERE name = 'projected'").get)
            upto = min(last, done + _STEP)
            rows: dict[RowKey, IndexedRow] = {}
            for record in read_all(self._log, done, upto):
                _fold_record(db, rows, record, rules)
            _store(db, rows)
            db.execute("UPDATE counters SET value = ? WHERE name = 'projected'", (max(done, upto),))

    def _begin_again(self, rules: SyncRules, rules_number: int) -> None:
        """New rules watch other columns: fold anew, or start a new history where old deltas were pruned."""
        with self._log.writing() as db:
            if self._log.bounds().pruned == 0:
                db.execute("DELETE FROM rows")
                db.execute("UPDATE counters SET value = 0 WHERE name = 'projected'")
            else:
                for name, row_id in list(db.execute("SELECT name, row_id FROM rows")):
                    row = _load(db, (name, row_id))
                    row.history.clear()
                    row.note(0, rules.columns_of(name))
                    _store(db, {(name, row_id): row})
            db.execute("UPDATE counters SET value = ? WHERE name = 'projected_rules'", (rules_number,))


def _fold_record(db: apsw.Connection, rows: dict[RowKey, IndexedRow], record: Record, rules: SyncRules) -> None:
    delta = stored_delta(record.body)
    key = (delta.table, delta.row_id)
    if key not in rows:
        rows[key] = _load(db, key)
    rows[key].add(record.seq, delta, rules.columns_of(delta.table))


def _load(db: apsw.Connection, key: RowKey) -> IndexedRow:
    body = db.execute("SELECT body FROM rows WHERE name = ? AND row_id = ?", key).get
    if body is None:
        return IndexedRow()
    plain = json.loads(body)
    columns = {name: (_stamp(stamp), value) for name, (stamp, value) in plain["columns"].items()}
    fold = RowFold(columns, _stamp(plain["written"]), _stamp(plain["deleted"]))
    return IndexedRow(fold, [Moment(*entry) for entry in plain["history"]])


def _store(db: apsw.Connection, rows: dict[RowKey, IndexedRow]) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)",
        ((*key, json.dumps(_plain(row)).encode()) for key, row in rows.items()),
    )


def _plain(row: IndexedRow) -> dict[str, Any]:
    return {
        "columns": {name: (_plain_stamp(stamp), value) for name, (stamp, value) in row.fold.columns.items()},
        "written": _plain_stamp(row.fold.written),
        "deleted": _plain_stamp(row.fold.deleted),
        "history": [(moment.seq, moment.live, moment.columns) for moment in row.history],
    }


def _plain_stamp(stamp: Any) -> Any:
    return None if stamp is None else (stamp[0], stamp[1].hex(), stamp[2], stamp[3])


def _stamp(plain: Any) -> Any:
    return None if plain is None else (plain[0], bytes.fromhex(plain[1]), plain[2], plain[3])
