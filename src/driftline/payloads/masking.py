"""Masked values: a token tells equal from unequal and nothing else (payloads §10.4).

A token is keyed (HMAC-SHA256): a plain hash of an email address can be found by trying addresses. Masking is applied
once, between a report and everything that is written of it.

>>> masker = Masker(("$..email",), key=b"k")
>>> masker.value({"email": "a@x", "n": 1})["email"] == masker.value({"email": "a@x"})["email"]
True
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from driftline.payloads.path_rules import PathState, bad_flag, start_state
from driftline.payloads.paths import STEP, unescaped
from driftline.payloads.report import Entry, Report, encode

_DIGITS = 12
_TEST = re.compile(
    r"@(?P<path>(?:\.[^.\['\s=]+|\['(?:[^'\\]|\\.)*'\])+)==(?P<value>'(?:[^'\\]|\\.)*'|[^\s&)]+)(?P<rest> && )?",
    re.DOTALL,
)
# What entries say without their values.
_MESSAGES = {
    "PRECISION_EXCEEDED": "Value difference exceeds the precision tolerance",
    "DATETIME_EXCEEDED": "Time difference exceeds the tolerance",
}


class _Place(NamedTuple):
    """A path with its keys masked, and how far the mask paths are matched there."""

    text: str
    state: PathState
    is_masked: bool


class Masker:
    """Masks what some paths select, in values, in shown containers, in the keys of paths and in ids."""

    def __init__(self, paths: tuple[str, ...], key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._start, located, bad = start_state(paths)
        for path in bad:
            raise bad_flag("--mask", path.text, f"not a JSONPath ({path.reason})")
        for looked_up in located:
            raise bad_flag("--mask", looked_up.text, "only names, * and .. can be used here")
        self._renames: Mapping[str, tuple[str, ...]] = {}

    def with_aliases(self, renames: Mapping[str, tuple[str, ...]]) -> Masker:
        """The same masker for payloads whose Old has other names."""
        self._renames = renames
        return self

    def token(self, value: object) -> str:
        """The token of a value: equal values have equal tokens in one run."""
        return f"masked:{hmac.new(self._key, encode(value), hashlib.sha256).hexdigest()[:_DIGITS]}"

    def identity(self, value: object, name: str) -> Any:
        """The id of a record, masked where a path selects the member it comes from."""
        return self.token(value) if value is not None and self._start.step(name).removed_by is not None else value

    def value(self, value: object) -> Any:
        """A whole payload."""
        return self._below(value, self._start, self._start.removed_by is not None)

    def _below(self, value: object, state: PathState, is_masked: bool) -> Any:
        if is_masked:
            return None if value is None else self.token(value)
        if isinstance(value, dict):
            return {name: self._below(item, *self._step(state, name)) for name, item in value.items()}
        if isinstance(value, list):
            below = state.step(None)
            return [self._below(item, below, below.removed_by is not None) for item in value]
        return value

    def _step(self, state: PathState, name: str) -> tuple[PathState, bool]:
        found = state.step(name)
        # A member of Old may stand under a name that the paths do not know.
        others = [state.step(other) for other in self._renames.get(name, ())]
        return found, any(one.removed_by is not None for one in (found, *others))

    def report(self, report: Report) -> Report:
        """A report that can be shown."""
        coverage = report.coverage
        if coverage is not None:
            unmatched = {name: [self._place(path).text for path in coverage[name]] for name in _UNMATCHED}
            coverage = {**coverage, **unmatched}
        return replace(
            report,
            diffs=list(map(self.entry, report.diffs)),
            warnings=list(map(self.entry, report.warnings)),
            coverage=coverage,
            trace=None if report.trace is None else list(map(self.entry, report.trace)),
        )

    def entry(self, entry: Entry) -> Entry:
        """An entry that can be shown."""
        place = self._place(entry["path"])
        shown = Entry(entry)
        shown["path"] = place.text
        values = [name for name in ("old_value", "new_value") if name in entry]
        for name in values:
            shown[name] = self._below(entry[name], place.state, place.is_masked)
        if place.is_masked and "message" in entry:
            shown["message"] = self._message(shown)
        return shown

    def _message(self, entry: Entry) -> str:
        if entry["type"] == "VALUE_MISMATCH":
            return f"Values differ: {entry['old_value']} != {entry['new_value']}"
        return _MESSAGES.get(entry["type"]) or str(entry["message"])

    def _place(self, path: str) -> _Place:
        state, is_masked = self._start, self._start.removed_by is not None
        pieces = ["$"]
        for found in STEP.finditer(path, 1):
            if found["test"] is not None:
                state = state.step(None)
                pieces.append(f"[?({self._keys(found['test'], state, is_masked)})]")
            elif found["index"] is not None:
                state = state.step(None)
                pieces.append(found.group())
            else:
                name = found["name"] if found["name"] is not None else unescaped(found["quoted"])
                state = state.step(name)
                pieces.append(found.group())
            is_masked = is_masked or state.removed_by is not None
        return _Place("".join(pieces), state, is_masked)

    def _keys(self, tests: str, state: PathState, is_masked: bool) -> str:
        """The key values of a keyed item."""

        def shown(found: re.Match[str]) -> str:
            at, hidden = state, is_masked
            for step in STEP.finditer(found["path"]):
                at = at.step(step["name"] if step["name"] is not None else unescaped(step["quoted"]))
                hidden = hidden or at.removed_by is not None
            value = found["value"]
            if hidden:
                plain = unescaped(value[1:-1]) if value.startswith("'") else _number(value)
                value = f"'{self.token(plain)}'"
            return f"@{found['path']}=={value}{found['rest'] or ''}"

        return _TEST.sub(shown, tests)


_UNMATCHED = ("unmatched_in_old", "unmatched_in_new")


def _number(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text
