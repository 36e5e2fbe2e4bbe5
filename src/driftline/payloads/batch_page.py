"""A batch as an HTML page: where pairs differ, how often, with examples, and which rules were never used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from driftline.payloads.report import encode
from driftline.sinks.pages import page_bytes

MOST_LISTED = 1000  # places; aggregate.json has all of them
_LONGEST_VALUE = 200
_KINDS = {"ERROR": "error", "WARNING": "warning"}


@dataclass(frozen=True)
class _Page:
    """What the template shows."""

    counts: Sequence[tuple[str, str, int]]
    endpoints: Sequence[tuple[str, dict[str, int]]]
    failures: Sequence[dict[str, Any]]
    groups: Sequence[dict[str, Any]]
    kinds: Sequence[str]
    unused: Sequence[tuple[str, str, str]]


def batch_page(
    summary: dict[str, Any],
    aggregate: Sequence[dict[str, Any]],
    coverage: Sequence[dict[str, Any]],
    failures: Sequence[dict[str, Any]] = (),
) -> Iterator[bytes]:
    """The page, made of what summary.json, aggregate.json and coverage.json say, and of the pairs that failed."""
    # The most frequent first, whatever their endpoint.
    frequent = sorted(aggregate, key=lambda row: (row["severity"] != "ERROR", -row["pairs"]))
    groups = [_group(row) for row in frequent[:MOST_LISTED]]
    page = _Page(
        [
            ("pairs", "pairs", summary["pairs"]),
            ("added", "match", summary["matched"]),
            ("removed", "differ", summary["mismatched"]),
            ("changed", "could not be compared", summary["failed"]),
        ],
        list(summary.get("endpoints", {}).items()) if any(summary.get("endpoints", {})) else [],
        [{**row, "id": _shown(row["id"])} for row in failures],
        groups,
        [kind for kind in _KINDS.values() if any(group["kind"] == kind for group in groups)],
        [(row["endpoint"] or "", row["pointer"], row["rule"]) for row in coverage if not row["used"]],
    )
    return page_bytes("batch.html", page=page, listed=len(groups), places=len(aggregate))


def _group(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": _KINDS[row["severity"]],
        "type": row["type"],
        "endpoint": row["endpoint"],
        "path": row["path"],
        "rule": row["rule"],
        "pairs": row["pairs"],
        "share": f"{row['rate']:.2%}",
        "first": _shown(row["first_id"]),
        "last": _shown(row["last_id"]),
        "flag": f"--ignore '{row['path']}'" if "'" not in row["path"] else None,
        "samples": [_sample(sample) for sample in row["sample"]],
    }


def _sample(sample: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": _shown(sample["id"]),
        "old": _shown(sample["old_value"]) if "old_value" in sample else None,
        "new": _shown(sample["new_value"]) if "new_value" in sample else None,
        "message": sample.get("message", ""),
    }


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
