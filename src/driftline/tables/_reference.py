"""The diff in plain Python: rows in memory, one dict per row.

It is the reference implementation for tests of the vectorized steps, and the fastest one for small files, because it
needs neither Arrow nor Polars.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from driftline.errors import TableError
from driftline.sources import TextTable
from driftline.tables import _columns, _events
from driftline.tables._columns import Column, Comparison, Problem, Side
from driftline.tables._events import Event, Stats
from driftline.tables._options import TableOptions
from driftline.tables._profile import Profile

Forms = tuple[str, ...]


class PlainRow(NamedTuple):
    """A row: its record's number, its cells by name, and the normalized values of its compared cells and its key."""

    number: int
    cells: dict[str, str]
    forms: Forms
    key: Forms


Pair = tuple[PlainRow | None, PlainRow | None]  # matched rows; one of them may be missing


def diff_tables(
    a: TextTable, b: TextTable, options: TableOptions, *, profiled: bool = False
) -> tuple[list[Event], Stats]:
    """All events of the diff and its counts; an error is raised before the first event."""
    compared = _columns.resolve_columns(a.header, b.header, options)
    sides = _Side("A", a, compared, options), _Side("B", b, compared, options)
    _columns.raise_first_error([problem for side in sides for problem in side.problems()])
    events = [_event_of(*pair, compared, options) for pair in _pairs(*sides, options)]
    changes = _events.count_changes(events)
    counts = Counter(event["type"] for event in events)
    counts.update(dropped_a=sides[0].dropped, dropped_b=sides[1].dropped)
    stats = Stats.of_diff(compared, options, a.skipped, b.skipped, **counts)
    stats = replace(stats, columns=_events.changes_by_column(compared, changes))
    if profiled:
        profile = Profile()
        for event in events:
            profile.add(event)
        for cells, place, rows in _repeated_keys(*sides) if options.duplicates != "error" else ():
            profile.add_key(cells, place, rows)
        stats = replace(stats, profile=_events.joined_profile([profile], compared, stats))
    emits_unchanged = options.emit_unchanged and not options.ignore_row_order
    shown = [event for event in events if event["type"] != "unchanged" or emits_unchanged]
    if options.column_stats:
        shown.append(_events.column_stats_event(compared, stats, changes))
    return [_events.schema_event(compared), *shown, stats.to_event()], stats


class _Side:
    """One table with the normalized values of its cells; which rows are dropped is decided when they are matched."""

    def __init__(self, side: Side, table: TextTable, compared: Comparison, options: TableOptions) -> None:
        self.side = side
        self.table = table
        self.dropped = 0
        self.compared = compared
        self._options = options
        width = len(table.header)
        self.rows = [self._row(number, record) for number, record in table.rows if len(record) == width]

    def _row(self, number: int, record: list[str]) -> PlainRow:
        cells = dict(zip(self.table.header, record, strict=True))
        compared = self.compared
        return PlainRow(number, cells, self._forms(cells, compared.columns), self._forms(cells, compared.keys))

    def _forms(self, cells: dict[str, str], columns: Sequence[Column]) -> Forms:
        names = self.compared.names(columns, self.side)
        rules = (column.rule_of(self.side) for column in columns)
        return tuple(rule.form(cells[name]) for rule, name in zip(rules, names, strict=True))

    def problems(self) -> Iterator[Problem]:
        """The errors of the rows: the first of each kind."""
        width = len(self.table.header)
        for number, record in self.table.rows:
            if len(record) != width:
                yield _columns.width_problem(self.side, number, width, len(record))
                return
        if not self.compared.keys:
            return
        first_rows: dict[Forms, int] = {}
        for row in self.rows:
            missing = self._missing_key(row)
            if missing is not None:
                yield _columns.missing_key_problem(self.side, row.number, missing)
            elif self._options.duplicates == "error" and row.key in first_rows:
                key = _key_of(row, self.compared, self.side)
                yield _columns.duplicate_key_problem(self.side, row.number, first_rows[row.key], key)
            first_rows.setdefault(row.key, row.number)

    def _missing_key(self, row: PlainRow) -> str | None:
        if self._options.empty_key == "allow":
            return None
        names = self.compared.names(self.compared.keys, self.side)
        parts = zip(self.compared.keys, row.key, names, strict=True)
        return next((name for column, form, name in parts if form in column.rule.missing_forms(typed=False)), None)

    def by_key(self) -> dict[Forms, list[PlainRow]]:
        """The rows of each key in file order, after one of several was chosen."""
        found = _grouped(self.rows, lambda row: row.key)
        if self._options.counts_dropped:
            at = 0 if self._options.duplicates == "first" else -1
            self.dropped = len(self.rows) - len(found)
            return {key: [rows[at]] for key, rows in found.items()}
        return found


def _grouped(rows: Sequence[PlainRow], by: Callable[[PlainRow], Forms]) -> dict[Forms, list[PlainRow]]:
    found: defaultdict[Forms, list[PlainRow]] = defaultdict(list)
    for row in rows:
        found[by(row)].append(row)
    return found


