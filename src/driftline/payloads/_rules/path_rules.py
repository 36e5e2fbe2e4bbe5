"""Rules that paths name: `x-migration-global-ignores`, and the flags of a call (payloads §3.3, §8).

Paths made of names, wildcards and `..` (and, for flags, indexes) move along with the walk as a small automaton; ignored
paths of other kinds (slices, filters) are looked up in each payload before it.

>>> state = start_state(("$..updatedAt",))[0]
>>> state.step("a").step("updatedAt").removed_by
'x-migration-global-ignores: $..updatedAt'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jsonpath.segments import JSONPathRecursiveDescentSegment
from jsonpath.selectors import IndexSelector, NameSelector, WildcardSelector

from driftline.errors import PayloadError
from driftline.payloads._schema.nodes import EXTENSION_PREFIX, Extension
from driftline.payloads._values.patterns import BadPathError, find, parse_path
from driftline.payloads._values.values import parse_duration

_ANY = None
_SELECT = ("--old-select", "--new-select")
Key = str | int | None  # a member's name, an item's index, or any item


class _Step(NamedTuple):
    is_descendant: bool
    names: tuple[Key, ...]

    def takes(self, name: Key) -> bool:
        return _ANY in self.names or (name is not None and name in self.names)


class _Query(NamedTuple):
    steps: tuple[_Step, ...]
    rule: str  # as reports name it
    extensions: Mapping[str, Extension] | None  # None: what it selects is ignored


@dataclass(frozen=True, slots=True)
class PathRule:
    """A flag of a call: what the path selects is ignored, or gets extensions that win over the schema's."""

    flag: str
    path: str
    extensions: tuple[tuple[str, Any], ...] = ()

    @property
    def text(self) -> str:
        """The flag as reports name it."""
        values = [value for name, value in self.extensions if name not in ("array-mode", "allow-new-members")]
        shown = (",".join(value) if isinstance(value, tuple) else value for value in values)
        return f"{self.flag} {self.path}{''.join(f'={value}' for value in shown)}"


def path_flags(select: tuple[str | None, str | None] = (None, None), **given: Iterable[str]) -> tuple[PathRule, ...]:
    """The rules of a call by their names (`ignore`, `unordered`, `keys`, `tolerances`, `allow_new`), and the parts of
    Old and New that are compared. A text that is no path is refused."""
    flags = [make(text) for name, make in _FLAGS.items() for text in given.get(name, ())]
    flags += [PathRule(flag, path) for flag, path in zip(_SELECT, select, strict=True) if path is not None]
    selected_names(tuple(flags))
    start_state((), tuple(flags))
    return tuple(flags)


