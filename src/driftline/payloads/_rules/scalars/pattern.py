"""`x-migration-pattern`: both texts match a regular expression; they are not compared with each other."""

from __future__ import annotations

from typing import Any

from driftline.payloads._rules.scalars.parts import BadValueError, Constants, End, Verdict, differ
from driftline.payloads._values.patterns import QUICK_TEXT_LENGTH, PatternError, PatternTimeoutError, SafePattern
from driftline.payloads._values.values import Value


def read_pattern(value: Value) -> SafePattern:
    """The regular expression that a schema gives."""
    if not isinstance(value, str):
        raise BadValueError("must be a regular expression")
    try:
        return SafePattern(value)
    except PatternError as error:
        raise BadValueError(f"must be a regular expression ({error})") from None


def pattern(given: SafePattern, rule: str | None) -> End:
    """Texts of one shape."""

    def verdict(left: str, right: str, old: Value, new: Value) -> Verdict | None:
        try:
            wrong = [side for side, text in (("Old", left), ("New", right)) if not given.match(text)]
        except PatternTimeoutError:
            slow = "The pattern took too long; the field is compared strictly"
            found = differ(old, new, None) if old != new else Verdict(None, "", rule)
            return found._replace(warning=slow, warning_rule=rule, warns_once=given.text)
        if not wrong:
            return None
        verb = "does" if len(wrong) == 1 else "do"
        message = f"{' and '.join(wrong)} {verb} not match the pattern {given.text}"
        return Verdict("PATTERN_MISMATCH", message, rule)

    def token(text: str) -> Any:
        try:
            return ("pattern",) if given.match(text) else text
        except PatternTimeoutError:
            return text

    def code(constants: Constants) -> str | None:
        if given.unlimited_match is None:
            return None
        match = constants.add(given.unlimited_match)
        short = f"len({{l}}) <= {QUICK_TEXT_LENGTH} >= len({{r}})"
        return f"{short} and {match}({{l}}) is not None and {match}({{r}}) is not None"

    return End(verdict, token, code=code, is_reflexive=False)
