"""JSON Patch (RFC 6902): what makes Old match New, found by the walk of the comparison itself.

What the rules count as equal is left alone, and the items of arrays are those that the comparison paired. A patch is
tried before it is given away: the patched document is compared again, and what still differs is patched again (values
that Old writes otherwise), then replaced with the container around it (where sorting pairs other items than before).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from driftline.errors import PayloadError
from driftline.payloads._compare.report import Observer, Run
from driftline.payloads._rules.meaning import Meaning
from driftline.payloads._values.paths import Path, escape_pointer, render
from driftline.payloads._values.values import CONTAINERS, MISSING, Json, Value

Place = tuple[str | int, ...]  # member names and indexes in Old as it is written
Difference = tuple[str, Path, Value, Value, Meaning | None]  # its type, path, values, and the rules of a scalar

_END = -1  # the index after the last item
_SHOWN = 3


class Operation(NamedTuple):
    """One step of a patch."""

    op: str
    place: Place
    value: Value = MISSING

    def to_dict(self) -> dict[str, Json]:
        """The step as JSON Patch writes it."""
        path = "".join("/-" if step == _END else f"/{escape_pointer(str(step))}" for step in self.place)
        shown: dict[str, Json] = {"op": self.op, "path": path}
        return shown if self.value is MISSING else shown | {"value": self.value}


class _Held(NamedTuple):
    """Two containers that are compared with each other; `names` has Old's names of renamed members."""

    path: Path  # which lives on with this, so that its identity is not reused
    old: Json
    new: Json
    names: dict[str, str]
    keeps_indexes: bool


class Recorder(Run, Observer):
    """A run that records where its differences are in Old as it is written.

    Paths are known by identity: the path of a container is the parent in the paths of what is inside.
    """

    __slots__ = ("_held", "_leaf", "_places", "_start", "found")

    def begin(self, document: Json, start: Place) -> None:
        """Look at a document of Old whose compared part is at a place."""
        self.observer = self
        self.found: list[Difference] = []
        self._held: dict[int, _Held] = {}
        self._leaf: tuple[Path, Meaning | None] = (None, None)
        self._start = start
        self._places = _places(document)

    def leaf(self, path: Path, old: Value, new: Value, meaning: Meaning) -> None:
        self._leaf = (path, meaning)

    def array(self, path: Path, old: list[Any], new: list[Any], keeps_indexes: bool) -> None:
        self._held[id(path)] = _Held(path, old, new, {}, keeps_indexes)

    def members(self, path: Path, old: dict[str, Json], new: dict[str, Json], names: dict[str, str]) -> None:
        self._held[id(path)] = _Held(path, old, new, names, keeps_indexes=False)

    def error(
        self, kind: str, path: Path, old: Value, new: Value, message: str, rule: str | None = None, **more: object
    ) -> None:
        leaf, meaning = self._leaf
        self.found.append((kind, path, old, new, meaning if leaf is path else None))
        super().error(kind, path, old, new, message, rule, **more)

    def operations(self, *, are_whole: bool) -> list[Operation]:
        """The steps that resolve what was found: values written first, then members and items removed from the end."""
        steps = [step for each in self.found for step in self._steps(each, are_whole)]
        decided = {step.place for step in steps if step.op != "remove" and step.place[-1:] != (_END,)}
        kept = {
            step.place if step.place[-1:] != (_END,) else (*step.place, at): step
            for at, step in enumerate(steps)
            if not any(step.place[:length] in decided for length in range(len(step.place)))
        }
        removed = sorted((step for step in kept.values() if step.op == "remove"), key=lambda step: step.place)
        return [step for step in kept.values() if step.op != "remove"] + removed[::-1]

    def _steps(self, found: Difference, are_whole: bool) -> list[Operation]:
        kind, path, old, new, meaning = found
        if kind == "SCHEMA_MISMATCH":
            return []  # a wrong value of Old is a difference of its own; one of New stays
        if are_whole or kind == "DUPLICATE_KEY":
            return self._replaced_whole(path)
        if kind in ("MISSING_IN_NEW", "ARRAY_ITEM_MISSING"):
            place = self._places.get(id(old)) or self._place(path)
            return [Operation("remove", place)] if place is not None else self._replaced(path, MISSING)
        if kind == "ARRAY_ITEM_EXTRA" and path is not None and (place := self._place(path[0])) is not None:
            return [Operation("add", (*place, _END), new)]
        if isinstance(old, list) and isinstance(new, list):  # of different lengths; their common part is compared
            place = self._place(path)
            if place is None or not self._held[id(path)].keeps_indexes:
                return self._replaced(path, self._held[id(path)].new)
            removed = [Operation("remove", (*place, index)) for index in range(len(new), len(old))]
            return removed + [Operation("add", (*place, _END), item) for item in new[len(old) :]]
        return self._replaced(path, new if meaning is None else meaning.for_old(new))

    def _replaced(self, path: Path, new: Value) -> list[Operation]:
        """A value in the place of Old's; of the container around it where that place is not in Old."""
        place = self._place(path)
        while path is not None and (place is None or new is MISSING):
            path = path[0]
            place, new = self._place(path), self._held[id(path)].new
        around: Any = self._held[id(path[0])].old if path is not None else None
        is_added = place and isinstance(around, dict) and place[-1] not in around
        return [Operation("add" if is_added else "replace", place or (), new)]

    def _replaced_whole(self, path: Path) -> list[Operation]:
        """The outermost array around a difference as New has it, else the object around it."""
        found: list[Operation] = []
        while path is not None:
            path = path[0]
            around = self._held[id(path)]
            if not found or isinstance(around.old, list):
                found = self._replaced(path, around.new)
        return found

    def _place(self, path: Path) -> Place | None:
        """Where a path leads in Old as it is written; None where it leads to nothing of Old."""
        if path is None:
            return self._start
        own, around = self._held.get(id(path)), self._held.get(id(path[0]))
        if own is not None and id(own.old) in self._places:
            return self._places[id(own.old)]
        place = None if around is None else self._places.get(id(around.old))
        if place is None or around is None:
            return None
        step = path[1]
        if isinstance(step, str):
            return (*place, around.names.get(step, step))
        return (*place, step) if isinstance(step, int) and around.keeps_indexes else None


