"""Keyed arrays: items are aligned by the normalised values of their key fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from driftline.payloads.paths import KeyPath, Path
from driftline.payloads.plan import NodePlan
from driftline.payloads.run import STEPS_BETWEEN_CLOCK_LOOKS, Run
from driftline.payloads.scalars.parts import Token, scalar_token
from driftline.payloads.unordered_arrays import Unpaired, compare_unordered, tell_unpaired
from driftline.payloads.values import MISSING, NEW, OLD, SIDE_NAMES, Json, Value
from driftline.payloads.views import is_raw_member, lookup

# The token tells keys apart by JSON type; the values are what a path shows.
Key = tuple[Token, tuple[Json, ...]]
KeyReader = Callable[[Json, int, Run], Key | None]
Items = Callable[[list[Json], list[Json], Run, Path], None]


class _Side:
    """The items of one side by key, in their order, and those without a key.

    `values` holds the key values of a token, unless the token is the only value itself.
    """

    __slots__ = ("by_key", "duplicates", "keyless", "values")

    def __init__(self) -> None:
        self.by_key: dict[Any, Any] = {}
        self.values: dict[Any, tuple[Json, ...]] = {}
        self.duplicates: dict[Any, list[Json]] = {}
        self.keyless: list[int] = []


def keyed_items(plan: NodePlan) -> Items:
    """Compares the items of two keyed arrays, in Old's order, then what only New has."""
    paths = plan.rules.array_key
    read_key, quick_name = _key_reader(plan, paths), _quick_name(plan)
    item = plan.item()
    rules = plan.rules

    def compare(old: list[Json], new: list[Json], run: Run, path: Path) -> None:
        before, after = _gather(old, OLD, read_key, quick_name, run), _gather(new, NEW, read_key, quick_name, run)
        _settle_duplicates(plan, (before, after), run, path)
        partners, values_of = after.by_key, before.values.get if before.values else None
        lost: Unpaired = []
        tally = 0
        is_deep = run.depth >= run.quick_depth
        fast_match = None
        for index, (token, left) in enumerate(before.by_key.items()):
            if not index % STEPS_BETWEEN_CLOCK_LOOKS:
                run.check_deadline()
                fast_match = None if is_deep else item.fast_match
            right = partners.get(token, MISSING)
            if fast_match is not None and type(left) is dict is type(right):
                matched = fast_match(left, right)
                if matched >= 0:
                    tally += matched
                    continue
            place = (path, (paths, (token,) if values_of is None else values_of(token) or (token,)))
            if right is not MISSING:
                if type(left) is dict and type(right) is dict:
                    item.compare_objects(left, right, run, place)
                else:
                    item.compare(left, right, run, place)
            elif rules.ignore_missing:
                lost.append((place, left))
            else:
                # Not allowed: told at once, between the differences of its neighbours.
                tell_unpaired(rules, OLD, [(place, left)], run, path)
        run.add(tally)
        extra: Unpaired = [
            ((path, (paths, after.values.get(token) or (token,))), right) for token, right in _only_new(before, after)
        ]
        if before.keyless or after.keyless:
            rest = _compare_keyless(plan, old, new, before, after, run, path)
            lost.extend(rest[OLD])
            extra.extend(rest[NEW])
        tell_unpaired(rules, OLD, lost, run, path)
        tell_unpaired(rules, NEW, extra, run, path)

    return compare


def _only_new(before: _Side, after: _Side) -> list[tuple[Any, Json]]:
    if before.by_key.keys() == after.by_key.keys():
        return []
    return [(token, right) for token, right in after.by_key.items() if token not in before.by_key]


