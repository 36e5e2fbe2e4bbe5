"""Writes docs/reference/errors.md from the table of codes, `core/error_codes.toml`; `--check` compares it."""

from __future__ import annotations

import tomllib
from importlib import resources

from generated import DOCS, prose, table, write_or_check

PAGE = DOCS / "reference/errors.md"
HEAD = """# Error codes

Written from `core/error_codes.toml` by `make references`.

Every error has a stable `code`: in Python as `error.code`, on stderr as `error[code]: message`, with
`--error-format json` as a member. A code is written in lower case, with underscores. The codes of protocols are written
in capitals in HTTP responses, in reports of payloads and in JSON of index diffs, as their specifications say. In Python
both spellings are equal (`error.code == "SCHEMA_ERROR"` and `error.code == "schema_error"`), and `error.code.wire` is
the one that the protocol writes. Clients accept both.
"""
TITLES = {"protocols": "Protocols: gateway, payloads, index diffs", "general": "Commands and files"}


def codes() -> dict[str, dict[str, str]]:
    """The meaning of each code, by group."""
    return tomllib.loads(resources.files("driftline.core").joinpath("error_codes.toml").read_text("utf-8"))


def page() -> str:
    parts = [HEAD]
    for group, meanings in codes().items():
        in_capitals = group == "protocols"
        rows = [
            [f"`{code}`", *([f"`{code.upper()}`"] if in_capitals else []), prose(meaning)]
            for code, meaning in sorted(meanings.items())
        ]
        heads = ["code", "in the protocol", "meaning"] if in_capitals else ["code", "meaning"]
        parts.append(f"## {TITLES.get(group, group.capitalize())}\n\n{table(heads, rows)}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    write_or_check({PAGE: page()})
