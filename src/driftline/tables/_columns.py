"""Matching the columns of two headers, with the rule of each (tables §3), and the errors of headers and rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar, get_args

from driftline.core import exact_dumps
from driftline.errors import OptionError, TableError
from driftline.sources import RowPart, SplitSide
from driftline.tables._options import DeclaredType, TableOptions, checked_combination, remedies
from driftline.tables._rules import DOUBLE, KINDS, SINGLE, CellRule, Kind, Tolerance

Side = Literal["A", "B"]
ProblemKind = Literal["row_width_mismatch", "missing_key_value", "duplicate_key"]  # in the order of reports
Value = TypeVar("Value")

_OTHER_DELIMITERS = {";": ";", "\t": "tab", "|": "|", ",": ","}
_MOST_NAMES = 20
_FEW_QUOTES = 0.5  # of a record: may differ by chance
_KIND_ORDER = get_args(ProblemKind)


class Column(NamedTuple):
    """A compared column: its names in A and in B, and the rule of its cells."""

    a: str
    b: str
    rule: CellRule
    own: tuple[CellRule | None, CellRule | None] = (None, None)  # of a side whose numbers or dates are read otherwise

    def rule_of(self, side: str) -> CellRule:
        """The rule of a side's cells."""
        return self.own["AB".index(side)] or self.rule


@dataclass(frozen=True)
class Comparison:
    """What is compared: both headers, the compared columns in comparison order, and the keys among them."""

    header_a: tuple[str, ...]
    header_b: tuple[str, ...]
    columns: tuple[Column, ...]
    keys: tuple[Column, ...] = ()
    added: tuple[str, ...] | None = None  # in common mode: columns that only B has, and that only A has
    removed: tuple[str, ...] | None = None
    renamed: tuple[tuple[str, str], ...] | None = None
    typed_a: bool = False  # cells are JSON text
    typed_b: bool = False
    notes: tuple[str, ...] = ()  # how columns of two types are compared

    @property
    def differs(self) -> bool:
        """Whether the columns themselves are a difference."""
        return bool(self.added or self.removed)

    @cached_property
    def others(self) -> tuple[Column, ...]:
        """The compared columns outside the key."""
        return tuple(column for column in self.columns if column not in self.keys)

    @property
    def is_whole(self) -> bool:
        """Whether both sides have the same columns, and every cell is compared as it is."""
        whole = self.header_a == self.header_b and len(self.columns) == len(self.header_a)
        return whole and all(column.rule.is_exact and column.a == column.b for column in self.columns)

    def typed(self, side: str) -> bool:
        """Whether the cells of a side are JSON text."""
        return self.typed_a if side == "A" else self.typed_b

    def names(self, columns: Iterable[Column], side: str) -> list[str]:
        """The names of columns on a side."""
        return [column.a if side == "A" else column.b for column in columns]


# What is hashed of rows of text, for A and for B: some cells, or the key and the text of the record. Rows whose records
# have the same text are equal; the cells of the others are compared later.
HashedText = tuple[RowPart, RowPart]


def hashed_text(
    compared: Comparison, a: SplitSide, b: SplitSide, options: TableOptions, *, by_cells: bool = False
) -> HashedText | None:
    """The smallest part that distinguishes rows of text; None where a side is not text."""
    if a.delimiter is None or b.delimiter is None:
        return None
    by_record = not by_cells and _can_hash_records(compared, a, b, options)
    columns = compared.keys if by_record else compared.columns
    part_a, part_b = (RowPart(tuple(compared.names(columns, side)), text=by_record) for side in "AB")
    return part_a, part_b


def _can_hash_records(compared: Comparison, a: SplitSide, b: SplitSide, options: TableOptions) -> bool:
    """Whether equal rows mostly have the same text, and only rows that differ must be found exactly."""
    if options.ignore_row_order or options.emit_unchanged or options.duplicates == "match" or not compared.is_whole:
        return False
    if a.quotes is None or b.quotes is None or a.delimiter != b.delimiter:
        return False
    few, many = sorted((a.quotes, b.quotes))  # a writer that quotes more cells writes equal rows otherwise
    return few > many / 2 or many < _FEW_QUOTES