def _gather(items: list[Json], side: int, read_key: KeyReader, quick_name: str | None, run: Run) -> _Side:
    found = _Side()
    if quick_name is not None and (whole := _by_text(items, quick_name)) is not None:
        found.by_key = whole
        return found
    by_key = found.by_key
    for index, item in enumerate(items):
        if not index % STEPS_BETWEEN_CLOCK_LOOKS:
            run.check_deadline()
        if quick_name is not None and type(item) is dict:
            value = item.get(quick_name)
            # An empty string can stand for null, which is no key.
            if type(value) is str and value and value not in by_key:
                by_key[value] = item
                continue
        _take(found, index, item, read_key(item, side, run))
    return found


def _by_text(items: list[Any], name: str) -> dict[Token, Json] | None:
    """All items by key, where each is an object with a text of its own as its key."""
    if set(map(type, items)) != {dict}:
        return None
    try:
        by_key = {item[name]: item for item in items}
    except (KeyError, TypeError):
        return None
    # An empty string can stand for null, which is no key.
    return by_key if len(by_key) == len(items) and set(map(type, by_key)) == {str} and "" not in by_key else None


def _take(found: _Side, index: int, item: Json, key: Key | None) -> None:
    if key is None:
        found.keyless.append(index)
    elif key[0] in found.by_key:
        found.duplicates.setdefault(key[0], [found.by_key[key[0]]]).append(item)
    else:
        found.by_key[key[0]] = item
        found.values[key[0]] = key[1]


def _quick_name(plan: NodePlan) -> str | None:
    """The key field whose raw text is its key, where there is one."""
    paths = plan.rules.array_key
    is_simple = len(paths) == 1 and len(paths[0]) == 1 and is_raw_member(plan.item(), paths[0][0])
    return paths[0][0] if is_simple else None


def _key_reader(plan: NodePlan, paths: tuple[KeyPath, ...]) -> KeyReader:
    item_plan = plan.item()
    is_single = len(paths) == 1

    def read(item: Value, side: int, run: Run) -> Key | None:
        values = []
        for path in paths:
            value = lookup(item_plan, item, path, side, run)
            # Null is no identity, and neither is a container.
            if value is MISSING or value is None or type(value) in (dict, list):
                return None
            values.append(value)
        tokens = tuple(map(scalar_token, values))
        return (tokens[0] if is_single else tokens), tuple(values)

    return read


def _settle_duplicates(plan: NodePlan, sides: tuple[_Side, _Side], run: Run, path: Path) -> None:
    for side, found in enumerate(sides):
        if found.duplicates:
            _settle_side(plan, side, found, run, path)


def _settle_side(plan: NodePlan, side: int, found: _Side, run: Run, path: Path) -> None:
    handling = plan.rules.duplicates
    rule = plan.rules.text("duplicate-handling")
    for token, items in found.duplicates.items():
        place = (path, (plan.rules.array_key, found.values.get(token) or (token,)))
        message = f"{SIDE_NAMES[side].capitalize()} has {len(items)} items with the same key"
        if handling == "error":
            old, new = (items, None) if side == OLD else (None, items)
            run.error("DUPLICATE_KEY", place, old, new, message, rule, side=SIDE_NAMES[side])
            continue
        words = {"first": "the first is used", "last": "the last is used", "merge": "they are merged"}[handling]
        run.warn("DUPLICATE_KEY", place, f"{message}; {words}", rule, side=SIDE_NAMES[side])
        if handling == "last":
            found.by_key[token] = items[-1]
        elif handling == "merge":
            found.by_key[token] = {
                name: value for item in items if isinstance(item, dict) for name, value in item.items()
            }


def _compare_keyless(
    plan: NodePlan, old: list[Json], new: list[Json], before: _Side, after: _Side, run: Run, path: Path
) -> tuple[Unpaired, Unpaired]:
    counts = f"{len(before.keyless)} in Old, {len(after.keyless)} in New"
    message = f"Items without a key ({counts}) are compared as an unordered rest"
    run.warn("RULE_ERROR", path, message, plan.rules.text("array-key"))
    lefts = [(index, old[index]) for index in before.keyless]
    rights = [(index, new[index]) for index in after.keyless]
    return compare_unordered(plan, lefts, rights, run, path)
