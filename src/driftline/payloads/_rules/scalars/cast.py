"""`x-migration-cast`: both values as one JSON type."""

from __future__ import annotations

from driftline.payloads._rules.scalars.parts import Step
from driftline.payloads._values.values import CASTS


def cast(kind: str) -> Step:
    """The step on both sides; it fails where a value has no counterpart of the type."""
    return Step(CASTS[kind], CASTS[kind], changes_type=True)
