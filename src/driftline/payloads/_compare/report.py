"""The report of a comparison (entries, summary, coverage, trace), its text form, and the run that collects it.

>>> entry = Entry(path="$.a", type="VALUE_MISMATCH")
>>> entry.path, entry["type"]
('$.a', 'VALUE_MISMATCH')
"""

from __future__ import annotations

import html
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from driftline.core import SHOWN_CHANGES, DiffMembers
from driftline.errors import PayloadError
from driftline.payloads._values.limits import Deadline, EngineConfig
from driftline.payloads._values.paths import Path, render
from driftline.payloads._values.text import to_json_bytes
from driftline.payloads._values.values import (
    CONTAINERS,
    MISSING,
    NEW,
    OLD,
    SIDE_NAMES,
    Value,
    is_deeper_than,
    spelled,
    union_leaf_count,
)

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from driftline.payloads._rules.meaning import Meaning

_VERDICTS = {True: "match", False: "mismatch", None: "cut short"}
_COLOURS = {"ERROR": "red", "WARNING": "yellow"}
_SHOWN = 20  # entries in a repr

CLOCK_MASK = 255  # steps between two looks at the clock


class Entry(dict[str, Any]):
    """A diff, warning or trace entry: the object that reports print, readable by attribute too."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the entry has no {name!r}") from None


@dataclass(frozen=True, slots=True, repr=False)
class Report(DiffMembers):
    """The outcome of one comparison: a `Diff` whose changes are the entries of `diffs`.

    `is_match` is None where the comparison was cut short; then the report counts as different, with exit code 2.
    """

    _formats: ClassVar[Mapping[str, str]] = {".json": "json", ".txt": "text"}

    is_match: bool | None
    summary: dict[str, int]
    diffs: list[Entry]
    warnings: list[Entry]
    execution: dict[str, Any] = field(default_factory=dict)
    coverage: dict[str, Any] | None = None
    trace: list[Entry] | None = None

    def __bool__(self) -> bool:
        """Whether the payloads differ; a comparison that was cut short counts as differing.

        >>> [bool(Report(verdict, {}, [], [])) for verdict in (True, False, None)]
        [False, True, True]
        """
        return self.is_match is not True

    def __len__(self) -> int:
        return len(self.diffs)

    @property
    def counts(self) -> dict[str, int]:
        """The summary: fields compared and ignored, differences, warnings."""
        return self.summary

    @property
    def exit_code(self) -> int:
        """What `driftline compare` returns: 0 match, 1 mismatch, 2 where the comparison was cut short."""
        return 2 if self.is_match is None else int(not self.is_match)

    def changes(self) -> Iterator[Entry]:
        """The differences, without the warnings."""
        return iter(self.diffs)

    def to_polars(self) -> pl.DataFrame:
        """One row a difference; values as JSON text."""
        import polars as pl

        names = ("path", "type", "old", "new", "message")
        return pl.DataFrame(
            [_cells(entry) for entry in self.diffs], schema=dict.fromkeys(names, pl.String), orient="row"
        )

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Report:
        """The report that `to_dict` has written."""
        entries = {
            name: [Entry(entry) for entry in content[name]]
            for name in ("diffs", "warnings", "trace")
            if name in content
        }
        return cls(**{**content, **entries})

    def to_dict(self, *, execution: bool = True) -> dict[str, Any]:
        """The report as data (payloads §6.1); without `execution` it is the same for the same input."""
        content: dict[str, Any] = {"is_match": self.is_match}
        if execution:
            content["execution"] = self.execution
        content |= {"summary": self.summary, "diffs": self.diffs, "warnings": self.warnings}
        if self.coverage is not None:
            content["coverage"] = self.coverage
        if self.trace is not None:
            content["trace"] = self.trace
        return content

    def __str__(self) -> str:
        """The verdict and what differs, a line or two each.

        >>> print(Report(False, {}, [Entry(path="$.a", type="VALUE_MISMATCH", severity="ERROR", message="1 != 2")], []))
        mismatch: 1 difference, 0 warnings
          $.a VALUE_MISMATCH: 1 != 2
        """
        return self.describe(_SHOWN)

    def describe(self, limit: int = SHOWN_CHANGES) -> str:
        """The verdict, the first differences and warnings, as text."""
        counts = f"{_count(len(self.diffs), 'difference')}, {_count(len(self.warnings), 'warning')}"
        shown = [*self.diffs, *self.warnings][:limit]
        lines = [f"  {entry['path']} {entry['type']}: {entry['message']}" for entry in shown]
        left = len(self.diffs) + len(self.warnings) - len(shown)
        return "\n".join([f"{_VERDICTS[self.is_match]}: {counts}", *lines, *([f"  … and {left} more"] if left else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The report as a table, for notebooks."""
        head = html.escape(str(self).split("\n", 1)[0])
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(entry)) + "</tr>"
            for entry in [*self.diffs, *self.warnings][:_SHOWN]
        )
        names = "".join(f"<th>{name}</th>" for name in ("path", "type", "old", "new", "why"))
        return f"<p><b>{head}</b></p>" + (f"<table><tr>{names}</tr>{rows}</table>" if rows else "")

    def to_json(self, *, execution: bool = True) -> bytes:
        """The report as compact JSON."""
        return to_json_bytes(self.to_dict(execution=execution))

    def _rendered(self, format_name: str) -> Iterator[bytes]:
        """The report as `driftline compare` writes it into a file."""
        yield self.to_text() if format_name == "text" else indented(self.to_json()) + b"\n"

    def to_text(self, *, is_terminal: bool = False) -> bytes:
        """Every difference in some lines, in colour for a terminal."""
        from rich.console import Console

        target = io.StringIO()
        console = Console(file=target, force_terminal=is_terminal, highlight=False, soft_wrap=True)
        for entry in [*self.diffs, *self.warnings]:
            _print_entry(entry, console)
        console.print(_VERDICTS[self.is_match], style="bold green" if self.is_match else "bold red", end="")
        console.print(
            f": {_count(self.summary['total_fields_checked'], 'field')} compared, "
            f"{_count(self.summary['mismatches_found'], 'difference')}, "
            f"{_count(self.summary['warnings_count'], 'warning')}, {self.summary['fields_ignored']} ignored",
            markup=False,
        )
        return target.getvalue().encode("utf-8", "backslashreplace")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cells(entry: Entry) -> tuple[str, ...]:
    sides = (spelled(entry[name]) if name in entry else "" for name in ("old_value", "new_value"))
    return (entry["path"], entry["type"], *sides, entry["message"])