class Sides(NamedTuple):
    """Properties of both sides beside their headers: whether cells are typed, and the kinds of typed columns."""

    typed_a: bool = False
    typed_b: bool = False
    kinds_a: Mapping[str, str] = {}
    kinds_b: Mapping[str, str] = {}
    declared: bool = False  # both sides have columns of one type

    def meet(self, a: str, b: str) -> tuple[Kind | None, tuple[Kind | None, Kind | None]]:
        """The kind as which two columns are compared, None: as they are, and how each side's numbers are read."""
        kinds = [_family(self.kinds_a.get(a)), _family(self.kinds_b.get(b))]
        if self.typed_a != self.typed_b:
            kind = kinds[0] if self.typed_a else kinds[1]
            return KINDS["number" if kind in _NUMBERS else kind if kind in KINDS else "text"], (None, None)
        alike = self.declared and (kinds[0] == kinds[1] or set(kinds) == {"single", "float"})
        if alike or not all(kind in _NUMBERS for kind in kinds) or kinds == ["integer", "integer"]:
            return None, (None, None)
        return KINDS["number"], (_OWN_NUMBERS.get((kinds[0], kinds[1])), _OWN_NUMBERS.get((kinds[1], kinds[0])))

    def times(self, a: str, b: str) -> Kind | None:
        """The kind of two columns of dates or of times."""
        kinds = {_family(self.kinds_a.get(a)), _family(self.kinds_b.get(b))}
        return KINDS[kinds.pop()] if kinds in ({"date"}, {"datetime"}) else None

    def note(self, a: str, b: str) -> str | None:
        """How two columns of numbers of different types are compared."""
        kinds = [_family(self.kinds_a.get(a)), _family(self.kinds_b.get(b))]
        if kinds[0] == kinds[1] or not all(kind in _NUMBERS for kind in kinds):
            return None
        by = "value" if "integer" in kinds else "shortest text of the float"
        return f"{a}: {kinds[0]} in A, {kinds[1]} in B, compared by {by}"


_NUMBERS = ("integer", "float", "single", "decimal", "number")
_OWN_NUMBERS = {
    ("float", "integer"): DOUBLE,
    ("single", "integer"): DOUBLE,
    ("single", "decimal"): SINGLE,
    ("single", "number"): SINGLE,
}


def _family(kind: str | None) -> str:
    """A kind without the digits of decimals."""
    return "datetime" if kind == "instant" else (kind or "").partition("(")[0]


def named_options(options: TableOptions, header_a: Sequence[str], header_b: Sequence[str]) -> TableOptions:
    """Options by the names of columns: keys that are given by number, and names whose case does not matter."""
    keys, renames = list(options.key_columns), dict(options.rename)
    if options.ignore_column_case:
        keys = [name if name in header_a else _only_like(name, header_a) for name in keys]
        olds = [name for name in header_a if name not in header_b and name not in renames]
        news = [name for name in header_b if name not in header_a and name not in renames.values()]
        found = {old: _only_like(old, news) for old in olds}
        renames.update((old, new) for old, new in found.items() if new != old and _only_like(new, olds) == old)
    for number in options.key_numbers:
        if not 0 < number <= len(header_a):
            words = f"Missing key column {number} in A: it has {len(header_a)} (columns: {_quoted(header_a)[1:-1]})"
            raise TableError(words, code="missing_key_column", side="A")
        keys.append(header_a[number - 1])
    named = replace(options, key_columns=tuple(dict.fromkeys(keys)), key_numbers=(), rename=tuple(renames.items()))
    return checked_combination(replace(named, ignore_column_case=False))


def _only_like(name: str, names: Sequence[str]) -> str:
    """The only name that differs from one in case alone; else the name itself, for which there is no partner then."""
    found = [other for other in names if other.casefold() == name.casefold()]
    return found[0] if len(found) == 1 else name


