"""Arrays: sorted where a rule says so, then compared by index, as a multiset or by key.

Items of unordered arrays match when they are equal under their rules; `pairing` finds out which (payloads §5.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from driftline.core import without_collection
from driftline.payloads._compare import pairing
from driftline.payloads._compare.leaves import fast_types
from driftline.payloads._compare.plan import ContainerCompare, NodePlan
from driftline.payloads._compare.report import Run
from driftline.payloads._compare.sides import arranged, is_raw_member, is_removed, lookup
from driftline.payloads._rules.extensions import FieldRules
from driftline.payloads._rules.scalars import Token, scalar_token
from driftline.payloads._values.paths import KeyPath, Path
from driftline.payloads._values.values import MISSING, NEW, OLD, SIDE_NAMES, Json, Value, union_leaf_count

Items = Callable[[list[Json], list[Json], Run, Path], None]
Unpaired = list[tuple[Path, Json]]
# The token distinguishes keys by JSON type; the values are what a path shows.
Key = tuple[Token, tuple[Json, ...]]
KeyReader = Callable[[Json, int, Run], Key | None]

COLLECTOR_FROM_ITEMS = 2_000
QUICK_FROM_ITEMS = 16
_ONLY_TEXT = {str}


def array_comparer(plan: NodePlan) -> ContainerCompare:
    """Compares two arrays in the mode of their rules."""
    mode = "unordered" if plan.rules.subset and plan.rules.array_mode == "strict" else plan.rules.array_mode
    items = {"keyed": _keyed_items, "unordered": _unordered_items, "strict": _strict_items}[mode](plan)
    item = plan.item()
    is_observed = plan.settings.is_observed
    keeps_all = not (plan.settings.located or plan.rules.order_by or is_removed(item, OLD) or is_removed(item, NEW))

    def compare(old: list[Json], new: list[Json], run: Run, path: Path) -> None:
        run.enter()
        if is_observed and run.observer is not None:
            run.observer.array(path, old, new, keeps_all)
        left, right = old, new
        if not keeps_all:
            left, right = arranged(plan, old, OLD, run), arranged(plan, new, NEW, run)
            _count_removed(item, old, new, run, path)
        items(left, right, run, path)
        if not (old or new):
            run.checked += 1
        run.depth -= 1

    return compare


def _count_removed(item: NodePlan, old: list[Json], new: list[Json], run: Run, path: Path) -> None:
    """Items that an ignore removes as a whole."""
    left = old if is_removed(item, OLD) else MISSING
    right = new if is_removed(item, NEW) else MISSING
    if left or right:
        run.ignored += union_leaf_count(left or MISSING, right or MISSING)
        run.note(path, item.removed_by or item.rules.text("strategy") or "x-migration-global-ignores", "ignored")


def _strict_items(plan: NodePlan) -> Items:
    """Index by index; different lengths give one entry and the common prefix is compared."""
    item = plan.item()
    quick = fast_types(item)
    has_prefix = bool(plan.node.prefix_items) or plan.states[OLD].waits_for_indexes

    def compare(old: list[Json], new: list[Json], run: Run, path: Path) -> None:
        if len(old) != len(new):
            _compare_lengths(plan, old, new, run, path)
        same, match = 0, item.match
        for index, (left, right) in enumerate(zip(old, new, strict=False)):
            run.check_at(index)
            if has_prefix:
                plan.item(index).compare(left, right, run, (path, index))
            elif type(left) in quick and left == right and type(left) is type(right):
                same += 1
            elif match is None or not type(left) is dict is type(right):
                item.compare(left, right, run, (path, index))
            elif not match(left, right, run):
                item.walk(left, right, run, (path, index))
        run.checked += same

    return compare


def _compare_lengths(plan: NodePlan, old: list[Json], new: list[Json], run: Run, path: Path) -> None:
    side = NEW if len(new) > len(old) else OLD
    shared = min(len(old), len(new))
    surplus = (new if side == NEW else old)[shared:]
    for offset, value in enumerate(surplus):
        run.one_sided(side, (path, shared + offset), value)
    if not _report_surplus(plan.rules, side, len(surplus), run, path):
        message = f"Array lengths differ: {len(old)} != {len(new)}"
        run.error("ARRAY_LENGTH_MISMATCH", path, old, new, message, plan.rules.text("array-mode"))


# Unordered arrays.
def _unordered_items(plan: NodePlan) -> Items:
    """Compares two arrays as multisets."""
    takes_texts = str in fast_types(plan.item())
    keeps_texts, identity = plan.item().meaning.keeps_texts, pairing.identity_of(plan.item())

    def compare(old: list[Any], new: list[Any], run: Run, path: Path) -> None:
        are_texts = takes_texts and set(map(type, old)) <= _ONLY_TEXT >= set(map(type, new))
        if are_texts and len(old) == len(new) and sorted(old) == sorted(new):
            run.checked += len(old)
            return
        decided: pairing.Pairing = {}
        if are_texts and keeps_texts and "" not in old and "" not in new:
            decided = pairing.resolve_texts(old, new, run)
        elif identity is not None and len(old) >= QUICK_FROM_ITEMS:
            decided = pairing.resolve_unique(plan.item(), identity, old, new, run)
        taken = set(decided.values())
        lefts = [pair for pair in enumerate(old) if pair[0] not in decided]
        rights = [pair for pair in enumerate(new) if pair[0] not in taken]
        lost, found = _compare_unordered(plan, lefts, rights, run, path)
        _report_unpaired(plan.rules, OLD, lost, run, path)
        _report_unpaired(plan.rules, NEW, found, run, path)

    return compare


def _compare_unordered(
    plan: NodePlan, old: pairing.Numbered, new: pairing.Numbered, run: Run, path: Path
) -> tuple[Unpaired, Unpaired]:
    """Pair and compare the items in Old's order; what is left of either side, as far as it is not reported yet."""
    item = plan.item()
    partners: pairing.Pairing = {}
    if old and new:
        with without_collection(len(old) + len(new) > COLLECTOR_FROM_ITEMS):
            partners = pairing.pair_items(plan, old, new, run, path)
    lost: Unpaired = []
    taken = set(partners.values())
    if item.settings.warns_of_values:
        for side, items, paired in ((OLD, old, partners), (NEW, new, taken)):
            for position, (index, value) in enumerate(items):
                if position not in paired:
                    pairing.warn_unreadable(item, value, side, run, (path, index))
    for position, (index, left) in enumerate(old):
        if position in partners:
            item.compare(left, new[partners[position]][1], run, (path, index))
        else:
            _lose(plan.rules, (path, index), left, lost, run, path)
    return lost, [((path, index), right) for position, (index, right) in enumerate(new) if position not in taken]


