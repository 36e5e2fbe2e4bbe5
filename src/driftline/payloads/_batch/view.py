"""A batch as it is shown: a page (where pairs differ, and which rule would accept it), and reports for CI systems:
JUnit XML, SARIF, GitHub annotations and a Markdown summary (payloads §10.2).

Reports for CI show the groups of the aggregate: one path, kind and rule, with the number of pairs that differ there.

>>> row = {"path": "$.lines[*].net", "type": "PRECISION_EXCEEDED", "severity": "ERROR"}
>>> remedy_of({**row, "sample": [{"id": 1, "old_value": 1.0, "new_value": 1.04}]}).rule
{'precision': 0.05}
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.core import AnyPath, io_errors, location, open_to_read, write_atomically
from driftline.errors import InputError, PayloadError
from driftline.payloads._batch.job import BatchJob
from driftline.payloads._batch.totals import BatchView, rule_places, with_values
from driftline.payloads._compare.compare import PARTIAL
from driftline.payloads._compare.report import Report, indented
from driftline.payloads._schema.nodes import open_document
from driftline.payloads._suggest.evidence import nice_duration, nice_limit, number
from driftline.payloads._suggest.write import Remedy, rule_yaml
from driftline.payloads._values.paths import parse_place
from driftline.payloads._values.text import parse_json, to_json_bytes
from driftline.payloads._values.values import Json, JsonRow, parse_iso, spelled
from driftline.sinks import page_bytes
from driftline.version import __version__

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_ID, _AFTER_ID = b'{"id":', b',"endpoint":'  # how each line of reports.jsonl begins
MOST_LISTED = 1000  # places; aggregate.json has all of them
MOST_REPORTS = 200  # single reports in the page; reports.jsonl has all of them
_MOST_ENTRIES = 50  # of a single report
_LONGEST_VALUE = 200
_KINDS = {"ERROR": "error", "WARNING": "warning"}
MOST_ANNOTATIONS = 10  # GitHub shows so many of a step
SUMMARY_CHARACTERS = 60_000
# XML 1.0 cannot contain these, not even escaped.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def remedy_of(row: JsonRow) -> Remedy | None:
    """The tightest rule that would accept the examples of a row of the aggregate, else one that ignores the place.

    None where a rule cannot (a missing partner, a warning).
    """
    place, kind = parse_place(row["path"]), row["type"]
    if place is None or row["severity"] != "ERROR" or kind in ("MISSING_PARTNER", "DUPLICATE_KEY", "SCHEMA_MISMATCH"):
        return None
    if kind in ("ARRAY_ITEM_EXTRA", "ARRAY_ITEM_MISSING"):
        allowed = "ignore-extra-items" if kind == "ARRAY_ITEM_EXTRA" else "ignore-missing-items"
        return Remedy(place[:-1] if place[-1:] == (None,) else place, {allowed: True})
    if kind == "EXTRA_IN_NEW" and place:
        return Remedy(place[:-1], {"allow-new-members": True})
    values = [(one.get("old_value"), one.get("new_value")) for one in row["sample"]]
    rule = _TIGHT_RULES[kind](values) if kind in _TIGHT_RULES else None
    if rule is None and not place:
        return None  # to ignore everything is no rule
    return Remedy(place, rule or {"strategy": "ignore"})


def _precision(values: list[tuple[Any, Any]]) -> dict[str, Any] | None:
    pairs = [(number(old), number(new)) for old, new in values]
    apart = [abs(old - new) for old, new in pairs if old is not None and new is not None]
    limit = nice_limit(max(apart, default=Decimal(0)))
    return {"precision": int(limit) if limit == limit.to_integral_value() else float(limit)} if limit else None


def _tolerance(values: list[tuple[Any, Any]]) -> dict[str, Any] | None:
    times = [(parse_iso(old), parse_iso(new)) for old, new in values if isinstance(old, str) and isinstance(new, str)]
    apart = [abs(old.nanoseconds - new.nanoseconds) for old, new in times if old is not None and new is not None]
    limit = nice_duration(max(apart, default=0))
    return {"datetime-tolerance": limit} if limit is not None else None


def _surplus(values: list[tuple[Any, Any]]) -> dict[str, Any] | None:
    longer = {len(new) > len(old) for old, new in values if isinstance(old, list) and isinstance(new, list)}
    return {f"ignore-{'extra' if longer.pop() else 'missing'}-items": True} if len(longer) == 1 else None


_TIGHT_RULES = {
    "PRECISION_EXCEEDED": _precision,
    "DATETIME_EXCEEDED": _tolerance,
    "ARRAY_LENGTH_MISMATCH": _surplus,
}


# The HTML page: one file that loads nothing, with search, filters, order, single reports and rules to copy.
def shown_ids(view: BatchView) -> Iterator[Any]:
    """The ids that the page names, the most frequent places first."""
    for row in view.places:
        yield from (example["id"] for example in row["sample"])
    yield from (failure["id"] for failure in view.failures if failure["code"] in PARTIAL)


def find_reports(folder: AnyPath, ids: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Rows of reports.jsonl by their ids, which are keys in their JSON spelling; of equal ids the first.

    A row has `id`, `endpoint` and `report`, or the error response of a pair that failed.
    """
    needed = {to_json_bytes(identity) for identity in ids}
    found: dict[str, dict[str, Any]] = {}
    path = location(str(folder)) / "reports.jsonl"
    with io_errors(path), open_to_read(path) as lines:
        for line in lines if needed else ():
            if not line.startswith(_ID) or _AFTER_ID not in line:
                raise InputError(f"{path} is no file of reports that a batch has written", code="not_reports")
            identity = line[len(_ID) : line.index(_AFTER_ID)]
            if identity in needed:
                needed.remove(identity)
                found[identity.decode()] = parse_json(line, "the report")
            if not needed:
                break
    return found


