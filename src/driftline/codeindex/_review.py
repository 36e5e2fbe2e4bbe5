"""Diffs as text, Markdown, HTML and JSON lines; between git revisions as reviews.

A review has one verdict, then file after file by weight, with signatures and bodies side by side.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from zlib import compress

from driftline.codeindex._api import TABLES
from driftline.codeindex._build.index_files import built_index
from driftline.codeindex._build.languages import language_of
from driftline.codeindex._diff.chunks import IndexEvent
from driftline.codeindex._diff.diff import IndexDiff
from driftline.codeindex._git import GitRepository
from driftline.codeindex._read.resolve import V2, IndexDir
from driftline.codeindex._registry.keep import Pruned
from driftline.codeindex._storage import event_line
from driftline.core import JsonObject, StrPath
from driftline.errors import IndexRefError

if TYPE_CHECKING:
    from markupsafe import Markup

    from driftline.sinks import Part

_MARKDOWN_EVENTS = 100
_MOST_UNREAD = 5
_COUNTED = ("files", "chunks", "relations")
_MARKDOWN_LINES = 60
_MAX_BODIES = 1000
_CONTEXT = 3
_LONG = 2000  # lines
_LARGEST_SHOWN = 2 << 20  # bytes of a file
_MOST_CALLERS = 3
_MOST_NAMES = 300
_INLINE_BYTES = 200_000  # larger pages hold their parts compressed, and open them on demand
SIDES = ("before", "after")
MOVES = ("chunk.renamed", "chunk.moved")
_EDGE_VERBS = {"edgesAdded": "added", "edgesRemoved": "removed"}
_VERBS = {"added": "added", "removed": "removed", "modified": "changed", "renamed": "renamed", "moved": "moved"}
# Source may hold escape sequences, which a terminal would obey.
_CONTROLS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "�")

# What a change means and weighs, the weightiest first, and which files are no code: tables of `rules.toml`.
EFFECTS: dict[str, str] = TABLES["review"]["effects"]
_WEIGHTS: dict[str, int] = TABLES["review"]["weights"]
_GROUPS = [(name, re.compile(pattern)) for name, pattern in TABLES["review"]["groups"].items()]
_ORDER = ("code", "docs", "tests", "upkeep")


@dataclass(frozen=True, slots=True)
class ReviewFile:
    """A changed file: which kind of file it is, and how much its changes weigh."""

    path: str
    group: str
    weight: int
    section: Section


@dataclass(frozen=True, slots=True)
class Review:
    """What a diff means: a verdict, how many changes have which effect, and the files by weight, tests and CI last."""

    verdict: str
    counts: dict[str, int]
    files: tuple[ReviewFile, ...]
    moves: tuple[IndexEvent, ...] = ()  # definitions with another name or in another file

    @property
    def line(self) -> str:
        """The verdict with its counts, on one line."""
        texts = ", ".join(f"{count} {effect}" for effect, count in self.counts.items() if count)
        number = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        return f"verdict: {self.verdict} ({texts} in {number})" if texts else f"verdict: {self.verdict}"

    def to_dict(self) -> JsonObject:
        """The review as plain data, without the events."""
        files = [{"path": file.path, "group": file.group, "weight": file.weight} for file in self.files]
        return {"verdict": self.verdict, "counts": self.counts, "files": files}


def review(events: Iterable[IndexEvent]) -> Review:
    """Judge what a diff changes, by the marks and kinds of its events."""
    counts: Counter[str] = Counter()
    found = []
    listed = list(events)
    moves = tuple(event for event in listed if event["kind"] in MOVES)
    sources = {event["before"]["file"] for event in moves}
    for section in review_sections(listed):
        group = next((name for name, pattern in _GROUPS if pattern.search(section.path)), "code")
        effects = list(_effects(section, group, sources))
        counts.update(effects)
        found.append(ReviewFile(section.path, group, sum(_WEIGHTS[effect] for effect in effects), section))
    found.sort(key=lambda file: (_ORDER.index(file.group), -file.weight, file.path))
    strongest = next((effect for effect in EFFECTS if counts[effect]), None)
    verdict = EFFECTS[strongest] if strongest else "nothing changed"
    return Review(verdict, {effect: counts[effect] for effect in EFFECTS}, tuple(found), moves)


def _effects(section: Section, group: str, sources: set[str]) -> Iterator[str]:
    """The effect of each change in a file; a file without definitions counts as one."""
    if group != "code":
        yield from [group] * max(1, len(section.symbols))
        return
    for event in section.symbols:
        changes, kind = set(event.get("changes") or ()), event["kind"].removeprefix("chunk.")
        if kind == "modified" and changes == {"doc"}:
            yield "docs"
        elif event.get("public") and (kind in ("added", "removed", "renamed") or "signature" in changes):
            yield "API"
        elif kind in ("renamed", "moved") and not changes - {"doc"}:
            yield "moved"
        else:
            yield "behaviour"
    if not section.symbols:
        yield _effect_of_file(section, sources)


def _effect_of_file(section: Section, sources: set[str]) -> str:
    """The effect of a change that no definition of a file shows."""
    event = section.file_event or {}
    if event.get("kind") == "file.renamed":
        return "moved"
    sides = [event.get(side) or {} for side in ("before", "after")]
    is_read = language_of(section.path) is not None and not any(side.get("state") for side in sides)
    if section.imports or not is_read or event.get("kind") != "file.modified":
        return "behaviour"
    return "moved" if section.path in sources else "layout"


def callers(index: IndexDir | None, events: Iterable[IndexEvent]) -> dict[str, list[str]]:
    """Who calls what lost its name or changed its signature, by the last name of the call."""
    requested = {
        (event.get("before") or event)["name"].rpartition(".")[2]
        for event in events
        if event["kind"].startswith("chunk.") and event["chunkKind"] in ("function", "class")
        if event["kind"] in ("chunk.removed", "chunk.renamed") or "signature" in event["changes"]
    }
    built = built_index(index) if index is not None and 0 < len(requested) <= _MOST_NAMES else None
    found: dict[str, list[str]] = defaultdict(list)
    for row in built.files if built is not None else ():
        for chunk in built.chunks(row.file) if built is not None else ():
            for _, callee in chunk.codeRelations.calls:
                leaf = re.split(r"[.:>]", callee)[-1]
                if leaf in requested:
                    found[leaf].append(f"{code(chunk.name or 'the module')} in {code(row.file)}")
    return found


def code(text: str) -> str:
    """Inline code that survives backticks and line breaks."""
    flat = " ".join(text.split())
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


Line = tuple[int, str]  # its number in the file, and its text


class BodyRow(NamedTuple):
    """Two lines side by side, each with its number; None where a side has no such line."""

    changed: bool
    before: tuple[int, list[Part]] | None
    after: tuple[int, list[Part]] | None
    gap: int = 0  # lines that are left out above


class ReviewSource:
    """The text of definitions on either side, from blobs that are fetched once; none without a repository.

    `complete` also fetches files, and definitions that one side alone has.
    """

    def __init__(
        self, events: Iterable[IndexEvent], repository: GitRepository | None = None, *, complete: bool = False
    ) -> None:
        listed = list(events)
        self.blobs: dict[tuple[str, str], bytes] = {}
        self._defined: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
        for event in (each for each in listed if each["kind"].startswith("chunk.") and (complete or each["changes"])):
            for side in event.keys() & SIDES:
                self._defined[side, event[side]["file"]].add(_lines_of(event[side]))
        if repository is None:
            return
        hashes = {
            (side, event[side]["file"]): event[side]["hash"]
            for event in listed
            for side in SIDES
            if event["kind"].startswith("file.") and side in event and event[side]["hash"]
        }
        defined = [event for event in listed if event["kind"].startswith("chunk.") and event["name"] != ""]
        changed = [event for event in defined if all(side in event for side in SIDES)][:_MAX_BODIES]
        needed = {(side, event[side]["file"]) for event in changed for side in SIDES}
        keys = sorted(key for key in hashes if complete or key in needed)
        contents = repository.contents([hashes[key] for key in keys])
        self.blobs = {key: blob for key, blob in zip(keys, contents, strict=True) if blob is not None}

    def text(self, event: IndexEvent, side: str) -> str | None:
        """The complete lines of a definition."""
        blob = self.blobs.get((side, event[side]["file"])) if side in event else None
        if blob is None:
            return None
        place = event[side]["range"]
        start = blob.rfind(b"\n", 0, place["start"]) + 1
        return blob[start : place["end"]].decode("utf-8", "replace")

    def rows(self, event: IndexEvent) -> list[BodyRow]:
        """The lines of a definition or a file that changed, side by side, with some around them.

        Lines of an inner definition are left out where an event of its own shows them.
        """
        return list(_side_by_side(*(self._lines(event, side) if side in event else [] for side in SIDES)))

    def _lines(self, event: IndexEvent, side: str) -> list[Line]:
        place, key = event[side], (side, event[side]["file"])
        first, last = _lines_of(place)
        blob = self.blobs.get(key)
        if blob is None:
            return [(first, place["signature"])] if place.get("signature") else []
        if b"\0" in blob or len(blob) > _LARGEST_SHOWN:
            return []
        lines = blob.removesuffix(b"\n").split(b"\n") if blob else []
        hidden = {
            line
            for start, end in self._defined[key]
            if (start, end) != (first, last) and first <= start and end <= last
            for line in range(start, end + 1)
        }
        found = enumerate(lines[first - 1 : last], first)
        kept = ((number, line.rstrip(b"\r")) for number, line in found if number not in hidden)
        return [(number, line.decode("utf-8", "replace")) for number, line in kept]


def _lines_of(side: JsonObject) -> tuple[int, int]:
    """The first and the last line of a definition, or of a whole file."""
    place = side.get("range") or {"startLine": 1, "endLine": sys.maxsize}
    return place["startLine"], place["endLine"]


def _side_by_side(before: list[Line], after: list[Line]) -> Iterator[BodyRow]:
    old, new = ([text for _, text in side] for side in (before, after))
    # Long texts are aligned without their commonest lines, which would take time by the square.
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=max(len(old), len(new)) > _LONG)
    reached = [side[0][0] if side else 0 for side in (before, after)]
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        for tag, first, last, start, end in group:
            for row in range(max(last - first, end - start)):
                left = before[first + row] if first + row < last else None
                right = after[start + row] if start + row < end else None
                pair = [(at, line[0]) for at, line in enumerate((left, right)) if line]
                yield _body_row(tag != "equal", left, right, max(number - reached[at] for at, number in pair))
                for at, number in pair:
                    reached[at] = number + 1


def _body_row(changed: bool, left: Line | None, right: Line | None, gap: int) -> BodyRow:
    from driftline.sinks import highlight

    if changed and left and right:
        old, new = highlight(left[1], right[1])
    else:
        old, new = ([(line[1], False)] if line else [] for line in (left, right))
    return BodyRow(changed, (left[0], old) if left else None, (right[0], new) if right else None, gap)


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
    judged = review(events)
    lines = [f"## {_title(result)}", "", f"**{judged.line}**", "", *(f"- {line}" for line in _count_lines(result)), ""]
    if judged.moves:
        lines += ["### Renamed and moved", "", *map(_move_item, judged.moves), ""]
    called = callers(result.after_index, events)
    for file in judged.files:
        lines += [*_markdown_section(file.section, source, called), ""]
    return "\n".join([*lines, *_cut_note(result)]).rstrip().translate(_CONTROLS)


def _title(result: IndexDiff) -> str:
    sides = (result.summary["from"], result.summary["to"])
    before, after = (side.get("label") or side["ref"] for side in sides)
    return f"Code changes {code(before)} → {code(after)}"


def _count_lines(result: IndexDiff) -> Iterator[str]:
    for mode, counts in result.summary["modesSummary"].items():
        yield f"{mode}: files {count_text(counts['files'])}; definitions {count_text(counts['chunks'])}"
        if counts["limits"]["chunkDiffSkipped"]:
            yield f"{mode}: definitions were not compared everywhere ({counts['limits']['reason']})"


def count_text(counts: dict[str, int]) -> str:
    changed = [f"{count} {_EDGE_VERBS.get(kind, kind)}" for kind, count in counts.items() if count]
    return ", ".join(changed) or "unchanged"


def _cut_note(result: IndexDiff) -> list[str]:
    return [f"… cut after {len(list(result.events))} events"] if result.summary["truncated"] else []


def _move_item(event: IndexEvent) -> str:
    before, after = event["before"], event["after"]
    origin = f"{code(before['name'])} in {code(before['file'])}"
    target = f"{code(after['name'])} in {code(after['file'])}"
    also = f", with another {' and '.join(event['changes'])}" if event["changes"] else ""
    return f"- {origin} → {target} (similarity {event['similarity']}{also})"


def _called_by(event: IndexEvent, called: dict[str, list[str]]) -> Iterator[str]:
    """The callers of a definition, by the name that it had; a call may mean another one of that name."""
    found = called.get((event.get("before") or event)["name"].rpartition(".")[2], [])
    if found and event["chunkKind"] in ("function", "class") and (event["changes"] or "after" not in event):
        more = f" and {len(found) - _MOST_CALLERS} more" if len(found) > _MOST_CALLERS else ""
        yield f"called by {', '.join(found[:_MOST_CALLERS])}{more}"


def _markdown_section(section: Section, source: ReviewSource, called: dict[str, list[str]]) -> Iterator[str]:
    yield f"### {_heading(section)}"
    yield ""
    for symbol in section.symbols:
        yield f"- {_headline(symbol)}"
        yield from (f"  - {line}" for line in _called_by(symbol, called))
        if symbol["kind"] == "chunk.modified" or symbol["changes"]:
            yield from _markdown_change(symbol, source)
    for edge in section.imports:
        yield f"- {edge['kind'].removeprefix('relation.')} import {code(edge['to'])}"


def _heading(section: Section) -> str:
    event = section.file_event
    what = event["kind"].removeprefix("file.") if event else "touched"
    origin = f" from {code(event['beforeFile'])}" if event and what == "renamed" else ""
    return f"{code(section.path)} ({what}{origin})"


def _headline(event: IndexEvent) -> str:
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


def review_github(result: IndexDiff) -> Iterator[str]:
    """Annotations of a GitHub workflow: one for each definition that changed for others, the verdict last."""
    judged = review(result.events)
    for file in judged.files:
        for event in file.section.symbols:
            if "after" in event and next(_effects(Section(file.path, None, [event]), file.group, set())) == "API":
                side = event["after"]
                place = f"file={annotation_text(side['file'], ',:')},line={side['range']['startLine']}"
                words = _headline(event).replace("**", "").replace("`", "")
                yield f"::notice {place},title=API::{annotation_text(words)}"
    yield f"::notice title=Code changes::{annotation_text(judged.line)}"


def annotation_text(value: str, more: str = "") -> str:
    """A text inside of a workflow command of GitHub."""
    for sign in ("%", "\r", "\n", *more):
        value = value.replace(sign, f"%{ord(sign):02X}")
    return value


def review_html(result: IndexDiff, source: ReviewSource) -> str:
    """The review as one page, which loads nothing; parts of a large one are compressed, and opened on demand."""
    from driftline.sinks import environment

    events = list(result.events)
    judged = review(events)
    called_by = partial(_called_by, called=callers(result.after_index, events))
    words = {"inline": _inline, "headline": _headline, "heading": _heading, "called_by": called_by}
    templates = environment("driftline.sinks")
    of_file = templates.get_template("code_file.html")
    parts = [of_file.render(section=file.section, source=source, **words) for file in judged.files]
    is_large = sum(map(len, parts)) > _INLINE_BYTES
    packed = b64encode(compress(json.dumps(parts).encode("utf-8", "surrogatepass"), 9)).decode() if is_large else ""
    return templates.get_template("code_page.html").render(
        title=_title(result),
        judged=judged,
        counts=_count_lines(result),
        groups=_ORDER,
        paths={file.path: number for number, file in enumerate(judged.files)},
        parts=parts,
        packed=packed,
        notes=_cut_note(result),
        **words,
    )


def _inline(markdown: str) -> Markup:
    """Code and bold of one of our own lines as HTML."""
    from markupsafe import Markup

    text = escape(markdown, quote=False)
    text = re.sub(r"`` (.*?) ``|`(.*?)`", lambda found: f"<code>{found[1] or found[2]}</code>", text)
    return Markup(re.sub(r"\*\*(.*?)\*\*", r"<b>\1</b>", text))  # noqa: S704 - escaped above


# Diffs and registry entries in every format.


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
    lines += ["", *(f"- {event_text(event)}" for event in shown)] if shown else []
    hidden = summary["totalEvents"] - len(shown)
    lines += [f"- … and {hidden} more"] if hidden > 0 else []
    return "\n".join(lines)


def rendered(result: IndexDiff, format_name: str) -> Iterator[bytes]:
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


def entry_lines(entries: Iterable[JsonObject]) -> Iterator[str]:
    """Registry entries as text."""
    for entry in entries:
        counts = entry["summary"]
        totals = f"{counts['filesChanged']} files, {counts['chunksChanged']} chunks" if counts else "by another tool"
        sides = f"{entry['from']} -> {entry['to']}"
        yield f"{entry['diffId']}  {entry['createdAt']}  {','.join(entry['modes'])}  {sides}  {totals}"


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
    for kind, names in (("", pruned.removed), ("orphan ", pruned.orphans), ("build ", pruned.builds)):
        yield from (f"{verb} {kind}{name}" for name in names)
    yield "1 diff stays" if pruned.kept == 1 else f"{pruned.kept} diffs stay"


def event_text(event: IndexEvent) -> str:
    """An event in one line."""
    subject = event.get("name") or event.get("to") or event.get("reason")
    detail = f" {code(str(subject))}" if subject else ""
    return f"{event['kind']} {code(str(event.get('file', event['mode'])))}{detail}"
