"""Reports for CI systems: JUnit XML, SARIF, GitHub annotations and a Markdown summary (payloads §10.2).

Those of a batch show the groups of the aggregate: one path, kind and rule, with the number of pairs that differ there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from driftline.core import write_atomically
from driftline.errors import PayloadError
from driftline.payloads._batch.job import BatchJob
from driftline.payloads._batch.totals import BatchResult, Groups, RulePlace, rule_places
from driftline.payloads._compare.report import Report, indented
from driftline.payloads._schema.nodes import open_document
from driftline.payloads._values.text import to_json_bytes
from driftline.payloads._values.values import JsonRow, spelled
from driftline.version import __version__

MOST_ANNOTATIONS = 10  # GitHub shows so many of a step
SUMMARY_CHARACTERS = 60_000
_DECLARATION = b"<?xml version='1.0' encoding='utf-8'?>\n"
# XML 1.0 cannot contain these, not even escaped.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def write_for_ci(
    job: BatchJob, result: BatchResult, reasons: Sequence[str], junit: str | None, log: str | None, page: str | None
) -> None:
    """Write the requested files."""
    if junit is not None:
        write_atomically(junit, junit_batch(result))
    if log is not None:
        write_atomically(log, sarif(job, result))
    if page is not None:
        write_atomically(page, summary_markdown(result, reasons).encode("utf-8", "backslashreplace"))


# JUnit XML.
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
    """Text without the characters that XML cannot contain."""
    return _NOT_XML.sub("\ufffd", text)


def junit_batch(result: BatchResult) -> bytes:
    """A suite for each endpoint, a case for each group; a suite without any has one case that passes."""
    suites = Element("testsuites", name="driftline payloads batch")
    failed: dict[str, list[JsonRow]] = {}
    for row in result.failures:
        failed.setdefault(row["endpoint"] or "", []).append(row)
    by_endpoint: dict[str, list[JsonRow]] = {name: [] for name in result.summary["endpoints"]}
    for row in result.groups():
        by_endpoint.setdefault(row["endpoint"] or "", []).append(row)
    for endpoint, rows in sorted(by_endpoint.items()):
        _suite(suites, endpoint or "(no endpoint)", rows, failed.get(endpoint, []))
    body: bytes = tostring(suites, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def _suite(suites: Element, name: str, rows: Groups, failed: Groups) -> None:
    suite = SubElement(suites, "testsuite", name=clean_xml(name), tests=str(max(len(rows) + len(failed), 1)))
    suite.set("failures", str(len(rows)))
    suite.set("errors", str(len(failed)))
    for row in rows:
        case = SubElement(suite, "testcase", classname=clean_xml(name), name=clean_xml(group_name(row)))
        failure = SubElement(case, "failure", type=row["type"], message=clean_xml(group_message(row)))
        failure.text = clean_xml("\n".join(f"{spelled(one['id'])}: {one.get('message', '')}" for one in row["sample"]))
    for row in failed:
        case = SubElement(suite, "testcase", classname=clean_xml(name), name=clean_xml(f"pair {spelled(row['id'])}"))
        SubElement(case, "error", type=row["code"], message=clean_xml(row["message"]))
    if not rows and not failed:
        SubElement(suite, "testcase", classname=clean_xml(name), name="all pairs match")


def sarif(job: BatchJob, result: BatchResult) -> bytes:
    """A result for each group, at the line of its rule in the schema, else at the schema's first."""
    places = {endpoint: rule_places(schema, job.root) for endpoint, schema in job.schemas.items()}
    documents = {endpoint: open_document(schema) for endpoint, schema in job.schemas.items()}
    results = []
    for row in result.groups():
        endpoint = row["endpoint"] if row["endpoint"] in job.schemas else None
        if endpoint not in documents:
            continue
        pointer = _pointer(places[endpoint], row)
        position = documents[endpoint].position(pointer) or {"line": 1, "column": 1}
        region = {"startLine": position["line"], "startColumn": position["column"]}
        location = {"artifactLocation": {"uri": job.schema_names.get(endpoint, "schema")}, "region": region}
        results.append(
            {
                "ruleId": row["type"],
                "level": "error",
                "message": {"text": f"{group_name(row)}: {group_message(row)}"},
                "locations": [{"physicalLocation": location}],
                "partialFingerprints": {"group/v1": f"{row['endpoint'] or ''} {group_name(row)} {row['rule'] or ''}"},
            }
        )
    kinds = sorted({row["type"] for row in result.groups()})
    driver = {"name": "driftline", "version": __version__, "rules": [{"id": kind} for kind in kinds]}
    content = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return indented(to_json_bytes(content), 1) + b"\n"


