"""What a person at a terminal sees of a lake and a gateway: words and tables; in a pipe the same as data."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.terminal import stdout_console

if TYPE_CHECKING:
    from rich.table import Table

    from driftline.lake import CompactionResult, FlushResult, HistoryEntry, LogEntry, TableStatus, Verification


def on_terminal() -> bool:
    """Whether a person reads the answer."""
    return sys.stdout.isatty()


def tell(record: Mapping[str, Any], words: str) -> None:
    """One answer: a sentence on a terminal, one JSON object in a pipe."""
    if on_terminal():
        stdout_console().print(words, markup=False, highlight=False)
    else:
        click.echo(json.dumps(record, ensure_ascii=False))


def counted(count: int, what: str) -> str:
    """A number and its noun.

    >>> counted(1, "delta"), counted(1200, "delta")
    ('1 delta', '1,200 deltas')
    """
    return f"{count:,} {what if count == 1 else what + 's'}"


def flush_words(result: FlushResult) -> str:
    """What a flush did to a table."""
    parts = [f"{result.table}: {counted(result.deltas, 'delta')} added"]
    parts += [f"{result.known:,} known already"] if result.known else []
    parts += [f"{result.waiting:,} waiting for a schema"] if result.waiting else []
    parts += [f"{result.set_aside:,} set aside, below the horizon"] if result.set_aside else []
    return ", ".join(parts)


def compaction_words(result: CompactionResult) -> str:
    """What a compaction did to a table."""
    if not result.is_new:
        return f"{result.table}: nothing new to fold"
    files = f"{counted(result.files_written, 'file')} written, {result.files_replaced:,} replaced"
    return f"{result.table}: {counted(result.deltas_folded, 'delta')} folded, {files}"


def proof_words(table: str, proof: Verification) -> str:
    """What was proved, or which rows differ."""
    counts = f"{counted(proof.deltas, 'delta')} replayed, {counted(proof.rows_in_base, 'row')} compared"
    waiting = f"; {counted(proof.waiting, 'delta')} wait for a schema" if proof.waiting else ""
    if proof.is_proved:
        return f"{table}: proved ({counts}{waiting})"
    named = ", ".join(map(str, proof.differing_rows[:10])) or "none by name"
    return f"{table}: NOT proved ({counts}{waiting}); rows that differ: {named}"


def show_tables(found: Iterable[TableStatus]) -> None:
    """The tables of a lake, and what their state lacks."""
    names = ["table", "rows", "unfolded", "waiting", "set aside", "state", "columns"]
    table = _table(names, right=names[1:5])
    for status in found:
        columns = "no schema" if status.columns is None else ", ".join(status.columns)
        rows = "–" if status.rows is None else f"{status.rows:,}"
        counts = (f"{count:,}" if count else "" for count in (status.unfolded, status.waiting, status.set_aside))
        table.add_row(status.table, rows, *counts, _age(status.state_age_seconds), columns)
    stdout_console().print(table)


def show_log(entries: Iterable[LogEntry]) -> None:
    """The commits of a table."""
    from driftline.lake._store.lake import timestamp_text

    table = _table(["commit", "operation", "deltas", "gateway", "files", "timestamps"], right=["deltas"])
    for entry in entries:
        reach = [timestamp_text(hlc) for hlc in (entry.min_hlc, entry.max_hlc) if hlc is not None]
        deltas = "" if entry.deltas is None else f"{entry.deltas:,}"
        files = f"+{entry.files_added} −{entry.files_removed}"
        table.add_row(
            f"{entry.part}@{entry.version}", entry.operation, deltas, entry.gateway or "", files, " to ".join(reach)
        )
    stdout_console().print(table)


def show_history(entries: Iterable[HistoryEntry]) -> None:
    """The deltas of a row; what a delta won and still holds is bold."""
    from rich.text import Text

    from driftline.lake._store.lake import timestamp_text

    table = _table(["timestamp", "client", "operation", "columns"])
    for entry in entries:
        values = Text()
        for number, each in enumerate(entry.delta.columns):
            shown = f"{each.column}={json.dumps(each.value, ensure_ascii=False)}"
            values.append(", " if number else "")
            values.append(shown, style="bold" if each.column in entry.won else "dim")
        table.add_row(timestamp_text(entry.delta.hlc), entry.delta.client_id, entry.delta.op, values)
    stdout_console().print(table)


def _table(names: Sequence[str], right: Sequence[str] = ()) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=name in right)
    return table


def _age(seconds: int | None) -> str:
    if seconds is None:
        return "never compacted"
    if seconds == 0:
        return "up to date"
    return f"{seconds} s behind" if seconds < 120 else f"{seconds // 60} min behind"
