"""Which items of two arrays belong together: equal ones, those that match under tolerances, similar ones (§5.3).

Equal full tokens mean equal values. A coarse token leaves out what a tolerance or a condition decides: matching items
have equal coarse tokens, so that each group of equal ones is paired alone. In a group candidates are in a window on the
axis of a tolerance; what can match falls into components, each of which gets a maximum matching. Where that would take
too long, a sweep along the axis pairs what it meets, and the pairing is not exact. Of the rest an item is only tried
against a few candidates that share its rarest fields, and the most similar objects are paired.

>>> smallest_maximum([[0, 1], [0]])
[1, 0]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from driftline.errors import PayloadError
from driftline.payloads._compare.leaves import fast_types, step_rule
from driftline.payloads._compare.plan import NodePlan
from driftline.payloads._compare.report import Run, StopComparisonError
from driftline.payloads._compare.sides import arranged, found_at, has_plain_names, members, resolved
from driftline.payloads._rules.meaning import Meaning
from driftline.payloads._rules.scalars import Token, scalar_token
from driftline.payloads._values.paths import KeyPath, Path
from driftline.payloads._values.values import MISSING, NEW, OLD, Json, Value

Edges = list[list[int]]
Partners = list[int | None]  # of each item, by position
Numbered = list[tuple[int, Json]]  # items with their index in the array
Free = dict[int, Json]  # items without a partner yet, by their positions
Pairing = dict[int, int]  # positions in Old -> positions in New
Tokenizer = Callable[[Any, Run], Token]

MAX_POSTINGS = 32  # a field value shared by more items than this does not tell them apart
MAX_TRIALS = 2_000_000  # comparisons in one group
MAX_COMPONENT = 2_000  # items of Old
MAX_EDGES = 50_000
SWEEP_TRIALS = 64  # comparisons of one item
# Edges visited while the smallest matching is sought; beyond it the number of pairs is right, their order may not be.
MAX_STEPS = 5_000_000
_MAX_AXES = 4
_MAX_AXIS_DEPTH = 3
_MAX_NAMES = 8  # that tell items apart
_ANYTHING = ("anything",)
_NUMBERS = frozenset({int, float})


# Tokens.
def tokenizer(plan: NodePlan, side: int, *, coarse: bool = False) -> Tokenizer:
    """The function that gives the tokens of a node's values; made once for each plan."""
    found = plan.tokenizers.get((side, coarse))
    if found is None:
        found = plan.tokenizers[side, coarse] = _new_tokenizer(plan, side, coarse)
    return found


def _new_tokenizer(plan: NodePlan, side: int, coarse: bool) -> Tokenizer:
    if plan.condition is not None or plan.choices:
        return (lambda value, run: _ANYTHING) if coarse else (lambda value, run: _raw_token(value))
    rules = plan.rules
    if rules.strategy == "exists":
        return lambda value, run: _ANYTHING
    leaf = plan.meaning.tokens(side, coarse=coarse)
    keeps_order = rules.array_mode == "strict" and not rules.subset
    # An item of New may have members or items that its partner does not have.
    any_object = coarse and plan.allow_new
    any_array = coarse and (rules.ignore_extra or rules.ignore_missing or rules.subset)

    def token(value: Value, run: Run) -> Token:
        if type(value) is dict:
            if any_object:
                return ("object",)
            found = (
                (name, tokenizer(child, side, coarse=coarse)(item, run))
                for name, item, child in members(plan, value, side, run)
                # A conditional member may be ignored for one partner and compared for another.
                if not (coarse and child.condition is not None)
            )
            return ("object", frozenset(found))
        if type(value) is not list:
            return leaf(value)
        if any_array:
            return ("array",)
        items = [
            tokenizer(plan.item(index), side, coarse=coarse)(item, run)
            for index, item in enumerate(arranged(plan, value, side, run))
        ]
        return ("array", tuple(items) if keeps_order else frozenset(Counter(items).items()))

    return token


def _raw_token(value: Value) -> Token:
    """The token of a value without rules."""
    if type(value) is dict:
        return ("object", frozenset((name, _raw_token(item)) for name, item in value.items()))
    if type(value) is list:
        return ("array", tuple(map(_raw_token, value)))
    return scalar_token(value)


def needs_pairwise(plan: NodePlan) -> bool:
    """Whether values with different full tokens can be equal here: a tolerance, a condition or a choice decides."""
    if plan.needs_pairwise is None:
        plan.needs_pairwise = False  # for a recursive schema, where the others decide
        plan.needs_pairwise = _decides_in_pairs(plan) or any(map(needs_pairwise, _parts(plan)))
    return plan.needs_pairwise


