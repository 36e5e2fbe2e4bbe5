"""Plans: the settings of a whole schema, and its nodes with their rules, compiled when a payload first gets there.

Equal contexts share a plan, so that recursive schemas give a finite graph and comparing never walks the schema again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from driftline.payloads._compare.report import Run
from driftline.payloads._rules.extensions import EXTENSIONS, FieldRules, Problem, read_rules
from driftline.payloads._rules.meaning import STRICT, Meaning
from driftline.payloads._rules.path_rules import LocatedPath, PathRule, PathState, selected_names, start_state
from driftline.payloads._rules.scalars import BadValueError
from driftline.payloads._schema.nodes import EXTENSION_PREFIX, Choice, Extension, Fragment, Fragments, SchemaDocument
from driftline.payloads._schema.root import Survey, count_leaves, document_extensions, reachable
from driftline.payloads._values.limits import EngineConfig, current
from driftline.payloads._values.paths import NAMINGS, Path, to_camel, to_snake
from driftline.payloads._values.patterns import PatternTimeoutError, SafePattern
from driftline.payloads._values.values import MISSING, NEW, OLD, Value

Compare = Callable[[Value, Value, Run, Path], None]
# Compares two objects or two arrays; the caller has checked which.
ContainerCompare = Callable[[Any, Any, Run, Path], None]
# Counts two objects where they surely match, and says whether it did.
Match = Callable[[Any, Any, Run], bool]
Build = Callable[["NodePlan"], None]
Extensions = Mapping[str, Extension]

MAX_FOLDED_SCHEMAS = 3_000
# Branches of choices side by side multiply, and so do ignored paths with inherited rules.
MAX_PLANS = 100_000

_WHEN = EXTENSION_PREFIX + "when"
_INHERIT = EXTENSION_PREFIX + "inherit-rules"
# What only makes sense on the field that carries it is not handed down (payloads §3.4).
_PERSONAL = frozenset({EXTENSION_PREFIX + "alias", EXTENSION_PREFIX + "default", _WHEN})
_GLOBAL_RULES = frozenset(name for name, kind in EXTENSIONS.items() if kind.scope == "global")
_ARRAY_RULES = frozenset(name for name, kind in EXTENSIONS.items() if kind.scope == "array")
_BARE = (STRICT, Meaning(FieldRules(), empty_as_null=True))


class SchemaSettings:
    """What a whole schema says, found once for a root and a configuration: switches, ignored paths, renames."""

    def __init__(
        self,
        document: SchemaDocument,
        root: Fragment,
        config: EngineConfig,
        flags: tuple[PathRule, ...] = (),
        *,
        is_observed: bool = False,
        is_record: bool = False,
    ) -> None:
        self.document = document
        self.root = root
        self.is_record = is_record  # payloads are whole responses
        self.is_observed = is_observed  # then equal values take no short cut
        self.config = config
        self.flags = flags
        self.checks_types = config.strict_schema_validation or config.trace_rule_application
        self._survey = Survey(document, root)
        # A large document is folded where a payload gets to, not all of it beforehand.
        self._is_large = self._survey.schemas > MAX_FOLDED_SCHEMAS
        self._own = {name: Extension(value, f"/{name}") for name, value in document_extensions(document, root).items()}
        # Set anywhere, both flags may meet: then an empty string can be a missing member.
        self.drops_empty_strings = self._is_set("empty-string-as-null") and self._is_set("allow-null-as-missing")
        self.warns_of_values = any(self._is_set(name) for name in ("cast", "datetime-format", "datetime-tolerance"))
        self.has_aliases = f"{EXTENSION_PREFIX}alias" in self._survey.extensions
        self.tracks_owners = any("@" in str(rule.value) for rule in self._survey.extensions.get(_WHEN, ()))
        self.state, self.located, self.problems = self._ignores()
        self.selects = selected_names(flags)
        self.switches = read_rules(self._own)

    def _is_set(self, name: str) -> bool:
        full = EXTENSION_PREFIX + name
        is_flag = any(name == given for flag in self.flags for given, _ in flag.extensions)
        return is_flag or full in self._own or full in self._survey.extensions

    def _ignores(self) -> tuple[PathState, list[LocatedPath], list[Problem]]:
        """Global ignores of the root, of the document and of everything below: `$` is always the payload."""
        name = f"{EXTENSION_PREFIX}global-ignores"
        nodes = [] if self._is_large else reachable(self.document, self.root)
        given = [node.extensions[name] for node in nodes if name in node.extensions]
        given += self._survey.extensions.get(name, ()) if self._is_large else ()
        given += [self._own[name]] if name in self._own else []
        texts = tuple(text for extension in given for text in read_rules({name: extension}).global_ignores)
        state, located, bad = start_state(texts, self.flags)
        pointer = given[0].pointer if given else ""
        problem = "{}: {} is not a JSONPath ({}); it is not used"
        return state, located, [Problem(name, problem.format(name, *each), pointer) for each in bad.items()]

    @cached_property
    def renames(self) -> Renames:
        """Old names -> the names that aliases and conventions give them, anywhere in the schema."""
        found: dict[str, dict[str, None]] = {}
        full = f"{EXTENSION_PREFIX}alias"
        for node in reachable(self.document, self.root) if self.has_aliases else ():
            for name, fragments in node.properties.items():
                alias = self.document.node(fragments).extensions.get(full)
                if alias is not None and isinstance(alias.value, str):
                    found.setdefault(alias.value, {})[name] = None
        return Renames({old: tuple(names) for old, names in found.items()}, has_naming=self._is_set("naming"))

    @cached_property
    def fields_in_schema(self) -> int:
        """How many leaves the schema describes; one that is referred to several times counts once."""
        return self._survey.leaves if self._is_large else count_leaves(self.document, self.root)


class Renames(dict[str, tuple[str, ...]]):
    """Old names -> New's names; under a naming convention also in the other spelling."""

    def __init__(self, aliases: Mapping[str, tuple[str, ...]], *, has_naming: bool) -> None:
        super().__init__(aliases)
        self._has_naming = has_naming

    def names(self, old: str) -> tuple[str, ...]:
        """What New may call a member of Old."""
        return self.get(old, ()) + ((to_camel(old), to_snake(old)) if self._has_naming else ())


