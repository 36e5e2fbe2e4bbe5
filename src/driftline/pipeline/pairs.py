"""From a file of pairs to what `driftline check` compares (pipeline §9); every mistake names its line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from driftline.core._files import StrPath
from driftline.core._thresholds import TABLE_COUNTS, Threshold, parse_threshold
from driftline.errors import DriftlineError
from driftline.pipeline.reading import ENGINES, read_document
from driftline.pipeline.sections import Section
from driftline.tables._engines import memory_limit
from driftline.tables._options import DiffOptions, check_options, option_names

_LOCATED = ("delta:", "file://")
_LIMITS = ("fail_if", "warn_if")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tables that should agree, and how much they may differ."""

    name: str
    old: str
    new: str
    options: DiffOptions
    fail_if: tuple[Threshold, ...] = ()
    warn_if: tuple[Threshold, ...] = ()
    events: Path | None = None


@dataclass(frozen=True, slots=True)
class PairsFile:
    """A whole file of pairs."""

    name: str
    pairs: tuple[Pair, ...]
    engine: str = "auto"
    master: str | None = None
    parallel: int = 2
    memory: int | None = None


def load_pairs(path: StrPath) -> PairsFile:
    """Read and check a file of pairs; the first mistake is raised with its line."""
    file = Path(path)
    root = read_document(file).root
    head = root.section("check")
    usual = root.section("defaults")
    defaults = {} if usual is None else usual.given(_rule_names())
    events = head.text("events") if head else None
    pairs = tuple(_pair(name, section, defaults, file, events) for name, section in root.named_sections("pairs"))
    memory = head.text("memory") if head else None
    try:
        found = PairsFile(
            name=(head.text("name") if head else None) or file.stem,
            pairs=pairs,
            engine=head.choice("engine", "auto", ENGINES) if head else "auto",
            master=head.text("master") if head else None,
            parallel=head.number("parallel", 2, 1) if head else 2,
            memory=memory_limit(memory) if memory else None,
        )
    except DriftlineError as error:
        root.fail(error.message)
    for section in (head, usual, root):
        if section is not None:
            section.finish()
    if not pairs:
        root.fail('there are no pairs: write [pairs.NAME] with "old" and "new"')
    _refuse_shared_events(root, pairs)
    return found


def _pair(name: str, section: Section, defaults: Mapping[str, Any], file: Path, events: str | None) -> Pair:
    rules = {**defaults, **section.given(_rule_names())}
    limits = {key: _thresholds(section, key, rules.pop(key, ())) for key in _LIMITS}
    old, new = (_beside(file, section.required(side)) for side in ("old", "new"))
    target = section.text("events") or events
    section.finish()
    if target is not None and "{pair}" not in target and "events" not in section:
        section.fail("'events' in [check] is written once for every pair: put {pair} into its name")
    try:
        options = check_options(**rules)
    except DriftlineError as error:
        section.fail(error.message)
    place = None if target is None else file.parent / target.replace("{pair}", name)
    return Pair(name, old, new, options, limits["fail_if"], limits["warn_if"], place)


def _rule_names() -> list[str]:
    return sorted((option_names() - {"fail_if"}) | set(_LIMITS))


def _thresholds(section: Section, key: str, given: Any) -> tuple[Threshold, ...]:
    texts = [given] if isinstance(given, str) else given
    try:
        found = tuple(map(partial(parse_threshold), texts))
    except (ValueError, TypeError) as error:
        section.fail(f"{key!r}: {error}", key if key in section else None)
    for one in found:
        if one.count not in TABLE_COUNTS:
            section.fail(f"{key!r} knows the counts {', '.join(TABLE_COUNTS)}, not {one.count!r}")
    return found


def _beside(file: Path, given: str) -> str:
    """A path is relative to the file of pairs; an address stays what it is."""
    for prefix in _LOCATED:
        if given.startswith(prefix):
            rest = given.removeprefix(prefix)
            return prefix + (rest if "://" in rest else os.path.join(file.parent, rest))
    return given if "://" in given else os.path.join(file.parent, given)


def _refuse_shared_events(root: Section, pairs: tuple[Pair, ...]) -> None:
    seen: dict[Path, str] = {}
    for pair in pairs:
        if pair.events is not None and seen.setdefault(pair.events, pair.name) != pair.name:
            root.fail(f"{seen[pair.events]} and {pair.name} write the same file {pair.events.name}")
