"""Reading the log for a caller: through its view where rules are set, from its cursor on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from driftline.gateway.auth import Caller
from driftline.gateway.cursor import NO_VIEW, naming_snapshot
from driftline.gateway.log import DeltaLog
from driftline.gateway.pull import Page, limit_of, parameters_of, read_page, start_of
from driftline.gateway.row_index import RowIndex
from driftline.gateway.rules import SyncRules
from driftline.gateway.views import View


@dataclass(frozen=True, slots=True)
class Sight:
    """What a caller may see at the moment; None as rules is everything."""

    rules: SyncRules | None
    rules_number: int
    digest: str


@dataclass(frozen=True, slots=True)
class LogReader:
    """Pages of the log for callers."""

    log: DeltaLog
    index: RowIndex
    gateway: str
    current_rules: Callable[[], tuple[SyncRules | None, int]]

    def sight(self, caller: Caller, query: Mapping[str, str], current: tuple[SyncRules | None, int]) -> Sight:
        """What a caller may see with these parameters under the current rules."""
        rules, number = current
        if rules is None or caller.is_admin:
            return Sight(None, number, NO_VIEW)
        return Sight(rules, number, rules.view_digest(caller.claims, parameters_of(query)))

    def page(self, caller: Caller, query: Mapping[str, str]) -> Page:
        """One page from the query's cursor or since on."""
        with naming_snapshot(self.gateway):
            return self._page(caller, query)

    def _page(self, caller: Caller, query: Mapping[str, str]) -> Page:
        limit, sight = limit_of(query), self.sight(caller, query, self.current_rules())
        start = start_of(query, self.log, sight.rules_number, sight.digest)
        if sight.rules is None:
            return read_page(self.log, start, limit)
        upto = self.index.catch_up(sight.rules, sight.rules_number)
        view = View(
            self.index, sight.rules, caller.claims, self.gateway, parameters_of(query), rules_number=sight.rules_number
        )
        try:
            return read_page(self.log, start, limit, view, upto)
        finally:
            view.close()
