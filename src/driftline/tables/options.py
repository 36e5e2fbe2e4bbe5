"""What a diff is asked to do, checked before any byte is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from driftline.errors import OptionError, TableError
from driftline.sources.port import ReadOptions

Mode = Literal["keyed", "positional"]
HeaderMode = Literal["strict", "sorted"]

_MODES = ("keyed", "positional")
_HEADER_MODES = ("strict", "sorted")
_NOT_DELIMITERS = '"\r\n'


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """Checked options of one diff; made by `check_options`."""

    mode: Mode
    key_columns: tuple[str, ...] = ()
    header_mode: HeaderMode = "strict"
    emit_unchanged: bool = False
    ignore_row_order: bool = False
    delimiter: str | None = None

    @property
    def reading(self) -> ReadOptions:
        """What the readers of both sides must know."""
        return ReadOptions(delimiter=self.delimiter)

    @property
    def has_row_numbers(self) -> bool:
        """Whether rows are known by their position in the file."""
        return self.mode == "positional" and not self.ignore_row_order


def check_options(
    *,
    mode: str | None = None,
    key_columns: Iterable[str] | str = (),
    header_mode: str = "strict",
    emit_unchanged: bool = False,
    ignore_row_order: bool = False,
    delimiter: str | None = None,
) -> DiffOptions:
    """The options of a diff, or the first thing that is wrong with them.

    >>> check_options(key_columns=["id"]).mode, check_options().mode
    ('keyed', 'positional')
    """
    keys = (key_columns,) if isinstance(key_columns, str) else tuple(dict.fromkeys(key_columns))
    if mode is not None and mode not in _MODES:
        raise OptionError(f'Unsupported mode: "{mode}"', code="invalid_mode")
    if header_mode not in _HEADER_MODES:
        raise OptionError(f'Unsupported header_mode: "{header_mode}"', code="invalid_header_mode")
    keyed = mode == "keyed" or (mode is None and bool(keys))
    if keyed and ignore_row_order:
        raise OptionError(
            "ignore_row_order works in positional mode only: a keyed diff never looks at the row order",
            code="invalid_option_combination",
        )
    if keyed and not keys:
        raise TableError("Missing key column: keyed mode needs at least one key column", code="missing_key_column")
    _check_delimiter(delimiter)
    return DiffOptions(
        mode="keyed" if keyed else "positional",
        key_columns=keys if keyed else (),
        header_mode="sorted" if header_mode == "sorted" else "strict",
        emit_unchanged=emit_unchanged,
        ignore_row_order=ignore_row_order,
        delimiter=delimiter,
    )


def _check_delimiter(delimiter: str | None) -> None:
    if delimiter is None:
        return
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in _NOT_DELIMITERS:
        raise OptionError(
            f"Unsupported delimiter: {delimiter!r} (one ASCII character that is not a quote or a line end)",
            code="invalid_delimiter",
        )
