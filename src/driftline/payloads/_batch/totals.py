"""What a batch adds up to: differences by place and kind, and which rules were ever met.

Totals of parts can be added in any order; first and last ids and samples go by the order of ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from driftline.core._thresholds import Threshold
from driftline.payloads.batch_job import Record, SortKey
from driftline.payloads.ci_reports import BatchResult
from driftline.payloads.gate import fails
from driftline.payloads.paths import generalised
from driftline.payloads.report import Entry, Report
from driftline.payloads.values import Json

SAMPLE_SIZE = 5
MOST_FAILURES = 1000  # reports.jsonl has all of them


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


GroupKey = tuple[str, str, str, str, str]


@dataclass(slots=True)
class BatchTotals:
    """Counts of a part of a batch."""

    compared: dict[str, int] = field(default_factory=dict)
    matched: int = 0
    mismatched: int = 0
    failed: int = 0
    missing: int = 0
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
        """Count one pair that could not be compared; the first ones are remembered."""
        self.failed += 1
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
        }

    def reasons(self, conditions: list[Threshold]) -> list[str]:
        """Why the batch fails; without conditions every difference and every failed pair is a reason."""
        if conditions:
            return fails(self.counts(), conditions)
        return fails(self.counts(), []) if self.counts()["pairs"] else []

    def result(self) -> BatchResult:
        """The batch as writers for CI see it."""
        return BatchResult(self.summary(), self.aggregate(), [row for _, row in self.failures])

    def summary(self) -> dict[str, Any]:
        """The batch in a few numbers."""
        return {
            "pairs": self.matched + self.mismatched + self.failed,
            "matched": self.matched,
            "mismatched": self.mismatched,
            "failed": self.failed,
            "missing": self.missing,
            "by_endpoint": {name: count for name, count in sorted(self.compared.items()) if name},
            "endpoints": dict(sorted(self.endpoints.items())),
        }