def resolve_columns(
    header_a: Sequence[str], header_b: Sequence[str], options: TableOptions, sides: Sides | None = None
) -> Comparison:
    """Match the columns of two headers, or raise the first error in the specified order (tables §3.4)."""
    sides = sides or Sides()
    _check_unique(header_a, "A")
    _check_unique(header_b, "B")
    new_names = _renamed(header_a, header_b, options)
    _check_match(new_names, header_b, options)
    names_in_b = dict(zip(header_a, new_names, strict=True))
    _check_keys(header_a, header_b, names_in_b, options)
    common = [name for name in header_a if names_in_b[name] in header_b]
    only_b = [name for name in header_b if name not in new_names]
    met = {name: sides.meet(name, names_in_b[name]) for name in common}
    implied = {name: kind for name, (kind, _) in met.items() if kind is not None}
    if any(limit.nanoseconds is not None for _, limit in options.tolerance):
        times = {name: sides.times(name, names_in_b[name]) for name in common}
        implied = {**{name: kind for name, kind in times.items() if kind is not None}, **implied}
    settings = _Settings(options, [*header_a, *only_b], implied)
    ordered = sorted(common) if options.header_mode == "sorted" else common
    compared = [name for name in ordered if name in options.key_columns or settings.is_chosen(name)]
    declared = {name for name in compared if any(settings.by_side(name))}
    columns = {}
    for name in compared:
        rule = _rule(name, settings, sides)
        a, b = (None if kind is None else replace(rule, kind=kind) for kind in met[name][1])
        own = settings.patterns(name, rule) if name in declared else (a, b)
        columns[name] = Column(name, names_in_b[name], rule, own)
    notes = [sides.note(name, names_in_b[name]) for name in compared if name not in declared and met[name][0]]
    in_common_mode = options.header_mode == "common"
    return Comparison(
        tuple(header_a),
        tuple(header_b),
        tuple(columns.values()),
        tuple(columns[name] for name in options.key_columns),
        added=tuple(filter(settings.is_chosen, only_b)) if in_common_mode else None,
        removed=tuple(n for n in header_a if n not in common and settings.is_chosen(n)) if in_common_mode else None,
        renamed=tuple(pair for name in header_a for pair in options.rename if pair[0] == name) or None,
        typed_a=sides.typed_a,
        typed_b=sides.typed_b,
        notes=tuple(note for note in notes if note is not None) if sides.typed_a and sides.typed_b else (),
    )


def column_rules(headers: Sequence[Sequence[str]], options: TableOptions, sides: Sides) -> dict[str, CellRule]:
    """The rules of the compared columns, for tables whose columns are matched by name alone."""
    names = list(dict.fromkeys(name for header in headers for name in header))
    settings = _Settings(options, names, {})
    compared = (name for name in names if name in options.key_columns or settings.is_chosen(name))
    return {name: _rule(name, settings, sides) for name in compared}


def _rule(name: str, settings: _Settings, sides: Sides) -> CellRule:
    """The rule of one column; a declared type overrides the one of the typed side."""
    kind, pattern = settings.types(name) or (None, None)
    tolerance = settings.tolerance(name, kind)
    if tolerance is not None and kind is None:
        kind = KINDS["number"]
    return CellRule(
        steps=settings.setting(settings.options.normalize, name) or (),
        null_words=settings.options.null,
        kind=kind,
        pattern=pattern,
        tolerance=tolerance,
        mixed=(sides.typed_a or sides.typed_b) and kind is not None,
    )


