"""The options of a table diff, in one table: name, kind of value, help, default and check.

The command line, `driftline.diff`, the DataFrame diff, fixtures, rules files and a pipeline's `[tables.NAME]` are made
from it. A new option is one entry here, and code where it is used.
"""

# ruff: noqa: RUF009 - the functions that are called make fields

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, TypedDict, TypeVar, get_args

from driftline.core import TABLE_COUNTS, Threshold, parse_threshold
from driftline.errors import OptionError, TableError
from driftline.sources import ReadOptions
from driftline.tables._rules import KINDS, STEPS, Kind, Step, TimePattern, Tolerance

Mode = Literal["keyed", "positional"]
HeaderMode = Literal["strict", "sorted", "common"]
Ragged = Literal["error", "pad", "skip"]
DuplicateColumns = Literal["error", "rename"]
EmptyKey = Literal["error", "allow"]
Duplicates = Literal["error", "first", "last", "match"]
Settings = Mapping[str, Any] | Iterable[Any]  # of columns, as the user writes them: COL=VALUE, pairs, a mapping
Value = TypeVar("Value")
DeclaredType = tuple[Kind, TimePattern | None]
DeclaredTypes = tuple[tuple[str, DeclaredType], ...]
Given = Literal["text", "flag", "texts", "pairs"]  # the shape of what a user writes

_NOT_DELIMITERS = '"\r\n'
_TABS = ("tab", "\\t")
AUTO_DELIMITER = "auto"
_NO_TEXT_ENCODINGS = ("utf-7", "idna", "punycode", "undefined")
_AMOUNT = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBERS = re.compile(rf"({_AMOUNT})(?:,({_AMOUNT})%)?|({_AMOUNT})%")
_DURATION = re.compile(r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(ns|us|ms|s|m|h|d)")
_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}


# Values as the user writes them, on the command line, in Python or in TOML, to checked values; else `ValueError`.


