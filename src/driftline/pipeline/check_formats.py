"""The report of a check as JSON, as JUnit XML for build servers, and as one page."""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import quoteattr

from driftline.pipeline.checking import CheckReport, PairResult
from driftline.sinks._pages import page_bytes

_CONTROLS = {code: None for code in range(32) if chr(code) not in "\t\n\r"}


def check_json(report: CheckReport) -> bytes:
    """The report as one JSON object."""
    return json.dumps(report.to_dict(), ensure_ascii=False, indent=1).encode() + b"\n"


def check_junit(report: CheckReport) -> bytes:
    """A test suite with a case for each pair: exceeded limits are failures, pairs that could not be compared errors."""
    failures = sum(result.verdict == "failed" for result in report.results)
    errors = sum(result.verdict == "error" for result in report.results)
    head = _attributes(
        name=report.name, tests=len(report.results), failures=failures, errors=errors, time=f"{report.seconds:.3f}"
    )
    cases = "".join(_case(report.name, result) for result in report.results)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuite{head}>\n{cases}</testsuite>\n'.encode()


def _case(suite: str, result: PairResult) -> str:
    head = _attributes(classname=suite, name=result.pair, time=f"{result.seconds:.3f}")
    inside = ""
    if result.verdict == "error":
        inside = f"<error{_attributes(type=result.code or 'error', message=result.problem or '')}/>"
    elif result.verdict == "failed":
        inside = f"<failure{_attributes(type='limit', message='; '.join(result.exceeded))}/>"
    if result.warnings:
        inside += f"<system-out>{_text('; '.join(result.warnings))}</system-out>"
    return f"<testcase{head}>{inside}</testcase>\n"


def _attributes(**values: Any) -> str:
    return "".join(f" {name}={quoteattr(_plain(str(value)))}" for name, value in values.items())


def _text(words: str) -> str:
    from xml.sax.saxutils import escape

    return escape(_plain(words))


def _plain(words: str) -> str:
    """XML has no control characters and no lone surrogates, not even escaped."""
    return words.translate(_CONTROLS).encode(errors="replace").decode()


def check_html(report: CheckReport) -> bytes:
    """One self-contained page."""
    totals = report.to_dict()["totals"]
    return b"".join(page_bytes("check.html", report=report, totals=totals))
