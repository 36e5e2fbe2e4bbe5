"""`driftline merge`: three versions of a table to one, row by row and cell by cell (tables §7.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from driftline.errors import OptionError, TableError
from driftline.sources._csv.strict import TextTable
from driftline.tables.cells import CellRule
from driftline.tables.columns import column_rules
from driftline.tables.options import DiffOptions
from driftline.tables.problems import duplicate_key_problem, missing_key_problem, width_problem

Row = dict[str, str]
Key = tuple[str, ...]
Prefer = Literal["ours", "theirs"]


@dataclass
class Merged:
    """The merged table, and what could not be decided by the rules alone."""

    header: list[str]
    rows: list[Row] = field(default_factory=list)
    conflicts: list[dict[str, Any]] = field(default_factory=list)

    def records(self) -> Iterator[list[str]]:
        """The rows as cells; a cell that nobody has is empty."""
        return ([row.get(name, "") for name in self.header] for row in self.rows)


def merge_tables(
    base: TextTable, ours: TextTable, theirs: TextTable, options: DiffOptions, prefer: Prefer | None = None
) -> Merged:
    """Merge two successors of a table; conflicts are listed, and decided where `prefer` says how."""
    _check_options(options)
    rules = column_rules([base.header, ours.header, theirs.header], options)
    before = _Version("BASE", base, options, rules)
    mine, other = _Version("OURS", ours, options, rules), _Version("THEIRS", theirs, options, rules)
    return _Merge(before, mine, other, rules, options, prefer).run()


def _check_options(options: DiffOptions) -> None:
    if options.mode != "keyed":
        raise TableError("Missing key column: a merge needs at least one key column", code="missing_key_column")
    if options.duplicates != "error" or options.rename:
        raise OptionError("a merge takes neither duplicates nor rename", code="invalid_option_combination")


class _Version:
    """One of the three tables: its columns, and its rows by the forms of their keys."""

    def __init__(self, name: str, table: TextTable, options: DiffOptions, rules: dict[str, CellRule]) -> None:
        self.columns = set(table.header)
        self.header = table.header
        self.rows: dict[Key, Row] = {}
        if len(self.columns) < len(table.header):
            raise TableError(f"Duplicate column name in {name}", code="duplicate_column_name", side=name)
        for column in options.key_columns:
            if column not in self.columns:
                raise TableError(f'Missing key column "{column}" in {name}', code="missing_key_column", side=name)
        numbers: dict[Key, int] = {}
        side: Any = name
        for number, record in table.rows:
            if len(record) != len(table.header):
                raise width_problem(side, number, len(table.header), len(record)).to_error()
            row = dict(zip(table.header, record, strict=True))
            key = tuple(rules[column].form(row[column]) for column in options.key_columns)
            for column, form in zip(options.key_columns, key, strict=True):
                if options.empty_key == "error" and form in rules[column].missing_forms(typed=False):
                    raise missing_key_problem(side, number, column).to_error()
            if key in self.rows:
                named = {column: row[column] for column in options.key_columns}
                raise duplicate_key_problem(side, number, numbers[key], named).to_error()
            numbers[key] = number
            self.rows[key] = row


class _Merge:
    """One merge under way."""

    def __init__(
        self,
        base: _Version,
        ours: _Version,
        theirs: _Version,
        rules: dict[str, CellRule],
        options: DiffOptions,
        prefer: Prefer | None,
    ) -> None:
        self.base, self.ours, self.theirs = base, ours, theirs
        self._rules = rules
        self._keys = options.key_columns
        self._prefer = prefer
        gone = base.columns - theirs.columns
        new = [name for name in theirs.header if name not in base.columns and name not in ours.columns]
        self.merged = Merged([name for name in ours.header if name not in gone] + new)
        removed = [name for name in base.header if name not in self.merged.header]
        self._order = [*self.merged.header, *removed]

    def run(self) -> Merged:
        """Merge every key; rows in OURS' order, then those that only THEIRS has."""
        found: dict[Key, Row | None] = {}
        for key in sorted(self.base.rows.keys() | self.ours.rows.keys() | self.theirs.rows.keys()):
            found[key] = self._row(self.base.rows.get(key), self.ours.rows.get(key), self.theirs.rows.get(key))
        order = [*self.ours.rows, *(key for key in self.theirs.rows if key not in self.ours.rows)]
        self.merged.rows = [row for key in order if (row := found[key]) is not None]
        return self.merged

    def _row(self, base: Row | None, ours: Row | None, theirs: Row | None) -> Row | None:
        if ours is not None and theirs is not None:
            return self._cells(base, ours, theirs) if base is not None else self._both_added(ours, theirs)
        kept = ours if ours is not None else theirs
        if base is None or kept is None:
            return kept
        if not self._changed(base, kept):
            return None
        self._note(base, ours, theirs)
        return ours if self._prefer == "ours" else theirs

    def _both_added(self, ours: Row, theirs: Row) -> Row | None:
        whole = {**theirs, **ours}
        if not self._changed(ours, theirs):
            return whole
        self._note(None, ours, theirs)
        return {**ours, **theirs} if self._prefer == "theirs" else whole

    def _cells(self, base: Row, ours: Row, theirs: Row) -> Row:
        row = {}
        for name in self._order:
            cell = self._cell(name, base, ours, theirs)
            if cell is not None:
                row[name] = cell
        return row

    def _cell(self, name: str, base: Row, ours: Row, theirs: Row) -> str | None:
        """One cell of a row that all three have: whoever changed it wins; None where nobody has it."""
        before, mine, other = base.get(name), ours.get(name), theirs.get(name)
        if not self._differ(name, before, other) or name not in self._rules:
            return mine if mine is not None or name in self.base.columns else other
        if not self._differ(name, before, mine):
            return other
        if not self._differ(name, mine, other):
            return mine
        self._note(base, ours, theirs, name)
        return other if self._prefer == "theirs" else mine

    def _differ(self, name: str, one: str | None, other: str | None) -> bool:
        if one is None or other is None or name not in self._rules:
            return one != other
        rule = self._rules[name]
        return not rule.equal(rule.form(one), rule.form(other))

    def _changed(self, one: Row, other: Row) -> bool:
        shared = (name for name in one if name in other and name in self._rules)
        return any(self._differ(name, one[name], other[name]) for name in shared)

    def _note(self, base: Row | None, ours: Row | None, theirs: Row | None, column: str | None = None) -> None:
        row = base or ours or theirs or {}
        shown: Sequence[Any] = (base, ours, theirs)
        if column is not None:
            shown = [None if one is None else one.get(column) for one in shown]
        values = dict(zip(("base", "ours", "theirs"), shown, strict=True))
        key = {name: row[name] for name in self._keys}
        self.merged.conflicts.append({"type": "conflict", "key": key, "column": column, **values})
