"""Arrays: sorted where a rule says so, then compared by index, as a multiset or by key.

Items of unordered arrays match when they are equal under their rules. Without tolerances equal tokens find them in one
pass, with tolerances `pairing` does; of the rest an item is only tried against a few candidates that share its rarest
fields, and the most similar objects are paired (payloads §5.3).
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from driftline.payloads._compare.generated import FastPairs, Numbered, fast_match, fast_pairs
from driftline.payloads._compare.leaves import (
    Tokenizer,
    fast_types,
    needs_pairwise,
    pairwise_members,
    tokenizer,
    warn_unreadable,
)
from driftline.payloads._compare.pairing import Group, Pairer
from driftline.payloads._compare.plan import ContainerCompare, NodePlan
from driftline.payloads._compare.report import NESTED_LEVELS, STEPS_BETWEEN_CLOCK_LOOKS, Run, StopComparisonError
from driftline.payloads._compare.sides import (
    arranged,
    is_raw_member,
    is_removed,
    lookup,
    members,
    resolved,
    sorted_items,
)
from driftline.payloads._rules.extensions import FieldRules
from driftline.payloads._rules.scalars.parts import Token, scalar_token
from driftline.payloads._values.paths import KeyPath, Path
from driftline.payloads._values.values import MISSING, NEW, OLD, SIDE_NAMES, Json, Value, union_leaf_count

Items = Callable[[list[Json], list[Json], Run, Path], None]
Unpaired = list[tuple[Path, Json]]
Pairing = dict[int, int]
Step = Callable[[NodePlan, Numbered, Numbered, list[int], list[int], Run, Pairing], None]
# The token tells keys apart by JSON type; the values are what a path shows.
Key = tuple[Token, tuple[Json, ...]]
KeyReader = Callable[[Json, int, Run], Key | None]

COLLECTOR_FROM_ITEMS = 2_000
QUICK_FROM_ITEMS = 16
MAX_POSTINGS = 32  # a field value shared by more items than this does not tell them apart
_ONLY_TEXT = {str}
_NUMBERS = frozenset({int, float})


def array_comparer(plan: NodePlan) -> ContainerCompare:
    """Compares two arrays in the mode of their rules."""
    items = _items_of_mode(plan)
    item = plan.item()
    order = plan.rules.order_by
    keeps_all = not plan.settings.located and not item.removed_by
    keeps_all = keeps_all and item.states[OLD] is item.states[NEW] and item.rules.strategy != "ignore"

    def compare(old: list[Json], new: list[Json], run: Run, path: Path) -> None:
        run.enter()
        if not keeps_all:
            left, right = arranged(plan, old, OLD, run), arranged(plan, new, NEW, run)
            _count_removed(item, old, new, run, path)
            items(left, right, run, path)
        elif order:
            items(sorted_items(item, old, order, OLD, run), sorted_items(item, new, order, NEW, run), run, path)
        else:
            items(old, new, run, path)
        if not (old or new):
            run.checked += 1
        run.depth -= 1

    return compare


def _items_of_mode(plan: NodePlan) -> Items:
    if plan.rules.array_mode == "keyed":
        return _keyed_items(plan)
    if plan.rules.array_mode == "unordered" or plan.rules.subset:
        return _unordered_items(plan)
    return _strict_items(plan)


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
        same = 0
        fast_match = None
        is_deep = run.depth >= run.quick_depth
        for index, (left, right) in enumerate(zip(old, new, strict=False)):
            if not index % STEPS_BETWEEN_CLOCK_LOOKS:
                run.check_deadline()
                fast_match = None if is_deep else item.fast_match
            if has_prefix:
                plan.item(index).compare(left, right, run, (path, index))
                continue
            kind = type(left)
            if kind in quick and left == right and kind is type(right):
                same += 1
            elif fast_match is not None and kind is dict is type(right):
                found = fast_match(left, right)
                if found >= 0:
                    same += found
                else:
                    item.walk(left, right, run, (path, index))
            else:
                item.compare(left, right, run, (path, index))
        run.add(same)

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
    needs_equality, keeps_texts = plan.item().meaning.is_plain, plan.item().meaning.keeps_texts
    settle_quickly = _quick_part(plan.item())

    def compare(old: list[Any], new: list[Any], run: Run, path: Path) -> None:
        are_texts = takes_texts and set(map(type, old)) <= _ONLY_TEXT >= set(map(type, new))
        if are_texts and len(old) == len(new) and sorted(old) == sorted(new):
            run.checked += len(old)
            return
        if are_texts and (needs_equality or (keeps_texts and "" not in old and "" not in new)):
            lost, found = _compare_texts(plan, old, new, run, path)
        else:
            lost, found = _compare_unordered(plan, *settle_quickly(old, new, run), run, path)
        _report_unpaired(plan.rules, OLD, lost, run, path)
        _report_unpaired(plan.rules, NEW, found, run, path)

    return compare


def _quick_part(item: NodePlan) -> Callable[[list[Json], list[Json], Run], tuple[Numbered, Numbered]]:
    """What is left of two arrays after the quick part, which is worth its preparation in longer arrays only."""

    @cache
    def prepared() -> FastPairs | None:
        return fast_pairs(item)

    def settle(old: list[Json], new: list[Json], run: Run) -> tuple[Numbered, Numbered]:
        is_deep = run.depth >= run.quick_depth
        quick = prepared() if len(old) >= QUICK_FROM_ITEMS and not is_deep else None
        return quick.settle(old, new, run) if quick is not None else (list(enumerate(old)), list(enumerate(new)))

    return settle


def _compare_texts(plan: NodePlan, old: list[str], new: list[str], run: Run, path: Path) -> tuple[Unpaired, Unpaired]:
    """The short form of `_compare_unordered` for strings that match only when they are equal."""
    waiting: dict[str, list[int]] = {}
    for position in range(len(new) - 1, -1, -1):
        waiting.setdefault(new[position], []).append(position)
    lost: Unpaired = []
    for index, text in enumerate(old):
        same = waiting.get(text)
        if same:
            same.pop()
            run.checked += 1
        elif plan.rules.ignore_missing:
            lost.append(((path, index), text))
        else:
            _report_unpaired(plan.rules, OLD, [((path, index), text)], run, path)
    left = sorted(position for positions in waiting.values() for position in positions)
    return lost, [((path, position), new[position]) for position in left]


def _compare_unordered(plan: NodePlan, old: Numbered, new: Numbered, run: Run, path: Path) -> tuple[Unpaired, Unpaired]:
    """Pair and compare the items in Old's order; what is left of either side, as far as it is not reported yet."""
    item = plan.item()
    with _without_collector(len(old) + len(new)):
        partners = _pair(plan, old, new, run, path)
    lost: Unpaired = []
    taken = set(partners.values())
    if item.settings.warns_of_values:
        _warn_of_unpaired(item, old, new, partners, run, path)
    for position, (index, left) in enumerate(old):
        partner = partners.get(position)
        if partner is not None:
            right = new[partner][1]
            compare = item.compare_objects if type(left) is dict and type(right) is dict else item.compare
            compare(left, right, run, (path, index))
        elif plan.rules.ignore_missing:
            lost.append(((path, index), left))
        else:
            # Not allowed: reported at once, between the differences of its neighbours.
            _report_unpaired(plan.rules, OLD, [((path, index), left)], run, path)
    return lost, [((path, index), right) for position, (index, right) in enumerate(new) if position not in taken]


