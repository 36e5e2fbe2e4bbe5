"""Objects: members in Old's order, then what only New has.

Two loops with one rule for a pair of members (`_compare_members`): a quick one for objects whose members have the
same names on both sides, and a general one for ambiguous aliases and for ignores that differ between the sides.
"""

from __future__ import annotations

from typing import Any

from driftline.payloads._compare.generated import (
    ComparePair,
    Rest,
    fast_match,
    has_plain_names,
    is_ignored,
    object_code,
    renames_plainly,
)
from driftline.payloads._compare.leaves import fast_types
from driftline.payloads._compare.plan import ContainerCompare, NodePlan
from driftline.payloads._compare.report import NESTED_LEVELS, Owner, Run
from driftline.payloads._compare.sides import is_absent, sift
from driftline.payloads._values.paths import Path
from driftline.payloads._values.values import MISSING, NEW, OLD, Json, Value, union_leaf_count

OBJECTS_BEFORE_CODE = 16  # generating a function takes as long as comparing some dozens of objects

_NO_TYPES: frozenset[type] = frozenset()
_NO_NAMES: frozenset[str] = frozenset()


def object_comparer(plan: NodePlan) -> ContainerCompare:
    """Compares two objects member by member."""
    quick = {name: fast_types(plan.member(name)) for name in _known_names(plan)}
    if plan.settings.located or plan.states[OLD] is not plan.states[NEW] or not renames_plainly(plan):
        return _renamed(plan, quick)
    rest = _rest(plan, quick)
    return _warming_up(plan, _looping(plan, rest, _renamed(plan, quick)), rest)


def _warming_up(plan: NodePlan, loop: ContainerCompare, rest: Rest) -> ContainerCompare:
    """The loop at first; a generated function once it is clear that there will be many objects."""
    if not has_plain_names(plan):
        return loop
    seen, chosen = 0, loop

    def compare(old: dict[str, Json], new: dict[str, Json], run: Run, path: Path) -> None:
        nonlocal seen, chosen
        if chosen is loop:
            seen += 1
            if seen > OBJECTS_BEFORE_CODE:
                chosen = object_code(plan, _pair_comparer(plan), rest, loop)
                plan.fast_match = fast_match(plan, NESTED_LEVELS + 1)
                if plan.compare_objects is compare:
                    plan.compare_objects = chosen
        chosen(old, new, run, path)

    return compare


def _known_names(plan: NodePlan) -> set[str]:
    return {*plan.node.properties, *plan.states[OLD].members, *plan.states[NEW].members}


def _looping(plan: NodePlan, rest: Rest, with_both_names: ContainerCompare) -> ContainerCompare:
    """All members by the loop; both names of an alias in Old are left to the general way."""
    aliases = plan.aliases
    tracks_owner = plan.settings.tracks_owners

    def compare(old: dict[str, Json], new: dict[str, Json], run: Run, path: Path) -> None:
        if aliases and any(raw in old and name in old for raw, name in aliases.items()):
            with_both_names(old, new, run, path)
            return
        run.enter()
        if tracks_owner:
            run.owners.append(Owner(plan, old, new))
        rest(old, new, _NO_NAMES, (), run, path)
        run.depth -= 1
        if tracks_owner:
            run.owners.pop()

    return compare


def _rest(plan: NodePlan, quick: dict[str, frozenset[type]]) -> Rest:
    """Compares all members but those that are known and not open."""
    unnamed = plan.other_member()
    others = fast_types(unnamed) if unnamed is not None else _NO_TYPES
    types_of, new_name = quick.get, plan.aliases.get
    compare_pair = _pair_comparer(plan)
    required = frozenset(plan.node.required) if plan.settings.checks_types else frozenset()
    # Where an empty string can be a missing member, empty values take the slow way.
    keeps_empty = not plan.settings.drops_empty_strings

    def compare(
        old: dict[str, Json],
        new: dict[str, Json],
        known: frozenset[str],
        still_open: tuple[str, ...],
        run: Run,
        path: Path,
    ) -> None:
        raw_old = old
        if plan.aliases:
            old = {new_name(raw, raw): value for raw, value in old.items()}
        value_of = new.get
        same = paired = 0
        for name, left in old.items():
            if name in known and name not in still_open:
                paired += 1
                continue
            right = value_of(name, MISSING)
            kind = type(left)
            is_same = kind in types_of(name, others) and left == right and kind is type(right)
            if is_same and (left or keeps_empty or kind is not str):
                same += 1
            elif right is MISSING:
                _compare_members(plan.member(name), name, left, MISSING, run, path)
            else:
                paired += 1
                compare_pair(name, left, right, run, path)
        run.checked += same
        if same + paired != len(new):
            for name, right in new.items():
                if name not in old:
                    _compare_members(plan.member(name), name, MISSING, right, run, path)
        elif not old:
            run.checked += 1
        if required and not (old.keys() >= required and new.keys() >= required):
            _check_required(plan, old, new, raw_old, new, run, path)

    return compare


def _pair_comparer(plan: NodePlan) -> ComparePair:
    """Compares a member that both sides have, at once where nothing but its own rules decides."""
    plans = {name: plan.member(name) for name in _known_names(plan)}
    unnamed = plan.other_member()
    direct_of = {name: child if _needs_no_pairing(child) else None for name, child in plans.items()}.get
    other = unnamed if unnamed is not None and _needs_no_pairing(unnamed) else None
    dropped = frozenset(name for name, child in plans.items() if is_ignored(child))
    keeps_empty = not plan.settings.drops_empty_strings

    def compare(name: str, left: Json, right: Json, run: Run, path: Path) -> None:
        if name in dropped:
            run.ignored += union_leaf_count(left, right)
            return
        child = direct_of(name, other)
        if child is None or left is None or right is None:
            _compare_members(plan.member(name), name, left, right, run, path)
        elif type(left) is dict and type(right) is dict:
            child.compare_objects(left, right, run, (path, name))
        elif keeps_empty or (left != "" and right != ""):
            child.compare(left, right, run, (path, name))
        else:
            _compare_members(plan.member(name), name, left, right, run, path)

    return compare


