"""Index diffs and registry entries as text, Markdown, JSON lines, and reviews for a pull request."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from itertools import islice

from driftline.codeindex._diff.diff import IndexDiff
from driftline.codeindex._diff.files import IndexEvent
from driftline.codeindex._git import GitRepository
from driftline.codeindex._options import V2
from driftline.codeindex._registry.keep import Pruned
from driftline.codeindex._storage import event_line
from driftline.core import JsonObject, StrPath
from driftline.errors import IndexRefError

_MARKDOWN_EVENTS = 100
_MARKDOWN_LINES = 60
_MAX_BODIES = 1000
_CONTEXT = 3
_MOST_UNREAD = 5
_COUNTED = ("files", "chunks", "relations")
_EDGE_VERBS = {"edgesAdded": "added", "edgesRemoved": "removed"}
_VERBS = {"added": "added", "removed": "removed", "modified": "changed", "renamed": "renamed", "moved": "moved"}
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


def json_line(event: IndexEvent, *, compact: bool) -> bytes:
    """An event on one line, with blanks between members unless `compact`."""
    return event_line(event) if compact else json.dumps(event, ensure_ascii=True).encode() + b"\n"


def summary_lines(result: IndexDiff) -> Iterator[str]:
    """The summary as text."""
    summary = result.summary
    before, after = (side.get("label") or side["ref"] for side in (summary["from"], summary["to"]))
    yield f"{result.diff_id}: {before} -> {after}"
    for mode, counts in summary["modesSummary"].items():
        yield f"{mode}: " + "; ".join(f"{what} {_count_text(counts[what])}" for what in _COUNTED)
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
        lines.append(f"| {mode} | " + " | ".join(_count_text(counts[what]) for what in _COUNTED) + " |")
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
        if format_name == "html":
            raise IndexRefError("--format html shows diffs of git: references; this one is semantic-v1")
        return diff_markdown(result)
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


def _count_text(counts: dict[str, int]) -> str:
    """Counts that are not zero."""
    changed = [f"{count} {_EDGE_VERBS.get(kind, kind)}" for kind, count in counts.items() if count]
    return ", ".join(changed) or "unchanged"


def _event_item(event: IndexEvent) -> str:
    subject = event.get("name") or event.get("to") or event.get("reason")
    detail = f" {code(str(subject))}" if subject else ""
    return f"- {event['kind']} {code(str(event.get('file', event['mode'])))}{detail}"


def code(text: str) -> str:
    """Inline code that survives backticks and line breaks."""
    flat = " ".join(text.split())
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


# Reviews: renames first, then file after file, with signatures and bodies side by side.


class ReviewSource:
    """The text of definitions on either side, from blobs that are fetched once; none without a repository."""

    def __init__(self, events: Iterable[IndexEvent], repository: GitRepository | None = None) -> None:
        self.blobs: dict[tuple[str, str], bytes] = {}
        if repository is None:
            return
        listed = list(events)
        hashes = _hashes(listed)
        changed = [event for event in listed if _has_body(event)][:_MAX_BODIES]
        wanted = {(side, event[side]["file"]) for event in changed for side in ("before", "after")} & hashes.keys()
        keys = sorted(wanted)
        contents = repository.contents([(hashes[key], key[1]) for key in keys])
        self.blobs = {key: blob for key, blob in zip(keys, contents, strict=True) if blob is not None}

    def text(self, event: IndexEvent, side: str) -> str | None:
        """The complete lines of a definition."""
        blob = self.blobs.get((side, event[side]["file"])) if side in event else None
        if blob is None:
            return None
        place = event[side]["range"]
        start = blob.rfind(b"\n", 0, place["start"]) + 1
        return blob[start : place["end"]].decode("utf-8", "replace")


def _has_body(event: IndexEvent) -> bool:
    return event["kind"].startswith("chunk.") and "before" in event and "after" in event and event["name"] != ""


def _hashes(events: Iterable[IndexEvent]) -> dict[tuple[str, str], str]:
    """The blobs of the files that have events."""
    found: dict[tuple[str, str], str] = {}
    for event in events:
        if event["kind"].startswith("file."):
            sides: JsonObject = {side: event[side] for side in ("before", "after") if side in event}
            found |= {(side, entry["file"]): entry["hash"] for side, entry in sides.items() if entry["hash"]}
    return found


@dataclass(slots=True)
class Section:
    """What happened to one file."""

    path: str
    file_event: IndexEvent | None = None
    symbols: list[IndexEvent] = field(default_factory=list)
    imports: list[IndexEvent] = field(default_factory=list)


def review_sections(events: Sequence[IndexEvent]) -> list[Section]:
    """The events by file, in their order."""
    found: dict[str, Section] = {}
    for event in events:
        if "file" not in event:
            continue
        section = found.setdefault(event["file"], Section(event["file"]))
        if event["kind"].startswith("file."):
            section.file_event = event
        elif event["kind"].startswith("chunk."):
            section.symbols.append(event)
        elif event["kind"].startswith("relation."):
            section.imports.append(event)
    return list(found.values())


def review_markdown(result: IndexDiff, source: ReviewSource) -> str:
    """The review for a pull request."""
    events = list(result.events)
    lines = [f"## {_title(result)}", "", *(f"- {line}" for line in _count_lines(result)), ""]
    moves = [event for event in events if event["kind"] in ("chunk.renamed", "chunk.moved")]
    if moves:
        lines += ["### Renamed and moved", "", *map(_move_item, moves), ""]
    for section in review_sections(events):
        lines += [*_markdown_section(section, source), ""]
    return "\n".join([*lines, *_cut_note(result)]).rstrip()


def _title(result: IndexDiff) -> str:
    sides = (result.summary["from"], result.summary["to"])
    before, after = (side.get("label") or side["ref"] for side in sides)
    return f"Code changes {code(before)} → {code(after)}"


def _count_lines(result: IndexDiff) -> Iterator[str]:
    for mode, counts in result.summary["modesSummary"].items():
        yield f"{mode}: files {_count_text(counts['files'])}; definitions {_count_text(counts['chunks'])}"
        if counts["limits"]["chunkDiffSkipped"]:
            yield f"{mode}: definitions were not compared everywhere ({counts['limits']['reason']})"


def _cut_note(result: IndexDiff) -> list[str]:
    return [f"… cut after {len(list(result.events))} events"] if result.summary["truncated"] else []


def _move_item(event: IndexEvent) -> str:
    before, after = event["before"], event["after"]
    origin = f"{code(before['name'])} in {code(before['file'])}"
    target = f"{code(after['name'])} in {code(after['file'])}"
    also = f", with another {' and '.join(event['changes'])}" if event["changes"] else ""
    return f"- {origin} → {target} (similarity {event['similarity']}{also})"


def _markdown_section(section: Section, source: ReviewSource) -> Iterator[str]:
    event = section.file_event
    what = event["kind"].removeprefix("file.") if event else "touched"
    origin = f" from {code(event['beforeFile'])}" if event and what == "renamed" else ""
    yield f"### {code(section.path)} ({what}{origin})"
    yield ""
    for symbol in section.symbols:
        yield f"- {_headline(symbol)}"
        if symbol["kind"] == "chunk.modified" or symbol["changes"]:
            yield from _markdown_change(symbol, source)
    for edge in section.imports:
        yield f"- {edge['kind'].removeprefix('relation.')} import {code(edge['to'])}"


def _headline(event: IndexEvent) -> str:
    """What happened to a definition, in one line."""
    verb = _VERBS[event["kind"].removeprefix("chunk.")]
    what = f" {' and '.join(event['changes'])} of" if event["kind"] == "chunk.modified" else ""
    name = code(event["name"]) if event["name"] else "the module's own code"
    kind = f" {event['chunkKind']}" if event["name"] else ""
    public = ", public" if event["public"] else ""
    return f"**{verb}**{what}{kind} {name}{public}"


def _markdown_change(event: IndexEvent, source: ReviewSource) -> Iterator[str]:
    before, after = source.text(event, "before"), source.text(event, "after")
    if before is None or after is None:
        before, after = event["before"]["signature"], event["after"]["signature"]
    changed = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=_CONTEXT))[2:]
    if not changed:
        return
    fence = "`" * max(3, *(len(run) + 1 for line in changed for run in re.findall(r"`+", line)), 3)
    yield f"  {fence}diff"
    yield from (f"  {line}" for line in changed[:_MARKDOWN_LINES] if not line.startswith("@@"))
    if len(changed) > _MARKDOWN_LINES:
        yield f"  … {len(changed) - _MARKDOWN_LINES} more lines"
    yield f"  {fence}"


def review_html(result: IndexDiff, source: ReviewSource) -> str:
    """The review as one page without scripts, which loads nothing."""
    events = list(result.events)
    style = files("driftline.codeindex").joinpath("review.css").read_text("utf-8")
    moves = [event for event in events if event["kind"] in ("chunk.renamed", "chunk.moved")]
    body = [f"<h1>{_inline(_title(result))}</h1>", "<ul>"]
    body += [f"<li>{escape(line)}</li>" for line in _count_lines(result)]
    body.append("</ul>")
    if moves:
        items = (f"<li>{_inline(_move_item(event)[2:])}</li>" for event in moves)
        body += ["<h2>Renamed and moved</h2>", "<ul>", *items, "</ul>"]
    for section in review_sections(events):
        body += _html_section(section, source)
    body += [f"<p>{escape(note)}</p>" for note in _cut_note(result)]
    title = escape(_title(result).replace("`", ""))
    head = f'<meta charset="utf-8"><title>{title}</title><style>{style}</style>'
    return "\n".join(["<!doctype html>", f'<html lang="en"><head>{head}</head><body>', *body, "</body></html>"])


def _inline(markdown: str) -> str:
    """Code and bold of one of our own lines as HTML."""
    text = escape(markdown, quote=False)
    text = re.sub(r"`` (.*?) ``|`(.*?)`", lambda found: f"<code>{found[1] or found[2]}</code>", text)
    return re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", text)


def _html_section(section: Section, source: ReviewSource) -> Iterator[str]:
    heading = next(_markdown_section(section, source)).removeprefix("### ")
    yield f"<section><h2>{_inline(heading)}</h2>"
    for event in section.symbols:
        kind = event["kind"].removeprefix("chunk.")
        yield f'<details class="{kind}" open><summary>{_inline(_headline(event))}</summary>'
        yield from _html_change(event, source)
        yield "</details>"
    for edge in section.imports:
        yield f"<p>{_inline(edge['kind'].removeprefix('relation.') + ' import ' + code(edge['to']))}</p>"
    yield "</section>"


def _html_change(event: IndexEvent, source: ReviewSource) -> Iterator[str]:
    sides = [event[side]["signature"] if side in event else "" for side in ("before", "after")]
    if not event["changes"]:
        yield from (f"<pre>{escape(text)}</pre>" for text in dict.fromkeys(filter(None, sides)))
        return
    texts = [source.text(event, side) for side in ("before", "after")]
    before, after = (text if text is not None else sides[place] for place, text in enumerate(texts))
    yield "<table>"
    yield from _rows(before.splitlines(), after.splitlines())
    yield "</table>"


def _rows(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        for tag, first, last, start, end in group:
            height = max(last - first, end - start)
            for row in range(height):
                left = before[first + row] if first + row < last else None
                right = after[start + row] if start + row < end else None
                yield _row(tag, left, right)
        yield '<tr class="gap"><td></td><td></td></tr>'


def _row(tag: str, left: str | None, right: str | None) -> str:
    if tag == "equal":
        return f"<tr><td>{escape(left or '')}</td><td>{escape(right or '')}</td></tr>"
    if left is None or right is None:
        old = f'<td class="old">{escape(left)}</td>' if left is not None else "<td></td>"
        new = f'<td class="new">{escape(right)}</td>' if right is not None else "<td></td>"
        return f"<tr>{old}{new}</tr>"
    old, new = _highlighted(left, right)
    return f'<tr><td class="old">{old}</td><td class="new">{new}</td></tr>'


def _highlighted(left: str, right: str) -> tuple[str, str]:
    """Both lines with the words marked that differ."""
    one, other = _WORDS.findall(left), _WORDS.findall(right)
    sides: tuple[list[str], list[str]] = ([], [])
    for tag, first, last, start, end in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for words, out, name in ((one[first:last], sides[0], "del"), (other[start:end], sides[1], "ins")):
            text = escape("".join(words))
            out.append(text if tag == "equal" or not text else f"<{name}>{text}</{name}>")
    return "".join(sides[0]), "".join(sides[1])