def as_it_is(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def one_of(known: tuple[str, ...]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in known:
            raise ValueError(f"{value!r} is none of {', '.join(known)}")
        return value

    return check


def words(value: str | Iterable[str]) -> tuple[str, ...]:
    found = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    for word in found:
        if not isinstance(word, str):
            raise ValueError(f"{word!r} is not a text")
    return found


def names(value: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words(value)))


def numbers(value: int | str | Iterable[int | str]) -> tuple[int, ...]:
    """Numbers of columns, from 1."""
    return tuple(dict.fromkeys(map(count, [value] if isinstance(value, (int, str)) else value)))


def pairs(value: Settings) -> list[tuple[str, Any]]:
    """`COL=VALUE` texts, or the members of a mapping, in their order."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Mapping):
        value = list(value.items())
    if not isinstance(value, Iterable):
        raise ValueError(f"{value!r} names no column: write it like COL=VALUE, or in Python {{'COL': VALUE}}")
    found = []
    for one in value:
        is_pair = isinstance(one, Sequence) and len(one) == 2
        cut = one.partition("=") if isinstance(one, str) else (one[0], "=", one[1]) if is_pair else (one, "", "")
        name, mark, rest = cut
        if not isinstance(name, str):
            raise ValueError(f"{name!r} is not the name of a column")
        if not mark:
            raise ValueError(f"{one!r} has no =: write it like COL=VALUE")
        found.append((name, rest))
    return found


def _new_name(old: str, new: object) -> str:
    if not isinstance(new, str):
        raise ValueError(f"the new name of {old!r} is not a text")
    return new


def parse_encoding(value: str) -> str:
    """The name of a text encoding that this Python has, in Python's own spelling."""
    try:
        found = codecs.lookup(value)
    except (LookupError, TypeError, ValueError):
        raise ValueError(f"{value!r} is no text encoding") from None
    is_text = getattr(found, "_is_text_encoding", True)
    if not is_text or found.name in _NO_TEXT_ENCODINGS or found.name.replace("-", "_").endswith("unicode_escape"):
        raise ValueError(f"{value!r} is no text encoding")
    return found.name


def parse_delimiter(value: object) -> str:
    """One character, `tab` or `auto`."""
    if value in _TABS:
        return "\t"
    if value == AUTO_DELIMITER:
        return AUTO_DELIMITER
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in _NOT_DELIMITERS:
        raise ValueError("one ASCII character that is not a quote or a line end")
    return value


def count(value: object) -> int:
    if isinstance(value, bool) or not str(value).isdecimal():
        raise ValueError(f"{value!r} is no whole number")
    return int(str(value))


def mark(value: object) -> str:
    """The text with which some lines start."""
    if not isinstance(value, str) or not value or value.startswith('"') or not value.isprintable():
        raise ValueError(f"{value!r} is no text that a line starts with")
    return value


def by_column(parse: Callable[[str, Any], Value]) -> Callable[[Settings], tuple[tuple[str, Value], ...]]:
    """A check of pairs: the value of each column by its name, which may have = in it, and what was given."""

    def check(name: str, given: Any) -> tuple[str, Value]:
        try:
            return name, parse(name, given)
        except ValueError:
            if not isinstance(given, str) or "=" not in given:
                raise
            more, _, rest = given.partition("=")
            return check(f"{name}={more}", rest)

    return lambda value: tuple(check(name, given) for name, given in pairs(value))


def _steps(name: str, given: str | Iterable[str]) -> tuple[Step, ...]:
    """Steps in their fixed order."""
    requested = [step.strip() for step in given.split(",")] if isinstance(given, str) else words(given)
    for step in requested:
        if step not in tuple(STEPS):
            raise ValueError(f"{step!r} for {name!r} is none of {', '.join(STEPS)}")
    return tuple(step for word, step in STEPS.items() if word in requested)


def _declared_type(name: str, given: str) -> DeclaredType:
    """A kind, with a pattern for dates and times that are not ISO 8601."""
    word, mark, pattern = given.partition(":") if isinstance(given, str) else (given, "", "")
    kind = KINDS.get(word) if isinstance(word, str) else None
    if kind is None or (mark and not kind.has_patterns):
        known = ", ".join([*KINDS, *(f"{one.name}:PATTERN" for one in KINDS.values() if one.has_patterns)])
        raise ValueError(f"{given!r} for {name!r} is none of {known}")
    return kind, TimePattern.of(pattern, of_dates=word == "date") if mark else None


def _tolerance(name: str, given: object) -> Tolerance:
    text = str(given)
    found = _DURATION.fullmatch(text)
    if found is not None:
        from fractions import Fraction

        amount = found[1] if found[1][-1] != "." else found[1][:-1]
        return Tolerance(nanoseconds=int(Fraction(amount) * _NANOSECONDS[found[2]]))
    numbers = _NUMBERS.fullmatch(text)
    if numbers is None:
        raise ValueError(f"{text!r} for {name!r} is no tolerance: write it like 0.01, 1%, 0.01,1% or 2s")
    absolute, relative = numbers[1], numbers[2] or numbers[3]
    return Tolerance(None if absolute is None else float(absolute), None if relative is None else float(relative) / 100)


def thresholds(value: str | Iterable[str]) -> tuple[Threshold, ...]:
    found = tuple(parse_threshold(text) for text in words(value))
    for one in found:
        if one.count not in TABLE_COUNTS or one.sign == "==":
            raise ValueError(f"{one.text!r}: count one of {', '.join(TABLE_COUNTS)}, by >, >=, < or <=")
    return found


# Options.


@dataclass(frozen=True, slots=True)
class Option:
    """The names, help and check of one option; `check` returns the value or raises `ValueError`."""

    given: Given
    help: str
    metavar: str = "NAME"
    check: Callable[[Any], Any] = as_it_is
    code: str = "invalid_option"
    flag: str = ""  # on the command line; by default the name
    short: str | None = None
    words: tuple[str, ...] = ()  # the values that are known
    each_side: bool = False  # also as NAME_a and NAME_b; settings of columns are added to those of both sides


def _option(default: Any, given: Given, help: str, **about: Any) -> Any:  # noqa: A002
    return field(default=default, metadata={"option": Option(given, help, **about)})


def _sided(default: Any, given: Given, help: str, check: Callable[[Any], Any], **about: Any) -> Any:  # noqa: A002
    return _option((default, default), given, help, check=check, each_side=True, **about)


def _flag(help: str) -> Any:  # noqa: A002
    return _option(False, "flag", help)


def _several(given: Given, help: str, metavar: str, check: Callable[[Any], Any], **about: Any) -> Any:  # noqa: A002
    return _option((), given, help, metavar=metavar, check=check, **about)


def _choice(words: Any, help: str, code: str = "invalid_option", **default: Any) -> Any:  # noqa: A002
    known = get_args(words)
    usual = default.get("default", known[0])
    return _option(usual, "text", help, metavar="|".join(known), check=one_of(known), words=known, code=code)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Checked options of one diff; made by `check_options`."""

    key_columns: tuple[str, ...] = _several(
        "texts", "A key column; may be repeated.", "COL", names, flag="--key", short="-k"
    )
    key_numbers: tuple[int, ...] = _several(
        "texts", "A key column by its number in A, from 1; may be repeated.", "N", numbers, flag="--key-number"
    )
    mode: Mode = _choice(
        Mode, "Default: keyed when --key is given, else positional.", code="invalid_mode", default=None
    )
    header_mode: HeaderMode = _choice(
        HeaderMode, "Columns in the same order, in any order, or those that both sides have.", "invalid_header_mode"
    )
    emit_unchanged: bool = _flag("Also write an event for every row that did not change.")
    ignore_row_order: bool = _flag("Positional mode: compare rows as a multiset.")
    inside: str | None = _option(
        None, "text", "What holds the rows in both files, as FILE::NAME does: a member of JSON, a sheet.", check=str
    )

    encoding: tuple[str, str] = _sided("utf-8", "text", "Text encoding of CSV files.", parse_encoding)
    delimiter: tuple[str | None, str | None] = _sided(
        None,
        "text",
        'Field delimiter of CSV files; "tab" or "\\t" for a tab, "auto" to look at the first line.',
        parse_delimiter,
        metavar="CHAR|tab|auto",
        code="invalid_delimiter",
    )
    no_header: tuple[bool, bool] = _sided(
        False, "flag", "CSV files begin with data; columns are c1, c2, …, or those of the other side.", as_it_is
    )
    duplicate_columns: DuplicateColumns = _choice(
        DuplicateColumns, "What to do about a column name that is empty or there twice."
    )
    ragged: Ragged = _choice(Ragged, "What to do about CSV rows that are shorter or longer than the header.")
    skip_blank_lines: bool = _flag("Leave blank lines of CSV files out.")
    skip_lines: tuple[int, int] = _sided(
        0, "text", "Lines above the header of CSV files, such as a title.", count, metavar="N"
    )
    comment: str | None = _option(
        None, "text", "Leave lines of CSV files out that start with this, such as #.", metavar="TEXT", check=mark
    )

    ignore_column_case: bool = _flag("Column names in another case are the same, those of keys too.")
    rename: tuple[tuple[str, str], ...] = _several(
        "pairs", "A's column OLD is called NEW in B; may be repeated.", "OLD=NEW", by_column(_new_name)
    )
    ignore: tuple[str, ...] = _several(
        "texts", "Do not compare a column; * and ? match. May be repeated.", "COL", names
    )
    only: tuple[str, ...] = _several(
        "texts", "Compare these columns only; * and ? match. May be repeated.", "COL", names
    )

    normalize: tuple[tuple[str, tuple[Step, ...]], ...] = _several(
        "pairs", f"Compare text in a plainer form: {', '.join(STEPS)}. May be repeated.", "COL=LIST", by_column(_steps)
    )
    null: tuple[str, ...] = _several(
        "texts", 'A word that means null, such as NULL or ""; may be repeated.', "WORD", words
    )
    types: tuple[DeclaredTypes, DeclaredTypes] = _sided(
        (),
        "pairs",
        "Compare a column as text, number, date, datetime or boolean, or as date:PATTERN. May be repeated.",
        by_column(_declared_type),
        metavar="COL=TYPE",
        flag="--as",
    )
    tolerance: tuple[tuple[str, Tolerance], ...] = _several(
        "pairs",
        "Numbers that near are equal (0.01, 1%, 0.01,1%), or times (2s, 1.5h). May be repeated.",
        "COL=LIMIT",
        by_column(_tolerance),
    )

    empty_key: EmptyKey = _choice(EmptyKey, "What to do about a row without a key.")
    duplicates: Duplicates = _choice(
        Duplicates, "What to do about rows of one key: keep the first or last, or match the rows that are alike."
    )

    column_stats: bool = _flag("Also count the changes of every column.")
    fail_if: tuple[Threshold, ...] = _several(
        "texts", 'Exit 1 only if this holds, such as "changed > 1%"; may be repeated.', "CONDITION", thresholds
    )
    changed_columns_only: bool = _flag("csv, markdown, html: show the key and the columns that differ somewhere.")

    @property
    def has_row_numbers(self) -> bool:
        """Whether rows are known by their position in the file."""
        return self.mode == "positional" and not self.ignore_row_order

    @property
    def counts_dropped(self) -> bool:
        """Whether rows may be dropped because another one has their key."""
        return self.duplicates in ("first", "last")

    def reading(self, side: str) -> ReadOptions:
        """The options of a side's reader."""
        at = "AB".index(side)
        own = {name: getattr(self, name)[at] for name in ("delimiter", "encoding", "skip_lines", "no_header")}
        shared = {name: getattr(self, name) for name in ("ragged", "skip_blank_lines", "comment", "inside")}
        return ReadOptions(**own, **shared, rename_columns=self.duplicate_columns == "rename")


class DiffRules(TypedDict, total=False):
    """The options in Python: those of reading files, which DataFrames do without, and those of rows and cells."""

    encoding: str
    encoding_a: str
    encoding_b: str
    delimiter: str | None
    delimiter_a: str | None
    delimiter_b: str | None
    no_header: bool
    no_header_a: bool
    no_header_b: bool
    duplicate_columns: DuplicateColumns
    ragged: Ragged
    skip_blank_lines: bool
    skip_lines: int
    skip_lines_a: int
    skip_lines_b: int
    comment: str | None
    inside: str | None
    key: str | Iterable[str] | None
    key_columns: str | Iterable[str]
    key_numbers: int | Iterable[int]
    mode: Mode | None
    header_mode: HeaderMode
    emit_unchanged: bool
    ignore_row_order: bool
    ignore_column_case: bool
    rename: Mapping[str, str]
    ignore: str | Iterable[str]
    only: str | Iterable[str]
    normalize: Mapping[str, str | Iterable[str]]
    null: str | Iterable[str]
    types: Mapping[str, str]
    types_a: Mapping[str, str]
    types_b: Mapping[str, str]
    tolerance: Mapping[str, str | float]
    empty_key: EmptyKey
    duplicates: Duplicates
    column_stats: bool
    fail_if: str | Iterable[str]
    changed_columns_only: bool


_OF_BOTH: dict[str, Option] = {each.name: each.metadata["option"] for each in fields(TableOptions)}
DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(TableOptions) if each.default is not MISSING}
ALIASES = {"key": "key_columns", "as": "types", "as_a": "types_a", "as_b": "types_b"}
_SIDES = ("a", "b")


