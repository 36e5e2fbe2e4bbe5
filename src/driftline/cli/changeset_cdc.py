"""`driftline changeset from-cdc`: captured messages as one file, as a file for each transaction, or as row deltas."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from driftline.changesets._cdc.convert import CdcNote, CdcOptions, deltas_from_cdc, from_cdc, transactions
from driftline.changesets._format.table import Table
from driftline.core._files import atomic_write, explain_io_errors, open_bytes, open_output, write_all
from driftline.errors import OptionError

Write = Callable[..., None]


def write_cdc(
    file: str,
    tables: list[Table],
    form: str,
    output: str | None,
    *,
    write: Write,
    per_transaction: str | None,
    client_id: str | None,
    start: int | None,
    **options: Any,
) -> None:
    """Write what the messages of a file say, in the form that is wanted."""
    if form != "deltas" and (client_id is not None or start is not None):
        raise OptionError("--client-id and --start are for --format deltas")
    with _lines(file) as lines:
        if form == "deltas":
            if client_id is None or per_transaction is not None:
                raise OptionError("deltas need --client-id, and go into one file")
            _write_deltas(lines, tables, file, output, client_id, start, options)
        elif per_transaction is not None:
            if output is not None:
                raise OptionError("give -o or --per-transaction, not both")
            _write_transactions(lines, tables, form, Path(per_transaction), CdcOptions(**options))
        else:
            captured = from_cdc(lines, tables, format=form, **options)  # type: ignore[arg-type]
            write(captured.changes.write_to, output, file)
            _tell(captured.notes)


@contextmanager
def _lines(file: str) -> Iterator[Iterable[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with explain_io_errors(file), open_bytes(file) as stream:
        yield stream


def _write_deltas(
    lines: Iterable[bytes],
    tables: list[Table],
    file: str,
    output: str | None,
    client_id: str,
    start: int | None,
    options: dict[str, Any],
) -> None:
    from driftline.deltas._deltas import Clock

    notes: list[CdcNote] = []
    first = Clock() if start is None else start
    with open_output(output, (file,)) as out:
        for delta in deltas_from_cdc(lines, tables, client_id=client_id, start=first, notes=notes, **options):
            write_all(out, json.dumps(delta.to_wire(), ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    _tell(notes)


def _write_transactions(
    lines: Iterable[bytes], tables: list[Table], form: str, folder: Path, options: CdcOptions
) -> None:
    with explain_io_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OptionError(f"{folder} is not empty: old transactions would be mixed with new ones", code="not_empty")
    notes: list[CdcNote] = []
    # All files appear at the end, so that a bad message leaves none of them.
    with tempfile.TemporaryDirectory(dir=folder) as waiting:
        for number, captured in enumerate(transactions(lines, tables, options, format=form), 1):  # type: ignore[arg-type]
            notes = captured.notes
            with atomic_write(Path(waiting) / _file_name(number, captured.transaction, form)) as out:
                captured.changes.write_to(out)
        for path in sorted(Path(waiting).iterdir()):
            path.rename(folder / path.name)
    _tell(notes)


def _file_name(number: int, transaction: str | None, form: str) -> str:
    known = transaction is not None and re.fullmatch("[0-9A-Za-z_-]{1,60}", transaction)
    return f"{number:06d}-{transaction}.{form}" if known else f"{number:06d}.{form}"


def _tell(notes: Iterable[CdcNote]) -> None:
    for note in notes:
        click.echo(f"note[{note.code}]: {note.name}: line {note.line} was passed over", err=True)
