"""How much speaks for a rule, and the words that go with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from difflib import SequenceMatcher
from typing import Any, TypeVar

from driftline.payloads.paths import Place, place_text
from driftline.payloads.schema_nodes import EXTENSION_PREFIX
from driftline.payloads.values import MISSING, Json, Value, decimal_of, kind_of, same_number

MIN_DIFFERING = 5
SHARE = 0.95
SURE_BOUND = 0.80
MOSTLY = 0.5  # a change in fewer pairs is a bug as likely as a migration: never sure
EXAMPLES = 3

Pair = tuple[Any, Any]
T = TypeVar("T")

# What a rule lets pass from now on.
_HIDES = {
    "alias": "a change of the member's name",
    "enum-map": "the mapped words, and nothing else",
    "cast": "a change between JSON types where the value is the same",
    "trim-whitespace": "blanks at the ends of the text, also where they matter",
    "case-insensitive": "upper and lower case, also where they tell values apart",
    "datetime-format": "another spelling or zone of the same moment",
    "datetime-tolerance": "every time difference up to the tolerance",
    "precision": "every difference up to the precision, also real ones",
    "scale": "the factor; a wrong unit would look the same",
    "default": "a member that is missing where it should have the value",
    "allow-null-as-missing": "null where the member should be missing, everywhere",
    "empty-string-as-null": "empty text where null should be, everywhere",
    "array-mode": "the order of the items",
    "array-key": "the order of the items",
    "pattern": "every value of this shape: the values themselves are no longer compared",
    "ignore-extra-items": "items that only New has",
    "ignore-missing-items": "items that only Old has",
    "strategy": "the value: it is no longer compared at all",
}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule that would explain differences (or a finding without one), and what speaks for and against it."""

    place: Place
    rule: Mapping[str, Json]  # extensions without their prefix
    level: str  # sure, review, finding
    explained: int
    differing: int
    seen: int
    why: str
    examples: list[Pair] = field(default_factory=list)
    counterexamples: list[Pair] = field(default_factory=list)
    rivals: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The place as a path."""
        return place_text(self.place)

    @property
    def id(self) -> str:
        """What `--accept` names."""
        return f"{self.path}:{'+'.join(self.rule) or 'finding'}"

    @property
    def extensions(self) -> dict[str, Json]:
        """The rule as a schema has it."""
        return {f"{EXTENSION_PREFIX}{name}": value for name, value in self.rule.items()}

    @property
    def hides(self) -> str:
        """What the rule lets pass, in words."""
        return hidden_by(self.rule)

    @property
    def is_preserving(self) -> bool:
        """Whether the rule only says the same in other words."""
        names = set(self.rule)
        if self.level != "sure":
            return False
        return names <= {"alias", "enum-map", "datetime-format"} or self.rule == {"cast": "string"}

    def to_dict(self) -> dict[str, Json]:
        """The suggestion as plain data."""
        return {
            "id": self.id,
            "path": self.path,
            "rule": self.extensions,
            "level": self.level,
            "explained": self.explained,
            "differing": self.differing,
            "seen": self.seen,
            "why": self.why,
            "hides": self.hides,
            "examples": [list(map(shown, pair)) for pair in self.examples[:EXAMPLES]],
            "counterexamples": [list(map(shown, pair)) for pair in self.counterexamples[:EXAMPLES]],
            "rivals": [*self.rivals],
        }


def hidden_by(rule: Mapping[str, Json]) -> str:
    """What extensions (without their prefix) let pass, in words."""
    return "; ".join(dict.fromkeys(_HIDES[name] for name in rule if name in _HIDES))


def shown(value: object) -> Any:
    """A value for people; what is not there is said so."""
    return "(missing)" if value is MISSING else value


def wilson(successes: int, trials: int) -> float:
    """The lower bound (95 %) of a share.

    >>> wilson(16, 16) >= 0.8 > wilson(15, 15)
    True
    """
    if not trials:
        return 0.0
    z, share = 1.96, successes / trials
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / 4 / trials / trials)
    return (share + z * z / 2 / trials - spread) / (1 + z * z / trials)


def is_sure(explained: int, differing: int, having: int, *, rare_is_fine: bool = False) -> bool:
    """Whether enough speaks for a rule to be sure of it."""
    return wilson(explained, differing) >= SURE_BOUND and (rare_is_fine or differing >= MOSTLY * having)


def same(left: Value, right: Value) -> bool:
    """Strict JSON equality."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    kind = kind_of(left)
    if kind != kind_of(right):
        return False
    return same_number(left, right) if kind == "number" else bool(left == right)


def token(value: Value) -> str:
    """A hashable spelling; equal numbers are spelled alike."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return json.dumps(value, sort_keys=True, default=str)


def number(value: Value) -> Decimal | None:
    """The decimal of a number or of numeric text, or None."""
    if kind_of(value) == "number":
        return decimal_of(value)
    try:
        found = Decimal(value.strip()) if isinstance(value, str) else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() else None


def likeness(left: str, right: str) -> float:
    """How much two names look alike, spelling conventions aside.

    >>> likeness("order_id", "orderId")
    1.0
    """
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in (left, right)]
    return 1.0 if plain[0] == plain[1] else SequenceMatcher(None, plain[0], plain[1]).ratio()


def most(values: Sequence[T], share: float = SHARE) -> T:
    """The largest of the smallest `share` of sorted values."""
    return values[max(1, math.ceil(share * len(values))) - 1]


def nice_limit(value: Decimal) -> Decimal:
    """The next of 1, 2, 5 times a power of ten.

    >>> nice_limit(Decimal("0.013"))
    Decimal('0.02')
    """
    if not value:
        return Decimal(0)
    power = value.adjusted()
    return next(limit for step in (1, 2, 5, 10) if (limit := Decimal(step).scaleb(power)) >= value)


SECOND = 1_000_000_000  # in nanoseconds
TIME_LIMITS = ((1, "1s"), (2, "2s"), (5, "5s"), (10, "10s"), (30, "30s"), (60, "1m"), (300, "5m"))


def nice_duration(nanoseconds: int) -> str | None:
    """The next of the durations that are suggested; None beyond the longest.

    >>> nice_duration(3_200_000_000)
    '5s'
    """
    return next((name for seconds, name in TIME_LIMITS if nanoseconds <= seconds * SECOND), None)
