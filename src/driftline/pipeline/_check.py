"""Checking many pairs of tables side by side: one result for each, and one for all of them (pipeline §9)."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from driftline.core._files import explain_io_errors, explain_os_error, replace_file
from driftline.core._json import JsonObject
from driftline.core._progress import Tracker, silent
from driftline.errors import Cancelled, DriftlineError, OptionError
from driftline.pipeline.engine import RunEngine
from driftline.pipeline.pairs import Pair, PairsFile
from driftline.tables._engines import DiffJob, find_engine
from driftline.tables._events import Stats

Verdict = Literal["passed", "warned", "failed", "error"]
MOST_SAMPLES = 10

_ANY = "any difference fails, since no fail_if is declared"
_ROWS = ("added", "removed", "changed")


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
    def exit_code(self) -> int:
        """0 all passed, 1 a limit was exceeded, 2 a pair could not be compared."""
        verdicts = {result.verdict for result in self.results}
        return 2 if "error" in verdicts else 1 if "failed" in verdicts else 0

    def to_dict(self) -> JsonObject:
        """The report as plain data."""
        totals = dict.fromkeys(("passed", "warned", "failed", "error"), 0)
        for result in self.results:
            totals[result.verdict] += 1
        return {
            "check": self.name,
            "exitCode": self.exit_code,
            "seconds": self.seconds,
            "engine": self.engine,
            "totals": totals,
            "pairs": [asdict(result) for result in self.results],
        }


def check_pairs(
    file: PairsFile,
    *,
    select: Sequence[str] = (),
    engine: str | None = None,
    master: str | None = None,
    parallel: int | None = None,
    tracker: Tracker | None = None,
    on_result: Callable[[PairResult], None] = lambda result: None,
) -> CheckReport:
    """Compare every pair, several at once; one that cannot be compared does not stop the others."""
    chosen = _chosen(file.pairs, select)
    tracker = tracker or silent()
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


def _chosen(pairs: Sequence[Pair], select: Sequence[str]) -> list[Pair]:
    for pattern in select:
        if not any(fnmatchcase(pair.name, pattern) for pair in pairs):
            known = ", ".join(pair.name for pair in pairs[:10])
            raise OptionError(f"--select {pattern} names no pair: there are {known}", code="unknown_pair")
    return [pair for pair in pairs if not select or any(fnmatchcase(pair.name, each) for each in select)]


def _check(pair: Pair, engine: RunEngine, tracker: Tracker) -> PairResult:
    started = time.monotonic()

    def result(verdict: Verdict, **facts: Any) -> PairResult:
        old, new = _without_password(pair.old), _without_password(pair.new)
        return PairResult(pair.name, old, new, verdict, round(time.monotonic() - started, 3), **facts)

    try:
        with tempfile.TemporaryDirectory(dir=_folder(pair)) as folder:
            events = Path(folder, "events.jsonl")
            stats = _compare(pair, engine, tracker, events)
            facts = _judged(pair, stats)
            facts["samples"] = _samples(events)
            if pair.events is not None:
                replace_file(events, pair.events)
                facts["events"] = str(pair.events)
    except Cancelled:
        raise
    except DriftlineError as error:
        return result("error", problem=error.message, code=error.code)
    except OSError as error:
        explained = explain_os_error(error, error.filename or pair.name)
        return result("error", problem=explained.message, code=explained.code)
    return result(**facts)


def _without_password(address: str) -> str:
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", address)


def _folder(pair: Pair) -> Path | None:
    """Where events are written before they are moved into place: beside it, so that it is one step."""
    if pair.events is None:
        return None
    with explain_io_errors(pair.events.parent):
        pair.events.parent.mkdir(parents=True, exist_ok=True)
    return pair.events.parent


def _compare(pair: Pair, engine: RunEngine, tracker: Tracker, events: Path) -> Stats:
    job = DiffJob(pair.old, pair.new, pair.options, engine.memory, engine.master, tracker)
    with open(events, "wb", buffering=1 << 20) as out:
        return find_engine(engine.choose(job))(job, out.write)


def _judged(pair: Pair, stats: Stats) -> JsonObject:
    exceeded = stats.exceeded(pair.fail_if)
    if not pair.fail_if and stats.any_difference:
        exceeded = [_ANY]
    warnings = stats.exceeded(pair.warn_if)
    verdict = "failed" if exceeded else "warned" if warnings else "passed"
    counts = stats.counts_for((*pair.fail_if, *pair.warn_if))
    columns = {name: count for name, count in stats.columns.items() if count}
    return {
        "verdict": verdict,
        "counts": counts,
        "exceeded": tuple(exceeded),
        "warnings": tuple(warnings),
        "columns": columns,
    }


def _samples(events: Path) -> tuple[Mapping[str, Any], ...]:
    """The first differences, for people who look at the report."""
    with open(events, "rb") as lines:
        decoded = (msgspec.json.decode(line) for line in lines)
        return tuple(islice((event for event in decoded if event["type"] in _ROWS), MOST_SAMPLES))
