"""Suggestions for people: a schema with the rest commented out, and a page to look through them (payloads §11.5)."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from driftline.payloads.schema_text import is_json_text, load_schema, yaml_text
from driftline.payloads.suggesting.applying import apply_rules
from driftline.payloads.suggesting.evidence import EXAMPLES, Suggestion, shown
from driftline.payloads.values import spelled

_HEAD = """\
# Rules suggested from observed pairs. A loosening rule hides differences: look before you accept one,
# with `driftline payloads suggest … --accept ID`."""
_TAIL = "# Suggestions; what follows is written anew by each `driftline payloads suggest`."
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
section { border: 1px solid #8884; border-radius: .5rem; padding: .5rem 1rem; margin: 1rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: .3rem 0; } pre { background: #8882; padding: .5rem; overflow: auto; }
.sure { border-left: .4rem solid #2a7; }
.review { border-left: .4rem solid #c80; } .finding { border-left: .4rem solid #c33; }
"""


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
    parts = [
        f"<section class='{one.level}'><h2>{escape(one.path)}</h2><p>{escape(one.level)}"
        f"{', accepted' if id(one) in taken else ''}</p><pre>{escape(chr(10).join(_lines(one)))}</pre></section>"
        for one in suggestions
    ]
    counts = ", ".join(
        f"{sum(one.level == level for one in suggestions)} {level}" for level in ("sure", "review", "finding")
    )
    body = f"<h1>Suggested rules</h1><p>{counts}; {len(chosen)} accepted.</p>{''.join(parts)}"
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>Suggested rules</title>"
    return (
        f"<!doctype html><html lang='en'><head>{head}<style>{_STYLE}</style></head><body>{body}</body></html>".encode(
            "utf-8", "backslashreplace"
        )
    )