def _with_sides(name: str, option: Option) -> dict[str, Option]:
    """An option, and behind it those of one side alone."""
    flag = option.flag or f"--{name.replace('_', '-')}"
    found = {name: replace(option, flag=flag)}
    for side in _SIDES if option.each_side else ():
        help_ = f"The same for {side.upper()} alone."
        found[f"{name}_{side}"] = replace(option, flag=f"{flag}-{side}", help=help_, each_side=False)
    return found


OPTIONS: dict[str, Option] = {
    each: one for name, option in _OF_BOTH.items() for each, one in _with_sides(name, option).items()
}

# Where a reader looks for an option: sections of help pages and of forms.
_GROUPS: dict[str, tuple[str, ...]] = {
    "Rows": ("key_columns", "key_numbers", "mode", "ignore_row_order", "duplicates", "empty_key", "inside"),
    "Values": ("tolerance", "normalize", "types", "null"),
    "Columns": ("ignore", "only", "rename", "header_mode", "ignore_column_case"),
    "CSV files": (
        *("delimiter", "encoding", "no_header", "skip_lines", "comment", "duplicate_columns", "ragged"),
        "skip_blank_lines",
    ),
    "Checks and output": ("fail_if", "emit_unchanged", "column_stats", "changed_columns_only"),
}
OPTION_GROUPS = {
    title: tuple(each for name in names for each in _with_sides(name, _OF_BOTH[name]))
    for title, names in _GROUPS.items()
}
READING_OPTIONS = frozenset([*OPTION_GROUPS["CSV files"], "inside"])


