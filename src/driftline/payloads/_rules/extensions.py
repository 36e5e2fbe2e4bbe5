"""The 27 `x-migration-*` extensions: what they are called, what values they take, and the rules of one field.

A value that makes no sense is a problem, not an exception: the comparison warns and treats the field strictly.

>>> read_rules({"x-migration-precision": Extension(-1, "")}).problems[0].message
'x-migration-precision must be a number that is not negative, not -1; the field is compared strictly'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from driftline.payloads._rules import scalars
from driftline.payloads._rules.scalars import ExtensionKind, one_of, reader
from driftline.payloads._schema.nodes import EXTENSION_PREFIX, Extension
from driftline.payloads._values.paths import KeyPath, SortField, parse_keys, parse_order
from driftline.payloads._values.patterns import SafePattern
from driftline.payloads._values.values import MISSING, Json, spelled, to_string

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
    case_insensitive: bool = False
    trim: bool = False
    scalars: Mapping[str, Any] = field(default_factory=dict)  # values of the rules of `scalars.RULES`
    default: Any = MISSING
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


def _all_are(kind: type, values: Iterable[object]) -> bool:
    return all(isinstance(value, kind) for value in values)


_anything = reader(lambda value: True, "")
_flag = reader(lambda value: isinstance(value, bool), "true or false")
_name = reader(lambda value: isinstance(value, str) and value, "a member name")
_keys = reader(parse_keys, "a member name or a list of them", parse_keys)
_order = reader(parse_order, "a list of member names", parse_order)
_paths = reader(lambda value: isinstance(value, list) and _all_are(str, value), "a list of JSONPaths", tuple)
_headers = reader(
    lambda value: isinstance(value, dict) and _all_are(dict, value.values()),
    "an object of header names, each with its rules",
)
_condition = reader(lambda value: isinstance(value, str) and value.strip(), "a condition such as $.status == 'ACTIVE'")

EXTENSIONS: dict[str, ExtensionKind] = {
    EXTENSION_PREFIX + name: kind
    for name, kind in {
        "strategy": ExtensionKind(one_of(*STRATEGIES), "field", "strategy", is_value_rule=True),
        "alias": ExtensionKind(_name, "field", "alias"),
        "default": ExtensionKind(_anything, "field", "default"),
        "case-insensitive": ExtensionKind(_flag, "string", "case_insensitive", is_value_rule=True),
        "trim-whitespace": ExtensionKind(_flag, "string", "trim", is_value_rule=True),
        **scalars.RULES,
        "array-mode": ExtensionKind(one_of(*ARRAY_MODES), "array", "array_mode"),
        "array-key": ExtensionKind(_keys, "array", "array_key"),
        "order-by": ExtensionKind(_order, "array", "order_by"),
        "ignore-extra-items": ExtensionKind(_flag, "array", "ignore_extra"),
        "ignore-missing-items": ExtensionKind(_flag, "array", "ignore_missing"),
        "array-subset": ExtensionKind(_flag, "array", "subset"),
        "duplicate-handling": ExtensionKind(one_of(*DUPLICATE_HANDLING), "array", "duplicates"),
        "global-ignores": ExtensionKind(_paths, "global", "global_ignores"),
        "allow-null-as-missing": ExtensionKind(_flag, "global", "null_as_missing"),
        "empty-string-as-null": ExtensionKind(_flag, "global", "empty_as_null"),
        "allow-new-members": ExtensionKind(_flag, "global", "allow_new"),
        "naming": ExtensionKind(one_of(*NAMINGS), "global", "naming"),
        "inherit-rules": ExtensionKind(_flag, "global", "inherit"),
        "headers": ExtensionKind(_headers, "global", "headers"),
        "when": ExtensionKind(_condition, "any", "when"),
    }.items()
}
# What a rule of each scope that cannot be used comes to; a scalar rule leaves its field strict.
_WITHOUT = {
    "global": "it is not used",
    "array": "the array is compared without it",
    "array_mode": "the array is compared strictly",
    "array_key": "the array is compared strictly",
}
_VALUE_FIELDS = {kind.field or "scalars" for kind in EXTENSIONS.values() if kind.is_value_rule}
_VALUE_NAMES = frozenset(name for name, kind in EXTENSIONS.items() if kind.is_value_rule)


def read_rules(extensions: Mapping[str, Extension]) -> FieldRules:
    """The rules that a set of extensions gives; bad ones become problems."""
    given: dict[str, Any] = {}  # by scalar rules
    values: dict[str, Any] = {"scalars": given}
    texts: dict[str, str] = {}
    problems: list[Problem] = []
    is_broken = False
    for name, (value, pointer) in extensions.items():
        kind = EXTENSIONS.get(name)
        if kind is None:
            problems.append(Problem(name, unknown_message(name), pointer))
            continue
        try:
            read = kind.read(value)
        except scalars.BadValueError as error:
            effect = _WITHOUT.get(kind.field) or _WITHOUT.get(kind.scope, "the field is compared strictly")
            message = f"{name} {error}, not {spelled(value)}; {effect}"
            problems.append(Problem(name, message, pointer))
            is_broken |= kind.is_value_rule
        else:
            texts[name] = rule_text(name, value)
            (values if kind.field else given)[kind.field or name.removeprefix(EXTENSION_PREFIX)] = read
    if is_broken:
        # The field falls back to strict as a whole: half of its rules would mean something else.
        values = {name: value for name, value in values.items() if name not in _VALUE_FIELDS}
        texts = {name: text for name, text in texts.items() if name not in _VALUE_NAMES}
    return _completed(FieldRules(**values, problems=tuple(problems), texts=texts), extensions)


def _completed(rules: FieldRules, extensions: Mapping[str, Extension]) -> FieldRules:
    """Rules that imply or need one another."""
    if rules.strategy == "lenient":
        rules = replace(rules, trim=True, case_insensitive=True)
    given = rules.scalars
    if "datetime-tolerance" in given:
        written = given.get("datetime-format") or scalars.read_time_format("ISO8601")
        rule = rules.text("datetime-tolerance")
        tolerated = written._replace(tolerance=given["datetime-tolerance"], tolerance_rule=rule)
        given = {**given, "datetime-format": tolerated}
    if "pattern" in given and rules.case_insensitive:
        given = {**given, "pattern": SafePattern(given["pattern"].text, ignore_case=True)}
    rules = rules if given is rules.scalars else replace(rules, scalars=given)
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
