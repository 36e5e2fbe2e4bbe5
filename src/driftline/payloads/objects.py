"""Objects: members in Old's order, then what only New has.

Two loops with one meaning for a pair of members (`compare_members`): a quick one for objects whose members have the
same names on both sides, and a general one for ambiguous aliases and for ignores that differ between the sides.
"""

from __future__ import annotations

from typing import Any

from driftline.payloads.paths import Path
from driftline.payloads.plan import Compare, NodePlan
from driftline.payloads.run import CLOCK_MASK, Run
from driftline.payloads.type_checks import LEAF_TYPES, surely_admitted
from driftline.payloads.values import MISSING, NEW, OLD, union_leaf_count
from driftline.payloads.views import is_absent, sift

_NO_TYPES: frozenset[type] = frozenset()


def object_comparer(plan: NodePlan) -> Compare:
    """Compares two objects member by member."""
    quick = {name: quick_types(plan.member(name)) for name in _known_names(plan)}
    if plan.compiler.located or plan.states[OLD] is not plan.states[NEW] or not _renames_plainly(plan):
        return _renamed(plan, quick)
    return _renaming(plan, quick) if plan.aliases else _same_names(plan, quick, _required_check(plan))


def _renames_plainly(plan: NodePlan) -> bool:
    """Whether each alias holds in any case and the global ignores see both of its names alike."""
    return all(
        plan.member(name).condition is None and plan.states[OLD].step(raw) is plan.states[NEW].step(name)
        for raw, name in plan.aliases.items()
    )


def quick_types(plan: NodePlan) -> frozenset[type]:
    """The scalar types for which identical values need no rule to match."""
    rules = plan.rules
    if plan.removed_by or plan.condition or plan.choices or rules.problems or rules.strategy == "ignore":
        return _NO_TYPES
    if (
        rules.pattern
        or rules.enum_map is not None
        or rules.cast
        or (rules.texts and plan.compiler.config.trace_rule_application)
    ):
        return _NO_TYPES
    checked = plan.compiler.checks_types and rules.strategy != "exists"
    types = surely_admitted(plan.node.types) if checked else LEAF_TYPES
    return types - {type(None)} if plan.null_as_missing else types


def _known_names(plan: NodePlan) -> set[str]:
    return {*plan.node.properties, *plan.states[OLD].names, *plan.states[NEW].names}


def _same_names(plan: NodePlan, quick: dict[str, frozenset[type]], checks_required: bool) -> Compare:
    plans = {name: plan.member(name) for name in quick}
    # Without patterns all other names share one plan.
    unnamed = plan.member(_unknown_name(plan)) if not plan.node.patterns else None
    others = quick_types(unnamed) if unnamed is not None else _NO_TYPES
    types_of, plan_of = quick.get, plans.get
    direct_of = {name: child if _needs_no_pairing(child) else None for name, child in plans.items()}.get
    other = unnamed if unnamed is not None and _needs_no_pairing(unnamed) else None
    dropped = frozenset(name for name, child in plans.items() if _is_dropped(child))
    required = frozenset(plan.node.required)
    tracks_owner = plan.compiler.tracks_owners
    # Where an empty string can be a missing member, empty values take the slow way.
    keeps_empty = not plan.compiler.drops_empty_strings

    def compare(old: dict[str, Any], new: dict[str, Any], run: Run, path: Path) -> None:
        depth = run.depth = run.depth + 1
        run.steps = steps = run.steps + 1
        if depth > run.max_depth or not steps & CLOCK_MASK:
            run.check_limits()
        if tracks_owner:
            run.owners.append((plan, old, new))
        value_of = new.get
        same = paired = 0
        for name, left in old.items():
            right = value_of(name, MISSING)
            kind = type(left)
            is_same = kind in types_of(name, others) and left == right and kind is type(right)
            if is_same and (left or keeps_empty or kind is not str):
                same += 1
                continue
            if right is not MISSING:
                paired += 1
                if name in dropped:
                    run.ignored += union_leaf_count(left, right)
                    continue
                child = direct_of(name, other)
                if child is not None and left is not None and right is not None:
                    if kind is dict and type(right) is dict:
                        child.compare_objects(left, right, run, (path, name))
                        continue
                    if keeps_empty or (left != "" and right != ""):
                        child.compare(left, right, run, (path, name))
                        continue
            compare_members(plan_of(name) or unnamed or plan.member(name), name, left, right, run, path)
        run.checked += same
        if same + paired != len(new):
            for name, right in new.items():
                if name not in old:
                    compare_members(plan_of(name) or unnamed or plan.member(name), name, MISSING, right, run, path)
        elif not old:
            run.checked += 1
        if checks_required and not (old.keys() >= required and new.keys() >= required):
            _check_required(plan, old, new, old, new, run, path)
        run.depth -= 1
        if tracks_owner:
            run.owners.pop()

    return compare


