"""What a pipeline file declares: frozen records that say how their fields are read, and the checks of a whole file.

Everything is checked before anything runs. Paths are as written, relative to the file's directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from driftline import core
from driftline.deltas import COLUMN_TYPES, ColumnType, check_gateway_id, check_table_name, is_column_type
from driftline.errors import DriftlineError
from driftline.lake import STATE_FORMATS
from driftline.pipeline._declare.toml import Reader, Section, declared, read_document, reading
from driftline.pipeline._stages import own_stage
from driftline.sinks import plain_formats
from driftline.sources import is_of_catalog, without_password
from driftline.tables import OPTIONS, check_options, memory_limit, option_names

Checked = TypeVar("Checked")
Mistake = tuple[object, str, str]  # whether it is one, the key if there is one, the words

ENGINES = ("auto", "local", "spark")
TARGETS = ("events", "deltas", "changeset", "patchset")  # of a table: files, and the lake for deltas
VERSIONS = "@*"  # behind a Delta table: all versions that its log still has
LABEL_MARKS = ("{date}", "{n}", VERSIONS)
_PLACEHOLDERS = ("{to}", "{from}")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TABLE_ADDRESS = re.compile(r"(delta|iceberg|spark):(?!//)|postgresql://")
_NAMELESS = ("no_header", "no_header_a", "no_header_b")
_OWN_RULES = {"key", "key_columns", "fail_if"}


# Readers of keys.
def one_of(*known: str) -> Reader:
    """One of some words."""
    return lambda section, key: section.choice(key, known)


def at_least(least: int) -> Reader:
    """A whole number."""
    return lambda section, key: section.number(key, least)


def _path(section: Section, key: str, others: str = "") -> str | None:
    """A path of this machine, or an address in a store."""
    path = section.text(key)
    is_other = path is not None and _ADDRESS.match(path) and not core.is_url(path) and not path.startswith("file://")
    if path is not None and (is_other or _TABLE_ADDRESS.match(path)):
        words = f"{key!r} is {without_password(path)!r}: a pipeline takes paths, s3://, gs:// and abfs:// here{others}"
        section.fail(words, key, code="unsupported_address")
    return path


def _source(section: Section, key: str) -> str | None:
    """What a diff takes: also a Delta or Iceberg table, or a table of a database or a Spark catalog."""
    text = section.data.get(key)
    if isinstance(text, str) and _TABLE_ADDRESS.match(text) and text == without_password(text):
        return section.text(key)
    return _path(section, key, ", delta:, iceberg:, spark: and postgresql:// without a password (it is in PGPASSWORD)")


def _required_path(section: Section, key: str) -> str:
    section.required(key)
    return _path(section, key) or ""


def _local_path(section: Section, key: str, why: str = "an index lies on a disk") -> str | None:
    """A path of this machine."""
    path = section.text(key)
    if path is not None and _ADDRESS.match(path):
        section.fail(f"{key!r} is {path!r}, an address: {why}", key, code="unsupported_address")
    return path


def _limits(*known: str) -> Reader:
    """Limits of some counts."""
    return lambda section, key: limits_of(section, key, section.texts(key) or (), known, in_pipeline=True)


def limits_of(
    section: Section, key: str, texts: Sequence[str], known: Sequence[str], *, in_pipeline: bool = False
) -> tuple[core.Threshold, ...]:
    """Limits as they are written, each of a known count."""
    try:
        found = tuple(core.parse_threshold(text, in_pipeline=in_pipeline) for text in texts)
    except (ValueError, TypeError) as error:
        section.fail(f"{section.named(key)}: {error}", key)
    for limit in found:
        if limit.count not in known:
            section.fail(f"{key!r} knows the counts {', '.join(known)}, not {limit.count!r}", key)
    return found


def memory_of(section: Section, key: str) -> int | None:
    """A size of memory in bytes."""
    text = section.text(key)
    return checked(section, lambda: memory_limit(text), key)


def _inside(kind: type[Any], only_with_key: bool = False) -> core.JsonObject:
    """A record whose fields are keys of the same table."""
    return reading(lambda section, key: kind(**section.values(kind)) if key in section or not only_with_key else None)


def _columns(section: Section, key: str) -> dict[str, ColumnType]:
    types = section.section(key)
    words = {name: types.required(name) for name in types.data} if types else {}
    for name, word in words.items():
        if types and not is_column_type(word):
            types.choice(name, COLUMN_TYPES)
    return words


def _options(section: Section, _: str) -> core.JsonObject:
    """The options of the table diff that are present; the table of options says what each may be."""
    given = section.given(sorted(option_names() - _OWN_RULES))
    for name, option in OPTIONS.items():
        if name in given and option.words:
            section.choice(name, option.words)
        elif name in given and option.given == "flag":
            section.flag(name)
    if "delimiter" in given:  # records of stages have the character
        options = checked(section, lambda: check_options(delimiter=given["delimiter"]), "delimiter")
        given["delimiter"] = options.reading("B").delimiter
    return given


def _own_stages(section: Section, _: str) -> core.JsonObject:
    """The keys that are left and that a stage in a file of its own declares."""
    return {key: stage.declare(section, key) for key in section.unread() if (stage := own_stage(key))}


def checked(section: Section, check: Callable[[], Checked], *keys: str) -> Checked:
    """Run a check of another package; its error gets the line of the key."""
    try:
        return check()
    except DriftlineError as error:
        section.fail(error.message, *keys)


_OF_TABLES = _limits(*core.TABLE_COUNTS, core.AGE)


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """What happens when columns are added, removed, or change their declared type."""

    on_new_column: str = declared(one_of("fail", "ignore", "add"), "fail")
    on_missing_column: str = declared(one_of("fail", "null"), "fail")
    on_type_change: str = declared(one_of("fail", "refresh"), "fail")

    @property
    def is_active(self) -> bool:
        """Whether snapshots may have other columns than the ones before them."""
        return self.on_new_column != "fail" or self.on_missing_column != "fail"


@dataclass(frozen=True, slots=True)
class StateTarget:
    """A table's state at a point in time (now where none is named), written to a file."""

    path: str = declared(_required_path)
    format: str = declared(one_of(*STATE_FORMATS, "delta"), "jsonl")
    as_of: str | None = declared(Section.text, None)


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """Files of change events: their location, and how their messages are read (pipeline §8)."""

    address: str = declared(_required_path, key="changes")
    # The table's name in the source, also with the schema or database before it.
    table: str | None = declared(Section.text, None, "changes_table")
    source: str | None = declared(one_of("wal2json", "debezium", "maxwell"), None, "changes_from")
    partitioned: bool = declared(Section.flag, False)
    on_truncate: str = declared(one_of("fail", "skip"), "fail")
    on_difference: str = declared(one_of("fail", "warn"), "fail")


