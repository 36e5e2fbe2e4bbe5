"""Evidence for a rule, and the hypotheses that could explain a difference, the tightest first (payloads §11.4)."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from os.path import commonprefix
from typing import Any, NamedTuple

from driftline.payloads._rules.extensions import read_rules
from driftline.payloads._rules.meaning import Meaning
from driftline.payloads._schema.nodes import EXTENSION_PREFIX, Extension
from driftline.payloads._values.paths import Place, place_text
from driftline.payloads._values.values import (
    EPOCH_UNITS,
    MISSING,
    Instant,
    Json,
    Value,
    decimal_of,
    kind_of,
    parse_iso,
    same_json,
)

MIN_DIFFERING = 5
MIN_NOISY = 3  # differing old-old pairs
SHARE = 0.95
SURE_BOUND = 0.80
MOSTLY = 0.5  # a change in fewer pairs is a bug as likely as a migration: never sure
EXAMPLES = 3
SECOND = 1_000_000_000  # in nanoseconds
TIME_LIMITS = ((1, "1s"), (2, "2s"), (5, "5s"), (10, "10s"), (30, "30s"), (60, "1m"), (300, "5m"))
_MAX_WORDS = 30
_ENUM_SIGHTINGS = 3
_SCALES = tuple(map(Decimal, ("100", "1000", "60", "3600", "0.01", "0.001")))
_UUID = r"^[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}$"
_CHARSETS = ("[0-9]", "[0-9a-f]", "[0-9A-F]", "[A-Za-z0-9]", "[A-Za-z0-9_-]", "[A-Za-z0-9_.:+-]")

Pair = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule that would explain differences (or a finding without one), and the evidence for and against it."""

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
    unseen: float | None = None  # noise: the share of pairs in which a fault here looks the same

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
        """What the rule lets pass, as text."""
        hidden = hidden_by(self.rule)
        if self.unseen is None:
            return hidden
        return f"{hidden}; a fault here in up to {100 * self.unseen:.1f} % of pairs looks like the noise of Old"

    @property
    def is_preserving(self) -> bool:
        """Whether the rule only accepts another spelling of the same value."""
        is_spelling = self.rule.keys() <= {"alias", "enum-map", "datetime-format"} or self.rule == {"cast": "string"}
        return self.level == "sure" and is_spelling

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
    """What extensions (without their prefix) let pass from now on, as text."""
    hides = _hides()
    return "; ".join(dict.fromkeys(hides[name] for name in rule if name in hides))


@cache
def _hides() -> dict[str, str]:
    return dict(json.loads(files("driftline.payloads._suggest").joinpath("hides.json").read_bytes()))


def shown(value: object) -> Any:
    """A value to be shown; a missing one as text."""
    return "(missing)" if value is MISSING else value


def wilson(successes: int, trials: int, *, upper: bool = False) -> float:
    """The lower or upper bound (95 %) of a share.

    >>> wilson(16, 16) >= 0.8 > wilson(15, 15)
    True
    >>> round(wilson(3, 300, upper=True), 3)
    0.029
    """
    if not trials:
        return 1.0 if upper else 0.0
    z, share = 1.96, successes / trials
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / 4 / trials / trials)
    bound = (share + z * z / 2 / trials + (spread if upper else -spread)) / (1 + z * z / trials)
    return 1.0 if upper and successes == trials else bound  # exactly, whatever the rounding


class Sighting(NamedTuple):
    """Two values that a comparison paired, and the number of the pair of payloads."""

    pair: int
    old: Any
    new: Any


class Share(NamedTuple):
    """In how many of the pairs of payloads that have a place it differs."""

    differing: int
    having: int

    @classmethod
    def of(cls, rows: list[Sighting]) -> Share:
        """The share of rows, each pair of payloads counted once."""
        differing = {row.pair for row in rows if not same_json(row.old, row.new)}
        return cls(len(differing), len({row.pair for row in rows}))

    @property
    def upper(self) -> float:
        return wilson(self.differing, self.having, upper=True)

    def is_within(self, noise: Share) -> bool:
        """Whether this share is not above what the noise of Old explains."""
        return self.having > 0 and self.differing <= noise.upper * self.having

    def __str__(self) -> str:
        return f"{self.differing} of {self.having}"


def is_sure(explained: int, differing: int, having: int, *, rare_is_fine: bool = False) -> bool:
    """Whether the evidence for a rule is enough to be sure of it."""
    return wilson(explained, differing) >= SURE_BOUND and (rare_is_fine or differing >= MOSTLY * having)


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
    """How similar two names are, spelling conventions aside.

    >>> likeness("order_id", "orderId")
    1.0
    """
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in (left, right)]
    return 1.0 if plain[0] == plain[1] else SequenceMatcher(None, plain[0], plain[1]).ratio()


