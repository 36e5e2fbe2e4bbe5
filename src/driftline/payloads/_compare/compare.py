"""Entry points of a comparison: compile a schema once, compare pairs with it.

>>> compare({"a": 1}, '{"a": 2}', {"type": "object"}).diffs[0].message
'Values differ: 1 != 2'
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from driftline.core import open_bytes
from driftline.errors import DriftlineError, OptionError, PayloadError
from driftline.payloads._compare.patch import Operation, Recorder, no_patch, patched, unshared
from driftline.payloads._compare.plan import Plans, Renames, SchemaSettings
from driftline.payloads._compare.report import Observer, Report, Run, StopComparisonError
from driftline.payloads._compare.walk import compile_root
from driftline.payloads._rules.path_rules import PathRule, is_met, path_flags, prune
from driftline.payloads._schema.documents import Bundle, FileReader, Folder, load_schema, opened
from driftline.payloads._schema.nodes import SchemaDocument, open_document
from driftline.payloads._schema.root import find_root, reachable, record_root
from driftline.payloads._values.limits import Deadline, EngineConfig, stack_space
from driftline.payloads._values.paths import render
from driftline.payloads._values.text import read_payload, to_json_bytes
from driftline.payloads._values.values import MISSING, NEW, OLD, SIDE_NAMES, Json, union_leaf_count
from driftline.version import __version__

LOGGER = logging.getLogger("driftline.payloads")
LOGGER.addHandler(logging.NullHandler())

UNMATCHED_LIMIT = 100
CACHED_PLANS = 128
CACHED_BYTES = 16 << 20  # of schema text, each byte of which takes up to twenty in memory
_CAP = "the limit for a schema"
ALL_STRICT: Mapping[str, Json] = {}  # the schema of a call without one
_LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}
PARTIAL = ("MAX_DEPTH_EXCEEDED", "TIMEOUT")  # codes of errors that have findings nevertheless
# Python functions per nesting level, with a reserve; C recursion is safe up to the cap on an 8 MB stack.
_FRAMES_PER_LEVEL = 10
_MAX_FRAMES = 20_000


class PayloadPlan:
    """A schema compiled for one configuration; use it for many pairs, from any thread."""

    __slots__ = ("_log_level", "_plans", "config")

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self.config = plans.settings.config
        self._log_level = _LEVELS[self.config.log_level]

    @property
    def renames(self) -> Renames:
        """Old names -> New's names, anywhere in the schema."""
        return self._plans.settings.renames

    def compare(self, old: object, new: object) -> Report:
        """Compare one pair: JSON text, bytes or parsed values; raises `PayloadError`."""
        with self._deadline() as deadline:
            try:
                left = read_payload(old, OLD, self.config)
                is_same_text = type(old) is bytes is type(new) and old == new
                right = left if is_same_text else read_payload(new, NEW, self.config)
            except PayloadError as error:
                run = Run(self.config, self._plans.root, (None, None), deadline)
                raise self._cut_short(error, run) from None
            return self._compare_held(left, right, deadline)

    def patch(self, old: object, new: object) -> list[dict[str, Any]]:
        """The JSON Patch (RFC 6902) that makes Old match New; raises `PayloadError` where there is none.

        What the rules count as equal is not patched.

        >>> compile("{}").patch({"a": 1, "b": 2}, {"a": 1, "c": [3]})
        [{'op': 'add', 'path': '/c', 'value': [3]}, {'op': 'remove', 'path': '/b'}]
        """
        document, right = unshared(read_payload(old, OLD, self.config)), read_payload(new, NEW, self.config)
        observed, steps = self.observed(), list[Operation]()
        with stack_space(min(self.config.max_depth * _FRAMES_PER_LEVEL + 1000, _MAX_FRAMES)):
            for are_whole in (False, False, True):
                run = observed.record(document, right)
                if not run.found:
                    return [step.to_dict() for step in steps]
                found = run.operations(are_whole=are_whole)
                document, steps = patched(document, found), steps + found
            left = observed.record(document, right).found
        if left:
            raise no_patch(left)
        return [step.to_dict() for step in steps]

    def observed(self) -> ObservedPlan:
        """The same plan without short cuts, so that an observer sees all that is paired."""
        given, config = self._plans.settings, replace(self.config, fail_fast=False, trace_rule_application=False)
        start = (given.document, given.root, config, given.flags)
        return ObservedPlan(compile_root(SchemaSettings(*start, is_observed=True, is_record=given.is_record)))

    def compare_values(self, old: object, new: object) -> Report:
        """Compare two parsed values whose size is known to be within the limit."""
        with self._deadline() as deadline:
            return self._compare_held(old, new, deadline)

    def _deadline(self) -> Deadline:
        return Deadline(self.config.timeout_seconds, "the comparison")

    def _compare_held(self, old: Any, new: Any, deadline: Deadline) -> Report:
        try:
            return self._compared(old, new, deadline)
        except RecursionError:
            pass
        # Once more, where the caller's stack had no space for the depth that the configuration allows.
        with stack_space(min(self.config.max_depth * _FRAMES_PER_LEVEL + 1000, _MAX_FRAMES)):
            try:
                return self._compared(old, new, deadline)
            except RecursionError:
                run = Run(self.config, self._plans.root, (old, new), deadline)
                error = PayloadError("the payload is nested deeper than can be compared", code="MAX_DEPTH_EXCEEDED")
                raise self._cut_short(error, run) from None

    def _compared(self, old: Any, new: Any, deadline: Deadline) -> Report:
        old, new = self._selected(old, new)
        run = Run(self.config, self._plans.root, (old, new), deadline)
        try:
            if old is MISSING or new is MISSING:
                run.lone(None, old, new)
            else:
                self._walk(run)
        except StopComparisonError:
            pass
        except PayloadError as error:
            raise self._cut_short(error, run) from None
        return self._report(run, is_match=not run.diffs)

    def _selected(self, old: Any, new: Any) -> tuple[Any, Any]:
        """What is compared of both sides; the whole payloads where neither has the envelope, as errors have none."""
        (before, after), is_record = self._plans.settings.selects, self._plans.settings.is_record
        if not before and not after:
            return old, new
        left, right = _below(old, before, is_record), _below(new, after, is_record)
        return (old, new) if left is MISSING and right is MISSING else (left, right)

    def _walk(self, run: Run) -> None:
        settings = self._plans.settings
        run.check_deadline()
        for problem in settings.problems:
            run.warn_once((problem.rule, problem.message), None, problem.message, problem.rule)
        if settings.located:
            _prune(run, settings)
        self._plans.root.compare(*run.roots, run, None)
        run.check_deadline()
        for flag in settings.flags:
            if not is_met(flag, *run.roots):
                run.warn_once(flag, None, f"{flag.text} met nothing in either payload", flag.text)
        for text in run.deadline.given_up:
            # Patterns of fields are reported at their field; those of names and paths have none.
            run.warn_once(text, None, f"The pattern {text} took too long; what it was tried on counts as no match")

    def _cut_short(self, error: PayloadError, run: Run) -> PayloadError:
        """The error with what was found so far, where the time or the depth ended the comparison (payloads §6.2)."""
        error.context.setdefault("details", {"reason": error.message})
        error.context["partial_result"] = None
        if error.code in PARTIAL:
            error.context["partial_result"] = self._report(run, is_match=None).to_dict()
        self._log(logging.ERROR, "comparison failed: %s", error.code)
        return error

    def _report(self, run: Run, *, is_match: bool | None) -> Report:
        seconds = time.monotonic() - run.deadline.started
        summary = {
            "total_fields_checked": run.checked,
            "mismatches_found": len(run.diffs),
            "warnings_count": len(run.warnings),
            "fields_ignored": run.ignored,
        }
        if run.warnings or self._log_level == logging.DEBUG:
            self._log_details(run, is_match, summary)
        return Report(
            is_match=is_match,
            summary=summary,
            diffs=run.diffs,
            warnings=run.warnings,
            execution={
                "duration_ms": round(seconds * 1000, 3),
                "timestamp": _timestamp(int(time.time())),
                "engine_version": __version__,
            },
            coverage=self._coverage(run) if self.config.collect_statistics else None,
            trace=run.trace,
        )

    def _coverage(self, run: Run) -> dict[str, Any]:
        coverage: dict[str, Any] = {
            "fields_in_schema": self._plans.settings.fields_in_schema,
            "fields_in_payload": run.checked + run.extra_leaves,
        }
        for side, name in ((OLD, "unmatched_in_old"), (NEW, "unmatched_in_new")):
            paths = run.unmatched[side]
            coverage[name] = sorted(map(render, paths))[:UNMATCHED_LIMIT] if paths else []
            coverage[f"{name}_count"] = len(paths)
        return coverage

    def _log(self, level: int, message: str, *arguments: Any) -> None:
        if level >= self._log_level:
            LOGGER.log(level, message, *arguments)

    def _log_details(self, run: Run, is_match: bool | None, summary: dict[str, int]) -> None:
        for entry in run.warnings:
            if entry["type"] == "RULE_ERROR":  # logged too, for the operator of a service (payloads §3.1)
                self._log(logging.WARNING, "%s: %s", entry.path, entry.message)
        for entry in run.trace or ():
            self._log(logging.DEBUG, "%s %s: %s", entry.path, entry.rule, entry.outcome)
        self._log(logging.DEBUG, "compared: match=%s %s", is_match, summary)


