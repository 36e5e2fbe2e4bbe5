"""The kind of change, column by column and for rows, and the rules that would hide much of it.

Kinds are decided by the rules themselves: a number is written otherwise if `--as number` finds both cells equal, only
case differs if `--normalize case` does. So what a suggested rule would leave is known without another diff. Counts are
exact; frequent pairs of values are counted in a table of bounded size, which says when it had to leave pairs out.

>>> profile = ColumnProfile()
>>> for before, after in (("1.0", "1.00"), ("Ann", "ANN"), ("5", "")):
...     profile.add(before, after)
>>> dict(profile.kinds)
{'number_format': 1, 'case': 1, 'emptied': 1}
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from driftline.core import exact_dumps
from driftline.tables import _rules
from driftline.tables._rules import INSTANT, KINDS, LOCAL, NUMBER, SPACE, STEPS, CellRule, number_of, seconds_of

# In the order in which they are looked for; the first that fits counts.
KIND_WORDS: dict[str, str] = {
    "case": "case only",
    "blanks": "blanks only",
    "case_blanks": "case and blanks only",
    "null_word": "nothing written otherwise",
    "filled": "empty → value",
    "emptied": "value → empty",
    "number_format": "number written otherwise",
    "sign": "sign",
    "rounding": "rounding",
    "number": "another number",
    "date_format": "date written otherwise",
    "date": "date shifted",
    "reordered": "list reordered",
    "other": "another value",
}
MOST_PAIRS = 512  # of a column, in memory
LONGEST_PAIR = 200  # characters of a pair that is counted
REPEATS = ("came", "went")  # duplicates
MOST_REPEATS = 10  # keys of either, in memory
POWERS = range(-9, 10)
SIZES = tuple(float(f"{digit}e{power}") for power in POWERS for digit in (1, 2, 5))  # of changes of numbers

NUMBERS = CellRule(kind=KINDS["number"])
TIMES = CellRule(kind=KINDS["datetime"])
SPELLINGS = {
    "case": CellRule(steps=(STEPS["case"],)),
    "blanks": CellRule(steps=(STEPS["blanks"], STEPS["trim"])),
    "case_blanks": CellRule(steps=(STEPS["blanks"], STEPS["trim"], STEPS["case"])),
}
NULL_WORDS = ("", "NA", "N/A", "n/a", "NULL", "null", "Null", "None", "NaN", "nan", "#N/A", "-", "\\N", "(null)")
_DATES = "%Y/%m/%d %Y.%m.%d %Y%m%d %d.%m.%Y %d/%m/%Y %m/%d/%Y %d-%m-%Y %m-%d-%Y %d.%m.%y %d/%m/%y %m/%d/%y"
DATE_FORMS = {"date": CellRule(kind=KINDS["date"])} | {
    f"date:{text}": CellRule(kind=KINDS["date"], pattern=_rules.TimePattern(text, of_dates=True))
    for text in _DATES.split()
}
LIKE_DATES = r'^"?\s*(?:[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}|[0-9]{8})\s*"?$'
FRACTION = r'\.([0-9]+)\s*"?$'
EXPONENT = r"[eE]"
LIST_MARKS = ",;|"
HALF = 0.5 * (1 + 1e-9)  # rounding is judged by doubles

_FRACTION = re.compile(FRACTION)
_LIKE_DATES = re.compile(LIKE_DATES)
_SHAPE = re.compile("%[dm]")
_SAME = 1e-9  # share by which offsets and factors of doubles may differ and count as one
_NEARLY_ALL = 0.99
_OFTEN = 0.1  # share of the changes from which a pair or a rule is worth a word
_COUNTED = 0.01  # share of the changes from which a pair of an approximate profile is listed
_MOSTLY = 0.8  # share of the changes that a suggested tolerance hides at least
_SMALL = 0.001  # a suggested tolerance, as a share of the column's largest number
_LEAST_ROWS = 10
_NAMED_REPEATS = 3
_DAY = 86400

Pair = tuple[str, str]
Typed = tuple[bool, bool]  # whether the cells of A, and of B, are JSON texts
_UNTYPED: Typed = (False, False)


class Span(NamedTuple):
    """The least and the greatest of some measures."""

    low: float
    high: float

    def joined(self, other: Span | None) -> Span:
        return self if other is None else Span(min(self.low, other.low), max(self.high, other.high))

    @property
    def only(self) -> float | None:
        """The measure that all share, or None."""
        near = self.high - self.low <= _SAME * max(abs(self.low), abs(self.high))
        return self.high if near and math.isfinite(self.high) else None


@dataclass
class ColumnProfile:
    """What happened to the cells of one column that changed; profiles of parts are joined with `join`."""

    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Pair] = field(default_factory=dict)  # the first pair of each kind
    sizes: list[int] = field(default_factory=lambda: [0] * (len(SIZES) + 1))  # pairs of numbers, by distance
    offset: Span | None = None
    factor: Span | None = None
    shift: Span | None = None  # of dates and times, in seconds
    largest: float = 0.0  # of the numbers
    same_number: int = 0  # pairs that are the same number
    null_pairs: int = 0  # pairs of words that often mean null
    null_words: set[str] = field(default_factory=set)  # in them
    date_forms: Counter[Pair] = field(default_factory=Counter)  # pairs of types by which dates are the same
    pairs: dict[Pair, int] = field(default_factory=dict)
    left_out: bool = False  # whether pairs are missing in `pairs`
    typed: Typed = _UNTYPED

    def add(self, before: str, after: str) -> None:
        kind = self._kind(before, after)
        self.kinds[kind] += 1
        self.examples.setdefault(kind, (before, after))
        self.count_pairs([((before, after), 1)])

    def _forms(self, rule: CellRule, *cells: str) -> list[str]:
        sides = zip(cells, self.typed, strict=True)
        return [rule.form_of_json(cell) if typed else rule.form(cell) for cell, typed in sides]

    def _kind(self, before: str, after: str) -> str:
        forms = self._forms(NUMBERS, before, after)
        are_numbers = all(form[0] == NUMBER and math.isfinite(number_of(form)) for form in forms)
        if are_numbers:
            self.note_numbers(number_of(forms[0]), number_of(forms[1]))
            self.same_number += forms[0] == forms[1]
        written = self.note_words(before, after, 1)
        for kind, rule in SPELLINGS.items():
            if len(set(self._forms(rule, before, after))) == 1:
                return kind
        if written == "null_word":
            return written
        for kind, cell, typed in zip(("filled", "emptied"), (before, after), self.typed, strict=True):
            if cell in (("null", '""') if typed else ("",)):
                return kind
        if are_numbers:
            return _number_kind(before, after, forms)
        forms = self._forms(TIMES, before, after)
        if forms[0][0] == forms[1][0] and forms[0][0] in (LOCAL, INSTANT):
            if forms[0] == forms[1]:
                return "date_format"
            (old, old_part), (new, new_part) = map(seconds_of, forms)
            moved = float(new - old) + (new_part - old_part) / 1e9
            self.shift = Span(moved, moved).joined(self.shift)
            return "date"
        return written or ("reordered" if is_reordered(before, after, self.typed) else "other")

    def note_words(self, before: str, after: str, count: int) -> str | None:
        """Count a pair of words that often mean null, or the forms in which two cells are one date; its kind."""
        words = [_value(cell, typed) for cell, typed in zip((before, after), self.typed, strict=True)]
        if all(word is None or word in NULL_WORDS for word in words):
            self.null_pairs += count
            self.null_words.update(word for word in words if word is not None)
            return "null_word"
        a, b = map(_dates, words) if _LIKE_DATES.match(before) and _LIKE_DATES.match(after) else ({}, {})
        # Two types that read the same texts as different dates are no pair.
        forms = [(x, y) for x in a for y in b if a[x] == b[y] and (x == y or _SHAPE.sub("", x) != _SHAPE.sub("", y))]
        self.date_forms.update(dict.fromkeys(forms, count))
        return "date_format" if forms else None

    def note_numbers(self, old: float, new: float) -> None:
        """Count the distance of two numbers, and widen the spans of offsets and factors."""
        moved = new - old
        self.sizes[bisect_left(SIZES, abs(moved))] += 1
        self.largest = max(self.largest, abs(old), abs(new))
        if moved:
            ratio = Span(new / old, new / old) if old else Span(-math.inf, math.inf)
            self.offset = Span(moved, moved).joined(self.offset)
            self.factor = ratio.joined(self.factor)

    def count_pairs(self, counted: Iterable[tuple[Pair, int]]) -> None:
        """Count pairs; of too many, those that are most frequent so far stay."""
        for pair, count in counted:
            if len(pair[0]) + len(pair[1]) > LONGEST_PAIR:
                self.left_out = True
            else:
                self.pairs[pair] = self.pairs.get(pair, 0) + count
        if len(self.pairs) > 2 * MOST_PAIRS:
            self.pairs = dict(_most_frequent(self.pairs)[:MOST_PAIRS])
            self.left_out = True

    def join(self, later: ColumnProfile) -> None:
        """Add the profile of a later part of the output."""
        self.kinds.update(later.kinds)
        self.examples = {**later.examples, **self.examples}
        self.sizes = [a + b for a, b in zip(self.sizes, later.sizes, strict=True)]
        for name in ("offset", "factor", "shift"):
            if (span := getattr(later, name)) is not None:
                setattr(self, name, span.joined(getattr(self, name)))
        self.largest = max(self.largest, later.largest)
        self.same_number += later.same_number
        self.null_pairs += later.null_pairs
        self.null_words |= later.null_words
        self.date_forms.update(later.date_forms)
        self.left_out |= later.left_out
        self.count_pairs(later.pairs.items())

    @property
    def changes(self) -> int:
        return self.kinds.total()

    @property
    def is_approximate(self) -> bool:
        """Whether there are more pairs than are kept, or longer ones; the same for every cut of the output."""
        return self.left_out or len(self.pairs) > MOST_PAIRS

    def within(self, size: float) -> int:
        """How many pairs of numbers a tolerance of that size, which is one of `SIZES`, finds equal."""
        return sum(self.sizes[: SIZES.index(size) + 1])

    @property
    def nearly_all_within(self) -> float | None:
        """The least of `SIZES` that 99 % of the changes of numbers are not above; None if there is none."""
        needed = _NEARLY_ALL * sum(self.sizes)
        return next((size for size in SIZES if self.within(size) >= needed), None) if needed else None

    def frequent(self, most: int = 3) -> list[tuple[Any, Any, int]]:
        """The most frequent pairs of values that occur more than once; no rare ones where pairs are missing."""
        least = max(2, _COUNTED * self.changes if self.is_approximate else 2)
        found, typed = _most_frequent(self.pairs)[:most], self.typed
        return [(_value(a, typed[0]), _value(b, typed[1]), count) for (a, b), count in found if count >= least]

    def words(self) -> list[str]:
        """The kinds of change, most frequent first, with what all changes of a kind have in common."""
        order = list(KIND_WORDS)
        kinds = sorted(self.kinds.items(), key=lambda item: (-item[1], order.index(item[0])))
        texts = [f"{KIND_WORDS[kind]}{self._detail(kind)}" for kind, _ in kinds]
        if len(texts) > 1:
            texts = [f"{count:,} {words}" for (_, count), words in zip(kinds, texts, strict=True)]
        often = [(f"{shown(a)} → {shown(b)}", n) for a, b, n in self.frequent(1) if n >= max(2, _OFTEN * self.changes)]
        return texts + [f"{pair} {'at least ' if self.is_approximate else ''}{count:,}×" for pair, count in often]

    def _detail(self, kind: str) -> str:
        if kind == "date" and self.shift is not None and self.shift.only is not None and self.kinds[kind] > 1:
            days, seconds = self.shift.only / _DAY, f"{self.shift.only:+,g} s"
            whole = f"{int(days):+,d} day{'' if abs(days) == 1 else 's'}"
            return f" by {whole if days.is_integer() else seconds}".replace("-", "−")
        if kind not in ("number", "rounding"):
            return ""
        if kind == "number" and self.kinds["rounding"] + self.kinds["sign"] == 0 and self.kinds[kind] > 1:
            for span, mark in ((self.offset, "always {:+g}"), (self.factor, "always × {:g}")):
                if span is not None and span.only is not None:
                    return f", {mark.format(span.only)}".replace("-", "−")
        size = self.nearly_all_within
        return f", 99 % within {plain_number(size, ',')}" if size is not None and self.kinds[kind] > 1 else ""

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "changes": self.changes,
            "kinds": {kind: self.kinds[kind] for kind in KIND_WORDS if self.kinds[kind]},
            "words": self.words(),
            "frequent": [{"from": a, "to": b, "count": count} for a, b, count in self.frequent(10)],
            "frequent_is_approximate": self.is_approximate,
        }
        measures = {"offset": self.offset, "factor": self.factor, "shift_seconds": self.shift}
        found |= {name: span.only for name, span in measures.items() if span is not None and span.only is not None}
        return found | ({"within_99": size} if (size := self.nearly_all_within) is not None else {})


def decimals(cell: str) -> int | None:
    """How many digits are behind the point; None for a number with an exponent."""
    if "e" in cell or "E" in cell:
        return None
    match = _FRACTION.search(cell)
    return len(match[1]) if match else 0


def _number_kind(before: str, after: str, forms: Sequence[str]) -> str:
    if forms[0] == forms[1]:
        return "number_format"
    old, new = map(number_of, forms)
    if old == -new:
        return "sign"
    places = decimals(before), decimals(after)
    if places[0] is None or places[1] is None or places[0] == places[1]:
        return "number"
    return "rounding" if abs(old - new) <= HALF * 10.0 ** -min(places[0], places[1]) else "number"


@lru_cache(4096)
def _dates(cell: object) -> dict[str, str]:
    """The forms of a cell as a date, by type."""
    forms = {word: rule.form(cell) for word, rule in DATE_FORMS.items()} if isinstance(cell, str) else {}
    return {word: form for word, form in forms.items() if form[0] == _rules.DATE}


def is_reordered(before: str, after: str, typed: Typed) -> bool:
    """Whether two cells are lists of the same items in another order."""
    items = _items(before, typed[0])
    return items is not None and items == _items(after, typed[1])


def _items(cell: str, typed: bool) -> list[str] | None:
    """The items of a list in order: of JSON, or of text with marks between them; None where there is no list."""
    value = _value(cell, typed)
    if isinstance(value, str) and value[:1] == "[":
        with suppress(ValueError, RecursionError):  # text that only begins like a list
            value = json.loads(value)
    if isinstance(value, list):
        return ["[", *sorted(json.dumps(item, sort_keys=True) for item in value)]
    mark = next((mark for mark in LIST_MARKS if isinstance(value, str) and mark in value), None)
    return None if mark is None else [mark, *sorted(item.strip(SPACE) for item in value.split(mark))]


def _value(cell: str, typed: bool) -> Any:
    return json.loads(cell) if typed else cell


def _most_frequent(pairs: Mapping[Pair, int]) -> list[tuple[Pair, int]]:
    return sorted(pairs.items(), key=lambda item: (-item[1], item[0]))


def shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "(empty)" if text == "" else text if len(text) <= 24 else f"{text[:23]}…"


def plain_number(size: float, thousands: str = "") -> str:
    """A number without an exponent.

    >>> plain_number(0.00001), plain_number(2000.0), plain_number(2000.0, ",")
    ('0.00001', '2000', '2,000')
    """
    from decimal import Decimal

    return f"{Decimal(repr(size)).normalize():{thousands}f}"


# Rows: runs of added and of removed rows in the order of the output.


class Run(NamedTuple):
    """Rows of one kind that follow each other, with the places of the first and the last."""

    kind: str
    rows: int
    first: str
    last: str


@dataclass
class RowRuns:
    """How many runs of added and removed rows there are, and the longest; a row of another kind ends a run."""

    count: Counter[str] = field(default_factory=Counter)
    longest: dict[str, Run] = field(default_factory=dict)
    first: Run | None = None
    last: Run | None = None

    def add(self, run: Run) -> None:
        """Add the next run; one that continues the last is joined with it."""
        if self.last is not None and self.last.kind == run.kind:
            joined = self.last._replace(rows=self.last.rows + run.rows, last=run.last)
            self.first = joined if self.first == self.last and self.count.total() == 1 else self.first
            self.last = joined
        else:
            self.count[run.kind] += 1
            self.last = run
        self.first = self.first or self.last
        longest = self.longest.get(run.kind)
        if longest is None or self.last.rows > longest.rows:
            self.longest[run.kind] = self.last

    def join(self, later: RowRuns) -> None:
        """Add the runs of a later part of the output, the first of which may continue the last of this one."""
        if later.first is None:
            return
        self.add(later.first)
        if later.count.total() == 1:
            return
        self.count.update(later.count)
        self.count[later.first.kind] -= 1
        for kind, run in later.longest.items():
            if kind not in self.longest or run.rows > self.longest[kind].rows:
                self.longest[kind] = run
        self.last = later.last

    def words(self) -> list[str]:
        """The runs that are blocks: several rows of a kind that nothing interrupts."""
        return [
            f"{run.rows:,} of the {kind} rows are one block: {run.first} … {run.last}"
            for kind in ("added", "removed")
            if (run := self.longest.get(kind)) is not None and run.rows >= _LEAST_ROWS
        ]


# Duplicates, the rows of a key beyond its first: keys of which one side has more than the other.


class RepeatedKey(NamedTuple):
    """A key with more duplicates on one side: how many, the place of its first row there, rows in A and B, cells."""

    more: int
    place: Any  # what orders them: a row's number, or a text
    rows: tuple[int, int]
    cells: Mapping[str, Any]


@dataclass
class Repeats:
    """How many keys got or lost duplicates, and how many of them; of the keys those with most, first rows first."""

    keys: int = 0
    rows: int = 0
    most: list[RepeatedKey] = field(default_factory=list)

    def join(self, other: Repeats) -> None:
        self.keys, self.rows = self.keys + other.keys, self.rows + other.rows
        self.most = sorted([*self.most, *other.most], key=lambda one: (-one.more, one.place))[:MOST_REPEATS]

    def words(self, kind: str) -> list[str]:
        """A sentence, if there are any."""
        named = (f"{place_of({'key': one.cells})} ({one.rows[0]:,} → {one.rows[1]:,} rows)" for one in self.most)
        rows = [*list(named)[:_NAMED_REPEATS], *(["…"] if self.keys > _NAMED_REPEATS else [])]
        keys = "1 key" if self.keys == 1 else f"{self.keys:,} keys"
        return [f"{self.rows:,} duplicate{'s' * (self.rows > 1)} {kind}, in {keys}: {', '.join(rows)}"] if rows else []

    def to_dict(self) -> dict[str, Any]:
        most = [{"key": dict(one.cells), "rows_a": one.rows[0], "rows_b": one.rows[1]} for one in self.most]
        return {"keys": self.keys, "rows": self.rows, "most": most}


@dataclass(frozen=True)
class Suggestion:
    """A rule that would hide changes of a column: the option, how many it hides and leaves, and one that it hides."""

    column: str
    rules: tuple[tuple[str, str], ...]  # options of the command line, and their values
    hides: int
    leaves: int
    about: str
    example: tuple[Any, Any]

    @property
    def flag(self) -> str:
        """The option as the command line takes it."""
        import shlex

        return " ".join(f"--{option} {shlex.quote(value)}" for option, value in self.rules)

    @property
    def sentence(self) -> str:
        """What the rule is good for, and what it would leave."""
        counts = f"{self.hides:,} of {self.hides + self.leaves:,} changes of {self.column}"
        hidden = f"{shown(self.example[0])} → {shown(self.example[1])}"
        return f"{counts} are {self.about}: {self.flag} would leave {self.leaves:,}, and hide such as {hidden}"

    def to_dict(self) -> dict[str, Any]:
        option, value = self.rules[0][0], self.rules[0][1].removeprefix(f"{self.column}=")
        first = {"option": option, "value": "" if option == "ignore" else value}
        return {**vars(self), **first, "flag": self.flag, "sentence": self.sentence, "example": list(self.example)}


@dataclass
class Profile:
    """The kinds of change of a diff: for each column that changed, by A's names, and for the rows of one side."""

    columns: dict[str, ColumnProfile] = field(default_factory=dict)
    runs: RowRuns = field(default_factory=RowRuns)
    repeats: dict[str, Repeats] = field(default_factory=lambda: {kind: Repeats() for kind in REPEATS})
    ruled: frozenset[str] = frozenset()  # columns that are compared by a rule: none is suggested for them
    compared: int = 0  # rows that both sides have

    def add(self, event: Mapping[str, Any], *, typed: bool = False) -> None:
        """Count an event of a diff; `typed`: its cells are values and not the texts of a file."""
        kind = event["type"]
        if kind not in ("added", "removed", "changed"):
            return
        place = place_of(event)
        self.runs.add(Run(kind, 1, place, place))
        for name in event.get("changed") or ():
            cells = [exact_dumps(cell) if typed else cell for cell in event["delta"][name].values()]
            self.columns.setdefault(name, ColumnProfile(typed=(typed, typed))).add(*cells)

    def join(self, later: Profile) -> None:
        """Add the profile of a later part of the output."""
        for name, column in later.columns.items():
            self.columns.setdefault(name, ColumnProfile(typed=column.typed)).join(column)
        self.runs.join(later.runs)
        for kind, repeats in later.repeats.items():
            self.repeats[kind].join(repeats)

    def add_key(self, cells: Mapping[str, Any], place: Any, rows: tuple[int, int]) -> None:
        """Count the duplicates of a key: of the side with more of them are its cells and the place of its first row."""
        more = max(rows[1], 1) - max(rows[0], 1)
        if more:
            kind = REPEATS[more < 0]
            self.repeats[kind].join(Repeats(1, abs(more), [RepeatedKey(abs(more), place, rows, cells)]))

    def suggestions(self) -> list[Suggestion]:
        """Rules that would hide many changes, those that hide most first; none of them is applied."""
        found = [
            one for name, column in self.columns.items() if name not in self.ruled for one in self._of(name, column)
        ]
        return sorted(found, key=lambda one: (-one.hides, one.column, one.rules))

    def _of(self, name: str, column: ColumnProfile) -> Iterator[Suggestion]:
        total, typed = column.changes, column.typed

        def suggest(rules: Sequence[Pair], hides: int, about: str, kinds: Sequence[str]) -> Suggestion:
            before, after = next(column.examples[kind] for kind in (*kinds, *KIND_WORDS) if kind in column.examples)
            example = (_value(before, typed[0]), _value(after, typed[1]))
            return Suggestion(name, tuple(rules), hides, total - hides, about, example)

        numbers = ("rounding", "number", "number_format", "sign", *SPELLINGS)
        size = next((size for size in SIZES[::3] if column.within(size) >= _MOSTLY * total), None)
        otherwise = column.same_number
        if size is not None and otherwise < _MOSTLY * total and size <= _SMALL * column.largest:
            about = f"below {plain_number(size)}"
            yield suggest([("tolerance", f"{name}={plain_number(size)}")], column.within(size), about, numbers)
        elif otherwise and otherwise >= _OFTEN * total:
            yield suggest([("as", f"{name}=number")], otherwise, "numbers written otherwise", ("number_format",))
        blanks = ["blanks", "trim"] if column.kinds["blanks"] + column.kinds["case_blanks"] else []
        steps = ",".join([*blanks, *(["case"] if column.kinds["case"] + column.kinds["case_blanks"] else [])])
        hides = sum(column.kinds[kind] for kind in SPELLINGS)
        if steps and hides >= _OFTEN * total:
            words = " and ".join(word for word in ("case", "blanks") if word in steps)
            yield suggest([("normalize", f"{name}={steps}")], hides, f"{words} only", tuple(SPELLINGS))
        if total == self.compared >= _LEAST_ROWS and hides < total and size is None:
            yield suggest([("ignore", name)], total, "in every row", ())
        if column.null_pairs and column.null_pairs >= _OFTEN * total:
            null_words = [("null", word) for word in sorted(column.null_words)]
            yield suggest(null_words, column.null_pairs, "nothing written otherwise", ("null_word",))
        (forms, hides), *others = column.date_forms.most_common(2) or [(("", ""), 0)]
        if hides and hides >= _OFTEN * total and all(count < hides for _, count in others):
            sides = [("as", forms[0])] if forms[0] == forms[1] else [("as-a", forms[0]), ("as-b", forms[1])]
            rules = [(option, f"{name}={form}") for option, form in sides]
            yield suggest(rules, hides, "dates written otherwise", ("date_format",))

    def words(self) -> list[str]:
        """The blocks of rows, the duplicates and the suggested rules, a sentence each."""
        return [*self.about_rows(), *(one.sentence for one in self.suggestions())]

    def about_rows(self) -> list[str]:
        """The blocks of rows, and the duplicates that came or went."""
        return [*self.runs.words(), *(words for kind, found in self.repeats.items() for words in found.words(kind))]

    def to_dict(self) -> dict[str, Any]:
        longest = {kind: run._asdict() for kind, run in self.runs.longest.items() if kind != "changed"}
        rows = {kind: {"runs": self.runs.count[kind], "longest": run} for kind, run in longest.items()}
        order = sorted(self.columns.items(), key=lambda item: (-item[1].changes, item[0]))
        return {
            "columns": {name: column.to_dict() for name, column in order},
            "rows": rows,
            "blocks": self.about_rows(),
            "duplicates": {kind: found.to_dict() for kind, found in self.repeats.items() if found.keys},
            "suggestions": [one.to_dict() for one in self.suggestions()],
        }


def place_of(event: Mapping[str, Any]) -> str:
    """Where a row is: its key, or its number."""
    key = event.get("key")
    if key is None:
        return f"row {event['row_index']}" if "row_index" in event else "?"
    return ", ".join(shown(value) for value in key.values())
