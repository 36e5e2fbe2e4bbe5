"""The 27 `x-migration-*` extensions: what they are called, what values they take, and the rules of one field.

A value that makes no sense is a problem, not an exception: the comparison warns and treats the field strictly.

>>> read_rules({"x-migration-precision": Extension(-1, "")}).problems[0].message
'x-migration-precision must be a number that is not negative, not -1; the field is compared strictly'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, NamedTuple

from driftline.payloads._rules import scalars
from driftline.payloads._schema.nodes import EXTENSION_PREFIX, Extension
from driftline.payloads._values.paths import KeyPath, SortField, parse_keys, parse_order
from driftline.payloads._values.patterns import SafePattern
from driftline.payloads._values.values import CASTS, MISSING, Json, decimal_of, spelled, to_string

STRATEGIES = ("strict", "ignore", "exists", "lenient")
ARRAY_MODES = ("strict", "unordered", "keyed")
NAMINGS = ("snake-to-camel", "camel-to-snake", "unchanged")
DUPLICATE_HANDLING = ("error", "first", "last", "merge")


class Problem(NamedTuple):
    """A rule that cannot be used, and its pointer in the schema."""

    rule: str
    message: str
    pointer: str


@dataclass(frozen=True, slots=True)
class FieldRules:
    """Everything the extensions say about one field."""

    strategy: str = "strict"
    alias: str | None = None
    precision: Decimal | None = None
    case_insensitive: bool = False
    trim: bool = False
    cast: str | None = None
    pattern: SafePattern | None = None
    time_format: scalars.TimeFormat | None = None
    scale: Decimal | None = None
    tolerance: int | None = None
    default: Any = MISSING
    enum_map: Mapping[str, Json] | None = None
    array_mode: str = "strict"
    array_key: tuple[KeyPath, ...] = ()
    order_by: tuple[SortField, ...] = ()
    ignore_extra: bool = False
    ignore_missing: bool = False
    subset: bool = False
    duplicates: str = "error"
    global_ignores: tuple[str, ...] = ()
    null_as_missing: bool | None = None
    empty_as_null: bool | None = None
    allow_new: bool | None = None
    naming: str | None = None
    inherit: bool | None = None
    headers: Mapping[str, Json] = field(default_factory=dict)  # read by `root.record_root`
    when: str | None = None
    problems: tuple[Problem, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """`x-migration-precision: 0.01`, as reports name a rule; None where the rule is not given."""
        return self.texts.get(EXTENSION_PREFIX + name)


class ExtensionKind(NamedTuple):
    """What an extension is for: its field in `FieldRules`, how its value is read, and its scope.

    A scalar rule brings its meaning along: a step that prepares values, or the end for a JSON type.
    """

    field: str
    read: Callable[[Any], Any]
    scope: str
    is_value_rule: bool = False
    step: Callable[[Any], scalars.Step | None] | None = None
    end: tuple[str, Callable[[Any, str | None], scalars.End]] | None = None


def _reader(is_right: Callable[[Any], Any], wanted: str, convert: Callable[[Any], Any] | None = None) -> scalars.Change:
    def read(value: object) -> Any:
        if not is_right(value):
            raise scalars.BadValueError(f"must be {wanted}")
        return value if convert is None else convert(value)

    return read


def _one_of(*words: str) -> scalars.Change:
    def read(value: object) -> str:
        if value not in words or not isinstance(value, str):
            near = get_close_matches(str(value), words, n=1)
            hint = f" (nearest: {near[0]})" if near else ""
            raise scalars.BadValueError(f"must be one of {', '.join(words)}{hint}")
        return value

    return read


def _all_are(kind: type, values: Iterable[object]) -> bool:
    return all(isinstance(value, kind) for value in values)


_anything = _reader(lambda value: True, "")
_flag = _reader(lambda value: isinstance(value, bool), "true or false")
_name = _reader(lambda value: isinstance(value, str) and value, "a member name")
_keys = _reader(parse_keys, "a member name or a list of them", parse_keys)
_order = _reader(parse_order, "a list of member names", parse_order)
_paths = _reader(lambda value: isinstance(value, list) and _all_are(str, value), "a list of JSONPaths", tuple)
_headers = _reader(
    lambda value: isinstance(value, dict) and _all_are(dict, value.values()),
    "an object of header names, each with its rules",
)
_condition = _reader(lambda value: isinstance(value, str) and value.strip(), "a condition such as $.status == 'ACTIVE'")
_words = _reader(lambda value: isinstance(value, dict), "an object of old and new values")
_distance = _reader(lambda value: _is_number(value) and value >= 0, "a number that is not negative", decimal_of)
_factor = _reader(lambda value: _is_number(value) and value != 0, "a number other than 0", decimal_of)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


EXTENSIONS: dict[str, ExtensionKind] = {
    EXTENSION_PREFIX + name: kind
    for name, kind in {
        "strategy": ExtensionKind("strategy", _one_of(*STRATEGIES), "field", True),
        "alias": ExtensionKind("alias", _name, "field"),
        "default": ExtensionKind("default", _anything, "field"),
        "case-insensitive": ExtensionKind("case_insensitive", _flag, "string", True),
        "trim-whitespace": ExtensionKind("trim", _flag, "string", True),
        # Steps are taken in this order; of two ends for one JSON type the later one decides.
        "enum-map": ExtensionKind("enum_map", _words, "field", True, step=scalars.enum_map),
        "cast": ExtensionKind("cast", _one_of(*CASTS), "field", True, step=scalars.cast),
        "datetime-format": ExtensionKind(
            "time_format",
            scalars.read_time_format,
            "string",
            True,
            step=scalars.epoch,
            end=("string", scalars.points_in_time),
        ),
        "datetime-tolerance": ExtensionKind("tolerance", scalars.read_duration, "string", True),
        "scale": ExtensionKind("scale", _factor, "number", True, step=scalars.scale),
        "pattern": ExtensionKind("pattern", scalars.read_pattern, "string", True, end=("string", scalars.pattern)),
        "precision": ExtensionKind("precision", _distance, "number", True, end=("number", scalars.precision)),
        "array-mode": ExtensionKind("array_mode", _one_of(*ARRAY_MODES), "array"),
        "array-key": ExtensionKind("array_key", _keys, "array"),
        "order-by": ExtensionKind("order_by", _order, "array"),
        "ignore-extra-items": ExtensionKind("ignore_extra", _flag, "array"),
        "ignore-missing-items": ExtensionKind("ignore_missing", _flag, "array"),
        "array-subset": ExtensionKind("subset", _flag, "array"),
        "duplicate-handling": ExtensionKind("duplicates", _one_of(*DUPLICATE_HANDLING), "array"),
        "global-ignores": ExtensionKind("global_ignores", _paths, "global"),
        "allow-null-as-missing": ExtensionKind("null_as_missing", _flag, "global"),
        "empty-string-as-null": ExtensionKind("empty_as_null", _flag, "global"),
        "allow-new-members": ExtensionKind("allow_new", _flag, "global"),
        "naming": ExtensionKind("naming", _one_of(*NAMINGS), "global"),
        "inherit-rules": ExtensionKind("inherit", _flag, "global"),
        "headers": ExtensionKind("headers", _headers, "global"),
        "when": ExtensionKind("when", _condition, "any"),
    }.items()
}
# What a rule of each scope that cannot be used comes to; a scalar rule leaves its field strict.
_WITHOUT = {
    "global": "it is not used",
    "array": "the array is compared without it",
    "array_mode": "the array is compared strictly",
    "array_key": "the array is compared strictly",
}
_VALUE_FIELDS = tuple(kind.field for kind in EXTENSIONS.values() if kind.is_value_rule)
_VALUE_NAMES = frozenset(name for name, kind in EXTENSIONS.items() if kind.is_value_rule)


def read_rules(extensions: Mapping[str, Extension]) -> FieldRules:
    """The rules that a set of extensions gives; bad ones become problems."""
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    is_broken = False
    for name, (value, pointer) in extensions.items():
        kind = EXTENSIONS.get(name)
        if kind is None:
            problems.append(Problem(name, unknown_message(name), pointer))
            continue
        try:
            values[kind.field] = kind.read(value)
        except scalars.BadValueError as error:
            effect = _WITHOUT.get(kind.field) or _WITHOUT.get(kind.scope, "the field is compared strictly")
            message = f"{name} {error}, not {spelled(value)}; {effect}"
            problems.append(Problem(name, message, pointer))
            is_broken |= kind.is_value_rule
        else:
            texts[name] = rule_text(name, value)
    if is_broken:
        # The field falls back to strict as a whole: half of its rules would mean something else.
        values = {name: value for name, value in values.items() if name not in _VALUE_FIELDS}
        texts = {name: text for name, text in texts.items() if name not in _VALUE_NAMES}
    return _completed(FieldRules(**values, problems=tuple(problems), texts=texts), extensions)


def _completed(rules: FieldRules, extensions: Mapping[str, Extension]) -> FieldRules:
    """Rules that imply or need one another."""
    if rules.strategy == "lenient":
        rules = replace(rules, trim=True, case_insensitive=True)
    if rules.tolerance is not None:
        written = rules.time_format or scalars.read_time_format("ISO8601")
        tolerated = written._replace(tolerance=rules.tolerance, tolerance_rule=rules.text("datetime-tolerance"))
        rules = replace(rules, time_format=tolerated)
    if rules.pattern is not None and rules.case_insensitive:
        rules = replace(rules, pattern=SafePattern(rules.pattern.text, ignore_case=True))
    if rules.array_mode == "keyed" and not rules.array_key:
        name = EXTENSION_PREFIX + "array-mode"
        problem = Problem(
            name, f"{name} is keyed but {EXTENSION_PREFIX}array-key is not given; the array is compared strictly",
            extensions[name].pointer,
        )  # fmt: skip
        # A key that was given and is wrong has been reported already.
        is_known = EXTENSION_PREFIX + "array-key" in extensions
        rules = replace(rules, array_mode="strict", problems=rules.problems if is_known else (*rules.problems, problem))
    return rules


def unknown_message(name: str) -> str:
    """The message about an extension that does not exist."""
    near = get_close_matches(name, EXTENSIONS, n=1)
    return f"unknown extension {name}; " + (f"did you mean {near[0]}?" if near else "it is not used")


def rule_text(name: str, value: Any) -> str:
    """A rule as reports name it.

    >>> rule_text("x-migration-precision", 0.01)
    'x-migration-precision: 0.01'
    """
    if isinstance(value, dict | list):
        return f"{name}: {spelled(value)}"
    return f"{name}: {value if isinstance(value, float) else to_string(value)}"
