"""Tables that are no files, as the stages of a run read them: through the one port of sources.

A table with versions is read in place. One without (of PostgreSQL, of a Spark catalog) may change between two stages:
its rows are copied once in a run, all stages read the copy, and the rows are its fingerprint.
"""

from __future__ import annotations

import secrets

from driftline.core import Location, Workspace, remove
from driftline.errors import InputError
from driftline.pipeline._declare.declaration import TableAddress
from driftline.sources import copied_rows, open_source


class TableReader:
    """The tables of one run; copies lie in `work`, else in a temporary folder."""

    def __init__(self, work: Location | None = None) -> None:
        self._work = work
        self._temporary = Workspace()
        self._folders: list[Location] = []
        self._copies: dict[str, str] = {}

    def given(self, text: str) -> str:
        """What the stages read: the copy where there is one."""
        return self._copies.get(text, text)

    def content(self, table: TableAddress) -> str:
        """A text for the content of the table, as this run reads it."""
        with Workspace() as workspace:
            source = open_source(table, workspace)
            content = source.identity
            if not content and self._work is None and (copied := source.copied(None)) is not None:
                content = copied[1]  # a plan needs no copy
            elif not content:
                folder = (self._work or self._temporary.folder) / f"table-{secrets.token_hex(8)}"
                self._folders.append(folder)
                self._copies[table], content = copied_rows(table, source, workspace, folder)
            return f"{source.format} {content}"

    def check(self, table: TableAddress, content: str) -> None:
        """Raise if a table that is read in place is no longer what this run began with."""
        if table not in self._copies and self.content(table) != content:
            words = f"{table} changed while it was being read: name a version, or run again"
            raise InputError(words, code="source_changed", path=table)

    def close(self) -> None:
        """Remove the copies."""
        self._temporary.close()
        for folder in self._folders:
            remove(folder)
