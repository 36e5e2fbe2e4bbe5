"""Which columns meet, and under which rule (tables §3): headers, renames, keys, choices, and their errors in order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

from driftline.errors import OptionError, TableError
from driftline.sources import RowPart, SplitSide
from driftline.tables._options import TableOptions
from driftline.tables._rules.cells import KINDS, CellRule, Kind, Step, TimePattern, Tolerance

# Row errors: how each is worded, and which one is named when there are several.
#
# Work runs in parallel, so problems are collected and the ruled order picks one: for A, then for B: any width
# error, any missing key value, any duplicate key; within one kind the first offending row of the file.


Side = Literal["A", "B"]
ProblemKind = Literal["row_width_mismatch", "missing_key_value", "duplicate_key"]

_KIND_ORDER: tuple[ProblemKind, ...] = ("row_width_mismatch", "missing_key_value", "duplicate_key")


@dataclass(frozen=True, slots=True)
class Problem:
    """One offending row: what is wrong, on which side and in which record, and the words' ingredients."""

    kind: ProblemKind
    side: Side
    row: int
    detail: tuple[Any, ...] = ()

    def to_error(self) -> TableError:
        """The error a user sees."""
        return TableError(_WORDING[self.kind](self), code=self.kind, side=self.side, row=self.row)


def width_problem(side: Side, row: int, expected: int, got: int) -> Problem:
    """A record with too few or too many fields."""
    return Problem("row_width_mismatch", side, row, (expected, got))


def missing_key_problem(side: Side, row: int, column: str) -> Problem:
    """An empty cell in a key column."""
    return Problem("missing_key_value", side, row, (column,))


def duplicate_key_problem(side: Side, row: int, first_row: int, key: Mapping[str, object]) -> Problem:
    """A key that `first_row` already had."""
    return Problem("duplicate_key", side, row, (first_row, tuple(key.items())))


def first_problem(problems: Iterable[Problem]) -> Problem | None:
    """Error choice: the problem to report, by side, then kind, then row."""
    return min(problems, key=lambda p: (p.side, _KIND_ORDER.index(p.kind), p.row), default=None)


def raise_first_error(problems: Iterable[Problem]) -> None:
    """Raise the error of the problem to report, if there is one."""
    problem = first_problem(problems)
    if problem is not None:
        raise problem.to_error()


def _word_width(problem: Problem) -> str:
    expected, got = problem.detail
    return f"Row width mismatch in {problem.side} at row {problem.row}: expected {expected}, got {got}"


def _word_missing(problem: Problem) -> str:
    column = json.dumps(problem.detail[0], ensure_ascii=False)
    return f"Missing key value in {problem.side} at row {problem.row}: column {column}"


def _word_duplicate(problem: Problem) -> str:
    first_row, key = problem.detail
    text = json.dumps(dict(key), ensure_ascii=False, separators=(",", ":"))
    return f"Duplicate key in {problem.side}: {text} (rows {first_row} and {problem.row})"


_WORDING = {
    "row_width_mismatch": _word_width,
    "missing_key_value": _word_missing,
    "duplicate_key": _word_duplicate,
}


_OTHER_DELIMITERS = {";": ";", "\t": "tab", "|": "|", ",": ","}
_MOST_NAMES = 20

Value = TypeVar("Value")
DeclaredType = tuple[Kind, TimePattern | None]


class Column(NamedTuple):
    """A column that is compared: its names in A and in B, and how its cells are."""

    a: str
    b: str
    rule: CellRule


@dataclass(frozen=True)
class Comparison:
    """What is compared: both headers whole, the compared columns in comparison order, and the keys among them."""

    header_a: tuple[str, ...]
    header_b: tuple[str, ...]
    columns: tuple[Column, ...]
    keys: tuple[Column, ...] = ()
    added: tuple[str, ...] | None = None  # in common mode: what only B has, and what only A has
    removed: tuple[str, ...] | None = None
    renamed: tuple[tuple[str, str], ...] | None = None
    typed_a: bool = False  # cells are JSON text
    typed_b: bool = False

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
        """What columns are called on a side."""
        return [column.a if side == "A" else column.b for column in columns]


class HashedText(NamedTuple):
    """What is hashed of rows of text: a part of their cells, or the key and the text of the whole record.

    Rows whose records have the same text are equal; whether the others really differ, their cells tell later.
    """

    a: RowPart
    b: RowPart

    @property
    def by_record(self) -> bool:
        """Whether texts of records are compared."""
        return self.a.text


def hashed_text(
    compared: Comparison, a: SplitSide, b: SplitSide, options: TableOptions, *, by_cells: bool = False
) -> HashedText | None:
    """The least that tells rows of text apart; None where a side is no text."""
    if a.delimiter is None or b.delimiter is None:
        return None
    by_record = not by_cells and _may_go_by_record(compared, a, b, options)
    columns = compared.keys if by_record else compared.columns
    return HashedText(*(RowPart(tuple(compared.names(columns, side)), text=by_record) for side in "AB"))