def view_page(
    view: BatchView, job: BatchJob | None = None, reports: Mapping[str, Mapping[str, Json]] | None = None
) -> Iterator[bytes]:
    """The page of a view; `reports` are rows of reports.jsonl by the JSON spelling of their ids."""
    rows = reports or {}
    numbers = {identity: number for number, identity in enumerate(rows, 1)}
    groups = [_group(row, numbers) for row in view.places[:MOST_LISTED]]
    return page_bytes(
        "batch.html",
        view=view,
        made=_made(job) if job is not None else None,
        endpoints=view.summary.get("endpoints", {}),
        kinds=[kind for kind in _KINDS.values() if any(group["kind"] == kind for group in groups)],
        groups=groups,
        failures=[{**row, "id": _shown(row["id"]), "report": numbers.get(_key(row["id"]))} for row in view.failures],
        unused=[row for row in view.coverage if not row["used"]],
        reports=[_report(numbers[identity], row) for identity, row in rows.items()],
    )


def _made(job: BatchJob) -> dict[str, list[str]]:
    """What the batch was made of, without the folders of this machine."""
    schemas = [f"{endpoint or ''} {Path(name).name}".strip() for endpoint, name in job.schema_names.items()]
    return {"inputs": [Path(source.path).name for source in job.sources], "schemas": schemas}


def _key(identity: object) -> str:
    return to_json_bytes(identity).decode("utf-8", "backslashreplace")


def _group(row: JsonRow, numbers: Mapping[str, int]) -> dict[str, Any]:
    remedy = remedy_of(row)
    return {
        "kind": _KINDS[row["severity"]],
        "place": row,
        "flag": f"--ignore {shlex.quote(row['path'])}",  # leaves the place out
        "remedy": remedy and {"hides": remedy.hides, "yaml": rule_yaml(*remedy)},
        "endpoints": [row["endpoint"] or "–"],
        "share": f"{row['rate']:.2%}",
        "first": _shown(row["first_id"]),
        "last": _shown(row["last_id"]),
        "samples": [{**_values(one), "report": numbers.get(_key(one["id"]))} for one in row["sample"]],
    }


def _values(entry: JsonRow) -> dict[str, Any]:
    """An entry as text; a message that only repeats the values is left out."""
    old, new = (_shown(entry[name]) if name in entry else None for name in ("old_value", "new_value"))
    message = entry.get("message", "")
    if old is not None and new is not None and message.startswith("Values differ"):
        message = ""
    return {"id": _shown(entry.get("id")), "old": old, "new": new, "message": message}


