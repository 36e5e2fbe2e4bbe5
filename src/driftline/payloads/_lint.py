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

from driftline.payloads._compare.conditions import parse_condition
from driftline.payloads._rules.extensions import EXTENSIONS, FieldRules, read_rules
from driftline.payloads._rules.path_rules import start_state
from driftline.payloads._rules.scalars.parts import BadValueError
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
    start = find_root(document, root)
    found: dict[tuple[str, str], Finding] = {}
    for place in _places(document, start):
        for check in CHECKS:
            for rule, message in check(place):
                _add(found, document, place.node, rule, message)
    for rule, message, pointer in (*_unreachable(document, start), *_not_followed(document, start)):
        found.setdefault((pointer, message), _finding(document, rule, message, pointer))
    return sorted(found.values(), key=lambda finding: (finding.line or 0, finding.column or 0, finding.pointer))


def _add(found: dict[Any, Finding], document: SchemaDocument, node: Node, rule: str, message: str) -> None:
    extension = node.extensions.get(rule)
    pointer = extension.pointer if extension is not None else (node.pointers[0] if node.pointers else "")
    found.setdefault((pointer, message), _finding(document, rule, message, pointer))


def _finding(document: SchemaDocument, rule: str, message: str, pointer: str) -> Finding:
    return Finding(rule, message, pointer, **document.position(pointer))


def _places(document: SchemaDocument, start: Fragment) -> Iterator[_Place]:
    names: dict[tuple[str, ...], str] = {}
    nodes = reachable(document, start)
    for node in nodes:
        for name, fragments in node.properties.items():
            names.setdefault(document.node(fragments).pointers, name)
        for fragments in (node.additional, *((fragment,) for _, fragment in node.patterns)):
            if fragments:
                names.setdefault(document.node(fragments).pointers, _ANY_NAME)
    for node in nodes:
        yield _Place(node, read_rules(node.extensions), names.get(node.pointers), document)


def _problems(place: _Place) -> Iterator[tuple[str, str]]:
    for problem in place.rules.problems:
        yield problem.rule, problem.message


def _bad_condition(place: _Place) -> Iterator[tuple[str, str]]:
    if place.rules.when is not None:
        try:
            parse_condition(place.rules.when)
        except BadValueError as error:
            yield f"{EXTENSION_PREFIX}when", f"x-migration-when is not a condition ({error})"


def _bad_paths(place: _Place) -> Iterator[tuple[str, str]]:
    for path in start_state(place.rules.global_ignores)[2]:
        yield f"{EXTENSION_PREFIX}global-ignores", f"{path.text} is not a JSONPath ({path.reason})"


def _wrong_type(place: _Place) -> Iterator[tuple[str, str]]:
    types = place.node.types
    if types is None or place.rules.inherit or place.node.choices:
        return
    shown = " or ".join(sorted(types))
    for name in place.node.extensions:
        scope = EXTENSIONS[name].scope if name in EXTENSIONS else ""
        if scope == "number" and not types & _NUMERIC and place.rules.cast not in ("int", "float"):
            yield name, f"{name} is for numbers, the type is {shown}: it never applies"
        elif scope == "string" and "string" not in types and place.rules.cast != "string":
            yield name, f"{name} is for strings, the type is {shown}: it never applies"
        elif scope == "array" and "array" not in types:
            yield name, f"{name} is for arrays, the type is {shown}: it never applies"


def _outranked(place: _Place) -> Iterator[tuple[str, str]]:
    rules = place.rules
    if rules.strategy in ("ignore", "exists"):
        for name in place.node.extensions:
            kind = EXTENSIONS.get(name)
            if kind is not None and kind.field != "strategy" and (kind.is_value_rule or kind.scope == "array"):
                yield name, f"{name} never applies beside x-migration-strategy: {rules.strategy}"
    elif rules.pattern is not None:
        for name in _OUTRANKED_BY_PATTERN:
            if EXTENSION_PREFIX + name in place.node.extensions:
                yield EXTENSION_PREFIX + name, f"{EXTENSION_PREFIX}{name} never applies beside x-migration-pattern"


def _needs_keyed(place: _Place) -> Iterator[tuple[str, str]]:
    mode = place.node.extensions.get(f"{EXTENSION_PREFIX}array-mode")
    if mode is None or mode.value != "keyed":
        for name in ("array-key", "duplicate-handling"):
            if EXTENSION_PREFIX + name in place.node.extensions:
                yield EXTENSION_PREFIX + name, f"{EXTENSION_PREFIX}{name} needs x-migration-array-mode: keyed"


