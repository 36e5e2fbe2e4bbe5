"""One side of a comparison under its rules: New's names, defaults, mapped and cast values, sorted arrays, conditions.

Nothing is copied unless a condition needs a whole document (`materialise`); the comparison itself only looks up
members, sort keys and key values here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from jsonpath import filter as filters
from jsonpath.exceptions import JSONPathError
from jsonpath.segments import JSONPathChildSegment
from jsonpath.selectors import FilterContext, NameSelector

from driftline.payloads._compare.plan import NodePlan
from driftline.payloads._compare.report import Owner, Run
from driftline.payloads._rules.extensions import FieldRules
from driftline.payloads._rules.scalars import EMPTY_STRING_AS_NULL, BadValueError
from driftline.payloads._schema.nodes import Choice
from driftline.payloads._values.paths import NAMINGS, KeyPath, Path, SortField
from driftline.payloads._values.patterns import ENVIRONMENT, watch_expression
from driftline.payloads._values.values import (
    CONTAINERS,
    MISSING,
    NEW,
    OLD,
    Json,
    Value,
    admits,
    decimal_of,
    kind_of,
)

Seen = list[tuple[Value, int]]  # values with their sides
Operand = Callable[[Run, int], Any]

_MAX_FITTED_ITEMS = 100
_RANKS = {"null": 0, "boolean": 1, "number": 2, "string": 3, "array": 4, "object": 5}


class Sifted(NamedTuple):
    """The members of an object under New's names, and what the scrub did to get there."""

    members: dict[str, Json]
    removed: dict[str, tuple[Json, str]]
    renamed: dict[str, str]
    conflicts: list[tuple[str, str]]


def sift(plan: NodePlan, value: dict[str, Json], side: int, run: Run, *, decide: bool = False) -> Sifted:
    """Global ignores on the raw names, then aliases (on Old's side)."""
    value = run.pruned[side].get(id(value), value)
    state = plan.states[side]
    if not (plan.renames or state.names or state.removes_others):
        return Sifted(value, {}, {}, [])
    removes_any = state.removes_others
    renames = _renames(plan, value, run, decide) if side == OLD and plan.renames else {}
    sifted = Sifted({}, {}, {}, [])
    for raw, item in value.items():
        name = renames.get(raw, raw)
        rule = state.step(raw).removed_by if removes_any or raw in state.names else None
        if rule is not None:
            sifted.removed[name] = (item, rule)
        elif name != raw and name in value and state.step(name).removed_by is None:
            # Both names are there: the new name's value wins; a declared member keeps its own name.
            sifted.conflicts.append((raw, name))
            if raw in plan.node.properties:
                sifted.members[raw] = item
        elif name != raw and name in sifted.members:
            sifted.members[raw] = item  # two names would become one: the second stays, so that no value is lost
        else:
            sifted.members[name] = item
            if name != raw:
                sifted.renamed[name] = raw
    return sifted


def _renames(plan: NodePlan, value: dict[str, Json], run: Run, decide: bool) -> dict[str, str]:
    found = {raw: name for raw in value if (name := plan.new_name(raw)) != raw}
    if not decide:
        return found
    conditions = {raw: plan.member(name, raw).condition for raw, name in found.items()}
    return {raw: name for raw, name in found.items() if (test := conditions[raw]) is None or test.holds(run, OLD)}


def members(plan: NodePlan, value: dict[str, Json], side: int, run: Run) -> Iterator[tuple[str, Json, NodePlan]]:
    """The normalised members of an object with their plans; ignored ones are left out, defaults are filled in."""
    names = set()
    sifted = sift(plan, value, side, run)
    for name, item in sifted.members.items():
        child = plan.member(name, sifted.renamed.get(name)) if side == OLD else plan.member(name)
        if not (child.condition is None and child.rules.strategy == "ignore") and not is_absent(child, item):
            names.add(name)
            yield name, item, child
    for name in plan.defaulted:
        child = plan.member(name)
        if name not in names and child.rules.strategy != "ignore":
            yield name, child.rules.default, child


def has_plain_names(plan: NodePlan) -> bool:
    """Whether a member is known by its name alone: no looked-up ignores, no alias that depends on anything."""
    before, after = plan.states
    if plan.settings.located or before is not after or plan.naming in NAMINGS:
        return False
    if plan.aliases.keys() & (plan.node.properties.keys() | before.names):
        return False
    # Each alias applies in any case, and the global ignores treat both of its names alike.
    return all(
        plan.member(name).condition is None and before.step(raw) is after.step(name)
        for raw, name in plan.aliases.items()
    )


