"""`x-migration-cast`: both values as one JSON type."""

from __future__ import annotations

from driftline.payloads.casts import CASTS
from driftline.payloads.scalars.parts import Step


def cast(kind: str) -> Step:
    """The step on both sides; it fails where a value has no counterpart of the type."""
    return Step(CASTS[kind], CASTS[kind], changes_type=True)