def _pointer(places: list[RulePlace], row: JsonRow) -> str:
    """The pointer of a group's rule: at its own path if it is there, else anywhere."""
    fitting = [place for place in places if place.rule == row["rule"]]
    at_path = [place for place in fitting if _path(place) == row["path"]]
    return (at_path or fitting)[0].pointer if fitting else ""


def _path(place: RulePlace) -> str:
    return "$" + "".join("[*]" if step is None else f".{step[0]}" for step in place.steps)


def annotation_lines(job: BatchJob, result: BatchResult) -> Iterator[str]:
    """Lines that GitHub shows beside the files of a change."""
    groups = result.groups()
    for row in groups[:MOST_ANNOTATIONS]:
        endpoint = row["endpoint"] if row["endpoint"] in job.schemas else None
        file = f"file={_property(job.schema_names[endpoint])}," if endpoint in job.schema_names else ""
        yield f"::error {file}title={_property(group_name(row))}::{_data(group_message(row))}"
    left = groups[MOST_ANNOTATIONS:]
    if left:
        pairs = sum(row["count"] for row in left)
        yield f"::error title=driftline::{len(left)} more kinds of differences, {pairs} entries: see report.html"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary_markdown(result: BatchResult, reasons: Sequence[str] = ()) -> str:
    """A page for a build's summary; cut where it would be too long to be shown."""
    summary = result.summary
    verdict = "passed" if not reasons else f"failed: {'; '.join(reasons)}"
    head = [
        "# Payload comparison",
        "",
        f"{summary['pairs']} pairs: {summary['matched']} match, {summary['mismatched']} differ, "
        f"{summary['failed']} could not be compared. Gate {verdict}.",
        *([f"{summary['no_body']} answers of the captures have no body."] if summary.get("no_body") else []),
        "",
    ]
    if summary["endpoints"]:
        head += ["| endpoint | match | differ | failed |", "|---|---:|---:|---:|"]
        for name, counts in summary["endpoints"].items():
            head.append(f"| {_cell(name or '–')} | {counts['matched']} | {counts['different']} | {counts['failed']} |")
        head.append("")
    head += ["| pairs | endpoint | where | what | example |", "|---:|---|---|---|---|"] if result.groups() else []
    rows = (
        f"| {row['pairs']} | {_cell(row['endpoint'] or '–')} | `{_cell(row['path'])}` | {row['type']} | "
        f"{_cell(row['sample'][0]['message'] if row['sample'] else '')} |"
        for row in result.groups()
    )
    return _cut(head, rows)


def _cut(head: list[str], rows: Iterator[str]) -> str:
    lines, size, left = list(head), sum(len(line) + 1 for line in head), 0
    for row in rows:
        if left or size + len(row) + 1 > SUMMARY_CHARACTERS - 100:
            left += 1
            continue
        lines.append(row)
        size += len(row) + 1
    if left:
        lines += ["", f"{left} more: see aggregate.json"]
    return ("\n".join(lines) + "\n")[:SUMMARY_CHARACTERS]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("`", "'").replace("<", "&lt;")[:300]


# Groups as text.
def group_name(row: JsonRow) -> str:
    """The title of a group."""
    return f"{row['path']} {row['type']}"


def group_message(row: JsonRow) -> str:
    """The message of a group, with its first example."""
    count = f"{row['pairs']} pair{'' if row['pairs'] == 1 else 's'} ({row['rate']:.2%})"
    sample = row["sample"][0]["message"] if row["sample"] else ""
    rule = f" [{row['rule']}]" if row["rule"] else ""
    return f"{count}, first {spelled(row['first_id'])}: {sample}{rule}"