def _may_go_by_record(compared: Comparison, a: SplitSide, b: SplitSide, options: TableOptions) -> bool:
    """Whether equal rows mostly have the same text, and only rows that differ have to be known for certain."""
    if options.ignore_row_order or options.emit_unchanged or options.duplicates == "match" or not compared.is_whole:
        return False
    spelled_alike = a.spelling is not None and b.spelling is not None and a.spelling.agrees(b.spelling)
    return spelled_alike and a.delimiter == b.delimiter


class Sides(NamedTuple):
    """What is known of both sides beside their headers: whether cells are typed, and the types of typed columns."""

    typed_a: bool = False
    typed_b: bool = False
    kinds: Mapping[str, Any] = {}  # by the typed side's own names: how CSV is to be read where it meets them

    @property
    def mixed(self) -> bool:
        """Whether text meets typed values."""
        return self.typed_a != self.typed_b


def resolve_columns(
    header_a: Sequence[str], header_b: Sequence[str], options: TableOptions, sides: Sides | None = None
) -> Comparison:
    """Match the columns of two headers, or raise the first error in the ruled order (tables §3.4)."""
    sides = sides or Sides()
    _check_unique(header_a, "A")
    _check_unique(header_b, "B")
    new_names = _renamed(header_a, header_b, options)
    _check_match(new_names, header_b, options)
    names_in_b = dict(zip(header_a, new_names, strict=True))
    _check_keys(header_a, header_b, names_in_b, options)
    common = [name for name in header_a if names_in_b[name] in header_b]
    only_b = [name for name in header_b if name not in new_names]
    implied = {name: KINDS[sides.kinds.get(name if sides.typed_a else names_in_b[name], "text")] for name in common}
    settings = _Settings(options, [*header_a, *only_b], implied if sides.mixed else {})
    ordered = sorted(common) if options.header_mode == "sorted" else common
    compared = [name for name in ordered if name in options.key_columns or settings.is_chosen(name)]
    columns = {name: Column(name, names_in_b[name], _rule(name, settings, sides)) for name in compared}
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
    )


def column_rules(headers: Sequence[Sequence[str]], options: TableOptions) -> dict[str, CellRule]:
    """The rules of the columns that are compared, for tables whose columns meet by name alone."""
    names = list(dict.fromkeys(name for header in headers for name in header))
    settings = _Settings(options, names, {})
    compared = (name for name in names if name in options.key_columns or settings.is_chosen(name))
    return {name: _rule(name, settings, Sides()) for name in compared}


def _rule(name: str, settings: _Settings, sides: Sides) -> CellRule:
    """The rule of one column; what is declared wins over what the other side's types imply."""
    is_typed = sides.typed_a or sides.typed_b
    kind, pattern = settings.types(name) or (None, None)
    tolerance = settings.tolerance(name, kind)
    if tolerance is not None and kind is None:
        kind = KINDS["number"]
    return CellRule(
        steps=settings.normalize(name) or (),
        null_words=settings.options.null,
        kind=kind,
        pattern=pattern,
        tolerance=tolerance,
        mixed=is_typed and kind is not None,
    )


class _Settings:
    """The settings of columns: an exact name beats a wildcard, then the last one given wins."""

    def __init__(self, options: TableOptions, known: Sequence[str], implied: Mapping[str, Kind]) -> None:
        self.options = options
        self._known = known
        self._implied = implied
        for option, names in (
            ("ignore", options.ignore),
            ("only", options.only),
            ("normalize", [name for name, _ in options.normalize]),
            ("as", [name for name, _ in options.types]),
            ("tolerance", [name for name, _ in options.tolerance]),
            ("fail-if", [each.column for each in options.fail_if if each.column is not None]),
        ):
            for name in names:
                self._check_known(name, option)
        self._check_tolerances()

    def is_chosen(self, name: str) -> bool:
        """Whether a column outside the key is compared."""
        if self.options.only and not any(self._covers(pattern, name) for pattern in self.options.only):
            return False
        return not any(self._covers(pattern, name) for pattern in self.options.ignore)

    def normalize(self, name: str) -> tuple[Step, ...] | None:
        """The steps for a column."""
        return self._setting(self.options.normalize, name)

    def types(self, name: str) -> DeclaredType | None:
        """What a column is declared to hold, or holds on the typed side."""
        declared = self._setting(self.options.types, name)
        if declared is None and name in self._implied:
            return self._implied[name], None
        return declared

    def tolerance(self, name: str, kind: Kind | None) -> Tolerance | None:
        """The tolerance of a column that is no key; one that does not fit is passed over."""
        found = self._setting(self.options.tolerance, name)
        fits = found is not None and _fits(found, kind)
        return found if fits and name not in self.options.key_columns else None

    def _setting(self, settings: Sequence[tuple[str, Value]], name: str) -> Value | None:
        exact = [value for pattern, value in settings if pattern == name]
        wild = [value for pattern, value in settings if self._covers(pattern, name)]
        found = exact or wild
        return found[-1] if found else None

    def _covers(self, pattern: str, name: str) -> bool:
        if pattern in self._known:
            return pattern == name
        return _wildcard(pattern).fullmatch(name) is not None

    def _check_known(self, pattern: str, option: str) -> None:
        if not any(self._covers(pattern, name) for name in self._known):
            raise TableError(
                f"Unknown column {_quoted(pattern)} in {option}{_which_columns(pattern, self._known)}",
                code="unknown_column",
                column=pattern,
            )

    def _check_tolerances(self) -> None:
        for pattern, tolerance in self.options.tolerance:
            if pattern in self._known:
                declared = self.types(pattern)
                kind = declared[0] if declared else None
                if not _fits(tolerance, kind):
                    raise OptionError(
                        f"the tolerance of {_quoted(pattern)} does not fit its type "
                        f"{kind.name if kind else 'number'}: numbers take a number, dates and times a duration",
                        code="invalid_option_combination",
                    )


