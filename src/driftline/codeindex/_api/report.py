"""`index api`: what happened to the API between two versions, and the version that the change requires."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from driftline.codeindex._api import FileFacts, SourceFile, Surface, Thing
from driftline.codeindex._api.compare import LEVELS, RULES, Difference, Reason, compare, rules_digest
from driftline.codeindex._api.go import with_old_modules
from driftline.codeindex._api.readers import FAMILIES, MANIFEST_LANGUAGES, Family
from driftline.codeindex._build.index_files import built_index
from driftline.codeindex._diff.diff import prepare
from driftline.codeindex._read.resolve import DiffOptions, ResolvedRef, kind_of
from driftline.codeindex._review import annotation_text, code
from driftline.core import JsonObject, Tracker
from driftline.errors import IndexRefError

MAJOR, UNKNOWN, MINOR, PATCH = LEVELS
ACCEPTED_FILE = ".driftline/api-accepted.toml"
BREAKING, COMPATIBLE = "breaking", "compatible"

_UNREAD = ("generated", "too-large", "missing", "submodule")
_NOT_READ_HERE = re.compile(r"\.(kt|kts|swift|php|scala|dart|exs?|erl|hs|lua|pl|pm|clj|m|mm|fs|vb|jl|r|zig|nim)$", re.I)
_VERSION = re.compile(r"[^\d]*(\d+)\.(\d+)(?:\.(\d+))?$")


@dataclass(frozen=True, slots=True)
class ApiChange:
    """One change of the API: a rule, the name it is about, and the definition on both sides; `_judged` says more."""

    level: str
    rule: str
    verdict: str
    unit: str
    name: str
    written: str
    kind: str
    why: str
    before: JsonObject | None
    after: JsonObject | None
    also: tuple[str, ...] = ()
    accepted: bool = False

    @property
    def place(self) -> str:
        """Where the definition was and is."""
        sides = (self.before, self.after)
        return " → ".join(f"{side['file']}:{side['line']}" if side else "" for side in sides).strip()

    @property
    def file(self) -> str:
        """The file it is in now, or was in."""
        return str((self.after or self.before or {}).get("file", ""))


@dataclass(frozen=True, slots=True)
class ApiReport:
    """All changes by level, the size of both surfaces, and what follows for the version."""

    changes: tuple[ApiChange, ...]
    surface: tuple[int, int]
    labels: tuple[str, str]
    counts: dict[str, int]
    version: str | None = None
    stale: tuple[JsonObject, ...] = ()

    @property
    def breaking(self) -> tuple[ApiChange, ...]:
        """What breaks a caller and is not accepted."""
        return tuple(change for change in self.changes if change.level == MAJOR and not change.accepted)

    @property
    def unknown(self) -> tuple[ApiChange, ...]:
        """What could not be judged."""
        return tuple(change for change in self.changes if change.level == UNKNOWN)

    @property
    def verdict(self) -> str:
        """The highest level; "not known" where nothing but unknown changes is there."""
        counts = self.counts
        known = next((level for level in (MAJOR, MINOR, PATCH) if counts[level]), "none")
        return "not known" if counts[UNKNOWN] and known in ("none", PATCH) else known

    @property
    def bump(self) -> str | None:
        """The version that the change requires, below 1.0 by Cargo's habit; None where no version is known."""
        found = _VERSION.match(self.version or "")
        level = next((level for level in (MAJOR, MINOR) if self.counts[level]), PATCH)
        if found is None or not any(self.counts.values()):
            return None
        major, minor, patch = (int(number or 0) for number in found.groups())
        if major == 0:
            level = {MAJOR: MINOR, MINOR: PATCH}.get(level, level)
        numbers = {MAJOR: (major + 1, 0, 0), MINOR: (major, minor + 1, 0), PATCH: (major, minor, patch + 1)}[level]
        return ".".join(map(str, numbers))

    @property
    def verdict_line(self) -> str:
        """The verdict with its counts, on one line."""
        counts = self.counts
        accepted = sum(change.accepted for change in self.changes)
        stated = ", ".join(f"{counts[level]} {level}" for level in LEVELS)
        least = "at least " if counts[UNKNOWN] and not counts[MAJOR] else ""
        bump = f" — suggested: {self.version} → {least}{self.bump}" if self.bump else ""
        return f"verdict: {self.verdict} ({stated}{f'; {accepted} accepted' if accepted else ''}){bump}"

    def fails(self, *, strict: bool = False) -> bool:
        """Whether a gate says no: a break that is not accepted; if strict, also anything unknown or stale."""
        return bool(self.breaking) or (strict and bool(self.unknown or self.stale))

    def only(self, levels: Iterable[str]) -> ApiReport:
        """The report with the changes of some levels; verdict and counts stay those of all."""
        needed = set(levels)
        return replace(self, changes=tuple(change for change in self.changes if change.level in needed))

    def to_dict(self) -> JsonObject:
        """The report as plain data."""
        unknown = [{"rule": c.rule, "file": c.file, "names": [c.name, *c.also]} for c in self.unknown]
        return {
            "from": self.labels[0],
            "to": self.labels[1],
            "rulesVersion": rules_digest(),
            "verdict": self.verdict,
            "version": self.version,
            "bump": self.bump,
            "counts": self.counts,
            "surface": {"from": self.surface[0], "to": self.surface[1]},
            "breaking": len(self.breaking),
            "changes": [{**asdict(change), "also": list(change.also)} for change in self.changes],
            "unknown": unknown,
            "staleAccepted": list(self.stale),
        }

    def to_frame(self) -> Any:
        """The changes as a Polars frame."""
        import polars as pl

        texts = ("level", "rule", "verdict", "unit", "name", "kind", "why", "file")
        columns = {**dict.fromkeys(texts, pl.String), "accepted": pl.Boolean}
        return pl.DataFrame([{name: getattr(item, name) for name in columns} for item in self.changes], schema=columns)