def _below(value: Any, names: tuple[str, ...], is_record: bool) -> Any:
    """The part of a payload (or of the body of a whole response) at some names."""
    if is_record:
        part = _below(value.get("body"), names, False) if isinstance(value, dict) else MISSING
        return part if part is MISSING else {**value, "body": part}
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
    return value


@lru_cache(maxsize=2)
def _timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _prune(run: Run, settings: SchemaSettings) -> None:
    """Remove what the looked-up global ignores select."""
    sides = [prune(root, settings.located) for root in run.roots]
    run.pruned = (sides[OLD][0], sides[NEW][0])
    places: dict[str, tuple[Any, Any, str]] = {}
    for side, (_, removed) in enumerate(sides):
        for path, value, place in removed:
            old, new, _rule = places.get(place, (MISSING, MISSING, ""))
            pair = (value, new) if side == OLD else (old, value)
            places[place] = (*pair, path.rule)
    for place, (old, new, rule) in places.items():
        run.ignored += union_leaf_count(old, new)
        if run.trace is not None:
            run.note(None, rule, "ignored")
            run.trace[-1]["path"] = place


class _Known(NamedTuple):
    """A plan, the files beside its schema that it was made of, and the size of the schema's text."""

    plan: PayloadPlan
    files: FileReader | None
    content: Mapping[str, bytes]
    size: int

    def is_fresh(self) -> bool:
        try:
            return all(self.files is not None and self.files.read(name) == data for name, data in self.content.items())
        except (ValueError, DriftlineError):
            return False