def _lose(rules: FieldRules, place: Path, value: Json, lost: Unpaired, run: Run, path: Path) -> None:
    """An item without a partner; where it is not allowed, it is reported between the differences of its neighbours."""
    if rules.ignore_missing:
        lost.append((place, value))
    else:
        _report_unpaired(rules, OLD, [(place, value)], run, path)


# Keyed arrays: items are aligned by the normalised values of their key fields.
@dataclass(slots=True)
class _Side:
    """The items of one side by key, in their order, and those without a key.

    `values` holds the key values of a token, unless the token is the only value itself.
    """

    by_key: dict[Any, Any] = field(default_factory=dict)
    values: dict[Any, tuple[Json, ...]] = field(default_factory=dict)
    duplicates: dict[Any, list[Json]] = field(default_factory=dict)
    keyless: list[tuple[int, Json]] = field(default_factory=list)

    def step(self, paths: tuple[KeyPath, ...], token: Any) -> tuple[tuple[KeyPath, ...], tuple[Json, ...]]:
        """The step of a path that names an item."""
        return paths, self.values.get(token) or (token,)


def _keyed_items(plan: NodePlan) -> Items:
    """Compares the items of two keyed arrays, in Old's order, then what only New has."""
    rules, item = plan.rules, plan.item()
    paths = rules.array_key
    read_key = _key_reader(plan, paths)
    # The key field whose raw text is its key, where there is one.
    is_simple = len(paths) == 1 and len(paths[0]) == 1 and is_raw_member(item, paths[0][0])
    quick_name = paths[0][0] if is_simple else None

    def compare(old: list[Json], new: list[Json], run: Run, path: Path) -> None:
        before, after = _gather(old, OLD, read_key, quick_name, run), _gather(new, NEW, read_key, quick_name, run)
        for side, found in enumerate((before, after)):
            _resolve_duplicates(plan, side, found, run, path)
        partners = after.by_key
        lost: Unpaired = []
        match = item.match
        for index, (token, left) in enumerate(before.by_key.items()):
            run.check_at(index)
            right = partners.get(token, MISSING)
            are_matched = match is not None and type(left) is dict is type(right)
            if are_matched and match(left, right, run):  # type: ignore[misc]
                continue
            place = (path, before.step(paths, token))
            if right is not MISSING:
                (item.walk if are_matched else item.compare)(left, right, run, place)
            else:
                _lose(rules, place, left, lost, run, path)
        extra: Unpaired = [
            ((path, after.step(paths, token)), right) for token, right in partners.items() if token not in before.by_key
        ]
        if before.keyless or after.keyless:
            counts = f"{len(before.keyless)} in Old, {len(after.keyless)} in New"
            message = f"Items without a key ({counts}) are compared as an unordered rest"
            run.warn("RULE_ERROR", path, message, rules.text("array-key"))
            rest = _compare_unordered(plan, before.keyless, after.keyless, run, path)
            lost.extend(rest[OLD])
            extra.extend(rest[NEW])
        _report_unpaired(rules, OLD, lost, run, path)
        _report_unpaired(rules, NEW, extra, run, path)

    return compare