def api(
    from_ref: str,
    to_ref: str,
    cache_root: str | os.PathLike[str] | None = None,
    *,
    repo: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    tracker: Tracker | None = None,
) -> ApiReport:
    """What happened to the API between two versions; `only` keeps what is defined below a path or in a unit."""
    options = DiffOptions.of(kind=kind_of(None, (from_ref, to_ref)))
    request = prepare(from_ref, to_ref, cache_root, options, repo=repo, tracker=tracker)
    old, new = request.before, request.after
    labels = (old.label or old.ref.shown, new.label or new.ref.shown)
    return compare_files(_files(old), _files(new), labels, only)


def compare_files(
    old: dict[str, SourceFile], new: dict[str, SourceFile], labels: tuple[str, str], only: Sequence[str] = ()
) -> ApiReport:
    """Compare the surfaces of both sides, one family of languages after the other."""
    changes: list[ApiChange] = []
    sizes = [0, 0]
    versions: list[str] = []
    for family in FAMILIES:
        sides = [
            {path: file for path, file in side.items() if file.language in family.languages} for side in (old, new)
        ]
        if all(file.language in MANIFEST_LANGUAGES for side in sides for file in side.values()):
            continue
        newer, renamed = with_old_modules(sides[0], sides[1]) if "gomod" in family.languages else (sides[1], {})
        for path, (was, now) in renamed.items():
            one, other = ({"file": path, "line": 1, "signature": f"module {name}"} for name in (was, now))
            why = f"{was} -> {now}"
            changes.append(ApiChange(MAJOR, "module-renamed", "", was, was, was, "module", why, one, other))
        before, after = family.surface(sides[0]), family.surface(newer)
        sizes = [size + len(found.names) for size, found in zip(sizes, (before, after), strict=True)]
        versions += filter(None, (_version(sides[0], manifest) for manifest in before.units.values()))
        doubted = dict(_doubted(sides[0], sides[1], before.files | after.files))
        found = compare(before, after, family.reading, doubted)
        changes += [_change(item, family, before, after) for item in found]
        changes += _unreported(doubted, found, sides[0], sides[1])
    changes += _out_of_scope(old, new)
    known = next(iter(versions), None) or _version(old, "pyproject.toml")
    version = labels[0] if _VERSION.match(labels[0]) else known
    chosen = [change for change in changes if not only or any(_is_inside(change, needed) for needed in only)]
    accepted, stale, levels = _accepted(new)
    judged = [_judged(change, accepted, levels) for change in chosen]
    unused = tuple(entry for entry in accepted if not only and not any(_accepts(entry, change) for change in chosen))
    ordered = sorted(judged, key=lambda item: (LEVELS.index(item.level), item.name, item.rule, item.why))
    stated = Counter(change.level for change in ordered)
    counts = {level: stated[level] for level in LEVELS}
    return ApiReport(tuple(ordered), (sizes[0], sizes[1]), labels, counts, version, (*unused, *stale))


def _files(side: ResolvedRef) -> dict[str, SourceFile]:
    built = built_index(side.indexes["code"])
    if built is None or not built.has_facts:
        raise IndexRefError(
            f"{side.label or side.ref.shown} has no facts about an API, which only builds of this version have: "
            "compare git: references, or build it again (driftline index build)"
        )
    files = {}
    for row in built.files:
        # A header that only C++ can read is still a header of its family.
        broken = "unread" if row.skipped in _UNREAD else "unparsed" if row.parseError else None
        if row.skipped is None or broken:
            facts = built.facts_of(row.file)
            files[row.file] = SourceFile(row.file, row.language or "", row.hash, facts or FileFacts(), broken)
    return files


