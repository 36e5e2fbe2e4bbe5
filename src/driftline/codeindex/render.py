"""Diffs and registry entries as text, Markdown and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

from driftline.codeindex.diffing import IndexDiff
from driftline.codeindex.events import Event
from driftline.codeindex.json_values import event_line
from driftline.codeindex.pruning import Pruned
from driftline.core._json import JsonObject

_MARKDOWN_EVENTS = 100
_COUNTED = ("files", "chunks", "relations")


def json_line(event: Event, *, compact: bool) -> bytes:
    """An event on one line, with a little air unless `compact`."""
    return event_line(event) if compact else json.dumps(event, ensure_ascii=True).encode() + b"\n"


def summary_lines(result: IndexDiff) -> Iterator[str]:
    """The summary for people."""
    summary = result.summary
    before, after = (side.get("label") or side["ref"] for side in (summary["from"], summary["to"]))
    yield f"{result.diff_id}: {before} -> {after}"
    for mode, counts in summary["modesSummary"].items():
        yield f"{mode}: " + "; ".join(f"{what} {count_text(counts[what])}" for what in _COUNTED)
        if counts["limits"]["chunkDiffSkipped"]:
            yield f"{mode}: chunks were skipped ({counts['limits']['reason']})"
    if summary["truncated"]:
        yield f"events were cut, {summary['totalEvents']} in all ({summary['truncatedReason']})"
    skipped = sum(summary["skippedRows"].values())
    if skipped:
        yield f"{skipped} rows without a file were skipped"


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


def entry_lines(entries: Iterable[JsonObject]) -> Iterator[str]:
    """Registry entries for people."""
    for entry in entries:
        counts = entry["summary"]
        told = f"{counts['filesChanged']} files, {counts['chunksChanged']} chunks" if counts else "by another tool"
        yield (
            f"{entry['diffId']}  {entry['createdAt']}  {','.join(entry['modes'])}  {entry['from']} -> {entry['to']}  "
            f"{told}"
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
    """What a prune did, for people."""
    verb = "would remove" if pruned.dry_run else "removed"
    for name in pruned.removed:
        yield f"{verb} {name}"
    for name in pruned.orphans:
        yield f"{verb} orphan {name}"
    yield "1 diff stays" if pruned.kept == 1 else f"{pruned.kept} diffs stay"


def count_text(counts: dict[str, int]) -> str:
    """Counts that are not nought, in words."""
    changed = [f"{count} {_WORDS.get(kind, kind)}" for kind, count in counts.items() if count]
    return ", ".join(changed) or "unchanged"


_WORDS = {"edgesAdded": "added", "edgesRemoved": "removed"}


def _event_item(event: Event) -> str:
    subject = event.get("name") or event.get("to") or event.get("reason")
    detail = f" {code(str(subject))}" if subject else ""
    return f"- {event['kind']} {code(str(event.get('file', event['mode'])))}{detail}"


def code(text: str) -> str:
    """Inline code that survives backticks and line breaks."""
    flat = " ".join(text.split())
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"