_plans: OrderedDict[Any, _Known] = OrderedDict()
_lock = threading.Lock()


def compile(  # noqa: A001 - the public name
    schema: object,
    config: EngineConfig | Mapping[str, Any] | None = None,
    root: str | None = None,
    *,
    flags: tuple[PathRule, ...] = (),
    is_record: bool = False,
    seconds: float | None = None,
) -> PayloadPlan:
    """The plan of a schema (YAML or JSON text, bytes, a `Path`, or an object); cached by content.

    `flags` are rules of paths that win over the schema's. Compiling has a limit of CPU time of its own, `seconds` (else
    `schema_timeout_seconds` of the configuration): it is done once, the time of a comparison is spent on each pair.

    >>> plan = compile("type: object")
    >>> plan.compare("{}", "{}").is_match
    True
    """
    settings = EngineConfig.of(config)
    content, files = opened(schema)
    key = (_content_key(content), files if isinstance(files, Folder) else id(files), settings, root, flags, is_record)
    with _lock:
        known = _plans.get(key)
        if known is not None:
            _plans.move_to_end(key)
    if known is not None and known.is_fresh():
        return known.plan
    limit, name = (settings.schema_timeout_seconds, "schema_timeout_seconds") if seconds is None else (seconds, _CAP)
    with Deadline(limit, "compiling the schema", name, is_cpu_time=True):
        document = SchemaDocument(load_schema(content), files)
        start = find_root(document, root)
        start = record_root(document, start) if is_record else start
        plan = PayloadPlan(compile_root(SchemaSettings(document, start, settings, flags, is_record=is_record)))
    LOGGER.info("compiled a schema")
    size = len(content) if isinstance(content, str | bytes | bytearray) else 0
    with _lock:
        _plans.pop(key, None)
        _plans[key] = _Known(plan, files, document.read_files, size)
        while len(_plans) > CACHED_PLANS or (
            len(_plans) > 1 and sum(each.size for each in _plans.values()) > CACHED_BYTES
        ):
            _plans.popitem(last=False)
    return plan


