"""Checks of a schema before any payload is compared, and a schema inferred from samples.

>>> for finding in lint("type: string\\nx-migration-precison: 0.1"):
...     print(finding.line, finding.message)
2 unknown extension x-migration-precison; did you mean x-migration-precision?
>>> infer_schema([{"a": 1}, {"a": 1.5, "b": None}])["properties"]["a"]
{'type': 'number'}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from driftline.payloads._compare.sides import parse_condition
from driftline.payloads._rules.extensions import EXTENSIONS, FieldRules, read_rules
from driftline.payloads._rules.path_rules import start_state
from driftline.payloads._rules.scalars import BadValueError
from driftline.payloads._schema.nodes import (
    EXTENSION_PREFIX,
    Fragment,
    Fragments,
    Node,
    SchemaDocument,
    objects_of,
    open_document,
    parts_of,
)
from driftline.payloads._schema.root import components_of, find_root, reachable
from driftline.payloads._values.paths import KeyPath, escape_pointer
from driftline.payloads._values.values import Json, kind_of

_NUMERIC = frozenset({"number", "integer"})
_ANY_NAME = "*"  # of additionalProperties and patternProperties
_OUTRANKED_BY_PATTERN = ("datetime-format", "datetime-tolerance")
# Keywords of JSON Schema that say what is valid; a comparison does not follow them.
_NOT_FOLLOWED = (
    "if", "then", "else", "not", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems",
    "dependentSchemas", "dependencies", "contentSchema", "additionalItems",
)  # fmt: skip


_LATE_REFERENCES = {"$dynamicRef", "$recursiveRef"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a schema, and its position."""

    rule: str
    message: str
    pointer: str
    line: int | None = None
    column: int | None = None

    def to_dict(self) -> dict[str, Json]:
        """The finding as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Place:
    """A node with its rules and how it is reached."""

    node: Node
    rules: FieldRules
    name: str | None  # as a member; None for roots, items and the like
    document: SchemaDocument


def lint(schema: object, root: str | None = None) -> list[Finding]:
    """The findings of a schema, in the order of the document; raises `SCHEMA_PARSE_ERROR` where it cannot be read."""
    document = open_document(schema)
    nodes = reachable(document, find_root(document, root))
    found: dict[tuple[str, str], Finding] = {}
    for rule, message, pointer in (
        *_at_nodes(document, nodes),
        *_unreachable(document, nodes),
        *_not_followed(document, nodes),
    ):
        found.setdefault((pointer, message), Finding(rule, message, pointer, **document.position(pointer)))
    return sorted(found.values(), key=lambda finding: (finding.line or 0, finding.column or 0, finding.pointer))


def _at_nodes(document: SchemaDocument, nodes: list[Node]) -> Iterator[tuple[str, str, str]]:
    names: dict[tuple[str, ...], str] = {}
    for node in nodes:
        for name, fragments in node.properties.items():
            names.setdefault(document.node(fragments).pointers, name)
        for fragments in (node.additional, *((fragment,) for _, fragment in node.patterns)):
            if fragments:
                names.setdefault(document.node(fragments).pointers, _ANY_NAME)
    for node in nodes:
        place = _Place(node, read_rules(node.extensions), names.get(node.pointers), document)
        for check in (_unreadable, _wrong_type, _outranked, _out_of_place, _aliases, _absent_members):
            for rule, message in check(place):
                extension = node.extensions.get(rule)
                pointer = extension.pointer if extension is not None else (node.pointers[0] if node.pointers else "")
                yield rule, message, pointer


def _rule(name: str) -> str:
    return EXTENSION_PREFIX + name


def _unreadable(place: _Place) -> Iterator[tuple[str, str]]:
    for problem in place.rules.problems:
        yield problem.rule, problem.message
    if place.rules.when is not None:
        try:
            parse_condition(place.rules.when)
        except BadValueError as error:
            yield _rule("when"), f"x-migration-when is not a condition ({error})"
    for path, reason in start_state(place.rules.global_ignores)[2].items():
        yield _rule("global-ignores"), f"{path} is not a JSONPath ({reason})"


def _wrong_type(place: _Place) -> Iterator[tuple[str, str]]:
    types = place.node.types
    if types is None or place.rules.inherit or place.node.choices:
        return
    cast = place.rules.scalars.get("cast")
    fits = {
        "number": bool(types & _NUMERIC) or cast in ("int", "float"),
        "string": "string" in types or cast == "string",
        "array": "array" in types,
    }
    for name in place.node.extensions:
        scope = EXTENSIONS[name].scope if name in EXTENSIONS else ""
        if not fits.get(scope, True):
            yield name, f"{name} is for {scope}s, the type is {' or '.join(sorted(types))}: it never applies"


def _outranked(place: _Place) -> Iterator[tuple[str, str]]:
    rules = place.rules
    if rules.strategy in ("ignore", "exists"):
        for name in place.node.extensions:
            kind = EXTENSIONS.get(name)
            if kind is not None and kind.field != "strategy" and (kind.is_value_rule or kind.scope == "array"):
                yield name, f"{name} never applies beside x-migration-strategy: {rules.strategy}"
    elif "pattern" in rules.scalars:
        for name in map(_rule, _OUTRANKED_BY_PATTERN):
            if name in place.node.extensions:
                yield name, f"{name} never applies beside x-migration-pattern"


def _out_of_place(place: _Place) -> Iterator[tuple[str, str]]:
    given, types = place.node.extensions, place.node.types
    mode = given.get(_rule("array-mode"))
    needs = "needs x-migration-array-mode: keyed" if mode is None or mode.value != "keyed" else None
    alone = "is for members of an object: it never applies"
    for name, reason in (
        ("array-key", needs),
        ("duplicate-handling", needs),
        ("alias", alone if place.name in (None, _ANY_NAME) else None),
        ("default", alone if place.name is None else None),
    ):
        if reason is not None and _rule(name) in given:
            yield _rule(name), f"{_rule(name)} {reason}"
    if place.rules.inherit and types is not None and not types & {"object", "array"}:
        yield _rule("inherit-rules"), "x-migration-inherit-rules on a scalar: nothing inherits"


def _aliases(place: _Place) -> Iterator[tuple[str, str]]:
    alias = place.rules.alias
    if alias is not None and alias == place.name:
        yield _rule("alias"), f"x-migration-alias repeats the member's own name {alias}"
    owner: dict[str, str] = {}
    for name, fragments in place.node.properties.items():
        given = place.document.node(fragments).extensions.get(_rule("alias"))
        if given is not None and owner.setdefault(str(given.value), name) != name:
            first = owner[str(given.value)]
            yield _rule("alias"), f"{first} and {name} have the same x-migration-alias {given.value}"


def _absent_members(place: _Place) -> Iterator[tuple[str, str]]:
    """Keys and sort fields that the schema of the items does not have."""
    named = [(_rule("array-key"), path) for path in place.rules.array_key]
    named += [(_rule("order-by"), path) for path, _ in place.rules.order_by]
    for rule, path in named:
        missing = _first_absent(place.document, place.node.items, path)
        if missing is not None:
            yield rule, f"{rule} names {'.'.join(path)}, but the items have no member {missing}"


def _first_absent(document: SchemaDocument, fragments: Fragments, path: KeyPath) -> str | None:
    for name in path:
        node = document.node(fragments) if fragments else None
        # Where the schema names no members, or allows others, any name may be one.
        if node is None or not node.properties or node.additional or node.patterns or node.choices:
            return None
        if name not in node.properties:
            return name
        fragments = node.properties[name]
    return None


def _not_followed(document: SchemaDocument, nodes: list[Node]) -> Iterator[tuple[str, str, str]]:
    """Rules under keywords that a comparison does not follow, and references that it does not."""
    seen: set[int] = set()
    for pointer in (pointer for node in nodes for pointer in node.pointers):
        found = document.lookup(pointer)
        if found is None or not isinstance(found.schema, dict) or id(found.schema) in seen:
            continue
        seen.add(id(found.schema))
        for schema, place in (found, *parts_of(document, found)):
            if not isinstance(schema, dict):
                continue
            for word in _LATE_REFERENCES & schema.keys():
                yield word, f"{word} is not followed: what it refers to is compared without rules", f"{place}/{word}"
            for word in (word for word in _NOT_FOLLOWED if word in schema):
                for owner in objects_of(Fragment(schema[word], f"{place}/{word}")):
                    for name in (name for name in owner.schema if name.startswith(EXTENSION_PREFIX)):
                        message = f"{name} under {word} never applies: a comparison does not follow {word}"
                        yield name, message, f"{owner.pointer}/{escape_pointer(name)}"


def _unreachable(document: SchemaDocument, nodes: list[Node]) -> Iterator[tuple[str, str, str]]:
    known = {pointer for node in nodes for pointer in node.pointers}
    used = {extension.pointer for node in nodes for extension in node.extensions.values()}
    for name, fragment in components_of(document.source.content).items():
        for node in reachable(document, fragment) if fragment.pointer not in known else ():
            for rule, extension in node.extensions.items():
                if extension.pointer not in used:
                    yield rule, f"{name} is not reached from the root: {rule} never applies", extension.pointer


def infer_schema(samples: Iterable[Json]) -> dict[str, Json]:
    """The tightest schema of types, members and required members that all samples fit (payloads §8.3)."""
    given = list(samples)
    types = sorted({"integer" if type(value) is int else kind_of(value) for value in given})
    if "number" in types and "integer" in types:
        types.remove("integer")
    schema: dict[str, Any] = {"type": types[0] if len(types) == 1 else types} if types else {}
    objects = [value for value in given if isinstance(value, dict)]
    members: dict[str, list[Any]] = {}
    for value in objects:
        for name, item in value.items():
            members.setdefault(name, []).append(item)
    if members:
        schema["properties"] = {name: infer_schema(items) for name, items in members.items()}
        required = [name for name, items in members.items() if len(items) == len(objects)]
        if required:
            schema["required"] = required
    items = [item for value in given if isinstance(value, list) for item in value]
    if items:
        schema["items"] = infer_schema(items)
    return schema
