"""Unordered arrays: what matches is paired, then the likest objects of the rest (payloads §5.3).

Items match when they are equal under their rules. Without tolerances equal tokens find them in one pass; with
tolerances `pairing` does. Of the rest an item is only tried against a few candidates that share its rarest fields.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from driftline.payloads.fast_pairs import FastPairs, Numbered, fast_pairs
from driftline.payloads.leaves import fast_types, warn_unreadable
from driftline.payloads.object_code import fast_match
from driftline.payloads.pairing import Group, Pairer
from driftline.payloads.paths import Path
from driftline.payloads.plan import NodePlan
from driftline.payloads.rules import FieldRules
from driftline.payloads.run import NESTED_LEVELS, STEPS_BETWEEN_CLOCK_LOOKS, Run, StopComparisonError
from driftline.payloads.scalars.parts import Token
from driftline.payloads.tokens import Tokenizer, needs_pairwise, pairwise_members, tokenizer
from driftline.payloads.values import NEW, OLD, Json, Value
from driftline.payloads.views import members, settled

Items = Callable[[list[Json], list[Json], Run, Path], None]
Unpaired = list[tuple[Path, Json]]
Pairing = dict[int, int]
Step = Callable[[NodePlan, Numbered, Numbered, list[int], list[int], Run, Pairing], None]

COLLECTOR_FROM_ITEMS = 2_000
QUICK_FROM_ITEMS = 16
_ONLY_TEXT = {str}
_NUMBERS = frozenset({int, float})
MAX_POSTINGS = 32  # a field value shared by more items than this does not tell them apart


def unordered_items(plan: NodePlan) -> Items:
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
            lost, found = compare_unordered(plan, *settle_quickly(old, new, run), run, path)
        tell_unpaired(plan.rules, OLD, lost, run, path)
        tell_unpaired(plan.rules, NEW, found, run, path)

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
            # Not allowed: told at once, between the differences of its neighbours.
            tell_unpaired(plan.rules, OLD, [((path, index), left)], run, path)
    return lost, [((path, index), right) for position, (index, right) in enumerate(new) if position not in taken]


def _warn_of_unpaired(item: NodePlan, old: Numbered, new: Numbered, partners: Pairing, run: Run, path: Path) -> None:
    """Values that no cast or format can take keep an item from its partner: that is said, as it is of paired ones."""
    for position, (index, left) in enumerate(old):
        if position not in partners:
            warn_unreadable(item, left, OLD, run, (path, index))
    taken = set(partners.values())
    for position, (index, right) in enumerate(new):
        if position not in taken:
            warn_unreadable(item, right, NEW, run, (path, index))


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


def _pair(plan: NodePlan, old: Numbered, new: Numbered, run: Run, path: Path) -> Pairing:
    """Positions in Old -> positions in New."""
    item = plan.item()
    partners: Pairing = {}
    steps: tuple[Step, ...] = (_pair_equal, _pair_alike)
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
    doubtful = None if item.condition or item.choices else 2 * pairwise_members(item)
    for coarse, lefts in groups.items():
        rights = waiting.get(coarse)
        if not rights:
            continue
        if len(lefts) == len(rights) == 1 and _is_surely_alike(old[lefts[0]][1], doubtful):
            pairer.partners[lefts[0]] = rights[0]
        else:
            pairer.pair(Group(lefts, rights))
    if not pairer.is_exact:
        message = "Too many items may match one another to try them all; they were paired along one field"
        run.warn("RULE_ERROR", path, message, plan.rules.text("array-mode"))
    return pairer.partners


def _is_surely_alike(value: Value, doubtful: int | None) -> bool:
    """Whether the fields that equal coarse tokens vouch for are more than half, so that the pair stands either way."""
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


def _pair_alike(
    item: NodePlan, old: Numbered, new: Numbered, lefts: list[int], rights: list[int], run: Run, partners: Pairing
) -> None:
    """Objects of which more than half of the fields agree, so that the deepest difference is told."""
    fields = {position: _fields(item, new[position][1], NEW, run) for position in rights}
    postings: dict[Token, list[int]] = defaultdict(list)
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
    postings: dict[Token, list[int]],
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


def _fields(item: NodePlan, value: Value, side: int, run: Run) -> dict[str, _Field]:
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


# Items without a partner, of arrays in any mode: allowed by a flag (one warning for the array) or an entry each.


def tell_surplus(rules: FieldRules, side: int, count: int, run: Run, path: Path) -> bool:
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


def tell_unpaired(rules: FieldRules, side: int, items: Unpaired, run: Run, path: Path) -> None:
    """Items that only one side has, in their order."""
    if not items:
        return
    for place, value in items:
        run.one_sided(side, place, value)
    if tell_surplus(rules, side, len(items), run, path):
        return
    rule = rules.text("array-mode") or rules.text("array-subset")
    for place, value in items:
        if side == NEW:
            run.error("ARRAY_ITEM_EXTRA", place, None, value, "The item is in New but not in Old", rule)
        else:
            run.error("ARRAY_ITEM_MISSING", place, value, None, "The item is in Old but not in New", rule)