def _warn_of_unpaired(item: NodePlan, old: Numbered, new: Numbered, partners: Pairing, run: Run, path: Path) -> None:
    """Values that no cast or format can take keep an item from its partner: warn, as for paired ones."""
    for position, (index, left) in enumerate(old):
        if position not in partners:
            warn_unreadable(item, left, OLD, run, (path, index))
    taken = set(partners.values())
    for position, (index, right) in enumerate(new):
        if position not in taken:
            warn_unreadable(item, right, NEW, run, (path, index))


@contextmanager
def _without_collector(items: int) -> Iterator[None]:
    """Without garbage collection: many tokens live until the end, and scanning them again and again is not linear."""
    pauses = items > COLLECTOR_FROM_ITEMS and gc.isenabled()
    if pauses:
        gc.disable()
    try:
        yield
    finally:
        if pauses:
            gc.enable()


def _pair(plan: NodePlan, old: Numbered, new: Numbered, run: Run, path: Path) -> Pairing:
    """Positions in Old -> positions in New."""
    item = plan.item()
    partners: Pairing = {}
    steps: tuple[Step, ...] = (_pair_equal, _pair_similar)
    if needs_pairwise(item):
        partners = _pair_tolerant(plan, old, new, run, path)
    for step in steps:
        taken = set(partners.values())
        lefts = [position for position in range(len(old)) if position not in partners]
        rights = [position for position in range(len(new)) if position not in taken]
        if not lefts or not rights:
            break
        step(item, old, new, lefts, rights, run, partners)
    return partners


