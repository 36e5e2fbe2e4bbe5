"""Totals of a batch: differences by path and kind, conditions that fail it, and the rules that its payloads meet.

Totals of parts can be added in any order; first and last ids and samples go by the order of ids.

>>> conditions = parse_conditions(["different > 1%"])
>>> fails({"pairs": 100, "matched": 99, "different": 1, "failed": 0, "missing": 0, "bodiless": 0}, conditions)
[]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from driftline.core import Threshold, parse_threshold
from driftline.errors import PayloadError
from driftline.payloads._batch.job import Record, SortKey
from driftline.payloads._compare.report import Entry, Report
from driftline.payloads._rules.extensions import rule_text
from driftline.payloads._schema.nodes import Fragments, Node, SchemaDocument, open_document
from driftline.payloads._schema.root import find_root
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


@dataclass(slots=True)
class Group:
    """Entries of one endpoint, place, type and rule."""

    count: int = 0
    pairs: int = 0
    first: tuple[SortKey, Any] | None = None
    last: tuple[SortKey, Any] | None = None
    samples: list[tuple[SortKey, dict[str, Json]]] = field(default_factory=list)

    def add(self, key: SortKey, identity: object, entries: list[Entry]) -> None:
        """Count the entries of one pair; pairs come in order."""
        self.count += len(entries)
        self.pairs += 1
        self.first = self.first or (key, identity)
        self.last = (key, identity)
        if len(self.samples) < SAMPLE_SIZE:
            self.samples.append((key, _sample(identity, entries[0])))

    def merge(self, other: Group) -> None:
        """Add the entries of another part."""
        self.count += other.count
        self.pairs += other.pairs
        self.first = min((one for one in (self.first, other.first) if one), key=_key)
        self.last = max((one for one in (self.last, other.last) if one), key=_key)
        self.samples = sorted([*self.samples, *other.samples], key=_key)[:SAMPLE_SIZE]


def _key(one: tuple[SortKey, Any]) -> SortKey:
    return one[0]


def _sample(identity: object, entry: Entry) -> dict[str, Json]:
    shown = {name: entry[name] for name in ("path", "old_value", "new_value", "message") if name in entry}
    return {"id": identity, **shown}


class BatchResult(NamedTuple):
    """A batch as its writers get it."""

    summary: JsonRow
    aggregate: Groups
    failures: Sequence[JsonRow]

    def groups(self, severity: str = "ERROR") -> list[JsonRow]:
        """The groups that make a batch differ, the most frequent first."""
        rows = [row for row in self.aggregate if row["severity"] == severity]
        return sorted(rows, key=lambda row: (-row["pairs"], row["endpoint"] or "", row["path"], row["type"]))


@dataclass(slots=True)
class BatchTotals:
    """Counts of a part of a batch."""

    compared: dict[str, int] = field(default_factory=dict)
    matched: int = 0
    mismatched: int = 0
    failed: int = 0
    missing: int = 0
    bodiless: int = 0  # failed pairs with an answer whose body the capture does not have
    no_body: int = 0  # such answers
    endpoints: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[tuple[SortKey, dict[str, Any]]] = field(default_factory=list)
    groups: dict[GroupKey, Group] = field(default_factory=dict)
    met: dict[tuple[str, str], tuple[SortKey, Any]] = field(default_factory=dict)

    def add_report(self, endpoint: str | None, key: SortKey, identity: object, report: Report) -> None:
        """Count one compared pair."""
        name = endpoint or ""
        self.compared[name] = self.compared.get(name, 0) + 1
        if report.is_match:
            self.matched += 1
        else:
            self.mismatched += 1
        self._count(name, "matched" if report.is_match else "different")
        if report.diffs and report.diffs[0]["type"] == "MISSING_PARTNER":
            self.missing += 1
            self._count(name, "missing")
        if report.diffs or report.warnings:
            self._add_entries(name, key, identity, report)

    def _count(self, endpoint: str, what: str) -> None:
        counts = self.endpoints.setdefault(endpoint, dict.fromkeys(("matched", "different", "failed", "missing"), 0))
        counts[what] += 1

    def _add_entries(self, name: str, key: SortKey, identity: object, report: Report) -> None:
        by_group: dict[GroupKey, list[Entry]] = {}
        for entry in (*report.diffs, *report.warnings):
            rule = entry.get("rule_applied", "")
            place = (name, generalised(entry["path"]), entry["severity"], entry["type"], rule)
            by_group.setdefault(place, []).append(entry)
        for place, entries in by_group.items():
            group = self.groups.get(place)
            if group is None:
                group = self.groups[place] = Group()
            group.add(key, identity, entries)

    def add_failure(self, pair: Record, key: SortKey, code: str, message: str) -> None:
        """Count one pair that could not be compared; the first ones are stored."""
        self.failed += 1
        self.bodiless += pair.no_body > 0
        self.no_body += pair.no_body
        self._count(pair.endpoint or "", "failed")
        if len(self.failures) < MOST_FAILURES:
            row = {"id": pair.id, "endpoint": pair.endpoint, "line": pair.line, "code": code, "message": message}
            self.failures.append((key, row))

    def merge(self, other: BatchTotals) -> None:
        """Add another part."""
        self.failures = sorted([*self.failures, *other.failures], key=_key)[:MOST_FAILURES]
        for name, count in other.compared.items():
            self.compared[name] = self.compared.get(name, 0) + count
        self.matched += other.matched
        self.mismatched += other.mismatched
        self.failed += other.failed
        self.missing += other.missing
        self.bodiless += other.bodiless
        self.no_body += other.no_body
        for name, counts in other.endpoints.items():
            for what, count in counts.items():
                self.endpoints.setdefault(name, dict.fromkeys(counts, 0))[what] += count
        for place, group in other.groups.items():
            self.groups.setdefault(place, Group()).merge(group)
        for rule, seen in other.met.items():
            self.met[rule] = min(self.met.get(rule, seen), seen, key=_key)

    def aggregate(self) -> list[dict[str, Any]]:
        """A row for each group, the most frequent of an endpoint first."""
        rows = [self._row(place, group) for place, group in self.groups.items()]
        return sorted(
            rows, key=lambda row: (row["endpoint"] or "", -row["count"], row["path"], row["type"], row["rule"] or "")
        )

    def _row(self, place: GroupKey, group: Group) -> dict[str, Json]:
        endpoint, path, severity, kind, rule = place
        assert group.first is not None
        assert group.last is not None
        return {
            "endpoint": endpoint or None,
            "path": path,
            "type": kind,
            "severity": severity,
            "rule": rule or None,
            "count": group.count,
            "pairs": group.pairs,
            "rate": round(group.pairs / self.compared[endpoint], 6),
            "first_id": group.first[1],
            "last_id": group.last[1],
            "sample": [sample for _, sample in group.samples],
        }

    def counts(self) -> dict[str, int]:
        """What conditions on a batch can name."""
        return {
            "pairs": self.matched + self.mismatched + self.failed,
            "matched": self.matched,
            "different": self.mismatched,
            "failed": self.failed,
            "missing": self.missing,
            "bodiless": self.bodiless,
        }

    @property
    def answers_without_body(self) -> str | None:
        """How many answers of captures have no body, as text; None where all have one."""
        answers = 2 * self.counts()["pairs"] - self.missing
        return f"{self.no_body:,} of {answers:,} answers have no body" if self.no_body else None

    def reasons(self, conditions: list[Threshold]) -> list[str]:
        """Why the batch fails; without conditions every difference and every failed pair is a reason."""
        if conditions:
            return fails(self.counts(), conditions)
        return fails(self.counts(), []) if self.counts()["pairs"] else []

    def result(self) -> BatchResult:
        """The batch for writers of CI reports."""
        return BatchResult(self.summary(), self.aggregate(), [row for _, row in self.failures])

    def summary(self) -> dict[str, Any]:
        """The counts of the batch."""
        return {
            "pairs": self.matched + self.mismatched + self.failed,
            "matched": self.matched,
            "mismatched": self.mismatched,
            "failed": self.failed,
            "missing": self.missing,
            **({"no_body": self.no_body} if self.no_body else {}),
            "by_endpoint": {name: count for name, count in sorted(self.compared.items()) if name},
            "endpoints": dict(sorted(self.endpoints.items())),
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
    """A rule and the way to its field: names (with an alias), None for the items of an array."""

    pointer: str
    rule: str
    steps: tuple[tuple[str, str | None] | None, ...]


def rule_places(schema: object, root: str | None = None) -> list[RulePlace]:
    """All rules that can be reached, each at the shortest way to it."""
    document = open_document(schema)
    found: dict[str, RulePlace] = {}
    waiting: list[tuple[Fragments, tuple[Any, ...]]] = [((find_root(document, root),), ())]
    seen: set[tuple[str, ...]] = set()
    for fragments, steps in waiting:
        node = document.node(fragments)
        if node.pointers in seen:
            continue
        seen.add(node.pointers)
        for name, extension in node.extensions.items():
            found.setdefault(extension.pointer, RulePlace(extension.pointer, rule_text(name, extension.value), steps))
        waiting.extend(_below(document, node, steps))
    return list(found.values())


def _below(document: SchemaDocument, node: Node, steps: tuple[Any, ...]) -> Iterator[tuple[Fragments, tuple[Any, ...]]]:
    for name, fragments in node.properties.items():
        alias = document.node(fragments).extensions.get(_ALIAS)
        yield fragments, (*steps, (name, alias.value if alias is not None else None))
    if node.items:
        yield node.items, (*steps, None)
    # What patterns, other names and branches describe is met with its owner.
    for _, fragment in node.patterns:
        yield (fragment,), steps
    if node.additional:
        yield node.additional, steps
    for choice in node.choices:
        for branch in choice.branches:
            yield (branch,), steps


def is_met(place: RulePlace, *payloads: Any) -> bool:
    """Whether the field of a rule occurs in one of the payloads."""
    return any(_occurs(payload, place.steps, 0) for payload in payloads)


def _occurs(value: Value, steps: tuple[Any, ...], at: int) -> bool:
    if at == len(steps):
        return True
    step = steps[at]
    if step is None:
        return isinstance(value, list) and any(_occurs(item, steps, at + 1) for item in value[:_MAX_ITEMS])
    if not isinstance(value, dict):
        return False
    name = step[0] if step[0] in value else step[1]
    return name in value and _occurs(value[name], steps, at + 1)
