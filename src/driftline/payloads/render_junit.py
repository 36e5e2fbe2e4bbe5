"""A report as JUnit XML, for build servers: a test case for each difference, or one that passes."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, tostring

from driftline.errors import PayloadError
from driftline.payloads.report import Report
from driftline.payloads.values import spelled

_DECLARATION = b"<?xml version='1.0' encoding='utf-8'?>\n"
# XML 1.0 cannot hold these, not even escaped.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def junit_xml(report: Report, name: str, error: PayloadError | None = None) -> bytes:
    """The XML document of one comparison; `error` says why it was cut short."""
    diffs = report.diffs
    cases = max(len(diffs) + (error is not None), 1)
    suite = Element("testsuite", name=clean_xml(name), tests=str(cases), failures=str(len(diffs)))
    suite.set("errors", str(int(error is not None)))
    suite.set("time", f"{report.execution.get('duration_ms', 0) / 1000:.3f}")
    if error is not None:
        case = SubElement(suite, "testcase", classname=clean_xml(name), name="payloads are compared to the end")
        SubElement(case, "error", type=error.code, message=clean_xml(error.message))
    elif not diffs:
        SubElement(suite, "testcase", classname=clean_xml(name), name="payloads match")
    for entry in diffs:
        case = SubElement(suite, "testcase", classname=clean_xml(name), name=clean_xml(f"{entry.path} {entry.type}"))
        failure = SubElement(case, "failure", type=entry.type, message=clean_xml(entry.message))
        rule = f"\nrule: {entry.rule_applied}" if "rule_applied" in entry else ""
        failure.text = clean_xml(f"old: {spelled(entry.old_value)}\nnew: {spelled(entry.new_value)}{rule}")
    if report.warnings:
        lines = [f"{entry.path} {entry.type}: {entry.message}" for entry in report.warnings]
        SubElement(suite, "system-out").text = clean_xml("\n".join(lines))
    body: bytes = tostring(suite, encoding="utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + body.removeprefix(_DECLARATION) + b"\n"


def clean_xml(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)