@dataclass(frozen=True, slots=True)
class TableFlow:
    """One table: its snapshots, its key and rules, and what is made of its changes."""

    name: str
    key: tuple[str, ...] = declared(Section.texts, ())
    snapshots: str | None = declared(_source, None)
    before: str | None = declared(_source, None)
    after: str | None = declared(_source, None)
    since: str | None = declared(Section.text, None)
    changes: ChangeSource | None = field(default=None, metadata=_inside(ChangeSource, only_with_key=True))
    columns: Mapping[str, ColumnType] = declared(_columns, dict)
    schema_policy: SchemaPolicy = field(default_factory=SchemaPolicy, metadata=_inside(SchemaPolicy))
    fail_if: tuple[core.Threshold, ...] = declared(_OF_TABLES, ())
    warn_if: tuple[core.Threshold, ...] = declared(_OF_TABLES, ())
    events: str | None = declared(_path, None)
    events_format: str = declared(lambda section, key: section.choice(key, plain_formats()), "jsonl")
    deltas: bool = declared(Section.flag, False)
    compact: bool = declared(Section.flag, False)
    changeset: str | None = declared(_path, None)
    patchset: str | None = declared(_path, None)
    states: tuple[StateTarget, ...] = declared(
        lambda section, key: tuple(entry.record(StateTarget) for entry in section.list_of_sections(key)), (), "state"
    )
    options: Mapping[str, Any] = declared(_options, dict)  # those of the table diff that the file gives
    own: Mapping[str, Any] = declared(_own_stages, dict)  # what is read behind all other fields

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of its declared targets."""
        return (*(name for name in TARGETS if getattr(self, name)), *self.own)

    @property
    def files(self) -> dict[str, str]:
        """The paths of the declared targets that are files, by the names of the targets."""
        return {name: getattr(self, name) for name in self.targets if name != "deltas" and name not in self.own}

    def rules(self) -> core.JsonObject:
        """The rules of its diff, as the table diff takes them."""
        # Records of stages have these five in this order, given or not.
        usual = {"mode": None, "key_columns": list(self.key), "header_mode": "strict"}
        return {**usual, "ignore_row_order": False, "delimiter": None, **self.options}


@dataclass(frozen=True, slots=True)
class PayloadFlow:
    """Pairs of old and new payloads, the schema with their rules, and the reports."""

    name: str
    schema: str = declared(_required_path)
    report: str = declared(_required_path)
    pairs: str | None = declared(_path, None)
    old: str | None = declared(_path, None)
    new: str | None = declared(_path, None)
    id_name: str = declared(Section.text, "id", "id")
    root: str | None = declared(Section.text, None)
    config: Mapping[str, Any] = declared(Section.table, dict)
    fail_if: tuple[core.Threshold, ...] = declared(_limits(*core.PAYLOAD_COUNTS), ())
    warn_if: tuple[core.Threshold, ...] = declared(_limits(*core.PAYLOAD_COUNTS), ())


@dataclass(frozen=True, slots=True)
class IndexFlow:
    """Two versions of a code base, as builds of an index or as git revisions, and where their difference goes."""

    name: str
    cache_root: str = declared(lambda section, key: _local_path(section, key) or section.required(key))
    before: str = declared(Section.required, key="from")
    after: str = declared(Section.required, key="to")
    modes: tuple[str, ...] = declared(Section.texts, ("code",))
    events: str | None = declared(_path, None)
    registry: bool = declared(Section.flag, False)
    allow_mismatch: bool = declared(Section.flag, False)
    fail_if: tuple[core.Threshold, ...] = declared(_limits(*core.INDEX_COUNTS), ())
    warn_if: tuple[core.Threshold, ...] = declared(_limits(*core.INDEX_COUNTS), ())
    repo: str | None = declared(_local_path, None)


@dataclass(frozen=True, slots=True)
class LakeTarget:
    """The lake that deltas go into, and the client id they carry."""

    path: str = declared(Section.required)
    client_id: str = declared(Section.text)


@dataclass(frozen=True, slots=True)
class FinishHook:
    """A command or webhook that is called when a run ends, and how often and how long it is tried."""

    command: tuple[str, ...] = declared(Section.texts, ())
    webhook: str | None = declared(Section.text, None)
    when: str = declared(one_of("always", "success", "failure"), "always")
    timeout: float = declared(at_least(1), 60)
    retries: int = declared(at_least(0), 0)
    wait: float = 1.0


@dataclass(frozen=True, slots=True)
class MetricsTarget:
    """Where the figures of the last run are written."""

    json: str | None = declared(_path, None)
    prometheus: str | None = declared(_path, None)


@dataclass(frozen=True, slots=True)
class LineageTarget:
    """Where OpenLineage events are added, the namespace of the jobs in them, and when a new file is begun."""

    openlineage: str | None = declared(
        lambda section, key: _local_path(section, key, "events are appended to a file") or section.required(key), None
    )
    namespace: str = declared(Section.text, "driftline")
    max_mb: int = declared(at_least(1), 64)


@dataclass(frozen=True, slots=True)
class HistoryPolicy:
    """How many runs are remembered, and for how long."""

    runs: int = declared(at_least(1), 100)
    days: int | None = declared(at_least(1), None)


def beside(folder: Path, given: str) -> str:
    """A source that a file in `folder` names: paths in it are complete, other addresses as they are."""
    prefix = "delta:" if given.startswith("delta:") else ""
    path = given.removeprefix(prefix)
    is_other = _ADDRESS.match(path) and not path.startswith("file://")
    return given if is_other or _TABLE_ADDRESS.match(path) else f"{prefix}{folder / path.removeprefix('file://')}"


class TableAddress(str):
    """The location of a source that is no file: a table of a database, of a catalog, or at a version."""

    __slots__ = ()


Place = core.Location | TableAddress


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline file."""

    file: Path
    name: str = declared(Section.required)
    state: str = declared(_path)
    engine: str = declared(one_of(*ENGINES), "auto")
    master: str | None = declared(Section.text, None)
    parallel: int = declared(at_least(1), 2)
    memory: int | None = declared(memory_of, None)
    spark: Mapping[str, str] = field(default_factory=dict)
    lake: LakeTarget | None = None
    tables: tuple[TableFlow, ...] = ()
    payloads: tuple[PayloadFlow, ...] = ()
    indexes: tuple[IndexFlow, ...] = ()
    hooks: tuple[FinishHook, ...] = ()
    lineage: LineageTarget = field(default_factory=LineageTarget)
    metrics: MetricsTarget = field(default_factory=MetricsTarget)
    history: HistoryPolicy = field(default_factory=HistoryPolicy)
    text: str = field(default="", repr=False)  # of the file, for the lines of mistakes that are found later

    @property
    def reads_catalogs(self) -> bool:
        """Whether a table comes from a Spark catalog, which only Spark reads."""
        return any(is_of_catalog(each) for flow in self.tables for each in (flow.snapshots, flow.before, flow.after))

    @property
    def directory(self) -> Path:
        """What relative paths start from."""
        return self.file.parent

    def place(self, path: str) -> core.Location:
        """A declared path as a path of this machine, or an address in a store."""
        return core.ObjectPath(path) if core.is_url(path) else self.directory / path.removeprefix("file://")

    def address(self, given: str) -> str:
        """A declared source as a diff takes it."""
        return beside(self.directory, given)

    def shown(self, path: Place) -> str:
        """A path as records and messages show it: relative to the pipeline file; an address as it is."""
        if isinstance(path, TableAddress):
            return path.replace(f"delta:{self.directory}/", "delta:")
        if isinstance(path, core.ObjectPath):
            return path.url
        return Path(os.path.relpath(path.resolve(), self.directory.resolve())).as_posix()


