"""The limits and switches of one comparison.

>>> EngineConfig.of({"fail_fast": True}).fail_fast
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from driftline.errors import PayloadError
from driftline.payloads.values import kind_of

LOG_LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
BYTES_PER_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits and switches of a comparison (payloads §7)."""

    max_depth: int = 100
    max_payload_size_mb: float = 50
    timeout_seconds: float = 30
    strict_schema_validation: bool = True
    collect_statistics: bool = True
    log_level: str = "INFO"
    trace_rule_application: bool = False
    fail_fast: bool = False

    @classmethod
    def of(cls, value: EngineConfig | Mapping[str, Any] | None) -> EngineConfig:
        """A configuration from a mapping; unknown names and wrong types are refused."""
        if isinstance(value, EngineConfig):
            return value
        if value is None:
            return _DEFAULT
        if not isinstance(value, Mapping):
            raise _refusal(f"config must be an object, not {kind_of(value)}", "config")
        for name, given in value.items():
            _check(name, given)
        return cls(**value)

    @property
    def max_payload_bytes(self) -> int:
        """The size limit of each side in bytes."""
        return int(self.max_payload_size_mb * BYTES_PER_MB)


_DEFAULT = EngineConfig()
_SWITCHES = {field.name for field in fields(EngineConfig) if field.type == "bool"}
_NAMES = [field.name for field in fields(EngineConfig)]


def _check(name: object, given: object) -> None:
    if name not in _NAMES:
        near = get_close_matches(str(name), _NAMES, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_NAMES)}"
        raise _refusal(f"unknown config property {name!r}{hint}", str(name))
    if name in _SWITCHES:
        if not isinstance(given, bool):
            raise _refusal(f"config property {name} must be true or false", name)
    elif name == "log_level":
        if given not in LOG_LEVELS:
            raise _refusal(f"config property log_level must be one of {', '.join(LOG_LEVELS)}", name)
    else:
        _check_limit(name, given)


def _check_limit(name: str, given: object) -> None:
    allowed = int if name == "max_depth" else (int, float)
    # `0 <= nan` is false, so a NaN ends here too.
    if isinstance(given, bool) or not isinstance(given, allowed) or not 0 <= given < float("inf"):
        kind = "an integer" if name == "max_depth" else "a number"
        raise _refusal(f"config property {name} must be {kind} that is not negative", name)


def _refusal(message: str, name: str) -> PayloadError:
    return PayloadError(message, details={"reason": message, "property": name})
