"""Moments as a pipeline names them: a snapshot's label, a day, a time or an hlc."""

from __future__ import annotations

from driftline.lake.ledger import Ledger
from driftline.pipeline.snapshots import end_of_day, parse_day


def moment_of(text: str | None, ledger: Ledger) -> int | None:
    """The last timestamp that belongs to the moment; None is now."""
    if text is None:
        return None
    day = parse_day(text)
    if day is not None and not text.isdecimal():
        return end_of_day(day)
    window = ledger.find(text)
    if window is not None:
        return ledger.end_of(window)
    from driftline.lake.moments import parse_moment

    return parse_moment(text)