def option_names() -> set[str]:
    """Every name of an option, aliases and those of one side included."""
    return {*OPTIONS, *ALIASES}


def check_options(**given: Any) -> TableOptions:
    """Check the options of a diff, or raise the first error in them; None is the default.

    >>> check_options(key_columns=["id"]).mode, check_options().mode
    ('keyed', 'positional')
    """
    requested = {ALIASES.get(name, name): value for name, value in given.items() if value is not None}
    checked: dict[str, Any] = {}
    for name, option in _OF_BOTH.items():
        if option.each_side:
            both = requested.pop(name, None)
            sides = zip((requested.pop(f"{name}_{side}", None) for side in _SIDES), DEFAULTS[name], strict=True)
            checked[name] = tuple(_of_side(name, option, both, own, usual) for own, usual in sides)
        elif name in requested:
            checked[name] = _checked(name, option, requested.pop(name))
    if requested:
        raise OptionError(f"unknown option {min(requested)!r} (known: {', '.join(_OF_BOTH)})", code="invalid_option")
    return _combined(checked)


def _of_side(name: str, option: Option, both: Any, own: Any, usual: Any) -> Any:
    """The value of one side: its own, else that of both; settings of columns are joined, its own behind."""
    if option.given == "pairs":
        return (*_checked(name, option, both or ()), *_checked(name, option, own or ()))
    given = both if own is None else own
    return usual if given is None else _checked(name, option, given)


