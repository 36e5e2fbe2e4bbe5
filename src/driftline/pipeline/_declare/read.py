"""From a pipeline file to its declaration; everything is checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from driftline.core import (
    AGE,
    INDEX_COUNTS,
    PAYLOAD_COUNTS,
    TABLE_COUNTS,
    JsonObject,
    StrPath,
    Threshold,
    io_errors,
    is_url,
    parse_threshold,
)
from driftline.deltas import COLUMN_TYPES, ColumnType, check_gateway_id, check_table_name, is_column_type
from driftline.errors import DriftlineError, PipelineError
from driftline.lake import STATE_FORMATS
from driftline.pipeline._declare.declaration import (
    MISSING_COLUMN,
    NEW_COLUMN,
    TARGETS,
    TYPE_CHANGE,
    ChangeSource,
    FinishHook,
    HistoryPolicy,
    IndexFlow,
    LakeTarget,
    LineageTarget,
    MetricsTarget,
    PayloadFlow,
    Pipeline,
    SchemaPolicy,
    StateTarget,
    TableFlow,
)
from driftline.pipeline._declare.snapshots import LABEL_MARKS, PLACEHOLDERS, VERSIONS
from driftline.pipeline._declare.toml import Document, Section, key_lines, parse_toml
from driftline.sinks import plain_formats
from driftline.tables import OPTIONS, check_options, memory_limit, option_names

Checked = TypeVar("Checked")

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TABLE_ADDRESS = re.compile(r"(delta|iceberg|spark):(?!//)")
ENGINES = ("auto", "local", "spark")
MOMENTS = ("always", "success", "failure")
HOOK_FORMATS = ("figures", "slack", "discord", "teams")
CDC_SOURCES = ("wal2json", "debezium", "maxwell")
_OWN_RULES = {"key", "key_columns", "fail_if"}
_OF_TABLES = (*TABLE_COUNTS, AGE)


def load(path: StrPath) -> Pipeline:
    """Read and check a pipeline file; the first mistake is raised with its line."""
    file = Path(path)
    return _pipeline(read_document(file).root, file.absolute())  # Spark's tasks run in directories of their own


def read_document(file: Path) -> Document:
    """A TOML file with the lines of its keys."""
    with io_errors(file):
        data = file.read_bytes()
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise PipelineError(f"{file.name} is not UTF-8 text (byte {error.start})", path=file.name) from error
    return Document(file.name, parse_toml(text, file.name), key_lines(text))


def _pipeline(root: Section, file: Path) -> Pipeline:
    head = root.section("pipeline")
    if head is None:
        root.fail("there is no [pipeline] section: `driftline pipeline init` writes a template")
    name = head.required("name")
    _check_name(head, name)
    lake = _lake(root.section("lake"), name)
    lines: dict[str, int] = {}
    pipeline = Pipeline(
        name=name,
        file=file,
        state=_path(head, "state") or f".driftline/{name}",
        engine=head.choice("engine", "auto", ENGINES),
        master=head.text("master"),
        parallel=head.number("parallel", 2, 1),
        memory=_memory(head),
        lake=lake,
        tables=tuple(_table(table, inner, lake, lines) for table, inner in root.named_sections("tables")),
        payloads=tuple(_payloads(flow, inner) for flow, inner in root.named_sections("payloads")),
        indexes=tuple(_index(flow, inner) for flow, inner in root.named_sections("indexes")),
        hooks=_hooks(root),
        lineage=_lineage(root.section("lineage")),
        metrics=_metrics(root.section("metrics")),
        history=_history(root.section("history")),
        lines=lines,
    )
    head.finish()
    root.finish()
    if not (pipeline.tables or pipeline.payloads or pipeline.indexes):
        root.fail("nothing is declared: add [tables.NAME], [payloads.NAME] or [indexes.NAME]")
    _refuse_shared_targets(root, pipeline)
    return pipeline


def _check_name(head: Section, name: str) -> None:
    """The name is also that of the gateway which the deltas come from."""
    try:
        check_gateway_id(name)
    except DriftlineError:
        head.fail(f"the pipeline's name {name!r} is not valid: a letter, then up to 63 letters, digits, _ or -", "name")


def _memory(head: Section) -> int | None:
    text = head.text("memory")
    return _checked(head, "memory", lambda: memory_limit(text))


def _lake(section: Section | None, pipeline: str) -> LakeTarget | None:
    if section is None:
        return None
    lake = LakeTarget(section.required("path"), section.text("client_id") or pipeline)
    section.finish()
    return lake


def _table(name: str, section: Section, lake: LakeTarget | None, lines: dict[str, int]) -> TableFlow:
    _checked(section, None, lambda: check_table_name(name))
    flow = TableFlow(
        name=name,
        key=section.texts("key"),
        snapshots=_path(section, "snapshots"),
        before=_path(section, "before"),
        after=_path(section, "after"),
        since=section.text("since"),
        changes=_changes(section),
        columns=_columns(section),
        schema_policy=SchemaPolicy(
            section.choice("on_new_column", "fail", NEW_COLUMN),
            section.choice("on_missing_column", "fail", MISSING_COLUMN),
            section.choice("on_type_change", "fail", TYPE_CHANGE),
        ),
        fail_if=_thresholds(section, "fail_if", _OF_TABLES),
        warn_if=_thresholds(section, "warn_if", _OF_TABLES),
        events=_path(section, "events"),
        events_format=section.choice("events_format", "jsonl", plain_formats()),
        deltas=section.flag("deltas"),
        compact=section.flag("compact"),
        changeset=_path(section, "changeset"),
        patchset=_path(section, "patchset"),
        states=tuple(_state(entry) for entry in section.list_of_sections("state")),
        options=_options(section),
    )
    section.finish()
    lines[name] = section.line()
    _check_sources(flow, section)
    _check_targets(flow, section, lake)
    _checked(section, None, lambda: check_options(**flow.rules()))
    return flow


def _changes(section: Section) -> ChangeSource | None:
    address = section.text("changes")
    if address is None:
        return None
    if _ADDRESS.match(address) and not is_url(address):
        section.fail(
            f"'changes' is {address!r}: a folder, or a prefix in s3, gs or abfs", "changes", "unsupported_address"
        )
    return ChangeSource(
        address,
        section.text("changes_table"),
        section.choice("changes_from", "", CDC_SOURCES) if "changes_from" in section else None,
        section.flag("partitioned"),
        section.choice("on_truncate", "fail", ("fail", "skip")),
        section.choice("on_difference", "fail", ("fail", "warn")),
    )


def _path(section: Section, key: str) -> str | None:
    """A path of this machine, or an address in a store."""
    path = section.text(key)
    is_other = path is not None and _ADDRESS.match(path) and not is_url(path) and not path.startswith("file://")
    is_versions = path is not None and path.startswith("delta:") and path.endswith(VERSIONS)
    if path is not None and (is_other or (_TABLE_ADDRESS.match(path) and not is_versions)):
        section.fail(
            f"{key!r} is {path!r}: a pipeline takes paths, s3://, gs:// and abfs:// here, a Delta table by its folder",
            key,
            code="unsupported_address",
        )
    return path


def _local_path(section: Section, key: str, why: str = "an index lies on a disk") -> str | None:
    """A path of this machine."""
    path = section.text(key)
    if path is not None and _ADDRESS.match(path):
        section.fail(f"{key!r} is {path!r}, an address: {why}", key, code="unsupported_address")
    return path


def _required_path(section: Section, key: str) -> str:
    section.required(key)
    return _path(section, key) or ""


def _options(section: Section) -> JsonObject:
    """The options of the table diff that are present; the table of options says what each may be."""
    given = section.given(sorted(option_names() - _OWN_RULES))
    for name, option in OPTIONS.items():
        if name in given and option.words:
            section.choice(name, option.words[0], option.words)
        elif name in given and option.given == "flag":
            section.flag(name)
    if "delimiter" in given:  # records of stages have the character
        reading = _checked(section, "delimiter", lambda: check_options(delimiter=given["delimiter"]).reading("B"))
        given["delimiter"] = reading.delimiter
    return given


def _columns(section: Section) -> dict[str, ColumnType]:
    declared = section.section("columns")
    if declared is None:
        return {}
    types = {}
    for name in list(declared._data):
        word = declared.required(name)
        types[name] = word if is_column_type(word) else declared.choice(name, "string", COLUMN_TYPES)
    return types


def _state(section: Section) -> StateTarget:
    target = StateTarget(
        _required_path(section, "path"), section.choice("format", "jsonl", STATE_FORMATS), section.text("as_of")
    )
    section.finish()
    return target


def _check_sources(flow: TableFlow, section: Section) -> None:
    if flow.snapshots is not None and (flow.before or flow.after):
        section.fail("give either 'snapshots' or 'before' and 'after', not both", "snapshots")
    if flow.changes is not None:
        _check_changes(flow, section)
    elif flow.snapshots is None and not (flow.before and flow.after):
        section.fail(f"[tables.{flow.name}] has no source: give 'snapshots', 'before' and 'after', or 'changes'")
    if flow.snapshots is not None and sum(flow.snapshots.count(mark) for mark in LABEL_MARKS) != 1:
        section.fail(
            f"'snapshots' needs one of {', '.join(LABEL_MARKS)} where the versions differ, as in data/x-{{date}}.csv",
            "snapshots",
        )
    if flow.snapshots is not None and VERSIONS in flow.snapshots and not flow.snapshots.endswith(VERSIONS):
        section.fail(
            f"{VERSIONS} stands at the end, behind a Delta table, as in warehouse/orders{VERSIONS}", "snapshots"
        )


def _check_changes(flow: TableFlow, section: Section) -> None:
    """Change events go into the lake; a share of rows is not known of them."""
    if flow.before or flow.after:
        section.fail(
            "'changes' goes with 'snapshots', which it is checked against, not with 'before' and 'after'", "changes"
        )
    if not flow.key:
        section.fail("'changes' need the key columns: give 'key'", "changes")
    if not flow.deltas:
        section.fail("'changes' go into the lake: they need 'deltas = true'", "changes")
    for kind in flow.files:
        section.fail(
            f"{kind!r} does not go with 'changes': `driftline changeset from-cdc` makes changesets of them", kind
        )
    for key, limits in (("fail_if", flow.fail_if), ("warn_if", flow.warn_if)):
        for limit in limits:
            if limit.is_share or limit.column is not None or limit.count == "unchanged":
                section.fail(f"{limit.text!r}: of changes only added, removed, changed and different are counted", key)


def _check_targets(flow: TableFlow, section: Section, lake: LakeTarget | None) -> None:
    if not flow.targets:
        *some, last = map(repr, TARGETS)
        section.fail(f"[tables.{flow.name}] has no target: give {', '.join(some)} or {last}")
    if flow.deltas and lake is None:
        section.fail("'deltas' need a lake: add [lake] with a path", "deltas")
    if flow.compact and not flow.deltas:
        section.fail("'compact' needs 'deltas = true'", "compact")
    if flow.states and not flow.deltas:
        section.fail("'state' is read from the lake: it needs 'deltas = true'", "state")
    for rule in ("no_header", "rename"):
        if flow.deltas and flow.options.get(rule):
            section.fail(f"{rule!r} does not go with 'deltas': the lake knows columns by their names", rule)
    if flow.schema_policy.is_active and flow.options.get("no_header"):
        section.fail(
            "columns without names cannot come and go: 'no_header' does not go with 'on_new_column'", "no_header"
        )
    if flow.events and flow.events.endswith("/") and flow.events_format != "jsonl":
        section.fail("a folder of ordered parts holds jsonl: leave the / at the end of 'events' away", "events")
    _check_files(flow, section)


def _check_files(flow: TableFlow, section: Section) -> None:
    for kind in flow.files:
        if kind != "events" and not flow.key:
            section.fail(f"a {kind} needs the key columns: give 'key'", kind)
    for kind, path in flow.files.items():
        if flow.snapshots is not None and not any(mark in path for mark in PLACEHOLDERS):
            section.fail(f"{kind!r} is written once for every new snapshot: put {{to}} into its name", kind)


def _payloads(name: str, section: Section) -> PayloadFlow:
    flow = PayloadFlow(
        name=name,
        schema=_required_path(section, "schema"),
        report=_required_path(section, "report"),
        pairs=_path(section, "pairs"),
        old=_path(section, "old"),
        new=_path(section, "new"),
        id_name=section.text("id", "id") or "id",
        root=section.text("root"),
        config=section.data("config"),
        fail_if=_thresholds(section, "fail_if", PAYLOAD_COUNTS),
        warn_if=_thresholds(section, "warn_if", PAYLOAD_COUNTS),
    )
    section.finish()
    if (flow.pairs is None) == (flow.old is None or flow.new is None):
        section.fail(f"[payloads.{name}] needs either 'pairs', or 'old' and 'new'")
    return flow


def _index(name: str, section: Section) -> IndexFlow:
    flow = IndexFlow(
        name=name,
        cache_root=_local_path(section, "cache_root") or section.required("cache_root"),
        before=section.required("from"),
        after=section.required("to"),
        modes=section.texts("modes") or ("code",),
        events=_path(section, "events"),
        registry=section.flag("registry"),
        allow_mismatch=section.flag("allow_mismatch"),
        fail_if=_thresholds(section, "fail_if", INDEX_COUNTS),
        warn_if=_thresholds(section, "warn_if", INDEX_COUNTS),
        repo=_local_path(section, "repo"),
    )
    section.finish()
    if not (flow.events or flow.registry):
        section.fail(f"[indexes.{name}] has no target: give 'events', or 'registry = true'")
    return flow


def _hooks(root: Section) -> tuple[FinishHook, ...]:
    """`[finish]` for one hook, `[[hooks]]` for several."""
    one = root.section("finish")
    return tuple(_hook(section) for section in ([one] if one else []) + root.list_of_sections("hooks"))


def _hook(section: Section) -> FinishHook:
    hook = FinishHook(
        command=section.texts("command"),
        webhook=section.text("webhook"),
        when=section.choice("when", "always", MOMENTS),
        format=section.choice("format", "figures", HOOK_FORMATS),
        template=_path(section, "template"),
        timeout=float(section.number("timeout", 60, 1)),
        retries=section.number("retries", 0, 0),
    )
    section.finish()
    if not hook.command and hook.webhook is None:
        section.fail("a hook needs 'command' or 'webhook'")
    if hook.webhook is not None and not hook.webhook.startswith(("http://", "https://")):
        section.fail("'webhook' is an http:// or https:// address", "webhook")
    if hook.template is not None and hook.format != "figures":
        section.fail("give either 'format' or 'template', not both", "template")
    return hook


def _lineage(section: Section | None) -> LineageTarget:
    if section is None:
        return LineageTarget()
    target = LineageTarget(
        _local_path(section, "openlineage", "events are appended to a file") or section.required("openlineage"),
        section.text("namespace", "driftline") or "driftline",
        section.number("max_mb", 64, least=1),
    )
    section.finish()
    return target


def _history(section: Section | None) -> HistoryPolicy:
    if section is None:
        return HistoryPolicy()
    days = section.number("days", 0, 1) if "days" in section else None
    policy = HistoryPolicy(section.number("runs", 100, 1), days)
    section.finish()
    return policy


def _metrics(section: Section | None) -> MetricsTarget:
    if section is None:
        return MetricsTarget()
    target = MetricsTarget(_path(section, "json"), _path(section, "prometheus"))
    section.finish()
    return target


def _thresholds(section: Section, key: str, known: tuple[str, ...]) -> tuple[Threshold, ...]:
    found: tuple[Threshold, ...] = section.parsed(key, partial(parse_threshold, in_pipeline=True))
    for threshold in found:
        if threshold.count not in known:
            section.fail(f"{key!r} knows the counts {', '.join(known)}, not {threshold.count!r}", key)
    return found


def _checked(section: Section, key: str | None, check: Callable[[], Checked]) -> Checked:
    """Run a check of another package; its error gets the line of the key."""
    try:
        return check()
    except DriftlineError as error:
        section.fail(error.message, key)


def _refuse_shared_targets(root: Section, pipeline: Pipeline) -> None:
    """Two targets that write one file would undo each other."""
    seen: dict[str, str] = {}
    for owner, path in _targets(pipeline):
        place = path.rstrip("/") if is_url(path) else str((pipeline.directory / path).resolve())
        if place in seen:
            section, _, name = owner.partition(".")
            root._document.fail((section, name), f"{owner} and {seen[place]} write the same file {path}")
        seen[place] = owner


def _targets(pipeline: Pipeline) -> list[tuple[str, str]]:
    found = []
    for table in pipeline.tables:
        paths = [*table.files.values(), *(state.path for state in table.states)]
        found += [(f"tables.{table.name}", path.replace("{table}", table.name)) for path in paths]
    found += [(f"payloads.{flow.name}", flow.report) for flow in pipeline.payloads]
    found += [(f"indexes.{flow.name}", flow.events) for flow in pipeline.indexes if flow.events]
    return found
