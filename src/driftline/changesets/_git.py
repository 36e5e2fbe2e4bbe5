"""Databases in Git: what changed between two versions, a dump as text, and a merge by rows (changesets §11)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import apsw

from driftline.changesets._apply import Conflict, apply
from driftline.changesets._format import database as sqlite
from driftline.changesets._format.show import sql_literal, text_lines
from driftline.changesets._format.table import folded, quoted
from driftline.changesets._make.databases import diff, opened_sides
from driftline.changesets._make.script import PRAGMAS, Schema, SchemaObject, plan_schema
from driftline.changesets._make.table_diff import TablePair, stored_rows
from driftline.core import replace_file
from driftline.errors import DriftlineError

_SIDES = ("base.db", "ours.db", "theirs.db")


def is_empty(path: str) -> bool:
    """Whether a side does not exist: Git gives an empty file or the null device for it."""
    return path == os.devnull or not os.path.exists(path) or os.path.getsize(path) == 0


def diff_lines(old: str, new: str) -> Iterator[str]:
    """What changed between two databases, a line for each row; an empty side is an empty database."""
    with _both_sides(old, new) as (before, after):
        found = diff(before, after, allow_incomplete=True, virtual=True)
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
    with tempfile.TemporaryDirectory() as folder:
        empty = (os.path.join(folder, f"empty{number}.db") for number in count())
        yield [_without_rows(model, next(empty)) if is_empty(path) and model is not None else path for path in paths]


def _without_rows(model: str, path: str) -> str:
    with sqlite.connect(model) as source, sqlite.explained(model):
        left_out = {
            table.name for table in sqlite.stored_tables(source).values() if table.kind == "shadow" or not table.columns
        }
        made = apsw.Connection(path)
        made.execute(f"PRAGMA encoding = '{sqlite.encoding_of(source)}'; PRAGMA user_version = 0")
        objects = source.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        for name, text in objects:
            if name not in left_out and not str(name).startswith("sqlite_"):
                made.execute(str(text))
        made.close()
    return path


def dump_lines(path: str) -> Iterator[str]:
    """A database as SQL, rows in the order of their keys, so that two versions differ by line where rows differ."""
    if is_empty(path):
        return
    with sqlite.connect(path) as connection, sqlite.explained(path):
        tables = sqlite.stored_tables(connection)
        query = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type <> 'table', type, name"
        found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        for kind, name, text in found:
            table = tables.get(folded(name)) if kind == "table" else None
            owner = sqlite.owner_of(folded(name), tables) if table and table.kind == "shadow" else None
            if owner and (owner.has_rows or owner.content):
                continue  # the owner's rows tell what is in it
            yield f"{text};"
            if table and table.has_rows:
                names = ", ".join(quoted(column.name) for column in table.columns)
                for row in stored_rows(connection, table, "1", sqlite.encoding_of(connection)):
                    yield f"INSERT INTO {quoted(name)} ({names}) VALUES ({', '.join(map(sql_literal, row))});"  # noqa: S608


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

    A definition that one side changed is kept. What cannot be merged (definitions that both changed, foreign keys that
    would break) leaves ours as it was.
    """
    folder = os.path.dirname(os.path.realpath(ours))
    with _both_sides(base, ours, theirs) as paths, tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            copies = [_copied(path, os.path.join(scratch, name)) for path, name in zip(paths, _SIDES, strict=True)]
            problems = _merge_schemas(copies, os.path.join(scratch, "schema.db"))
            pragmas = {name: [_pragma(path, name) for path in paths] for name in PRAGMAS}
            for name, (before, mine, new) in pragmas.items():
                if new not in (before, mine) and mine != before:
                    problems.append(f"PRAGMA {name}: ours changed it from {before} to {mine}, theirs to {new}")
            if problems:
                return Merge(problems=problems)
            found = diff(copies[0], copies[2], allow_incomplete=True, virtual=True)
            if found.problems:
                return Merge(problems=[f"{problem.table}: {problem.text}" for problem in found.problems])
            applied = apply(found.changes, copies[1], "omit", as_recorded=True, ignore_noop=True, foreign_keys=True)
            with sqlite.connect(copies[1], write=True) as connection, sqlite.explained(copies[1]):
                for name, (before, _, new) in pragmas.items():
                    if new != before:
                        connection.execute(f"PRAGMA {name} = {new}")
            replace_file(copies[1], ours)
            return Merge([conflict for conflict, _ in applied.conflicts])
        except DriftlineError as error:
            return Merge(problems=[error.message])


