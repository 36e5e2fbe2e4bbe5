"""Objects: members in Old's order, then what only New has.

One walk decides about members: names, presence, ignores, defaults and required ones. A generated function
(`generated.py`) goes ahead of it where many objects come by; it only knows when two objects surely match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from driftline.payloads._compare.generated import fast_match, has_plain_names
from driftline.payloads._compare.leaves import fast_types
from driftline.payloads._compare.plan import ContainerCompare, NodePlan
from driftline.payloads._compare.report import NESTED_LEVELS, Owner, Run
from driftline.payloads._compare.sides import is_absent, sift
from driftline.payloads._values.paths import Path
from driftline.payloads._values.values import MISSING, NEW, OLD, Json, Value, union_leaf_count

OBJECTS_BEFORE_CODE = 16  # generating a function takes as long as comparing some dozens of objects


class _Member(NamedTuple):
    """What is known of a member by its name: when equal values need no rule, and its plan if that alone decides."""

    types: frozenset[type]
    direct: NodePlan | None


_UNKNOWN = _Member(frozenset(), None)
_NOT_RENAMED: Mapping[str, str] = {}
_MAX_NAMES = 4096  # that are known by name; a payload may have any number of others


def object_comparer(plan: NodePlan) -> ContainerCompare:
    """Compares two objects member by member."""
    walk = plan.walk = _walk(plan)
    if not has_plain_names(plan):
        return walk
    seen = 0

    def compare(old: dict[str, Json], new: dict[str, Json], run: Run, path: Path) -> None:
        nonlocal seen
        if plan.fast_match is not None and run.depth < run.quick_depth:
            tally = plan.fast_match(old, new)
            if tally >= 0:
                run.add(tally)
                return
        elif seen <= OBJECTS_BEFORE_CODE:
            seen += 1
            if seen > OBJECTS_BEFORE_CODE:
                plan.fast_match = fast_match(plan, NESTED_LEVELS + 1)
        walk(old, new, run, path)

    return compare


def _walk(plan: NodePlan) -> ContainerCompare:
    """The walk over the members of two objects."""
    aliases, tracks_owner = plan.aliases, plan.settings.tracks_owners
    has_names = has_plain_names(plan)
    compare_pairs = _pairs_walk(plan)
    required = frozenset(plan.node.required) if plan.settings.checks_types else frozenset()

    def compare(old: dict[str, Json], new: dict[str, Json], run: Run, path: Path) -> None:
        run.enter()
        if tracks_owner:
            run.owners.append(Owner(plan, old, new))
        lefts, rights, renamed = old, new, _NOT_RENAMED
        if not has_names or (aliases and any(raw in old and name in old for raw, name in aliases.items())):
            lefts, rights, renamed = _sifted(plan, old, new, run, path)
        elif aliases:
            lefts = {aliases.get(raw, raw): value for raw, value in old.items()}
        if compare_pairs(lefts, rights, renamed, run, path) != len(rights):
            for name, right in rights.items():
                if name not in lefts:
                    _compare_members(plan.member(name), name, MISSING, right, run, path)
        if not (old or new):
            run.checked += 1
        if required and not (lefts.keys() >= required and rights.keys() >= required):
            _check_required(plan, lefts, rights, old, new, run, path)
        run.depth -= 1
        if tracks_owner:
            run.owners.pop()

    return compare


def _pairs_walk(plan: NodePlan) -> Callable[..., int]:
    """Compares what Old has with what New has of the same name; says how many members both have."""
    known: dict[str, _Member] = {}
    known_as, learn = known.get, _learner(plan, known)
    # Where no member has a name of its own, none needs to be looked up.
    other = None if _own_names(plan) or not has_plain_names(plan) else learn("")
    # Where an empty string can be a missing member, empty values take the slow way.
    keeps_empty = not plan.settings.drops_empty_strings

    def compare(
        lefts: dict[str, Json], rights: dict[str, Json], renamed: Mapping[str, str], run: Run, path: Path
    ) -> int:
        same = paired = 0
        value_of = rights.get
        for name, left in lefts.items():
            types, direct = known_as(name, other) or learn(name)
            right = value_of(name, MISSING)
            kind = type(left)
            if kind in types and left == right and kind is type(right) and (left or keeps_empty or kind is not str):
                same += 1
                continue
            if right is not MISSING:
                paired += 1
                if direct is not None and left is not None and right is not None:
                    if kind is dict is type(right):
                        direct.compare_objects(left, right, run, (path, name))
                        continue
                    if keeps_empty or (left != "" and right != ""):
                        direct.compare(left, right, run, (path, name))
                        continue
            _compare_members(plan.member(name, renamed.get(name)), name, left, right, run, path)
        run.checked += same
        return same + paired

    return compare


def _own_names(plan: NodePlan) -> bool:
    return bool(plan.node.properties or plan.states[OLD].names or plan.states[NEW].names or plan.node.patterns)


def _learner(plan: NodePlan, known: dict[str, _Member]) -> Callable[[str], _Member]:
    """Finds what is known of a member when a payload first has it; not all that a schema declares come by."""
    has_names = has_plain_names(plan)

    def learn(name: str) -> _Member:
        if not has_names and name not in plan.node.properties and name not in plan.states[OLD].members:
            return _UNKNOWN
        child = plan.member(name)
        # Nothing ignores it; null and empty strings aside, nothing but its own rules decides.
        is_direct = has_names and not (child.removed_by or child.condition or child.rules.strategy == "ignore")
        found = _Member(fast_types(child), child if is_direct else None)
        if len(known) < _MAX_NAMES:
            known[name] = found
        return found

    return learn


def _sifted(
    plan: NodePlan, old: dict[str, Json], new: dict[str, Json], run: Run, path: Path
) -> tuple[dict[str, Json], dict[str, Json], dict[str, str]]:
    """Both sides under New's names without what is ignored, and Old's names of renamed members."""
    before, after = sift(plan, old, OLD, run, decide=True), sift(plan, new, NEW, run)
    _report_removed(before.removed, after.removed, run, path)
    for raw, name in before.conflicts:
        message = f"Old has both {raw} and {name}; the value of {name} is used"
        run.warn("RULE_ERROR", (path, name), message, plan.member(name).rules.text("alias"))
    return before.members, after.members, before.renamed


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
    if new is not MISSING and plan.context.allow_new:
        run.allowed((path, name), new)
    elif new is MISSING:
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