def indented(data: bytes, indent: int = 2) -> bytes:
    """JSON text with line breaks; the text itself is re-spaced, so that numbers stay as they are written."""
    try:
        return msgspec.json.format(data, indent=indent)
    except msgspec.DecodeError:  # lone surrogates
        return json.dumps(json.loads(data), indent=indent).encode()


def _print_entry(entry: Entry, console: Console) -> None:
    console.print(f"{entry.type} ", style=_COLOURS[entry.severity], end="", markup=False)
    console.print(entry.path, style="bold", markup=False, soft_wrap=True)
    labels = {"old_value": "old", "new_value": "new", "message": "why", "rule_applied": "rule"}
    for name, label in labels.items():
        if name in entry:
            console.print(f"  {label:<5}", style="dim", end="")
            value = spelled(entry[name]) if name.endswith("_value") else entry[name]
            console.print(value, markup=False, soft_wrap=True)


# The state of a running comparison.
class StopComparisonError(Exception):
    """Enough is known: `fail_fast`, or a probe that found a difference."""


class Owner(NamedTuple):
    """Two objects that conditions of their members refer to, with their plan."""

    plan: Any  # a `NodePlan`, defined later
    old: Value
    new: Value


class Observer:
    """Collects what the comparison pairs with each other, whether it differs or not; this one nothing."""

    __slots__ = ()

    def leaf(self, path: Path, old: Value, new: Value, meaning: Meaning) -> None:
        """Two values of which at least one is a scalar, and what their rules mean."""

    def array(self, path: Path, old: list[Any], new: list[Any], keeps_indexes: bool) -> None:
        """Two arrays, before their items are paired; sorting and ignores change the indexes in paths."""

    def members(self, path: Path, old: dict[str, Any], new: dict[str, Any], names: dict[str, str]) -> None:
        """Two objects, and Old's names of members that have another one in New."""

    def alone(self, path: Path, side: int, value: Value) -> None:
        """A member or an item of one side that has no partner."""