def _pair_equal(
    item: NodePlan, old: Numbered, new: Numbered, lefts: list[int], rights: list[int], run: Run, partners: Pairing
) -> None:
    """Items with equal tokens."""
    # From the end, so that the earliest of equals is the last in its list and the first to be taken.
    waiting = _by_token(tokenizer(item, NEW), new, rights[::-1], run)
    token = tokenizer(item, OLD)
    for position in lefts:
        _check_now_and_then(position, run)
        same = waiting.get(token(old[position][1], run))
        if same:
            partners[position] = same.pop()


def _by_token(token: Tokenizer, items: Numbered, positions: Sequence[int], run: Run) -> dict[Token, list[int]]:
    found: dict[Token, list[int]] = {}
    for position in positions:
        _check_now_and_then(position, run)
        found.setdefault(token(items[position][1], run), []).append(position)
    return found


def _pair_tolerant(plan: NodePlan, old: Numbered, new: Numbered, run: Run, path: Path) -> Pairing:
    """The most matching pairs among items of equal coarse tokens."""
    item = plan.item()
    waiting = _by_token(tokenizer(item, NEW, coarse=True), new, range(len(new)), run)
    groups = _by_token(tokenizer(item, OLD, coarse=True), old, range(len(old)), run)
    matches = _matcher(item, old, new, run)
    pairer = Pairer(item, [value for _, value in old], [value for _, value in new], matches, run)
    doubtful = None if item.condition or item.choices or item.allow_new else 2 * pairwise_members(item)
    for coarse, lefts in groups.items():
        rights = waiting.get(coarse)
        if not rights:
            continue
        if len(lefts) == len(rights) == 1 and _is_surely_similar(old[lefts[0]][1], doubtful):
            pairer.partners[lefts[0]] = rights[0]
        else:
            pairer.pair(Group(lefts, rights))
    if not pairer.is_exact:
        message = "Too many items may match one another to try them all; they were paired along one field"
        run.warn("RULE_ERROR", path, message, plan.rules.text("array-mode"))
    return pairer.partners


def _is_surely_similar(value: Value, doubtful: int | None) -> bool:
    """Whether equal coarse tokens prove that more than half of the fields agree, so that the pair is right."""
    return type(value) is dict and doubtful is not None and doubtful < len(value)


def _matcher(item: NodePlan, old: Numbered, new: Numbered, run: Run) -> Callable[[int, int], bool]:
    fast = fast_match(item, NESTED_LEVELS + 1) if run.depth < run.quick_depth else None
    agree = item.meaning.agree if item.condition is None and not item.choices and not item.rules.problems else None

    def matches(position: int, other: int) -> bool:
        left, right = old[position][1], new[other][1]
        if type(left) is dict is type(right):
            if fast is not None and fast(left, right) >= 0:
                return True
        elif agree is not None and type(left) in _NUMBERS and type(right) in _NUMBERS and agree(left, right):
            return True
        return _is_equal(item, left, right, run)

    return matches


def _is_equal(item: NodePlan, left: Value, right: Value, run: Run) -> bool:
    try:
        item.compare(left, right, run.probe(), None)
    except StopComparisonError:
        return False
    return True


class _Field(NamedTuple):
    full: Token
    coarse: Token
    value: Value
    plan: NodePlan


def _pair_similar(
    item: NodePlan, old: Numbered, new: Numbered, lefts: list[int], rights: list[int], run: Run, partners: Pairing
) -> None:
    """Objects of which more than half of the fields agree, so that the deepest difference is reported."""
    fields = {position: _fields(item, new[position][1], NEW, run) for position in rights}
    postings: dict[Token, list[int]] = defaultdict(list)
    for position, known in fields.items():
        _check_now_and_then(position, run)
        for name, field in known.items():
            postings[name, field.coarse].append(position)
    taken: set[int] = set()
    for position in lefts:
        _check_now_and_then(position, run)
        known = _fields(item, old[position][1], OLD, run)
        best = _most_similar(known, fields, postings, taken, run, allow_new=item.allow_new)
        if best is not None:
            partners[position] = best
            taken.add(best)


