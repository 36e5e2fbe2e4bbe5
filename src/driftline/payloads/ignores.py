"""`x-migration-global-ignores` as a small automaton over member names.

Paths made of names, wildcards and `..` move along with the walk; other paths (indexes, slices, filters) are looked up
in each payload before it.

>>> state = start_state(("$..updatedAt",))[0]
>>> state.step("a").step("updatedAt").removed_by
'x-migration-global-ignores: $..updatedAt'
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jsonpath.segments import JSONPathRecursiveDescentSegment
from jsonpath.selectors import NameSelector, WildcardSelector

from driftline.payloads.jsonpaths import BadPathError, find, parse_path

_ANY = None


class _Step(NamedTuple):
    is_descendant: bool
    names: tuple[str | None, ...]

    def takes(self, name: str | None) -> bool:
        return _ANY in self.names or (name is not None and name in self.names)


class _Query(NamedTuple):
    text: str
    steps: tuple[_Step, ...]


class IgnoreState:
    """Which paths are how far matched at one place of a payload; states are shared and remembered."""

    __slots__ = ("_known", "_positions", "_queries", "names", "removed_by", "removes_others")

    def __init__(self, queries: tuple[_Query, ...], positions: frozenset[tuple[int, int]], known: dict[Any, Any]):
        self._queries = queries
        self._positions = positions
        self._known = known
        self.removed_by = self._rule()
        self.names = frozenset(
            name for query, at in positions if at < len(queries[query].steps)
            for name in queries[query].steps[at].names if name is not _ANY
        )  # fmt: skip
        self.removes_others = any(
            at + 1 == len(queries[query].steps) and _ANY in queries[query].steps[at].names
            for query, at in positions if at < len(queries[query].steps)
        )  # fmt: skip

    def step(self, name: str | None) -> IgnoreState:
        """The state of a member, or of an array item (`None`)."""
        if not self._positions:
            return self
        key = (self._positions, name if name in self.names else _ANY)
        state: IgnoreState | None = self._known.get(key)
        if state is None:
            state = self._known[key] = self._moved(name)
        return state

    def _moved(self, name: str | None) -> IgnoreState:
        positions: set[tuple[int, int]] = set()
        for query, at in self._positions:
            steps = self._queries[query].steps
            if at < len(steps):
                if steps[at].is_descendant:
                    positions.add((query, at))
                if steps[at].takes(name):
                    positions.add((query, at + 1))
        frozen = frozenset(positions)
        if frozen not in self._known:
            self._known[frozen] = IgnoreState(self._queries, frozen, self._known)
        found: IgnoreState = self._known[frozen]
        return found

    def _rule(self) -> str | None:
        for query, at in sorted(self._positions):
            if at == len(self._queries[query].steps):
                return f"x-migration-global-ignores: {self._queries[query].text}"
        return None


class LocatedPath(NamedTuple):
    """A path that is looked up in the whole payload."""

    text: str
    query: Any


class BadPath(NamedTuple):
    """A text that is not a JSONPath."""

    text: str
    reason: str


def start_state(texts: tuple[str, ...]) -> tuple[IgnoreState, list[LocatedPath], list[BadPath]]:
    """The state at the root, the paths to look up beforehand, and the texts that are no paths."""
    queries: list[_Query] = []
    located: list[LocatedPath] = []
    bad: list[BadPath] = []
    for text in dict.fromkeys(texts):
        try:
            query = parse_path(text)
        except BadPathError as error:
            bad.append(BadPath(text, str(error)))
            continue
        steps = _simple_steps(query)
        if steps is None:
            located.append(LocatedPath(text, query))
        else:
            queries.append(_Query(text, steps))
    positions = frozenset((number, 0) for number in range(len(queries)))
    return IgnoreState(tuple(queries), positions, {}), located, bad


def _simple_steps(query: Any) -> tuple[_Step, ...] | None:
    steps: list[_Step] = []
    for segment in query.segments:
        names: list[str | None] = []
        for selector in segment.selectors:
            if type(selector) is NameSelector:
                names.append(selector.name)
            elif type(selector) is WildcardSelector:
                names.append(_ANY)
            else:
                return None
        steps.append(_Step(isinstance(segment, JSONPathRecursiveDescentSegment), tuple(names)))
    return tuple(steps)


def prune(payload: Any, paths: list[LocatedPath]) -> tuple[dict[int, Any], list[tuple[LocatedPath, Any, str]]]:
    """Replacements (by `id`) for the containers that lose members, and what was removed from where."""
    drops: dict[int, tuple[Any, set[Any]]] = {}
    removed: list[tuple[LocatedPath, Any, str]] = []
    for path in paths:
        for match in find(path.query, payload):
            if match.parent is None:
                continue
            container, key = match.parent.obj, match.parts[-1]
            gone = drops.setdefault(id(container), (container, set()))[1]
            if key not in gone:
                gone.add(key)
                removed.append((path, match.obj, match.path))
    return {place: _without(container, gone) for place, (container, gone) in drops.items()}, removed


def _without(container: Any, gone: set[Any]) -> Any:
    if isinstance(container, dict):
        return {name: value for name, value in container.items() if name not in gone}
    return [value for index, value in enumerate(container) if index not in gone]
