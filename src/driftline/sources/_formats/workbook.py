"""Excel and OpenDocument workbooks (`book.xlsx::Sheet`) through calamine: a header, and typed cells below it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from driftline.errors import InputError
from driftline.sources._addresses import Address, InputFile
from driftline.sources._source import Opening, RowSource, explained

if TYPE_CHECKING:
    from python_calamine import CalamineWorkbook

_EXACT_INTEGER = 1 << 53


def open_input(address: Address, opening: Opening) -> WorkbookSource:
    """The sheet; a workbook with one sheet needs no name."""
    file = opening.files[0]
    sheets = _opened(file).sheet_names
    known = f"(it has: {', '.join(sheets)})"
    if address.table is None and len(sheets) != 1:
        example = f"{file.name}::{sheets[0] if sheets else 'SHEET'}"
        words = f"{file.name} has {len(sheets)} sheets: name one, as {example} {known}"
        raise InputError(words, code="missing_table_name", path=file.name)
    sheet = sheets[0] if address.table is None else address.table
    if sheet not in sheets:
        words = f"{file.name} has no sheet {sheet} {known}"
        raise InputError(words, code="no_such_table", path=file.name, table=sheet)
    return WorkbookSource((file,), "workbook", sheet)


@dataclass(frozen=True, slots=True)
class WorkbookSource(RowSource):
    """One sheet: its used area, without the empty rows below."""

    inner: str = field()  # the sheet

    def declared(self) -> Sequence[str]:
        return self._read(self.files[0])[0]

    def rows(self, file: InputFile) -> Iterator[dict[str, Any]]:
        columns, rows = self._read(file)
        for values in rows:
            yield dict(zip(columns, values, strict=True))

    def _read(self, file: InputFile) -> tuple[list[str], list[list[Any]]]:
        found = _opened(file).get_sheet_by_name(self.inner).to_python(skip_empty_area=True)
        rows = [[_value(cell) for cell in row] for row in found]
        while rows and all(value is None for value in rows[-1]):
            rows.pop()
        if not rows:
            raise InputError(f"sheet {self.inner} of {file.name} is empty", code="empty_file", path=file.name)
        named = enumerate(rows[0], 1)
        return [f"column_{number}" if value is None else str(value) for number, value in named], rows[1:]


def _opened(file: InputFile) -> CalamineWorkbook:
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError

    words = f"{file.name} is not a readable workbook"
    with explained(CalamineError, words, code="invalid_workbook", path=file.name), file.open() as stream:
        try:
            return CalamineWorkbook.from_filelike(stream)
        except PasswordError as error:
            words = f"{file.name} is encrypted: save it without a password"
            raise InputError(words, code="unsupported_format", path=file.name) from error


def _value(cell: Any) -> Any:
    """A cell as it is seen: workbooks store every number as a double, and an empty cell as nothing."""
    if cell == "":
        return None
    if isinstance(cell, float) and cell.is_integer() and abs(cell) <= _EXACT_INTEGER:
        return int(cell)
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date()
    return cell
