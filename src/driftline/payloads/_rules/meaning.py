"""All rules of a field together: what a scalar is compared as, and how (payloads §4).

The order is: empty string as null, then the steps in the order of `scalars.RULES` (enum map, cast, epoch,
scale); then, for texts, trimming and folding; then the end for the JSON type, which is equality unless a rule has one.
"""

from __future__ import annotations

from typing import Any

from driftline.payloads._rules import scalars
from driftline.payloads._rules.extensions import FieldRules
from driftline.payloads._values.values import NEW, OLD, CastError, Value, kind_of, same_number

# The rules that an entry about unequal values names, the most specific first; a rule with an end names itself.
_EQUALITY_RULES = (
    *(name for name, kind in scalars.RULES.items() if kind.step is not None and kind.end is None),
    *("strategy", "case-insensitive", "trim-whitespace"),
)


class Meaning:
    """What the rules of a field mean for scalars; made once for each plan."""

    __slots__ = ("_alters", "_changes", "changes_type", "ends", "has_steps", "sides", "steps", "texts")

    def __init__(self, rules: FieldRules, *, empty_as_null: bool = False) -> None:
        given = rules.scalars
        found = [kind.step(given[name]) for name, kind in scalars.RULES.items() if kind.step and name in given]
        self.steps = [scalars.EMPTY_STRING_AS_NULL] * empty_as_null + [step for step in found if step is not None]
        self._changes = (
            [step.old for step in self.steps if step.old is not None],
            [step.new for step in self.steps if step.new is not None],
        )
        self.ends = _ends(rules)
        # A pattern has a flag for upper and lower case, and points in time have no case.
        folds = rules.case_insensitive and self.ends["string"] is self.ends["null"]
        self.texts: list[scalars.Change] = [scalars.TRIM] * rules.trim + [scalars.FOLD] * folds
        self._alters = any(step is not scalars.EMPTY_STRING_AS_NULL for step in self.steps)
        self.has_steps = bool(self.steps)
        self.changes_type = any(step.changes_type for step in self.steps)
        self.sides = (self.ends, {name: end.for_new or end for name, end in self.ends.items()})

    def prepared(self, value: Value, side: int) -> Value:
        """A value after the steps of its side; raises `CastError`."""
        for change in self._changes[side]:
            value = change(value)
        return value

    def prepared_or_raw(self, value: Value, side: int) -> Value:
        """The same, or the raw value where a step fails."""
        try:
            return self.prepared(value, side)
        except CastError:
            return value

    def trimmed(self, value: Any) -> Any:
        """A value after the steps for texts, which are the same on both sides."""
        for change in self.texts if isinstance(value, str) else ():
            value = change(value)
        return value

    def comparable(self, value: Value, side: int) -> Any:
        """What the end gets: prepared, and trimmed where it is a text; raises `CastError`."""
        return self.trimmed(self.prepared(value, side))

    def verdict(self, left: Value, right: Value, old: Value, new: Value) -> scalars.Verdict | None:
        """What is reported about two prepared scalars of one JSON type."""
        if self.texts:
            left, right = self.trimmed(left), self.trimmed(right)
        return self.ends[kind_of(left)].verdict(left, right, old, new)

    @property
    def quick_text(self) -> scalars.Change | None:
        """What makes texts, but for the empty one, comparable by equality, where nothing else is done to them."""
        if self._alters or not self.texts or self.ends["string"].token is not scalars.scalar_token:
            return None
        return self.texts[0] if len(self.texts) == 1 else self.trimmed

    @property
    def near(self) -> float | None:
        """How far apart matching numbers can be, where nothing else is done to them."""
        number = self.ends["number"]
        return number.width if number.is_tolerant and not self._alters else None

    @property
    def needs_pairwise(self) -> bool:
        """Whether values with different tokens can match."""
        return any(end.is_tolerant for end in self.ends.values())

    @property
    def is_plain(self) -> bool:
        """Whether scalars need nothing but equality."""
        ends = self.ends.values()
        return not (self.steps or self.texts or self.needs_pairwise) and all(end.is_reflexive for end in ends)

    @property
    def keeps_texts(self) -> bool:
        """Whether texts, but for the empty one, match only where they are equal."""
        return not (self.texts or self._alters) and self.ends["string"].token is scalars.scalar_token

    @property
    def keeps_equal(self) -> bool:
        """Whether identical values match without an entry, so that no rule needs to be evaluated."""
        return all(step.keeps_equal for step in self.steps) and all(end.is_reflexive for end in self.ends.values())

    def tokens(self, side: int, *, coarse: bool) -> scalars.Change:
        """The function that gives the token of a raw scalar."""
        if self.is_plain:
            return scalars.scalar_token
        ends = self.sides[side]

        def token(value: Value) -> scalars.Token:
            value = self.trimmed(self.prepared_or_raw(value, side))
            end = ends.get(kind_of(value))
            if end is None:
                return scalars.scalar_token(value)
            return end.coarse(value) if coarse and end.coarse is not None else end.token(value)

        return token

    def place(self, value: Value, side: int) -> float | None:
        """The place of a raw scalar on the axis of its tolerance, where it has one."""
        try:
            value = self.comparable(value, side)
        except CastError:
            return None
        end = self.sides[side].get(kind_of(value))
        return None if end is None or end.axis is None else end.axis(value)

    @property
    def width(self) -> float:
        """How far apart on the axis matching values can be."""
        return max(end.width for end in self.ends.values())

    def problem(self, value: Value, side: int) -> str | None:
        """What is wrong with one value, whatever its partner is."""
        try:
            value = self.comparable(value, side)
        except CastError as error:
            return f"The cast failed ({error}); the raw values are compared"
        end = self.sides[side].get(kind_of(value))
        found = end.problem(value) if end is not None and end.problem is not None else None
        return f"{('Old', 'New')[side]} {found}" if found is not None else None

    def for_old(self, new: Value) -> Value:
        """A raw value of Old that matches one of New: New's own, or what Old's steps make the same of."""
        if self.agree(new, new):
            return new
        try:
            value = self.prepared(new, NEW)
        except CastError:
            return new
        for step in reversed(self.steps):
            value = value if step.undo is None else step.undo(value)
        return value if self.agree(value, new) else new

    def agree(self, left: Value, right: Value) -> bool:
        """Whether two raw scalars match without an entry."""
        before, after = left, right
        if self._alters or left == "" or right == "":
            try:
                before, after = self.prepared(left, OLD), self.prepared(right, NEW)
            except CastError:
                return False
        kind = kind_of(before)
        if kind != kind_of(after) or kind not in self.ends:
            return False
        return self.verdict(before, after, left, right) is None


