"""Requests of the compare service as bytes: what they hold, and the plan and payloads they name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from driftline.errors import PayloadError
from driftline.payloads import PayloadPlan
from driftline.payloads import compile as compile_schema
from driftline.payloads._values.limits import BYTES_PER_MB, EngineConfig
from driftline.payloads._values.text import (
    check_members,
    encode,
    has_long_number,
    parse_json,
    raw_members,
    readable_members,
)


class CompareRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One comparison (payloads §1.1), with `root`."""

    old_json: msgspec.Raw
    new_json: msgspec.Raw
    schema_fragment: msgspec.Raw
    config: dict[str, Any] | None = None
    root: str | None = None


class BatchHeader(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of a batch: one schema, or several by endpoint."""

    schema_fragment: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    schemas: dict[str, msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    config: dict[str, Any] | None = None
    root: str | None = None


class BatchPair(msgspec.Struct, forbid_unknown_fields=True):
    """A further line of a batch."""

    old: msgspec.Raw
    new: msgspec.Raw
    id: msgspec.Raw = msgspec.Raw(b"null")
    endpoint: str | None = None


class _ParsedPair(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a batch whose payloads are read along with it."""

    old: Any
    new: Any
    id: msgspec.Raw = msgspec.Raw(b"null")
    endpoint: str | None = None


_request = msgspec.json.Decoder(CompareRequest).decode
_header = msgspec.json.Decoder(BatchHeader).decode
_pair = msgspec.json.Decoder(BatchPair).decode
_parsed_pair = msgspec.json.Decoder(_ParsedPair).decode

_RAW_MEMBERS = frozenset({"old_json", "new_json", "schema_fragment", "old", "new", "id"})


@dataclass(frozen=True, slots=True)
class ConfigCaps:
    """What a caller's configuration may ask for at most."""

    payload_mb: float
    timeout_seconds: float
    max_depth: int
    compile_seconds: float

    def limited(self, config: dict[str, Any] | None) -> dict[str, Any]:
        """The caller's settings within the caps: larger payloads are cut down to them, other wishes are refused."""
        settings = dict(config or {})
        for name in ("timeout_seconds", "max_depth"):
            wanted, cap = settings.get(name), getattr(self, name)
            if isinstance(wanted, int | float) and wanted > cap:
                message = f"config property {name} can be at most {cap:g} here, not {wanted:g}"
                raise PayloadError(message, details={"reason": message, "property": name, "limit": cap})
        settings.setdefault("timeout_seconds", min(EngineConfig().timeout_seconds, self.timeout_seconds))
        wanted = settings.get("max_payload_size_mb", self.payload_mb)
        if isinstance(wanted, int | float) and not isinstance(wanted, bool):
            settings["max_payload_size_mb"] = min(wanted, self.payload_mb)
        return settings


PlanOf = Callable[[str | None], PayloadPlan]


def answer_request(body: bytes, caps: ConfigCaps) -> bytes:
    """The report of one request; raises `PayloadError`."""
    request: CompareRequest = _decoded(_request, CompareRequest, body, "the request")
    plan = _plan(request.schema_fragment, request.config, request.root, caps)
    return plan.compare(bytes(request.old_json), bytes(request.new_json)).to_json()


def open_batch(line: bytes, caps: ConfigCaps) -> PlanOf:
    """The plans that a batch's first line declares, by endpoint."""
    header: BatchHeader = _decoded(_header, BatchHeader, line, "the first line")
    if isinstance(header.schemas, dict):
        plans = {name: _plan(schema, header.config, header.root, caps) for name, schema in header.schemas.items()}
        return lambda endpoint: _chosen(plans, endpoint)
    if isinstance(header.schema_fragment, msgspec.UnsetType):
        raise PayloadError(
            "the first line needs schema_fragment or schemas", details={"reason": "no schema", "line": 1, "column": 1}
        )
    plan = _plan(header.schema_fragment, header.config, header.root, caps)
    return lambda endpoint: plan


def answer_pair(line: bytes, plan_of: PlanOf) -> tuple[bytes, bytes]:
    """The id and the report of one line, both as JSON; raises `PayloadError`."""
    return _quick_answer(line, plan_of) or _full_answer(line, plan_of)


def _quick_answer(line: bytes, plan_of: PlanOf) -> tuple[bytes, bytes] | None:
    """The answer to a line that is read in one go; None where numbers, sizes or errors want a closer look."""
    if has_long_number(line):
        return None
    try:
        pair = _parsed_pair(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    plan = plan_of(pair.endpoint)
    # As many colons as in what was read mean that no member stood twice (see find_repeated_name).
    read = b'{"old":%b,"new":%b,"id":%b}' % (encode(pair.old), encode(pair.new), bytes(pair.id))
    expected = read.count(b":") - (b'"id"' not in line) + (b'"endpoint"' in line) + (pair.endpoint or "").count(":")
    if len(line) > plan.config.max_payload_bytes or line.count(b":") != expected:
        return None
    return bytes(pair.id), plan.compare_values(pair.old, pair.new).to_json()


def _full_answer(line: bytes, plan_of: PlanOf) -> tuple[bytes, bytes]:
    pair: BatchPair = _decoded(_pair, BatchPair, line, "the line")
    report = plan_of(pair.endpoint).compare(bytes(pair.old), bytes(pair.new))
    return bytes(pair.id), report.to_json()


def id_of(line: bytes) -> bytes:
    """The id of a line that failed, as far as it can be read."""
    return encode(readable_members(line).get("id"))


def _chosen(plans: dict[str, PayloadPlan], endpoint: str | None) -> PayloadPlan:
    plan = plans.get(endpoint or "")
    if plan is None:
        raise PayloadError(f"no schema for the endpoint {endpoint!r}", details={"reason": "unknown endpoint"})
    return plan


def _plan(schema: msgspec.Raw, config: dict[str, Any] | None, root: str | None, caps: ConfigCaps) -> PayloadPlan:
    content: Any = bytes(schema)
    if content[:1] == b'"':
        content = msgspec.json.decode(content)  # YAML or JSON as text
    return compile_schema(content, caps.limited(config), root, seconds=caps.compile_seconds)


def _decoded(decode: Callable[[bytes], Any], kind: type[Any], data: bytes, what: str) -> Any:
    try:
        decoded = decode(data)
        check_members(data)
        return decoded
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        # Says line and column where it is not JSON at all; lone surrogates are read the slow way.
        members = raw_members(data, what)
        if "\\ud" in data.decode("utf-8", "replace").lower():
            return _from_members(kind, members, what)
        raise PayloadError(f"{what} is not valid: {error}", details={"reason": str(error)}) from None


def _from_members(kind: type[Any], members: dict[str, msgspec.Raw], what: str) -> Any:
    """A request from members that are JSON text still."""
    raw = {name: value for name, value in members.items() if name in _RAW_MEMBERS}
    plain = {name: parse_json(bytes(value), what) for name, value in members.items() if name not in raw}
    try:
        return msgspec.convert({**raw, **plain}, kind)
    except msgspec.ValidationError as error:
        raise PayloadError(f"{what} is not valid: {error}", details={"reason": str(error)}) from None


def too_large(size: int, limit: int) -> PayloadError:
    """A body or line beyond the server's limit."""
    return PayloadError(
        f"the body has more than {limit / BYTES_PER_MB:g} MB",
        code="PAYLOAD_TOO_LARGE",
        details={"bytes": size, "limit_bytes": limit},
    )