def _renaming(plan: NodePlan, quick: dict[str, frozenset[type]]) -> Compare:
    """Renames Old's members first; both names of an alias in Old are left to the general way."""
    aliases, new_name = plan.aliases, plan.aliases.get
    same_names, otherwise = _same_names(plan, quick, False), _renamed(plan, quick)
    checks_required = _required_check(plan)

    def compare(old: dict[str, Any], new: dict[str, Any], run: Run, path: Path) -> None:
        renamed = {new_name(raw, raw): value for raw, value in old.items()}
        if len(renamed) != len(old) or any(raw in old and name in old for raw, name in aliases.items()):
            otherwise(old, new, run, path)
            return
        same_names(renamed, new, run, path)
        if checks_required:
            _check_required(plan, renamed, new, old, new, run, path)

    return compare


def _needs_no_pairing(plan: NodePlan) -> bool:
    """Whether two values other than null and empty strings can be compared at once: nothing ignores them."""
    return not (plan.removed_by or plan.condition or plan.rules.strategy == "ignore")


def _is_dropped(plan: NodePlan) -> bool:
    """Whether a member is ignored without a condition, and nobody wants to hear of it."""
    if plan.compiler.config.trace_rule_application or plan.condition is not None:
        return False
    return plan.removed_by is not None or plan.rules.strategy == "ignore"


def _unknown_name(plan: NodePlan) -> str:
    name = ""
    while name in plan.node.properties or name in plan.states[OLD].names:
        name += "_"
    return name


def _renamed(plan: NodePlan, quick: dict[str, frozenset[type]]) -> Compare:
    types_of = quick.get
    check_required = _required_check(plan)
    tracks_owner = plan.compiler.tracks_owners
    keeps_empty = not plan.compiler.drops_empty_strings

    def compare(old: dict[str, Any], new: dict[str, Any], run: Run, path: Path) -> None:
        run.enter()
        if tracks_owner:
            run.owners.append((plan, old, new))
        before = sift(plan, old, OLD, run, decide=True)
        after = sift(plan, new, NEW, run)
        _tell_removed(before.removed, after.removed, run, path)
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
            compare_members(child, name, left, right, run, path)
        for name, right in rights.items():
            if name not in before.members:
                compare_members(plan.member(name), name, MISSING, right, run, path)
        if not (old or new):
            run.checked += 1
        if check_required:
            _check_required(plan, before.members, rights, old, new, run, path)
        run.depth -= 1
        if tracks_owner:
            run.owners.pop()

    return compare


def _tell_removed(old: dict[str, tuple[Any, str]], new: dict[str, tuple[Any, str]], run: Run, path: Path) -> None:
    for name in {**old, **new}:
        left, rule = old.get(name, (MISSING, ""))
        right, other_rule = new.get(name, (MISSING, ""))
        run.ignored += union_leaf_count(left, right)
        run.note((path, name), rule or other_rule, "ignored")


def compare_members(plan: NodePlan, name: str, old: Any, new: Any, run: Run, path: Path) -> None:
    """One member of both sides; either may be `MISSING`."""
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


def _compare_one_sided(plan: NodePlan, name: str, old: Any, new: Any, run: Run, path: Path) -> None:
    rules = plan.rules
    if rules.default is not MISSING:
        _compare_with_default(plan, old, new, run, (path, name))
        return
    plan.compiler.announce(plan, run, (path, name))
    rule = rules.text("strategy") if rules.strategy == "exists" else None
    if new is MISSING:
        run.lost((path, name), old, rule)
    else:
        run.added((path, name), new, rule)


def _compare_with_default(plan: NodePlan, old: Any, new: Any, run: Run, path: Path) -> None:
    default = plan.rules.default
    rule = plan.rules.text("default") or ""
    side = OLD if old is MISSING else NEW
    known = len(run.diffs)
    run.note(path, rule, f"filled in {'old' if side == OLD else 'new'}")
    try:
        plan.compare(default if side == OLD else old, new if side == OLD else default, run, path)
    finally:
        # Entries show raw values: this side has none.
        for entry in run.diffs[known:]:
            if entry[("old_value", "new_value")[side]] is default:
                entry[("old_value", "new_value")[side]] = None
                entry["message"] += f" ({('Old', 'New')[side]} is missing, {rule})"
                entry.setdefault("rule_applied", rule)


def _required_check(plan: NodePlan) -> bool:
    return bool(plan.node.required) and plan.compiler.checks_types


def _check_required(
    plan: NodePlan, old: dict[str, Any], new: dict[str, Any], raw_old: Any, raw_new: Any, run: Run, path: Path
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
