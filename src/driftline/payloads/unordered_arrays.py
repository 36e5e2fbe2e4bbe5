"""Unordered arrays: a multiset first, then tolerances, then the likest objects of the rest.

Cost is bounded: equal arrays take one pass; in the rest an item is only tried against a few candidates that share
its coarse token or its rarest fields.
"""

from __future__ import annotations

import gc
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from driftline.payloads.match_tests import quick_types
from driftline.payloads.paths import Path
from driftline.payloads.plan import NodePlan
from driftline.payloads.run import STEPS_BETWEEN_CLOCK_LOOKS, Run, StopComparisonError
from driftline.payloads.sure_pairs import Numbered, SurePairs, sure_pairs
from driftline.payloads.surplus import tell_unpaired
from driftline.payloads.tokens import Tokenizer, is_soft, soft_members, tokenizer
from driftline.payloads.values import NEW, OLD
from driftline.payloads.views import members, settled

Items = Callable[[list[Any], list[Any], Run, Path], None]
Unpaired = list[tuple[Path, Any]]

COLLECTOR_FROM_ITEMS = 2_000
QUICK_FROM_ITEMS = 16
_ONLY_TEXT = {str}
MAX_TRIALS = 16  # candidates of equal coarse token that one item is compared with
MAX_POSTINGS = 32  # a field value shared by more items than this does not tell them apart


def unordered_items(plan: NodePlan) -> Items:
    """Compares two arrays as multisets."""

    takes_texts = str in quick_types(plan.item())
    needs_equality = not plan.item().rules.has_value_rules
    settle_quickly = _quick_part(plan.item())

    def compare(old: list[Any], new: list[Any], run: Run, path: Path) -> None:
        are_texts = takes_texts and set(map(type, old)) <= _ONLY_TEXT >= set(map(type, new))
        if are_texts and len(old) == len(new) and sorted(old) == sorted(new):
            run.checked += len(old)
            return
        if are_texts and needs_equality:
            lost, found = _compare_texts(plan, old, new, run, path)
        else:
            lost, found = compare_unordered(plan, *settle_quickly(old, new, run), run, path)
        tell_unpaired(plan.rules, OLD, lost, run, path)
        tell_unpaired(plan.rules, NEW, found, run, path)

    return compare


def _quick_part(item: NodePlan) -> Callable[[list[Any], list[Any], Run], tuple[Numbered, Numbered]]:
    """What is left of two arrays after the quick part, which is worth its preparation in longer arrays only."""

    @cache
    def prepared() -> SurePairs | None:
        return sure_pairs(item)

    def settle(old: list[Any], new: list[Any], run: Run) -> tuple[Numbered, Numbered]:
        is_deep = run.depth >= run.quick_depth
        quick = prepared() if len(old) >= QUICK_FROM_ITEMS and not is_deep else None
        return quick.settle(old, new, run) if quick is not None else (list(enumerate(old)), list(enumerate(new)))

    return settle


def _compare_texts(plan: NodePlan, old: list[str], new: list[str], run: Run, path: Path) -> tuple[Unpaired, Unpaired]:
    """The short form of `compare_unordered` for strings that match only when they are equal."""
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
            tell_unpaired(plan.rules, OLD, [((path, index), text)], run, path)
    left = sorted(position for positions in waiting.values() for position in positions)
    return lost, [((path, position), new[position]) for position in left]


def compare_unordered(plan: NodePlan, old: Numbered, new: Numbered, run: Run, path: Path) -> tuple[Unpaired, Unpaired]:
    """Pair and compare the items in Old's order; what is left of either side, as far as it is not told yet."""
    item = plan.item()
    with _without_collector(len(old) + len(new)):
        partners = _pair(item, old, new, run)
    lost: Unpaired = []
    for position, (index, left) in enumerate(old):
        partner = partners.get(position)
        if partner is not None:
            right = new[partner][1]
            compare = item.compare_objects if type(left) is dict and type(right) is dict else item.compare
            compare(left, right, run, (path, index))
        elif plan.rules.ignore_missing:
            lost.append(((path, index), left))
        else:
            # Not allowed: told at once, between the differences of its neighbours.
            tell_unpaired(plan.rules, OLD, [((path, index), left)], run, path)
    taken = set(partners.values())
    return lost, [((path, index), right) for position, (index, right) in enumerate(new) if position not in taken]


@contextmanager
def _without_collector(items: int) -> Iterator[None]:
    """Many tokens live until the end of the pairing; looking for garbage among them again and again is not linear."""
    pauses = items > COLLECTOR_FROM_ITEMS and gc.isenabled()
    if pauses:
        gc.disable()
    try:
        yield
    finally:
        if pauses:
            gc.enable()


def _pair(item: NodePlan, old: Numbered, new: Numbered, run: Run) -> dict[int, int]:
    """Positions in Old -> positions in New."""
    partners: dict[int, int] = {}
    lefts, rights = list(range(len(old))), list(range(len(new)))
    steps = (_pair_tolerant if is_soft(item) else _pair_equal, _pair_alike)
    for step in steps:
        if not lefts or not rights:
            break
        step(item, old, new, lefts, rights, run, partners)
        taken = set(partners.values())
        lefts = [position for position in lefts if position not in partners]
        rights = [position for position in rights if position not in taken]
    return partners


Pairing = dict[int, int]


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


def _by_token(token: Tokenizer, items: Numbered, positions: list[int], run: Run) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for position in positions:
        if not position % STEPS_BETWEEN_CLOCK_LOOKS:
            run.check_deadline()
        found.setdefault(token(items[position][1], run), []).append(position)
    return found