class Condition(Protocol):
    """A compiled condition of a field."""

    def holds(self, run: Run, side: int) -> bool: ...

    def decide(self, run: Run, path: Path, rules: FieldRules) -> bool: ...


class Context(NamedTuple):
    """What a node gets from above; `inherited` names a set of extensions (see `Plans.intern`)."""

    inherited: tuple[tuple[str, str], ...]
    null_as_missing: bool
    empty_as_null: bool
    allow_new: bool
    naming: str | None
    states: tuple[PathState, PathState]


class Variant(NamedTuple):
    """Which reading of a node a plan is: chosen branches, and whether its condition is decided."""

    taken: frozenset[str] = frozenset()
    decided: bool | None = None


_PLAIN = Variant()


class Plans:
    """The plans of one schema and configuration; equal nodes in equal contexts share one.

    The modules that compare by plans say how a condition is read, and give a plan its functions.
    """

    def __init__(self, settings: SchemaSettings, condition: Callable[[str], Condition], build: Build) -> None:
        self.settings = settings
        self.condition = condition
        self.build = build
        self._inherited: dict[tuple[tuple[str, str], ...], Extensions] = {(): {}}
        self._plans: dict[tuple[tuple[str, ...], Context, Variant], NodePlan] = {}
        given, states = settings.switches, (settings.state, settings.state)
        switches = (bool(given.null_as_missing), bool(given.empty_as_null), bool(given.allow_new))
        self.root = self.plan((settings.root,), Context((), *switches, given.naming, states))

    def plan(self, fragments: Fragments, context: Context, variant: Variant = _PLAIN) -> NodePlan:
        """The shared plan of a node in a context."""
        document = self.settings.document
        fragments = document.canonical(fragments)
        key = (tuple(fragment.pointer for fragment in fragments), context, variant)
        plan = self._plans.get(key)
        if plan is None:
            current().check()
            if len(self._plans) >= MAX_PLANS:
                raise document.error(f"the rules unfold into more than {MAX_PLANS:,} cases", fragments[0].pointer)
            plan = self._plans[key] = NodePlan(self, fragments, context, variant)
        return plan

    def intern(self, extensions: Extensions) -> tuple[tuple[str, str], ...]:
        """A hashable name for a set of inherited extensions."""
        key = tuple(sorted((name, extension.pointer) for name, extension in extensions.items()))
        self._inherited.setdefault(key, extensions)
        return key

    def inherited(self, context: Context) -> Extensions:
        """The extensions that a node gets from above."""
        return self._inherited[context.inherited]


