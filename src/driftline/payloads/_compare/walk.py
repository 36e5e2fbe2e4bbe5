"""The walk over two payloads: what each plan compares by, and the members of objects, in Old's order, then New's.

Names, presence, null, defaults, aliases, ignores and required members are decided here. Where many objects come by, a
generated function goes ahead of it, which only decides when two objects surely match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from driftline.payloads._compare.arrays import array_comparer
from driftline.payloads._compare.leaves import fast_types, is_decided, is_ignored, leaf_comparer, sure_types
from driftline.payloads._compare.plan import Compare, ContainerCompare, Match, NodePlan, Plans, SchemaSettings
from driftline.payloads._compare.report import Owner, Run
from driftline.payloads._compare.sides import choose, has_plain_names, is_absent, parse_condition, sift
from driftline.payloads._values.paths import Path
from driftline.payloads._values.values import MISSING, NEW, OLD, Json, Value, admits, kind_of, union_leaf_count

_NOT_RENAMED: dict[str, str] = {}
# Checked leaves, and ignored leaves times `IGNORED_LEAF`, of two objects that surely match; or -1.
Tally = Callable[[dict[str, Json], dict[str, Json]], int]

OBJECTS_BEFORE_CODE = 16  # generating a function takes as long as comparing some dozens of objects
MAX_ATTEMPTS = 32  # at a function for objects that have none yet
MAX_MEMBERS = 200
NESTED_LEVELS = 2  # objects inside objects that are matched along
IGNORED_LEAF = 1 << 32
_SMALL = 1e6


def compile_root(settings: SchemaSettings) -> Plans:
    """The plans of one root of a document; their functions are built when payloads get to them."""
    return Plans(settings, parse_condition, build)


def build(plan: NodePlan) -> None:
    """Give a plan its functions: condition, choices, then the rules of the node."""
    compare = plan.compare_containers = _node_comparer(plan)
    if plan.condition is not None:
        compare = partial(_decide, plan)
    elif is_ignored(plan):
        compare = partial(_ignore, plan)
    elif plan.choices:
        compare = partial(_choose, plan)
    else:
        compare = _present if plan.rules.strategy == "exists" else compare
        is_traced = plan.settings.config.trace_rule_application and plan.rules.texts
        compare = partial(_trace, plan, compare) if is_traced else compare
    plan.compare = partial(_announce, plan, compare) if plan.rules.problems else compare


def _node_comparer(plan: NodePlan) -> Compare:
    """The comparer by the rules of a node; that of objects or arrays is made when a payload first has one here."""
    leaf, is_observed = leaf_comparer(plan), plan.settings.is_observed
    objects: ContainerCompare | None = None
    arrays: ContainerCompare | None = None

    def compare(old: Value, new: Value, run: Run, path: Path) -> None:
        nonlocal objects, arrays
        kind = type(old)
        if kind is dict is type(new):
            if objects is None:
                objects = _guarded(plan, _object_comparer(plan), dict)
            objects(old, new, run, path)
        elif kind is list is type(new):
            if arrays is None:
                arrays = _guarded(plan, array_comparer(plan), list)
            arrays(old, new, run, path)
        else:
            if is_observed and run.observer is not None:
                run.observer.leaf(path, old, new, plan.meaning)
            leaf(old, new, run, path)

    return compare


def _guarded(plan: NodePlan, comparer: ContainerCompare, kind: type) -> ContainerCompare:
    """The comparer of a container, after a report of what the schema does not allow here."""
    types = plan.node.types
    is_wrong = types is not None and plan.settings.checks_types and not admits(types, kind())
    if not is_wrong and "cast" not in plan.rules.scalars:
        return comparer

    def compare(old: Value, new: Value, run: Run, path: Path) -> None:
        if is_wrong:
            run.wrong_type(path, old, new, [OLD, NEW], types or frozenset())
        if "cast" in plan.rules.scalars:
            message = "The cast failed (not a scalar); the raw values are compared"
            run.warn("RULE_ERROR", path, message, plan.rules.text("cast"))
        comparer(old, new, run, path)

    return compare


def _choose(plan: NodePlan, old: Value, new: Value, run: Run, path: Path) -> None:
    """Choose the branches for a pair, then compare with them folded in."""
    chosen = choose(plan, [(old, OLD), (new, NEW)], run)
    if kind_of(old) == kind_of(new) and plan.settings.checks_types:
        _check_branches(plan, old, new, run, path)
    chosen.compare(old, new, run, path)


def _check_branches(plan: NodePlan, old: Value, new: Value, run: Run, path: Path) -> None:
    """A value whose type no branch admits is of a wrong type."""
    types: set[str] = set()
    for choice in plan.choices:
        for number in range(len(choice.branches)):
            branch = plan.chosen(choice, number).node
            if branch.types is None:
                return
            types |= branch.types
        if choice.allows_null:
            types.add("null")
    allowed = frozenset(types)
    wrong = [side for side, value in ((OLD, old), (NEW, new)) if not admits(allowed, value)]
    if wrong and not (old is None and (plan.null_as_missing or plan.empty_as_null)):
        run.schema_mismatch(path, old, new, wrong, f"no branch admits it (types: {', '.join(sorted(allowed))})")


def _present(old: Value, new: Value, run: Run, path: Path) -> None:
    """`exists`: both are present, no descent."""
    run.checked += 1


def _ignore(plan: NodePlan, old: Value, new: Value, run: Run, path: Path) -> None:
    run.ignored += union_leaf_count(old, new)
    run.note(path, plan.removed_by or plan.rules.text("strategy") or "", "ignored")


def _decide(plan: NodePlan, old: Value, new: Value, run: Run, path: Path) -> None:
    plan.for_pair(run, path).compare(old, new, run, path)


def _announce(plan: NodePlan, compare: Compare, old: Value, new: Value, run: Run, path: Path) -> None:
    plan.announce(run, path)
    compare(old, new, run, path)


def _trace(plan: NodePlan, compare: Compare, old: Value, new: Value, run: Run, path: Path) -> None:
    known = len(run.diffs)
    try:
        compare(old, new, run, path)
    finally:
        outcome = "match" if len(run.diffs) == known else "mismatch"
        for rule in plan.rules.texts.values():
            run.note(path, rule, outcome)


# Objects.
class _Member(NamedTuple):
    """What is known of a member by its name."""

    types: frozenset[type]  # of which identical values match
    direct: NodePlan | None  # its plan, where, null and empty strings aside, nothing else decides


def _object_comparer(plan: NodePlan) -> ContainerCompare:
    """Compares two objects; those of a shape that comes by often are matched at once."""
    walk = plan.walk = _walk(plan)
    match = plan.match = _shape_match(plan)
    if match is None:
        return walk

    def compare(old: dict[str, Json], new: dict[str, Json], run: Run, path: Path) -> None:
        if not match(old, new, run):
            walk(old, new, run, path)

    return compare


def _walk(plan: NodePlan) -> ContainerCompare:
    """The walk over the members of two objects."""
    aliases, tracks_owner, is_observed = plan.aliases, plan.settings.tracks_owners, plan.settings.is_observed
    has_names = has_plain_names(plan) and not (is_observed and aliases)
    required = frozenset(plan.node.required) if plan.settings.checks_types else frozenset()
    compare_pairs = _pairs_walk(plan, has_names)

    def compare(old: dict[str, Json], new: dict[str, Json], run: Run, path: Path) -> None:
        run.enter()
        if tracks_owner:
            run.owners.append(Owner(plan, old, new))
        lefts, rights, renamed = old, new, _NOT_RENAMED
        if not has_names or (aliases and any(raw in old and name in old for raw, name in aliases.items())):
            lefts, rights, renamed = _sifted(plan, old, new, run, path)
        elif aliases:
            lefts = {aliases.get(raw, raw): value for raw, value in old.items()}
        if is_observed and run.observer is not None:
            run.observer.members(path, old, new, renamed)
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


def _pairs_walk(plan: NodePlan, has_names: bool) -> Callable[..., int]:
    """Compares what Old has with what New has of the same name; says how many members both have."""
    known, learn = _learner(plan, has_names)
    known_as = known.get
    # Where no member has a name of its own, none needs to be looked up.
    has_own = plan.node.properties or plan.states[OLD].names or plan.states[NEW].names or plan.node.patterns
    other = learn("") if has_names and not has_own else None
    # Where an empty string can be a missing member, empty values take the long way.
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
                is_there = left is not None and right is not None
                if direct is not None and is_there and (keeps_empty or (left != "" and right != "")):
                    direct.compare(left, right, run, (path, name))
                    continue
            _compare_members(plan.member(name, renamed.get(name)), name, left, right, run, path)
        run.checked += same
        return same + paired

    return compare


def _learner(plan: NodePlan, has_names: bool) -> tuple[dict[str, _Member], Callable[[str], _Member]]:
    """Finds what is known of a member when a payload first has it; not all that a schema declares come by."""
    known: dict[str, _Member] = {}

    def learn(name: str) -> _Member:
        if not has_names and name not in plan.node.properties and name not in plan.states[OLD].members:
            return _Member(frozenset(), None)
        child = plan.member(name)
        is_direct = has_names and not (child.condition or is_ignored(child))
        found = _Member(fast_types(child), child if is_direct else None)
        if len(known) < plan.MAX_NAMES:
            known[name] = found
        return found

    return known, learn


def _sifted(
    plan: NodePlan, old: dict[str, Json], new: dict[str, Json], run: Run, path: Path
) -> tuple[dict[str, Json], dict[str, Json], dict[str, str]]:
    """Both sides under New's names without what is ignored, and Old's names of renamed members."""
    before, after = sift(plan, old, OLD, run, decide=True), sift(plan, new, NEW, run)
    for name in {**before.removed, **after.removed}:
        left, rule = before.removed.get(name, (MISSING, ""))
        right, other_rule = after.removed.get(name, (MISSING, ""))
        run.ignored += union_leaf_count(left, right)
        run.note((path, name), rule or other_rule, "ignored")
    for raw, name in before.conflicts:
        message = f"Old has both {raw} and {name}; the value of {name} is used"
        run.warn("RULE_ERROR", (path, name), message, plan.member(name).rules.text("alias"))
    return before.members, after.members, before.renamed


def _compare_members(plan: NodePlan, name: str, old: Value, new: Value, run: Run, path: Path) -> None:
    """Compares one member of both sides; either may be `MISSING`."""
    if plan.removed_by is None:
        plan = plan.for_pair(run, (path, name))
    if is_ignored(plan):
        _ignore(plan, old, new, run, (path, name))
        return
    has_old = old is not MISSING and not is_absent(plan, old)
    has_new = new is not MISSING and not is_absent(plan, new)
    if has_old and has_new:
        plan.compare(old, new, run, (path, name))
    elif (has_old or has_new) and plan.rules.default is not MISSING:
        _compare_with_default(plan, old if has_old else MISSING, new if has_new else MISSING, run, (path, name))
    elif has_old or has_new:
        plan.announce(run, (path, name))
        if has_new and plan.context.allow_new:
            run.allowed((path, name), new)
        else:
            rule = plan.rules.text("strategy") if plan.rules.strategy == "exists" else None
            run.lone((path, name), old if has_old else MISSING, new if has_new else MISSING, rule)


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


# Objects of a shape that came by before: a generated function says at once whether two of them match. Its text is made
# of fixed lines and numbers; names and values of the schema are only ever constants in its namespace. It has nothing
# but surely matching members of one shape; all else, and everything that needs an entry, is left to the walk.
_FUNCTION = """
def tally(old, new):
    if not len(old) == {count} == len(new):
        return -1
    leaves = {leaves}
    try:
{members}
    except KeyError:
        return -1
    return leaves