def _decides_in_pairs(plan: NodePlan) -> bool:
    rules, node = plan.rules, plan.node
    is_loose = rules.ignore_extra or rules.ignore_missing or rules.subset
    is_open = node.patterns or node.additional or node.prefix_items
    return bool(plan.condition is not None or plan.choices or plan.meaning.needs_pairwise or is_loose or is_open)


def _parts(plan: NodePlan) -> list[NodePlan]:
    node = plan.node
    children = [plan.member(name) for name in (*node.properties, *plan.states[OLD].members)]
    if plan.states[OLD].has_rules and (other := plan.other_member()) is not None:
        children.append(other)
    if node.items or plan.states[OLD].has_rules:
        children.append(plan.item())
    return children


def pairwise_members(plan: NodePlan) -> int:
    """How many members of an object need a comparison in pairs."""
    if plan.pairwise_members is None:
        plan.pairwise_members = sum(
            needs_pairwise(plan.member(name)) for name in {*plan.node.properties, *plan.states[OLD].members}
        )
    return plan.pairwise_members


def warn_unreadable(plan: NodePlan, value: Value, side: int, run: Run, path: Path) -> None:
    """Warn about the scalars of an item without a partner that a cast or a date format cannot take.

    Items with a partner are compared, which warns too.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            known = plan.new_name(name) if side == OLD else name
            warn_unreadable(plan.member(known), item, side, run, (path, known))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            warn_unreadable(plan.item(index), item, side, run, (path, index))
    elif plan.condition is None and not plan.choices:
        problem = plan.meaning.problem(value, side)
        if problem is not None:
            run.warn("RULE_ERROR", path, problem, step_rule(plan) or plan.rules.text("datetime-tolerance"))


# Unordered items with one possible partner.
def identity_of(item: NodePlan) -> Callable[[Any], Token] | None:
    """The members that are equal in matching items, because they have no rule; None where that cannot be said."""
    if item.condition or item.choices or item.rules.problems or item.aliases or not has_plain_names(item):
        return None
    names = [name for name in item.node.properties if _must_be_equal(item.member(name))]
    return itemgetter(*names[:_MAX_NAMES]) if names else None


def _must_be_equal(plan: NodePlan) -> bool:
    """Whether matching items have equal raw values here, given that they have any."""
    rules = plan.rules
    is_touched = not plan.meaning.is_plain or rules.strategy == "exists" or rules.default is not MISSING
    return bool(fast_types(plan)) and not is_touched and not plan.node.properties and not plan.node.items


def resolve_unique(
    item: NodePlan, identity: Callable[[Any], Token], old: list[Json], new: list[Json], run: Run
) -> Pairing:
    """Count the items whose identity occurs once on each side, as far as they surely match their only partner."""
    if run.trace is not None or not set(map(type, old)) == {dict} == set(map(type, new)):
        return {}
    try:
        places = {value: index for index, value in _unique(map(identity, new))}
        pairs = [(index, places[value]) for index, value in _unique(map(identity, old)) if value in places]
    except (KeyError, TypeError):  # a member is missing, or a container: a default or a rule may stand for it
        return {}
    decided: Pairing = {}
    trial, match = run.probe(), item.match
    for index, place in pairs:
        run.check_at(index)
        trial.checked = trial.ignored = 0
        if match is None or not match(old[index], new[place], trial):
            try:
                item.compare(old[index], new[place], trial, None)
            except (StopComparisonError, PayloadError):
                trial = run.probe()
                continue
            if trial.warnings:
                trial = run.probe()
                continue
        decided[index] = place
        run.checked += trial.checked
        run.ignored += trial.ignored
    return decided


def resolve_texts(old: list[str], new: list[str], run: Run) -> Pairing:
    """Count the texts of Old that are in New too, each with its earliest free partner."""
    waiting: dict[str, list[int]] = {}
    for index in range(len(new) - 1, -1, -1):
        waiting.setdefault(new[index], []).append(index)
    decided = {index: waiting[text].pop() for index, text in enumerate(old) if waiting.get(text)}
    run.checked += len(decided)
    return decided


def _unique(identities: Iterable[Token]) -> Iterator[tuple[int, Token]]:
    known = list(identities)
    if len(set(known)) == len(known):
        return iter(enumerate(known))
    counts = Counter(known)
    return ((index, value) for index, value in enumerate(known) if counts[value] == 1)


# Pairs.
def pair_items(plan: NodePlan, old: Numbered, new: Numbered, run: Run, path: Path) -> Pairing:
    """The partners of all items that have one."""
    partners, steps = Pairing(), (_pair_tolerant, _pair_equal, _pair_similar)
    for step in steps if needs_pairwise(plan.item()) else steps[1:]:
        taken = set(partners.values())
        lefts = {position: value for position, (_, value) in enumerate(old) if position not in partners}
        rights = {position: value for position, (_, value) in enumerate(new) if position not in taken}
        if not lefts or not rights:
            break
        partners |= step(plan, lefts, rights, run, path)
    return partners


def _pair_equal(plan: NodePlan, old: Free, new: Free, run: Run, path: Path) -> Pairing:
    """Items with equal tokens, the earliest of both sides together."""
    waiting = _by_token(tokenizer(plan.item(), NEW), new.items(), run)
    groups = _by_token(tokenizer(plan.item(), OLD), old.items(), run)
    pairs = (zip(group, waiting.get(token, ()), strict=False) for token, group in groups.items())
    return {left: right for each in pairs for left, right in each}


def _by_token(token: Tokenizer, items: Iterable[tuple[int, Json]], run: Run) -> dict[Token, list[int]]:
    found: dict[Token, list[int]] = {}
    for position, value in items:
        run.check_at(position)
        found.setdefault(token(value, run), []).append(position)
    return found


def _pair_tolerant(plan: NodePlan, old: Free, new: Free, run: Run, path: Path) -> Pairing:
    """The most matching pairs among items of equal coarse tokens."""
    item = plan.item()
    waiting = _by_token(tokenizer(item, NEW, coarse=True), new.items(), run)
    groups = _by_token(tokenizer(item, OLD, coarse=True), old.items(), run)
    pairer = Pairer(item, old, new, run)
    # Where less than half of the members decide in pairs, equal coarse tokens prove that most of the fields agree, so
    # that the pair is right.
    doubtful = None if item.condition or item.choices or item.allow_new else 2 * pairwise_members(item)
    for coarse, group in groups.items():
        others = waiting.get(coarse, [])
        first = old[group[0]]
        is_surely_similar = type(first) is dict and doubtful is not None and doubtful < len(first)
        if len(group) == len(others) == 1 and is_surely_similar:
            pairer.partners[group[0]] = others[0]
        elif others:
            pairer.pair(group, others)
    if not pairer.is_exact:
        message = "Too many items may match one another to try them all; they were paired along one field"
        run.warn("RULE_ERROR", path, message, plan.rules.text("array-mode"))
    return pairer.partners


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


def _pair_similar(plan: NodePlan, old: Free, new: Free, run: Run, path: Path) -> Pairing:
    """Objects of which more than half of the fields agree, so that the deepest difference is reported.

    Where New may have more members, the majority is one of Old's. Of equal candidates the earliest is taken.
    """
    item = plan.item()
    fields = {position: _fields(item, value, NEW, run) for position, value in new.items()}
    postings: dict[Token, list[int]] = defaultdict(list)
    for position, known in fields.items():
        run.check_at(position)
        for name, field in known.items():
            postings[name, field.coarse].append(position)
    partners: Pairing = {}
    for position, value in old.items():
        run.check_at(position)
        known = _fields(item, value, OLD, run)
        shared = (postings.get((name, field.coarse), []) for name, field in known.items())
        candidates = {place for places in shared if len(places) <= MAX_POSTINGS for place in places}
        best = (0, 0)
        for candidate in candidates:
            other = fields[candidate]
            agreeing = sum(name in other and _agrees(field, other[name], run) for name, field in known.items())
            if 2 * agreeing > len(known if item.allow_new else known.keys() | other.keys()):
                best = max(best, (agreeing, -candidate))
        if best[0]:
            partners[position] = -best[1]
            fields[-best[1]] = {}  # it is taken
    return partners


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


def _axes(plan: NodePlan, path: KeyPath, seen: set[int]) -> Iterator[tuple[KeyPath, Meaning]]:
    """The tolerant scalars that all items may have: the items themselves, or members outside of inner arrays."""
    if plan.condition is not None or plan.choices or id(plan) in seen or len(path) > _MAX_AXIS_DEPTH:
        return
    if any(end.axis is not None for end in plan.meaning.ends.values()):
        yield path, plan.meaning
    for name in dict.fromkeys([*plan.node.properties, *plan.states[OLD].members]):
        yield from _axes(plan.member(name), (*path, name), seen | {id(plan)})


class Pairer:
    """Pairs the items of one array, group by group."""

    def __init__(self, item: NodePlan, old: Free, new: Free, run: Run) -> None:
        self._axes = list(_axes(item, (), set()))[:_MAX_AXES]
        self._item = item
        self._sides = (old, new)
        self._run, self._trial = run, run.probe()
        is_decided = item.condition is None and not item.choices and not item.rules.problems
        self._agree = item.meaning.agree if is_decided else None
        self.partners: dict[int, int] = {}
        self.is_exact = True

    def _matches(self, position: int, other: int) -> bool:
        left, right = self._sides[OLD][position], self._sides[NEW][other]
        are_numbers = type(left) in _NUMBERS and type(right) in _NUMBERS
        if are_numbers and self._agree is not None and self._agree(left, right):
            return True
        are_objects = type(left) is dict is type(right)
        if are_objects and self._item.match is not None and self._item.match(left, right, self._trial):
            return True
        return _is_equal(self._item, left, right, self._run)

    def pair(self, lefts: list[int], rights: list[int]) -> None:
        """Pair what matches in a group of items of one coarse token, by their positions on both sides."""
        # The axis along which the windows of a group contain the fewest candidates.
        lines = [line for axis in self._axes if (line := self._along(*axis, lefts, rights)) is not None]
        if not lines:
            lines = [_Line(dict.fromkeys(lefts, 0.0), dict.fromkeys(rights, 0.0), 0.0)]
        line = min(lines, key=attrgetter("candidates"))
        edges = self._edges(lefts, line)
        if edges is None:
            self._sweep(lefts, rights, line)
            return
        for group in _components(edges):
            others = sorted({right for left in group for right in edges[left]})
            if len(group) > MAX_COMPONENT or sum(len(edges[left]) for left in group) > MAX_EDGES:
                self._sweep(group, others, line)
                continue
            number = {right: place for place, right in enumerate(others)}
            rows = [[number[right] for right in edges[left]] for left in group]
            found = smallest_maximum(rows, self._run.check_deadline)
            pairs = zip(group, found, strict=True)
            self.partners.update((left, others[place]) for left, place in pairs if place is not None)

    def _along(self, path: KeyPath, meaning: Meaning, lefts: list[int], rights: list[int]) -> _Line | None:
        places: list[dict[int, float]] = [{}, {}]
        for side, positions in ((OLD, lefts), (NEW, rights)):
            for position in positions:
                value, _ = found_at(self._item, self._sides[side][position], path, side, self._run)
                place = meaning.place(value, side) if value is not MISSING else None
                if place is None:
                    return None  # equal coarse tokens: then no item of the group has one
                places[side][position] = place
        return _Line(places[OLD], places[NEW], meaning.width)

    def _edges(self, lefts: list[int], line: _Line) -> dict[int, list[int]] | None:
        """What matches what; None where finding out takes too many trials."""
        if line.candidates > MAX_TRIALS:
            return None
        edges: dict[int, list[int]] = {}
        for left in lefts:
            self._run.check_deadline()
            edges[left] = sorted(right for right in line.near(left) if self._matches(left, right))
        return edges

    def _sweep(self, lefts: list[int], rights: list[int], line: _Line) -> None:
        """Pair along the axis; exact where one number alone is tolerant."""
        self.is_exact = False
        needed = set(rights)
        free, places = [right for right in line.order if right in needed], line.rights
        start = 0
        for left in sorted(lefts, key=line.lefts.__getitem__):
            self._run.check_deadline()
            low, high = line.window(left)
            while start < len(free) and (free[start] not in needed or places[free[start]] < low):
                start += 1
            trials = 0
            for at in range(start, len(free)):
                if trials >= SWEEP_TRIALS or places[free[at]] > high:
                    break
                if free[at] in needed:
                    trials += 1
                    if self._matches(left, free[at]):
                        self.partners[left] = free[at]
                        needed.remove(free[at])
                        break


class _Line:
    """The items of a group along an axis; all at one place where there is none."""

    def __init__(self, lefts: dict[int, float], rights: dict[int, float], width: float) -> None:
        self.lefts, self.rights, self._width = lefts, rights, width
        self.order = sorted(rights, key=lambda right: (rights[right], right))
        self._keys = [rights[right] for right in self.order]

    def window(self, left: int) -> tuple[float, float]:
        """The range that contains partners; a little wide, because doubles only help to find candidates."""
        place = self.lefts[left]
        reach = self._width + (abs(place) + self._width) * 1e-12
        return place - reach, place + reach

    def near(self, left: int) -> list[int]:
        """The items of New in the window."""
        low, high = self.window(left)
        return self.order[bisect_left(self._keys, low) : bisect_right(self._keys, high)]

    @cached_property
    def candidates(self) -> int:
        """How many pairs are in windows."""
        windows = map(self.window, self.lefts)
        return sum(bisect_right(self._keys, high) - bisect_left(self._keys, low) for low, high in windows)


def _components(edges: dict[int, list[int]]) -> Iterator[list[int]]:
    """Items of Old that share candidates, in order, those without any left out."""
    back: dict[int, list[int]] = {}
    for left, rights in edges.items():
        for right in rights:
            back.setdefault(right, []).append(left)
    seen: set[int] = set()
    for start, rights in edges.items():
        if start in seen or not rights:
            continue
        seen.add(start)
        found = [start]
        for each in found:
            for right in edges[each]:
                fresh = [left for left in back.pop(right, ()) if left not in seen]
                seen.update(fresh)
                found.extend(fresh)
        yield sorted(found)


# Maximum matching.
def smallest_maximum(edges: Edges, check: Callable[[], None] = lambda: None) -> Partners:
    """The partner of each item of Old; `edges` are its possible partners in New, in order.

    Of all matchings with the most pairs the smallest gives Old's first item the earliest partner that still allows as
    many pairs, then the second, and so on.
    """
    work = _Matching(edges, check)
    work.grow()
    work.shrink()
    return work.partner


class _Matching:
    """A matching that grows to the maximum and is then made the smallest."""

    def __init__(self, edges: Edges, check: Callable[[], None]) -> None:
        self.edges = edges
        self.check = check
        self.steps = 0
        self.partner: Partners = [None] * len(edges)
        count = 1 + max((max(row) for row in edges if row), default=-1)
        self.back: Edges = [[] for _ in range(count)]
        for left, row in enumerate(edges):
            for right in row:
                self.back[right].append(left)
        self.owner: Partners = [None] * count

    def grow(self) -> None:
        """Augment in rounds; within a round no partner is visited twice, which keeps rounds few and short."""
        grew = True
        while grew:
            grew = False
            seen: set[int] = set()
            for left, mate in enumerate(self.partner):
                if mate is None and self._augment(left, self.edges, self.partner, self.owner, seen):
                    grew = True

    def shrink(self) -> None:
        """Fix Old's items one after the other on the earliest partner that keeps the number of pairs."""
        fixed: set[int] = set()  # partners that are final
        for left, row in enumerate(self.edges):
            for right in row:
                if right == self.partner[left] or self.steps > MAX_STEPS:
                    break
                if right not in fixed and self._move(left, right, fixed):
                    break
            mate = self.partner[left]
            if mate is not None:
                fixed.add(mate)

    def _move(self, left: int, right: int, fixed: set[int]) -> bool:
        """Give `left` the partner `right` if as many pairs are left; its former owner must find another partner."""
        other, mine = self.owner[right], self.partner[left]
        if other is not None and other < left:
            return False
        self.partner[left], self.owner[right] = right, left
        if mine is not None:
            self.owner[mine] = None
        if other is not None:
            self.partner[other] = None
        if other is None or mine is None:
            return True  # as many pairs as before: one partner is set free, or one item of Old that comes later is
        # One pair is lost. A way to win it back begins at one of the two that were set free: any other would have made
        # the matching larger before.
        if self._augment(other, self.edges, self.partner, self.owner, fixed | {right}):
            return True
        if self._augment(mine, self.back, self.owner, self.partner, set(range(left + 1))):
            return True
        self.partner[left], self.owner[mine], self.partner[other], self.owner[right] = mine, left, right, other
        return False

    def _augment(self, start: int, edges: Edges, partner: Partners, owner: Partners, seen: set[int]) -> bool:
        """Find a way from a free item to a free partner and turn it round; `seen` are places not to be entered."""
        stack = [(start, iter(edges[start]))]
        way: list[tuple[int, int]] = []
        self.check()
        while stack:
            item, rest = stack[-1]
            for place in rest:
                self.steps += 1
                if place in seen:
                    continue
                seen.add(place)
                way.append((item, place))
                holder = owner[place]
                if holder is None:
                    for one, other in way:
                        partner[one], owner[other] = other, one
                    return True
                stack.append((holder, iter(edges[holder])))
                break
            else:
                stack.pop()
                if way:
                    way.pop()
        return False
