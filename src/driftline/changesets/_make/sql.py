"""SQL statements as events of a patchset.

The grammar is a short list of what is allowed: INSERT … VALUES with literals, UPDATE … SET … WHERE key = …, DELETE …
WHERE key = …. sqlglot cuts the text into tokens; everything that is not on the list is refused with its position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from sqlglot import Token, TokenType, tokenize
from sqlglot.errors import TokenError

from driftline.changesets._format.encoding import MAX_INTEGER, UNDEFINED, Field, Value, folded
from driftline.changesets._format.show import CHECK
from driftline.changesets._format.table import Table, apply_affinity
from driftline.errors import ChangesetError

Tables = Table | Iterable[Table] | Mapping[str, Table]

_WORDS = (TokenType.VAR, TokenType.IDENTIFIER)
_TRANSACTION_WORDS = ("TRANSACTION", "DEFERRED", "IMMEDIATE", "EXCLUSIVE")
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_NUMBER = re.compile(
    rf"0[xX][0-9a-fA-F]+(?:_[0-9a-fA-F]+)*|(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?"
)
_HEX_INTEGER_DIGITS = 16
_MAX_DIGITS = 20


class Target(Protocol):
    """What takes the events: a patchset."""

    def insert(self, table: Table, row: tuple[Field, ...]) -> object:
        """A row was inserted."""

    def update(self, table: Table, old: Mapping[str, Value], new: Mapping[str, Value]) -> object:
        """A row was updated, by its key."""

    def delete(self, table: Table, row: Mapping[str, Value]) -> object:
        """A row was deleted, by its key."""


def digest(text: str, tables: Tables, target: Target) -> None:
    """Give the statements of `text` to `target`, in their order; nothing is given when one is refused."""
    events = _Parser(text, _by_name(tables)).statements()
    for event in events:
        event(target)


def _by_name(tables: Tables) -> dict[str, Table]:
    if isinstance(tables, Table):
        tables = [tables]
    listed = tables.values() if isinstance(tables, Mapping) else tables
    return {folded(table.name): table for table in listed}


_Event = Callable[[Target], object]


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, text: str, tables: Mapping[str, Table]) -> None:
        self._text = text
        self._tables = tables
        self._place = 0
        self._tokens = self._cut(text)

    def _cut(self, text: str) -> list[Token]:
        if "\0" in text:
            raise self._refused("a NUL ends SQL text", text.index("\0"))
        try:
            return tokenize(text, read="sqlite")
        except TokenError:
            raise ChangesetError("SQL with an unclosed quote or comment", code="unsupported_sql") from None

    def statements(self) -> list[_Event]:
        events: list[_Event] = []
        while self._peek() is not None:
            if self._skip(TokenType.SEMICOLON):
                continue
            events += [] if self._skip_transaction() or self._skip_frame() else self._statement()
            if self._peek() is not None:
                self._expect(TokenType.SEMICOLON, "the end of the statement")
        return events

    def _skip_transaction(self) -> bool:
        """BEGIN, COMMIT and END, as dumps have them around their statements."""
        if not any(self._skip(kind) for kind in (TokenType.BEGIN, TokenType.COMMIT, TokenType.END)):
            return False
        while (token := self._peek()) is not None and token.text.upper() in _TRANSACTION_WORDS:
            self._place += 1
        return True

    def _skip_frame(self) -> bool:
        """Settings and the check of foreign keys, as `changeset sql` has them around its statements."""
        end = self._place
        while end < len(self._tokens) and self._tokens[end].token_type is not TokenType.SEMICOLON:
            end += 1
        words = [token.text for token in self._tokens[self._place : end]]
        if words[0].upper() != "PRAGMA" and CHECK not in words:
            return False
        self._place = end
        return True

    def _statement(self) -> list[_Event]:
        if self._skip(TokenType.INSERT):
            return self._insert()
        if self._skip(TokenType.UPDATE):
            return self._update()
        if self._skip(TokenType.DELETE):
            return self._delete()
        raise self._refused_here("only INSERT, UPDATE and DELETE can be digested")

    def _insert(self) -> list[_Event]:
        self._expect(TokenType.INTO, "INTO")
        table = self._table()
        columns = self._column_list(table)
        self._expect(TokenType.VALUES, "VALUES")
        events = [self._inserted_row(table, columns)]
        while self._skip(TokenType.COMMA):
            events.append(self._inserted_row(table, columns))
        return events

    def _column_list(self, table: Table) -> list[int]:
        if not self._skip(TokenType.L_PAREN):
            return list(range(table.width))
        columns = [self._column(table)]
        while self._skip(TokenType.COMMA):
            columns.append(self._column(table))
        self._expect(TokenType.R_PAREN, ")")
        return columns

    def _inserted_row(self, table: Table, columns: list[int]) -> _Event:
        start = self._offset()
        self._expect(TokenType.L_PAREN, "(")
        values = [self._literal()]
        while self._skip(TokenType.COMMA):
            values.append(self._literal())
        self._expect(TokenType.R_PAREN, ")")
        if len(values) != len(columns):
            raise self._refused(f"{len(values)} values for {len(columns)} columns", start)
        row: list[Field] = [column.default for column in table.columns]
        for index, value in zip(columns, values, strict=True):
            row[index] = value
        for column, field in zip(table.columns, row, strict=True):
            if field is UNDEFINED:
                raise self._refused(
                    f'column "{column.name}" has a default that only a database knows: give a value', start
                )
        if table.rowid_key and row[table.key_indexes[0]] is None:
            raise self._refused(f'column "{table.primary_key[0]}" would be chosen by a database: give a value', start)
        made = tuple(row)
        return lambda target: target.insert(table, made)

    def _update(self) -> list[_Event]:
        table = self._table()
        self._expect(TokenType.SET, "SET")
        start = self._offset()
        changes = dict([self._assignment(table)])
        while self._skip(TokenType.COMMA):
            changes.update([self._assignment(table)])
        key = self._where_key(table)
        if key is None:
            return []
        if any(name in key and _stored(table, name, changes[name]) != key[name] for name in changes):
            raise self._refused("a change of key cannot be digested: use DELETE and INSERT", start)
        return [lambda target: target.update(table, key, changes)]

    def _delete(self) -> list[_Event]:
        self._expect(TokenType.FROM, "FROM")
        table = self._table()
        key = self._where_key(table)
        return [] if key is None else [lambda target: target.delete(table, key)]

    def _where_key(self, table: Table) -> dict[str, Value] | None:
        """The key a WHERE clause names; None where it compares with NULL, which no row fulfils."""
        self._expect(TokenType.WHERE, "WHERE with the whole primary key")
        start = self._offset()
        parts = self._condition(table)
        key = {name: _stored(table, name, value) for name, value in parts}
        if set(key) != set(table.primary_key) or any(key[name] != _stored(table, name, v) for name, v in parts):
            wanted = " AND ".join(f"{name} = …" for name in table.primary_key)
            raise self._refused(f"WHERE must be exactly: {wanted}", start)
        return None if None in key.values() else key

    def _condition(self, table: Table) -> list[tuple[str, Value]]:
        if self._skip(TokenType.L_PAREN):
            parts = self._condition(table)
            self._expect(TokenType.R_PAREN, ")")
        else:
            parts = [self._assignment(table)]
        while self._skip(TokenType.AND):
            parts += self._condition(table)
        return parts

    def _assignment(self, table: Table) -> tuple[str, Value]:
        name = table.column_names[self._column(table)]
        self._expect(TokenType.EQ, "=")
        value = self._literal()
        if self._skip(TokenType.COLLATE) and folded(self._name("BINARY")) != "binary":
            raise self._refused_here("only COLLATE BINARY can be digested")
        return name, value

    def _table(self) -> Table:
        start = self._offset()
        name = self._name("a table name")
        if self._skip(TokenType.DOT):
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

    def _name(self, wanted: str) -> str:
        token = self._peek()
        # Words such as `name` or `date` are keywords for some dialects and plain names for SQLite.
        if token is None or not (token.token_type in _WORDS or token.text.isidentifier()):
            raise self._refused_here(f"{wanted} is wanted")
        if token.token_type is TokenType.STRING:
            raise self._refused_here(f"{wanted} is wanted")
        self._place += 1
        return token.text

    def _literal(self) -> Value:
        if self._skip(TokenType.DASH):
            value = self._number()
            return -value
        self._skip(TokenType.PLUS)
        token = self._peek()
        if self._skip(TokenType.L_PAREN):
            return self._exact_real()
        if token is None:
            raise self._refused_here("a literal is wanted")
        if token.token_type in (TokenType.NUMBER, TokenType.DOT) or self._source(token)[:2].lower() == "0x":
            value = self._number()
            return float(value) if isinstance(value, int) and value > MAX_INTEGER else value
        self._place += 1
        return self._other_literal(token)

    def _exact_real(self) -> float:
        """`(5404319552844596.0 / 18014398509481984.0)`, the way scripts write a real of many digits."""
        sign = -1.0 if self._skip(TokenType.DASH) else 1.0
        value = sign * self._number()
        while (divided := self._skip(TokenType.SLASH)) or self._skip(TokenType.STAR):
            number = self._number()
            value = value / number if divided else value * number
        self._expect(TokenType.R_PAREN, ")")
        return value

    def _other_literal(self, token: Token) -> Value:
        kind = token.token_type
        if kind is TokenType.STRING:
            return self._source(token)[1:-1].replace("''", "'")
        if kind is TokenType.HEX_STRING:
            return self._blob(token)
        if kind is TokenType.NULL:
            return None
        if kind in (TokenType.TRUE, TokenType.FALSE):
            return int(kind is TokenType.TRUE)
        if token.text.upper() == "CAST":
            return self._text_from_blob()
        raise self._refused("only literals can be digested", token.start)

    def _blob(self, token: Token) -> bytes:
        try:
            return bytes.fromhex(token.text)
        except ValueError:
            raise self._refused("a blob literal needs pairs of hexadecimal digits", token.start) from None

    def _text_from_blob(self) -> str:
        """`CAST(x'…' AS TEXT)`, the way `to_sql` writes text that has no literal."""
        self._expect(TokenType.L_PAREN, "(")
        token = self._expect(TokenType.HEX_STRING, "a blob literal")
        self._expect(TokenType.ALIAS, "AS")
        self._expect(TokenType.TEXT, "TEXT")
        self._expect(TokenType.R_PAREN, ")")
        try:
            return self._blob(token).decode()
        except UnicodeDecodeError:
            raise self._refused("bytes that are not UTF-8 text", token.start) from None

    def _number(self) -> int | float:
        token = self._peek()
        start = self._offset()
        found = _NUMBER.match(self._text, start)
        if token is None or found is None:
            raise self._refused_here("a number is wanted")
        # sqlglot cuts numbers such as 1_000 and .5 into several tokens.
        while (token := self._peek()) is not None and token.start < found.end():
            if token.end >= found.end():
                raise self._refused("only literals can be digested", start)
            self._place += 1
        text = found.group().replace("_", "")
        if text[:2] in ("0x", "0X"):
            return self._hex_integer(text[2:], start)
        # One more than the largest integer is needed for its negative; anything larger is a real.
        if text.isdigit() and len(text.lstrip("0")) < _MAX_DIGITS and int(text) <= MAX_INTEGER + 1:
            return int(text)
        return float(text)

    def _hex_integer(self, digits: str, start: int) -> int:
        if len(digits) > _HEX_INTEGER_DIGITS:
            raise self._refused("a hexadecimal integer of more than 64 bits", start)
        return int.from_bytes(int(digits, 16).to_bytes(8, "big"), "big", signed=True)

    def _source(self, token: Token) -> str:
        return self._text[token.start : token.end + 1]

    def _peek(self) -> Token | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _skip(self, kind: TokenType) -> bool:
        token = self._peek()
        if token is None or token.token_type is not kind:
            return False
        self._place += 1
        return True

    def _expect(self, kind: TokenType, wanted: str) -> Token:
        token = self._peek()
        if token is None or token.token_type is not kind:
            raise self._refused_here(f"{wanted} is wanted")
        self._place += 1
        return token

    def _offset(self) -> int:
        token = self._peek()
        return len(self._text) if token is None else token.start

    def _refused_here(self, message: str) -> ChangesetError:
        token = self._peek()
        return self._refused(
            message + (f", not {self._source(token)[:40]}" if token else " at the end"), self._offset()
        )

    def _refused(self, message: str, offset: int) -> ChangesetError:
        line = self._text.count("\n", 0, offset) + 1
        column = offset - (self._text.rfind("\n", 0, offset) + 1) + 1
        return ChangesetError(
            f"SQL line {line}, column {column}: {message}",
            code="unsupported_sql",
            line=line,
            column=column,
            offset=offset,
        )


def _stored(table: Table, name: str, value: Value) -> Value:
    """A literal as the column stores it, which is what a comparison with the column sees."""
    stored = apply_affinity(value, table.columns[table.index_of(name)].affinity)
    assert stored is not UNDEFINED
    return stored
