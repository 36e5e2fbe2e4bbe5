"""The tables of the embedded log: made in a new file, brought up to date in one that an earlier version made."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import apsw

from driftline.deltas._merge import RowKey
from driftline.errors import InputError
from driftline.gateway.log import StoredRow, StoredVersion

FORMAT_VERSION = 2

_SCHEMA = """
CREATE TABLE log (
    seq INTEGER PRIMARY KEY, hlc INTEGER NOT NULL, arrival INTEGER NOT NULL, op INTEGER NOT NULL,
    delta_id BLOB NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX log_identity ON log (hlc, delta_id, op);
CREATE TABLE spans (span INTEGER PRIMARY KEY, max_hlc INTEGER NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tables (folded TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
"""
_COUNTERS = ("clock", "last", "pruned", "horizon", "flushed", "flushing", "config", "rules_number")
# What format 2 adds to format 1. Records of earlier logs came through pushes, so none of them is foreign.
_SECOND_FORMAT = """
ALTER TABLE log ADD COLUMN is_foreign INTEGER NOT NULL DEFAULT 0;
INSERT OR IGNORE INTO counters VALUES ('pruned_arrival', 0), ('projected', 0), ('projected_rules', 0);
INSERT INTO documents VALUES ('was', '[]');
CREATE TABLE IF NOT EXISTS rows (
    name TEXT NOT NULL, row_id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (name, row_id)
) WITHOUT ROWID;
CREATE TABLE row_versions (
    name TEXT NOT NULL, row_id TEXT NOT NULL, seq INTEGER NOT NULL, live INTEGER NOT NULL, watched TEXT NOT NULL,
    PRIMARY KEY (name, row_id, seq)
) WITHOUT ROWID;
"""


def prepare(db: apsw.Connection, name: str) -> None:
    """Make the tables, or bring them to the present format, inside a transaction."""
    version = db.execute("PRAGMA user_version").get
    if version > FORMAT_VERSION:
        raise InputError(
            f"{name} has log format {version}; formats up to {FORMAT_VERSION} are understood: "
            "open it with the driftline that wrote it, or a newer one"
        )
    if version == 0:
        db.execute(_SCHEMA)
        db.executemany("INSERT INTO counters VALUES (?, 0)", [(name,) for name in _COUNTERS])
        db.execute("INSERT INTO documents VALUES ('log_id', ?)", (secrets.token_hex(8).encode(),))
    if version == 1:
        # The lake knows a log of that format by its gateway's name alone.
        db.execute("INSERT INTO documents VALUES ('unnamed_in_lake', '1')")
    if version < FORMAT_VERSION:
        db.execute(_SECOND_FORMAT)
        _take_histories_out(db)
        db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def version_rows(rows: Mapping[RowKey, StoredRow]) -> Iterator[tuple[Any, ...]]:
    """The versions of rows as they are inserted."""
    for key, row in rows.items():
        yield from ((*key, each.seq, each.live, each.watched) for each in row.versions)


def _take_histories_out(db: apsw.Connection) -> None:
    """Format 1 kept a row's versions inside its fold."""
    for name, row_id, body in list(db.execute("SELECT name, row_id, body FROM rows")):
        plain = json.loads(body)
        history = [StoredVersion(seq, live, json.dumps(columns)) for seq, live, columns in plain.pop("history")]
        shown = (history[-1].live, history[-1].watched) if history else None
        row = StoredRow(json.dumps({**plain, "shown": shown}).encode(), tuple(history))
        db.execute("UPDATE rows SET body = ? WHERE name = ? AND row_id = ?", (row.fold, name, row_id))
        db.executemany("INSERT INTO row_versions VALUES (?, ?, ?, ?, ?)", version_rows({(name, row_id): row}))