def selected_names(flags: tuple[PathRule, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The member names on the way to what is compared, for Old and for New."""
    found: dict[str, tuple[str, ...]] = {}
    for flag in flags:
        if flag.flag in _SELECT:
            try:
                steps = _simple_steps(parse_path(flag.path))
            except BadPathError as error:
                raise bad_flag(flag.flag, flag.path, f"not a JSONPath ({error})") from None
            names = [step.names[0] for step in steps or () if not step.is_descendant and len(step.names) == 1]
            if steps is None or len(names) != len(steps) or not all(isinstance(name, str) for name in names):
                raise bad_flag(flag.flag, flag.path, "only names can be used here, such as $.data.items")
            found[flag.flag] = tuple(map(str, names))
    return found.get(_SELECT[0], ()), found.get(_SELECT[1], ())


def _key(text: str) -> PathRule:
    path, fields = _split(text, "--key", "FIELD[,FIELD]")
    names = tuple(field.strip() for field in fields.split(","))
    if not all(names):
        raise bad_flag("--key", text, "needs PATH=FIELD[,FIELD]")
    return PathRule("--key", path, (("array-mode", "keyed"), ("array-key", names)))


def _tolerance(text: str) -> PathRule:
    path, given = _split(text, "--tolerance", "NUMBER or PATH=DURATION")
    try:
        number = float(given)
    except ValueError:
        if parse_duration(given) is None:
            raise bad_flag("--tolerance", text, "needs a number or a duration such as 5s after the last =") from None
        return PathRule("--tolerance", path, (("datetime-tolerance", given),))
    if not 0 <= number < float("inf"):
        raise bad_flag("--tolerance", text, "needs a number that is not negative")
    return PathRule("--tolerance", path, (("precision", number),))


_FLAGS: dict[str, Callable[[str], PathRule]] = {
    "ignore": lambda path: PathRule("--ignore", path),
    "unordered": lambda path: PathRule("--unordered", path, (("array-mode", "unordered"),)),
    "keys": _key,
    "tolerances": _tolerance,
    "allow_new": lambda path: PathRule("--allow-new", path, (("allow-new-members", True),)),
}


def _split(text: str, flag: str, needed: str) -> tuple[str, str]:
    path, separator, value = text.rpartition("=")
    if not separator or not value.strip():
        raise bad_flag(flag, text, f"needs PATH={needed}")
    return path, value.strip()


def bad_flag(flag: str, text: str, reason: str) -> PayloadError:
    """A flag that cannot be used."""
    return PayloadError(f"{flag} {text}: {reason}", details={"reason": reason, "flag": flag, "value": text})


class PathState:
    """Which paths are how far matched at one place of a payload; states are shared and remembered."""

    __slots__ = ("_known", "_positions", "_queries", "extensions", "has_rules", "names", "removed_by", "removes_others")

    def __init__(self, queries: tuple[_Query, ...], positions: frozenset[tuple[int, int]], known: dict[Any, Any]):
        self._queries = queries
        self._positions = positions
        self._known = known
        waiting = [(queries[query], at) for query, at in sorted(positions) if at < len(queries[query].steps)]
        done = [queries[query] for query, at in sorted(positions) if at == len(queries[query].steps)]
        self.removed_by = next((query.rule for query in done if query.extensions is None), None)
        self.extensions = {name: rule for query in done for name, rule in (query.extensions or {}).items()}
        self.has_rules = any(query.extensions is not None for query, _ in waiting)
        self.names = frozenset(name for query, at in waiting for name in query.steps[at].names) - {_ANY}
        self.removes_others = any(
            query.extensions is None and at + 1 == len(query.steps) and _ANY in query.steps[at].names
            for query, at in waiting
        )

    @property
    def members(self) -> list[str]:
        """The member names that a path waits for."""
        return sorted(name for name in self.names if isinstance(name, str))

    @property
    def waits_for_indexes(self) -> bool:
        """Whether a path identifies items by their index."""
        return any(isinstance(name, int) for name in self.names)

    def step(self, name: Key) -> PathState:
        """The state of a member or of an array item."""
        if not self._positions:
            return self
        key = (self._positions, name if name in self.names else _ANY)
        state: PathState | None = self._known.get(key)
        if state is None:
            state = self._known[key] = self._moved(name)
        return state

    def _moved(self, name: Key) -> PathState:
        waiting = [(place, self._queries[place[0]].steps[place[1] : place[1] + 1]) for place in self._positions]
        stayed = {place for place, rest in waiting for step in rest if step.is_descendant}
        moved = {(query, at + 1) for (query, at), rest in waiting for step in rest if step.takes(name)}
        positions = frozenset(stayed | moved)
        if positions not in self._known:
            self._known[positions] = PathState(self._queries, positions, self._known)
        found: PathState = self._known[positions]
        return found


class LocatedPath(NamedTuple):
    """An ignored path that is looked up in the whole payload."""

    text: str
    query: Any
    rule: str


def start_state(
    ignores: tuple[str, ...], flags: tuple[PathRule, ...] = ()
) -> tuple[PathState, list[LocatedPath], dict[str, str]]:
    """The state at the root, the paths to look up beforehand, and why texts are no paths.

    A flag that is no path is refused, because its user can correct it.
    """
    queries: list[_Query] = []
    located: list[LocatedPath] = []
    bad: dict[str, str] = {}
    for text in dict.fromkeys(ignores):
        try:
            _add_ignore(text, f"{EXTENSION_PREFIX}global-ignores: {text}", queries, located)
        except BadPathError as error:
            bad[text] = str(error)
    for flag in (flag for flag in flags if flag.flag not in _SELECT):
        try:
            if flag.extensions:
                queries.append(_rule_query(flag))
            else:
                _add_ignore(flag.path, flag.text, queries, located)
        except BadPathError as error:
            raise bad_flag(flag.flag, flag.path, f"not a JSONPath ({error})") from None
    positions = frozenset((number, 0) for number in range(len(queries)))
    return PathState(tuple(queries), positions, {}), located, bad


def _add_ignore(text: str, rule: str, queries: list[_Query], located: list[LocatedPath]) -> None:
    query = parse_path(text)
    steps = _simple_steps(query)
    if steps is None or any(isinstance(name, int) for step in steps for name in step.names):
        located.append(LocatedPath(text, query, rule))
    else:
        queries.append(_Query(steps, rule, None))


def _rule_query(flag: PathRule) -> _Query:
    steps = _simple_steps(parse_path(flag.path))
    if steps is None:
        raise bad_flag(flag.flag, flag.path, "only names, *, .. and indexes can be used here")
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in flag.extensions}
    extensions = {EXTENSION_PREFIX + name: Extension(value, flag.text) for name, value in values.items()}
    return _Query(steps, flag.text, extensions)


def _simple_steps(query: Any) -> tuple[_Step, ...] | None:
    steps: list[_Step] = []
    for segment in query.segments:
        names: list[Key] = []
        for selector in segment.selectors:
            if type(selector) is NameSelector:
                names.append(selector.name)
            elif type(selector) is WildcardSelector:
                names.append(_ANY)
            elif type(selector) is IndexSelector and selector.index >= 0:
                names.append(selector.index)
            else:
                return None
        steps.append(_Step(isinstance(segment, JSONPathRecursiveDescentSegment), tuple(names)))
    return tuple(steps)


def is_met(flag: PathRule, *payloads: Any) -> bool:
    """Whether the path of a flag selects anything; what `selected_names` has found is no rule."""
    if flag.flag in _SELECT:
        return True
    query = parse_path(flag.path)
    return any(True for payload in payloads for _ in find(query, payload))


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
    kept: dict[int, Any] = {}
    for place, (container, gone) in drops.items():
        if isinstance(container, dict):
            kept[place] = {name: value for name, value in container.items() if name not in gone}
        else:
            kept[place] = [value for index, value in enumerate(container) if index not in gone]
    return kept, removed