def is_absent(plan: NodePlan, value: Value) -> bool:
    """Whether null (or an empty string) counts as missing here."""
    return plan.null_as_missing and (value is None or (plan.empty_as_null and value == ""))


def is_removed(plan: NodePlan, side: int) -> bool:
    """Whether an ignore without a condition removes a value from a side."""
    return plan.states[side].removed_by is not None or (plan.condition is None and plan.rules.strategy == "ignore")


def member(plan: NodePlan, value: Value, name: str, side: int, run: Run) -> tuple[Value, NodePlan]:
    """One normalised member and its plan; the value is `MISSING` where there is none."""
    if type(value) is not dict:
        return MISSING, plan
    plan = resolved(plan, value, side, run)
    is_renamed = plan.renames and (plan.naming in NAMINGS or name in plan.aliases or name in plan.aliases.values())
    if not is_renamed and not run.pruned[side]:
        item, child = value.get(name, MISSING), plan.member(name)
        if item is not MISSING and child.states[side].removed_by is not None:
            item = MISSING
    else:
        sifted = sift(plan, value, side, run)
        item = sifted.members.get(name, MISSING)
        child = plan.member(name, sifted.renamed.get(name)) if side == OLD else plan.member(name)
    if child.condition is None and child.rules.strategy == "ignore":
        return MISSING, child
    if item is MISSING or is_absent(child, item):
        return child.rules.default, child
    return item, child


def resolved(plan: NodePlan, value: Value, side: int, run: Run) -> NodePlan:
    """The plan with its condition taken as true and its choices made for this value alone."""
    if plan.condition is not None:
        plan = plan.decided(True)
    return choose(plan, [(value, side)], run) if plan.choices else plan


def arranged(plan: NodePlan, value: list[Json], side: int, run: Run) -> list[Json]:
    """The items of an array after global ignores and sorting."""
    value = run.pruned[side].get(id(value), value)
    item = plan.item()
    if is_removed(item, side):
        return []
    return sorted_items(item, value, plan.rules.order_by, side, run) if plan.rules.order_by else value


def sorted_items(plan: NodePlan, items: list[Any], order: tuple[SortField, ...], side: int, run: Run) -> list[Any]:
    """Items in the order of their fields: nulls first, stable, descending where the rule says so."""
    for path, is_descending in reversed(order):
        if len(path) == 1 and _are_texts(plan, items, path[0]):
            items = sorted(items, key=itemgetter(path[0]), reverse=is_descending)
            continue
        keys = [_sort_key(lookup(plan, entry, path, side, run), is_descending) for entry in items]
        places = sorted(range(len(items)), key=keys.__getitem__, reverse=is_descending)
        items = [items[place] for place in places]
    return items


def _are_texts(plan: NodePlan, items: list[Json], name: str) -> bool:
    """Whether all items are objects with a string in a member that needs no rule; these sort as they are."""
    # An empty string may stand for null, which comes first.
    texts = (type(entry) is dict and type(text := entry.get(name)) is str and text != "" for entry in items)
    return is_raw_member(plan, name) and all(texts)


def is_raw_member(plan: NodePlan, name: str) -> bool:
    """Whether a member is the same raw as normalised (but for an empty string)."""
    if plan.renames or plan.condition or plan.choices or plan.settings.located:
        return False
    member = plan.member(name)
    rules = member.rules
    has_steps = any(step is not EMPTY_STRING_AS_NULL for step in member.meaning.steps)
    is_touched = has_steps or rules.default is not MISSING or rules.strategy == "ignore"
    return not (is_touched or member.condition or member.choices or any(state.removed_by for state in member.states))


def _sort_key(value: Value, is_descending: bool) -> tuple[Any, ...]:
    rank = _RANKS.get(kind_of(value), 6) if value is not MISSING else 0
    if rank == 0:
        return (99 if is_descending else -1,)  # nulls come first either way
    if rank == 2:
        return (rank, decimal_of(value) if not isinstance(value, int) else value)
    return (rank, value if rank in (1, 3) else repr(value))