def most(values: list[Any]) -> Any:
    """The largest of the smallest 95 % of sorted values."""
    return values[max(1, math.ceil(SHARE * len(values))) - 1]


def nice_limit(value: Decimal) -> Decimal:
    """The next of 1, 2, 5 times a power of ten.

    >>> nice_limit(Decimal("0.013"))
    Decimal('0.02')
    """
    if not value:
        return Decimal(0)
    power = value.adjusted()
    return next(limit for step in (1, 2, 5, 10) if (limit := Decimal(step).scaleb(power)) >= value)


def nice_duration(nanoseconds: int) -> str | None:
    """The next of the durations that are suggested; None beyond the longest.

    >>> nice_duration(3_200_000_000)
    '5s'
    """
    return next((name for seconds, name in TIME_LIMITS if nanoseconds <= seconds * SECOND), None)


# Hypotheses.
class Hypothesis(NamedTuple):
    """A rule that may explain differences; `can_be_sure` is False where it needs a review in any case."""

    rule: dict[str, Any]
    can_be_sure: bool
    why: str
    rare_is_fine: bool = False

    def judged(self, differing: list[Pair]) -> tuple[list[Pair], list[Pair]]:
        """The pairs of scalars that a comparison accepts under the rule, and the others."""
        given = {f"{EXTENSION_PREFIX}{name}": Extension(value, "") for name, value in self.rule.items()}
        meaning = Meaning(read_rules(given), empty_as_null="empty-string-as-null" in self.rule)
        judged = [(pair, meaning.agree(*pair)) for pair in differing]
        return [pair for pair, is_good in judged if is_good], [pair for pair, is_good in judged if not is_good]


def hypotheses(differing: list[Pair], both: list[Pair]) -> Iterator[Hypothesis]:
    """What could explain the differing pairs of a field; `both` are all pairs that have it."""
    enough = SHARE * len(differing)
    if sum(old in (None, "") and new in (None, "") for old, new in differing) >= enough:
        yield Hypothesis({"empty-string-as-null": True}, False, "empty text and null")
    values = [pair for pair in differing if pair[0] is not None and pair[1] is not None]
    if not values:
        return
    is_crossed = sum(kind_of(old) != kind_of(new) for old, new in values) >= enough
    if is_crossed:
        yield from _casts(values)
    texts = [pair for pair in values if isinstance(pair[0], str) and isinstance(pair[1], str)]
    are_texts = len(texts) >= enough
    if are_texts:
        yield Hypothesis({"trim-whitespace": True}, True, "blanks at the ends")
        times = [(parse_iso(old), parse_iso(new)) for old, new in texts]
        read = [(old, new) for old, new in times if old is not None and new is not None]
        if len(read) >= SHARE * len(texts):
            yield from _times(read)
            return
    yield from _enum_map(both)
    if are_texts:
        words = {old for old, _ in both if isinstance(old, str)}
        sure = len({word.lower() for word in words}) == len(words)  # else case distinguishes values in Old
        yield Hypothesis({"case-insensitive": True}, sure, "upper and lower case")
    yield from _numbers(values, enough, is_crossed)


def _casts(values: list[Pair]) -> Iterator[Hypothesis]:
    words = {token(value) for pair in values for value in pair}
    for name in ("string", "float", "boolean"):
        # Booleans have few spellings; many words cast to two by chance.
        if name != "boolean" or len(words) <= 6:
            yield Hypothesis({"cast": name}, True, "the same value in another JSON type")
    for name in EPOCH_UNITS:
        for old, new in ((name, "ISO8601"), ("ISO8601", name)):
            rule = {"datetime-format": {"old": old, "new": new}}
            yield Hypothesis(rule, True, "the same moment as a count and as text")


def _times(times: list[tuple[Instant, Instant]]) -> Iterator[Hypothesis]:
    span = most(sorted(abs(old.nanoseconds - new.nanoseconds) for old, new in times))
    is_mixed = any(old.is_aware != new.is_aware for old, new in times)
    note = "; one side has no zone" if is_mixed else ""
    if span == 0:
        why = "the same moment in another zone or spelling" + note
        yield Hypothesis({"datetime-format": "ISO8601"}, not is_mixed, why)
        return
    name = nice_duration(span)
    if name is not None:
        rule = {"datetime-format": "ISO8601", "datetime-tolerance": name}
        yield Hypothesis(rule, span <= 10 * SECOND and not is_mixed, f"at most {name} apart{note}")