def _ends(rules: FieldRules) -> dict[str, scalars.End]:
    rule = next((given for name in _EQUALITY_RULES if (given := rules.text(name)) is not None), None)
    same = _equality(rule)
    number = _equality(rule, rules.text("datetime-format") or rules.text("datetime-tolerance"))
    ends = {"string": same, "number": number, "boolean": same, "null": same}
    for name, kind in scalars.RULES.items():
        if kind.end is not None and name in rules.scalars:
            json_type, make = kind.end
            ends[json_type] = make(rules.scalars[name], rules.text(name))
    return ends


def _equality(rule: str | None, time_rule: str | None = None) -> scalars.End:
    """Equal scalars; of numbers 1 equals 1.0, integers of any size and decimals of any length are exact.

    Numbers under a rule for dates are most likely counts since 1970, which that rule does not read.
    """
    hint = None if time_rule is None else "Numbers are no dates here (x-migration-datetime-format: epoch reads them)"

    def verdict(left: Value, right: Value, old: Value, new: Value) -> scalars.Verdict | None:
        if same_number(left, right):
            return None
        found = scalars.differ(old, new, rule, hint)
        return found if time_rule is None else found._replace(warning_rule=time_rule)

    return scalars.End(verdict, scalars.scalar_token)


STRICT = Meaning(FieldRules())