def _doubted(old: dict[str, SourceFile], new: dict[str, SourceFile], files: set[str]) -> Iterator[tuple[str, Reason]]:
    """Files of the API that one side cannot read; the same bytes on both sides are no change."""
    for path in sorted(old.keys() | new.keys()):
        sides = old.get(path), new.get(path)
        reason = next((side.broken for side in sides if side is not None and side.broken), None)
        same = sides[0] is not None and sides[1] is not None and sides[0].hash == sides[1].hash
        if reason is not None and not same and path in files:
            yield path, (reason, f"{path} was not read" if reason == "unread" else f"{path} does not parse")


def _unreported(
    doubted: dict[str, Reason], found: Sequence[Difference], old: dict[str, SourceFile], new: dict[str, SourceFile]
) -> Iterator[ApiChange]:
    """Files in doubt of which no name is known."""
    stated = {item.why for item in found}
    for path, (rule, why) in doubted.items():
        if why not in stated:
            places = [{"file": path, "line": 1, "signature": ""} if path in side else None for side in (old, new)]
            yield ApiChange(UNKNOWN, rule, "", path, path, path, "file", why, places[0], places[1])


def _out_of_scope(old: dict[str, SourceFile], new: dict[str, SourceFile]) -> list[ApiChange]:
    """One line for all changed files of languages that are not read."""
    hashes = [{path: file.hash for path, file in side.items() if _NOT_READ_HERE.search(path)} for side in (old, new)]
    paths = sorted(path for path in hashes[0].keys() | hashes[1].keys() if hashes[0].get(path) != hashes[1].get(path))
    if not paths:
        return []
    endings = sorted({path.rpartition(".")[2].lower() for path in paths})
    why = f"{len(paths)} changed files in languages that are not read"
    name = ", ".join(f".{ending}" for ending in endings)
    place = {"file": paths[0], "line": 1, "signature": ""}
    return [ApiChange(UNKNOWN, "out-of-scope", "", "", name, name, "file", why, None, place, tuple(paths[1:]))]


def _change(item: Difference, family: Family, old: Surface, new: Surface) -> ApiChange:
    thing = item.after or item.before
    assert thing is not None
    units = [unit for unit in {*old.units, *new.units} if unit and f"{item.name}.".startswith((f"{unit}.", f"{unit}/"))]
    unit = max(units, key=len, default=next(iter({**old.units, **new.units}), ""))
    return ApiChange(
        item.level, item.rule, "", unit, item.name, _written(item.name, unit, family), thing.kind, item.why,
        _side(item.before), _side(item.after), item.also,
    )  # fmt: skip


def _side(thing: Thing | None) -> JsonObject | None:
    return None if thing is None else {"file": thing.file, "line": thing.fact.line, "signature": _signature(thing)}


def _signature(thing: Thing) -> str:
    """A definition in one line, in the words of the facts."""
    fact = thing.fact
    kind = f": {fact.type}" if fact.type else ""
    leaf = thing.id.rpartition("#")[2].rpartition("/")[2].rpartition(".")[2]
    if fact.params is None or fact.kind == "class":
        value = f" = {fact.value}" if fact.value and fact.kind in ("value", "const") else ""
        return fact.value if fact.kind == "plain" else f"{fact.kind} {leaf}{kind}{value}"
    params = []
    for item in fact.params:
        name = {"rest": "*", "keywords": "**"}.get(item.how, "") + item.name
        params.append(name + (f": {item.type}" if item.type else "") + (f"={item.default}" if item.default else ""))
    return f"{leaf}({', '.join(params)}){kind}"


def _written(name: str, unit: str, family: Family) -> str:
    if family.reading.language == "script":
        inside = name.removeprefix(f"{unit}.") if name.startswith(f"{unit}.") else name
        return f'import {{{inside.partition(".")[0]}}} from "{unit}"' if unit else inside
    if family.reading.language == "go":
        return name.rpartition("/")[2]
    return name.replace(".", family.separator)


def _version(files: dict[str, SourceFile], path: str) -> str | None:
    manifest = files[path].facts.manifest if path in files else {}
    tables = (manifest, manifest.get("package", {}), manifest.get("project", {}))
    found = next((table["version"] for table in tables if table.get("version")), None)
    return found if isinstance(found, str) else None


def _is_inside(change: ApiChange, needed: str) -> bool:
    if needed == change.unit or change.name == needed or change.name.startswith(f"{needed}."):
        return True
    paths = [str(side["file"]) for side in (change.before, change.after) if side]
    return any(path == needed or path.startswith(f"{needed.rstrip('/')}/") for path in paths)


