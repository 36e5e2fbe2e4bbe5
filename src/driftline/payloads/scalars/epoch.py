"""`x-migration-datetime-format: epoch` (or `epoch-ms`): a number since 1970 becomes the date and time that it means."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from driftline.payloads.casts import CastError, numeric_value
from driftline.payloads.scalars.datetimes import TimeFormat
from driftline.payloads.scalars.parts import Change, Step
from driftline.payloads.values import Value

_START = datetime(1970, 1, 1)


def epoch(written: TimeFormat) -> Step | None:
    """The step for the sides that count from 1970, if there are any."""
    old, new = written.epoch
    if old is None and new is None:
        return None
    change_old = _change(old) if old is not None else None
    change_new = change_old if new == old else _change(new) if new is not None else None
    return Step(change_old, change_new, changes_type=True)


def _change(unit: int) -> Change:
    def change(value: Value) -> Any:
        if value is None:
            return value
        try:
            return _iso(int(numeric_value(value) * unit))
        except (OverflowError, ArithmeticError):
            raise CastError("too large for a date") from None

    return change


def _iso(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    moment = (_START + timedelta(seconds=seconds)).isoformat()
    return f"{moment}.{rest:09d}Z" if rest else f"{moment}Z"
