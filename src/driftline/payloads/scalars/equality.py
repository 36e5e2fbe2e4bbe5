"""Equality: where no rule says otherwise, and after rules that prepare values."""

from __future__ import annotations

from driftline.payloads.scalars.parts import End, Verdict, differ, scalar_token
from driftline.payloads.values import Value, same_number


def equality(rule: str | None) -> End:
    """Strings, booleans and null."""

    def verdict(left: Value, right: Value, old: Value, new: Value) -> Verdict | None:
        return None if left == right else differ(old, new, rule)

    return End(verdict, scalar_token, code=lambda constants: "{l} == {r}")


def number_equality(rule: str | None, time_rule: str | None = None) -> End:
    """Numbers: 1 equals 1.0, integers of any size and decimals of any length are exact.

    Numbers under a rule for dates are most likely counts since 1970, which that rule does not read.
    """
    hint = None if time_rule is None else "Numbers are no dates here (x-migration-datetime-format: epoch reads them)"

    def verdict(left: Value, right: Value, old: Value, new: Value) -> Verdict | None:
        if same_number(left, right):
            return None
        found = differ(old, new, rule, hint)
        return found if time_rule is None else found._replace(warning_rule=time_rule)

    return End(verdict, scalar_token, code=lambda constants: "{l} == {r}")