class _Settings:
    """The settings of columns: an exact name overrides a wildcard, then the last setting wins."""

    def __init__(self, options: TableOptions, known: Sequence[str], implied: Mapping[str, Kind]) -> None:
        self.options = options
        self._known = known
        self._implied = implied
        for option, names in (
            ("ignore", options.ignore),
            ("only", options.only),
            ("normalize", [name for name, _ in options.normalize]),
            ("as", [name for types in options.types for name, _ in types]),
            ("tolerance", [name for name, _ in options.tolerance]),
            ("fail-if", [each.column for each in options.fail_if if each.column is not None]),
        ):
            for pattern in names:
                if not any(self._covers(pattern, name) for name in self._known):
                    words = f"Unknown column {_quoted(pattern)} in {option}{_which_columns(pattern, self._known)}"
                    raise TableError(words, code="unknown_column", column=pattern)
        for name in self._known:
            kinds = [declared[0].name for declared in self.by_side(name) if declared is not None]
            if len(set(kinds)) > 1:
                words = f"{_quoted(name)} is {kinds[0]} in A and {kinds[1]} in B: a column has one type"
                raise OptionError(words, code="invalid_option_combination")
        for pattern, tolerance in self.options.tolerance:
            if pattern in self._known:
                declared = self.types(pattern)
                kind = declared[0] if declared else None
                if not _fits(tolerance, kind):
                    its_type = f"its type {kind.name if kind else 'number'}: numbers take a number"
                    words = f"the tolerance of {_quoted(pattern)} does not fit {its_type}, dates and times a duration"
                    raise OptionError(words, code="invalid_option_combination")

    def is_chosen(self, name: str) -> bool:
        """Whether a column outside the key is compared."""
        if self.options.only and not any(self._covers(pattern, name) for pattern in self.options.only):
            return False
        return not any(self._covers(pattern, name) for pattern in self.options.ignore)

    def by_side(self, name: str) -> list[DeclaredType | None]:
        """What options say that a column holds, on each side."""
        return [self.setting(types, name) for types in self.options.types]

    def types(self, name: str) -> DeclaredType | None:
        """The declared type of a column, with A's pattern, or the one of the typed side."""
        a, b = self.by_side(name)
        declared = a or (None if b is None else (b[0], None))
        return (self._implied[name], None) if declared is None and name in self._implied else declared

    def patterns(self, name: str, rule: CellRule) -> tuple[None, CellRule | None]:
        """B's own rule, where its dates are written otherwise than A's."""
        declared = self.by_side(name)[1]
        pattern = None if declared is None else declared[1]
        return None, None if pattern == rule.pattern else replace(rule, pattern=pattern)

    def tolerance(self, name: str, kind: Kind | None) -> Tolerance | None:
        """The tolerance of a column that is no key; one that does not fit its type is ignored."""
        found = self.setting(self.options.tolerance, name)
        fits = found is not None and _fits(found, kind)
        return found if fits and name not in self.options.key_columns else None

    def setting(self, settings: Sequence[tuple[str, Value]], name: str) -> Value | None:
        """What an option says about a column."""
        exact = [value for pattern, value in settings if pattern == name]
        wild = [value for pattern, value in settings if self._covers(pattern, name)]
        found = exact or wild
        return found[-1] if found else None

    def _covers(self, pattern: str, name: str) -> bool:
        if pattern in self._known:
            return pattern == name
        parts = ({"*": ".*", "?": "."}.get(letter) or re.escape(letter) for letter in pattern)
        return re.fullmatch("".join(parts), name, re.DOTALL) is not None


def _fits(tolerance: Tolerance, kind: Kind | None) -> bool:
    if tolerance.nanoseconds is not None:
        return kind is not None and kind.measure == "time"
    return kind is None or kind.measure == "number"


def _renamed(header_a: Sequence[str], header_b: Sequence[str], options: TableOptions) -> list[str]:
    """A's columns by B's names; all renames are applied at once."""
    new_names = dict(options.rename)
    for old, new in options.rename:
        for side, name, header in (("A", old, header_a), ("B", new, header_b)):
            if name not in header:
                words = f"Unknown column {_quoted(name)} in rename: not in {side}{_which_columns(name, header)}"
                raise TableError(words, code="unknown_column", column=name, side=side)
    header = [new_names.get(name, name) for name in header_a]
    _check_unique(header, "A")
    return header


def _check_unique(header: Sequence[str], side: str) -> None:
    seen: set[str] = set()
    for name in header:
        if name in seen:
            words = f"Duplicate column name in {side}: {_quoted(name)}"
            raise TableError(words, code="duplicate_column_name", side=side, column=name)
        seen.add(name)


