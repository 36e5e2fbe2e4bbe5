"""`Diff`: the members that every result of a comparison has, whatever was compared.

Table diffs, payload reports, database diffs, index diffs and DataFrame diffs have these members, so that code which
receives "what changed" need not know what was compared. `DiffMembers` derives those that follow from the others.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from driftline.core._files import StrPath, atomic_write, format_of, write_all
from driftline.core._json import exact_dumps
from driftline.errors import OptionError

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

SHOWN_CHANGES = 10  # that `describe`, a notebook or an assertion shows


class Diff(Protocol):
    """The result of a comparison."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many differences there are of each kind; the kinds are those of what was compared."""

    @property
    def exit_code(self) -> int:
        """What the command returns with the same options: 0 the same, 1 different, 2 not decided."""

    def __bool__(self) -> bool:
        """Whether the two differ."""

    def __len__(self) -> int:
        """The number of differences."""

    def changes(self) -> Iterator[Any]:
        """The differences alone, in the order of the output; a limit on the output holds here too."""

    def describe(self, limit: int = SHOWN_CHANGES) -> str:
        """Counts and the first differences, as text."""

    def write(self, path: StrPath, format: str | None = None) -> None:  # noqa: A002
        """Write the result to a file, atomically; without a format the file's suffix decides it."""

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""

    def to_json(self) -> bytes:
        """`to_dict` as compact JSON."""

    def to_polars(self) -> pl.DataFrame:
        """The differences as a table; `to_arrow` and `to_pandas` give the same one."""

    def to_arrow(self) -> pa.Table:
        """As `to_polars`, in Arrow."""

    def to_pandas(self) -> Any:
        """As `to_polars`, in pandas."""

    def _repr_html_(self) -> str:
        """The result in a notebook."""


class DiffMembers:
    """The members of a `Diff` that follow from the others."""

    __slots__ = ()

    if TYPE_CHECKING:  # what a class defines itself
        _formats: ClassVar[Mapping[str, str]]  # suffix -> format of `write`; the first one is the default

        def __len__(self) -> int: ...
        def to_dict(self) -> dict[str, Any]: ...
        def to_polars(self) -> pl.DataFrame: ...
        def _headline(self) -> str: ...  # the counts in one line
        def _change_lines(self) -> Iterator[str]: ...  # the differences, a line each
        def _rendered(self, format_name: str) -> Iterable[bytes]: ...  # the content of a file of one of `_formats`

    @property
    def exit_code(self) -> int:
        """What the command returns with the same options: 0 the same, 1 different."""
        return int(bool(self))

    def describe(self, limit: int = SHOWN_CHANGES) -> str:
        """Counts and the first differences, as text."""
        return "\n".join([self._headline(), *self._first_changes(limit)])

    def _first_changes(self, limit: int) -> Iterator[str]:
        shown = 0
        for shown, line in enumerate(self._change_lines(), 1):
            if shown > limit:
                shown = limit
                break
            yield f"  {line}"
        if len(self) > shown:
            yield f"  … and {len(self) - shown:,} more"

    def _repr_html_(self) -> str:
        """The text of `describe`, in a notebook."""
        lines = html.escape("\n".join(self._first_changes(SHOWN_CHANGES)))
        return f"<p><b>{html.escape(self._headline())}</b></p>" + (f"<pre>{lines}</pre>" if lines else "")

    def write(self, path: StrPath, format: str | None = None) -> None:  # noqa: A002
        """Write the result to a file, atomically; without a format the file's suffix decides it."""
        known = list(dict.fromkeys(self._formats.values()))
        name = format or format_of(path, self._formats)
        if name not in known:
            raise OptionError(f'Unsupported format: "{name}" ({", ".join(known)})', code="invalid_format")
        with atomic_write(path) as out:
            for piece in self._rendered(name):
                write_all(out, piece)

    def to_json(self) -> bytes:
        """`to_dict` as compact JSON."""
        return exact_dumps(self.to_dict()).encode("utf-8", "backslashreplace")

    def to_arrow(self) -> pa.Table:
        """As `to_polars`, in Arrow."""
        return self.to_polars().to_arrow()

    def to_pandas(self) -> Any:
        """As `to_polars`, in pandas."""
        return self.to_polars().to_pandas()