def _enum_map(both: list[Pair]) -> Iterator[Hypothesis]:
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    values: dict[str, Any] = {}
    for old, new in both:
        if old is None or isinstance(old, float):
            continue
        values[token(new)] = new
        seen[_word(old)][token(new)] += 1
    if not 1 <= len(seen) <= _MAX_WORDS or len(seen) * 4 > len(both):
        return
    chosen = {word: counts.most_common(1)[0] for word, counts in seen.items()}
    if sum(count for _, count in chosen.values()) < SHARE * len(both):
        return
    common = {word: values[new] for word, (new, count) in chosen.items() if count >= _ENUM_SIGHTINGS}
    mapping = {word: new for word, new in common.items() if _word(new) != word}
    if not mapping:
        return
    # A word of Old that means another one in New: a flip, or a swap.
    turns = bool({_word(new) for new in mapping.values()} & seen.keys())
    notes = {
        "several old values become one": len({new for new, _ in chosen.values()}) < len(chosen),
        "values change places within one vocabulary": turns,
        "only one value was seen": len(seen) < 2,
    }
    held = [note for note, holds in notes.items() if holds]
    why = "; ".join([f"{len(mapping)} values, each with one counterpart", *held])
    yield Hypothesis({"enum-map": mapping}, not held, why, rare_is_fine=True)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else token(value)


def _numbers(values: list[Pair], enough: float, is_crossed: bool) -> Iterator[Hypothesis]:
    plain = all(kind_of(old) == "number" == kind_of(new) for old, new in values)
    if not plain and not is_crossed:
        return
    read = [(number(old), number(new)) for old, new in values]
    found = [(old, new) for old, new in read if old is not None and new is not None]
    for hypothesis in (*scales(found), *_rounding(found), *_spread(found)) if len(found) >= enough else ():
        yield hypothesis if plain else hypothesis._replace(rule={"cast": "float", **hypothesis.rule})


def scales(found: list[tuple[Decimal, Decimal]]) -> Iterator[Hypothesis]:
    """Numbers of Old times a usual factor."""
    ratios = Counter((new / old).normalize() for old, new in found if old)
    if not ratios or len({old for old, _ in found}) < 5:
        return
    factor, count = ratios.most_common(1)[0]
    if count >= SHARE * sum(ratios.values()) and factor in _SCALES:
        value = int(factor) if factor >= 1 else float(factor)
        yield Hypothesis({"scale": value}, False, f"New is Old times {value}")


def _rounding(found: list[tuple[Decimal, Decimal]]) -> Iterator[Hypothesis]:
    for places in range(7):
        half = Decimal(1).scaleb(-places) / 2
        if sum(abs(new - old) <= half and new == round(new, places) for old, new in found) >= SHARE * len(found):
            large = sum(abs(new - old) > abs(old) / 1000 for old, new in found) > 0.2 * len(found)
            sure = places > 0 and not (large and places < 2)
            yield Hypothesis({"precision": float(half)}, sure, f"New is rounded to {places} decimals")
            return


def _spread(found: list[tuple[Decimal, Decimal]]) -> Iterator[Hypothesis]:
    distances = sorted(abs(new - old) for old, new in found)
    limit = nice_limit(most(distances))
    size = sorted(abs(old) for old, _ in found)[len(found) // 2] or Decimal(1)
    if limit > size / 20:
        return
    up = sum(new > old for old, new in found)
    is_sided = min(up, len(found) - up) < 0.1 * len(found)
    beyond = [distance for distance in distances if distance > limit]
    # What is beyond must be far away, or the spread has no edge.
    sure = limit <= size / 1000 and not is_sided and (not beyond or min(beyond) > 4 * limit)
    why = f"at most {limit} apart" + ("; always to the same side" if is_sided else "")
    yield Hypothesis({"precision": float(limit)}, sure, why)


def shape_of(values: list[Any]) -> str | None:
    """A pattern that all texts share; None where they have no shape in common.

    >>> shape_of(["req_12", "req_9"])
    '^req_[0-9]{1,2}$'
    """
    if not values or not all(isinstance(value, str) and value for value in values):
        return None
    if all(re.match(_UUID, value) for value in values):
        return _UUID
    prefix = re.match(r"(?:[A-Za-z]+[_:-])?", commonprefix(values))  # noqa: RUF071 - of characters
    start = prefix.group() if prefix is not None else ""
    rest = [value[len(start) :] for value in values]
    shortest, longest = min(map(len, rest)), max(map(len, rest))
    if shortest == 0:
        return None
    for charset in _CHARSETS:
        if all(re.fullmatch(f"{charset}+", value) for value in rest):
            count = f"{{{shortest}}}" if shortest == longest else f"{{{shortest},{longest}}}"
            return f"^{re.escape(start)}{charset}{count}$"
    return None
