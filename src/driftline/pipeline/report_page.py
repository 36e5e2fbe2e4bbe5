"""The report of a run as one self-contained page: the graph as SVG, limits, trends, stages with links (pipeline §7)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from driftline.pipeline.declaration import Pipeline
from driftline.pipeline.report import PastRun, ReportStage, RunReport
from driftline.sinks._pages import page_bytes

BOX_HEIGHT, _LEAST_WIDTH, _INSET = 58, 150, 13
_GAP_X, _GAP_Y, _MARGIN = 42, 16, 12
# The width of a character as a share of the font's size, in the widest of the fonts that pages commonly get.
_NARROW, _MIDDLE, _WIDE, _OTHER = 0.36, 0.5, 1.0, 0.65
_BOLD, _MOST_CHARACTERS = 1.12, 60
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
class Box:
    """A stage in the drawing, and the three lines that it says."""

    stage: ReportStage
    x: int
    y: int
    width: int
    lines: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes and arrows in the coordinates of a drawing."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[str, ...]

    @classmethod
    def of(cls, stages: list[ReportStage]) -> Graph:
        """Lay the stages out by their columns and rows; a column is as wide as the words of its boxes."""
        lines = {stage.name: _lines(stage) for stage in stages}
        widths: dict[int, int] = {}
        for stage in stages:
            widths[stage.column] = max(widths.get(stage.column, _LEAST_WIDTH), _box_width(lines[stage.name]))
        lefts = {column: _left(column, widths) for column in widths}
        boxes = {
            stage.name: Box(
                stage,
                lefts[stage.column],
                _MARGIN + stage.row * (BOX_HEIGHT + _GAP_Y),
                widths[stage.column],
                lines[stage.name],
            )
            for stage in stages
        }
        arrows = [_arrow(boxes[need], boxes[stage.name]) for stage in stages for need in stage.needs if need in boxes]
        width = max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN
        height = max((box.y for box in boxes.values()), default=0) + BOX_HEIGHT + _MARGIN
        return cls(width, height, tuple(boxes.values()), tuple(arrows))


def _lines(stage: ReportStage) -> tuple[str, str, str]:
    took = f" {stage.seconds:.1f} s" if stage.result == "done" else ""
    happened = f"{stage.result}{took}" + (f" · {stage.words}" if stage.words else "")
    name, step, last = (_cut(text) for text in (stage.flow, f"{stage.label} {stage.step}", happened))
    return name, step, last


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def _box_width(lines: tuple[str, str, str]) -> int:
    name, step, last = lines
    return round(max(_text_width(name, 12) * _BOLD, _text_width(step, 12), _text_width(last, 11))) + 2 * _INSET


def _text_width(text: str, size: int) -> float:
    """About how wide a text is; rather too wide than too narrow."""
    return size * sum(map(_share, text))


def _share(character: str) -> float:
    if character in " .,:;|!'ijl·":
        return _NARROW
    if character in "frt()[]/-":
        return _MIDDLE
    if character in "mwMWQO@%+~→…" or ord(character) >= 0x1100:
        return _WIDE
    return 0.78 if character.isupper() else _OTHER


def _left(column: int, widths: dict[int, int]) -> int:
    return _MARGIN + sum(widths.get(before, _LEAST_WIDTH) + _GAP_X for before in range(column))


def _arrow(start: Box, end: Box) -> str:
    x, y = start.x + start.width, start.y + BOX_HEIGHT // 2
    to_x, to_y = end.x - 5, end.y + BOX_HEIGHT // 2
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