def _checked(name: str, option: Option, value: Any) -> Any:
    try:
        return option.check(value)
    except ValueError as error:
        words = f"{name}: {error}" if option.code == "invalid_option" else f'Unsupported {name}: "{value}"'
        words = f"Unsupported delimiter: {value!r} ({error})" if name == "delimiter" else words
        raise OptionError(words, code=option.code) from None


def _combined(checked: dict[str, Any]) -> TableOptions:
    keys, mode = {name: checked.pop(name, ()) for name in ("key_columns", "key_numbers")}, checked.get("mode")
    keyed = mode == "keyed" or (mode is None and any(keys.values()))
    options = TableOptions(**{**checked, **(keys if keyed else {}), "mode": "keyed" if keyed else "positional"})
    checked_combination(options)
    if keyed and not any(keys.values()):
        raise TableError("Missing key column: keyed mode needs at least one key column", code="missing_key_column")
    return options


def checked_combination(options: TableOptions) -> TableOptions:
    """The same options, if they go together."""
    for is_wrong, words in _bad_combinations(options):
        if is_wrong:
            raise OptionError(words, code="invalid_option_combination")
    return options


def _bad_combinations(options: TableOptions) -> Iterable[tuple[bool, str]]:
    keyed, keys = options.mode == "keyed", set(options.key_columns)
    yield (
        keyed and options.ignore_row_order,
        "ignore_row_order works in positional mode only: a keyed diff never looks at the row order",
    )
    yield (
        options.ignore_row_order and bool(options.tolerance),
        "ignore_row_order pairs equal rows, and a tolerance makes no rows equal for good: leave one of them out",
    )
    for name in ("duplicates", "empty_key"):
        yield (not keyed and getattr(options, name) != "error", f"{name} is about keys: give a key, or leave it out")
    olds, news = [old for old, _ in options.rename], [new for _, new in options.rename]
    for names in (olds, news):
        yield len(set(names)) < len(names), f"rename names a column twice: {', '.join(names)}"
    for name, columns in (("ignore", options.ignore), ("tolerance", [column for column, _ in options.tolerance])):
        for column in columns:
            yield column in keys, f'{name} names the key column "{column}": a key is compared exactly'


# What helps against errors: `remedies.toml` has the words, with the options of the command line.


@cache
def remedies() -> dict[str, dict[str, Any]]:
    """What helps against errors, by their codes."""
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("driftline.tables").joinpath("remedies.toml").read_text("utf-8"))


def python_words(text: str) -> str:
    """Words that name options of the command line, with those of Python.

    >>> python_words('--ragged pad fills short rows, --no-header takes cells; give --delimiter ";", or more --key')
    'ragged="pad" fills short rows, no_header=True takes cells; give delimiter=";", or more key'
    """
    for name, option in OPTIONS.items():
        spelled = "key" if option.flag == "--key" else name
        values = "|".join([*option.words, '(?<=")[^"]*(?=")'])
        text = re.sub(rf'{option.flag} "?({values})"?(?![\w-])', rf'{spelled}="\1"', text)
        text = re.sub(rf"{option.flag}(?![\w-])", f"{spelled}=True" if option.given == "flag" else spelled, text)
    return text