def _check_match(header_a: Sequence[str], header_b: Sequence[str], options: TableOptions) -> None:
    if options.header_mode == "common":
        if not set(header_a) & set(header_b):
            words = f"A has {_quoted(header_a)}, B has {_quoted(header_b)}; no column is in both"
            raise TableError(f"Header mismatch (common mode): {words}", code="header_mismatch")
        return
    in_sorted_mode = options.header_mode == "sorted"
    a, b = (sorted(header_a), sorted(header_b)) if in_sorted_mode else (list(header_a), list(header_b))
    if a != b:
        kind = "Header mismatch (sorted mode)" if in_sorted_mode else "Header mismatch"
        words = f"{kind}: A has {_quoted(a)}, B has {_quoted(b)}; {_header_difference(a, b)}"
        raise TableError(words, code="header_mismatch")


def _header_difference(a: Sequence[str], b: Sequence[str]) -> str:
    only_a, only_b = [name for name in a if name not in b], [name for name in b if name not in a]
    if not only_a and not only_b:
        return str(remedies()["columns_in_another_order"]["hint"])
    parts = [f"only in {side}: {_quoted(names)}" for side, names in (("A", only_a), ("B", only_b)) if names]
    has_cells = any(re.match(r"[+-]?[0-9]", name) for name in (*only_a, *only_b))  # names rarely begin so
    helping = ("other_columns", "cells_for_names") if has_cells else ("other_columns",)
    return f"{', '.join(parts)}; {', '.join(remedies()[name]['hint'] for name in helping)}"


def _check_keys(
    header_a: Sequence[str], header_b: Sequence[str], names_in_b: Mapping[str, str], options: TableOptions
) -> None:
    for name in options.key_columns:
        for side, header, own in (("A", header_a, name), ("B", header_b, names_in_b.get(name, name))):
            if own not in header:
                words = f"Missing key column {_quoted(own)} in {side}{_which_columns(own, header)}"
                raise TableError(words, code="missing_key_column", side=side, column=own)


def _which_columns(name: str, header: Sequence[str]) -> str:
    """A hint for an unknown column: another delimiter, the nearest name, or all names."""
    if len(header) == 1:
        for delimiter, option in _OTHER_DELIMITERS.items():
            if delimiter in header[0]:
                hint = remedies()["other_delimiter"]["hint"].format(option)
                return f": its only column is {_quoted(header[0])}; {hint}"
    from difflib import get_close_matches

    near = get_close_matches(name, header, n=1)
    hint = f"; did you mean {_quoted(near[0])}?" if near else ""
    more = f" and {len(header) - _MOST_NAMES} more" if len(header) > _MOST_NAMES else ""
    return f" (columns: {', '.join(map(_quoted, header[:_MOST_NAMES]))}{more}){hint}"


def _quoted(names: str | Sequence[str]) -> str:
    return json.dumps(names, ensure_ascii=False)


# Row errors.
# Work runs in parallel, so problems are collected and one is picked in the specified order: for A, then for B: any
# width error, any missing key value, any duplicate key; within one kind the first row of the file.


class Problem(NamedTuple):
    """One invalid row: its side, the kind of error, its record, and the words for the user."""

    side: Side
    kind: ProblemKind
    row: int
    words: str

    def to_error(self) -> TableError:
        """The error for the user."""
        return TableError(self.words, code=self.kind, side=self.side, row=self.row)


def width_problem(side: Side, row: int, expected: int, got: int) -> Problem:
    """A record with too few or too many fields."""
    words = f"Row width mismatch in {side} at row {row}: expected {expected}, got {got}"
    return Problem(side, "row_width_mismatch", row, words)


def missing_key_problem(side: Side, row: int, column: str) -> Problem:
    """An empty cell in a key column."""
    words = f"Missing key value in {side} at row {row}: column {_quoted(column)}"
    return Problem(side, "missing_key_value", row, words)


def duplicate_key_problem(side: Side, row: int, first_row: int, key: Mapping[str, object]) -> Problem:
    """A key that `first_row` already had."""
    words = f"Duplicate key in {side}: {exact_dumps(dict(key))} (rows {first_row} and {row})"
    return Problem(side, "duplicate_key", row, words)


def raise_first_error(problems: Iterable[Problem]) -> None:
    """Raise the error of the problem to report, if there is one: the first by side, kind and row."""
    first = min(problems, key=lambda one: (one.side, _KIND_ORDER.index(one.kind), one.row), default=None)
    if first is not None:
        raise first.to_error()