def found_at(plan: NodePlan, value: Value, path: KeyPath, side: int, run: Run) -> tuple[Value, NodePlan]:
    """The value at a path of New's names inside an item, before its own rules, or `MISSING`; and its plan."""
    for name in path:
        value, plan = member(plan, value, name, side, run)
        if value is MISSING:
            break
    return value, plan


def lookup(plan: NodePlan, value: Value, path: KeyPath, side: int, run: Run) -> Value:
    """The normalised value at a key path inside an item, or `MISSING`."""
    value, plan = found_at(plan, value, path, side, run)
    if value is MISSING or type(value) in CONTAINERS:
        return value
    return resolved(plan, value, side, run).meaning.prepared_or_raw(value, side)


def materialise(plan: NodePlan, value: Value, side: int, run: Run) -> Any:
    """A normalised copy of a whole value, for conditions that need more than single members."""
    if is_removed(plan, side):
        return None
    run.check_deadline()
    plan = resolved(plan, value, side, run)
    if type(value) is dict:
        return {name: materialise(child, item, side, run) for name, item, child in members(plan, value, side, run)}
    if type(value) is list:
        items = arranged(plan, value, side, run)
        return [materialise(plan.item(index), item, side, run) for index, item in enumerate(items)]
    return plan.meaning.prepared_or_raw(value, side)


# `oneOf` and `anyOf`: by discriminator, else the first branch that all values fit.
def choose(plan: NodePlan, seen: Seen, run: Run) -> NodePlan:
    """The plan with every choice made for these values."""
    while plan.choices:
        choice = plan.choices[0]
        plan = plan.chosen(choice, _branch(plan, choice, seen, run))
    return plan


def _branch(plan: NodePlan, choice: Choice, seen: Seen, run: Run) -> int | None:
    branches = range(len(choice.branches))
    value, side = seen[0]
    # The branch that Old's discriminator names, in New's vocabulary where a branch maps it.
    for number in branches if type(value) is dict and choice.discriminator is not None else ():
        item, child = member(plan.chosen(choice, number), value, choice.discriminator or "", side, run)
        if item is not MISSING and choice.mapping.get(str(child.meaning.prepared_or_raw(item, side))) == number:
            return number
    for number in branches:
        candidate = plan.chosen(choice, number)
        if all(fits(candidate, value, side, run) for value, side in seen):
            return number
    return None


def fits(plan: NodePlan, value: Value, side: int, run: Run) -> bool:
    """Whether a value has the shape of a node: types, allowed values, required and known members.

    Decided once for each node and container: every level of a recursive choice needs all levels below it.
    """
    if type(value) not in CONTAINERS:
        return _fits(plan, value, side, run)
    key = (id(plan), id(value), side)
    known = run.fitting.get(key)
    if known is None:
        run.check_deadline()
        # The value is stored too, so that its id is not reused.
        known = run.fitting[key] = (value, _fits(plan, value, side, run))
    return known[1]


def _fits(plan: NodePlan, value: Value, side: int, run: Run) -> bool:
    if plan.choices:
        choice = plan.choices[0]
        if value is None and choice.allows_null:
            return True
        return any(fits(plan.chosen(choice, number), value, side, run) for number in range(len(choice.branches)))
    node = plan.node
    shown = plan.meaning.prepared_or_raw(value, side)
    if node.types is not None and not admits(node.types, shown) and not admits(node.types, value):
        return value is None and (plan.null_as_missing or plan.empty_as_null)
    if value is None and node.is_nullable:
        return True
    allowed = node.allowed_values
    if allowed is not None and not any(kind_of(one) == kind_of(shown) and one == shown for one in allowed):
        return False
    if type(value) is dict:
        return _object_fits(plan, value, side, run)
    if type(value) is list and node.items:
        return all(fits(plan.item(), item, side, run) for item in value[:_MAX_FITTED_ITEMS])
    return True


def _object_fits(plan: NodePlan, value: dict[str, Json], side: int, run: Run) -> bool:
    found = sift(plan, value, side, run).members
    if any(name not in found and plan.member(name).rules.default is MISSING for name in plan.node.required):
        return False
    declared = ((plan.member(name), found[name]) for name in plan.node.properties if name in found)
    return all(is_absent(child, item) or fits(child, item, side, run) for child, item in declared)


