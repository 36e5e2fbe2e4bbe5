"""Checking many pairs of tables side by side: one result for each, and one for all of them (pipeline §9)."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args
from xml.sax.saxutils import escape, quoteattr

import msgspec

from driftline import core
from driftline.errors import Cancelled, DriftlineError, OptionError
from driftline.pipeline._declare.declaration import ENGINES, at_least, beside, checked, limits_of, memory_of, one_of
from driftline.pipeline._declare.toml import Section, declared, read_document
from driftline.pipeline._stages.stage import RunEngine
from driftline.sinks import page_bytes
from driftline.sources import without_password
from driftline.tables import Stats, TableDiffJob, TableOptions, check_options, find_engine, option_names

_LIMITS = ("fail_if", "warn_if")
Verdict = Literal["passed", "warned", "failed", "error"]
MOST_SAMPLES = 10
_ANY = "any difference fails, since no fail_if is declared"
_ROWS = ("added", "removed", "changed")
_CONTROLS = {code: None for code in range(32) if chr(code) not in "\t\n\r"}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tables that should agree, and how much they may differ."""

    name: str
    old: str
    new: str
    options: TableOptions
    fail_if: tuple[core.Threshold, ...] = ()
    warn_if: tuple[core.Threshold, ...] = ()
    events: Path | None = None


@dataclass(frozen=True, slots=True)
class PairsFile:
    """A whole file of pairs; its fields are the keys of `[check]`."""

    pairs: tuple[Pair, ...]
    name: str = declared(Section.text)
    engine: str = declared(one_of(*ENGINES), "auto")
    master: str | None = declared(Section.text, None)
    parallel: int = declared(at_least(1), 2)
    memory: int | None = declared(memory_of, None)
    events: str | None = declared(Section.text, None)


def read_pairs(path: core.StrPath) -> PairsFile:
    """Read and check a file of pairs; the first mistake is raised with its line."""
    file = Path(path)
    root = read_document(file)
    head = root.section("check")
    usual = root.section("defaults")
    defaults = {} if usual is None else usual.given(_rule_names())
    events = head.text("events") if head else None
    pairs = tuple(_pair(name, section, defaults, file, events) for name, section in root.named_sections("pairs"))
    found = head.record(PairsFile, name=file.stem, pairs=pairs) if head else PairsFile(pairs, file.stem)
    for section in (usual, root):
        if section is not None:
            section.finish()
    if not pairs:
        root.fail('there are no pairs: write [pairs.NAME] with "old" and "new"')
    seen: dict[Path, str] = {}
    for pair in pairs:
        if pair.events is not None and seen.setdefault(pair.events, pair.name) != pair.name:
            root.fail(f"{seen[pair.events]} and {pair.name} write the same file {pair.events.name}")
    return found


def _pair(name: str, section: Section, defaults: Mapping[str, Any], file: Path, events: str | None) -> Pair:
    rules = {**defaults, **section.given(_rule_names())}
    given = {key: rules.pop(key, ()) for key in _LIMITS}
    texts = {key: [each] if isinstance(each, str) else each for key, each in given.items()}
    limits = {key: limits_of(section, key, each, core.TABLE_COUNTS) for key, each in texts.items()}
    old, new = (beside(file.parent, section.required(side)) for side in ("old", "new"))
    target = section.text("events") or events
    section.finish()
    if target is not None and "{pair}" not in target and "events" not in section:
        section.fail("'events' in [check] is written once for every pair: put {pair} into its name")
    options = checked(section, lambda: check_options(**rules))
    place = None if target is None else file.parent / target.replace("{pair}", name)
    return Pair(name, old, new, options, limits["fail_if"], limits["warn_if"], place)


def _rule_names() -> list[str]:
    return sorted((option_names() - {"fail_if"}) | set(_LIMITS))


