"""Two databases compared as SQLite describes them, with no code of driftline: schema by pragmas and tokens, rows."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

_TOKEN = re.compile(r"""\s+|--[^\n]*|/\*.*?\*/|('(?:[^']|'')*'|"(?:[^"]|"")*"|\w+|[^\w\s])""", re.DOTALL)


def run_shell(database: Path, script: Path | bytes) -> None:
    """Run a script with the plain SQLite shell; any message is a failure."""
    text = script if isinstance(script, bytes) else script.read_bytes()
    done = subprocess.run(["sqlite3", str(database)], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b""), (done.stderr + done.stdout).decode()


def words(text: str | None) -> list[str]:
    """The tokens of a statement, without blanks and comments."""
    return [token for token in _TOKEN.findall(text or "") if token]


def _broken_keys(connection: sqlite3.Connection) -> int | str:
    try:
        return len(connection.execute("PRAGMA foreign_key_check").fetchall())
    except sqlite3.OperationalError:
        return "a foreign key refers to no key at all"


def described(path: Path, *, rows: bool = True) -> dict[str, Any]:
    """Everything that must be equal after a script: what pragmas say, tokens of definitions, rows and checks."""
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    found: dict[str, Any] = {"tables": {}, "objects": {}}
    text = lambda value: value.decode() if isinstance(value, bytes) else value  # noqa: E731
    listed = connection.execute("SELECT name, type, ncol, wr, strict FROM pragma_table_list WHERE schema = 'main'")
    for name, kind, *traits in [tuple(map(text, row)) for row in listed.fetchall()]:
        if name.startswith("sqlite_") or kind == "shadow":
            continue
        ask = lambda pragma, name=name: sorted(  # noqa: E731
            map(repr, connection.execute(f"SELECT * FROM pragma_{pragma}(?)", (name,)).fetchall())
        )
        indexes = {
            text(row[1]): (row[2:], connection.execute("SELECT * FROM pragma_index_xinfo(?)", (row[1],)).fetchall())
            for row in connection.execute("SELECT * FROM pragma_index_list(?)", (name,))
        }
        quoted = '"' + name.replace('"', '""') + '"'
        content = connection.execute(f"SELECT * FROM {quoted}").fetchall() if rows and kind != "view" else []
        found["tables"][name] = {
            "kind": (kind, traits),
            "columns": [] if kind == "view" else ask("table_xinfo"),
            "foreign keys": sorted(row.split(",", 1)[1] for row in ask("foreign_key_list")),
            "indexes": sorted(
                repr((key if not key.startswith("sqlite_") else "", value)) for key, value in indexes.items()
            ),
            "rows": sorted(map(repr, content)),
        }
    for kind, name, body in connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"):
        tokens = words(text(body))
        # ALTER TABLE leaves a table's name in quotes.
        found["objects"][text(kind), text(name)] = tokens[4:] if kind == b"table" else tokens
    shadows = {text(n) for (n,) in connection.execute("SELECT name FROM pragma_table_list WHERE type = 'shadow'")}
    found["objects"] = {
        key: value
        for key, value in found["objects"].items()
        if key[1] not in shadows and not key[1].startswith("sqlite_")
    }
    found["integrity"] = connection.execute("PRAGMA integrity_check").fetchall()
    found["broken keys"] = _broken_keys(connection)
    found["versions"] = [connection.execute(f"PRAGMA {n}").fetchone() for n in ("user_version", "application_id")]
    connection.close()
    return found
