"""SQL statements as events of a patchset.

The grammar is a short list of what is allowed: INSERT … VALUES with literals, UPDATE … SET … WHERE key = …, DELETE …
WHERE key = …. Everything that is not on the list is refused with its position; SQLite itself reads the literals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from driftline.changesets._format.database import Token, scan
from driftline.changesets._format.show import CHECK
from driftline.changesets._format.table import UNDEFINED, Field, Table, Value, apply_affinity, folded, refused
from driftline.errors import ChangesetError

if TYPE_CHECKING:
    from driftline.changesets._format.changeset import Patchset

Tables = Table | Iterable[Table] | Mapping[str, Table]
T = TypeVar("T")
_Event = tuple[Any, ...]  # the builder's method and its arguments

_TRANSACTION_WORDS = {"transaction", "deferred", "immediate", "exclusive"}
_QUOTES = ("'", '"', "`", "[")  # alone, they are not closed
_BLANK = r"(?:\s|--[^\n]*|/\*.*?\*/)*"
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_NUMBER = (
    rf"(?:0x[0-9a-f]+(?:_[0-9a-f]+)*|(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?)(?![\w.$])"
)
# A number, a text or blob, a word, and what scripts write for a real of many digits and for text without a literal.
_LITERAL = re.compile(
    rf"""[+-]?{_BLANK}{_NUMBER}|\+?(?:x?'(?:[^']|'')*'|(?:NULL|TRUE|FALSE)(?![\w$]))
    |\({_BLANK}-?{_BLANK}{_NUMBER}(?:{_BLANK}[*/]{_BLANK}{_NUMBER})*{_BLANK}\)
    |CAST{_BLANK}\({_BLANK}x'[^']*'{_BLANK}AS{_BLANK}TEXT{_BLANK}\)""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)


