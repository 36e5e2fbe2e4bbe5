"""Holding a file against a database before its first row is applied: tables, columns and keys (changesets §6.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import apsw

from driftline.changesets.names import folded
from driftline.changesets.schema import StoredTable, stored_tables
from driftline.changesets.summaries import Summary
from driftline.changesets.table import Table
from driftline.errors import ChangesetError

MAX_APPLIED_COLUMNS = 998  # SQLite's apply writes conditions that are too deep for its parser beyond this

TableFilter = Collection[str] | Callable[[str], bool]


@dataclass(slots=True)
class Fit:
    """Which tables of a file are to be changed: with the database's column names, filtered out, or missing."""

    tables: dict[str, Table] = field(default_factory=dict)
    filtered: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)  # folded name -> the file's spelling

    def wants(self, name: str) -> bool:
        """Whether changes of this table are applied."""
        return folded(name) in self.tables


@dataclass(frozen=True, slots=True)
class _Misfit:
    code: str
    table: str
    text: str


def fit_file(
    found: Summary,
    connection: apsw.Connection,
    wanted: Collection[str],
    *,
    allow_extra_columns: bool,
    skip_missing_tables: bool,
) -> Fit:
    """What of a file is to be applied; everything that does not fit is told at once."""
    names = {folded(section.table.name) for section in found.sections}
    stored = {folded(table.name): table for table in stored_tables(connection, names=names)}
    fit = Fit()
    misfits: list[_Misfit] = []
    for section in found.sections:
        name = folded(section.table.name)
        if name not in wanted:
            fit.filtered.add(name)
        elif name not in stored and skip_missing_tables:
            fit.missing[name] = section.table.name
        else:
            misfit = _misfit(section.table, stored.get(name), allow_extra_columns)
            if misfit is not None:
                misfits.append(misfit)
            else:
                fit.tables[name] = _named(section.table, stored[name])
    if misfits:
        raise _refusal(misfits)
    return fit


def wanted_tables(found: Summary, tables: TableFilter | None) -> set[str]:
    """The folded names of the file's tables that are to be changed: all, those named, or those a function wants."""
    held = {folded(section.table.name): section.table.name for section in found.sections}
    if tables is None:
        return set(held)
    if callable(tables):
        return {name for name, spelling in held.items() if tables(spelling)}
    names = [tables] if isinstance(tables, str) else list(tables)
    unknown = [_Misfit("unknown_table", name, "the file has no changes of it") for name in names]
    unknown = [misfit for misfit in unknown if folded(misfit.table) not in held]
    if unknown:
        raise _refusal(unknown)
    return set(map(folded, names))


def _misfit(table: Table, stored: StoredTable | None, allow_extra_columns: bool) -> _Misfit | None:
    if stored is None:
        return _Misfit("unknown_table", table.name, "the database has no such table")
    if stored.kind == "virtual":
        return _Misfit("schema_mismatch", table.name, "it is a virtual table in the database")
    if stored.hides_rowid:
        return _Misfit("schema_mismatch", table.name, "it has no key, and a column hides its rowid")
    flags = stored.table.key_flags
    width = table.width
    columns = f"the file has {width} columns, the database {len(flags)}"
    if len(flags) < width:
        return _Misfit("schema_mismatch", table.name, columns)
    if flags[:width] != table.key_flags or any(flags[width:]):
        return _Misfit("schema_mismatch", table.name, _other_keys(table.key_flags, stored))
    if len(flags) > width and not allow_extra_columns:
        return _Misfit("schema_mismatch", table.name, f"{columns} (--allow-extra-columns lets defaults fill them)")
    if len(flags) > MAX_APPLIED_COLUMNS:
        return _Misfit(
            "schema_mismatch", table.name, f"SQLite applies changes of at most {MAX_APPLIED_COLUMNS} columns"
        )
    return None


def _other_keys(flags: tuple[int, ...], stored: StoredTable) -> str:
    in_file = [str(index + 1) for _, index in sorted((flag, index) for index, flag in enumerate(flags) if flag)]
    columns = "column" if len(in_file) == 1 else "columns"
    return f"the file's key is {columns} {', '.join(in_file)}, the database's is {', '.join(stored.table.primary_key)}"


def _named(table: Table, stored: StoredTable) -> Table:
    """The database's description of the columns that the file has."""
    known = stored.table
    if known.width == table.width:
        return known
    return Table(known.name, known.columns[: table.width], known.primary_key)


def _refusal(misfits: list[_Misfit]) -> ChangesetError:
    text = "; ".join(f"table {misfit.table}: {misfit.text}" for misfit in misfits)
    return ChangesetError(
        f"nothing was applied: {text}", code=misfits[0].code, tables=[misfit.table for misfit in misfits]
    )
