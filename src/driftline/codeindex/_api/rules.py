"""The rules by which a change of the API is judged: a level each, and for modifiers also when they apply."""

from __future__ import annotations

from typing import NamedTuple

from driftline.core import canonical_json, sha1_hex

MAJOR, UNKNOWN, MINOR, PATCH = "major", "unknown", "minor", "patch"
LEVELS = (MAJOR, UNKNOWN, MINOR, PATCH)

RULES: dict[str, str] = {
    **dict.fromkeys(
        (
            "removed", "hidden", "kind-changed", "parameter-removed", "parameter-renamed", "parameter-moved",
            "parameter-kind", "parameter-required", "parameter-added-required", "parameter-type", "result-changed",
            "type-changed", "signature-changed", "async-changed", "binding-changed", "qualifier-changed",
            "throws-added", "member-added-required", "field-added-closed", "variant-added-closed", "final-added",
            "abstract-added", "readonly-added", "receiver-narrowed", "comparable-lost", "trait-lost", "base-removed",
            "type-parameters-changed", "value-changed", "module-renamed",
        ),
        MAJOR,
    ),
    **dict.fromkeys(("unread", "unparsed", "unresolved", "base-unresolved", "out-of-scope"), UNKNOWN),
    **dict.fromkeys(("undeclared", "added", "parameter-added", "default-changed", "base-added", "deprecated"), MINOR),
    **dict.fromkeys(("parameter-name", "annotation-changed", "text-changed", "moved"), PATCH),
}  # fmt: skip


class FlagRule(NamedTuple):
    """A rule about a word of a definition that came or went; `kinds` are the definitions it is about, blank: all."""

    rule: str
    word: str
    when: str  # came, went or either
    why: str
    kinds: tuple[str, ...] = ()


_TYPES = ("class", "struct", "enum", "union", "trait", "interface", "record", "variant")
FLAG_RULES = (
    FlagRule("async-changed", "async", "either", "async"),
    FlagRule("binding-changed", "static", "either", "static"),
    FlagRule("binding-changed", "classmethod", "went", "no longer a classmethod"),
    FlagRule("qualifier-changed", "unsafe", "came", "unsafe added"),
    FlagRule("qualifier-changed", "const", "went", "no longer const", ("function",)),
    FlagRule("abstract-added", "abstract", "came", "abstract"),
    FlagRule("final-added", "final", "came", "final", (*_TYPES, "function", "method")),
    FlagRule("final-added", "sealed", "came", "sealed", ("class", "trait")),
    FlagRule("final-added", "non_exhaustive", "came", "non_exhaustive", _TYPES),
    FlagRule("field-added-closed", "closed", "went", "a private field", ("struct",)),
    FlagRule("readonly-added", "readonly", "came", "assignments break"),
    FlagRule("type-changed", "optional", "came", "may be undefined", ("value",)),
    FlagRule("receiver-narrowed", "pointer", "came", "values no longer have it", ("method",)),
    FlagRule("comparable-lost", "incomparable", "came", "values cannot be compared with =="),
    FlagRule("hidden", "protected", "came", "public -> protected"),
    FlagRule("member-added-required", "unexported-methods", "came", "an unexported method", ("interface",)),
    FlagRule("deprecated", "deprecated", "came", "deprecated"),
)


def rules_digest() -> str:
    """What identifies the table, for the caches that depend on it."""
    return sha1_hex(canonical_json({"rules": RULES, "flags": [list(rule) for rule in FLAG_RULES]}))[:12]
