"""A report as JUnit XML, for build servers: a test case for each difference, or one that passes."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, tostring

from driftline.payloads.report import Report
from driftline.payloads.values import spelled

_DECLARATION = b"<?xml version='1.0' encoding='utf-8'?>\n"
# XML 1.0 cannot hold these, not even escaped.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def junit_xml(report: Report, name: str) -> bytes:
    """The XML document of one comparison."""
    cases = max(len(report.diffs), 1)
    suite = Element("testsuite", name=_clean(name), tests=str(cases), failures=str(len(report.diffs)), errors="0")
    suite.set("time", f"{report.execution.get('duration_ms', 0) / 1000:.3f}")
    if not report.diffs:
        SubElement(suite, "testcase", classname=_clean(name), name="payloads match")
    for entry in report.diffs:
        case = SubElement(suite, "testcase", classname=_clean(name), name=_clean(f"{entry.path} {entry.type}"))
        failure = SubElement(case, "failure", type=entry.type, message=_clean(entry.message))
        rule = f"\nrule: {entry.rule_applied}" if "rule_applied" in entry else ""
        failure.text = _clean(f"old: {spelled(entry.old_value)}\nnew: {spelled(entry.new_value)}{rule}")
    if report.warnings:
        lines = [f"{entry.path} {entry.type}: {entry.message}" for entry in report.warnings]
        SubElement(suite, "system-out").text = _clean("\n".join(lines))
    body: bytes = tostring(suite, encoding="utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + body.removeprefix(_DECLARATION) + b"\n"


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
