"""The form of a diff's options, made from the one table of them (`tables/_options.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftline.tables._options import OPTIONS, Option, check_options

GROUPS: dict[str, tuple[str, ...]] = {
    "Values": ("normalize", "tolerance", "types", "null"),
    "Columns": ("ignore", "only", "rename", "header_mode"),
    "Rows": ("duplicates", "empty_key", "ignore_row_order"),
    "CSV files": ("delimiter", "encoding", "no_header", "duplicate_columns", "ragged", "skip_blank_lines"),
}
# The key has a place of its own; the others shape an output that the console does not write, or a check.
NOT_OFFERED = ("key_columns", "mode", "emit_unchanged", "column_stats", "fail_if", "changed_columns_only")
RULES = (*GROUPS["Values"], "ignore", "only", "rename")  # what a preview leaves out to show what they do


@dataclass(frozen=True)
class Field:
    """One option as a field of the form, with what is filled in."""

    name: str
    option: Option
    value: Any = None

    @property
    def label(self) -> str:
        """The name as the command line writes it."""
        return (self.option.flag or self.name).removeprefix("--").replace("_", "-")

    @property
    def control(self) -> str:
        """Which control takes such a value."""
        if self.option.given == "flag":
            return "checkbox"
        if self.option.given == "text":
            return "select" if self.option.words else "input"
        return "lines"

    @property
    def lines(self) -> str:
        """Several values, one a line; the empty word is visible."""
        return "\n".join(line or '""' for line in self.value or ())


def form_groups(chosen: Mapping[str, Any]) -> list[tuple[str, list[Field]]]:
    """The fields by group, filled in with what was chosen before."""
    return [
        (title, [Field(name, OPTIONS[name], chosen.get(name)) for name in names]) for title, names in GROUPS.items()
    ]


def options_of(form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The options that a form asks for, checked; what is left empty is left out."""
    options: dict[str, Any] = {"key": list(form["key"])} if form.get("key") else {}
    for names in GROUPS.values():
        for name in names:
            field = Field(name, OPTIONS[name])
            given = form.get(name, [""])[0]
            if field.control == "checkbox" and name in form:
                options[name] = True
            elif field.control == "lines" and (lines := _lines(given)):
                options[name] = lines
            elif field.control in ("input", "select") and given not in ("", *field.option.words[:1]):
                options[name] = given
    check_options(**options)
    return options


def _lines(text: str) -> list[str]:
    return ["" if line == '""' else line for line in text.splitlines() if line.strip()]