def _repeated_keys(a: _Side, b: _Side) -> Iterator[tuple[dict[str, str], int, tuple[int, int]]]:
    """The keys of several rows: the cells and the number of the first row where it has more, and how many it has."""
    rows_a, rows_b = (_grouped(side.rows, lambda row: row.key) for side in (a, b))
    for key in rows_a.keys() | rows_b.keys():
        count = len(rows_a.get(key, ())), len(rows_b.get(key, ()))
        side, rows = (a, rows_a) if count[0] > count[1] else (b, rows_b)
        if max(count) > 1:
            yield _key_of(rows[key][0], a.compared, side.side), rows[key][0].number, count


def _key_of(row: PlainRow, compared: Comparison, side: Side) -> dict[str, str]:
    own = compared.names(compared.keys, side)
    return {column.a: row.cells[name] for column, name in zip(compared.keys, own, strict=True)}


def _pairs(a: _Side, b: _Side, options: TableOptions) -> Iterator[Pair]:
    if options.mode == "keyed":
        yield from _pairs_by_key(a, b)
    elif not options.ignore_row_order:
        yield from zip_longest(a.rows, b.rows)
    else:  # equal rows are matched in file order; the surplus of either side is at the end of its file
        rows_a, rows_b = (_grouped(side.rows, lambda row: row.forms) for side in (a, b))
        for forms in sorted(rows_a.keys() | rows_b.keys()):
            yield from zip_longest(rows_a.get(forms, ()), rows_b.get(forms, ()))


def _pairs_by_key(a: _Side, b: _Side) -> Iterator[Pair]:
    rows_a, rows_b = a.by_key(), b.by_key()
    columns = a.compared.columns

    def near(one: PlainRow, other: PlainRow) -> bool:
        forms = zip(columns, one.forms, other.forms, strict=True)
        return all(column.rule.equal(form_a, form_b) for column, form_a, form_b in forms)

    equal = near if any(column.rule.tolerance is not None for column in columns) else None
    # Python compares strings by code point, and normalized values sort that way as keys do.
    for key in sorted(rows_a.keys() | rows_b.keys()):
        yield from match_similar(rows_a.get(key, []), rows_b.get(key, []), equal)


def _event_of(before: PlainRow | None, after: PlainRow | None, compared: Comparison, options: TableOptions) -> Event:
    row = before or after
    assert row is not None, "a pair has a row"
    place: Event = {} if options.ignore_row_order else {"row_index": row.number}
    if options.mode == "keyed":
        place = {"key": _key_of(row, compared, "A" if before else "B")}
    if before is None or after is None:
        return _events.row_event("added" if before is None else "removed", place, row.cells)
    forms = zip(compared.columns, before.forms, after.forms, strict=True)
    changed = [column for column, a, b in forms if not column.rule.equal(a, b)]
    if changed:
        return _events.changed_event(place, before.cells, after.cells, changed)
    return _events.row_event("unchanged", place, before.cells)


# Matching the rows of one key (tables §5.3), the same for rows of cells and for row hashes.


# A row with its `number` in the file, and `forms`, which are equal for rows that are equal without tolerance.
Row = TypeVar("Row", bound=Any)
MOST_COMPARISONS = 4_000_000  # of rows of one key under a tolerance; seconds, where all against all would be hours


def match_similar(
    a: Sequence[Row], b: Sequence[Row], equal: Callable[[Row, Row], bool] | None
) -> Iterator[tuple[Row | None, Row | None]]:
    """Pairs and surplus rows of one key: pairs and rows of A by A's number, then the rest of B.

    Rows whose normalized values are equal are matched first, in file order; then each remaining row of A with the first
    row of B that is `equal` under tolerance (None: there is none); then the rest in file order.
    """
    if len(a) <= 1 and len(b) <= 1:
        yield (a[0] if a else None), (b[0] if b else None)
        return
    partners = _partners(a, b, equal)
    for at, row in enumerate(a):
        yield row, b[partners[at]] if at in partners else None
    taken = set(partners.values())
    for at, row in enumerate(b):
        if at not in taken:
            yield None, row


def _partners(a: Sequence[Row], b: Sequence[Row], equal: Callable[[Row, Row], bool] | None) -> dict[int, int]:
    by_forms: defaultdict[Hashable, deque[int]] = defaultdict(deque)
    for at, row in enumerate(b):
        by_forms[row.forms].append(at)
    partners = {at: by_forms[row.forms].popleft() for at, row in enumerate(a) if by_forms[row.forms]}
    left_a = [at for at in range(len(a)) if at not in partners]
    taken = set(partners.values())
    left_b = dict.fromkeys(at for at in range(len(b)) if at not in taken)
    if equal is not None:
        near = _near_partners(a, b, left_a, left_b, equal)
        partners |= near
        left_a = [at for at in left_a if at not in near]
    partners.update(zip(left_a, left_b, strict=False))
    return partners


def _near_partners(
    a: Sequence[Row], b: Sequence[Row], left_a: list[int], left_b: dict[int, None], equal: Callable[[Row, Row], bool]
) -> dict[int, int]:
    """Each row of A with the first row of B that is equal under tolerance, which is taken out of `left_b`."""
    found: dict[int, int] = {}
    compared = 0
    for at in left_a:
        for other in left_b:
            compared += 1
            if equal(a[at], b[other]):
                found[at] = other
                del left_b[other]
                break
        if compared > MOST_COMPARISONS:
            raise TableError(
                f"{len(a):,} rows of A and {len(b):,} of B have one key and differ: under a tolerance each is compared "
                "with each: name a finer key, or leave the tolerance out",
                code="too_many_duplicates",
            )
    return found
