"""SQLite databases: connections that wait for locks, errors in one line, and the tables as SQLite describes them.

>>> tokens("CREATE TABLE t (a INT, -- the key\\n b)") == tokens("create table T(a int,b)")
True
>>> definition = TableDefinition.read('CREATE TABLE "t"(a INT, b AS (a + 1), PRIMARY KEY (a))')
>>> [column.name for column in definition.columns], definition.columns[1].generated
(['a', 'b'], ('a', '+', '1'))
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from driftline.changesets._format.table import (
    UNDEFINED,
    Column,
    Field,
    Table,
    affinity_of,
    apply_affinity,
    folded,
    quoted,
    refused,
)
from driftline.core import StrPath, explain_os_error
from driftline.errors import DriftlineError, LockedError, OptionError, StorageError

Database = StrPath | apsw.Connection

PATIENCE = 5.0  # seconds to wait for a lock
REGISTER = "It belongs to another program: register it on an apsw.Connection and give that instead of the file"
ROWID = "_rowid_"
STAT1 = "sqlite_stat1"

_COLLATIONS = ("binary", "nocase", "rtrim")  # those that SQLite has itself
_HIDDEN_GENERATED = (2, 3)  # PRAGMA table_xinfo: virtual and stored generated columns
# Modules of virtual tables that hold rows of their own; SQLite reads and changes them by their rowids.
_WITH_ROWS = ("fts3", "fts4", "fts5", "rtree", "rtree_i32", "geopoly")
_HIDDEN_OPTIONS = ("languageid", "locale")  # of full-text tables whose rows hold a language that no column shows
_CREATING = {
    apsw.SQLITE_CREATE_TABLE,
    apsw.SQLITE_CREATE_INDEX,
    apsw.SQLITE_INSERT,
    apsw.SQLITE_UPDATE,
    apsw.SQLITE_READ,
    apsw.SQLITE_FUNCTION,
    apsw.SQLITE_TRANSACTION,
    apsw.SQLITE_REINDEX,
}
_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<string>[xX]?'(?:[^']|'')*')
    |(?P<name>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])
    |(?P<number>(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|0[xX][0-9a-fA-F]+)
    |(?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
    |(?P<sign>->>|->|\|\||<<|>>|<=|>=|==|!=|<>|.)""",
    re.VERBOSE | re.DOTALL,
)
_TABLE_CONSTRAINTS = {"constraint", "primary", "unique", "check", "foreign"}


@contextmanager
def connect(database: Database, *, write: bool = False, timeout: float = PATIENCE) -> Iterator[apsw.Connection]:
    """An open connection; a path is opened (and must exist) and closed again, a connection is left as it is."""
    if isinstance(database, apsw.Connection):
        yield database
        return
    path = file_name(database)
    with explained(path):
        connection = _open_file(path, write, timeout)
    try:
        yield connection
    finally:
        connection.close()


def file_name(database: Database) -> str:
    """The name of a database file; connections of Python's own module are refused with the reason."""
    if isinstance(database, sqlite3.Connection):
        raise OptionError(
            "a database is a file name or an apsw.Connection: Python's sqlite3 module has no sessions and does "
            "not share its connections. Give the file's name, or connect with apsw"
        )
    if not isinstance(database, str | os.PathLike):
        raise OptionError(f"a database is a file name or an apsw.Connection, not {type(database).__name__}")
    return os.fspath(database)


def _open_file(path: str, write: bool, timeout: float) -> apsw.Connection:
    try:
        os.stat(path)
    except OSError as error:
        raise explain_os_error(error, path) from error
    flags = (apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY) | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(file_uri(path), flags=flags)
    connection.set_busy_timeout(round(timeout * 1000))
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    return connection


def file_uri(path: StrPath) -> str:
    """A file's address for SQLite, so that any path will do."""
    return Path(path).resolve().as_uri()


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn SQLite's errors about a database, its locks and its disk into one clear line."""
    try:
        yield
    except apsw.Error as error:
        raise _explain_sqlite_error(error, name) from error
    except UnicodeDecodeError as error:
        raise refused("invalid_name", f"{name} has a name that is not UTF-8 in its schema") from error