def _fits(tolerance: Tolerance, kind: Kind | None) -> bool:
    if tolerance.nanoseconds is not None:
        return kind is not None and kind.measure == "time"
    return kind is None or kind.measure == "number"


def _wildcard(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(letter) or re.escape(letter) for letter in pattern), re.DOTALL)


def _renamed(header_a: Sequence[str], header_b: Sequence[str], options: TableOptions) -> list[str]:
    """A's columns as B calls them; all renames happen at once."""
    new_names = dict(options.rename)
    for old, new in options.rename:
        for side, name, header in (("A", old, header_a), ("B", new, header_b)):
            if name not in header:
                raise TableError(
                    f"Unknown column {_quoted(name)} in rename: not in {side}{_which_columns(name, header)}",
                    code="unknown_column",
                    column=name,
                    side=side,
                )
    header = [new_names.get(name, name) for name in header_a]
    _check_unique(header, "A")
    return header


def _check_unique(header: Sequence[str], side: str) -> None:
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise TableError(
                f"Duplicate column name in {side}: {_quoted(name)}",
                code="duplicate_column_name",
                side=side,
                column=name,
            )
        seen.add(name)


def _check_match(header_a: Sequence[str], header_b: Sequence[str], options: TableOptions) -> None:
    if options.header_mode == "common":
        if not set(header_a) & set(header_b):
            raise TableError(
                f"Header mismatch (common mode): A has {_listed(header_a)}, B has {_listed(header_b)}; "
                "no column is in both",
                code="header_mismatch",
            )
        return
    in_sorted_mode = options.header_mode == "sorted"
    a, b = (sorted(header_a), sorted(header_b)) if in_sorted_mode else (list(header_a), list(header_b))
    if a != b:
        kind = "Header mismatch (sorted mode)" if in_sorted_mode else "Header mismatch"
        raise TableError(
            f"{kind}: A has {_listed(a)}, B has {_listed(b)}; {_header_difference(a, b)}", code="header_mismatch"
        )


def _header_difference(a: Sequence[str], b: Sequence[str]) -> str:
    only_a, only_b = [name for name in a if name not in b], [name for name in b if name not in a]
    if not only_a and not only_b:
        return "the same columns in another order: --header-mode sorted takes that"
    parts = [f"only in {side}: {_listed(names)}" for side, names in (("A", only_a), ("B", only_b)) if names]
    remedy = "--header-mode common compares the columns that both have"
    if only_a and only_b:
        remedy += f", --rename {_shown(only_a[0])}={_shown(only_b[0])} takes one for the other"
    if any(map(_looks_like_data, (*only_a, *only_b))):
        remedy += ", --no-header takes files without a header line"
    return f"{', '.join(parts)}; {remedy}"


def _check_keys(
    header_a: Sequence[str], header_b: Sequence[str], names_in_b: Mapping[str, str], options: TableOptions
) -> None:
    for name in options.key_columns:
        for side, header, own in (("A", header_a, name), ("B", header_b, names_in_b.get(name, name))):
            if own not in header:
                raise TableError(
                    f"Missing key column {_quoted(own)} in {side}{_which_columns(own, header)}",
                    code="missing_key_column",
                    side=side,
                    column=own,
                )


def _which_columns(name: str, header: Sequence[str]) -> str:
    """What helps whoever named a column that is not there: another delimiter, the nearest name, or all names."""
    if len(header) == 1:
        for delimiter, option in _OTHER_DELIMITERS.items():
            if delimiter in header[0]:
                return f': its only column is {_quoted(header[0])}; for this delimiter give --delimiter "{option}"'
    from difflib import get_close_matches

    near = get_close_matches(name, header, n=1)
    hint = f"; did you mean {_quoted(near[0])}?" if near else ""
    more = f" and {len(header) - _MOST_NAMES} more" if len(header) > _MOST_NAMES else ""
    return f" (columns: {', '.join(map(_quoted, header[:_MOST_NAMES]))}{more}){hint}"


def _looks_like_data(name: str) -> bool:
    """Whether a column's name begins like a number or a date, as cells do and names rarely."""
    return re.match(r"[+-]?[0-9]", name) is not None


def _shown(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else _quoted(name)


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _listed(names: Sequence[str]) -> str:
    return json.dumps(list(names), ensure_ascii=False)
