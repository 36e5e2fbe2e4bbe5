"""A batch as a record that is rendered, and its HTML page: where pairs differ, and which rule would accept it.

>>> row = {"path": "$.lines[*].net", "type": "PRECISION_EXCEEDED", "rule": "x-migration-precision: 0.01", "sample": []}
>>> remedy_of({**row, "sample": [{"id": 1, "old_value": 1.0, "new_value": 1.04}]}).rule
{'precision': 0.05}
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from driftline.core import AnyPath, Location, io_errors, location, open_to_read
from driftline.errors import InputError
from driftline.payloads._schema.nodes import EXTENSION_PREFIX
from driftline.payloads._schema.yaml import yaml_text
from driftline.payloads._suggest.evidence import hidden_by, nice_duration, nice_limit, number
from driftline.payloads._suggest.write import nested
from driftline.payloads._values.paths import Place, parse_place
from driftline.payloads._values.text import parse_json, to_json_bytes
from driftline.payloads._values.times import parse_iso
from driftline.payloads._values.values import Json, JsonRow
from driftline.sinks import page_bytes

PARTIAL = ("TIMEOUT", "MAX_DEPTH_EXCEEDED")  # codes of failed pairs that have findings nevertheless
_ID, _AFTER_ID = b'{"id":', b',"endpoint":'  # how each line of reports.jsonl begins
MOST_LISTED = 1000  # places; aggregate.json has all of them
MOST_REPORTS = 200  # single reports in the page; reports.jsonl has all of them
_MOST_ENTRIES = 50  # of a single report
_LONGEST_VALUE = 200
_KINDS = {"ERROR": "error", "WARNING": "warning"}


class Remedy(NamedTuple):
    """A rule that would accept the differences of a place; `apply_rules` writes it into a schema."""

    place: Place
    rule: dict[str, Any]  # extensions without their prefix

    @property
    def hides(self) -> str:
        """What the rule lets pass, as text."""
        return hidden_by(self.rule)

    @property
    def yaml(self) -> str:
        """The rule as a schema of its own, to be copied."""
        extensions = {f"{EXTENSION_PREFIX}{name}": value for name, value in self.rule.items()}
        return yaml_text(nested(self.place, extensions))


@dataclass(frozen=True, slots=True)
class PlaceRow:
    """Differences (or warnings) of one endpoint, path, type and rule, with the first examples."""

    endpoint: str | None
    path: str  # without indexes and keys
    type: str
    severity: str  # ERROR or WARNING
    rule: str | None
    count: int
    pairs: int
    rate: float  # of the endpoint's compared pairs
    first_id: Any
    last_id: Any
    examples: Sequence[JsonRow]  # id, path, old_value, new_value, message

    @property
    def flag(self) -> str:
        """The option that leaves the place out."""
        return f"--ignore {shlex.quote(self.path)}"

    @property
    def remedy(self) -> Remedy | None:
        """The rule that would accept it; None where a rule cannot (a missing partner, a warning)."""
        row = {"path": self.path, "type": self.type, "sample": self.examples}
        return remedy_of(row) if self.severity == "ERROR" else None


class EndpointRow(NamedTuple):
    """Totals of one endpoint."""

    name: str
    matched: int
    different: int
    failed: int
    missing: int

    @property
    def pairs(self) -> int:
        """All pairs; those without a partner are among the different ones."""
        return self.matched + self.different + self.failed


@dataclass(frozen=True, slots=True)
class BatchView:
    """Everything about a batch but the single reports."""

    pairs: int
    matched: int
    different: int
    failed: int
    missing: int
    endpoints: Sequence[EndpointRow]
    places: Sequence[PlaceRow]  # errors first, the most frequent first, whatever their endpoint
    failures: Sequence[JsonRow]  # id, endpoint, line, code, message
    unused: Sequence[JsonRow]  # endpoint, pointer, rule

    def ids(self) -> Iterator[Any]:
        """The ids that the view names, the most frequent places first."""
        for place in self.places:
            yield from (example["id"] for example in place.examples)
        yield from (failure["id"] for failure in self.failures if failure["code"] in PARTIAL)


def batch_view(
    summary: JsonRow,
    aggregate: Iterable[JsonRow],
    coverage: Iterable[JsonRow],
    failures: Sequence[JsonRow] = (),
) -> BatchView:
    """The view of the content of summary.json, aggregate.json and coverage.json, and of the pairs that failed."""
    places = [_place(row) for row in aggregate]
    return BatchView(
        summary["pairs"],
        summary["matched"],
        summary["mismatched"],
        summary["failed"],
        summary.get("missing", 0),
        [EndpointRow(name, **counts) for name, counts in summary.get("endpoints", {}).items()],
        sorted(places, key=lambda place: (place.severity != "ERROR", -place.pairs)),
        failures,
        [row for row in coverage if not row["used"]],
    )


def _place(row: JsonRow) -> PlaceRow:
    shown = {name: value for name, value in row.items() if name != "sample"}
    return PlaceRow(**shown, examples=row["sample"])


def find_reports(folder: AnyPath, ids: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Rows of reports.jsonl by their ids, which are keys in their JSON spelling; of equal ids the first.

    A row has `id`, `endpoint` and `report`, or the error response of a pair that failed.
    """
    wanted = {to_json_bytes(identity) for identity in ids}
    found: dict[str, dict[str, Any]] = {}
    for line in _report_lines(location(str(folder))):
        if not wanted:
            break
        identity = line[len(_ID) : line.index(_AFTER_ID)]
        if identity in wanted:
            wanted.remove(identity)
            found[identity.decode()] = parse_json(line, "the report")
    return found


