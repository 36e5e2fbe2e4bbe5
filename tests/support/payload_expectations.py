"""Reads the expectation format of the payload cases and holds a report against it."""

from __future__ import annotations

from collections import Counter
from typing import Any

ASSERTED = ("old_value", "new_value", "message", "rule_applied")


def assert_expected(report: dict[str, Any], expect: dict[str, Any]) -> None:
    errors = [entry for entry in report["diffs"] if entry["severity"] == "ERROR"]
    assert report["is_match"] == expect["is_match"], report
    if "diffs" in expect:
        assert_entries(errors, expect["diffs"], exact=expect.get("diffs_mode", "exact") == "exact")
    if "diffs_count" in expect:
        assert len(errors) == expect["diffs_count"]
    if expect.get("warnings") is not None:
        assert_entries(report["warnings"], expect["warnings"], exact=True)
    for name, value in expect.get("summary", {}).items():
        assert report["summary"][name] == value, (name, report["summary"])
    for name, value in expect.get("coverage", {}).items():
        assert report["coverage"][name] == value, (name, report["coverage"])
    traced = {entry["path"] for entry in report.get("trace", [])}
    assert traced >= set(expect.get("trace_paths_contain", [])), traced


def assert_entries(found: list[dict[str, Any]], wanted: list[dict[str, Any]], *, exact: bool) -> None:
    left = list(found)
    for entry in wanted:
        match = next((one for one in left if fits(one, entry)), None)
        assert match is not None, f"{entry} is not among {found}"
        left.remove(match)
    if exact:
        assert not left, f"not expected: {left}"


def fits(entry: dict[str, Any], wanted: dict[str, Any]) -> bool:
    if entry["type"] != wanted["type"] or entry["severity"] != wanted.get("severity", entry["severity"]):
        return False
    if wanted.get("path") is not None and entry["path"] != wanted["path"]:
        return False
    if not entry["path"].endswith(wanted.get("path_suffix", "")):
        return False
    return all(entry.get(name) == wanted[name] for name in ASSERTED if name in wanted)


def kinds(entries: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((entry["path"], entry["type"]) for entry in entries)
