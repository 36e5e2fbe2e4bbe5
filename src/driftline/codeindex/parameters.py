"""Whether a call that was good is still good: parameters of loosely typed languages compared (index diffs §8.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_PARAMETER = re.compile(r"(\*{0,2}|\.\.\.|&)\s*([\w$]+)(:)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: how it is given (`both`, `positional`, `keyword`, `rest`, `keywords`) and whether it must be."""

    name: str
    how: str
    required: bool


def broken_parameters(language: str | None, before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The reasons why a caller of the old parameters may fail with the new ones.

    >>> broken_parameters("python", ["a", "b=1"], ["a", "c=2", "*", "b=1"])
    ['b is keyword-only']
    >>> broken_parameters("python", ["self", "a"], ["self", "a: int", "b=None"])
    []
    """
    old, new = _parse(language, before), _parse(language, after)
    found = {parameter.name: parameter for parameter in new if parameter.how not in ("rest", "keywords")}
    kinds = {parameter.how for parameter in new}
    reasons: list[str] = []
    for parameter in old:
        reasons += _lost(parameter, old, new, found, kinds)
    known = {parameter.name for parameter in old}
    if not any("removed" in reason for reason in reasons):
        fresh = [parameter for parameter in found.values() if parameter.name not in known and parameter.required]
        reasons += [f"{parameter.name} is new and required" for parameter in fresh if language != "javascript"]
    return reasons


def _lost(
    parameter: Parameter,
    old: Sequence[Parameter],
    new: Sequence[Parameter],
    found: dict[str, Parameter],
    kinds: set[str],
) -> list[str]:
    name, how = parameter.name, parameter.how
    if how in ("rest", "keywords"):
        return [] if how in kinds else [f"{'*' if how == 'rest' else '**'}{name} removed"]
    if name not in found:
        swallowed = {"keyword": "keywords" in kinds, "positional": "rest" in kinds or _has_place(name, old, new)}
        return [] if swallowed.get(how, {"rest", "keywords"} <= kinds) else [f"{name} removed"]
    match = found[name]
    if match.required and not parameter.required:
        return [f"{name} is now required"]
    if how != "keyword" and match.how == "keyword":
        return [f"{name} is keyword-only"]
    if how == "both" and match.how == "positional":
        return [f"{name} is positional-only"]
    places = _places(old), _places(new)
    moved = how != "keyword" and places[0].index(name) != places[1].index(name)
    return [f"{name} moved"] if moved else []


def _places(parameters: Sequence[Parameter]) -> list[str]:
    return [parameter.name for parameter in parameters if parameter.how in ("both", "positional")]


def _has_place(name: str, old: Sequence[Parameter], new: Sequence[Parameter]) -> bool:
    """A positional-only parameter may change its name as long as its place is there."""
    return _places(old).index(name) < len(_places(new))


def _parse(language: str | None, texts: Sequence[str]) -> list[Parameter]:
    parameters: list[Parameter] = []
    how = "both"
    slash = texts.index("/") if language == "python" and "/" in texts else -1
    for place, text in enumerate(texts):
        if text == "/":
            continue
        if text == "*":
            how = "keyword"
            continue
        found = _PARAMETER.match(text)
        stars, name = (found[1], found[2]) if found else ("", text)
        if stars in ("*", "..."):
            parameters.append(Parameter(name, "rest", False))
            how = "keyword"
        elif stars == "**":
            parameters.append(Parameter(name, "keywords", False))
        else:
            given = "positional" if place < slash else _ruby_how(language, text) or how
            parameters.append(Parameter(name, given, _is_required(language, text)))
    return parameters


def _ruby_how(language: str | None, text: str) -> str | None:
    return "keyword" if language == "ruby" and re.match(r"\w+:", text) else None


def _is_required(language: str | None, text: str) -> bool:
    if text.startswith("&"):
        return False
    return text.endswith(":") if language == "ruby" and re.match(r"\w+:", text) else "=" not in text
