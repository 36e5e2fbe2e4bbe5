"""The parts that scalar rules are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from driftline.payloads._values.values import Value, WrittenNumber, decimal_of, spelled

Change = Callable[[Any], Any]  # steps and ends get values of the types they are for
Token: TypeAlias = object  # equal for values that match


class BadValueError(ValueError):
    """The value of an extension is not of the kind it takes."""


class Constants:
    """The namespace of a generated function; everything that comes from a schema is a value in it, never text."""

    def __init__(self, **given: object) -> None:
        # A dict and no subclass: the interpreter looks up globals quickly only there.
        self._values: dict[str, object] = dict(given)
        self._names: dict[str, str] = {}

    def add(self, value: object) -> str:
        """The name of a new constant."""
        name = f"c{len(self._values)}"
        self._values[name] = value
        return name

    def name_of(self, member: str) -> str:
        """The name of the constant that holds a member's name."""
        if member not in self._names:
            self._names[member] = self.add(member)
        return self._names[member]

    def function(self, source: str, name: str) -> Any:
        """The function that a source text defines in this namespace."""
        exec(compile(source, f"<driftline {name}>", "exec"), self._values)  # noqa: S102 - fixed lines, see generated.py
        return self._values[name]


@dataclass(frozen=True, slots=True)
class Step:
    """One preparation of a value; `old` and `new` are None where a side is left as it is, and may raise `CastError`.

    `code` is the text of both sides for generated code (`{x}` is the value, `{c}` the constant that `needs` holds);
    without it generated code calls the step's functions.
    """

    old: Change | None
    new: Change | None
    code: tuple[str, str] | None = None
    needs: object = None
    changes_type: bool = False  # then the schema's type says nothing about the raw value

    @property
    def is_symmetric(self) -> bool:
        """Whether equal values stay equal without an entry in the report."""
        return self.old is self.new and self.code is not None


class Verdict(NamedTuple):
    """What an end reports; without a `type` it is only a warning."""

    type: str | None
    message: str
    rule: str | None
    warning: str | None = None
    warning_rule: str | None = None
    warns_once: str | None = None  # what makes the warning the same one


@dataclass(frozen=True, slots=True)
class End:
    """What decides about two prepared values of one JSON type.

    `verdict` gets the prepared and the raw values; None means that they match. Values with equal `token`s match (or
    differ alike from everything); values that match have equal `coarse` tokens. An end with a `width` is a tolerance:
    values match when their `axis` numbers are no further apart.
    """

    verdict: Callable[[Any, Any, Any, Any], Verdict | None]
    token: Change
    coarse: Change | None = None
    axis: Callable[[Any], float | None] | None = None
    width: float = 0.0
    code: Callable[[Constants], str | None] | None = None  # an expression over {l} and {r}
    problem: Callable[[Any], str | None] | None = None  # what is wrong with one value, whatever its partner is
    is_reflexive: bool = True  # a value matches itself
    for_new: End | None = None  # the tokens, axis and problems of New's values, where they are read otherwise

    @property
    def is_tolerant(self) -> bool:
        """Whether values with different tokens can match."""
        return self.coarse is not None


def differ(old: Value, new: Value, rule: str | None, warning: str | None = None) -> Verdict:
    """Two values that should be equal are not."""
    return Verdict("VALUE_MISMATCH", f"Values differ: {spelled(old)} != {spelled(new)}", rule, warning)


def scalar_token(value: Value) -> Token:
    """A token that tells JSON types apart: 1 and 1.0 are equal, 1 and true are not."""
    if type(value) is bool:
        return ("boolean", value)
    return decimal_of(value) if isinstance(value, WrittenNumber) else value
