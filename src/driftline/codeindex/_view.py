"""Index diffs and registry entries as text, Markdown and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

from driftline.codeindex._diff.diff import IndexDiff
from driftline.codeindex._diff.files import IndexEvent
from driftline.codeindex._git import GitRepository
from driftline.codeindex._options import V2
from driftline.codeindex._registry.keep import Pruned
from driftline.codeindex._review import (
    ReviewSource,
    code,
    count_text,
    review,
    review_github,
    review_html,
    review_markdown,
)
from driftline.codeindex._storage import event_line
from driftline.core import JsonObject, StrPath
from driftline.errors import IndexRefError

_MARKDOWN_EVENTS = 100
_MOST_UNREAD = 5
_COUNTED = ("files", "chunks", "relations")


def json_line(event: IndexEvent, *, compact: bool) -> bytes:
    """An event on one line, with blanks between members unless `compact`."""
    return event_line(event) if compact else json.dumps(event, ensure_ascii=True).encode() + b"\n"


def summary_lines(result: IndexDiff) -> Iterator[str]:
    """The summary as text."""
    summary = result.summary
    before, after = (side.get("label") or side["ref"] for side in (summary["from"], summary["to"]))
    if result.inputs["kind"] == V2:
        yield review(result.events).line
    yield f"{result.diff_id}: {before} -> {after}"
    for mode, counts in summary["modesSummary"].items():
        yield f"{mode}: " + "; ".join(f"{what} {count_text(counts[what])}" for what in _COUNTED)
        if counts["limits"]["chunkDiffSkipped"]:
            yield f"{mode}: chunks were skipped ({counts['limits']['reason']})"
    if summary["truncated"]:
        yield f"events were cut, {summary['totalEvents']} in all ({summary['truncatedReason']})"
    yield from unread_lines(result.events)
    skipped = sum(summary["skippedRows"].values())
    if skipped:
        yield f"{skipped} rows without a file were skipped"


def unread_lines(events: Iterable[IndexEvent]) -> Iterator[str]:
    """Changed files whose definitions are not known, or not surely."""
    found = []
    for event in events:
        sides = [event.get(side) or {} for side in ("before", "after")] if event["kind"].startswith("file.") else []
        state = next((side["state"] for side in reversed(sides) if side.get("state")), None)
        if state is not None:
            found.append(f"{event['file']} ({state})")
    if found:
        more = f" and {len(found) - _MOST_UNREAD} more" if len(found) > _MOST_UNREAD else ""
        yield f"not read, or not surely: {', '.join(found[:_MOST_UNREAD])}{more}"


def diff_markdown(result: IndexDiff) -> str:
    """A summary table and the first events, for a pull request."""
    summary = result.summary
    lines = [f"## Index diff `{result.diff_id}`", "", f"`{summary['from']['ref']}` → `{summary['to']['ref']}`", ""]
    lines += ["| mode | " + " | ".join(_COUNTED) + " |", "|---|---|---|---|"]
    for mode, counts in summary["modesSummary"].items():
        lines.append(f"| {mode} | " + " | ".join(count_text(counts[what]) for what in _COUNTED) + " |")
    shown = list(islice(result.events, _MARKDOWN_EVENTS))
    lines += ["", *(_event_item(event) for event in shown)] if shown else []
    hidden = summary["totalEvents"] - len(shown)
    lines += [f"- … and {hidden} more"] if hidden > 0 else []
    return "\n".join(lines)


def rendered(result: IndexDiff, format_name: str) -> Iterator[bytes]:
    """The content of a file."""
    if format_name == "jsonl":
        yield from (json_line(event, compact=False) for event in result.events)
    elif format_name == "json":
        yield json.dumps(result.to_dict(), indent=2).encode() + b"\n"
    else:
        yield diff_page(result, format_name, result.repository).encode() + b"\n"


def diff_page(result: IndexDiff, format_name: str, repo: StrPath | None) -> str:
    """A diff in Markdown or HTML: between `git:` references a review, with source from the repository, else a list."""
    if result.inputs["kind"] != V2:
        if format_name != "markdown":
            raise IndexRefError(f"--format {format_name} shows diffs of git: references; this one is semantic-v1")
        return diff_markdown(result)
    if format_name == "github":
        return "\n".join(review_github(result))
    source = ReviewSource(result.events, GitRepository(repo) if repo else None)
    return (review_html if format_name == "html" else review_markdown)(result, source)


def event_text(event: IndexEvent) -> str:
    """An event in one line."""
    return _event_item(event).removeprefix("- ")


def entry_lines(entries: Iterable[JsonObject]) -> Iterator[str]:
    """Registry entries as text."""
    for entry in entries:
        counts = entry["summary"]
        totals = f"{counts['filesChanged']} files, {counts['chunksChanged']} chunks" if counts else "by another tool"
        yield (
            f"{entry['diffId']}  {entry['createdAt']}  {','.join(entry['modes'])}  {entry['from']} -> {entry['to']}  "
            f"{totals}"
        )


def entries_markdown(entries: Iterable[JsonObject]) -> str:
    """Registry entries as a table."""
    lines = ["| diff | created | modes | from | to | files | chunks |", "|---|---|---|---|---|---|---|"]
    for entry in entries:
        counts = entry["summary"] or {"filesChanged": "", "chunksChanged": ""}
        cells = [f"`{entry['diffId']}`", entry["createdAt"], ", ".join(entry["modes"]), entry["from"], entry["to"]]
        lines.append("| " + " | ".join([*cells, str(counts["filesChanged"]), str(counts["chunksChanged"])]) + " |")
    return "\n".join(lines)


def pruned_lines(pruned: Pruned) -> Iterator[str]:
    """What a prune removed, as text."""
    verb = "would remove" if pruned.dry_run else "removed"
    for name in pruned.removed:
        yield f"{verb} {name}"
    for name in pruned.orphans:
        yield f"{verb} orphan {name}"
    for name in pruned.builds:
        yield f"{verb} build {name}"
    yield "1 diff stays" if pruned.kept == 1 else f"{pruned.kept} diffs stay"


def _event_item(event: IndexEvent) -> str:
    subject = event.get("name") or event.get("to") or event.get("reason")
    detail = f" {code(str(subject))}" if subject else ""
    return f"- {event['kind']} {code(str(event.get('file', event['mode'])))}{detail}"
