"""Totals of a batch: differences by path and kind, conditions that fail it, and the rules that its payloads meet.

Totals of parts can be added in any order; first and last ids and samples go by the order of ids.

>>> conditions = parse_conditions(["different > 1%"])
>>> fails({"pairs": 100, "matched": 99, "different": 1, "failed": 0, "missing": 0, "bodiless": 0}, conditions)
[]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

from driftline.core import Threshold, parse_threshold
from driftline.errors import PayloadError
from driftline.payloads._batch.job import Record, SortKey
from driftline.payloads._compare.report import Entry, Report
from driftline.payloads._rules.extensions import rule_text
from driftline.payloads._schema.nodes import open_document
from driftline.payloads._schema.root import find_root, walk
from driftline.payloads._values.paths import generalised
from driftline.payloads._values.values import Json, JsonRow, Value

Groups = Sequence[JsonRow]
GroupKey = tuple[str, str, str, str, str]

SAMPLE_SIZE = 5
MOST_FAILURES = 1000  # reports.jsonl has all of them
NAMES = ("pairs", "matched", "different", "failed", "missing", "bodiless")
_FAILED = parse_threshold("failed > 0")
_SIGNS = (">", ">=", "<", "<=")
_ALIAS = "x-migration-alias"
_MAX_ITEMS = 1000
_WITHOUT = {"new_value": ("MISSING_IN_NEW", "ARRAY_ITEM_MISSING"), "old_value": ("EXTRA_IN_NEW", "ARRAY_ITEM_EXTRA")}
_key = itemgetter(0)


@dataclass(slots=True)
class Group:
    """Entries of one endpoint, place, type and rule."""

    first: tuple[SortKey, Any]  # where they were found, with the id as it is shown
    last: tuple[SortKey, Any]
    count: int = 0
    pairs: int = 0
    samples: list[tuple[SortKey, dict[str, Any]]] = field(default_factory=list)

    def add(self, key: SortKey, identity: object, entries: list[Entry]) -> None:
        """Count the entries of one pair; pairs come in order."""
        self.count += len(entries)
        self.pairs += 1
        self.last = (key, identity)
        if len(self.samples) < SAMPLE_SIZE:
            names = ("path", "old_value", "new_value", "message")
            shown = {name: entries[0][name] for name in names if name in entries[0]}
            self.samples.append((key, {"id": identity, **shown}))

    def merge(self, other: Group) -> None:
        self.count += other.count
        self.pairs += other.pairs
        self.first = min(self.first, other.first, key=_key)
        self.last = max(self.last, other.last, key=_key)
        self.samples = sorted([*self.samples, *other.samples], key=_key)[:SAMPLE_SIZE]


def with_values(entry: JsonRow, kind: str) -> JsonRow:
    """An entry of a report without the value of the side that lacks the field or the item.

    >>> with_values({"path": "$.a", "old_value": None, "new_value": 1}, "EXTRA_IN_NEW")
    {'path': '$.a', 'new_value': 1}
    """
    return {name: value for name, value in entry.items() if kind not in _WITHOUT.get(name, ())}


class BatchView(NamedTuple):
    """A batch as its writers get it: what summary.json, aggregate.json and coverage.json have, and failed pairs."""

    summary: JsonRow
    aggregate: Groups
    coverage: Groups = ()
    failures: Groups = ()

    @property
    def places(self) -> list[JsonRow]:
        """Errors first, the most frequent first, whatever their endpoint; examples have the values that exist."""
        rows = [{**row, "sample": [with_values(one, row["type"]) for one in row["sample"]]} for row in self.aggregate]
        return sorted(rows, key=lambda row: (row["severity"] != "ERROR", -row["pairs"]))

    @staticmethod
    def share(counts: Mapping[str, int]) -> float | None:
        """How many pairs of a batch or an endpoint match; None without pairs. A pair without a partner differs."""
        pairs = counts["matched"] + counts.get("mismatched", counts.get("different", 0)) + counts["failed"]
        return counts["matched"] / pairs if pairs else None

    def groups(self) -> list[JsonRow]:
        """The groups that make a batch differ, the most frequent first."""
        rows = [row for row in self.aggregate if row["severity"] == "ERROR"]
        return sorted(rows, key=lambda row: (-row["pairs"], row["endpoint"] or "", row["path"], row["type"]))


@dataclass(slots=True)
class BatchTotals:
    """Counts of a part of a batch."""

    tally: Counter[tuple[str, str]] = field(default_factory=Counter)  # (endpoint, what) -> pairs
    failures: list[tuple[SortKey, dict[str, Any]]] = field(default_factory=list)
    groups: dict[GroupKey, Group] = field(default_factory=dict)
    met: dict[tuple[str, str], tuple[SortKey, Any]] = field(default_factory=dict)

    def add_report(self, endpoint: str | None, key: SortKey, identity: object, report: Report) -> None:
        """Count one compared pair."""
        name = endpoint or ""
        self.tally[name, "matched" if report.is_match else "different"] += 1
        self.tally[name, "missing"] += bool(report.diffs and report.diffs[0]["type"] == "MISSING_PARTNER")
        by_group: dict[GroupKey, list[Entry]] = {}
        for entry in (*report.diffs, *report.warnings):
            rule = entry.get("rule_applied", "")
            place = (name, generalised(entry["path"]), entry["severity"], entry["type"], rule)
            by_group.setdefault(place, []).append(entry)
        for place, entries in by_group.items():
            group = self.groups.get(place)
            if group is None:
                group = self.groups[place] = Group((key, identity), (key, identity))
            group.add(key, identity, entries)

    def add_failure(self, pair: Record, key: SortKey, code: str, message: str) -> None:
        """Count one pair that could not be compared; the first ones are stored."""
        name = pair.endpoint or ""
        self.tally.update({(name, "failed"): 1, (name, "bodiless"): pair.no_body > 0, (name, "no_body"): pair.no_body})
        if len(self.failures) < MOST_FAILURES:
            row = {"id": pair.id, "endpoint": pair.endpoint, "line": pair.line, "code": code, "message": message}
            self.failures.append((key, row))

    def merge(self, other: BatchTotals) -> None:
        """Add another part."""
        self.failures = sorted([*self.failures, *other.failures], key=_key)[:MOST_FAILURES]
        self.tally.update(other.tally)
        for place, group in other.groups.items():
            known = self.groups.setdefault(place, group)
            if known is not group:
                known.merge(group)
        for rule, seen in other.met.items():
            self.met[rule] = min(self.met.get(rule, seen), seen, key=_key)

    def counts(self) -> dict[str, int]:
        """What conditions on a batch can name; `bodiless` pairs failed for want of a body in the capture."""
        found = {what: self._total(what) for what in ("matched", "different", "failed", "missing", "bodiless")}
        return {"pairs": found["matched"] + found["different"] + found["failed"], **found}

    def _total(self, what: str) -> int:
        return sum(count for (_, counted), count in self.tally.items() if counted == what)

    def _compared(self, endpoint: str) -> int:
        return self.tally[endpoint, "matched"] + self.tally[endpoint, "different"]

    @property
    def answers_without_body(self) -> str | None:
        """How many responses of captures have no body, as text; None where all have one."""
        counts, lacking = self.counts(), self._total("no_body")
        return f"{lacking:,} of {2 * counts['pairs'] - counts['missing']:,} answers have no body" if lacking else None

    def reasons(self, conditions: list[Threshold]) -> list[str]:
        """Why the batch fails; without conditions every difference and every failed pair is a reason."""
        return fails(self.counts(), conditions) if conditions or self.counts()["pairs"] else []

    def view(self, coverage: Groups = ()) -> BatchView:
        """The batch for those that show it."""
        return BatchView(self.summary(), self.aggregate(), coverage, [row for _, row in self.failures])

    def summary(self) -> dict[str, Any]:
        """The counts of the batch."""
        counts, lacking = self.counts(), self._total("no_body")
        endpoints = sorted({endpoint for endpoint, _ in self.tally})
        names = ("matched", "different", "failed", "missing")
        return {
            "pairs": counts["pairs"],
            "matched": counts["matched"],
            "mismatched": counts["different"],
            "failed": counts["failed"],
            "missing": counts["missing"],
            **({"no_body": lacking} if lacking else {}),
            "by_endpoint": {name: count for name in endpoints if name and (count := self._compared(name))},
            "endpoints": {endpoint: {name: self.tally[endpoint, name] for name in names} for endpoint in endpoints},
        }

    def aggregate(self) -> list[dict[str, Any]]:
        """A row for each group, the most frequent of an endpoint first."""
        rows = [self._row(place, group) for place, group in self.groups.items()]
        return sorted(
            rows, key=lambda row: (row["endpoint"] or "", -row["count"], row["path"], row["type"], row["rule"] or "")
        )

    def _row(self, place: GroupKey, group: Group) -> dict[str, Json]:
        endpoint, path, severity, kind, rule = place
        return {
            "endpoint": endpoint or None,
            "path": path,
            "type": kind,
            "severity": severity,
            "rule": rule or None,
            "count": group.count,
            "pairs": group.pairs,
            "rate": round(group.pairs / self._compared(endpoint), 6),
            "first_id": group.first[1],
            "last_id": group.last[1],
            "sample": [sample for _, sample in group.samples],
        }


# Conditions of `--fail-if` (payloads §10.1).
def parse_conditions(texts: Iterable[str]) -> list[Threshold]:
    """The conditions of a call; raises `VALIDATION_ERROR`."""
    found = []
    for text in texts:
        try:
            condition = parse_threshold(text)
        except ValueError:
            raise _bad(text, f'write it like "different > 1%", with one of {", ".join(NAMES)}') from None
        if condition.count not in NAMES:
            raise _bad(text, f"there is no {condition.count}; known are {', '.join(NAMES)}")
        if condition.sign not in _SIGNS:
            raise _bad(text, f"use one of {' '.join(_SIGNS)}")
        found.append(condition)
    return found


def _bad(text: str, reason: str) -> PayloadError:
    return PayloadError(f"--fail-if {text!r}: {reason}", details={"reason": reason, "flag": "--fail-if"})


def fails(totals: Mapping[str, int], conditions: list[Threshold]) -> list[str]:
    """Why a batch fails, as messages; empty where it passes. Raises where there was nothing to compare.

    Without conditions any difference fails. A pair that could not be compared fails unless a condition names `failed`,
    or `bodiless` where the capture lacks a body.
    """
    if not totals["pairs"]:
        raise PayloadError("there are no pairs to compare", details={"reason": "no pairs"})
    if not conditions:
        conditions = [parse_threshold("different > 0")]
    if not any(condition.count == "failed" for condition in conditions):
        conditions = [*conditions, _FAILED]
    counts = {**totals, "total": totals["pairs"]}
    if any(condition.count == "bodiless" for condition in conditions):
        counts["failed"] -= counts["bodiless"]
    return [condition.describe(counts) for condition in conditions if condition.is_exceeded(counts)]


# Rules that a payload meets: those whose field occurs on either side. The payloads are searched for them, which costs
# less than a trace of the comparison; a rule that was met once is not searched again.
class RulePlace(NamedTuple):
    """A rule and the way to its field: names (with an alias), and the items of an array, from which to which."""

    pointer: str
    rule: str
    steps: tuple[tuple[str, str | None] | slice, ...]

    @property
    def path(self) -> str:
        return "$" + "".join("[*]" if isinstance(step, slice) else f".{step[0]}" for step in self.steps)


def rule_places(schema: object, root: str | None = None) -> list[RulePlace]:
    """All rules that can be reached, each at the shortest way to it."""
    document = open_document(schema)

    def named(step: Any) -> tuple[str, str | None] | slice:
        if isinstance(step, slice):
            return step
        alias = document.node(step[1]).extensions.get(_ALIAS)
        return step[0], alias.value if alias is not None else None

    found: dict[str, RulePlace] = {}
    for node, steps in walk(document, find_root(document, root)):
        for name, (value, pointer) in node.extensions.items():
            found.setdefault(pointer, RulePlace(pointer, rule_text(name, value), tuple(map(named, steps))))
    return list(found.values())


def is_met(place: RulePlace, *payloads: Any) -> bool:
    """Whether the field of a rule occurs in one of the payloads."""
    return any(_occurs(payload, place.steps, 0) for payload in payloads)


def _occurs(value: Value, steps: tuple[Any, ...], at: int) -> bool:
    if at == len(steps):
        return True
    step = steps[at]
    if isinstance(step, slice):
        return isinstance(value, list) and any(_occurs(item, steps, at + 1) for item in value[step][:_MAX_ITEMS])
    if not isinstance(value, dict):
        return False
    name = step[0] if step[0] in value else step[1]
    return name in value and _occurs(value[name], steps, at + 1)
