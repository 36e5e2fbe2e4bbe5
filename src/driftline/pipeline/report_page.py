"""The report of a run as one self-contained page: the graph as SVG, limits, trends, stages with links (pipeline §7)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from driftline.pipeline.declaration import Pipeline
from driftline.pipeline.report import PastRun, ReportStage, RunReport
from driftline.sinks.pages import page_bytes

BOX_WIDTH, BOX_HEIGHT = 214, 58
_GAP_X, _GAP_Y, _MARGIN = 42, 16, 12
_CHART_WIDTH, _CHART_HEIGHT, _MOST_BARS = 420, 64, 30
_CHANGES = ("changed", "added", "removed")


def report_page(pipeline: Pipeline, report: RunReport, target: Path) -> Iterator[bytes]:
    """The page, piece by piece; links to events are relative to where it will lie."""
    return page_bytes(
        "run.html",
        report=report,
        graph=Graph.of(report.shown_stages),
        charts=[*_charts(report)],
        hidden=len(report.stages) - len(report.shown_stages),
        link=lambda path: _link(pipeline, path, target),
        limits=sorted(report.limits, key=lambda limit: not limit.exceeded),
        moment=report.started_at.replace("T", " ").partition(".")[0] + " UTC",
    )


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes and arrows in the coordinates of a drawing."""

    width: int
    height: int
    boxes: tuple[tuple[int, int, ReportStage], ...]
    arrows: tuple[str, ...]
    box_width: int = BOX_WIDTH

    @classmethod
    def of(cls, stages: list[ReportStage]) -> Graph:
        """Lay the stages out by their columns and rows."""
        spots = {stage.name: _spot(stage.column, stage.row) for stage in stages}
        arrows = [_arrow(spots[need], spots[stage.name]) for stage in stages for need in stage.needs if need in spots]
        width = max((x for x, _ in spots.values()), default=0) + BOX_WIDTH + _MARGIN
        height = max((y for _, y in spots.values()), default=0) + BOX_HEIGHT + _MARGIN
        return cls(width, height, tuple((*spots[stage.name], stage) for stage in stages), tuple(arrows))


def _spot(column: int, row: int) -> tuple[int, int]:
    return _MARGIN + column * (BOX_WIDTH + _GAP_X), _MARGIN + row * (BOX_HEIGHT + _GAP_Y)


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    x, y = start[0] + BOX_WIDTH, start[1] + BOX_HEIGHT // 2
    to_x, to_y = end[0] - 5, end[1] + BOX_HEIGHT // 2
    middle = _GAP_X // 2
    return f"M{x} {y} C{x + middle} {y} {to_x - middle} {to_y} {to_x} {to_y}"


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars over the last runs; each bar is a stack of parts with a class, a height and where it begins."""

    title: str
    latest: str
    bars: tuple[tuple[float, float, str, tuple[tuple[str, float, float], ...]], ...]
    width: int = _CHART_WIDTH
    height: int = _CHART_HEIGHT


def _charts(report: RunReport) -> Iterator[Chart]:
    """How long the runs took, then what changed in each table."""
    yield _chart("seconds", report.runs, [{run.result: run.seconds} for run in report.runs], f"{report.seconds:.1f} s")
    flows = list(dict.fromkeys(name for run in report.runs for name in run.changes))
    for flow in flows:
        stacks = [{kind: float(run.changes.get(flow, {}).get(kind, 0)) for kind in _CHANGES} for run in report.runs]
        yield _chart(flow, report.runs, stacks, f"{sum(stacks[-1].values()):,.0f} changes")


def _chart(title: str, runs: tuple[PastRun, ...], stacks: list[dict[str, float]], latest: str) -> Chart:
    most = max((sum(stack.values()) for stack in stacks), default=0) or 1
    step = _CHART_WIDTH / max(_MOST_BARS, len(runs))
    bars = []
    for place, (run, stack) in enumerate(zip(runs, stacks, strict=True)):
        parts, top = [], float(_CHART_HEIGHT)
        for kind, value in stack.items():
            tall = max(1.5, value / most * _CHART_HEIGHT) if value else 0.0
            top -= tall
            parts.append((kind, round(top, 2), round(tall, 2)))
        words = ", ".join(f"{value:,.10g} {kind}" for kind, value in stack.items() if value) or "nothing"
        hint = f"{run.started_at[:16].replace('T', ' ')}: {words}"
        bars.append((round(place * step, 2), round(step * 0.8, 2), hint, tuple(parts)))
    return Chart(title, latest, tuple(bars))


def _link(pipeline: Pipeline, path: str, target: Path) -> str | None:
    """Where a file lies, seen from the page; something behind an address has no link."""
    if "://" in path:
        return None
    place = os.path.relpath(pipeline.directory / path, target.absolute().parent)
    return quote(Path(place).as_posix())
