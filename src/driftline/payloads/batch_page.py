"""A batch as an HTML page: one file without a network, with search, filters, order, single reports, rules to copy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from driftline.payloads.batch_view import BatchView, PlaceRow, batch_view
from driftline.payloads.report import encode
from driftline.payloads.values import Json, JsonRow
from driftline.sinks._pages import page_bytes

MOST_LISTED = 1000  # places; aggregate.json has all of them
MOST_REPORTS = 200  # single reports in the page; reports.jsonl has all of them
_MOST_ENTRIES = 50  # of a single report
_LONGEST_VALUE = 200
_KINDS = {"ERROR": "error", "WARNING": "warning"}


class Made(NamedTuple):
    """What a batch was made of, and when."""

    inputs: Sequence[str]
    schemas: Sequence[str]
    when: str


def made_now(inputs: Sequence[str], schemas: Sequence[str]) -> Made:
    """The origin of a batch that ends now; SOURCE_DATE_EPOCH fixes the time, for builds that can be repeated."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(given) if given.isdecimal() else time.time()
    return Made(inputs, schemas, datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC"))


def batch_page(
    summary: Mapping[str, Json],
    aggregate: Sequence[Mapping[str, Json]],
    coverage: Sequence[Mapping[str, Json]],
    failures: Sequence[Mapping[str, Json]] = (),
) -> Iterator[bytes]:
    """The page, made of what summary.json, aggregate.json and coverage.json say, and of the pairs that failed."""
    return view_page(batch_view(summary, aggregate, coverage, failures))


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
    return encode(identity).decode("utf-8", "backslashreplace")


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
    """An entry for people; a message that only says the values again is left out."""
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
    text = value if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
