"""Arrays: sorted first where asked, then compared by index, as a multiset or by key."""

from __future__ import annotations

from collections.abc import Callable

from driftline.payloads.keyed_arrays import keyed_items
from driftline.payloads.leaves import fast_types
from driftline.payloads.paths import Path
from driftline.payloads.plan import ContainerCompare, NodePlan
from driftline.payloads.run import STEPS_BETWEEN_CLOCK_LOOKS, Run
from driftline.payloads.unordered_arrays import tell_surplus, unordered_items
from driftline.payloads.values import MISSING, NEW, OLD, Json, union_leaf_count
from driftline.payloads.views import arranged, sorted_items

Items = Callable[[list[Json], list[Json], Run, Path], None]


def array_comparer(plan: NodePlan) -> ContainerCompare:
    """Compares two arrays in the mode of their rules."""
    items = _mode(plan)
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


def _mode(plan: NodePlan) -> Items:
    if plan.rules.array_mode == "keyed":
        return keyed_items(plan)
    if plan.rules.array_mode == "unordered" or plan.rules.subset:
        return unordered_items(plan)
    return strict_items(plan)


def _count_removed(item: NodePlan, old: list[Json], new: list[Json], run: Run, path: Path) -> None:
    """Items that an ignore takes away as a whole."""
    left = old if _is_removed(item, OLD) else MISSING
    right = new if _is_removed(item, NEW) else MISSING
    if left or right:
        run.ignored += union_leaf_count(left or MISSING, right or MISSING)
        run.note(path, item.removed_by or item.rules.text("strategy") or "x-migration-global-ignores", "ignored")


def _is_removed(item: NodePlan, side: int) -> bool:
    return item.states[side].removed_by is not None or (item.condition is None and item.rules.strategy == "ignore")


def strict_items(plan: NodePlan) -> Items:
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
                    item.compare_objects(left, right, run, (path, index))
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
    if not tell_surplus(plan.rules, side, len(surplus), run, path):
        message = f"Array lengths differ: {len(old)} != {len(new)}"
        run.error("ARRAY_LENGTH_MISMATCH", path, old, new, message, plan.rules.text("array-mode"))