def _report(number: int, row: JsonRow) -> dict[str, Any]:
    found = row.get("report") or row.get("partial_result") or {"diffs": [], "warnings": []}
    entries = [*found["diffs"], *found["warnings"]]
    error = row.get("error")
    return {
        "number": number,
        "id": _shown(row["id"]),
        "endpoint": row["endpoint"],
        "error": f"{error['code']}: {error['message']}" if error else None,
        "entries": [{**entry, **_values(with_values(entry, entry["type"]))} for entry in entries[:_MOST_ENTRIES]],
        "left": max(len(entries) - _MOST_ENTRIES, 0),
    }


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else to_json_bytes(value).decode()
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


# Reports for CI systems.
def write_for_ci(
    job: BatchJob, view: BatchView, reasons: Sequence[str], junit: str | None, log: str | None, page: str | None
) -> None:
    """Write the requested files."""
    if junit is not None:
        write_atomically(junit, junit_batch(view))
    if log is not None:
        write_atomically(log, sarif(job, view))
    if page is not None:
        write_atomically(page, summary_markdown(view, reasons).encode("utf-8", "backslashreplace"))


def junit_xml(report: Report, name: str, error: PayloadError | None = None) -> bytes:
    """The XML document of one comparison; `error` says why it was cut short."""
    from xml.etree.ElementTree import SubElement, tostring

    suite = _suite(None, name, len(report.diffs), int(error is not None))
    suite.set("time", f"{report.execution.get('duration_ms', 0) / 1000:.3f}")
    if error is not None:
        _case(suite, "payloads are compared to the end", "error", error.code.wire, error.message)
    elif not report.diffs:
        _case(suite, "payloads match")
    for entry in report.diffs:
        rule = f"\nrule: {entry.rule_applied}" if "rule_applied" in entry else ""
        about = f"old: {spelled(entry.old_value)}\nnew: {spelled(entry.new_value)}{rule}"
        _case(suite, f"{entry.path} {entry.type}", "failure", entry.type, entry.message, about)
    if report.warnings:
        lines = [f"{entry.path} {entry.type}: {entry.message}" for entry in report.warnings]
        SubElement(suite, "system-out").text = _clean("\n".join(lines))
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suite, "unicode").encode() + b"\n"