def _pair_tolerant(
    item: NodePlan, old: Numbered, new: Numbered, lefts: list[int], rights: list[int], run: Run, partners: Pairing
) -> None:
    """Items of equal coarse tokens: the exactly equal ones first, then those whose difference a rule may allow."""
    doubtful = None if item.condition or item.choices else 2 * soft_members(item)
    waiting = _by_token(tokenizer(item, NEW, coarse=True), new, rights, run)
    groups = _by_token(tokenizer(item, OLD, coarse=True), old, lefts, run)
    for coarse, group in groups.items():
        candidates = waiting.get(coarse)
        if not candidates:
            continue
        if len(group) == len(candidates) == 1 and _is_surely_alike(old[group[0]][1], doubtful):
            partners[group[0]] = candidates[0]
            continue
        _pair_equal(item, old, new, group, candidates, run, partners)
        taken = set(partners.values()) if len(group) > 1 or group[0] in partners else set()
        rest = sorted(
            (position for position in group if position not in partners),
            key=lambda position: _magnitude(old[position][1]),
        )
        free = sorted(
            (position for position in candidates if position not in taken),
            key=lambda position: _magnitude(new[position][1]),
        )
        _sweep(item, old, new, rest, free, run, partners)


def _is_surely_alike(value: Any, doubtful: int | None) -> bool:
    """Whether the fields that equal coarse tokens vouch for are more than half, so that the pair stands either way."""
    return type(value) is dict and doubtful is not None and doubtful < len(value)


def _sweep(
    item: NodePlan, old: Numbered, new: Numbered, group: list[int], candidates: list[int], run: Run, partners: Pairing
) -> None:
    """Both lists are sorted by size, so that a partner is near the front of what is left."""
    free = deque(candidates)
    for position in group:
        run.check_deadline()
        trials = min(MAX_TRIALS, len(free))
        for offset in range(trials):
            if _is_equal(item, old[position][1], new[free[offset]][1], run):
                partners[position] = free[offset]
                del free[offset]
                break
        else:
            # What was tried and is smaller cannot match the larger ones that follow either.
            for _ in range(trials):
                if _magnitude(new[free[0]][1]) >= _magnitude(old[position][1]):
                    break
                free.popleft()


def _magnitude(value: Any) -> tuple[Any, ...]:
    """Sorts items of one coarse group by their numbers and texts, in the order of their member names."""
    if isinstance(value, dict):
        return tuple(part for name in sorted(value) for part in _magnitude(value[name]))
    if isinstance(value, list):
        return tuple(part for item in value[:8] for part in _magnitude(item))
    if isinstance(value, int | float):
        return ((1, value, ""),)
    return ((2, 0, value),) if isinstance(value, str) else ((0, 0, ""),)


def _is_equal(item: NodePlan, left: Any, right: Any, run: Run) -> bool:
    try:
        item.compare(left, right, run.probe(), None)
    except StopComparisonError:
        return False
    return True


class _Field(NamedTuple):
    full: Any
    coarse: Any
    value: Any
    plan: NodePlan


def _pair_alike(
    item: NodePlan, old: Numbered, new: Numbered, lefts: list[int], rights: list[int], run: Run, partners: Pairing
) -> None:
    """Objects of which more than half of the fields agree, so that the deepest difference is told."""
    fields = {position: _fields(item, new[position][1], NEW, run) for position in rights}
    postings: dict[Any, list[int]] = defaultdict(list)
    for position, known in fields.items():
        _check_now_and_then(position, run)
        for name, field in known.items():
            postings[name, field.coarse].append(position)
    taken: set[int] = set()
    for position in lefts:
        _check_now_and_then(position, run)
        best = _likest(_fields(item, old[position][1], OLD, run), fields, postings, taken, run)
        if best is not None:
            partners[position] = best
            taken.add(best)


def _likest(
    known: dict[str, _Field],
    fields: dict[int, dict[str, _Field]],
    postings: dict[Any, list[int]],
    taken: set[int],
    run: Run,
) -> int | None:
    """The free item with the most agreeing fields, the earliest of equals; None without a majority."""
    candidates: set[int] = set()
    for name, field in known.items():
        sharing = postings.get((name, field.coarse), [])
        if len(sharing) <= MAX_POSTINGS:
            candidates.update(sharing)
    best: tuple[int, int] | None = None
    for candidate in candidates - taken:
        other = fields[candidate]
        agreeing = sum(name in other and _agrees(field, other[name], run) for name, field in known.items())
        if 2 * agreeing > len(known.keys() | other.keys()):
            best = max(best or (0, 0), (agreeing, -candidate))
    return None if best is None else -best[1]


def _agrees(left: _Field, right: _Field, run: Run) -> bool:
    if left.full == right.full:
        return True
    return bool(left.coarse == right.coarse) and _is_equal(left.plan, left.value, right.value, run)


def _fields(item: NodePlan, value: Any, side: int, run: Run) -> dict[str, _Field]:
    if type(value) is not dict:
        return {}
    plan = settled(item, value, side, run)
    return {
        name: _Field(tokenizer(child, side)(part, run), tokenizer(child, side, coarse=True)(part, run), part, child)
        for name, part, child in members(plan, value, side, run)
    }


def _check_now_and_then(position: int, run: Run) -> None:
    if not position % STEPS_BETWEEN_CLOCK_LOOKS:
        run.check_deadline()
