"""What a whole schema says, found once before any payload is there: its switches, its ignored paths, its renames."""

from __future__ import annotations

from functools import cached_property

from driftline.payloads.config import EngineConfig
from driftline.payloads.path_rules import LocatedPath, PathRule, PathState, start_state
from driftline.payloads.rules import Problem, read_rules
from driftline.payloads.schema_nodes import EXTENSION_PREFIX, Extension, Fragment, SchemaDocument
from driftline.payloads.schema_root import count_leaves, document_extensions, reachable, survey

MAX_FOLDED_SCHEMAS = 3_000

_WHEN = f"{EXTENSION_PREFIX}when"


class SchemaSettings:
    """One root of a document under one configuration."""

    def __init__(
        self, document: SchemaDocument, root: Fragment, config: EngineConfig, flags: tuple[PathRule, ...] = ()
    ) -> None:
        self.document = document
        self.root = root
        self.config = config
        self.flags = flags
        self.checks_types = config.strict_schema_validation or config.trace_rule_application
        self._survey = survey(document, root)
        # A large document is folded where a payload gets to, not all of it beforehand.
        self._is_large = self._survey.schemas > MAX_FOLDED_SCHEMAS
        self._nodes = [] if self._is_large else reachable(document, root)
        self._own = {name: Extension(value, f"/{name}") for name, value in document_extensions(document, root).items()}
        # Set anywhere, both flags may meet: then an empty string can be a missing member.
        self.drops_empty_strings = self._is_set("empty-string-as-null") and self._is_set("allow-null-as-missing")
        self.warns_of_values = any(self._is_set(name) for name in ("cast", "datetime-format", "datetime-tolerance"))
        self.tracks_owners = any("@" in str(rule.value) for rule in self._survey.extensions.get(_WHEN, ()))
        self.state, self.located, self.problems = self._ignores()
        switches = read_rules(self._own)
        self.null_as_missing = switches.null_as_missing is True
        self.empty_as_null = switches.empty_as_null is True

    def _is_set(self, name: str) -> bool:
        full = EXTENSION_PREFIX + name
        if any(name == given for flag in self.flags for given, _ in flag.extensions):
            return True
        return full in self._own or full in self._survey.extensions

    def _ignores(self) -> tuple[PathState, list[LocatedPath], list[Problem]]:
        """Global ignores of the root, of the document and of everything below: `$` is always the payload."""
        name = f"{EXTENSION_PREFIX}global-ignores"
        given = [node.extensions[name] for node in self._nodes if name in node.extensions]
        if self._is_large:
            given = list(self._survey.extensions.get(name, ()))
        given += [value for key, value in self._own.items() if key == name]
        texts = tuple(text for extension in given for text in read_rules({name: extension}).global_ignores)
        state, located, bad = start_state(texts, self.flags)
        pointer = given[0].pointer if given else ""
        problems = [
            Problem(name, f"{name}: {path.text} is not a JSONPath ({path.reason}); it is not used", pointer)
            for path in bad
        ]
        return state, located, problems

    @cached_property
    def renames(self) -> dict[str, tuple[str, ...]]:
        """Old names -> the names that aliases give them, wherever they stand."""
        found: dict[str, dict[str, None]] = {}
        full = f"{EXTENSION_PREFIX}alias"
        for node in reachable(self.document, self.root) if full in self._survey.extensions else ():
            for name, fragments in node.properties.items():
                alias = self.document.node(fragments).extensions.get(full)
                if alias is not None and isinstance(alias.value, str):
                    found.setdefault(alias.value, {})[name] = None
        return {old: tuple(names) for old, names in found.items()}

    @cached_property
    def fields_in_schema(self) -> int:
        """How many leaves the schema describes; one that several places refer to counts once."""
        return self._survey.leaves if self._is_large else count_leaves(self.document, self.root)
