"""What makes a diff the same diff: its canonical inputs and the id made from them (index diffs §3)."""

from __future__ import annotations

from driftline.codeindex.options import DiffOptions
from driftline.codeindex.resolve import ResolvedRef
from driftline.core._json import JsonObject, canonical_json, sha1_hex

CANONICAL_KEYS = ("version", "kind", "from", "to", "modes", "options")

_ENDPOINT_MEMBERS = ("snapshotId", "tag", "buildIdByMode", "pathHash", "treeId")
_ID_HEX_DIGITS = 16


def canonical_inputs(before: ResolvedRef, after: ResolvedRef, options: DiffOptions) -> JsonObject:
    """The inputs object that identifies a diff; it holds no path."""
    return {
        "version": 1,
        "kind": options.kind,
        "from": _endpoint(before),
        "to": _endpoint(after),
        "modes": list(options.modes),
        "options": options.identity(),
    }


def diff_id(inputs: JsonObject) -> str:
    """The id of a diff with these canonical inputs.

    >>> diff_id({"a": 1}) == diff_id({"a": 1.0})
    True
    """
    return f"diff_{sha1_hex(stable_text(inputs))[:_ID_HEX_DIGITS]}"


def stable_text(inputs: JsonObject) -> str:
    """The text that ids and collisions are decided by."""
    return canonical_json(inputs, integer_keys_first=True)


def _endpoint(resolved: ResolvedRef) -> JsonObject:
    identity = resolved.identity
    endpoint = {"ref": resolved.ref.shown, "identityHash": resolved.identity_hash, "type": identity["type"]}
    members = (*_ENDPOINT_MEMBERS, "configHashByMode") if resolved.ref.kind == "git" else _ENDPOINT_MEMBERS
    return endpoint | {name: identity[name] for name in members if name in identity}
