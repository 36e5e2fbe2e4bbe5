"""The merged state of every row, updated from the log in the background while sync rules are set.

A row also has versions: whether it lived, and the columns that filters use, each time that changed. With them a page of
old records is filtered as of their time. Versions are only added, so that a row with a hundred thousand changes costs
no more per change than any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from driftline.core import JsonObject
from driftline.deltas import RowDelta, RowKey, RowMerge
from driftline.gateway._log.log import DeltaLog, Projection, StoredRow, StoredVersion
from driftline.gateway._sync.push import stored_delta

if TYPE_CHECKING:
    from driftline.gateway._sync.rules import SyncRules

_STEP = 2000  # records merged in one durable step, so that pushes are not blocked
_AT_FIRST, _AT_ONCE = 64, 1000  # versions read at a time: few for most pages, more for long stories
_REMEMBERED = 50_000  # rows whose story is stored up to the position of a caller


@dataclass(frozen=True, slots=True)
class RowVersion:
    """From this sequence on the row lived or not, with these values in the columns that filters use."""

    seq: int
    live: bool
    columns: Mapping[str, Any]


def is_live(fold: RowMerge) -> bool:
    """Whether a merged row lives."""
    return fold.written is not None and (fold.deleted is None or fold.written > fold.deleted)


def values_of(fold: RowMerge, names: Iterable[str], *, covered: bool = False) -> JsonObject:
    """Those of the named columns that a row has; `covered`: also those that its DELETE covers."""
    floor = None if covered else fold.deleted
    held = ((name, fold.columns.get(name)) for name in names)
    return {name: each[1] for name, each in held if each is not None and (floor is None or each[0] > floor)}


@dataclass(slots=True)
class IndexedRow:
    """A merged row, its newest version, and the versions to add."""

    fold: RowMerge = field(default_factory=RowMerge)
    shown: tuple[bool, str] | None = None
    versions: list[StoredVersion] = field(default_factory=list)

    def add(self, seq: int, delta: RowDelta, watched: Sequence[str]) -> None:
        """Merge one more delta."""
        self.fold.add(delta)
        self.note(seq, watched)

    def note(self, seq: int, watched: Sequence[str]) -> None:
        """Add a version if what filters use has changed."""
        live = is_live(self.fold)
        values = json.dumps(values_of(self.fold, watched) if live else {})
        if self.shown != (live, values):
            self.shown = (live, values)
            self.versions.append(StoredVersion(seq, live, values))


@dataclass(slots=True)
class Story:
    """What a caller has seen of a row, followed along the log.

    `is_whole`: the row was visible whenever it lived, from its beginning on, so the caller has all its deltas.
    """

    versions: Iterator[RowVersion]
    sees: Callable[[RowVersion], bool]
    before: RowVersion | None = None  # the last version before the current record
    is_whole: bool = True
    was_seen: bool = False
    _next: RowVersion | None = None

    def at(self, seq: int) -> RowVersion | None:
        """Advance to a record; the version after it."""
        if self._next is None:
            self._next = next(self.versions, None)
        while self._next is not None and self._next.seq < seq:
            if self.sees(self._next):
                self.was_seen = True
            elif self._next.live or not self.was_seen:
                self.is_whole = False
            self.before, self._next = self._next, next(self.versions, None)
        return self._next if self._next is not None and self._next.seq == seq else self.before


class RowIndex:
    """The merged rows of a log, brought up to date on demand."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._bookmarks: dict[tuple[int, str, RowKey], tuple[RowVersion | None, bool, bool]] = {}

    def catch_up(self, rules: SyncRules, rules_number: int) -> int:
        """Merge everything that has arrived; the sequence of the newest record."""
        last = self._log.head().last
        while True:
            done = self._log.head().projection
            if done[1] != rules_number:
                self._restart(rules, rules_number, done)
            elif done[0] >= last:
                return last
            else:
                self._fold_step(rules, done, last)

    def is_whole(self) -> bool:
        """Whether the rows contain every record that was removed from the log."""
        head = self._log.head()
        return head.projected >= head.pruned

    def fold(self, key: RowKey) -> RowMerge:
        """The merged row."""
        stored = self._log.rows([key]).get(key)
        return RowMerge() if stored is None else read_row(stored).fold

    def story(self, key: RowKey, seq: int, sees: Callable[[RowVersion], bool], view: tuple[int, str]) -> Story:
        """The story of a row for a caller whose next record is `seq`; `view` identifies rules and claims."""
        before, is_whole, seen = self._bookmarks.get((*view, key), (None, True, False))
        if before is not None and before.seq >= seq:  # the caller is further back than an earlier page of its
            before, is_whole, seen = None, True, False
        after = -1 if before is None else before.seq
        return Story(self._versions(key, after), sees, before, is_whole, seen)

    def store(self, key: RowKey, story: Story, view: tuple[int, str]) -> None:
        """Store how far a story was followed, for the next page."""
        if len(self._bookmarks) >= _REMEMBERED:
            self._bookmarks.clear()
        self._bookmarks[(*view, key)] = story.before, story.is_whole, story.was_seen

    def _versions(self, key: RowKey, after: int) -> Iterator[RowVersion]:
        size = _AT_FIRST
        while True:
            found = self._log.versions(key, after, size)
            yield from (RowVersion(each.seq, each.live, json.loads(each.watched)) for each in found)
            if len(found) < size:
                return
            after, size = found[-1].seq, min(size * 2, _AT_ONCE)

    def _fold_step(self, rules: SyncRules, done: Projection, last: int) -> None:
        upto = min(last, done[0] + _STEP)
        deltas = [(record.seq, stored_delta(record.body)) for record in self._log.read_all(done[0], upto)]
        stored = self._log.rows(sorted({(delta.table, delta.row_id) for _, delta in deltas}))
        rows = {key: read_row(body) for key, body in stored.items()}
        for seq, delta in deltas:
            row = rows.setdefault((delta.table, delta.row_id), IndexedRow())
            row.add(seq, delta, rules.columns_of(delta.table))
        # Another process may have merged the same records: then nothing is stored, and the loop continues there.
        self._log.store_rows({key: written_row(row) for key, row in rows.items()}, done, (upto, done[1]))

    def seed(self, rules: SyncRules, rules_number: int, folds: Mapping[RowKey, RowMerge]) -> None:
        """Merge anew, on top of rows that the log's records do not make."""
        self._restart(rules, rules_number, self._log.head().projection, folds)
        self.catch_up(rules, rules_number)

    def _restart(
        self, rules: SyncRules, rules_number: int, done: Projection, seeds: Mapping[RowKey, RowMerge] | None = None
    ) -> None:
        """New rules use other columns: merge anew, or start new stories where old records were removed."""
        is_pruned = self._log.head().pruned > 0
        folds = {key: read_row(stored).fold for key, stored in self._log.all_rows()} if is_pruned else {}
        for key, fold in (seeds or {}).items():
            folds.setdefault(key, RowMerge()).join(fold)
        rows = {}
        for key, fold in folds.items():
            row = IndexedRow(fold)
            row.note(0, rules.columns_of(key[0]))
            rows[key] = written_row(row)
        self._log.store_rows(rows, done, (done[0] if is_pruned else 0, rules_number), anew=True)


def read_row(stored: StoredRow) -> IndexedRow:
    """A row of the index."""
    plain = json.loads(stored.fold)
    columns = {name: (_stamp(stamp), value) for name, (stamp, value) in plain["columns"].items()}
    shown = plain.get("shown")
    return IndexedRow(
        RowMerge(columns, _stamp(plain["written"]), _stamp(plain["deleted"])), None if shown is None else tuple(shown)
    )


def written_row(row: IndexedRow) -> StoredRow:
    """A row of the index as the log stores it."""
    columns = {name: (_plain_stamp(stamp), value) for name, (stamp, value) in row.fold.columns.items()}
    written, deleted = _plain_stamp(row.fold.written), _plain_stamp(row.fold.deleted)
    plain = {"columns": columns, "written": written, "deleted": deleted, "shown": row.shown}
    return StoredRow(json.dumps(plain).encode(), tuple(row.versions))


def _plain_stamp(stamp: Any) -> Any:
    return None if stamp is None else (stamp[0], stamp[1].hex(), stamp[2], stamp[3])


def _stamp(plain: Any) -> Any:
    return None if plain is None else (plain[0], bytes.fromhex(plain[1]), plain[2], plain[3])
