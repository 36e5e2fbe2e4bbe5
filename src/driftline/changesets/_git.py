"""Databases in Git: what changed between two versions, a dump as text, and a merge by rows (changesets §11)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import apsw

from driftline.changesets._apply import Conflict, apply
from driftline.changesets._format.database import StoredTable, connect, explained, stored_tables
from driftline.changesets._format.encoding import quoted
from driftline.changesets._format.show import sql_literal, text_lines
from driftline.changesets._make.databases import Diff, diff
from driftline.changesets._make.table_diff import stored_rows
from driftline.core import replace_file
from driftline.errors import DriftlineError

_PRAGMAS = ("user_version", "application_id")


def is_empty(path: str) -> bool:
    """Whether a side does not exist: Git gives an empty file or the null device for it."""
    return path == os.devnull or not os.path.exists(path) or os.path.getsize(path) == 0


def diff_lines(old: str, new: str) -> Iterator[str]:
    """What changed between two databases, a line for each row; an empty side is an empty database."""
    with _both_sides(old, new) as (before, after):
        found = diff(before, after, allow_incomplete=True)
        yield from text_lines(found.changes)
        for problem in found.problems:
            yield f"! {problem.table}: {problem.text}"
        for note in found.notes:
            if note.code == "schema":
                yield f"! {note.name}: {note.text}"


@contextmanager
def _both_sides(*paths: str) -> Iterator[list[str]]:
    """The paths, with an empty database that has the other side's tables in the place of a side that is not there."""
    model = next((path for path in paths if not is_empty(path)), None)
    with ExitStack() as stack:
        given = []
        for path in paths:
            if is_empty(path) and model is not None:
                path = _without_rows(model, Path(stack.enter_context(tempfile.TemporaryDirectory())) / "empty.db")
            given.append(path)
        yield given


def _without_rows(model: str, path: Path) -> str:
    with connect(model) as source, explained(model):
        (encoding,) = next(source.execute("PRAGMA encoding"))
        virtual = {table.name for table in stored_tables(source) if table.kind != "table"}
        made = apsw.Connection(str(path))
        made.execute(f"PRAGMA encoding = '{encoding}'; PRAGMA user_version = 0")
        objects = source.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        for name, text in objects:
            if name not in virtual and not str(name).startswith("sqlite_"):
                made.execute(str(text))
        made.close()
    return str(path)


def dump_lines(path: str) -> Iterator[str]:
    """A database as SQL, rows in the order of their keys, so that two versions differ by line where rows differ."""
    if is_empty(path):
        return
    with connect(path) as connection, explained(path):
        tables = {table.name: table for table in stored_tables(connection)}
        query = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type <> 'table', type, name"
        found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        for kind, name, text in found:
            yield f"{text};"
            if kind == "table" and tables[name].kind != "virtual":
                yield from _insert_lines(connection, tables[name])


def _insert_lines(connection: apsw.Connection, table: StoredTable) -> Iterator[str]:
    names = ", ".join(quoted(column.name) for column in table.columns)
    (encoding,) = next(connection.execute("PRAGMA encoding"))
    for row in stored_rows(connection, table, "1", encoding):
        yield f"INSERT INTO {quoted(table.name)} ({names}) VALUES ({', '.join(map(sql_literal, row))});"  # noqa: S608


@dataclass(slots=True)
class Merge:
    """The result of a merge: rows in conflict, which keep ours, or why nothing was merged at all."""

    conflicts: list[Conflict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether everything of theirs is in ours now."""
        return not self.conflicts and not self.problems


def merge(base: str, ours: str, theirs: str) -> Merge:
    """Bring the changes from base to theirs into ours; rows in conflict keep ours.

    What cannot be merged (schemas, foreign keys that would break) leaves ours as it was.
    """
    with _both_sides(base, ours, theirs) as (old, mine, new):
        try:
            found = diff(old, new, allow_incomplete=True)
            problems = [f"{problem.table}: {problem.text}" for problem in found.problems]
            problems += _unmerged_schema(found, mine, new) + _unmerged_pragmas(old, mine, new)
            if problems:
                return Merge(problems=problems)
            return Merge(conflicts=_apply_to(found, mine, ours))
        except DriftlineError as error:
            return Merge(problems=[error.message])


def _apply_to(found: Diff, mine: str, target: str) -> list[Conflict]:
    folder = os.path.dirname(os.path.realpath(target))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        copy = os.path.join(scratch, "merged.db")
        with connect(mine) as source, explained(mine):
            merged = apsw.Connection(copy)
            with merged.backup("main", source, "main") as backup:
                backup.step()
            merged.close()
        applied = apply(
            found.changes, copy, "omit", triggers=False, foreign_key_actions=False, ignore_noop=True, foreign_keys=True
        )
        replace_file(copy, target)
    return [conflict for conflict, _ in applied.conflicts]


def _unmerged_schema(found: Diff, mine: str, theirs: str) -> list[str]:
    """Definitions that theirs changed and ours does not have in the same form."""
    names = [note.name for note in found.notes if note.code == "schema"]
    if not names:
        return []
    have, wanted = (_objects(path) for path in (mine, theirs))
    return [
        f"{name}: theirs changed it, and changes of rows do not" for name in names if have.get(name) != wanted.get(name)
    ]


def _objects(path: str) -> dict[str, str]:
    with connect(path) as connection, explained(path):
        query = "SELECT type || ' ' || name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
        return {str(name): str(text) for name, text in connection.execute(query)}


def _unmerged_pragmas(base: str, ours: str, theirs: str) -> list[str]:
    problems = []
    for name in _PRAGMAS:
        before, mine, new = (_pragma(path, name) for path in (base, ours, theirs))
        if new not in (before, mine):
            problems.append(f"PRAGMA {name}: theirs changed it from {before} to {new}")
    return problems


def _pragma(path: str, name: str) -> int:
    with connect(path) as connection, explained(path):
        return int(next(chain.from_iterable(connection.execute(f"PRAGMA {name}"))))