def state_directory(pipeline: Pipeline) -> core.Location:
    """Where the pipeline stores its records."""
    return pipeline.place(pipeline.state)


def load(path: core.StrPath) -> Pipeline:
    """Read and check a pipeline file; the first mistake is raised with its line."""
    file = Path(path)
    root = read_document(file)
    head = root.section("pipeline")
    if head is None:
        root.fail("there is no [pipeline] section: `driftline pipeline init` writes a template")
    name = head.required("name")
    try:
        check_gateway_id(name)  # the name is also that of the gateway which the deltas come from
    except DriftlineError:
        head.fail(f"the pipeline's name {name!r} is not valid: a letter, then up to 63 letters, digits, _ or -", "name")
    lake, spark = root.section("lake"), root.section("spark")
    target = lake.record(LakeTarget, client_id=name) if lake else None
    one_hook = root.section("finish")
    wholes = {"lineage": LineageTarget, "metrics": MetricsTarget, "history": HistoryPolicy}
    pipeline = head.record(
        Pipeline,
        file=file.absolute(),  # Spark's tasks run in directories of their own
        state=f".driftline/{name}",
        lake=target,
        spark=_spark_settings(spark) if spark else {},
        tables=tuple(_table(*named, target) for named in root.named_sections("tables")),
        payloads=tuple(_flow(PayloadFlow, *named) for named in root.named_sections("payloads")),
        indexes=tuple(_flow(IndexFlow, *named) for named in root.named_sections("indexes")),
        hooks=tuple(map(_hook, [*([one_hook] if one_hook else []), *root.list_of_sections("hooks")])),
        text=root.text_of_file,
        **{key: section.record(kind) for key, kind in wholes.items() if (section := root.section(key)) is not None},
    )
    root.finish()
    if not (pipeline.tables or pipeline.payloads or pipeline.indexes):
        root.fail("nothing is declared: add [tables.NAME], [payloads.NAME] or [indexes.NAME]")
    _refuse_shared_targets(root, pipeline)
    return pipeline