def _places(document: Json) -> dict[int, Place]:
    """The places of all containers by identity."""
    found: dict[int, Place] = {}
    waiting: list[tuple[Json, Place]] = [(document, ())]
    while waiting:
        value, place = waiting.pop()
        if type(value) in CONTAINERS:
            found[id(value)] = place
            steps: Any = value.items() if isinstance(value, dict) else enumerate(value)  # type: ignore[arg-type]
            waiting += [(item, (*place, step)) for step, item in steps]
    return found


def unshared(value: Any) -> Any:
    """A copy in which no container is at two places."""
    if isinstance(value, dict):
        return {name: unshared(item) for name, item in value.items()}
    return [unshared(item) for item in value] if isinstance(value, list | tuple) else value


def patched(document: Any, steps: list[Operation]) -> Any:
    """A document after some steps; it is changed in place, but for its root."""
    for step in steps:
        if not step.place:
            document = unshared(step.value)
            continue
        *way, last = step.place
        parent = document
        for name in way:
            parent = parent[name]
        if step.op == "remove":
            del parent[last]
        elif last == _END:
            parent.append(unshared(step.value))
        else:
            parent[last] = unshared(step.value)
    return document


def no_patch(left: list[Difference]) -> PayloadError:
    """No value of Old can match where New does not match its own rules."""
    paths = list(dict.fromkeys(render(path) for _, path, *_ in left))
    shown = ", ".join(paths[:_SHOWN]) + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")
    reason = f"there is no patch: no value of Old matches New under the rules of {shown}"
    message = f"{reason}; --ignore '{paths[0]}' leaves a place out"
    return PayloadError(message, details={"reason": reason, "paths": paths})