class ObservedPlan(PayloadPlan):
    """A plan that shows an observer what it pairs: the alignment of the comparison itself, for other purposes."""

    __slots__ = ()

    def record(self, old: Json, new: Json) -> Recorder:
        """Walk one pair and record where it differs."""
        with self._deadline() as deadline:
            sides, way = self._selected(old, new), self._plans.settings.selects[OLD]
            for value, side in zip(sides, SIDE_NAMES, strict=True):
                if value is MISSING:
                    reason = f"there is no patch: {side.capitalize()} has nothing at --{side}-select"
                    raise PayloadError(reason, details={"reason": reason})
            run = Recorder(self.config, self._plans.root, sides, deadline)
            run.begin(old, way if sides[OLD] is not old else ())
            self._walk(run)
            return run

    def observe(self, old: Json, new: Json, observer: Observer) -> None:
        """Walk one pair; raises `PayloadError` where it is too deep or takes too long."""
        with self._deadline() as deadline:
            run = Run(self.config, self._plans.root, (old, new), deadline)
            run.observer = observer
            self._walk(run)


def bundle_of(path: Path, root: str | None = None) -> Bundle:
    """A schema file with the files it refers to, to be compiled on another machine."""
    document = open_document(path)
    reachable(document, find_root(document, root))
    return Bundle(opened(path)[0], document.read_files)


def _content_key(schema: object) -> Any:
    if isinstance(schema, str | bytes):
        return schema
    try:
        return (type(schema).__name__, to_json_bytes(schema))
    except (TypeError, ValueError, RecursionError):
        return object()  # not JSON all through: parsing says what is wrong


def compare(
    old: object,
    new: object,
    schema: Any = ALL_STRICT,
    config: EngineConfig | Mapping[str, Any] | None = None,
    root: str | None = None,
    *,
    ignore: Iterable[str] = (),
    unordered: Iterable[str] = (),
    key: Mapping[str, str | Iterable[str]] | None = None,
    tolerance: Mapping[str, float | str] | None = None,
    allow_new: Iterable[str] = (),
    select: tuple[str | None, str | None] = (None, None),
) -> Report:
    """Decide whether two payloads are functionally equivalent: JSON text, bytes, a `Path`, or parsed values.

    Without a schema (or with None) everything is strict, but for what the paths say, which also win over a schema's
    rules. A schema is what `compile` takes, or the name of a file: `"schema.yaml"`. `select` has the paths of what is
    compared of Old and of New, where a side has an envelope.

    >>> compare({"id": 1, "p": 2.5}, {"id": 9, "p": 2.51}, ignore=["$..id"], tolerance={"$.p": 0.1}).is_match
    True
    """
    for name, paths in (("key", key), ("tolerance", tolerance)):
        if not isinstance(paths, Mapping | None):
            raise OptionError(f'{name} is a mapping from paths, such as {{"$.items": …}}', code="invalid_option")
    keys = [f"{path}={one if isinstance(one, str) else ','.join(one)}" for path, one in (key or {}).items()]
    tolerances = [f"{path}={limit}" for path, limit in (tolerance or {}).items()]
    named = {"ignore": ignore, "unordered": unordered, "keys": keys, "tolerances": tolerances, "allow_new": allow_new}
    flags = path_flags(select, **named)
    given: Any = ALL_STRICT if schema is None else schema
    plan = compile(Path(given) if _names_a_file(given) else given, config, root, flags=flags)
    return plan.compare(_content(old), _content(new))


def _names_a_file(schema: object) -> bool:
    """Whether a text can only be a file's name: no schema is one word. (Services compile texts.)"""
    return isinstance(schema, str) and schema.endswith((".json", ".yaml", ".yml")) and not re.search(r"\s|[{:]", schema)


def assert_equivalent(old: object, new: object, schema: Any = ALL_STRICT, **options: Any) -> None:
    """Raise an `AssertionError` that lists the differences, if there are any; takes what `compare` takes.

    >>> assert_equivalent([1, 2], [2, 1], unordered=["$"])
    """
    __tracebackhide__ = True  # pytest shows the caller
    report = compare(old, new, schema, **options)
    if not report.is_match:
        raise AssertionError(str(report))


def _content(payload: object) -> Any:
    if not isinstance(payload, os.PathLike):
        return payload
    with open_bytes(payload) as stream:
        return stream.read()


def error_response(error: PayloadError) -> dict[str, Any]:
    """The error response (payloads §6.2)."""
    return {
        "success": False,
        "error": {"code": error.code.wire, "message": error.message, "details": error.context.get("details", {})},
        "partial_result": error.context.get("partial_result"),
    }