# `x-migration-when`: RFC 9535 filter expressions over `$` (the payload) and `@` (the object that owns the field). Those
# of single members look these up; anything else is evaluated by the JSONPath library on normalised copies.
class Condition(NamedTuple):
    """A compiled condition; an absolute one is the same for all objects of a payload."""

    expression: Any
    is_absolute: bool
    quick: Operand | None

    def holds(self, run: Run, side: int) -> bool:
        """Whether the condition is true on a side, for the current object."""
        if not self.is_absolute:
            return self._is_true(run, side)
        key = (id(self.expression), side)
        known = run.conditions.get(key)
        if known is None:
            known = run.conditions[key] = self._is_true(run, side)
        return known

    def _is_true(self, run: Run, side: int) -> bool:
        if self.quick is not None:
            return bool(self.quick(run, side))
        root = _normalised(run.root, side, run)
        current = root if self.is_absolute or not run.owners else _normalised(run.owners[-1], side, run)
        # One tree for each payload: it caches what its queries from the root found.
        tree = run.views.get((id(self.expression), side))
        if tree is None:
            tree = run.views[id(self.expression), side] = self.expression.cache_tree()
        try:
            return bool(tree.evaluate(FilterContext(env=ENVIRONMENT, current=current, root=root)))
        except (JSONPathError, ValueError):  # a payload that is a string is no place to look into
            return False

    def decide(self, run: Run, path: Path, rules: FieldRules) -> bool:
        """The condition on Old; a warning where New disagrees."""
        holds = self.holds(run, OLD)
        rule = rules.text("when") or ""
        if self.holds(run, NEW) != holds:
            run.warn("RULE_ERROR", path, f"The condition is {str(holds).lower()} on Old but not on New", rule)
        run.note(path, rule, "applies" if holds else "does not apply")
        return holds


def parse_condition(text: str) -> Condition:
    """A condition from its text; raises `BadValueError`."""
    try:
        query = ENVIRONMENT.compile(f"$[?{text}]")
        segments = query.segments  # type: ignore[union-attr]
        (selector,) = segments[0].selectors
    except (JSONPathError, RecursionError, ValueError, AttributeError) as error:
        raise BadValueError(str(error).splitlines()[0] if str(error) else "not a filter expression") from None
    if len(segments) != 1 or not hasattr(selector, "expression"):
        raise BadValueError("not a single filter expression")
    watch_expression(selector.expression)
    return Condition(selector.expression, "@" not in text, _quick(selector.expression.expression, is_test=True))


def _quick(node: Any, *, is_test: bool) -> Operand | None:
    """An expression over single members, literals and operators as a function; None where it needs more."""
    if isinstance(node, filters.PrefixExpression):
        inner = _quick(node.right, is_test=True)
        return None if inner is None else (lambda run, side: not inner(run, side))
    if isinstance(node, filters.InfixExpression):
        is_logical, operator = node.operator in ("&&", "||"), node.operator
        left, right = (_quick(part, is_test=is_logical) for part in (node.left, node.right))
        if left is None or right is None:
            return None
        return lambda run, side: ENVIRONMENT.compare(left(run, side), operator, right(run, side))
    if isinstance(node, filters.Nil | filters.FilterExpressionLiteral):
        value = getattr(node, "value", None)
        return lambda run, side: value
    if not isinstance(node, filters.RootFilterQuery | filters.RelativeFilterQuery):
        return None
    selectors = [selector for segment in node.path.segments for selector in segment.selectors]
    is_plain = all(isinstance(segment, JSONPathChildSegment) for segment in node.path.segments)
    names = tuple(selector.name for selector in selectors if isinstance(selector, NameSelector))
    if not is_plain or not len(names) == len(selectors) == len(node.path.segments):
        return None
    is_root = isinstance(node, filters.RootFilterQuery)

    def read(run: Run, side: int) -> Any:
        owner = run.root if is_root or not run.owners else run.owners[-1]
        found, plan = found_at(owner.plan, owner.old if side == OLD else owner.new, names, side, run)
        if is_test or found is MISSING:
            return found is not MISSING if is_test else filters.UNDEFINED
        return materialise(plan, found, side, run)

    return read


def _normalised(owner: Owner, side: int, run: Run) -> Any:
    """A normalised copy, made once in a comparison, because all members of an object need the same one."""
    value = owner.old if side == OLD else owner.new
    key = ("copy", id(owner.plan), id(value), side)
    known = run.views.get(key)
    if known is None:
        known = run.views[key] = (value, materialise(owner.plan, value, side, run))
    return known[1]
