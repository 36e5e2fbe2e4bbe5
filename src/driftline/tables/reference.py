"""The diff in plain Python: rows in memory, one dict per row.

It is the oracle that the kernels are tested against, and the quickest way for small files, because it needs
neither Arrow nor Polars.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from driftline.tables.events import Event, changed_event, row_event, schema_event
from driftline.tables.header import check_headers
from driftline.tables.options import DiffOptions
from driftline.tables.problems import (
    Problem,
    Side,
    duplicate_key_problem,
    missing_key_problem,
    raise_first,
    width_problem,
)
from driftline.tables.rules import cells_differ, comparison_columns, key_cell_is_missing, key_parts
from driftline.tables.stats import Stats

FIRST_DATA_ROW = 2  # rulings: the header is record 1

Record = list[str]
Key = tuple[str, ...]
Rows = dict[str, str]
Changes = tuple[list[Event], Stats]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A header and its records, checked for nothing yet."""

    header: Record
    records: list[Record]

    @classmethod
    def of(cls, records: Iterable[Record]) -> Parsed:
        """Take the first record as the header."""
        header, *rest = records
        return cls(header, rest)


def diff_records(a: Iterable[Record], b: Iterable[Record], options: DiffOptions) -> Iterator[Event]:
    """All events of the diff of two record streams (header first); errors come before the first event."""
    before, after = Parsed.of(a), Parsed.of(b)
    check_headers(before.header, after.header, options)
    raise_first([*_problems(before, "A", options), *_problems(after, "B", options)])
    events, stats = _compare(before, after, options)
    yield schema_event(before.header, after.header)
    yield from events
    yield stats.to_event()


def _compare(a: Parsed, b: Parsed, options: DiffOptions) -> Changes:
    columns = comparison_columns(a.header, options)
    if options.mode == "keyed":
        return _compare_keyed(a, b, columns, options)
    if options.ignore_row_order:
        return _compare_multisets(a, b, columns)
    return _compare_positions(a, b, columns, options)


def _problems(table: Parsed, side: Side, options: DiffOptions) -> Iterator[Problem]:
    width = len(table.header)
    first_rows: dict[Key, int] = {}
    for row, record in enumerate(table.records, FIRST_DATA_ROW):
        if len(record) != width:
            yield width_problem(side, row, width, len(record))
            return
        if options.key_columns:
            yield from _key_problems(dict(zip(table.header, record, strict=True)), row, side, options, first_rows)


def _key_problems(
    cells: Rows, row: int, side: Side, options: DiffOptions, first_rows: dict[Key, int]
) -> Iterator[Problem]:
    key = key_parts(cells, options)
    named = dict(zip(options.key_columns, key, strict=True))
    missing = next((name for name, cell in named.items() if key_cell_is_missing(cell)), None)
    if missing is not None:
        yield missing_key_problem(side, row, missing)
    elif key in first_rows:
        yield duplicate_key_problem(side, row, first_rows[key], named)
    else:
        first_rows[key] = row


def _rows_of(table: Parsed) -> Iterator[Rows]:
    return (dict(zip(table.header, record, strict=True)) for record in table.records)


def _compare_keyed(a: Parsed, b: Parsed, columns: Sequence[str], options: DiffOptions) -> Changes:
    rows_a = {key_parts(row, options): row for row in _rows_of(a)}
    rows_b = {key_parts(row, options): row for row in _rows_of(b)}
    # Python compares strings by code point, which is the ruled order.
    pairs = (
        ({"key": dict(zip(options.key_columns, key, strict=True))}, rows_a.get(key), rows_b.get(key))
        for key in sorted(rows_a.keys() | rows_b.keys())
    )
    return _events_of_pairs(pairs, columns, options)


def _compare_positions(a: Parsed, b: Parsed, columns: Sequence[str], options: DiffOptions) -> Changes:
    rows_a, rows_b = list(_rows_of(a)), list(_rows_of(b))
    pairs = (
        (
            {"row_index": i + FIRST_DATA_ROW},
            rows_a[i] if i < len(rows_a) else None,
            rows_b[i] if i < len(rows_b) else None,
        )
        for i in range(max(len(rows_a), len(rows_b)))
    )
    return _events_of_pairs(pairs, columns, options)


def _events_of_pairs(
    pairs: Iterable[tuple[Event, Rows | None, Rows | None]], columns: Sequence[str], options: DiffOptions
) -> Changes:
    events: list[Event] = []
    counts: Counter[str] = Counter()
    for place, before, after in pairs:
        kind, event = _event_of_pair(place, before, after, columns)
        counts[kind] += 1
        if kind != "unchanged" or options.emit_unchanged:
            events.append(event)
    return events, Stats(**counts)


def _event_of_pair(place: Event, before: Rows | None, after: Rows | None, columns: Sequence[str]) -> tuple[str, Event]:
    if before is None:
        assert after is not None
        return "added", row_event("added", place, after)
    if after is None:
        return "removed", row_event("removed", place, before)
    if any(cells_differ(before[name], after[name]) for name in columns):
        return "changed", changed_event(place, before, after, columns)
    return "unchanged", row_event("unchanged", place, before)


def _compare_multisets(a: Parsed, b: Parsed, columns: Sequence[str]) -> Changes:
    counts_a = Counter(tuple(row[name] for name in columns) for row in _rows_of(a))
    counts_b = Counter(tuple(row[name] for name in columns) for row in _rows_of(b))
    events: list[Event] = []
    for values in sorted(counts_a.keys() | counts_b.keys()):
        row = dict(zip(columns, values, strict=True))
        surplus = counts_a[values] - counts_b[values]
        kind, header = ("removed", a.header) if surplus > 0 else ("added", b.header)
        event = row_event(kind, {}, {name: row[name] for name in header})
        events += [event] * abs(surplus)
    removed, added = (counts_a - counts_b).total(), (counts_b - counts_a).total()
    return events, Stats(added=added, removed=removed, unchanged=counts_a.total() - removed)