def _report_lines(folder: Location) -> Iterator[bytes]:
    path = folder / "reports.jsonl"
    with io_errors(path), open_to_read(path) as lines:
        for line in lines:
            if not line.startswith(_ID) or _AFTER_ID not in line:
                raise InputError(f"{path} is no file of reports that a batch has written", code="not_reports")
            yield line


def remedy_of(row: JsonRow) -> Remedy | None:
    """The tightest rule that would accept the examples of a row of the aggregate, else one that ignores the place."""
    place = parse_place(row["path"])
    kind = row["type"]
    if place is None or kind in ("MISSING_PARTNER", "DUPLICATE_KEY", "SCHEMA_MISMATCH"):
        return None
    if kind in ("ARRAY_ITEM_EXTRA", "ARRAY_ITEM_MISSING"):
        allowed = "ignore-extra-items" if kind == "ARRAY_ITEM_EXTRA" else "ignore-missing-items"
        return Remedy(place[:-1] if place[-1:] == (None,) else place, {allowed: True})
    if kind == "EXTRA_IN_NEW" and place:
        return Remedy(place[:-1], {"allow-new-members": True})
    values = [(one.get("old_value"), one.get("new_value")) for one in row["sample"]]
    rule = _TIGHT_RULES[kind](values) if kind in _TIGHT_RULES else None
    if rule is None and not place:
        return None  # to ignore everything is no rule
    return Remedy(place, rule or {"strategy": "ignore"})


def _precision(values: list[tuple[Any, Any]]) -> dict[str, Any] | None:
    pairs = [(number(old), number(new)) for old, new in values]
    apart = [abs(old - new) for old, new in pairs if old is not None and new is not None]
    limit = nice_limit(max(apart, default=Decimal(0)))
    return {"precision": int(limit) if limit == limit.to_integral_value() else float(limit)} if limit else None


def _tolerance(values: list[tuple[Any, Any]]) -> dict[str, Any] | None:
    moments = [(parse_iso(old), parse_iso(new)) for old, new in values if isinstance(old, str) and isinstance(new, str)]
    apart = [abs(old.nanoseconds - new.nanoseconds) for old, new in moments if old is not None and new is not None]
    limit = nice_duration(max(apart, default=0))
    return {"datetime-tolerance": limit} if limit is not None else None


def _surplus(values: list[tuple[Any, Any]]) -> dict[str, Any] | None:
    longer = {len(new) > len(old) for old, new in values if isinstance(old, list) and isinstance(new, list)}
    return {f"ignore-{'extra' if longer.pop() else 'missing'}-items": True} if len(longer) == 1 else None


_TIGHT_RULES = {
    "PRECISION_EXCEEDED": _precision,
    "DATETIME_EXCEEDED": _tolerance,
    "ARRAY_LENGTH_MISMATCH": _surplus,
}


# The HTML page: one file that loads nothing, with search, filters, order, single reports and rules to copy.
class Made(NamedTuple):
    """What a batch was made of."""

    inputs: Sequence[str]
    schemas: Sequence[str]


def view_page(
    view: BatchView, made: Made | None = None, reports: Mapping[str, Mapping[str, Json]] | None = None
) -> Iterator[bytes]:
    """The page of a view; `reports` are rows of reports.jsonl by the JSON spelling of their ids."""
    rows = reports or {}
    numbers = {identity: number for number, identity in enumerate(rows, 1)}
    groups = [_group(place, numbers) for place in view.places[:MOST_LISTED]]
    return page_bytes(
        "batch.html",
        view=view,
        made=made,
        kinds=[kind for kind in _KINDS.values() if any(group["kind"] == kind for group in groups)],
        groups=groups,
        failures=[{**row, "id": _shown(row["id"]), "report": numbers.get(_key(row["id"]))} for row in view.failures],
        reports=[_report(numbers[identity], row) for identity, row in rows.items()],
    )


def _key(identity: object) -> str:
    return to_json_bytes(identity).decode("utf-8", "backslashreplace")


def _group(place: PlaceRow, numbers: Mapping[str, int]) -> dict[str, Any]:
    return {
        "kind": _KINDS[place.severity],
        "place": place,
        "endpoints": [place.endpoint or "–"],
        "share": f"{place.rate:.2%}",
        "first": _shown(place.first_id),
        "last": _shown(place.last_id),
        "samples": [{**_values(one), "report": numbers.get(_key(one["id"]))} for one in place.examples],
    }


def _values(entry: JsonRow) -> dict[str, Any]:
    """An entry as text; a message that only repeats the values is left out."""
    old, new = (_shown(entry[name]) if name in entry else None for name in ("old_value", "new_value"))
    message = entry.get("message", "")
    if old is not None and new is not None and message.startswith("Values differ"):
        message = ""
    return {"id": _shown(entry.get("id")), "old": old, "new": new, "message": message}


def _report(number: int, row: JsonRow) -> dict[str, Any]:
    found = row.get("report") or row.get("partial_result") or {"diffs": [], "warnings": []}
    entries = [*found["diffs"], *found["warnings"]]
    error = row.get("error")
    return {
        "number": number,
        "id": _shown(row["id"]),
        "endpoint": row["endpoint"],
        "error": f"{error['code']}: {error['message']}" if error else None,
        "entries": [{**entry, **_values(entry)} for entry in entries[:_MOST_ENTRIES]],
        "left": max(len(entries) - _MOST_ENTRIES, 0),
    }


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else to_json_bytes(value).decode()
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