def _table(name: str, section: Section, lake: LakeTarget | None) -> TableFlow:
    checked(section, lambda: check_table_name(name))
    flow = section.record(TableFlow, name=name)
    for is_wrong, key, problem in (*_source_mistakes(flow), *_target_mistakes(flow, lake)):
        if is_wrong:
            section.fail(problem, *([key] if key else []))
    checked(section, lambda: check_options(**flow.rules()))
    return flow


def _source_mistakes(flow: TableFlow) -> Iterator[Mistake]:
    pattern, pair, changes = flow.snapshots or "", flow.before or flow.after, flow.changes is not None
    nothing = not (pattern or (flow.before and flow.after) or changes)
    yield pattern and pair, "snapshots", "give either 'snapshots' or 'before' and 'after', not both"
    sources = "give 'snapshots', 'before' and 'after', or 'changes'"
    yield nothing, "", f"[tables.{flow.name}] has no source: {sources}"
    marks = f"{', '.join(LABEL_MARKS)} where the versions differ, as in data/x-{{date}}.csv"
    has_one = sum(pattern.count(mark) for mark in LABEL_MARKS) == 1
    yield pattern and not has_one, "snapshots", f"'snapshots' needs one of {marks}"
    hours = pattern.count("{hour}") > ("{date}" in pattern)
    yield hours, "snapshots", "{hour} stands once, beside {date}, as in data/x-{date}T{hour}.csv"
    place = f"{VERSIONS} stands at the end, behind a Delta table, as in warehouse/orders{VERSIONS}"
    is_of_delta = pattern.endswith(VERSIONS) and not _TABLE_ADDRESS.match(pattern.removeprefix("delta:"))
    yield VERSIONS in pattern and not is_of_delta, "snapshots", place
    if not changes:
        return
    # Change events go into the lake; a share of rows is not known of them.
    beside = "'changes' goes with 'snapshots', which it is checked against, not with 'before' and 'after'"
    yield pair, "changes", beside
    yield not flow.key, "changes", "'changes' need the key columns: give 'key'"
    yield not flow.deltas, "changes", "'changes' go into the lake: they need 'deltas = true'"
    instead = "`driftline changeset from-cdc` makes changesets of them"
    for kind in flow.files:
        yield True, kind, f"{kind!r} does not go with 'changes': {instead}"
    for key, limits in (("fail_if", flow.fail_if), ("warn_if", flow.warn_if)):
        for limit in limits:
            is_unknown = limit.is_share or limit.column is not None or limit.count == "unchanged"
            known = "of changes only added, removed, changed and different are counted"
            yield is_unknown, key, f"{limit.text!r}: {known}"