def _copied(path: str, copy: str) -> str:
    with sqlite.connect(path) as source, sqlite.explained(path):
        sqlite.copied(source, copy).close()
    return copy


def _pragma(path: str, name: str) -> int:
    with sqlite.connect(path) as connection, sqlite.explained(path):
        return int(connection.pragma(name))


# Definitions: each side changes to the schema that has what either side changed; then rows compare as ever.


def _merge_schemas(paths: list[str], target: str) -> list[str]:
    """Give base, ours and theirs one schema, that of all changes of definitions; why it cannot be, otherwise."""
    schemas = [_schema(path) for path in paths]
    base, ours, theirs = (schema.objects for schema in schemas)
    merged: dict[tuple[str, str], SchemaObject] = {}
    problems = []
    for key in dict.fromkeys([*ours, *theirs, *base]):
        before, mine, new = base.get(key), ours.get(key), theirs.get(key)
        if _same(mine, new) or _same(before, new):
            chosen = mine
        elif _same(before, mine):
            chosen = new
        else:
            problems.append(f"{key[0]} {(mine or new or before).name}: both sides changed its definition")  # type: ignore[union-attr]
            continue
        if chosen is not None:
            merged[key] = chosen
    sides = (base, ours, theirs)
    if problems or all(s.keys() == merged.keys() and all(_same(s[key], merged[key]) for key in s) for s in sides):
        return problems
    _create(target, merged.values())
    for name, table in schemas[0].tables.items():
        key = ("table", name)
        if key not in base:
            continue
        if table.kind == "virtual" and key in merged and not _same(base[key], merged[key]):
            problems.append(f"table {table.name}: one side changed the definition of a virtual table")
        elif table.kind == "table" and not _fits_changed_rows(paths, table, base[key], ours.get(key), target):
            problems.append(
                f"table {table.name}: one side changed its definition, which does not keep the other's rows"
            )
    if not problems:
        for path in paths:
            _migrate(path, target)
    return problems


def _fits_changed_rows(
    paths: list[str], table: sqlite.StoredTable, before: SchemaObject, mine: SchemaObject | None, target: str
) -> bool:
    """Whether a definition that changed keeps the rows that the side with the old definition changed."""
    if _same(before, _schema(target).objects.get(before.key)):
        return True
    stayed = paths[1] if _same(before, mine) else paths[2]
    if _same(before, _schema(stayed).objects.get(before.key)):
        with opened_sides(paths[0], stayed) as sides:
            name = folded(table.name)
            differs = TablePair(sides.connection, sides.new[name], sides.old[name]).contents_differ()
        return not differs or all(_keeps_rows(path, table, target) for path in (paths[0], stayed))
    return _keeps_rows(paths[0], table, target)  # both sides have the new definition


def _same(one: SchemaObject | None, other: SchemaObject | None) -> bool:
    return one is other or (one is not None and one.same(other))


def _schema(path: str) -> Schema:
    with sqlite.connect(path) as connection, sqlite.explained(path):
        return Schema.of(connection)


def _create(path: str, objects: Iterable[SchemaObject]) -> None:
    """An empty database of a schema."""
    connection = apsw.Connection(path)
    connection.collation_needed(sqlite.register_any)
    with sqlite.explained("the merged schema"):
        for item in sorted(objects, key=lambda item: ("table", "index", "view", "trigger").index(item.kind)):
            connection.execute(item.statement)
        connection.close()


def _keeps_rows(path: str, table: sqlite.StoredTable, target: str) -> bool:
    """Whether all rows of a table are the same under another definition, columns that it adds aside."""
    with tempfile.TemporaryDirectory() as folder:
        copy = _copied(path, os.path.join(folder, "copy.db"))
        _migrate(copy, target)
        with opened_sides(path, copy) as sides:
            new = sides.new.get(folded(table.name))
            names = {folded(column.name) for column in table.columns}
            kept = [] if new is None else [column for column in new.columns if folded(column.name) in names]
            if new is None or [folded(c.name) for c in kept] != [folded(c.name) for c in table.columns]:
                return False
            return not TablePair(sides.connection, replace(new, columns=tuple(kept)), table).contents_differ()


def _migrate(path: str, target: str) -> None:
    """Give a database the schema of another one, with the rows that fit it."""
    old, new = _schema(path), _schema(target)
    plan = plan_schema(old, new, lambda _: True)
    with sqlite.connect(path, write=True) as connection, sqlite.explained(path):
        plan.run(connection, [item.drop for item in old.triggers()], [item.statement for item in new.triggers()])