def _explain_sqlite_error(error: apsw.Error, name: str) -> DriftlineError:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return LockedError(
            f"{name} is locked by another connection: wait for it to end, or allow more time (--timeout)", path=name
        )
    if isinstance(error, apsw.NotADBError):
        return refused("not_a_database", f"{name} cannot be opened as an SQLite database: {error}")
    if isinstance(error, apsw.CorruptError):
        return refused("corrupt_database", f"{name} is a damaged database: {error}")
    if isinstance(error, apsw.FullError):
        return StorageError(f"the disk is full while writing {name}: free some space", code="disk_full", path=name)
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        return StorageError(f"{name} cannot be written: {error}", code="permission_denied", path=name)
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_ERROR_MISSING_COLLSEQ:
        return refused("unknown_collation", f"{name}: {error}. {REGISTER}")
    return refused("sqlite_error", f"{name}: SQLite says: {error}")


def hidden_cause(connection: apsw.Connection, tables: Iterable[Table]) -> str | None:
    """Why changes of these tables do not compile; SQLite's sessions say "SQL logic error" and nothing else.

    Statements of each kind are compiled again, not run: SQLite then says which function or collation is missing.
    """
    for table in tables:
        names = list(map(quoted, table.column_names))
        where = " AND ".join(f"{quoted(key)} = 1" for key in table.primary_key)
        for statement in (
            f"INSERT INTO {quoted(table.name)} ({', '.join(names)}) VALUES ({', '.join('1' for _ in names)})",  # noqa: S608
            f"UPDATE {quoted(table.name)} SET {', '.join(f'{name} = {name}' for name in names)} WHERE {where}",  # noqa: S608
            f"DELETE FROM {quoted(table.name)} WHERE {where}",  # noqa: S608
        ):
            try:
                connection.execute(f"EXPLAIN {statement}")
            except apsw.Error as error:
                return f"table {table.name}: {error}. {_way_out(connection, statement)}"
    return None


def _way_out(connection: apsw.Connection, statement: str) -> str:
    with switched(connection, None, triggers=False), suppress(apsw.Error):
        connection.execute(f"EXPLAIN {statement}")
        return "A trigger needs it: apply with --as-recorded, where the changes already hold what triggers do"
    return REGISTER


@contextmanager
def switched(connection: apsw.Connection, foreign_keys: bool | None, triggers: bool) -> Iterator[None]:
    """Foreign keys and triggers as requested, and afterwards as they were."""
    had_keys = bool(connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, -1))
    had_triggers = bool(connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, -1))
    keys = had_keys if foreign_keys is None else foreign_keys
    if keys != had_keys and connection.in_transaction:
        raise OptionError("foreign keys cannot be switched inside a transaction: end it, or leave them as they are")
    try:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, int(keys))
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(had_triggers and triggers))
        yield
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, int(had_keys))
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(had_triggers))


def register_any(connection: apsw.Connection, name: str) -> None:
    """Let tables of another program's collation be read; no comparison goes by it (`TablePair.of`)."""
    connection.create_collation(name, lambda a, b: (a > b) - (a < b))


def encoding_of(connection: apsw.Connection) -> str:
    return str(connection.pragma("encoding"))


def copied(source: apsw.Connection, path: StrPath, schema: str = "main") -> apsw.Connection:
    """A connection to a new file with all that a database holds."""
    copy = apsw.Connection(os.fspath(path))
    with copy.backup("main", source, schema) as backup:
        backup.step()
    return copy


@contextmanager
def savepoint(connection: apsw.Connection) -> Iterator[None]:
    """Everything or nothing of what is done inside, within a transaction or as one."""
    connection.execute("SAVEPOINT driftline")
    try:
        yield
        connection.execute("RELEASE driftline")
    except BaseException:
        # Where the disk is full, SQLite has rolled the whole transaction back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK TO driftline; RELEASE driftline")
        raise