# Breaks that a project accepts, read from the newer side.


def _accepted(files: dict[str, SourceFile]) -> tuple[list[JsonObject], list[JsonObject], dict[str, str]]:
    """Accepted breaks, entries that say nothing, and levels that the project gives to rules."""
    file = files.get(ACCEPTED_FILE)
    if file is None:
        return [], [], {}
    if file.broken:
        raise IndexRefError(f"{ACCEPTED_FILE} is not TOML")
    manifest = file.facts.manifest
    entries = manifest.get("accepted", [])
    levels = manifest.get("levels", {})
    for rule, level in levels.items() if isinstance(levels, dict) else ():
        if rule not in RULES or level not in LEVELS:
            raise IndexRefError(f"{ACCEPTED_FILE}: [levels] {rule} = {level!r}: no such rule or level")
    known = [entry for entry in entries if isinstance(entry, dict) and entry.get("rule") in RULES and entry.get("name")]
    return known, [entry for entry in entries if entry not in known], levels


def _accepts(entry: JsonObject, change: ApiChange) -> bool:
    name = str(entry["name"])
    same = change.name.startswith(name[:-1]) if name.endswith("*") else change.name == name
    return same and entry["rule"] == change.rule and entry.get("what") in (None, change.why)


def _judged(change: ApiChange, accepted: Sequence[JsonObject], levels: dict[str, str]) -> ApiChange:
    level = levels.get(change.rule, change.level)
    verdict = {MAJOR: BREAKING, UNKNOWN: UNKNOWN}.get(level, COMPATIBLE)
    return replace(change, level=level, verdict=verdict, accepted=any(_accepts(entry, change) for entry in accepted))


def accepted_toml(found: ApiReport) -> str:
    """Entries for the breaks that are not accepted yet."""
    lines = []
    for change in found.breaking:
        entry = {"rule": change.rule, "name": change.name, "what": change.why, "why": ""}
        quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in entry.items()}
        lines += ["[[accepted]]", *(f'{name} = "{value}"' for name, value in quoted.items()), ""]
    return "\n".join(lines)


# Reports as lines of text, as Markdown for a pull request, and as annotations.


def report_lines(found: ApiReport) -> Iterator[str]:
    """One line for each change, the verdict last."""
    yield f"{found.labels[0]} -> {found.labels[1]}"
    for change in found.changes:
        why = " ".join(filter(None, (change.why, "(accepted)" if change.accepted else "")))
        yield f"{change.level:<7} {change.rule:<24} {change.name:<30} {why:<30} {change.place}".rstrip()
    yield from (f"stale entry in {ACCEPTED_FILE}: {entry.get('rule')} {entry.get('name')}" for entry in found.stale)
    yield found.verdict_line


def report_markdown(found: ApiReport) -> str:
    """The report as a page: majors with both signatures, the rest folded."""
    lines = [f"## API {code(found.labels[0])} → {code(found.labels[1])}", "", f"**{found.verdict_line}**"]
    for level in LEVELS:
        changes = [change for change in found.changes if change.level == level]
        if not changes:
            continue
        folded = level not in (MAJOR, UNKNOWN)
        lines += ["", f"<details><summary>{level}: {len(changes)}</summary>" if folded else f"### {level}", ""]
        lines += [line for change in changes for line in _items(change, signatures=level == MAJOR)]
        lines += ["", "</details>"] if folded else []
    lines += [f"\nStale in `{ACCEPTED_FILE}`: {code(str(entry.get('name')))}" for entry in found.stale]
    return "\n".join(lines)


def _items(change: ApiChange, *, signatures: bool) -> Iterator[str]:
    why = f": {code(change.why)}" if change.why else ""
    yield f"- {change.rule} {code(change.name)}{why}{' (accepted)' if change.accepted else ''}, {code(change.file)}"
    texts = [str(side["signature"]) for side in (change.before, change.after) if side]
    if signatures and len(set(texts)) == 2:
        yield from (f"  - {code(text)}" for text in texts)


def report_github(found: ApiReport) -> Iterator[str]:
    """Annotations of a GitHub workflow: breaks as errors, what is not known as warnings."""
    for change in (*found.breaking, *found.unknown):
        side = change.after or change.before or {}
        kind = "error" if change.level == MAJOR else "warning"
        place = f"file={annotation_text(str(side.get('file', '')), ',:')},line={side.get('line', 1)}"
        words = " ".join(filter(None, (change.name, change.why)))
        yield f"::{kind} {place},title={annotation_text(change.rule, ',:')}::{annotation_text(words)}"
    yield f"::notice title=API::{annotation_text(found.verdict_line)}"
