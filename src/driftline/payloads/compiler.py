"""From a schema to plans: contexts, shared plans, and which comparer a node gets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from driftline.payloads.arrays import array_comparer
from driftline.payloads.choices import Seen, choice_comparer, choose
from driftline.payloads.conditions import Condition, parse_condition
from driftline.payloads.config import EngineConfig
from driftline.payloads.deadline import current
from driftline.payloads.leaves import leaf_comparer
from driftline.payloads.objects import object_comparer
from driftline.payloads.path_rules import PathRule, start_state
from driftline.payloads.paths import Path
from driftline.payloads.plan import Compare, Context, Extensions, NodePlan, Variant
from driftline.payloads.rules import FieldRules, Problem, read_rules
from driftline.payloads.run import Run
from driftline.payloads.scalars.meaning import STRICT, Meaning
from driftline.payloads.schema_nodes import EXTENSION_PREFIX, Extension, Fragment, Fragments, SchemaDocument
from driftline.payloads.schema_root import (
    count_leaves,
    document_extensions,
    reachable,
    survey,
)
from driftline.payloads.values import MISSING, NEW, OLD, admits, expectation, union_leaf_count

MAX_FOLDED_SCHEMAS = 3_000

# Branches of choices side by side multiply, and so do ignored paths with inherited rules.
MAX_PLANS = 100_000

_PLAIN = Variant()
_BARE = (STRICT, Meaning(FieldRules(), empty_as_null=True))
_WHEN = f"{EXTENSION_PREFIX}when"


class Compiler:
    """Owns the plans of one schema and configuration."""

    def __init__(
        self, document: SchemaDocument, root: Fragment, config: EngineConfig, flags: tuple[PathRule, ...] = ()
    ) -> None:
        self.document = document
        self.flags = flags
        self.config = config
        self.checks_types = config.strict_schema_validation or config.trace_rule_application
        self.inherited_sets: dict[tuple[tuple[str, str], ...], Extensions] = {(): {}}
        self._plans: dict[Any, NodePlan] = {}
        self.pairwise: dict[NodePlan, bool] = {}
        self.pairwise_members: dict[NodePlan, int] = {}
        self._defaulted: dict[int, tuple[str, ...]] = {}
        self._root = root
        self._survey = survey(document, root)
        # A large document is folded where a payload gets to, not all of it beforehand.
        self._is_large = self._survey.schemas > MAX_FOLDED_SCHEMAS
        self._nodes = [] if self._is_large else reachable(document, root)
        # Set anywhere, both flags may meet: then an empty string can be a missing member.
        self.drops_empty_strings = self._is_set("empty-string-as-null") and self._is_set("allow-null-as-missing")
        self.warns_of_values = any(self._is_set(name) for name in ("cast", "datetime-format", "datetime-tolerance"))
        self.tracks_owners = any("@" in str(rule.value) for rule in self._survey.extensions.get(_WHEN, ()))
        state, self.located, self.problems = self._ignores()
        settings = read_rules(self._document_settings())
        switches = (settings.null_as_missing is True, settings.empty_as_null is True)
        self.root = self.plan((root,), Context((), *switches, (state, state)))

    def _document_settings(self) -> dict[str, Extension]:
        settings = document_extensions(self.document, self._root)
        return {name: Extension(value, f"/{name}") for name, value in settings.items()}

    def _is_set(self, name: str) -> bool:
        full = EXTENSION_PREFIX + name
        if any(name == given for flag in self.flags for given, _ in flag.extensions):
            return True
        return full in self._document_settings() or full in self._survey.extensions

    def _ignores(self) -> tuple[Any, Any, list[Problem]]:
        """Global ignores of the root, of the document and of everything below: `$` is always the payload."""
        name = f"{EXTENSION_PREFIX}global-ignores"
        given = [node.extensions[name] for node in self._nodes if name in node.extensions]
        if self._is_large:
            given = list(self._survey.extensions.get(name, ()))
        given += [value for key, value in self._document_settings().items() if key == name]
        texts = tuple(text for extension in given for text in read_rules({name: extension}).global_ignores)
        state, located, bad = start_state(texts, self.flags)
        pointer = given[0].pointer if given else ""
        problems = [
            Problem(name, f"{name}: {path.text} is not a JSONPath ({path.reason}); it is not used", pointer)
            for path in bad
        ]
        return state, located, problems

    def plan(self, fragments: Fragments, context: Context, variant: Variant = _PLAIN) -> NodePlan:
        """The shared plan of a node in a context."""
        fragments = self.document.canonical(fragments)
        key = (tuple(fragment.pointer for fragment in fragments), context, variant)
        plan = self._plans.get(key)
        if plan is None:
            current().check()
            if len(self._plans) >= MAX_PLANS:
                raise self.document.error(f"the rules unfold into more than {MAX_PLANS:,} cases", fragments[0].pointer)
            plan = self._plans[key] = NodePlan(self, fragments, context, variant)
        return plan

    def meaning(self, rules: FieldRules, empty_as_null: bool) -> Meaning:
        """What rules mean for scalars; fields without any share one."""
        if not rules.texts:
            return _BARE[empty_as_null]
        return Meaning(rules, empty_as_null=empty_as_null)

    def remember(self, extensions: Extensions) -> tuple[tuple[str, str], ...]:
        """A hashable name for a set of inherited extensions."""
        key = tuple(sorted((name, extension.pointer) for name, extension in extensions.items()))
        self.inherited_sets.setdefault(key, extensions)
        return key

    def condition(self, text: str) -> Condition:
        """A compiled `x-migration-when`."""
        return parse_condition(text)

    def choose(self, plan: NodePlan, seen: Seen, run: Run) -> NodePlan:
        """The plan with every `oneOf` and `anyOf` decided for these values."""
        return choose(plan, seen, run)

    def defaulted(self, plan: NodePlan) -> tuple[str, ...]:
        """The members of an object that have a default."""
        names = self._defaulted.get(id(plan))
        if names is None:
            names = tuple(name for name in plan.node.properties if plan.member(name).rules.default is not MISSING)
            self._defaulted[id(plan)] = names
        return names

    def announce(self, plan: NodePlan, run: Run, path: Path) -> None:
        """Warn, once in a comparison, about rules that cannot be used."""
        for problem in plan.rules.problems:
            run.warn_once((problem.rule, problem.pointer), path, problem.message, problem.rule)

    def comparers(self, plan: NodePlan) -> tuple[Compare, Compare]:
        """The comparer of a plan (condition, choices, then the rules of the node) and its short cut for objects."""
        if plan.condition is not None:
            compare = _conditional(plan, plan.condition)
        elif plan.rules.strategy == "ignore" or plan.removed_by is not None:
            compare = _ignoring(plan)
        elif plan.choices:
            compare = choice_comparer(plan)
        elif plan.rules.strategy == "exists":
            compare = _traced(plan, _present)
        else:
            node, objects = self._node_comparer(plan)
            compare = _traced(plan, node)
            if compare is node and not plan.rules.problems:
                return compare, objects
        compare = _announcing(plan, compare) if plan.rules.problems else compare
        return compare, compare

    def _node_comparer(self, plan: NodePlan) -> tuple[Compare, Compare]:
        leaf = leaf_comparer(plan)
        objects = self._lazily(plan, object_comparer, dict)
        arrays = self._lazily(plan, array_comparer, list)

        def compare(old: Any, new: Any, run: Run, path: Path) -> None:
            kind = type(old)
            if kind is dict and type(new) is dict:
                objects[0](old, new, run, path)
            elif kind is list and type(new) is list:
                arrays[0](old, new, run, path)
            else:
                leaf(old, new, run, path)

        return compare, lambda old, new, run, path: objects[0](old, new, run, path)

    def _lazily(self, plan: NodePlan, build: Callable[[NodePlan], Compare], kind: type) -> list[Compare]:
        """A place for a comparer that is compiled when a payload first needs it."""

        def first(old: Any, new: Any, run: Run, path: Path) -> None:
            place[0] = self._guarded(plan, build(plan), kind)
            if kind is dict and plan.compare_objects is not plan.compare:
                plan.compare_objects = place[0]
            place[0](old, new, run, path)

        place: list[Compare] = [first]
        return place

    def _guarded(self, plan: NodePlan, comparer: Compare, kind: type) -> Compare:
        """The comparer of a container, behind what the schema has against containers here."""
        types = plan.node.types
        is_wrong = types is not None and self.checks_types and not admits(types, kind())
        if not is_wrong and plan.rules.cast is None:
            return comparer

        def compare(old: Any, new: Any, run: Run, path: Path) -> None:
            if is_wrong:
                run.schema_mismatch(path, old, new, [OLD, NEW], expectation(types or frozenset()))
            if plan.rules.cast is not None:
                message = "The cast failed (not a scalar); the raw values are compared"
                run.warn("RULE_ERROR", path, message, plan.rules.text("cast"))
            comparer(old, new, run, path)

        return compare

    def containers(self, plan: NodePlan, old: Any, new: Any, run: Run, path: Path) -> None:
        """Compare two objects or two arrays that did not come as such."""
        build = object_comparer if type(old) is dict else array_comparer
        self._guarded(plan, build(plan), type(old))(old, new, run, path)

    @cached_property
    def renames(self) -> dict[str, tuple[str, ...]]:
        """Old names -> the names that aliases give them, wherever they stand."""
        found: dict[str, dict[str, None]] = {}
        full = f"{EXTENSION_PREFIX}alias"
        for node in reachable(self.document, self._root) if full in self._survey.extensions else ():
            for name, fragments in node.properties.items():
                alias = self.document.node(fragments).extensions.get(full)
                if alias is not None and isinstance(alias.value, str):
                    found.setdefault(alias.value, {})[name] = None
        return {old: tuple(names) for old, names in found.items()}

    @cached_property
    def fields_in_schema(self) -> int:
        """How many leaves the schema describes; one that several places refer to counts once."""
        return self._survey.leaves if self._is_large else count_leaves(self.document, self._root)


def _present(old: Any, new: Any, run: Run, path: Path) -> None:
    """`exists`: both are there, no descent."""
    run.checked += 1


def _ignoring(plan: NodePlan) -> Compare:
    def compare(old: Any, new: Any, run: Run, path: Path) -> None:
        run.ignored += union_leaf_count(old, new)
        run.note(path, plan.removed_by or plan.rules.text("strategy") or "", "ignored")

    return compare


def _conditional(plan: NodePlan, condition: Condition) -> Compare:
    def compare(old: Any, new: Any, run: Run, path: Path) -> None:
        plan.decided(condition.decide(run, path, plan.rules)).compare(old, new, run, path)

    return compare


def _announcing(plan: NodePlan, compare: Compare) -> Compare:
    def announce(old: Any, new: Any, run: Run, path: Path) -> None:
        plan.compiler.announce(plan, run, path)
        compare(old, new, run, path)

    return announce


def _traced(plan: NodePlan, compare: Compare) -> Compare:
    if not plan.compiler.config.trace_rule_application or not plan.rules.texts:
        return compare

    def trace(old: Any, new: Any, run: Run, path: Path) -> None:
        known = len(run.diffs)
        try:
            compare(old, new, run, path)
        finally:
            outcome = "match" if len(run.diffs) == known else "mismatch"
            for rule in plan.rules.texts.values():
                run.note(path, rule, outcome)

    return trace
