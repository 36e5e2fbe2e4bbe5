"""From a schema to plans: contexts, shared plans, and which comparer a node gets."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from driftline.payloads.arrays import array_comparer
from driftline.payloads.choices import Seen, choice_comparer, choose
from driftline.payloads.conditions import Condition, parse_condition
from driftline.payloads.config import EngineConfig
from driftline.payloads.ignores import start_state
from driftline.payloads.leaves import leaf_comparer
from driftline.payloads.objects import object_comparer
from driftline.payloads.paths import Path
from driftline.payloads.plan import Compare, Context, Extensions, NodePlan, Variant
from driftline.payloads.rules import Problem, read_rules
from driftline.payloads.run import Run
from driftline.payloads.schema_nodes import EXTENSION_PREFIX, Extension, Fragment, Fragments, Node, SchemaDocument
from driftline.payloads.schema_root import check_references, document_extensions, reachable
from driftline.payloads.type_checks import admits, expectation
from driftline.payloads.values import MISSING, NEW, OLD, union_leaf_count

_PLAIN = Variant()


class Compiler:
    """Owns the plans of one schema and configuration."""

    def __init__(self, document: SchemaDocument, root: Fragment, config: EngineConfig) -> None:
        self.document = document
        self.config = config
        self.checks_types = config.strict_schema_validation or config.trace_rule_application
        self.inherited_sets: dict[tuple[tuple[str, str], ...], Extensions] = {(): {}}
        self._plans: dict[Any, NodePlan] = {}
        self._defaulted: dict[int, tuple[str, ...]] = {}
        self._root = root
        check_references(document, root)
        self._nodes = reachable(document, root)
        self.has_conditions = any(f"{EXTENSION_PREFIX}when" in node.extensions for node in self._nodes)
        state, self.located, self.problems = self._ignores()
        settings = read_rules(self._document_settings())
        flags = (settings.null_as_missing is True, settings.empty_as_null is True)
        self.root = self.plan((root,), Context((), *flags, (state, state)))

    def _document_settings(self) -> dict[str, Extension]:
        settings = document_extensions(self.document, self._root)
        return {name: Extension(value, f"/{name}") for name, value in settings.items()}

    def _ignores(self) -> tuple[Any, Any, list[Problem]]:
        """Global ignores of the root, of the document and of everything below: `$` is always the payload."""
        name = f"{EXTENSION_PREFIX}global-ignores"
        given = [node.extensions[name] for node in self._nodes if name in node.extensions]
        given += [value for key, value in self._document_settings().items() if key == name]
        texts = tuple(text for extension in given for text in read_rules({name: extension}).global_ignores)
        state, located, bad = start_state(texts)
        pointer = given[0].pointer if given else ""
        problems = [
            Problem(name, f"{name}: {path.text} is not a JSONPath ({path.reason}); it is not used", pointer)
            for path in bad
        ]
        return state, located, problems

    def plan(self, fragments: Fragments, context: Context, variant: Variant = _PLAIN) -> NodePlan:
        """The shared plan of a node in a context."""
        key = (tuple(fragment.pointer for fragment in fragments), context, variant)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = NodePlan(self, fragments, context, variant)
        return plan

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

    def comparer(self, plan: NodePlan) -> Compare:
        """The comparer of a plan: condition, then choices, then the rules of the node."""
        if plan.condition is not None:
            compare = _conditional(plan, plan.condition)
        elif plan.rules.strategy == "ignore" or plan.removed_by is not None:
            compare = _ignoring(plan)
        elif plan.choices:
            compare = choice_comparer(plan)
        else:
            compare = _traced(plan, self._node_comparer(plan))
        return _announcing(plan, compare) if plan.rules.problems else compare

    def _node_comparer(self, plan: NodePlan) -> Compare:
        if plan.rules.strategy == "exists":
            return _present
        leaf, containers = leaf_comparer(plan), self.containers(plan)

        def compare(old: Any, new: Any, run: Run, path: Path) -> None:
            kind = type(old)
            if (kind is dict or kind is list) and kind is type(new):
                containers(old, new, run, path)
            else:
                leaf(old, new, run, path)

        return compare

    def containers(self, plan: NodePlan) -> Compare:
        """Compares two objects or two arrays; what is needed is compiled when it is met."""
        built: dict[type, Compare] = {}
        types = plan.node.types

        def compare(old: Any, new: Any, run: Run, path: Path) -> None:
            kind = type(old)
            comparer = built.get(kind)
            if comparer is None:
                comparer = built[kind] = (object_comparer if kind is dict else array_comparer)(plan)
            if types is not None and self.checks_types and not admits(types, old):
                run.schema_mismatch(path, old, new, [OLD, NEW], expectation(types))
            if plan.rules.cast is not None:
                message = "The cast failed (not a scalar); the raw values are compared"
                run.warn("RULE_ERROR", path, message, plan.rules.text("cast"))
            comparer(old, new, run, path)

        return compare

    @cached_property
    def fields_in_schema(self) -> int:
        """How many leaves the schema describes; a recursive reference adds none."""
        return _SchemaLeaves(self.document).count((self._root,))


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


class _SchemaLeaves:
    """Counts leaves; every node is counted once on its own and remembered."""

    def __init__(self, document: SchemaDocument) -> None:
        self._document = document
        self._known: dict[tuple[str, ...], int] = {}
        self._open: set[tuple[str, ...]] = set()

    def count(self, fragments: Fragments) -> int:
        node = self._document.node(fragments)
        if node.pointers in self._open:
            return 0
        if node.pointers not in self._known:
            self._open.add(node.pointers)
            self._known[node.pointers] = self._sum(node)
            self._open.discard(node.pointers)
        return self._known[node.pointers]

    def _sum(self, node: Node) -> int:
        below = [part for part in _parts(node) if part]
        return sum(map(self.count, below)) + sum(map(self._widest, node.choices)) if below or node.choices else 1

    def _widest(self, choice: Any) -> int:
        return max(self.count((branch,)) for branch in choice.branches)


def _parts(node: Node) -> list[Fragments]:
    patterns: list[Fragments] = [(fragment,) for _, fragment in node.patterns]
    return [*node.properties.values(), *patterns, node.additional, node.items, *node.prefix_items]