def _most_similar(
    known: dict[str, _Field],
    fields: dict[int, dict[str, _Field]],
    postings: dict[Token, list[int]],
    taken: set[int],
    run: Run,
    *,
    allow_new: bool,
) -> int | None:
    """The free item with the most agreeing fields, the earliest of equals; None without a majority.

    Where New may have more members, the majority is one of Old's.
    """
    candidates: set[int] = set()
    for name, field in known.items():
        sharing = postings.get((name, field.coarse), [])
        if len(sharing) <= MAX_POSTINGS:
            candidates.update(sharing)
    best: tuple[int, int] | None = None
    for candidate in candidates - taken:
        other = fields[candidate]
        agreeing = sum(name in other and _agrees(field, other[name], run) for name, field in known.items())
        if 2 * agreeing > len(known if allow_new else known.keys() | other.keys()):
            best = max(best or (0, 0), (agreeing, -candidate))
    return None if best is None else -best[1]


def _agrees(left: _Field, right: _Field, run: Run) -> bool:
    if left.full == right.full:
        return True
    return bool(left.coarse == right.coarse) and _is_equal(left.plan, left.value, right.value, run)


def _fields(item: NodePlan, value: Value, side: int, run: Run) -> dict[str, _Field]:
    if type(value) is not dict:
        return {}
    plan = resolved(item, value, side, run)
    return {
        name: _Field(tokenizer(child, side)(part, run), tokenizer(child, side, coarse=True)(part, run), part, child)
        for name, part, child in members(plan, value, side, run)
    }


def _check_now_and_then(position: int, run: Run) -> None:
    if not position % STEPS_BETWEEN_CLOCK_LOOKS:
        run.check_deadline()


# Keyed arrays: items are aligned by the normalised values of their key fields.
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


def _keyed_items(plan: NodePlan) -> Items:
    """Compares the items of two keyed arrays, in Old's order, then what only New has."""
    paths = plan.rules.array_key
    read_key, quick_name = _key_reader(plan, paths), _quick_name(plan)
    item = plan.item()
    rules = plan.rules

    def compare(old: list[Json], new: list[Json], run: Run, path: Path) -> None:
        before, after = _gather(old, OLD, read_key, quick_name, run), _gather(new, NEW, read_key, quick_name, run)
        _resolve_duplicates(plan, (before, after), run, path)
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
                if fast_match is not None and type(left) is dict and type(right) is dict:
                    item.walk(left, right, run, place)
                else:
                    item.compare(left, right, run, place)
            elif rules.ignore_missing:
                lost.append((place, left))
            else:
                # Not allowed: reported at once, between the differences of its neighbours.
                _report_unpaired(rules, OLD, [(place, left)], run, path)
        run.add(tally)
        extra: Unpaired = [
            ((path, (paths, after.values.get(token) or (token,))), right) for token, right in _only_new(before, after)
        ]
        if before.keyless or after.keyless:
            rest = _compare_keyless(plan, old, new, before, after, run, path)
            lost.extend(rest[OLD])
            extra.extend(rest[NEW])
        _report_unpaired(rules, OLD, lost, run, path)
        _report_unpaired(rules, NEW, extra, run, path)

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
    """All items by key, where each is an object with a unique text as its key."""
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


def _resolve_duplicates(plan: NodePlan, sides: tuple[_Side, _Side], run: Run, path: Path) -> None:
    for side, found in enumerate(sides):
        if found.duplicates:
            _resolve_side(plan, side, found, run, path)


def _resolve_side(plan: NodePlan, side: int, found: _Side, run: Run, path: Path) -> None:
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
    return _compare_unordered(plan, lefts, rights, run, path)


# Items without a partner, in any mode: allowed by a flag (one warning for the array) or an entry each.
def _report_surplus(rules: FieldRules, side: int, count: int, run: Run, path: Path) -> bool:
    """Warn about allowed extra or missing items; False where they are not allowed."""
    if side == NEW:
        name = "ignore-extra-items" if rules.ignore_extra else "array-subset" if rules.subset else None
    else:
        name = "ignore-missing-items" if rules.ignore_missing else None
    if name is None:
        return False
    plural = "" if count == 1 else "s"
    if side == NEW:
        kind, words = "EXTRA_IN_NEW", f"New array contains {count} extra item{plural}"
    else:
        kind, words = "MISSING_IN_NEW", f"New array lacks {count} item{plural} of Old"
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