class Run:
    """Collects what one comparison finds."""

    __slots__ = (
        "check_deadline", "checked", "conditions", "config", "deadline", "depth", "diffs", "extra_leaves", "fail_fast",
        "fitting", "ignored", "max_depth", "observer", "owners", "pruned", "root", "roots", "said",
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
        self.observer: Observer | None = None
        self.checked = self.ignored = self.extra_leaves = self.depth = self.steps = 0

    def probe(self) -> Run:
        """A run for a trial comparison that stops at the first difference and leaves this run unchanged."""
        trial = Run(self.config, self.root.plan, self.roots, self.deadline)
        trial.fail_fast, trial.trace, trial.statistics = True, None, False
        trial.owners, trial.pruned, trial.depth = list(self.owners), self.pruned, self.depth
        trial.conditions, trial.views, trial.fitting = self.conditions, self.views, self.fitting
        return trial

    def enter(self) -> None:
        """One container deeper; also checks the deadline now and then."""
        self.depth += 1
        self.steps += 1
        if self.depth > self.max_depth:
            raise self._too_deep()
        if not self.steps & CLOCK_MASK:
            self.check_deadline()

    def check_at(self, index: int) -> None:
        """Check the deadline now and then in a loop."""
        if not index & CLOCK_MASK:
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
        """A trace entry, where a trace is requested."""
        if self.trace is not None:
            self.trace.append(Entry(path=render(path), rule=rule, outcome=outcome))

    def one_sided(self, side: int, path: Path, value: Value) -> None:
        """Record, for the coverage, a node without a partner."""
        is_scalar = type(value) not in CONTAINERS
        if not is_scalar:
            self.check_nesting(value)
        if self.observer is not None:
            self.observer.alone(path, side, value)
        if self.statistics:
            self.unmatched[side].append(path)
            self.extra_leaves += 1 if is_scalar else union_leaf_count(value)

    def lone(self, path: Path, old: Value, new: Value, rule: str | None = None) -> None:
        """A member that one side lacks: its value there is `MISSING`."""
        if new is MISSING:
            self.one_sided(OLD, path, old)
            self.error("MISSING_IN_NEW", path, old, None, "The field exists in Old but not in New", rule)
        else:
            self.one_sided(NEW, path, new)
            self.error("EXTRA_IN_NEW", path, None, new, "The field exists in New but not in Old", rule)

    def allowed(self, path: Path, value: Value) -> None:
        """A member that only New has, where new members are allowed: counted, but no difference."""
        self.one_sided(NEW, path, value)
        rule = "x-migration-allow-new-members"
        self.warn("EXTRA_IN_NEW", path, f"The field exists in New but not in Old (allowed by {rule})", f"{rule}: true")
        self.note(path, rule, "allowed")

    def wrong_type(self, path: Path, old: Value, new: Value, sides: list[int], types: frozenset[str]) -> None:
        """A value of none of the types that the schema allows."""
        self.schema_mismatch(path, old, new, sides, f"type must be {' or '.join(sorted(types))}")

    def schema_mismatch(self, path: Path, old: Value, new: Value, sides: list[int], expectation: str) -> None:
        """A value of the wrong type or a missing required member, when strict; else it is noted in the trace.

        A fault of one side is an ERROR; one that both sides share is no difference of versions: a WARNING.
        """
        is_shared = len(sides) == 2
        side = "both" if is_shared else SIDE_NAMES[sides[0]]
        where = "Old and New do" if is_shared else f"{SIDE_NAMES[sides[0]].capitalize()} does"
        message = f"{where} not match the schema: {expectation}"
        if not self.config.strict_schema_validation:
            self.note(path, expectation, f"schema mismatch in {side}")
        elif is_shared:
            self.warn("SCHEMA_MISMATCH", path, message, side=side)
        else:
            self.error("SCHEMA_MISMATCH", path, old, new, message, side=side)