def _target_mistakes(flow: TableFlow, lake: LakeTarget | None) -> Iterator[Mistake]:
    *some, last = map(repr, TARGETS)
    yield not flow.targets, "", f"[tables.{flow.name}] has no target: give {', '.join(some)} or {last}"
    yield flow.deltas and lake is None, "deltas", "'deltas' need a lake: add [lake] with a path"
    yield flow.compact and not flow.deltas, "compact", "'compact' needs 'deltas = true'"
    yield flow.states and not flow.deltas, "state", "'state' is read from the lake: it needs 'deltas = true'"
    for rule in (*_NAMELESS, "rename", "ignore_column_case", "key_numbers"):
        by_name = f"{rule!r} does not go with 'deltas': the lake knows columns by their names"
        yield flow.deltas and flow.options.get(rule), rule, by_name
    for rule in _NAMELESS:
        words = f"columns without names cannot come and go: {rule!r} does not go with 'on_new_column'"
        yield flow.schema_policy.is_active and flow.options.get(rule), rule, words
    is_other_folder = (flow.events or "").endswith("/") and flow.events_format != "jsonl"
    parts = "a folder of ordered parts holds jsonl: leave the / at the end of 'events' away"
    yield is_other_folder, "events", parts
    for kind in flow.files:
        yield kind != "events" and not flow.key, kind, f"a {kind} needs the key columns: give 'key'"
    for kind, path in flow.files.items():
        is_one = flow.snapshots is not None and not any(mark in path for mark in _PLACEHOLDERS)
        yield is_one, kind, f"{kind!r} is written once for every new snapshot: put {{to}} into its name"