@dataclass(frozen=True)
class StoredTable:
    """A table of a database: what is declared, and how its rows are stored."""

    name: str
    kind: str  # SQLite's word: table, virtual or shadow
    text: str  # its CREATE statement
    columns: tuple[Column, ...]
    collations: tuple[str, ...]  # of the columns
    generated: frozenset[str]
    primary_key: tuple[str, ...]
    key_collations: tuple[str, ...]  # of the index of the primary key; empty where the rowid is the key
    without_rowid: bool
    strict: bool

    @cached_property
    def module(self) -> str:
        """The module of a virtual table, in small letters."""
        return module_of(self.text) if self.kind == "virtual" else ""

    @cached_property
    def content(self) -> str | None:
        """The table whose rows a full-text table indexes; empty for a contentless one, None where rows are its own."""
        return content_of_index(self.text) if self.kind == "virtual" else None

    @property
    def has_rows(self) -> bool:
        """Whether its rows are its own and can be read: also those of virtual tables, but not of indexes."""
        if self.kind != "virtual":
            return True
        is_read_whole = not any(option_of(self.text, option) for option in _HIDDEN_OPTIONS)
        return self.module in _WITH_ROWS and bool(self.columns) and is_read_whole and self.content is None

    @property
    def is_internal(self) -> bool:
        """Whether SQLite keeps the table for itself."""
        return self.name.startswith("sqlite_")

    @property
    def is_keyed_by_rowid(self) -> bool:
        """Whether the rows have no key but their rowid."""
        return not self.primary_key and self.name != STAT1

    @property
    def hides_rowid(self) -> bool:
        """Whether a table without a key has a column that takes the rowid's name."""
        return self.is_keyed_by_rowid and any(folded(column.name) == ROWID for column in self.columns)

    @property
    def key_is_rowid(self) -> bool:
        """INTEGER PRIMARY KEY is the rowid: SQLite chooses it when an INSERT leaves it out."""
        return len(self.primary_key) == 1 and not self.key_collations

    @cached_property
    def table(self) -> Table:
        """What a session sees: without a key the rowid comes first; `sqlite_stat1` has a key of its own."""
        if self.name == STAT1:
            return Table(STAT1, self.columns, ["tbl", "idx"])
        if self.is_keyed_by_rowid:
            rowid = Column(ROWID, "INTEGER", affinity_of("INTEGER"))
            return Table(self.name, (rowid, *self.columns), [ROWID], generated=self.generated, rowid_key=True)
        return Table(self.name, self.columns, self.primary_key, generated=self.generated, rowid_key=self.key_is_rowid)

    @property
    def foreign_collations(self) -> tuple[str, ...]:
        """The collations of the key that are not SQLite's: they belong to another program."""
        return tuple(name for name in dict.fromkeys(self.key_collations) if folded(name) not in _COLLATIONS)

    @cached_property
    def definition(self) -> TableDefinition:
        """The CREATE TABLE statement in its parts; virtual tables have none."""
        return TableDefinition.read(self.text)

    @cached_property
    def generators(self) -> dict[str, tuple[str, ...]]:
        """The expressions of the generated columns, by folded name."""
        if not self.generated:
            return {}
        return {folded(c.name): c.generated for c in self.definition.columns if c.name in self.generated}

    @property
    def ddl(self) -> tuple[str, ...]:
        """What the CREATE statement says, whatever its blanks, comments and capitals."""
        return tokens(self.text if self.kind == "virtual" else self.text[self.definition.name.end :])

    @property
    def rowid_kind(self) -> str:
        if self.without_rowid:
            return "WITHOUT ROWID"
        return "INTEGER PRIMARY KEY" if self.primary_key and self.key_is_rowid else "a rowid of its own"


