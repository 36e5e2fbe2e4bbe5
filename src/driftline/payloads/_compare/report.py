"""The state of one comparison while it goes on: entries, counters, the clock and who owns the field in hand."""

from __future__ import annotations

from typing import Any, NamedTuple

from driftline.errors import PayloadError
from driftline.payloads.config import EngineConfig
from driftline.payloads.deadline import Deadline
from driftline.payloads.paths import Path, render
from driftline.payloads.report import Entry
from driftline.payloads.values import CONTAINERS, SIDE_NAMES, Value, is_deeper_than, leaf_count

STEPS_BETWEEN_CLOCK_LOOKS = 256
CLOCK_MASK = STEPS_BETWEEN_CLOCK_LOOKS - 1
IGNORED_LEAF = 1 << 32  # in a tally of leaves, see object_code
NESTED_LEVELS = 2  # how far below generated functions look; a difference there is looked at once more for each level
NOT_QUICK = -1  # a `quick_depth` at which generated functions are not used


class StopComparisonError(Exception):
    """Enough is known: `fail_fast`, or a probe that found a difference."""


class Owner(NamedTuple):
    """Two objects that conditions of their members look at, with their plan (a `NodePlan`, which comes after runs)."""

    plan: object
    old: Value
    new: Value


class Run:
    """Collects what one comparison finds."""

    __slots__ = (
        "check_deadline", "checked", "conditions", "config", "deadline", "depth", "diffs", "extra_leaves", "fail_fast",
        "fitting", "ignored", "max_depth", "owners", "pruned", "quick_depth", "root", "roots", "said",
        "statistics", "steps", "trace", "unmatched", "views", "warnings",
    )  # fmt: skip

    def __init__(self, config: EngineConfig, root_plan: object, roots: tuple[Value, Value], deadline: Deadline) -> None:
        self.config = config
        self.root = Owner(root_plan, *roots)
        self.roots = roots
        self.deadline = deadline
        self.check_deadline = deadline.check
        self.fail_fast = config.fail_fast
        self.max_depth = config.max_depth
        # From here on only the loops compare. With fail_fast always: a report counts what came before the difference.
        self.quick_depth = NOT_QUICK if config.fail_fast else config.max_depth - NESTED_LEVELS
        self.statistics = config.collect_statistics
        self.trace: list[Entry] | None = [] if config.trace_rule_application else None
        self.diffs: list[Entry] = []
        self.warnings: list[Entry] = []
        self.unmatched: tuple[list[Path], list[Path]] = ([], [])
        self.owners: list[Owner] = []
        self.pruned: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        self.said: set[object] = set()
        self.fitting: dict[tuple[int, int, int], tuple[Value, bool]] = {}
        self.conditions: dict[tuple[int, int], bool] = {}
        self.views: dict[object, Any] = {}
        self.checked = self.ignored = self.extra_leaves = self.depth = self.steps = 0

    def probe(self) -> Run:
        """A run for a trial comparison that stops at the first difference and leaves no marks here."""
        trial = Run(self.config, self.root.plan, self.roots, self.deadline)
        trial.fail_fast, trial.trace, trial.statistics = True, None, False
        trial.owners, trial.pruned, trial.depth = list(self.owners), self.pruned, self.depth
        trial.conditions, trial.views, trial.fitting = self.conditions, self.views, self.fitting
        return trial

    def add(self, tally: int) -> None:
        """Count the leaves of a tally."""
        self.checked += tally % IGNORED_LEAF
        self.ignored += tally // IGNORED_LEAF

    def enter(self) -> None:
        """One container deeper; also looks at the clock now and then."""
        self.depth += 1
        self.steps += 1
        if self.depth > self.max_depth or not self.steps & CLOCK_MASK:
            self.check_limits()

    def check_limits(self) -> None:
        """Raise where the payload is too deep or the time is up."""
        if self.depth > self.max_depth:
            raise self._too_deep()
        self.check_deadline()

    def check_nesting(self, value: Value) -> None:
        """Raise where a value that is not walked is too deep."""
        if type(value) in CONTAINERS and is_deeper_than(value, self.max_depth - self.depth):
            raise self._too_deep()

    def _too_deep(self) -> PayloadError:
        return PayloadError(
            f"the payload is nested deeper than {self.max_depth} levels (max_depth)",
            code="MAX_DEPTH_EXCEEDED",
            details={"reason": "max_depth", "limit": self.max_depth},
        )

    def error(
        self, kind: str, path: Path, old: Value, new: Value, message: str, rule: str | None = None, **more: object
    ) -> None:
        """An ERROR entry."""
        entry = Entry(path=render(path), type=kind, severity="ERROR", old_value=old, new_value=new, message=message)
        if rule is not None:
            entry["rule_applied"] = rule
        if more:
            entry.update(more)
        self.diffs.append(entry)
        if self.fail_fast:
            raise StopComparisonError

    def warn(self, kind: str, path: Path, message: str, rule: str | None = None, **more: object) -> None:
        """A WARNING entry."""
        entry = Entry(path=render(path), type=kind, severity="WARNING", message=message)
        if rule is not None:
            entry["rule_applied"] = rule
        entry.update(more)
        self.warnings.append(entry)

    def warn_once(self, mark: object, path: Path, message: str, rule: str | None = None) -> None:
        """A `RULE_ERROR` warning that is given once for each mark."""
        if mark not in self.said:
            self.said.add(mark)
            self.warn("RULE_ERROR", path, message, rule)

    def note(self, path: Path, rule: str, outcome: str) -> None:
        """A trace entry, where a trace is wanted."""
        if self.trace is not None:
            self.trace.append(Entry(path=render(path), rule=rule, outcome=outcome))

    def one_sided(self, side: int, path: Path, value: Value) -> None:
        """Remember, for the coverage, a node without a partner."""
        is_scalar = type(value) not in CONTAINERS
        if not is_scalar:
            self.check_nesting(value)
        if self.statistics:
            self.unmatched[side].append(path)
            self.extra_leaves += 1 if is_scalar else leaf_count(value)

    def lost(self, path: Path, value: Value, rule: str | None = None) -> None:
        """A member that only Old has."""
        self.one_sided(0, path, value)
        self.error("MISSING_IN_NEW", path, value, None, "The field exists in Old but not in New", rule)

    def added(self, path: Path, value: Value, rule: str | None = None) -> None:
        """A member that only New has."""
        self.one_sided(1, path, value)
        self.error("EXTRA_IN_NEW", path, None, value, "The field exists in New but not in Old", rule)

    def schema_mismatch(self, path: Path, old: Value, new: Value, sides: list[int], expectation: str) -> None:
        """A value of the wrong type or a missing required member: ERROR when strict, else INFO in the trace."""
        side = "both" if len(sides) == 2 else SIDE_NAMES[sides[0]]
        where = "Old and New do" if len(sides) == 2 else f"{SIDE_NAMES[sides[0]].capitalize()} does"
        if self.config.strict_schema_validation:
            message = f"{where} not match the schema: {expectation}"
            self.error("SCHEMA_MISMATCH", path, old, new, message, side=side)
        else:
            self.note(path, expectation, f"schema mismatch in {side}")