def _flow(kind: type[Checked], name: str, section: Section) -> Checked:
    flow = section.record(kind, name=name)
    if isinstance(flow, PayloadFlow) and (flow.pairs is None) == (flow.old is None or flow.new is None):
        section.fail(f"[payloads.{name}] needs either 'pairs', or 'old' and 'new'")
    if isinstance(flow, IndexFlow) and not (flow.events or flow.registry):
        section.fail(f"[indexes.{name}] has no target: give 'events', or 'registry = true'")
    return flow


def _spark_settings(section: Section) -> dict[str, str]:
    from driftline.spark import checked_settings

    for name, value in section.data.items():
        if not name.startswith("spark.") or isinstance(value, (dict, list)):
            section.fail('settings of Spark have quoted names, as "spark.executor.memory" = "4g"', name)
    return checked(section, lambda: checked_settings(section.data))


def _hook(section: Section) -> FinishHook:
    for gone in ("format", "template"):
        if gone in section:
            section.fail(f"{gone!r} is gone: a 'command' makes messages of the figures, as in guides/pipeline.md", gone)
    hook = section.record(FinishHook)
    if not hook.command and hook.webhook is None:
        section.fail("a hook needs 'command' or 'webhook'")
    if hook.webhook is not None and not hook.webhook.startswith(("http://", "https://")):
        section.fail("'webhook' is an http:// or https:// address", "webhook")
    return hook


def _refuse_shared_targets(root: Section, pipeline: Pipeline) -> None:
    """Two targets that write one file would undo each other."""
    targets = [
        ("tables", table.name, path.replace("{table}", table.name))
        for table in pipeline.tables
        for path in (*table.files.values(), *(state.path for state in table.states))
    ]
    targets += [("payloads", flow.name, flow.report) for flow in pipeline.payloads]
    targets += [("indexes", flow.name, flow.events) for flow in pipeline.indexes if flow.events]
    seen: dict[str, str] = {}
    for group, name, path in targets:
        place = path.rstrip("/") if core.is_url(path) else str((pipeline.directory / path).resolve())
        if place in seen:
            root.fail(f"{group}.{name} and {seen[place]} write the same file {path}", group, name)
        seen[place] = f"{group}.{name}"


def template_for(name: str) -> str:
    """The commented file that `driftline pipeline init` writes, with its name in the hints."""
    *formats, last = plain_formats()
    text = resources.files("driftline.pipeline").joinpath("starter.toml").read_text()
    return text.replace("{name}", name).replace("{formats}", f"{', '.join(formats)} or {last}")