@dataclass(frozen=True, slots=True)
class PairResult:
    """What became of one pair; `problem` is why it could not be compared."""

    pair: str
    old: str
    new: str
    verdict: Verdict
    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict)
    exceeded: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str | None = None
    code: str | None = None
    columns: Mapping[str, int] = field(default_factory=dict)  # the ones that changed, and in how many rows
    samples: tuple[Mapping[str, Any], ...] = ()
    events: str | None = None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The results of all pairs, in the order of the file."""

    name: str
    results: tuple[PairResult, ...]
    seconds: float
    engine: str

    @property
    def totals(self) -> dict[str, int]:
        """How many pairs there are of each verdict."""
        verdicts = [result.verdict for result in self.results]
        return {verdict: verdicts.count(verdict) for verdict in get_args(Verdict)}

    @property
    def exit_code(self) -> int:
        """0 all passed, 1 a limit was exceeded, 2 a pair could not be compared."""
        return 2 if self.totals["error"] else 1 if self.totals["failed"] else 0

    def to_dict(self) -> core.JsonObject:
        """The report as plain data."""
        return {
            "check": self.name,
            "exitCode": self.exit_code,
            "seconds": self.seconds,
            "engine": self.engine,
            "totals": self.totals,
            "pairs": [asdict(result) for result in self.results],
        }


def check_pairs(
    file: PairsFile,
    *,
    select: Sequence[str] = (),
    engine: str | None = None,
    master: str | None = None,
    parallel: int | None = None,
    tracker: core.Tracker | None = None,
    on_result: Callable[[PairResult], None] = lambda result: None,
) -> CheckReport:
    """Compare every pair, several at once; one that cannot be compared does not stop the others."""
    for pattern in select:
        if not any(fnmatchcase(pair.name, pattern) for pair in file.pairs):
            known = ", ".join(pair.name for pair in file.pairs[:10])
            raise OptionError(f"--select {pattern} names no pair: there are {known}", code="unknown_pair")
    chosen = [pair for pair in file.pairs if not select or any(fnmatchcase(pair.name, each) for each in select)]
    tracker = tracker or core.no_progress()
    started = time.monotonic()
    at_once = parallel or file.parallel
    run_engine = RunEngine(engine or file.engine, master or file.master, memory=file.memory, parallel=at_once)
    with closing(run_engine), ThreadPoolExecutor(at_once, "pair") as pool:

        def one(pair: Pair) -> PairResult:
            result = _check(pair, run_engine, tracker.branch(pair.name))
            on_result(result)
            return result

        try:
            results = tuple(pool.map(one, chosen))
        except BaseException as wish:
            tracker.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            run_engine.abandon(wish)
            raise
    return CheckReport(file.name, results, round(time.monotonic() - started, 3), str(run_engine))


def _check(pair: Pair, engine: RunEngine, tracker: core.Tracker) -> PairResult:
    started = time.monotonic()

    def result(verdict: Verdict, **facts: Any) -> PairResult:
        old, new = without_password(pair.old), without_password(pair.new)
        return PairResult(pair.name, old, new, verdict, round(time.monotonic() - started, 3), **facts)

    try:
        # Events are written beside their place before they are moved there, so that it is one step.
        beside = None if pair.events is None else pair.events.parent
        if beside is not None:
            with core.io_errors(beside):
                beside.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=beside) as folder:
            events = Path(folder, "events.jsonl")
            job = TableDiffJob(pair.old, pair.new, pair.options, engine.memory, engine.master, tracker)
            with open(events, "wb", buffering=1 << 20) as out:
                stats = find_engine(engine.choose(job))(job, out.write)
            facts = {**_judged(pair, stats), "samples": _samples(events)}
            if pair.events is not None:
                core.replace_file(events, pair.events)
                facts["events"] = str(pair.events)
    except Cancelled:
        raise
    except (DriftlineError, OSError) as error:
        explained = core.explain_os_error(error, error.filename or pair.name) if isinstance(error, OSError) else error
        return result("error", problem=explained.message, code=explained.code)
    return result(**facts)


def _judged(pair: Pair, stats: Stats) -> core.JsonObject:
    exceeded = stats.exceeded(pair.fail_if)
    if not pair.fail_if and stats.any_difference:
        exceeded = [_ANY]
    warnings = stats.exceeded(pair.warn_if)
    return {
        "verdict": "failed" if exceeded else "warned" if warnings else "passed",
        "counts": stats.counts_for((*pair.fail_if, *pair.warn_if)),
        "exceeded": tuple(exceeded),
        "warnings": tuple(warnings),
        "columns": {name: count for name, count in stats.columns.items() if count},
    }


def _samples(events: Path) -> tuple[Mapping[str, Any], ...]:
    """The first differences, for the report."""
    with open(events, "rb") as lines:
        decoded = (msgspec.json.decode(line) for line in lines)
        return tuple(islice((event for event in decoded if event["type"] in _ROWS), MOST_SAMPLES))


# The report as JSON, as JUnit XML, and as one page.
def check_json(report: CheckReport) -> bytes:
    """The report as one JSON object."""
    return json.dumps(report.to_dict(), ensure_ascii=False, indent=1).encode() + b"\n"


def check_junit(report: CheckReport) -> bytes:
    """A test suite with a case for each pair: exceeded limits are failures, pairs that could not be compared errors."""

    def plain(words: str) -> str:  # XML has no control characters and no lone surrogates, not even escaped
        return words.translate(_CONTROLS).encode(errors="replace").decode()

    written = {"attribute": lambda words: quoteattr(plain(words)), "text": lambda words: escape(plain(words))}
    return b"".join(page_bytes("check.xml", report=report, totals=report.totals, **written))


def check_html(report: CheckReport) -> bytes:
    """One self-contained page."""
    return b"".join(page_bytes("check.html", report=report, totals=report.totals))
