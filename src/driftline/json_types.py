"""Names for what JSON holds, which no checker can follow to its ground."""

from __future__ import annotations

from typing import Any, TypeAlias

Json: TypeAlias = Any  # a text, a number, a boolean, null, a list or an object of these
JsonObject: TypeAlias = dict[str, Any]
