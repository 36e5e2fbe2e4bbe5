"""What rules do to the counts of a diff: the same tables compared with them and without them."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from driftline.core._progress import Tracker
from driftline.errors import Cancelled, DriftlineError
from driftline.web.console.option_form import RULES
from driftline.web.console.results import Comparison
from driftline.web.console.workspace import Workspace

LARGE_BYTES = 64 << 20  # of both sides; more is counted on demand only
_MOST_KEPT = 32
_MOST_COLUMNS = 40


@dataclass(frozen=True)
class Counts:
    """The counts of one comparison, or why there are none."""

    stats: dict[str, Any] | None
    changed: dict[str, int]
    error: str = ""


@dataclass(frozen=True)
class Preview:
    """Both counts, and the columns whose changes the rules hide."""

    plain: Counts
    ruled: Counts

    @property
    def columns(self) -> list[tuple[str, int, int]]:
        """Columns with how many rows change in them without and with the rules, where that differs."""
        names = dict.fromkeys([*self.plain.changed, *self.ruled.changed])
        both = [(name, self.plain.changed.get(name, 0), self.ruled.changed.get(name, 0)) for name in names]
        return [row for row in both if row[1] != row[2]][:_MOST_COLUMNS]

    @property
    def has_rules(self) -> bool:
        """Whether there is anything to compare."""
        return self.plain is not self.ruled


class Previews:
    """Counts of comparisons, kept as long as their files do not change."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._known: OrderedDict[str, Counts] = OrderedDict()

    def size(self, comparison: Comparison) -> int:
        """How many bytes would be read."""
        return sum(self.workspace.table_size(name) for name in (comparison.a, comparison.b))

    def preview(self, comparison: Comparison, tracker: Tracker) -> Preview:
        """Count with and without the rules."""
        plain = {name: value for name, value in comparison.options.items() if name not in RULES}
        ruled = self._counts(comparison, tracker)
        if plain == comparison.options:
            return Preview(ruled, ruled)
        return Preview(self._counts(Comparison(comparison.a, comparison.b, plain), tracker), ruled)

    def _counts(self, comparison: Comparison, tracker: Tracker) -> Counts:
        sides = [self.workspace.table_address(name) for name in (comparison.a, comparison.b)]
        states = [_state(side) for side in sides]
        name = repr((sides, states, sorted(comparison.options.items())))
        if None in states:  # a folder or a database may change without a sign
            return _count(sides, comparison.options, tracker)
        if name not in self._known:
            self._known[name] = _count(sides, comparison.options, tracker)
            while len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        return self._known[name]


def _count(sides: list[str], options: dict[str, Any], tracker: Tracker) -> Counts:
    import json

    from driftline.tables._api import diff

    try:
        with diff(sides[0], sides[1], engine="local", tracker=tracker, column_stats=True, **options) as result:
            changed = {}
            for line in result.lines():
                if line.startswith(b'{"type":"column_stats"'):
                    changed = _changed_cells(json.loads(line))
            return Counts(result.stats, changed)
    except Cancelled:
        raise
    except DriftlineError as error:
        return Counts(None, {}, error.message)


def _changed_cells(event: dict[str, Any]) -> dict[str, int]:
    return {each["name"]: int(each["changed"]) for each in event["columns"]}


def _state(address: str) -> tuple[int, int, int] | None:
    if not os.path.isfile(address):
        return None
    stat = os.stat(address)
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
