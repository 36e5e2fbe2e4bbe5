"""The text of CREATE statements cut into tokens, so that two definitions compare whatever their blanks and comments.

>>> tokens("CREATE TABLE t (a INT, -- the key\\n b)") == tokens("create table T(a int,b)")
True
>>> definition = TableDefinition.read('CREATE TABLE "t"(a INT, b AS (a + 1), PRIMARY KEY (a))')
>>> [column.name for column in definition.columns], definition.columns[1].generated
(['a', 'b'], ('a', '+', '1'))
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from driftline.changesets._format.encoding import folded, quoted

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
        """What the token names, without its quotes."""
        if self.kind not in ("name", "string"):
            return self.text
        quote = self.text[-1]
        return self.text[1:-1] if quote == "]" else self.text[1:-1].replace(quote * 2, quote)


def scan(text: str) -> list[Token]:
    """The tokens of an SQL text, in order."""
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
        """The column's name, without quotes."""
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
        """The same statement for another name."""
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
