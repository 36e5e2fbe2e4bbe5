"""Two payloads side by side, through the renames and array modes that are known so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from driftline.payloads.paths import Place
from driftline.payloads.suggesting.evidence import token
from driftline.payloads.values import MISSING, Json, Value


class ArrayMode(NamedTuple):
    """How the items of an array are aligned; members in `loose` do not tell items apart."""

    mode: str
    key: str | None = None
    loose: frozenset[str] = frozenset()


class Alignment:
    """What is known of a migration so far."""

    def __init__(self) -> None:
        self.aliases: dict[Place, dict[str, str]] = {}  # of an object: old name -> new name
        self.modes: dict[Place, ArrayMode] = {}

    def rename(self, place: Place, old: str, new: str) -> None:
        """Remember a rename."""
        self.aliases.setdefault(place, {})[old] = new

    def members(self, value: dict[str, Json], place: Place, *, is_old: bool) -> dict[str, Json]:
        """The members of an object under New's names."""
        names = self.aliases.get(place, {}) if is_old else {}
        return {names.get(name, name): item for name, item in value.items()} if names else value

    def leaves(self, old: Value, new: Value, place: Place = ()) -> Iterator[tuple[Place, Any, Any]]:
        """Scalars that both sides have, and what only one side has."""
        if isinstance(old, dict) and isinstance(new, dict):
            lefts = self.members(old, place, is_old=True)
            for name, left in lefts.items():
                yield from self.leaves(left, new.get(name, MISSING), (*place, name))
            for name, right in new.items():
                if name not in lefts:
                    yield (*place, name), MISSING, right
        elif isinstance(old, list) and isinstance(new, list):
            for left, right in self.items(old, new, place):
                yield from self.leaves(left, right, (*place, None))
        else:
            yield place, old, new

    def items(self, old: list[Json], new: list[Json], place: Place) -> list[tuple[Json, Json]]:
        """The items that belong together."""
        mode = self.modes.get(place)
        if mode is None:
            return list(zip(old, new, strict=False))
        below = (*place, None)
        if mode.mode == "unordered" and not any(isinstance(item, dict | list) for item in (*old, *new)):
            return []
        waiting: dict[str, list[Json]] = defaultdict(list)
        for item in reversed(new):
            waiting[self._identity(item, below, mode, is_old=False)].append(item)
        found = []
        for item in old:
            same = waiting.get(self._identity(item, below, mode, is_old=True))
            if same:
                found.append((item, same.pop()))
        return found

    def _identity(self, item: Value, place: Place, mode: ArrayMode, *, is_old: bool) -> str:
        if not isinstance(item, dict):
            return token(item)
        members = self.members(item, place, is_old=is_old)
        if mode.key is not None:
            return token(members.get(mode.key))
        return token({name: value for name, value in members.items() if name not in mode.loose})

    def objects(self, old: Json, new: Json) -> Iterator[tuple[Place, dict[str, list[Json]], dict[str, list[Json]]]]:
        """The members of the objects at each place as bags of values: order inside arrays does not matter."""
        yield from self._bags([old], [new], ())

    def _bags(self, olds: list[Json], news: list[Json], place: Place) -> Iterator[tuple[Place, Any, Any]]:
        sides: list[dict[str, list[Json]]] = [{}, {}]
        for side, values in enumerate((olds, news)):
            for value in values:
                if isinstance(value, dict):
                    for name, item in self.members(value, place, is_old=side == 0).items():
                        sides[side].setdefault(name, []).append(item)
        if sides[0] and sides[1]:
            yield place, sides[0], sides[1]
        for name in sides[0].keys() & sides[1].keys():
            yield from self._bags(sides[0][name], sides[1][name], (*place, name))
        lists = [[item for value in values if isinstance(value, list) for item in value] for values in (olds, news)]
        if lists[0] and lists[1]:
            yield from self._bags(lists[0], lists[1], (*place, None))

    def arrays(self, old: Json, new: Json, place: Place = ()) -> Iterator[tuple[Place, list[Json], list[Json]]]:
        """The arrays that both sides have at the same place, outer ones first."""
        if isinstance(old, dict) and isinstance(new, dict):
            for name, left in self.members(old, place, is_old=True).items():
                if name in new:
                    yield from self.arrays(left, new[name], (*place, name))
        elif isinstance(old, list) and isinstance(new, list):
            yield place, old, new
            for left, right in self.items(old, new, place):
                yield from self.arrays(left, right, (*place, None))