def _needs_no_pairing(plan: NodePlan) -> bool:
    """Whether two values other than null and empty strings can be compared at once: nothing ignores them."""
    return not (plan.removed_by or plan.condition or plan.rules.strategy == "ignore")


def _renamed(plan: NodePlan, quick: dict[str, frozenset[type]]) -> ContainerCompare:
    types_of = quick.get
    check_required = _required_check(plan)
    tracks_owner = plan.settings.tracks_owners
    keeps_empty = not plan.settings.drops_empty_strings

    def compare(old: dict[str, Json], new: dict[str, Json], run: Run, path: Path) -> None:
        run.enter()
        if tracks_owner:
            run.owners.append(Owner(plan, old, new))
        before = sift(plan, old, OLD, run, decide=True)
        after = sift(plan, new, NEW, run)
        _report_removed(before.removed, after.removed, run, path)
        for raw, name in before.conflicts:
            message = f"Old has both {raw} and {name}; the value of {name} is used"
            run.warn("RULE_ERROR", (path, name), message, plan.member(name).rules.text("alias"))
        rights = after.members
        for name, left in before.members.items():
            right = rights.get(name, MISSING)
            kind = type(left)
            is_same = kind in types_of(name, _NO_TYPES) and left == right and kind is type(right)
            if is_same and (left or keeps_empty or kind is not str):
                run.checked += 1
                continue
            child = plan.member(name, before.renamed.get(name))
            _compare_members(child, name, left, right, run, path)
        for name, right in rights.items():
            if name not in before.members:
                _compare_members(plan.member(name), name, MISSING, right, run, path)
        if not (old or new):
            run.checked += 1
        if check_required:
            _check_required(plan, before.members, rights, old, new, run, path)
        run.depth -= 1
        if tracks_owner:
            run.owners.pop()

    return compare


def _report_removed(old: dict[str, tuple[Any, str]], new: dict[str, tuple[Any, str]], run: Run, path: Path) -> None:
    for name in {**old, **new}:
        left, rule = old.get(name, (MISSING, ""))
        right, other_rule = new.get(name, (MISSING, ""))
        run.ignored += union_leaf_count(left, right)
        run.note((path, name), rule or other_rule, "ignored")


def _compare_members(plan: NodePlan, name: str, old: Value, new: Value, run: Run, path: Path) -> None:
    """Compares one member of both sides; either may be `MISSING`."""
    if plan.removed_by is not None:
        run.ignored += union_leaf_count(old, new)
        if run.trace is not None:
            run.note((path, name), plan.removed_by, "ignored")
        return
    if plan.condition is not None:
        plan = plan.decided(plan.condition.decide(run, (path, name), plan.rules))
    rules = plan.rules
    if rules.strategy == "ignore":
        run.ignored += union_leaf_count(old, new)
        run.note((path, name), rules.text("strategy") or "", "ignored")
        return
    has_old = old is not MISSING and not is_absent(plan, old)
    has_new = new is not MISSING and not is_absent(plan, new)
    if has_old and has_new:
        plan.compare(old, new, run, (path, name))
    elif has_old or has_new:
        _compare_one_sided(plan, name, old if has_old else MISSING, new if has_new else MISSING, run, path)


def _compare_one_sided(plan: NodePlan, name: str, old: Value, new: Value, run: Run, path: Path) -> None:
    rules = plan.rules
    if rules.default is not MISSING:
        _compare_with_default(plan, old, new, run, (path, name))
        return
    plan.announce(run, (path, name))
    rule = rules.text("strategy") if rules.strategy == "exists" else None
    if new is MISSING:
        run.lost((path, name), old, rule)
    else:
        run.added((path, name), new, rule)


def _compare_with_default(plan: NodePlan, old: Value, new: Value, run: Run, path: Path) -> None:
    default = plan.rules.default
    rule = plan.rules.text("default") or ""
    side = OLD if old is MISSING else NEW
    known = len(run.diffs)
    run.note(path, rule, f"filled in {'old' if side == OLD else 'new'}")
    try:
        plan.compare(default if side == OLD else old, new if side == OLD else default, run, path)
    finally:
        # Entries show raw values: this side has none, neither here nor below.
        note = f" ({('Old', 'New')[side]} is missing, "
        for entry in run.diffs[known:]:
            entry[("old_value", "new_value")[side]] = None
            if note not in entry["message"]:  # a default further down is noted already
                entry["message"] += f"{note}{rule})"
                entry.setdefault("rule_applied", rule)


def _required_check(plan: NodePlan) -> bool:
    return bool(plan.node.required) and plan.settings.checks_types


def _check_required(
    plan: NodePlan, old: dict[str, Json], new: dict[str, Json], raw_old: Any, raw_new: Any, run: Run, path: Path
) -> None:
    """A required member is there, has a default, or is removed from both sides anyway."""
    for name in plan.node.required:
        lacking = [side for side, members in ((OLD, old), (NEW, new)) if name not in members]
        if not lacking:
            continue
        child = plan.member(name)
        if child.removed_by or child.rules.strategy == "ignore" or child.rules.default is not MISSING:
            continue
        lacking = [side for side in lacking if child.states[side].removed_by is None]
        if lacking:
            run.schema_mismatch(path, raw_old, raw_new, lacking, f"the required member {name} is missing")
