"""A contest: several contenders do the same work in turn, several rounds; the best of each counts.

Machines are noisy, so contenders alternate within one run and only ratios are compared.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Measurement, measure

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benchmarks" / "data"
RESULTS = ROOT / "benchmarks" / "results"
PEERS_PYTHON = ROOT / "benchmarks" / ".peers" / "bin" / "python"


@dataclass(frozen=True, slots=True)
class Contender:
    """Somebody who does the work: a command line, or a function that measures itself and returns figures."""

    name: str
    command: Sequence[str] = ()
    call: Callable[[], dict[str, float]] | None = None


@dataclass(slots=True)
class Row:
    """One line of the table."""

    case: str
    contender: str
    figures: dict[str, float] = field(default_factory=dict)
    ratio: float | None = None


def hold(case: str, contenders: Sequence[Contender], *, rounds: int = 3, by: str = "wall_s") -> list[Row]:
    """Let contenders work in turn for some rounds; a row for each, with its time as a ratio to the first one's."""
    runs: dict[str, list[dict[str, float]]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        for contender in contenders:
            print(f"  {case}: {contender.name} ({number + 1}/{rounds})", file=sys.stderr, flush=True)
            runs[contender.name].append(_one_run(contender))
    rows = [Row(case, name, _best(figures, by)) for name, figures in runs.items()]
    ours = rows[0].figures.get(by)
    for row in rows:
        if ours and by in row.figures:
            row.ratio = row.figures[by] / ours
    return rows


def _one_run(contender: Contender) -> dict[str, float]:
    if contender.call is not None:
        return contender.call()
    taken: Measurement = measure(contender.command, cwd=ROOT)
    return {"wall_s": taken.wall, "cpu_s": taken.cpu, "peak_mb": taken.peak_mb}


def _best(runs: list[dict[str, float]], by: str) -> dict[str, float]:
    """The run with the least time, and the median of the wall times beside it."""
    if "wall_s" not in runs[0]:
        return {name: max(run[name] for run in runs) for name in runs[0]}
    best = dict(min(runs, key=lambda run: run[by]))
    best["median_s"] = statistics.median(run["wall_s"] for run in runs)
    if "peak_mb" in best:
        best["peak_mb"] = max(run["peak_mb"] for run in runs)
    return best


def as_markdown(rows: Sequence[Row]) -> str:
    """The table as people read it; `ratio` is a contender's time over driftline's."""
    names = list(dict.fromkeys(name for row in rows for name in row.figures))
    lines = ["| case | contender | " + " | ".join(names) + " | ratio |", "|---|---|" + "---:|" * (len(names) + 1)]
    for row in rows:
        cells = [_figure(row.figures.get(name)) for name in names]
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append(f"| {row.case} | {row.contender} | " + " | ".join(cells) + f" | {ratio} |")
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def save(rows: Sequence[Row], name: str) -> Path:
    """Keep the figures as JSON."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{name}.json"
    records: list[dict[str, Any]] = [asdict(row) for row in rows]
    target.write_text(json.dumps(records, indent=1) + "\n")
    return target


def driftline_command(*arguments: str) -> list[str]:
    """The command line of the driftline in this environment."""
    return [sys.executable, "-m", "driftline", *arguments]


def peer_command(script: str, *arguments: str) -> list[str]:
    """A peer's script, run in the peers' environment."""
    return [str(PEERS_PYTHON), str(ROOT / "benchmarks" / "peers" / script), *arguments]