def _gather(items: list[Json], side: int, read_key: KeyReader, quick_name: str | None, run: Run) -> _Side:
    if quick_name is not None and (whole := _by_text(items, quick_name)) is not None:
        return _Side(whole)
    found = _Side()
    for index, item in enumerate(items):
        run.check_at(index)
        key = read_key(item, side, run)
        if key is None:
            found.keyless.append((index, item))
        elif key[0] in found.by_key:
            found.duplicates.setdefault(key[0], [found.by_key[key[0]]]).append(item)
        else:
            found.by_key[key[0]], found.values[key[0]] = item, key[1]
    return found


def _by_text(items: list[Any], name: str) -> dict[Token, Json] | None:
    """All items by key, where each is an object with a unique text as its key."""
    if set(map(type, items)) != {dict}:
        return None
    try:
        by_key = {item[name]: item for item in items}
    except (KeyError, TypeError):
        return None
    # An empty string can stand for null, which is no key.
    return by_key if len(by_key) == len(items) and set(map(type, by_key)) == {str} and "" not in by_key else None


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


def _resolve_duplicates(plan: NodePlan, side: int, found: _Side, run: Run, path: Path) -> None:
    handling = plan.rules.duplicates
    rule = plan.rules.text("duplicate-handling")
    for token, items in found.duplicates.items():
        place = (path, found.step(plan.rules.array_key, token))
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


# Items without a partner, in any mode: allowed by a flag (one warning for the array) or an entry each.
def _report_surplus(rules: FieldRules, side: int, count: int, run: Run, path: Path) -> bool:
    """Warn about allowed extra or missing items; False where they are not allowed."""
    plural = "" if count == 1 else "s"
    if side == NEW:
        name = "ignore-extra-items" if rules.ignore_extra else "array-subset" if rules.subset else None
        kind, words = "EXTRA_IN_NEW", f"New array contains {count} extra item{plural}"
    else:
        name = "ignore-missing-items" if rules.ignore_missing else None
        kind, words = "MISSING_IN_NEW", f"New array lacks {count} item{plural} of Old"
    if name is None:
        return False
    rule = rules.text(name)
    run.warn(kind, path, f"{words} (allowed by x-migration-{name})", rule, count=count)
    run.note(path, rule or name, "allowed")
    return True


def _report_unpaired(rules: FieldRules, side: int, items: Unpaired, run: Run, path: Path) -> None:
    """Items that only one side has, in their order."""
    if not items:
        return
    for place, value in items:
        run.one_sided(side, place, value)
    if _report_surplus(rules, side, len(items), run, path):
        return
    rule = rules.text("array-mode") or rules.text("array-subset")
    for place, value in items:
        if side == NEW:
            run.error("ARRAY_ITEM_EXTRA", place, None, value, "The item is in New but not in Old", rule)
        else:
            run.error("ARRAY_ITEM_MISSING", place, value, None, "The item is in Old but not in New", rule)