"""
_MEMBER = """
        left = old[{old_name}]
        right = new[{name}]
"""
_LEAF = """
        if not ({test}):
            return -1
"""
_NESTED = """
        if not (type(left) is dict is type(right) and (below := {tally}(left, right)) >= 0):
            return -1
        leaves += below
"""
_IGNORED = """
        leaves += {one} if type(left) is str is type(right) else {one} * union_leaf_count(left, right)
"""


def _shape_match(plan: NodePlan) -> Match | None:
    """A function that counts two objects where they surely match, and says whether it did; None where it never could.

    It counts no levels, so that it leaves objects near the limit of the depth to the walk.
    """
    if not _is_plain_object(plan) or not (plan.node.properties or plan.states[OLD].members):
        return None
    find = _finder(plan)
    last: Tally = _never
    quick_depth = plan.settings.config.max_depth - NESTED_LEVELS

    def match(old: dict[str, Json], new: dict[str, Json], run: Run) -> bool:
        nonlocal last
        if run.depth >= quick_depth:
            return False
        # A function recognises its objects by the names of their members, so that the last one is tried at once.
        tally = last(old, new)
        if tally < 0:
            found = find(old)
            if found is last or (tally := found(old, new)) < 0:
                return False
            last = found
        if tally < IGNORED_LEAF:
            run.checked += tally
        else:
            run.checked += tally % IGNORED_LEAF
            run.ignored += tally // IGNORED_LEAF
        return True

    return match


def _never(_old: dict[str, Json], _new: dict[str, Json]) -> int:
    return -1


def _finder(plan: NodePlan) -> Callable[[dict[str, Json]], Tally]:
    """Finds the function for the shape of an object, which is made when enough objects have come by."""
    known: dict[tuple[str, ...], Tally] = {}
    seen = 0

    def find(old: dict[str, Json]) -> Tally:
        nonlocal seen
        shape = tuple(old)
        found = known.get(shape)
        if found is None:
            seen += 1
            if OBJECTS_BEFORE_CODE < seen <= OBJECTS_BEFORE_CODE + MAX_ATTEMPTS:
                found = _generated(plan, old, NESTED_LEVELS)
                if found is not None:
                    known[shape] = found
        return found or _never

    return find


def _is_plain_object(plan: NodePlan) -> bool:
    """Whether objects are compared member by member here, and nothing else is reported."""
    types, rules = plan.node.types, plan.rules
    if not is_decided(plan) or not has_plain_names(plan) or plan.settings.config.trace_rule_application:
        return False
    if "cast" in rules.scalars or rules.strategy == "exists":
        return False
    return types is None or "object" in types or not plan.settings.checks_types


def _generated(plan: NodePlan, sample: dict[str, Json], levels: int) -> Tally | None:
    """The function for objects with the members of a sample."""
    names = [plan.aliases.get(raw, raw) for raw in sample]
    required = plan.node.required if plan.settings.checks_types else ()
    if not 0 < len(set(names)) == len(sample) <= MAX_MEMBERS or not set(names).issuperset(required):
        return None
    # A dict and no subclass: the interpreter looks up globals quickly only there.
    constants: dict[str, Any] = {"union_leaf_count": union_leaf_count}
    members: list[str] = []
    leaves = 0
    for (raw, value), name in zip(sample.items(), names, strict=True):
        child = plan.member(name)
        lines = _IGNORED.format(one=IGNORED_LEAF) if is_ignored(child) else None
        if lines is None and type(value) is dict and levels and _is_plain_object(child):
            nested = _generated(child, value, levels - 1)
            lines = None if nested is None else _NESTED.format(tally=_constant(constants, nested))
        elif lines is None and (test := _leaf_test(child, value, constants)) is not None:
            lines, leaves = _LEAF.format(test=test), leaves + 1
        if lines is None:
            return None
        members += _MEMBER.format(old_name=_constant(constants, raw), name=_constant(constants, name)), lines
    source = _FUNCTION.format(count=len(sample), leaves=leaves, members="".join(members))
    exec(compile(source, "<driftline match>", "exec"), constants)  # noqa: S102 - fixed lines, see above
    tally: Tally = constants["tally"]
    return tally


def _constant(constants: dict[str, Any], value: object) -> str:
    name = f"c{len(constants)}"
    constants[name] = value
    return name


def _leaf_test(plan: NodePlan, sample: Json, constants: dict[str, Any]) -> str | None:
    """An expression that is true only where two values surely match; None where only the comparison can decide."""
    if not is_decided(plan):
        return None
    # Null is left to the comparison, and so is an empty string where it can be a missing member.
    drops_empty = plan.settings.drops_empty_strings
    if plan.rules.strategy == "exists":
        return "left is not None is not right" + (" and left != '' != right" if drops_empty else "")
    meaning, types = plan.meaning, sure_types(plan) - {type(None)}
    if type(sample) not in types:
        return None
    held, tests = _constant(constants, types), []
    if meaning.near is not None and type(sample) is float:
        # The error of doubles is below 1e-15 of both values: of small ones it is known beforehand.
        small = min(_SMALL, meaning.near / 4e-15)
        apart = meaning.near - (2 * small + meaning.near) * 1e-15
        low, high, least, most = (_constant(constants, each) for each in (-apart, apart, -small, small))
        is_near = f"{low} < left - right < {high} and {least} < left < {most}"
        tests.append(f"type(left) is float is type(right) and {is_near}")
    if meaning.keeps_equal:
        kind, is_text = _constant(constants, type(sample)), type(sample) is str
        same = "left == right" if is_text else "type(right) is type(left) and left == right"
        tests.append(f"type(left) is {kind} and {same}{' and left' if is_text and drops_empty else ''}")
        if len(types) > 1:
            empty = " and left != ''" if drops_empty else ""
            tests.append(f"type(left) in {held} and type(left) is type(right) and left == right{empty}")
    if meaning.quick_text is not None and str in types:
        text = _constant(constants, meaning.quick_text)
        tests.append(f"type(left) is str is type(right) and left and right and {text}(left) == {text}(right)")
    if not meaning.is_plain:
        empty = " and left != '' != right" if drops_empty else ""
        agree = _constant(constants, meaning.agree)
        tests.append(f"type(left) in {held} and type(right) in {held}{empty} and {agree}(left, right)")
    return " or ".join(tests) or None