def digest(text: str, tables: Tables, target: Patchset) -> None:
    """Give the statements of `text` to `target`, in their order; nothing is given when one is refused."""
    if isinstance(tables, Table):
        tables = [tables]
    listed = tables.values() if isinstance(tables, Mapping) else tables
    for kind, *event in _Parser(text, {folded(table.name): table for table in listed}).statements():
        getattr(target, kind)(*event)


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str, tables: Mapping[str, Table]) -> None:
        self._text = text
        self._tables = tables
        self._place = 0
        if "\0" in text:
            raise self._refused("a NUL ends SQL text", text.index("\0"))
        self._tokens = scan(text)
        rest = text[self._tokens[-1].end if self._tokens else 0 :]
        if any(token.text in _QUOTES for token in self._tokens) or not re.fullmatch(_BLANK, rest, re.DOTALL):
            raise refused("unsupported_sql", "SQL with an unclosed quote or comment")
        self._sqlite = apsw.Connection(":memory:")

    def statements(self) -> list[_Event]:
        events: list[_Event] = []
        while self._peek() is not None:
            if self._skip(";"):
                continue
            events += [] if self._skip_frame() else self._statement()
            if self._peek() is not None:
                self._expect(";", "the end of the statement")
        return events

    def _skip_frame(self) -> bool:
        """What dumps and `changeset sql` have around their statements: transactions, settings, checks of keys."""
        end = self._place
        while end < len(self._tokens) and self._tokens[end].text != ";":
            end += 1
        first, *words = (token.word for token in self._tokens[self._place : end])
        is_transaction = first in ("begin", "commit", "end") and _TRANSACTION_WORDS.issuperset(words)
        is_frame = is_transaction or first == "pragma" or CHECK in words
        self._place = end if is_frame else self._place
        return is_frame

    def _statement(self) -> list[_Event]:
        if self._skip("insert"):
            self._expect("into", "INTO")
            table = self._table()
            is_named = (token := self._peek()) is not None and token.text == "("
            columns = self._in_parentheses(lambda: self._column(table)) if is_named else list(range(table.width))
            self._expect("values", "VALUES")
            return self._separated(lambda: self._inserted_row(table, columns))
        if self._skip("update"):
            return self._update()
        if self._skip("delete"):
            self._expect("from", "FROM")
            table = self._table()
            key = self._where_key(table)
            return [] if key is None else [("delete", table, key)]
        raise self._refused_here("only INSERT, UPDATE and DELETE can be digested")

    def _inserted_row(self, table: Table, columns: list[int]) -> _Event:
        start = self._offset()
        values = self._evaluated(self._in_parentheses(self._literal))
        if len(values) != len(columns):
            raise self._refused(f"{len(values)} values for {len(columns)} columns", start)
        row: list[Field] = [column.default for column in table.columns]
        for index, value in zip(columns, values, strict=True):
            row[index] = value
        if UNDEFINED in row:
            name = table.column_names[row.index(UNDEFINED)]
            raise self._refused(f'column "{name}" has a default that only a database knows: give a value', start)
        if table.rowid_key and row[table.key_indexes[0]] is None:
            raise self._refused(f'column "{table.primary_key[0]}" would be chosen by a database: give a value', start)
        return "insert", table, tuple(row)

    def _update(self) -> list[_Event]:
        table = self._table()
        self._expect("set", "SET")
        start = self._offset()
        changes = dict(self._separated(lambda: self._assignment(table)))
        key = self._where_key(table)
        if key is None:
            return []
        if any(name in key and _stored(table, name, changes[name]) != key[name] for name in changes):
            raise self._refused("a change of key cannot be digested: use DELETE and INSERT", start)
        return [("update", table, key, changes)]

    def _where_key(self, table: Table) -> dict[str, Value] | None:
        """The key a WHERE clause names; None where it compares with NULL, which no row fulfils."""
        self._expect("where", "WHERE with the whole primary key")
        start = self._offset()
        parts = self._condition(table)
        key = {name: _stored(table, name, value) for name, value in parts}
        if set(key) != set(table.primary_key) or any(key[name] != _stored(table, name, v) for name, v in parts):
            expected = " AND ".join(f"{name} = …" for name in table.primary_key)
            raise self._refused(f"WHERE must be exactly: {expected}", start)
        return None if None in key.values() else key

    def _condition(self, table: Table) -> list[tuple[str, Value]]:
        if self._skip("("):
            parts = self._condition(table)
            self._expect(")", ")")
        else:
            parts = [self._assignment(table)]
        while self._skip("and"):
            parts += self._condition(table)
        return parts

    def _assignment(self, table: Table) -> tuple[str, Value]:
        name = table.column_names[self._column(table)]
        if not self._skip("=="):
            self._expect("=", "=")
        [value] = self._evaluated([self._literal()])
        if self._skip("collate") and folded(self._name("BINARY")) != "binary":
            raise self._refused_here("only COLLATE BINARY can be digested")
        return name, value

    def _table(self) -> Table:
        start = self._offset()
        name = self._name("a table name")
        if self._skip("."):
            if folded(name) != "main":
                raise self._refused(f'schema "{name}": only main can be digested', start)
            name = self._name("a table name")
        if folded(name) not in self._tables:
            raise self._refused(f'unknown table "{name}"', start)
        table = self._tables[folded(name)]
        if table.primary_key == ("_rowid_",):
            raise self._refused(f"table {table.name} has no primary key: only a database knows its rowids", start)
        return table

    def _column(self, table: Table) -> int:
        start = self._offset()
        name = self._name("a column name")
        if folded(name) not in table.column_index:
            raise self._refused(f'table {table.name} has no column "{name}"', start)
        return table.column_index[folded(name)]

    def _name(self, expected: str) -> str:
        token = self._peek()
        if token is None or token.kind not in ("name", "word"):
            raise self._refused_here(f"{expected} is wanted")
        self._place += 1
        return token.name

    def _literal(self) -> re.Match[str]:
        token = self._peek()
        if token is None:
            raise self._refused_here("a literal is wanted")
        found = _LITERAL.match(self._text, token.start)
        if found is None:
            raise self._refused("only literals can be digested", token.start)
        while (token := self._peek()) is not None and token.start < found.end():
            self._place += 1
        return found

    def _evaluated(self, literals: list[re.Match[str]]) -> list[Value]:
        """The values of literals, read by SQLite together; what it refuses is found one by one."""
        try:
            query = f"SELECT {', '.join(literal.group() for literal in literals)}"
            return list(next(self._sqlite.execute(query)))
        except (apsw.Error, UnicodeError) as error:
            if len(literals) > 1:
                return [value for literal in literals for value in self._evaluated([literal])]
            reason = "a hexadecimal integer of more than 64 bits"
            if "'" in literals[0].group():
                reason = "a blob literal needs pairs of hexadecimal digits"
            if isinstance(error, UnicodeError):
                reason = "bytes that are not UTF-8 text"
            raise self._refused(reason, literals[0].start()) from None

    def _in_parentheses(self, read: Callable[[], T]) -> list[T]:
        self._expect("(", "(")
        items = self._separated(read)
        self._expect(")", ")")
        return items

    def _separated(self, read: Callable[[], T]) -> list[T]:
        items = [read()]
        while self._skip(","):
            items.append(read())
        return items

    def _peek(self) -> Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _skip(self, text: str) -> bool:
        token = self._peek()
        found = token is not None and (token.word or token.text) == text
        self._place += found
        return found

    def _expect(self, text: str, expected: str) -> None:
        if not self._skip(text):
            raise self._refused_here(f"{expected} is wanted")

    def _offset(self) -> int:
        token = self._peek()
        return len(self._text) if token is None else token.start

    def _refused_here(self, message: str) -> ChangesetError:
        token = self._peek()
        return self._refused(message + (f", not {token.text[:40]}" if token else " at the end"), self._offset())

    def _refused(self, message: str, offset: int) -> ChangesetError:
        line = self._text.count("\n", 0, offset) + 1
        column = offset - self._text.rfind("\n", 0, offset)
        text = f"SQL line {line}, column {column}: {message}"
        return ChangesetError(text, code="unsupported_sql", line=line, column=column, offset=offset)


def _stored(table: Table, name: str, value: Value) -> Value:
    """A literal as the column stores it, which is what a comparison with the column sees."""
    stored = apply_affinity(value, table.columns[table.index_of(name)].affinity)
    assert stored is not UNDEFINED
    return stored
