"""What a room takes from one above it, by name, so that imports only go down.

The package itself, which stands above all rooms, says what there is (`driftline/__init__.py`); a room asks for what it
knows how to use, and the code is imported when it is first used.

>>> sorted(offered("event format"))
['changeset', 'patchset']
"""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from typing import Any

_OFFERS: defaultdict[str, dict[str, str]] = defaultdict(dict)


def offer(what: str, name: str, place: str) -> None:
    """Name the function at `place` (`module:function`) as one of a kind."""
    _OFFERS[what][name] = place


def offered(what: str) -> dict[str, str]:
    """The places of all functions of a kind, by name."""
    return dict(_OFFERS[what])


def load_function(place: str) -> Any:
    """The function at a place."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
