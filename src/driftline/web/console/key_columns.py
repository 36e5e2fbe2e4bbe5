"""How well each column would serve as a key, judged by the first rows of both sides."""

from __future__ import annotations

from dataclasses import dataclass

from driftline.core._workspace import Workspace
from driftline.sources._open import open_source
from driftline.tables._rules.cells import EXACT

_ROWS = 20_000


@dataclass(frozen=True)
class KeyColumn:
    """A column that both sides have: how often its values repeat or are missing in the rows that were looked at."""

    name: str
    repeated: int
    missing: int

    @property
    def is_unique(self) -> bool:
        """Whether every row has a value of its own."""
        return not (self.repeated or self.missing)

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.is_unique:
            return "unique"
        words = [f"{self.repeated} repeats" if self.repeated else "", f"{self.missing} empty" if self.missing else ""]
        return ", ".join(word for word in words if word)


def key_columns(a: str, b: str) -> list[KeyColumn]:
    """Columns that both sides have, in the order of A, unique ones first."""
    heads = [_head(address) for address in (a, b)]
    shared = [name for name in heads[0] if name in heads[1]]
    found = [_judge(name, [head[name] for head in heads]) for name in shared]
    return sorted(found, key=lambda column: not column.is_unique)


def _judge(name: str, sides: list[list[str | None]]) -> KeyColumn:
    present = [[cell for cell in side if cell is not None] for side in sides]
    repeated = sum(len(values) - len(set(values)) for values in present)
    return KeyColumn(name, repeated, sum(map(len, sides)) - sum(map(len, present)))


def _head(address: str) -> dict[str, list[str | None]]:
    """The first rows of a table, by column; None where a key cell would be missing."""
    with Workspace() as workspace:
        source = open_source(address, workspace)
        cells, typed = source.sample("A", _ROWS), source.typed
    missing = EXACT.missing_forms(typed=typed)
    return {name: [None if cell in missing else cell for cell in column] for name, column in cells.items()}