def _needs_a_member(place: _Place) -> Iterator[tuple[str, str]]:
    for name, needs_own_name in (("alias", True), ("default", False)):
        is_member = place.name is not None and not (needs_own_name and place.name == _ANY_NAME)
        if not is_member and EXTENSION_PREFIX + name in place.node.extensions:
            yield EXTENSION_PREFIX + name, f"{EXTENSION_PREFIX}{name} is for members of an object: it never applies"


def _nothing_inherits(place: _Place) -> Iterator[tuple[str, str]]:
    node = place.node
    is_scalar = node.types is not None and not node.types & {"object", "array"}
    if place.rules.inherit and is_scalar:
        yield f"{EXTENSION_PREFIX}inherit-rules", "x-migration-inherit-rules on a scalar: nothing inherits"


def _aliases(place: _Place) -> Iterator[tuple[str, str]]:
    alias = place.rules.alias
    if alias is not None and alias == place.name:
        yield f"{EXTENSION_PREFIX}alias", f"x-migration-alias repeats the member's own name {alias}"


def _repeated_aliases(place: _Place) -> Iterator[tuple[str, str]]:
    owner: dict[Any, str] = {}
    for name, fragments in place.node.properties.items():
        alias = place.document.node(fragments).extensions.get(f"{EXTENSION_PREFIX}alias")
        if alias is not None and owner.setdefault(str(alias.value), name) != name:
            first = owner[str(alias.value)]
            yield f"{EXTENSION_PREFIX}alias", f"{first} and {name} have the same x-migration-alias {alias.value}"


def _absent_members(place: _Place) -> Iterator[tuple[str, str]]:
    """Keys and sort fields that the schema of the items does not have."""
    named = [("array-key", path) for path in place.rules.array_key]
    named += [("order-by", field.path) for field in place.rules.order_by]
    for name, path in named:
        missing = _first_absent(place.document, place.node.items, path)
        if missing is not None:
            rule = EXTENSION_PREFIX + name
            yield rule, f"{rule} names {'.'.join(path)}, but the items have no member {missing}"


def _first_absent(document: SchemaDocument, fragments: Fragments, path: KeyPath) -> str | None:
    for name in path:
        node = document.node(fragments) if fragments else None
        # Where the schema names no members, or leaves room for others, any name may be one.
        if node is None or not node.properties or node.additional or node.patterns or node.choices:
            return None
        if name not in node.properties:
            return name
        fragments = node.properties[name]
    return None


CHECKS = (
    _problems,
    _bad_condition,
    _bad_paths,
    _wrong_type,
    _outranked,
    _needs_keyed,
    _needs_a_member,
    _nothing_inherits,
    _aliases,
    _repeated_aliases,
    _absent_members,
)


def _not_followed(document: SchemaDocument, start: Fragment) -> Iterator[tuple[str, str, str]]:
    """Rules under keywords that a comparison does not follow."""
    seen: set[int] = set()
    for node in reachable(document, start):
        for pointer in node.pointers:
            found = document.lookup(pointer)
            if found is None or not isinstance(found.schema, dict) or id(found.schema) in seen:
                continue
            seen.add(id(found.schema))
            for owner in (found, *parts_of(document, found)):
                for keyword in _NOT_FOLLOWED:
                    if isinstance(owner.schema, dict) and keyword in owner.schema:
                        below = Fragment(owner.schema[keyword], f"{owner.pointer}/{keyword}")
                        yield from _unused_rules(below, keyword)


def _unused_rules(fragment: Fragment, keyword: str) -> Iterator[tuple[str, str, str]]:
    for owner in objects_of(fragment):
        for name in owner.schema:
            if name.startswith(EXTENSION_PREFIX):
                pointer = f"{owner.pointer}/{escape_pointer(name)}"
                yield name, f"{name} under {keyword} never applies: a comparison does not follow {keyword}", pointer


def _unreachable(document: SchemaDocument, start: Fragment) -> Iterator[tuple[str, str, str]]:
    known = {pointer for node in reachable(document, start) for pointer in node.pointers}
    used = {extension.pointer for node in reachable(document, start) for extension in node.extensions.values()}
    for name, fragment in components_of(document.source.content).items():
        if fragment.pointer in known:
            continue
        for node in reachable(document, fragment):
            for rule, extension in node.extensions.items():
                if extension.pointer not in used:
                    yield rule, f"{name} is not reached from the root: {rule} never applies", extension.pointer


def infer_schema(samples: Iterable[Json]) -> dict[str, Json]:
    """The tightest schema of types, members and required members that all samples fit (payloads §8.3)."""
    given = list(samples)
    types = sorted({_type_of(value) for value in given})
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


def _type_of(value: Any) -> str:
    kind = kind_of(value)
    return "integer" if kind == "number" and isinstance(value, int) else kind
