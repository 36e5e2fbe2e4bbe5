"""Writes the options of `dl.diff` in docs/reference/python.md from the table of options; `--check` compares it."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_args

from generated import DOCS, code, plain, table, with_part, write_or_check

from driftline import tables
from driftline.tables import _options

PAGE = DOCS / "reference/python.md"
SIDES = "; `{0}_a` and `{0}_b` for one input alone"


def options() -> str:
    """A table for each group of options: name, type, default, meaning."""
    groups = _options.OPTION_GROUPS
    assert {name for names in groups.values() for name in names} == set(_options.OPTIONS), "an option is in no group"
    heads = ["option", "type", "default", "meaning"]
    shown = {title: [row(name) for name in names if name in _options.DEFAULTS] for title, names in groups.items()}
    parts = [f"**{title}**\n\n{table(heads, rows)}" for title, rows in shown.items()]
    return "\n\n".join(parts)


def row(name: str) -> list[str]:
    option = _options.OPTIONS[name]
    shown = "key" if name == "key_columns" else name
    default = _options.DEFAULTS[name]
    usual = default[0] if option.each_side else default
    text = re.sub(r"--([a-z-]+)", lambda flag: flag[1].replace("-", "_"), option.help)
    text = text.replace("; may be repeated.", ".").replace(" May be repeated.", "")
    text = plain(text).rstrip(".…") + (SIDES.format(name) if option.each_side else "") + "."
    return [f"`{shown}`", code(type_of(shown)), "–" if usual in (None, ()) else code(repr(usual)), text]


def type_of(name: str) -> str:
    """The annotation of an option, names of literals spelled out."""
    text: str = _options.DiffRules.__annotations__[name].__forward_arg__
    known: dict[str, Any] = vars(_options)
    return re.sub(r"\b[A-Z]\w+\b", lambda word: literal(word[0], known.get(word[0])), text)


def literal(word: str, kind: Any) -> str:
    words = get_args(kind)
    return " | ".join(map(repr, words)) if words and all(isinstance(each, str) for each in words) else word


def main() -> None:
    page = with_part(PAGE, "options of diff", options())
    named = {name for name in inspect.signature(tables.diff).parameters if name not in ("a", "b", "rules")}
    missing = [name for name in sorted(named) if f"| `{name}` |" not in page]
    assert not missing, f"{PAGE.name} does not describe {', '.join(missing)} of dl.diff"
    write_or_check({PAGE: page})


if __name__ == "__main__":
    main()
