"""Suggestions for people: a schema with the rest commented out, and a page to look through them (payloads §11.5)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from driftline.payloads.schema_text import is_json_text, load_schema, yaml_text
from driftline.payloads.suggesting.applying import apply_rules, nested
from driftline.payloads.suggesting.evidence import EXAMPLES, Pair, Suggestion, shown
from driftline.payloads.values import spelled
from driftline.sinks._pages import page_bytes

_HEAD = """\
# Rules suggested from observed pairs. A loosening rule hides differences: look before you accept one,
# with `driftline payloads suggest … --accept ID`."""
_TAIL = "# Suggestions; what follows is written anew by each `driftline payloads suggest`."
_LONGEST_VALUE = 200


def rules_yaml(suggestions: list[Suggestion], chosen: list[Suggestion], base: str = "", root: str | None = None) -> str:
    """A schema (`base`, or a new one) with the chosen rules; all others stand below as comments, with what speaks for
    and against them."""
    given = yaml_text(load_schema(base).content) if is_json_text(base) else base.partition(_TAIL)[0].rstrip()
    schema = apply_rules(f"{given}\n" if given else "", chosen, root).after or "type: object\n"
    lines = [*([] if given else [_HEAD]), schema.rstrip("\n"), "", _TAIL]
    for one in chosen:
        lines += ["", f"# accepted {one.id}: {_counts(one)}; {one.why}"]
    for one in suggestions:
        if one not in chosen:
            lines += ["", *(f"# {line}" for line in _lines(one))]
    return "\n".join(lines) + "\n"


def _counts(one: Suggestion) -> str:
    return f"explains {one.explained} of {one.differing} differing, {one.seen} seen"


def _lines(one: Suggestion) -> Iterator[str]:
    yield f"{one.level} {one.id}"
    yield f"  {_counts(one)}; {one.why}"
    for name, value in one.rule.items():
        yield f"  x-migration-{name}: {spelled(value)}"
    if one.hides:
        yield f"  hides: {one.hides}"
    for words, pairs in (("example", one.examples), ("counterexample", one.counterexamples)):
        for old, new in pairs[:EXAMPLES]:
            yield f"  {words}: {spelled(shown(old))} -> {spelled(shown(new))}"
    for rival in one.rivals:
        yield f"  rival: {rival}"


def suggestions_page(suggestions: list[Suggestion], chosen: list[Suggestion]) -> bytes:
    """A page that needs nothing else."""
    taken = {id(one) for one in chosen}
    shown = [_section(one, is_accepted=id(one) in taken) for one in suggestions]
    return b"".join(
        page_bytes("suggestions.html", suggestions=shown, counts=count_words(suggestions), accepted=len(chosen))
    )


def count_words(suggestions: list[Suggestion]) -> str:
    """How many there are of each level."""
    return ", ".join(
        f"{sum(one.level == level for one in suggestions)} {level}" for level in ("sure", "review", "finding")
    )


def _section(one: Suggestion, *, is_accepted: bool) -> dict[str, Any]:
    return {
        "path": one.path,
        "level": one.level,
        "accepted": is_accepted,
        "counts": _counts(one),
        "why": one.why,
        "yaml": yaml_text(nested(one.place, one.extensions)) if one.rule else "",
        "hides": one.hides,
        "flag": shlex.quote(one.id),
        "pairs": [("for example", _spelled(one.examples)), ("but also", _spelled(one.counterexamples))],
        "rivals": one.rivals,
    }


def _spelled(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(_short(old), _short(new)) for old, new in pairs[:EXAMPLES]]


def _short(value: object) -> str:
    text = spelled(shown(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