def shape_differences(old: StoredTable, new: StoredTable) -> list[str]:
    """Why changes of one table do not fit the other, in words; none where the two are the same table.

    The same table has the same column names, key, affinities, collations, generated columns and kind of rowid. All
    else that a definition says (CHECK, DEFAULT, NOT NULL, foreign keys) lets the same changes lead to the same rows.
    """
    before, after = ([folded(column.name) for column in side.columns] for side in (old, new))
    if before != after:
        only = {"OLD": [name for name in before if name not in after], "NEW": [n for n in after if n not in before]}
        missing = [f"only {side} has column {', '.join(names)}" for side, names in only.items() if names]
        return ["; ".join(missing) or "its columns are in another order"]
    was, now = _traits(old), _traits(new)
    names = dict.fromkeys([*was, *now])
    differing = [name for name in names if was.get(name) != now.get(name)]
    return [f"{name}: {was.get(name) or 'no'} in OLD, {now.get(name) or 'no'} in NEW" for name in differing]


def _traits(table: StoredTable) -> dict[str, str]:
    """The constraints of a table and its identity of rows, as text."""
    traits = {
        "key": ", ".join(map(folded, table.primary_key)),
        "key collation": ", ".join(table.key_collations).upper(),
        "rowid": table.rowid_kind,
        "STRICT": "yes" if table.strict else "",
    }
    for column, collation in zip(table.columns, table.collations, strict=True):
        traits[f"affinity of {folded(column.name)}"] = column.affinity.value
        traits[f"collation of {folded(column.name)}"] = collation.upper()
    return traits | {f"generated column {name}": " ".join(made) for name, made in table.generators.items()}


def tables_from_sql(text: str) -> list[Table]:
    """The tables that `CREATE TABLE` statements make; no other statement is run."""
    return tables_from_database(database_from_sql(text))


def database_from_sql(text: str) -> apsw.Connection:
    """An empty database in memory with the tables of `CREATE TABLE` statements."""
    connection = apsw.Connection(":memory:")
    connection.authorizer = lambda action, *_: apsw.SQLITE_OK if action in _CREATING else apsw.SQLITE_DENY
    try:
        connection.execute(text)
    except apsw.Error as error:
        raise refused("invalid_schema", f"the schema is not made of CREATE TABLE statements: {error}") from error
    connection.authorizer = None
    return connection


def tables_from_database(database: Database, *, schema: str = "main") -> list[Table]:
    """All tables that changes can be about, in the order of their creation."""
    with connect(database) as connection, explained("the database"):
        return [
            stored.table
            for stored in stored_tables(connection, schema=schema).values()
            if (not stored.is_internal or stored.name == STAT1) and stored.has_rows and not stored.hides_rowid
        ]


def stored_tables(
    connection: apsw.Connection, *, schema: str = "main", names: Collection[str] | None = None
) -> dict[str, StoredTable]:
    """All tables of a database by folded name, SQLite's own and virtual ones too, in the order of their creation.

    `names` are the folded names of those to describe; a file of a few changes need not wait for a large schema.
    """
    query = (
        f"SELECT s.name, l.type, s.sql, l.wr, l.strict FROM {quoted(schema)}.sqlite_schema AS s "  # noqa: S608
        "JOIN pragma_table_list AS l ON l.name = s.name AND l.schema = ? WHERE s.type = 'table' ORDER BY s.rowid"
    )
    found: list[tuple[Any, ...]] = connection.execute(query, (schema,)).fetchall()
    expected = {folded(row[0]): row for row in found if names is None or folded(row[0]) in names}
    return {name: _read_table(connection, schema, *row) for name, row in expected.items()}


