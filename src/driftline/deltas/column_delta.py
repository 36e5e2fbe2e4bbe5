"""A column of a delta."""

from __future__ import annotations

import msgspec

from driftline.core._json import Json


class ColumnDelta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column and its new value, which is JSON data; null is a value."""

    column: str
    value: Json