def junit_batch(view: BatchView) -> bytes:
    """A suite for each endpoint, a case for each group; a suite without any has one case that passes."""
    from xml.etree.ElementTree import Element, tostring

    suites = Element("testsuites", name="driftline payloads batch")
    by_endpoint: dict[str, tuple[list[JsonRow], list[JsonRow]]] = {name: ([], []) for name in view.summary["endpoints"]}
    for at, rows in enumerate((view.groups(), view.failures)):
        for row in rows:
            by_endpoint.setdefault(row["endpoint"] or "", ([], []))[at].append(row)
    for endpoint, (groups, failed) in sorted(by_endpoint.items()):
        suite = _suite(suites, endpoint or "(no endpoint)", len(groups), len(failed))
        for row in groups:
            about = "\n".join(f"{spelled(one['id'])}: {one.get('message', '')}" for one in row["sample"])
            _case(suite, _group_name(row), "failure", row["type"], _group_message(row), about)
        for row in failed:
            _case(suite, f"pair {spelled(row['id'])}", "error", row["code"], row["message"])
        if not groups and not failed:
            _case(suite, "all pairs match")
    body: bytes = tostring(suites, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def _suite(owner: Element | None, name: str, failures: int, errors: int) -> Element:
    from xml.etree.ElementTree import Element, SubElement

    counts = {"tests": max(failures + errors, 1), "failures": failures, "errors": errors}
    given = {"name": _clean(name), **{word: str(count) for word, count in counts.items()}}
    return Element("testsuite", given) if owner is None else SubElement(owner, "testsuite", given)


def _case(suite: Element, title: str, what: str = "", kind: str = "", message: str = "", about: str = "") -> None:
    from xml.etree.ElementTree import SubElement

    case = SubElement(suite, "testcase", classname=suite.get("name", ""), name=_clean(title))
    if what:
        SubElement(case, what, type=kind, message=_clean(message)).text = _clean(about) or None


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def sarif(job: BatchJob, view: BatchView) -> bytes:
    """A result for each group, at the line of its rule in the schema, else at the schema's first."""
    places = {endpoint: rule_places(schema, job.root) for endpoint, schema in job.schemas.items()}
    documents = {endpoint: open_document(schema) for endpoint, schema in job.schemas.items()}
    results = []
    for row in view.groups():
        endpoint = row["endpoint"] if row["endpoint"] in job.schemas else None
        if endpoint not in documents:
            continue
        # The rule at the group's own path, else anywhere.
        fitting = [place for place in places[endpoint] if place.rule == row["rule"]]
        fitting.sort(key=lambda place: place.path != row["path"])
        position = documents[endpoint].position(fitting[0].pointer if fitting else "") or {"line": 1, "column": 1}
        region = {"startLine": position["line"], "startColumn": position["column"]}
        location = {"artifactLocation": {"uri": job.schema_names.get(endpoint, "schema")}, "region": region}
        name = _group_name(row)
        results.append(
            {
                "ruleId": row["type"],
                "level": "error",
                "message": {"text": f"{name}: {_group_message(row)}"},
                "locations": [{"physicalLocation": location}],
                "partialFingerprints": {"group/v1": f"{row['endpoint'] or ''} {name} {row['rule'] or ''}"},
            }
        )
    kinds = sorted({row["type"] for row in view.groups()})
    driver = {"name": "driftline", "version": __version__, "rules": [{"id": kind} for kind in kinds]}
    content = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return indented(to_json_bytes(content), 1) + b"\n"


def annotation_lines(job: BatchJob, view: BatchView) -> Iterator[str]:
    """Lines that GitHub shows beside the files of a change."""
    groups = view.groups()
    for row in groups[:MOST_ANNOTATIONS]:
        endpoint = row["endpoint"] if row["endpoint"] in job.schemas else None
        file = f"file={_property(job.schema_names[endpoint])}," if endpoint in job.schema_names else ""
        yield f"::error {file}title={_property(_group_name(row))}::{_data(_group_message(row))}"
    left = groups[MOST_ANNOTATIONS:]
    if left:
        pairs = sum(row["count"] for row in left)
        yield f"::error title=driftline::{len(left)} more kinds of differences, {pairs} entries: see report.html"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary_markdown(view: BatchView, reasons: Sequence[str] = ()) -> str:
    """A page for a build's summary; cut where it would be too long to be shown."""
    summary = view.summary
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
    head += ["| pairs | endpoint | where | what | example |", "|---:|---|---|---|---|"] if view.groups() else []
    rows = [
        f"| {row['pairs']} | {_cell(row['endpoint'] or '–')} | `{_cell(row['path'])}` | {row['type']} | "
        f"{_cell(row['sample'][0]['message'] if row['sample'] else '')} |"
        for row in view.groups()
    ]
    space = SUMMARY_CHARACTERS - 100 - sum(len(line) + 1 for line in head)
    kept = sum(size <= space for size in accumulate(len(row) + 1 for row in rows))
    left = ["", f"{len(rows) - kept} more: see aggregate.json"] if kept < len(rows) else []
    return ("\n".join([*head, *rows[:kept], *left]) + "\n")[:SUMMARY_CHARACTERS]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("`", "'").replace("<", "&lt;")[:300]


def _group_name(row: JsonRow) -> str:
    return f"{row['path']} {row['type']}"


def _group_message(row: JsonRow) -> str:
    """The message of a group, with its first example."""
    count = f"{row['pairs']} pair{'' if row['pairs'] == 1 else 's'} ({row['rate']:.2%})"
    sample = row["sample"][0]["message"] if row["sample"] else ""
    rule = f" [{row['rule']}]" if row["rule"] else ""
    return f"{count}, first {spelled(row['first_id'])}: {sample}{rule}"
