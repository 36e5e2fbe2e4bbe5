"""An API report for people: lines of text, and Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from driftline.codeindex.api_report import ApiChange, ApiReport
from driftline.codeindex.render import code


def report_lines(report: ApiReport) -> Iterator[str]:
    """One line for each change, the breaking ones first."""
    compatible = len(report.changes) - len(report.breaking)
    yield f"{report.labels[0]} -> {report.labels[1]}: {len(report.breaking)} breaking, {compatible} compatible"
    for change in report.changes:
        reasons = f" ({'; '.join(change.reasons)})" if change.reasons else ""
        yield f"{change.verdict} {change.change}: {change.file}: {change.name}{reasons}"


def report_markdown(report: ApiReport) -> str:
    """The report as a page."""
    compatible = [change for change in report.changes if change not in report.breaking]
    lines = [f"## API {code(report.labels[0])} → {code(report.labels[1])}", ""]
    lines.append(f"**{len(report.breaking)} breaking**, {len(compatible)} compatible changes.")
    for title, changes in (("Breaking", report.breaking), ("Compatible", compatible)):
        if changes:
            lines += ["", f"### {title}", "", *_items(changes)]
    return "\n".join(lines)


def _items(changes: Sequence[ApiChange]) -> Iterator[str]:
    for change in changes:
        reasons = f": {'; '.join(change.reasons)}" if change.reasons else ""
        yield f"- {change.change} {code(change.name)} in {code(change.file)}{reasons}"
        if change.before and change.after and change.before != change.after:
            yield f"  - {code(change.before)}"
            yield f"  - {code(change.after)}"
