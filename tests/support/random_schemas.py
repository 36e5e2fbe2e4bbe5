"""Random databases, and random edits of their schemas and rows, from a seed."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import apsw

_TYPES = ["", "INTEGER", "TEXT", "REAL", "NUMERIC", "BLOB", "VARCHAR(10)", "TEXT COLLATE NOCASE", "DATETIME"]
_STRICT = ["INT", "INTEGER", "TEXT", "REAL", "BLOB", "ANY"]
_VALUES = [None, 0, 1, 2, -3, 2.5, 1.0, "a", "A", "b ", "é", "1", "1.0", "x'y", "l\r\nm", b"", b"\0a", 1e300, 2**62]
_KEYS = [
    "",
    "",
    "INTEGER PRIMARY KEY",
    "INTEGER PRIMARY KEY AUTOINCREMENT",
    "PRIMARY KEY",
    "TEXT COLLATE NOCASE PRIMARY KEY",
]
_NAMES = ["t", "U", "two words", 'v"q', "order"]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class RandomDatabase:
    """A database that is made and edited at random; statements that SQLite refuses are left out."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.connection = apsw.Connection(str(path))
        self.connection.execute("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF")

    def run(self, statement: str, values: tuple[object, ...] = ()) -> None:
        """Run a statement, whole or not at all."""
        with contextlib.suppress(apsw.Error):
            self.connection.execute(statement, values).fetchall()

    def names(self, kind: str) -> list[str]:
        """The names of all objects of a kind."""
        query = "SELECT name FROM sqlite_schema WHERE type = ? AND sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        return [str(name) for (name,) in self.connection.execute(query, (kind,))]

    def columns(self, table: str) -> list[str]:
        """The columns of a table that take values."""
        query = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0"
        return [str(name) for (name,) in self.connection.execute(query, (table,))]

    def create_table(self, name: str) -> None:
        """A table with some columns and constraints."""
        r = self.random
        strict = r.random() < 0.15
        key = "INTEGER PRIMARY KEY" if strict else r.choice(_KEYS)
        columns = [f"k {key}"] + [self._column(f"c{n}", strict) for n in range(r.randint(1, 4))]
        constraints = r.sample(
            ["CHECK (c0 <> 'z')", "UNIQUE (c0)", "FOREIGN KEY (c0) REFERENCES t(k)"], r.choice([0, 0, 1])
        )
        tail = "WITHOUT ROWID" if "PRIMARY" in key and "AUTO" not in key and r.random() < 0.2 else ""
        tail = ", ".join(filter(None, [tail, "STRICT" if strict else ""]))
        if r.random() < 0.3:
            r.shuffle(columns)
        self.run(f"CREATE TABLE {_quoted(name)} ({', '.join(columns + constraints)}) {tail}")

    def _column(self, name: str, strict: bool) -> str:
        r = self.random
        kind = r.choice(_STRICT if strict else _TYPES)
        more = r.choice(
            [
                "",
                "",
                "",
                "NOT NULL DEFAULT 1",
                "DEFAULT 'd'",
                "UNIQUE",
                f"CHECK ({name} IS NOT 'q')",
                "REFERENCES t",
                "-- note\n",
            ]
        )
        if not strict and r.random() < 0.1:
            return f"{name} {kind} AS (k || 'g') {r.choice(['STORED', 'VIRTUAL'])}"
        return f"{name} {kind} {more}"

    def edit_rows(self, count: int, *, fits: bool = False) -> None:
        """Insert, update and delete rows of all tables; `fits` is for declared types, where most values must fit."""
        r = self.random
        query = "SELECT name FROM pragma_table_list WHERE type <> 'table'"
        hidden = {name for (name,) in self.connection.execute(query)}
        for table in (name for name in self.names("table") if not fits or name not in hidden):
            columns = self.columns(table)
            for _ in range(count):
                name, column, other = _quoted(table), _quoted(r.choice(columns)), _quoted(r.choice(columns))
                kind = r.random()
                if kind < 0.5:
                    marks = ", ".join("?" * len(columns))
                    self.run(
                        f"INSERT INTO {name} ({', '.join(map(_quoted, columns))}) VALUES ({marks})",
                        self._row(columns, fits),
                    )
                elif kind < 0.8:
                    self.run(
                        f"UPDATE OR IGNORE {name} SET {column} = ? WHERE {other} IS ?", (self._value(), self._value())
                    )
                else:
                    self.run(f"DELETE FROM {name} WHERE {column} IS ?", (self._value(),))

    def _row(self, columns: list[str], fits: bool) -> tuple[object, ...]:
        return tuple(self.random.choice([1, 2, 7, "1", "9"]) if fits else self._value() for _ in columns)

    def _value(self) -> object:
        return self.random.choice(_VALUES) if self.random.random() < 0.7 else self.random.randint(0, 30)

    def edit_schema(self) -> None:
        """One change of the schema."""
        r = self.random
        tables = self.names("table")
        table = r.choice(tables) if tables else "t"
        name, columns = _quoted(table), self.columns(table) or ["k"]
        column = _quoted(r.choice(columns))
        strict = "STRICT" in str(
            self.connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchall()
        )
        body = r.choice([column, f"{column} DESC", f"lower({column})", f"{column} COLLATE NOCASE"])
        where = r.choice(["", f"WHERE {column} IS NOT NULL"])
        effect = r.choice([f"UPDATE {name} SET {column} = 0", f"DELETE FROM {name}", "SELECT 1"])
        statements = [
            f"DROP TABLE {name}",
            f"ALTER TABLE {name} ADD COLUMN {self._column(f'n{r.randint(0, 3)}', strict)}",
            f"ALTER TABLE {name} DROP COLUMN {column}",
            f"ALTER TABLE {name} RENAME COLUMN {column} TO r{r.randint(0, 3)}",
            f"ALTER TABLE {name} RENAME TO {_quoted(r.choice(_NAMES))}",
            f"CREATE {r.choice(['', 'UNIQUE'])} INDEX i{r.randint(0, 3)} ON {name} ({body}) {where}",
            f"CREATE VIEW w{r.randint(0, 2)} AS SELECT {column} FROM {name} -- a view",
            f"CREATE TRIGGER g{r.randint(0, 2)} AFTER UPDATE ON {name} BEGIN {effect}; END",
            f"PRAGMA user_version = {r.randint(0, 9)}",
            *(
                f"DROP {kind} {_quoted(found)}"
                for kind in ("index", "view", "trigger")
                for found in self.names(kind)[:1]
            ),
        ]
        choice = r.randrange(len(statements) + 2)
        if choice < len(statements):
            self.run(statements[choice])
        elif choice == len(statements) or not tables:
            self.create_table(r.choice(_NAMES))
        else:
            self._replace_table(table)

    def _replace_table(self, table: str) -> None:
        """The table with another definition, as migrations do it."""
        rows = self.connection.execute(f"SELECT * FROM {_quoted(table)}").fetchall()
        self.run(f"DROP TABLE {_quoted(table)}")
        self.create_table(table)
        for row in rows:
            self.run(f"INSERT OR IGNORE INTO {_quoted(table)} VALUES ({', '.join('?' * len(row))})", row)


def database_pair(folder: Path, seed: int) -> tuple[Path, Path]:
    """Two versions of a database: the second has edits of the schema, of rows, or of both."""
    old, new = folder / f"{seed}-old.db", folder / f"{seed}-new.db"
    made = RandomDatabase(old, seed)
    for name in made.random.sample(_NAMES, made.random.randint(1, 3)):
        made.create_table(name)
    made.edit_rows(8)
    for _ in range(made.random.randint(0, 5)):
        made.edit_schema()
    made.edit_rows(6)
    made.connection.close()
    new.write_bytes(old.read_bytes())
    edited = RandomDatabase(new, seed + 1_000_000)
    for _ in range(edited.random.choice([0, 1, 2, 6])):
        edited.edit_schema()
    edited.edit_rows(edited.random.choice([0, 2, 8]))
    edited.connection.close()
    return old, new