class NodePlan:
    """A schema node in its context; `compare` is built at its first use."""

    MAX_NAMES = 4096  # that are known by name; a payload may have any number of others

    def __init__(self, plans: Plans, fragments: Fragments, context: Context, variant: Variant) -> None:
        self.plans = plans
        self.settings = plans.settings
        self.fragments = fragments
        self.context = context
        self.variant = variant
        self.states = context.states
        self.removed_by = self.states[OLD].removed_by if self.states[NEW].removed_by else None
        self.node = self.settings.document.node(fragments)
        self.choices = [choice for choice in self.node.choices if _choice_id(choice) not in variant.taken]
        extensions = self._extensions()
        self.rules, self.condition = self._rules(extensions)
        rules = self.rules
        self.null_as_missing = context.null_as_missing if rules.null_as_missing is None else rules.null_as_missing
        self.empty_as_null = context.empty_as_null if rules.empty_as_null is None else rules.empty_as_null
        self.allow_new = context.allow_new if rules.allow_new is None else rules.allow_new
        self.naming = context.naming if rules.naming is None else rules.naming
        # Fields without rules share one.
        self.meaning = Meaning(rules, empty_as_null=self.empty_as_null) if rules.texts else _BARE[self.empty_as_null]
        self.inherited = self._handed_down(extensions)
        self.aliases = self._aliases()
        self.renames = bool(self.aliases) or self.naming in NAMINGS  # Old's members can have other names than New's
        self._children: dict[Any, NodePlan] = {}
        self._by_name: dict[str, NodePlan] = {}
        self._patterns: list[SafePattern] | None = None
        self._decided: dict[bool, NodePlan] = {}
        self.tokenizers: dict[tuple[int, bool], Any] = {}
        self.needs_pairwise: bool | None = None  # cached by `pairing.needs_pairwise`
        self.pairwise_members: int | None = None
        # Built when a payload first gets here. Containers that do not come as such, but out of an enum map, have been
        # announced and traced already.
        self.compare: Compare = self._first_compare
        self.compare_containers: Compare = self._first_compare
        self.match: Match | None = None  # there once the node has met objects,
        self.walk: ContainerCompare = self._first_compare  # and what compares those that it does not match

    def _first_compare(self, old: Value, new: Value, run: Run, path: Path) -> None:
        self.plans.build(self)
        self.compare(old, new, run, path)

    def announce(self, run: Run, path: Path) -> None:
        """Warn, once in a comparison, about rules that cannot be used."""
        for problem in self.rules.problems:
            run.warn_once((problem.rule, problem.pointer), path, problem.message, problem.rule)

    def _extensions(self) -> Extensions:
        found: Extensions = self.node.extensions
        stops = found.get(_INHERIT)
        if self.variant.decided is False:  # the field's rules fall away
            found = _switches(found)
        elif stops is None or stops.value is not False:
            found = {**self.plans.inherited(self.context), **found}
        return {**found, **self.states[OLD].extensions, **self.states[NEW].extensions}

    def _rules(self, extensions: Extensions) -> tuple[FieldRules, Condition | None]:
        rules = read_rules(extensions)
        if rules.when is None or self.variant.decided is not None:
            return rules, None
        try:
            return rules, self.plans.condition(rules.when)
        except BadValueError as error:
            message = f"{_WHEN} is not a condition ({error}); the field is compared strictly"
            problem = Problem(_WHEN, message, extensions[_WHEN].pointer)
            return replace(read_rules(_switches(extensions)), problems=(*rules.problems, problem)), None

    def _handed_down(self, extensions: Extensions) -> tuple[tuple[str, str], ...]:
        cut = self.variant.decided is False or self.rules.inherit is False
        handed = {} if cut else dict(self.plans.inherited(self.context))
        if self.rules.inherit:
            is_array = "array" in (self.node.types or ()) or bool(self.node.items)
            # Rules about an array mean this array; on an object they can only be meant for the arrays below.
            barred = _PERSONAL | _GLOBAL_RULES | (_ARRAY_RULES if is_array else frozenset())
            handed |= {name: value for name, value in extensions.items() if name not in barred}
        return self.plans.intern(handed)

    def _aliases(self) -> dict[str, str]:
        """Old name -> New name of the aliased members."""
        found: dict[str, str] = {}
        for name, fragments in self.node.properties.items() if self.settings.has_aliases else ():
            alias = self.settings.document.node(fragments).extensions.get(EXTENSION_PREFIX + "alias")
            if alias is not None and isinstance(alias.value, str) and alias.value not in ("", name):
                found.setdefault(alias.value, name)
        return found

    def new_name(self, raw: str) -> str:
        """New's name of a member of Old."""
        if raw in self.aliases:
            return self.aliases[raw]
        rename = NAMINGS.get(self.naming) if self.naming is not None else None
        return raw if rename is None else rename(raw)

    def decided(self, holds: bool) -> NodePlan:
        """This node once its condition is known."""
        plan = self._decided.get(holds)
        if plan is None:
            plan = self.plans.plan(self.fragments, self.context, self.variant._replace(decided=holds))
            self._decided[holds] = plan
        return plan

    def for_pair(self, run: Run, path: Path) -> NodePlan:
        """This node with its condition decided for the current objects."""
        return self if self.condition is None else self.decided(self.condition.decide(run, path, self.rules))

    def chosen(self, choice: Choice, branch: int | None) -> NodePlan:
        """This node with one branch of a choice folded in (None: the choice is left out)."""
        variant = self.variant._replace(taken=self.variant.taken | {_choice_id(choice)})
        extra = () if branch is None else (choice.branches[branch],)
        return self.plans.plan((*self.fragments, *extra), self.context, variant)

    def member(self, name: str, old_name: str | None = None) -> NodePlan:
        """The plan of a member by New's name (and Old's, where an alias renames it)."""
        if old_name is None or old_name == name:
            known = self._by_name.get(name)
            if known is not None:
                return known
        # What decides a member's schema is its name, or the patterns that its name matches.
        key = (name if name in self.node.properties else None, self._matching_patterns(name))
        states = (self.states[OLD].step(name if old_name is None else old_name), self.states[NEW].step(name))
        plan = self._children.get((key, states))
        if plan is None:
            fragments = self.node.properties.get(name, ()) + tuple(self.node.patterns[number][1] for number in key[1])
            fragments = fragments or (() if name in self.node.properties else self.node.additional)
            plan = self._children[key, states] = self.plans.plan(fragments, self._below(states))
        if old_name is None and (name in self.node.properties or len(self._by_name) < self.MAX_NAMES):
            self._by_name[name] = plan
        return plan

    @cached_property
    def defaulted(self) -> tuple[str, ...]:
        """The members of an object that have a default."""
        return tuple(name for name in self.node.properties if self.member(name).rules.default is not MISSING)

    def other_member(self) -> NodePlan | None:
        """The plan that all members without a declared name share; None where patterns tell them apart."""
        if self.node.patterns:
            return None
        name = ""
        while name in self.node.properties or name in self.states[OLD].names:
            name += "_"
        return self.member(name)

    def item(self, index: int | None = None) -> NodePlan:
        """The plan of an array item; `index` matters where the schema names leading items."""
        has_prefix = index is not None and index < len(self.node.prefix_items)
        is_named = index is not None and index in self.states[OLD].names
        position = index if has_prefix or is_named else None
        plan = self._children.get(position)
        if plan is None:
            fragments = self.node.prefix_items[position] if has_prefix and position is not None else self.node.items
            states = (self.states[OLD].step(position), self.states[NEW].step(position))
            plan = self._children[position] = self.plans.plan(fragments, self._below(states))
        return plan

    def _below(self, states: tuple[PathState, PathState]) -> Context:
        return Context(self.inherited, self.null_as_missing, self.empty_as_null, self.allow_new, self.naming, states)

    def _matching_patterns(self, name: str) -> tuple[int, ...]:
        if self._patterns is None:
            self._patterns = [SafePattern(text) for text, _ in self.node.patterns]
        found = []
        for number, pattern in enumerate(self._patterns):
            with suppress(PatternTimeoutError):
                found += [number] if pattern.search(name) else []
        return tuple(found)


def _switches(extensions: Extensions) -> Extensions:
    """What is left where the rules of a field fall away."""
    return {name: value for name, value in extensions.items() if name in _GLOBAL_RULES - {_INHERIT}}


def _choice_id(choice: Choice) -> str:
    return choice.branches[0].pointer