def _read_table(
    connection: apsw.Connection, schema: str, name: str, kind: str, text: str, without_rowid: int, strict: int
) -> StoredTable:
    query = "SELECT name, type, dflt_value, pk, hidden FROM pragma_table_xinfo(?, ?) ORDER BY cid"
    try:
        rows: list[tuple[Any, ...]] = connection.execute(query, (name, schema)).fetchall()
    except apsw.SQLError:
        if kind != "virtual":
            raise
        rows = []  # its module or its tokenizer is not here: it can be named, not described
    stored = [row for row in rows if not row[4]]
    keys = [column for _, column in sorted((place, column) for column, _, _, place, _ in stored if place)]
    # The collations of the primary key's index; a column that is named twice counts once.
    query = (
        "SELECT x.name, x.coll FROM pragma_index_list(?1, ?2) AS i, pragma_index_xinfo(i.name, ?2) AS x "
        "WHERE i.origin = 'pk' AND x.key ORDER BY x.seqno DESC"
    )
    indexed: list[tuple[Any, ...]] = [] if kind == "virtual" else connection.execute(query, (name, schema)).fetchall()
    collations = {folded(column): collation for column, collation in indexed}
    return StoredTable(
        name,
        kind,
        text,
        tuple(_column(column, declared, default, bool(strict)) for column, declared, default, _, _ in stored),
        tuple("BINARY" if kind == "virtual" else connection.column_metadata(schema, name, row[0])[1] for row in stored),
        frozenset(row[0] for row in rows if row[4] in _HIDDEN_GENERATED),
        tuple(keys),
        tuple(collations[folded(key)] for key in keys if folded(key) in collations),
        bool(without_rowid),
        bool(strict),
    )


def module_of(text: str) -> str:
    """The module of a CREATE VIRTUAL TABLE statement, in small letters."""
    found = scan(text)
    return folded(next(after.name for token, after in pairwise(found) if token.word == "using"))


def option_of(text: str, option: str) -> str | None:
    """What an option of a CREATE VIRTUAL TABLE statement is set to."""
    found = scan(text)
    for token, sign, value in zip(found, found[1:], found[2:], strict=False):
        # FTS5 takes the first letters of an option's name.
        if token.word and option.startswith(token.word) and sign.text == "=":
            return value.name
    return None


def content_of_index(text: str) -> str | None:
    """What the option `content` of a full-text table names; empty for a contentless one."""
    return option_of(text, "content") if module_of(text).startswith("fts") else None


def rebuild_statement(name: str) -> str:
    """The statement that builds a full-text index of another table's rows again."""
    return f"INSERT INTO {quoted(name)} ({quoted(name)}) VALUES ('rebuild');"  # noqa: S608


def owner_of(name: str, tables: Mapping[str, StoredTable]) -> StoredTable | None:
    """The virtual table that keeps what it holds in a table of this folded name."""
    found = [o for prefix, o in tables.items() if o.kind == "virtual" and name.startswith(f"{prefix}_")]
    return max(found, key=lambda owner: len(owner.name), default=None)


def _column(name: str, declared: str, text: str | None, strict: bool) -> Column:
    """A column with its default; what only a running INSERT computes (CURRENT_TIMESTAMP, random()) is `UNDEFINED`."""
    affinity = affinity_of(declared, strict=strict)
    if text is None:
        return Column(name, declared, affinity)
    connection = apsw.Connection(":memory:")
    connection.authorizer = lambda action, *_: apsw.SQLITE_OK if action == apsw.SQLITE_SELECT else apsw.SQLITE_DENY
    try:
        default: Field = next(connection.execute(f"SELECT {text}"))[0]
    except apsw.Error:
        default = UNDEFINED
    return Column(name, declared, affinity, apply_affinity(default, affinity))


def unique_columns(connection: apsw.Connection, schema: str, table: StoredTable) -> frozenset[str]:
    """The columns of UNIQUE indexes beside the key, in small letters; "*" where an index depends on more than them."""
    query = (
        "SELECT i.partial, x.name FROM pragma_index_list(?1, ?2) AS i, pragma_index_xinfo(i.name, ?2) AS x "
        "WHERE i.\"unique\" AND i.origin <> 'pk' AND x.key"
    )
    found: list[tuple[Any, ...]] = connection.execute(query, (table.name, schema)).fetchall()
    generated = set(map(folded, table.generated))
    names = frozenset(folded(name) for _, name in found if name is not None)
    has_more = any(partial or name is None or folded(name) in generated for partial, name in found)
    return names | {"*"} if has_more else names


# The text of CREATE statements in tokens, so that two definitions compare whatever their blanks and comments.


class Token(NamedTuple):
    """A piece of SQL text that is neither blank nor comment."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """A word in small letters, as SQL compares it; other tokens have none."""
        return folded(self.text) if self.kind == "word" else ""

    @property
    def name(self) -> str:
        if self.kind not in ("name", "string"):
            return self.text
        quote = self.text[-1]
        return self.text[1:-1] if quote == "]" else self.text[1:-1].replace(quote * 2, quote)


def scan(text: str) -> list[Token]:
    found = _TOKEN.finditer(text)
    return [Token(str(m.lastgroup), m.group(), m.start(), m.end()) for m in found if m.lastgroup != "blank"]


def tokens(text: str) -> tuple[str, ...]:
    """The tokens of a text as they compare for SQL: words in small letters, everything else as it is."""
    return tuple(token.word or token.text for token in scan(text))


@dataclass(frozen=True)
class ColumnDefinition:
    """A column of a CREATE TABLE statement: its tokens and its text."""

    parts: tuple[Token, ...]
    text: str

    @property
    def name(self) -> str:
        return self.parts[0].name

    @cached_property
    def generated(self) -> tuple[str, ...]:
        """The tokens of the expression that makes the values; empty for a column that is stored."""
        for index, (depth, token) in enumerate(_with_depth(self.parts)):
            if not depth and token.word == "as":
                body = _inside(self.parts[index + 1 :])
                return tuple(part.word or part.text for part in body)
        return ()

    def words(self) -> set[str]:
        """The words of the definition outside its parentheses: its type and its constraints."""
        return {token.word for depth, token in _with_depth(self.parts[1:]) if not depth and token.word}


@dataclass(frozen=True)
class TableDefinition:
    """A CREATE TABLE statement: where its name is, what follows it, and its columns."""

    text: str
    name: Token
    body: tuple[Token, ...]  # all tokens after the name
    columns: tuple[ColumnDefinition, ...]

    @classmethod
    def read(cls, text: str) -> TableDefinition:
        """The statement as SQLite stores it; it has been checked by SQLite."""
        found = scan(text)
        opening = next(index for index, token in enumerate(found) if token.text == "(")
        columns = []
        for parts in _split(_inside(found[opening:])):
            if not parts or parts[0].word in _TABLE_CONSTRAINTS:
                break
            columns.append(ColumnDefinition(tuple(parts), text[parts[0].start : parts[-1].end]))
        return cls(text, found[opening - 1], tuple(found[opening:]), tuple(columns))

    def renamed(self, name: str) -> str:
        return f"CREATE TABLE {quoted(name)} {self.text[self.name.end :].lstrip()}"

    @property
    def names_itself(self) -> bool:
        """Whether an expression names a column together with the table: under another name it would not compile."""
        own = folded(self.name.name)
        return any(after.text == "." and folded(token.name) == own for token, after in pairwise(self.body))


def _with_depth(found: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    depth = 0
    for token in found:
        depth -= token.text == ")"
        yield depth, token
        depth += token.text == "("


def _inside(found: Sequence[Token]) -> list[Token]:
    """The tokens between the first parenthesis and the one that closes it."""
    inside = []
    for depth, token in _with_depth(found):
        if not depth and token.text == ")":
            break
        if depth:
            inside.append(token)
    return inside


def _split(found: Sequence[Token]) -> Iterator[list[Token]]:
    """The parts between commas that are in no further parentheses."""
    part: list[Token] = []
    for depth, token in _with_depth(found):
        if not depth and token.text == ",":
            yield part
            part = []
        else:
            part.append(token)
    yield part
